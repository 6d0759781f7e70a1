#include "runtime/session/load.h"

#include "estimator/base/checked.h"
#include "estimator/find/find.h"
#include "runtime/checkpoint/adapter_io.h"
#include "runtime/checkpoint/init.h"
#include "runtime/checkpoint/model_io.h"
#include "runtime/checkpoint/tensor_io.h"
#include "runtime/session/rope_table.h"

#include <stdlib.h>

static void *address(void *ctx, uint32_t tensor) {
    const struct pl_session *s = ctx;
    return pl_exec_address(&s->rungs[s->rung].exec, s->cut.whole ? s->cut.own[tensor] : tensor);
}

/* Data between ranks pass through memory of the batch, which rests meanwhile. */
static void add_cut(struct pl_session *s, struct pl_tensor_io *io) {
    if (!s->cut.whole) return;
    io->cut = &s->cut;
    io->program = s->cut.whole;
    io->staging_bytes = pl_u64_min(io->staging_bytes, s->staging_bytes);
    io->scratch = pl_device_is_cuda(s->job->device) ? s->batch_arena.base : NULL;
    io->scratch_bytes = io->staging_bytes;
}

struct pl_tensor_io pl_session_io(struct pl_session *s, enum pl_phase phase) {
    const struct pl_program *p = pl_session_rung(s)->planned.program;
    bool reaches_host = !pl_device_is_cuda(s->job->device);
    struct pl_tensor_io io = {.program = p,
                              .device = s->device,
                              .host = reaches_host ? s->device : s->host_device,
                              .address = address,
                              .ctx = s,
                              .comm = s->comm,
                              .staging = s->device->staging,
                              .staging_bytes = s->device->staging_bytes};
    for (uint32_t i = 0; i < p->n_tensors; i++) {
        if (p->tensors[i].role != PL_ROLE_STAGING || p->tensors[i].phase != phase) continue;
        io.staging = pl_exec_lend(&pl_session_rung(s)->exec, i);
        io.staging_bytes = p->tensors[i].bytes;
    }
    add_cut(s, &io);
    return io;
}

/* A row for every position of such a length, from row `first` of the table on. */
static pl_err fill_rope(struct pl_session *s, uint32_t id, uint64_t first, uint64_t length,
                        struct pl_diag *d) {
    struct pl_rung *rung = pl_session_rung(s);
    const uint32_t which = rung->planned.program->tensors[id].layer;
    const struct pl_rope *rope = &s->pf->model.rope[which == PL_ROPE_SECOND];
    const uint64_t rows = rung->planned.program->shape.max_seq_length;
    const uint64_t row_bytes = (uint64_t)rope->dim * sizeof(float);
    char *const table = (char *)pl_exec_address(&rung->exec, id) + first * row_bytes;
    double freq[PL_ROPE_MAX_PAIRS];
    float part[16 * 2 * PL_ROPE_MAX_PAIRS];
    const uint64_t most = sizeof part / row_bytes;
    pl_rope_frequencies(rope, length, freq);
    for (uint64_t row = 0; row < rows; row += most) {
        const uint64_t n = pl_u64_min(most, rows - row);
        pl_rope_rows(rope, freq, which == PL_ROPE_OF_QUERIES, row, n, part);
        pl_err err =
            s->device->ops->upload(s->device, table + row * row_bytes, part, n * row_bytes);
        if (err != PL_ERR_OK) return pl_diag_set(d, err, "the rope table could not be copied");
    }
    return PL_ERR_OK;
}

static pl_err fill_tables(struct pl_session *s, struct pl_diag *d) {
    const struct pl_program *p = pl_session_rung(s)->planned.program;
    const uint64_t positions = p->shape.max_seq_length;
    const uint64_t length = pl_rope_length(&s->pf->model.rope[0], positions);
    s->rope_length = length;
    for (uint32_t i = 0; i < p->n_tensors; i++) {
        const struct pl_tensor *t = &p->tensors[i];
        if (t->role != PL_ROLE_ROPE) continue;
        PL_TRY(fill_rope(s, i, 0, t->layer == 1 ? length : 0, d));
        if (t->dims[0] > positions) PL_TRY(fill_rope(s, i, positions, length, d));
    }
    return PL_ERR_OK;
}

pl_err pl_session_follow_length(struct pl_session *s, struct pl_diag *d) {
    const uint64_t length = pl_rope_length(&s->pf->model.rope[0], s->micro.max_len);
    if (length == 0 || length == s->rope_length) return PL_ERR_OK;
    const uint32_t id = pl_program_find(pl_session_rung(s)->planned.program, PL_ROLE_ROPE, 0, 1);
    PL_TRY(fill_rope(s, id, 0, length, d));
    s->rope_length = length;
    return PL_ERR_OK;
}

static pl_err load_adapter(struct pl_session *s, const struct pl_tensor_io *io, struct pl_diag *d) {
    char *path;
    PL_TRY(pl_find_adapter(s->job, &path, d));
    pl_err err = path ? pl_adapter_load(io, path, d) : pl_adapter_init(io, s->job->seed, d);
    free(path);
    return err;
}

pl_err pl_session_load(struct pl_session *s, struct pl_diag *d) {
    if (!pl_session_has_memory(s)) return PL_ERR_OK;
    struct pl_tensor_io io = pl_session_io(s, PL_PHASE_LOAD);
    PL_TRY(fill_tables(s, d));
    PL_TRY(s->job->init == PL_INIT_RANDOM ? pl_model_init_random(&io, s->job->seed, d)
                                          : pl_model_load(&io, s->pf->files.model_dir, d));
    return pl_mode_adapts(s->job->mode) ? load_adapter(s, &io, d) : PL_ERR_OK;
}

pl_err pl_session_check_base(const struct pl_session *s, struct pl_diag *d) {
    return s->pf->files.model_dir ? pl_model_check_numbers(s->pf->files.model_dir, d) : PL_ERR_OK;
}
