/* recovery.c - the state machine as a table: what a state does, where it may go, what it trusts. */
#include "oom_recovery/recovery.h"

#include "estimator/base/checked.h"
#include "estimator/base/units.h"

#include <assert.h>
#include <stddef.h>

/* One walk through the machine. `failure` is fresh for every hook: an out-of-memory that was
 * survived must not win over the report of a later, different failure. */
struct walk {
    struct pl_oom *m;
    const struct pl_oom_hooks *h;
    pl_err err; /* result of the newest hook that can fail */
    struct pl_diag failure;
    bool planned;   /* the plan is one for m->batch_size */
    bool reserved;  /* the batch arena is the plan's */
    bool drained;   /* nothing is in flight, the device's last error is cleared */
    bool discarded; /* no half-made gradient can reach the next attempt */
};

static struct pl_diag *fresh(struct walk *w) {
    w->failure = (struct pl_diag){0};
    return &w->failure;
}

/* Why the micro-batch cannot be halved again, and the advice that fits. */
static const struct obstacle {
    const char *why, *hint;
} at_one_sample = {"one sample cannot be halved",
                   "lower max_seq_length, or change what is marked [!] above"},
  switched_off = {"oom_recovery is off",
                  "set `oom_recovery: true`, or start with a smaller batch_size"},
  spent = {"no halving is left for this run",
           "start with a smaller batch_size, or raise oom_max_retries"};

/* NULL when another halving may be tried. The order gives the advice that would help. */
static const struct obstacle *obstacle_to_halving(const struct pl_oom *m) {
    if (m->batch_size <= 1) return &at_one_sample;
    if (!m->enabled) return &switched_off;
    return m->retries >= m->max_retries ? &spent : NULL;
}

/* --- states ---------------------------------------------------------------------------------- */

/* Only a lack of device memory in a hook is worth another attempt. */
static enum pl_oom_state after_failure(const struct walk *w) {
    return w->err == PL_ERR_DEVICE_OOM ? PL_OOM_CLASSIFY : PL_OOM_FAILED;
}

static enum pl_oom_state do_run(struct walk *w) {
    w->drained = w->discarded = false;
    w->err = w->h->attempt(w->h->ctx, fresh(w));
    return w->err == PL_ERR_OK ? PL_OOM_DONE : after_failure(w);
}

/* Facts are asked for at every failure, before anything is released: a neighbour may have come or
 * gone since the last one. */
static enum pl_oom_state do_classify(struct walk *w) {
    w->m->last = (struct pl_oom_facts){0};
    w->h->facts(w->h->ctx, &w->m->last);
    if (!w->m->last.what) w->m->last.what = "device memory";
    return obstacle_to_halving(w->m) ? PL_OOM_EXHAUSTED : PL_OOM_DRAIN;
}

/* A device that cannot be drained is lost, whatever it says: nothing after this may trust it. */
static enum pl_oom_state do_drain(struct walk *w) {
    w->err = w->h->drain(w->h->ctx, fresh(w));
    w->drained = w->err == PL_ERR_OK;
    return w->drained ? PL_OOM_DISCARD : PL_OOM_FAILED;
}

/* All of the step's gradient goes, never a part: a sum of some micro-batches divided by the tokens
 * of all of them would be a wrong gradient. */
static enum pl_oom_state do_discard(struct walk *w) {
    w->h->discard(w->h->ctx);
    w->discarded = true;
    return PL_OOM_HALVE;
}

static enum pl_oom_state do_halve(struct walk *w) {
    struct pl_oom *m = w->m;
    struct pl_oom_event e = {.step = m->step, .facts = m->last, .old_batch_size = m->batch_size};
    m->batch_size = pl_oom_halve(m->batch_size);
    m->retries++;
    w->planned = w->reserved = false;
    e.attempt = m->retries;
    e.new_batch_size = m->batch_size;
    e.gradient_accumulation_steps = pl_oom_accumulation(m->global_batch, m->batch_size);
    w->h->event(w->h->ctx, &e);
    return PL_OOM_REPLAN;
}

/* Planning touches no device: an error here is not one that a smaller batch cures. */
static enum pl_oom_state do_replan(struct walk *w) {
    w->err = w->h->replan(w->h->ctx, w->m->batch_size, fresh(w));
    w->planned = w->err == PL_ERR_OK;
    return w->planned ? PL_OOM_RESERVE : PL_OOM_FAILED;
}

static enum pl_oom_state do_reserve(struct walk *w) {
    w->err = w->h->reserve(w->h->ctx, fresh(w));
    w->reserved = w->err == PL_ERR_OK;
    return w->reserved ? PL_OOM_RUN : after_failure(w);
}

/* --- what each state may trust --------------------------------------------------------------- */

static void check_run(const struct walk *w) {
    assert(w->planned && w->reserved && w->err == PL_ERR_OK);
}

static void check_classify(const struct walk *w) {
    assert(w->err == PL_ERR_DEVICE_OOM);
}

static void check_drain(const struct walk *w) {
    assert(w->err == PL_ERR_DEVICE_OOM && !obstacle_to_halving(w->m));
}

static void check_discard(const struct walk *w) {
    assert(w->drained && w->err == PL_ERR_OK);
}

static void check_halve(const struct walk *w) {
    assert(w->drained && w->discarded && !obstacle_to_halving(w->m));
}

static void check_replan(const struct walk *w) {
    assert(w->drained && w->discarded && !w->planned && !w->reserved);
    assert(w->m->retries >= 1 && w->m->retries <= w->m->max_retries);
}

static void check_reserve(const struct walk *w) {
    assert(w->planned && !w->reserved);
}

static void check_done(const struct walk *w) {
    assert(w->err == PL_ERR_OK && w->planned && w->reserved);
}

static void check_exhausted(const struct walk *w) {
    assert(w->err == PL_ERR_DEVICE_OOM && obstacle_to_halving(w->m));
}

static void check_failed(const struct walk *w) {
    assert(w->err != PL_ERR_OK);
}

/* --- the table ------------------------------------------------------------------------------- */

#define TO(state) (1u << PL_OOM_##state)

static const struct {
    enum pl_oom_state (*act)(struct walk *w); /* NULL = the walk ends here */
    void (*check)(const struct walk *w);      /* on entry */
    unsigned successors;
} states[] = {
    [PL_OOM_RUN] = {do_run, check_run, TO(DONE) | TO(CLASSIFY) | TO(FAILED)},
    [PL_OOM_CLASSIFY] = {do_classify, check_classify, TO(DRAIN) | TO(EXHAUSTED)},
    [PL_OOM_DRAIN] = {do_drain, check_drain, TO(DISCARD) | TO(FAILED)},
    [PL_OOM_DISCARD] = {do_discard, check_discard, TO(HALVE)},
    [PL_OOM_HALVE] = {do_halve, check_halve, TO(REPLAN)},
    [PL_OOM_REPLAN] = {do_replan, check_replan, TO(RESERVE) | TO(FAILED)},
    [PL_OOM_RESERVE] = {do_reserve, check_reserve, TO(RUN) | TO(CLASSIFY) | TO(FAILED)},
    [PL_OOM_DONE] = {NULL, check_done, 0},
    [PL_OOM_EXHAUSTED] = {NULL, check_exhausted, 0},
    [PL_OOM_FAILED] = {NULL, check_failed, 0},
};

#define STATES_PER_HALVING 7 /* RUN .. RESERVE: the longest way round the diagram */

/* --- reports --------------------------------------------------------------------------------- */

static pl_err report_exhausted(const struct pl_oom *m, struct pl_diag *d) {
    char asked[PL_BYTES_TEXT], available[PL_BYTES_TEXT];
    const struct obstacle *obstacle = obstacle_to_halving(m);
    const struct pl_oom_facts *f = &m->last;
    pl_err err = pl_diag_set(
        d, PL_ERR_GPU_OOM,
        "step %llu: %s asked for %s (%llu bytes) with %s (%llu bytes) free at micro-batch %u; "
        "halvings done: %u of %u; %s",
        (unsigned long long)m->step, f->what, pl_bytes_text(f->requested_bytes, asked),
        (unsigned long long)f->requested_bytes, pl_bytes_text(f->free_bytes, available),
        (unsigned long long)f->free_bytes, m->batch_size, m->retries, m->max_retries,
        obstacle->why);
    pl_diag_hint(d, "%s", obstacle->hint);
    return err;
}

static pl_err report_failed(const struct walk *w, struct pl_diag *d) {
    if (d && d->err == PL_ERR_OK) *d = w->failure;
    return pl_diag_set(d, w->err, "step %llu failed without a reason given",
                       (unsigned long long)w->m->step);
}

void pl_oom_init(struct pl_oom *m, bool enabled, uint32_t max_retries, uint32_t batch_size,
                 uint64_t global_batch) {
    *m = (struct pl_oom){.enabled = enabled,
                         .max_retries = max_retries,
                         .batch_size = batch_size,
                         .global_batch = global_batch};
}

static pl_err walk_from(struct walk *w, enum pl_oom_state start, uint64_t step, struct pl_diag *d) {
    struct pl_oom *m = w->m;
    const struct pl_oom_hooks *h = w->h;
    uint64_t rounds = (uint64_t)m->max_retries - pl_u64_min(m->retries, m->max_retries) + 2;
    uint64_t moves_left = rounds * STATES_PER_HALVING;
    assert(m->batch_size >= 1 && m->global_batch >= 1);
    assert(h->attempt && h->drain && h->discard && h->replan && h->reserve && h->facts && h->event);
    m->step = step;
    m->state = start;
    states[start].check(w);
    while (states[m->state].act) {
        assert(moves_left > 0);
        moves_left--;
        enum pl_oom_state next = states[m->state].act(w);
        assert(states[m->state].successors & (1u << next));
        m->state = next;
        states[next].check(w);
    }
    if (m->state == PL_OOM_EXHAUSTED) return report_exhausted(m, d);
    return m->state == PL_OOM_FAILED ? report_failed(w, d) : PL_ERR_OK;
}

pl_err pl_oom_run(struct pl_oom *m, const struct pl_oom_hooks *h, uint64_t step, bool reserve_first,
                  struct pl_diag *d) {
    struct walk w = {.m = m, .h = h, .planned = true, .reserved = !reserve_first};
    return walk_from(&w, reserve_first ? PL_OOM_RESERVE : PL_OOM_RUN, step, d);
}

pl_err pl_oom_go_back(struct pl_oom *m, const struct pl_oom_hooks *h, uint64_t step,
                      struct pl_diag *d) {
    struct walk w = {.m = m, .h = h, .err = PL_ERR_DEVICE_OOM, .planned = true, .reserved = true};
    return walk_from(&w, PL_OOM_CLASSIFY, step, d);
}

pl_err pl_oom_refuse(struct pl_oom *m, uint64_t step, const struct pl_oom_facts *facts,
                     struct pl_diag *d) {
    assert(obstacle_to_halving(m));
    m->step = step;
    m->last = *facts;
    return report_exhausted(m, d);
}

uint64_t pl_oom_accumulation(uint64_t global_batch, uint32_t batch_size) {
    return pl_u64_div_up(global_batch, batch_size);
}

uint32_t pl_oom_halve(uint32_t batch_size) {
    return batch_size / 2 + batch_size % 2;
}
