/* autolevel.c - levels tried from the fastest kind on. */
#include "estimator/autobatch/autolevel.h"

#include "estimator/program/cost.h"

struct candidate {
    uint32_t level, batch_size; /* batch_size 0: does not fit */
    double seconds_per_token;
};

/* From nothing recomputed to everything; between them whole layers, spread over the depth. */
static const uint32_t levels[] = {PL_RECOMPUTE_NONE, PL_RECOMPUTE_LIGHT, PL_RECOMPUTE_EVERY_N(4),
                                  PL_RECOMPUTE_EVERY_N(2), PL_RECOMPUTE_FULL};
#define N_LEVELS (sizeof levels / sizeof *levels)

const uint32_t *pl_autolevel_levels(uint32_t *n) {
    *n = N_LEVELS;
    return levels;
}

/* The batch that `job` would run with, as far as this level has one. */
static pl_err choose_batch(const struct pl_job *job, const struct pl_model *m,
                           const struct pl_traits *traits, const struct pl_budget *budget,
                           uint32_t limit, uint32_t *batch_size, struct pl_diag *d) {
    struct pl_autobatch search;
    *batch_size = job->batch_size;
    if (job->batch_size != PL_AUTO) return PL_ERR_OK;
    pl_err err = pl_autobatch_solve(job, m, traits, budget, limit, &search, d);
    *batch_size = search.batch_size;
    pl_autobatch_finish(&search);
    return err;
}

static pl_err try_level(const struct pl_job *job, const struct pl_model *m,
                        const struct pl_traits *traits, const struct pl_budget *budget,
                        uint32_t limit, struct candidate *c, struct pl_diag *d) {
    const struct pl_speed speed = pl_speed_nominal(traits);
    struct pl_job trial = *job; /* strings and lists stay borrowed */
    struct pl_planned planned;
    trial.gradient_checkpointing = c->level;
    PL_TRY(choose_batch(&trial, m, traits, budget, limit, &c->batch_size, d));
    if (!c->batch_size) return PL_ERR_OK;
    PL_TRY(pl_planned_init(&planned, &trial, m, traits, c->batch_size, d));
    c->seconds_per_token = pl_program_seconds_per_token(planned.program, &speed);
    if (planned.plan->arena_bytes > pl_budget_usable(budget)) c->batch_size = 0;
    pl_planned_finish(&planned);
    return PL_ERR_OK;
}

static void tell(const struct pl_job *job, const char *why, struct pl_text *notes) {
    struct pl_text level = {0};
    if (!notes) return;
    pl_job_write_key(job, PL_KEY_gradient_checkpointing, &level);
    pl_text_addf(notes, "gradient_checkpointing: auto is `%s`: %s\n", pl_text_str(&level), why);
    pl_text_finish(&level);
}

pl_err pl_autolevel_decide(struct pl_job *job, const struct pl_model *m,
                           const struct pl_traits *traits, const struct pl_budget *budget,
                           uint32_t limit, struct pl_text *notes, struct pl_diag *d) {
    struct candidate best = {.level = PL_RECOMPUTE_FULL};
    if (job->gradient_checkpointing != PL_RECOMPUTE_AUTO) return PL_ERR_OK;
    if (job->inference) { /* has no backward pass */
        job->gradient_checkpointing = best.level;
        return PL_ERR_OK;
    }
    for (size_t i = 0; budget->known && i < N_LEVELS; i++) {
        struct candidate c = {.level = levels[i]};
        PL_TRY(try_level(job, m, traits, budget, limit, &c, d));
        if (c.batch_size && (!best.batch_size || c.seconds_per_token < best.seconds_per_token))
            best = c;
    }
    job->gradient_checkpointing = best.level;
    tell(job,
         !budget->known    ? "the smallest, since no budget is known"
         : best.batch_size ? "the least work per token of those that fit"
                           : "the smallest, and not even that fits",
         notes);
    return PL_ERR_OK;
}
