/* ladder.c - the convex hull of the plain levels, and the steps between its corners. */
#include "estimator/autobatch/ladder.h"

#include "estimator/base/checked.h"
#include "estimator/program/cost.h"

struct corner {     /* a plain level, of all layers */
    uint64_t bytes; /* alive at most in a micro-batch; other phases know no levels */
    double seconds;
};

uint32_t pl_ladder_batch(const struct pl_question *q) {
    const uint64_t samples = pl_u64_div_up(PL_LADDER_TOKENS, q->job->max_seq_length);
    return (uint32_t)pl_u64_min(samples, pl_question_most_samples(q));
}

static pl_err measure(const struct pl_question *q, uint32_t level, struct pl_planned *held,
                      struct corner *out, struct pl_diag *d) {
    const struct pl_speed speed = pl_speed_nominal(&q->traits);
    struct pl_question trial = *q;
    trial.decided.gradient_checkpointing = level;
    trial.batch_size = pl_ladder_batch(q);
    PL_TRY(pl_question_measure_within(&trial, PL_BOUND_ALONE, held, d));
    *out = (struct corner){held->plan->phases[PL_PHASE_MICRO].live_bytes,
                           pl_program_micro_seconds(held->program, &speed)};
    return PL_ERR_OK;
}

/* Seconds that each byte costs which `b` keeps less than `a`. */
static double slope(const struct corner *a, const struct corner *b) {
    return (b->seconds - a->seconds) / (double)(a->bytes - b->bytes);
}

/* The next corner of the hull (Jarvis, On the identification of the convex hull of a finite set of
 * points in the plane, 1973); PL_RECOMPUTE_OFFLOAD: none keeps less. */
static uint32_t next_corner(const struct corner *all, uint32_t from) {
    uint32_t best = PL_RECOMPUTE_OFFLOAD;
    for (uint32_t i = 0; i < PL_RECOMPUTE_OFFLOAD; i++) {
        if (all[i].bytes >= all[from].bytes) continue;
        double s = slope(&all[from], &all[i]);
        if (best == PL_RECOMPUTE_OFFLOAD || s < slope(&all[from], &all[best]) ||
            (s <= slope(&all[from], &all[best]) && all[i].bytes < all[best].bytes))
            best = i;
    }
    return best;
}

pl_err pl_ladder_init(struct pl_ladder *l, const struct pl_question *q, struct pl_planned *held,
                      struct pl_diag *d) {
    struct corner all[PL_RECOMPUTE_OFFLOAD];
    const uint32_t layers = (uint32_t)q->model->layers;
    const uint32_t frozen = (uint32_t)pl_u64_min(q->job->freeze_layers, layers);
    *l = (struct pl_ladder){.levels = {pl_question_level(q)},
                            .n_levels = 1,
                            .first_layer = frozen,
                            .layers = layers - frozen};
    if (l->levels[0] != PL_RECOMPUTE_AUTO) return PL_ERR_OK;
    uint32_t at = PL_RECOMPUTE_NONE;
    for (uint32_t i = 0; i < PL_RECOMPUTE_OFFLOAD; i++) {
        PL_TRY(measure(q, i, held, &all[i], d));
        if (all[i].seconds < all[at].seconds) at = i;
    }
    for (l->n_levels = 0; at != PL_RECOMPUTE_OFFLOAD; at = next_corner(all, at))
        l->levels[l->n_levels++] = at;
    return PL_ERR_OK;
}

uint32_t pl_ladder_rungs(const struct pl_ladder *l) {
    return (l->n_levels - 1) * l->layers + 1;
}

uint32_t pl_ladder_value(const struct pl_ladder *l, uint32_t rung) {
    if (rung == 0) return l->levels[0];
    const uint32_t *pair = &l->levels[rung / l->layers], k = rung % l->layers;
    return k ? PL_RECOMPUTE_MIX(pair[1], l->first_layer + k, pair[0]) : pair[0];
}
