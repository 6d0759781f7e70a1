/* longest.c - the wall of max_seq_length at every level of recomputation. */
#include "estimator/advice/longest.h"

#include "estimator/advice/advice.h"
#include "estimator/config/key_table.h"
#include "estimator/config/recompute.h"
#include "estimator/config/validate.h"

/* `auto` mixes the levels before it, so its wall is searched from the farthest of theirs. */
static const uint32_t levels[PL_MAX_LONGEST] = {
    PL_RECOMPUTE_NONE, PL_RECOMPUTE_LIGHT, PL_RECOMPUTE_MLP,    PL_RECOMPUTE_ATTENTION,
    PL_RECOMPUTE_FULL, PL_RECOMPUTE_AUTO,  PL_RECOMPUTE_OFFLOAD};

/* Every key that the command has to write down for the row to be planned again. */
static void write_down(const struct pl_longest *l, uint32_t level, uint32_t tokens,
                       struct pl_job *job) {
    job->batch_size = l->batch_size;
    job->gradient_checkpointing = level;
    job->max_seq_length = tokens;
    job->given[PL_KEY_mode] = job->given[PL_KEY_batch_size] = true;
    job->given[PL_KEY_gradient_checkpointing] = job->given[PL_KEY_max_seq_length] = true;
}

/* Plans the longest row of a level. Its time is in seconds, until all rows are compared. */
static pl_err price_row(const struct pl_question *q, struct pl_trials *t,
                        struct pl_longest_row *row, struct pl_diag *d) {
    struct pl_variant v;
    if (!row->wall.wall) return PL_ERR_OK;
    row->job.max_seq_length = row->wall.wall;
    pl_variant_open(&v, q, &row->job);
    PL_TRY(pl_price_decide(&v.q, t, &row->price, d));
    row->decided = pl_question_level(&v.q);
    row->mlp_chunk = pl_question_mlp_chunk(&v.q);
    if (row->mlp_chunk == PL_AUTO) row->mlp_chunk = 0;
    row->relative_time = row->price.seconds_per_token;
    return PL_ERR_OK;
}

/* A level that the job cannot have has no row. */
static pl_err add_row(const struct pl_question *q, struct pl_trials *t, uint32_t level,
                      struct pl_longest *l, struct pl_diag *d) {
    struct pl_longest_row *row = &l->rows[l->n_rows];
    struct pl_variant v;
    bool has;
    *row = (struct pl_longest_row){.job = *q->job, .decided = level};
    write_down(l, level, l->best ? l->best->wall.wall : q->job->max_seq_length, &row->job);
    PL_TRY(pl_change_made(pl_job_validate(&row->job, NULL), "a level of recomputation", &has, d));
    if (!has) return PL_ERR_OK;
    pl_variant_open(&v, q, &row->job);
    PL_TRY(pl_advice_wall(&v.q, PL_KEY_max_seq_length, t, &row->wall, d));
    PL_TRY(price_row(q, t, row, d));
    l->n_rows++;
    return PL_ERR_OK;
}

static bool is_longer(const struct pl_longest_row *r, const struct pl_longest_row *best) {
    if (!r->wall.wall || !best) return r->wall.wall != 0;
    if (r->wall.wall != best->wall.wall) return r->wall.wall > best->wall.wall;
    return r->relative_time < best->relative_time;
}

static void compare_rows(struct pl_longest *l) {
    double fastest = 0;
    for (uint32_t i = 0; i < l->n_rows; i++) {
        const double time = l->rows[i].relative_time;
        if (time > 0 && (fastest == 0 || time < fastest)) fastest = time;
    }
    for (uint32_t i = 0; i < l->n_rows && fastest > 0; i++)
        l->rows[i].relative_time /= fastest;
}

/* In the words of the gate, about the shortest samples with the least of all that is open. */
static pl_err refuse_all_lengths(const struct pl_question *q, struct pl_trials *t,
                                 const struct pl_longest *l, struct pl_diag *d) {
    uint32_t n;
    struct pl_job job = *q->job; /* shallow */
    struct pl_variant v;
    write_down(l, PL_RECOMPUTE_AUTO, (uint32_t)pl_key_table(&n)[PL_KEY_max_seq_length].lo, &job);
    pl_variant_open(&v, q, &job);
    PL_TRY(pl_decide_again(&v.q, 0, t, d));
    const struct pl_verdict judged = pl_gate_judge(t->held.plan, &v.q);
    pl_err err = pl_gate_error(&judged, &v.q, d);
    if (err == PL_ERR_OK)
        err = pl_diag_set(d, PL_ERR_DOES_NOT_FIT,
                          "not even samples of %u tokens fit for certain: they need %llu bytes of "
                          "%llu",
                          job.max_seq_length, (unsigned long long)judged.needed_bytes,
                          (unsigned long long)l->budget_bytes);
    if (err == PL_ERR_DOES_NOT_FIT) pl_diag_hint(d, "ask without --longest what would fit");
    return err;
}

/* As `plan` without --longest answers; no level is planned. */
static pl_err refuse_gpu(const struct pl_question *q, struct pl_diag *d) {
    char room[256];
    struct pl_text why = PL_TEXT_FIXED(room);
    pl_gate_add_no_kernels(q, &why);
    pl_diag_set(d, PL_ERR_DOES_NOT_FIT, "%s: %s", pl_text_str(&why), pl_gate_no_kernels_help(q));
    pl_diag_hint(d, "ask without --longest which GPU would do");
    return PL_ERR_DOES_NOT_FIT;
}

static pl_err find_rows(const struct pl_question *q, struct pl_trials *t, struct pl_longest *l,
                        struct pl_diag *d) {
    for (size_t i = 0; i < sizeof levels / sizeof *levels; i++) {
        const struct pl_longest_row *row = &l->rows[l->n_rows];
        const uint32_t before = l->n_rows;
        PL_TRY(add_row(q, t, levels[i], l, d));
        if (l->n_rows > before && is_longer(row, l->best)) l->best = row;
    }
    if (!l->best) return refuse_all_lengths(q, t, l, d);
    compare_rows(l);
    return PL_ERR_OK;
}

pl_err pl_advice_longest(const struct pl_question *q, struct pl_longest *out, struct pl_diag *d) {
    const uint32_t batch = q->job->batch_size;
    struct pl_trials trials = {0};
    if (!pl_question_has_kernels(q)) return refuse_gpu(q, d);
    *out = (struct pl_longest){.batch_size = batch == PL_AUTO ? 1 : batch,
                               .budget_bytes = pl_budget_most_needed(&q->budget),
                               .max_positions = q->model->max_positions};
    pl_err err = find_rows(q, &trials, out, d);
    pl_trials_finish(&trials);
    return err;
}

bool pl_longest_is_beyond(const struct pl_longest *l, const struct pl_longest_row *row) {
    return row->wall.wall > l->max_positions;
}
