#include "runtime/admit/agreed.h"

#include "estimator/base/units.h"
#include "estimator/config/job_values.h"
#include "estimator/config/validate.h"

_Static_assert(PL_JOB_COMM_AUTO == (int)PL_COMM_AUTO && PL_JOB_COMM_NCCL == (int)PL_COMM_NCCL &&
                   PL_JOB_COMM_MPI == (int)PL_COMM_MPI,
               "the choices of `comm` are the kinds of engines");

pl_err pl_ranks_join(struct pl_spec *spec, const struct pl_world *world, struct pl_diag *d) {
    const struct pl_job *job = &spec->job;
    if (world->size == 1) return PL_ERR_OK;
    if (job->given[PL_KEY_devices] && job->devices != PL_AUTO && job->devices != world->size) {
        pl_job_error(job, PL_KEY_devices, PL_ERR_COMM_INIT, d,
                     "`devices` is %u, and %s started %u ranks", job->devices,
                     world->launcher ? world->launcher : "the launcher", world->size);
        pl_diag_hint(d, "remove `devices`, or start as many ranks");
        return PL_ERR_COMM_INIT;
    }
    spec->facts.are_ranks = true;
    spec->facts.devices = world->size;
    spec->facts.local_rank = world->local_rank;
    pl_resolve(spec);
    return pl_job_validate(job, d);
}

pl_err pl_agreed_meet(struct pl_preflight *pf, const struct pl_teller *teller, struct pl_diag *d) {
    /* One rank has nobody to send to; by name it opens NCCL all the same, which shows that it
     * works on a machine with one GPU. */
    const bool by_name = pl_device_is_cuda(pf->job->device) && pf->job->comm == PL_JOB_COMM_NCCL;
    /* G3: without a channel the calls below change nothing. */
    if (pf->world.size == 0 || (pf->world.size == 1 && !by_name)) return PL_ERR_OK;
    return pl_comm_meet(&pf->comm, &pf->world, pf->job->comm_timeout_seconds, teller, d);
}

struct room {
    uint64_t bytes, is_named; /* is_named: 0 or 1 */
};

pl_err pl_agreed_budget(struct pl_preflight *pf, struct pl_budget *b, struct pl_diag *d) {
    const struct room mine = {pl_budget_usable(b), pf->spec.facts.names_budget};
    struct room all[PL_RANKS_MAX];
    uint32_t least = 0;
    char bytes[PL_BYTES_TEXT];
    if (!pf->comm) return PL_ERR_OK;
    PL_TRY(pl_comm_agree(pf->comm, &mine, sizeof mine, all, d));
    for (uint32_t r = 0; r < pf->world.size; r++) {
        if (all[r].bytes < all[least].bytes) least = r;
        pf->spec.facts.names_budget |= all[r].is_named;
    }
    pl_resolve(&pf->spec);
    if (mine.bytes == all[least].bytes) return PL_ERR_OK;
    b->total_bytes -= mine.bytes - all[least].bytes;
    b->source = "the smallest budget of a rank";
    pl_text_addf(&pf->notes, "budget: that of rank %u, which has %s less than this rank, %u\n",
                 least, pl_bytes_text(mine.bytes - all[least].bytes, bytes), pf->world.rank);
    return PL_ERR_OK;
}

/* Each choice divides all that those before it do, and more. What one rank alone was told stays its
 * own, and is refused later. */
pl_err pl_agreed_sharding(struct pl_preflight *pf, bool open, uint32_t *sharding,
                          struct pl_diag *d) {
    const uint32_t mine = open ? *sharding : PL_SHARDING_AUTO;
    uint32_t all[PL_RANKS_MAX], most = mine;
    if (!pf->comm) return PL_ERR_OK;
    PL_TRY(pl_comm_agree(pf->comm, &mine, sizeof mine, all, d));
    for (uint32_t r = 0; r < pf->world.size; r++)
        if (all[r] > most) most = all[r];
    if (open) *sharding = most;
    return PL_ERR_OK;
}

struct decision {
    uint64_t arena_bytes; /* of the rank that decided so */
    struct pl_choices choices;
    uint32_t batch_size;
    uint32_t open; /* the keys of these that the job leaves open, a bit each */
};

static uint32_t open_keys(const struct pl_job *job) {
    return (job->batch_size == PL_AUTO) + 2 * (job->gradient_checkpointing == PL_RECOMPUTE_AUTO) +
           4 * (job->loss_chunk_tokens == PL_AUTO) + 8 * (job->mlp_chunk_tokens == PL_AUTO) +
           16 * (job->unpack_buffer == PL_AUTO_BYTES) + 32 * (job->keep_first_pass == PL_TRI_AUTO) +
           64 * (job->keep_unpacked == PL_TRI_AUTO);
}

static pl_err decision_of(const struct pl_question *q, struct decision *out, struct pl_diag *d) {
    struct pl_planned held = {0};
    PL_TRY(pl_question_measure(q, &held, d));
    *out = (struct decision){.arena_bytes = held.plan->arena_bytes,
                             .batch_size = q->batch_size,
                             .choices = q->decided,
                             .open = open_keys(q->job)};
    pl_planned_finish(&held);
    return PL_ERR_OK;
}

/* Ranks that leave different keys open are refused later. What was decided of a key that the job
 * has set counts for nothing (Q2 of question.h); the batch size is what the plan is for in any
 * case. */
pl_err pl_agreed_decision(struct pl_preflight *pf, struct pl_question *q, struct pl_diag *d) {
    struct decision mine, all[PL_RANKS_MAX];
    uint32_t least = 0;
    if (!pf->comm) return PL_ERR_OK;
    PL_TRY(decision_of(q, &mine, d));
    PL_TRY(pl_comm_agree(pf->comm, &mine, sizeof mine, all, d));
    for (uint32_t r = 0; r < pf->world.size; r++) {
        if (all[r].open != mine.open) return PL_ERR_OK;
        const struct decision *a = &all[r], *b = &all[least];
        const bool as_large = a->batch_size == b->batch_size;
        if (as_large ? a->arena_bytes < b->arena_bytes : a->batch_size < b->batch_size) least = r;
    }
    if (q->job->batch_size == PL_AUTO) q->batch_size = all[least].batch_size;
    q->decided = all[least].choices;
    return PL_ERR_OK;
}
