#include "estimator/program/shard.h"

/* Fused matrices are cut module by module, as files have them. */
static uint32_t parts_of(const struct pl_program *p, uint32_t id,
                         struct pl_part out[PL_MAX_PARTS]) {
    const struct pl_tensor *t = &p->tensors[id];
    if (t->role < PL_ROLE_CODES) return pl_tensor_parts(p, id, out);
    out[0] = (struct pl_part){t->row, 0, t->dims[0]};
    return 1;
}

uint32_t pl_tensor_shards(const struct pl_program *p, uint32_t id, uint32_t ranks, uint32_t rank,
                          struct pl_owned out[PL_MAX_PARTS]) {
    struct pl_part parts[PL_MAX_PARTS];
    const uint32_t n = parts_of(p, id, parts);
    uint64_t held = 0;
    for (uint32_t i = 0; i < n; i++) {
        const uint64_t block = pl_shard_block(parts[i].rows, p->tensors[id].dims[1]);
        const struct pl_shard own = pl_shard_of(parts[i].rows, block, ranks, rank);
        out[i] = (struct pl_owned){.part = parts[i], .block = block, .own = own, .at = held};
        held += own.rows;
    }
    return n;
}

bool pl_tensor_is_cut(const struct pl_job_shape *s, const struct pl_tensor *t) {
    if (s->sharding != PL_SHARDING_WEIGHTS || t->scope != PL_SCOPE_JOB) return false;
    return (t->role == PL_ROLE_WEIGHT && t->dims[1] > 1) || t->role == PL_ROLE_CODES ||
           t->role == (s->double_quant ? PL_ROLE_ABSMAX8 : PL_ROLE_ABSMAX);
}
