#include "runtime/session/arenas.h"

#include "estimator/base/checked.h"
#include "runtime/device/available.h"
#include "runtime/session/explain.h"

uint64_t pl_session_free_bytes(const struct pl_session *s) {
    uint64_t limit = s->device->budget_bytes, used = s->device->used_bytes;
    uint64_t left = limit > used ? limit - used : 0, there = left;
    if (pl_device_is_cuda(s->job->device) &&
        s->device->ops->free_bytes(s->device, &there, NULL) != PL_ERR_OK)
        return left;
    return pl_u64_min(left, there);
}

/* ---- registration ---- */

static void unregister(struct pl_session *s, void **registered) {
    if (*registered) s->comm->ops->unregister_memory(s->comm, *registered);
    *registered = NULL;
}

/* An arena without bytes needs nothing. */
static bool is_registered(struct pl_session *s, const struct pl_arena *a, void **registered) {
    if (a->base && !*registered)
        *registered = s->comm->ops->register_memory(s->comm, a->base, a->bytes);
    return !a->base || *registered;
}

/* C5 of comm.h: where one rank has not registered its memory, none keeps it registered. */
pl_err pl_session_register_arenas(struct pl_session *s, struct pl_diag *d) {
    bool of[PL_RANKS_MAX], all = true;
    if (!s->comm || !s->comm->ops->register_memory) return PL_ERR_OK;
    const bool mine = is_registered(s, &s->job_arena, &s->job_registered) &&
                      is_registered(s, &s->batch_arena, &s->batch_registered);
    PL_TRY(pl_comm_agree(s->comm, &mine, sizeof mine, of, d));
    for (uint32_t r = 0; r < s->comm->world.size; r++)
        all = all && of[r];
    if (all) return PL_ERR_OK;
    unregister(s, &s->batch_registered);
    unregister(s, &s->job_registered);
    return PL_ERR_OK;
}

/* ---- arenas ---- */

/* Graphs know the addresses of what they work on. */
void pl_session_release_batch(struct pl_session *s) {
    for (uint32_t i = 0; i < s->n_rungs; i++)
        pl_exec_forget(&s->rungs[i].exec);
    unregister(s, &s->batch_registered);
    pl_arena_release(s->device, &s->batch_arena);
    for (int place = PL_PLACE_PINNED; place < PL_PLACE_COUNT; place++)
        pl_host_release(s->device, place, &s->host_arenas.batch[place]);
}

void pl_session_release_arenas(struct pl_session *s) {
    pl_session_release_batch(s);
    unregister(s, &s->job_registered);
    pl_arena_release(s->device, &s->job_arena);
    for (int place = PL_PLACE_PINNED; place < PL_PLACE_COUNT; place++)
        pl_host_release(s->device, place, &s->host_arenas.job[place]);
}

static pl_err reserve_host_job(struct pl_session *s, struct pl_diag *d) {
    for (int place = PL_PLACE_PINNED; place < PL_PLACE_COUNT; place++)
        PL_TRY(pl_host_reserve(s->device, place, s->rungs[0].planned.plan->host[place].job_bytes,
                               "job arena of the host", &s->host_arenas.job[place], d));
    return pl_staging_reserve(s->device, d);
}

/* No halving makes weights smaller: out of memory here is final. */
pl_err pl_session_reserve_job(struct pl_session *s, struct pl_diag *d) {
    uint64_t bytes = s->rungs[0].planned.plan->job_bytes;
    struct pl_diag failure = {0};
    pl_err err = pl_arena_reserve(s->device, bytes, "job arena", &s->job_arena, &failure);
    if (err == PL_ERR_OK) return reserve_host_job(s, d);
    s->facts = (struct pl_oom_facts){.what = "job arena",
                                     .requested_bytes = bytes,
                                     .free_bytes = pl_session_free_bytes(s),
                                     .injected = s->device->inject.at != 0};
    pl_diag_set(d, err, "%s", failure.message);
    if (err == PL_ERR_DEVICE_OOM) {
        pl_session_explain_oom(s);
        pl_diag_hint(d, "no batch size makes the job arena smaller: %s",
                     s->job->inference ? "a smaller context or a 4-bit base does"
                                       : "`offload`, `mode: lora` or `mode: qlora` does");
    }
    return err;
}

/* A smaller micro-batch would need less of this memory, so a refusal is one that halving answers.
 * The free bytes are of the machine, not of the device: a limit on pinned memory shows as a refusal
 * in spite of it. */
static pl_err reserve_host_batch(struct pl_session *s, struct pl_diag *d) {
    for (int place = PL_PLACE_PINNED; place < PL_PLACE_COUNT; place++) {
        uint64_t bytes = pl_session_rung(s)->planned.plan->host[place].batch_bytes;
        struct pl_diag failure = {0};
        pl_err err = pl_host_reserve(s->device, place, bytes, "batch arena of the host",
                                     &s->host_arenas.batch[place], &failure);
        if (err == PL_ERR_OK) continue;
        s->facts = (struct pl_oom_facts){.what = "batch arena of the host",
                                         .requested_bytes = bytes,
                                         .free_bytes = pl_cpu_available().bytes,
                                         .injected = s->device->inject_pinned.at != 0};
        return pl_diag_set(d, err == PL_ERR_HOST_OOM ? PL_ERR_DEVICE_OOM : err, "%s",
                           failure.message);
    }
    return PL_ERR_OK;
}

pl_err pl_session_reserve_batch(struct pl_session *s, struct pl_diag *d) {
    struct pl_rung *rung = pl_session_rung(s);
    pl_session_release_batch(s);
    PL_TRY(reserve_host_batch(s, d));
    s->facts = (struct pl_oom_facts){.what = "batch arena",
                                     .requested_bytes = rung->planned.plan->batch_bytes,
                                     .free_bytes = pl_session_free_bytes(s),
                                     .injected = s->device->inject.at != 0};
    PL_TRY(pl_arena_reserve(s->device, rung->planned.plan->batch_bytes, "batch arena",
                            &s->batch_arena, d));
    s->steady_allocations = pl_session_allocations(s);
    rung->exec.host_arenas = s->host_arenas;
    return pl_exec_bind(&rung->exec, &s->job_arena, &s->batch_arena, d);
}
