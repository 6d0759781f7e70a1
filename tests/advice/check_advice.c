/* check_advice.c - every figure of the advice against an estimate of its own. */
#include "estimator/advice/advice.h"
#include "estimator/advice/parts.h"
#include "estimator/autobatch/decide.h"
#include "estimator/card/cards.h"
#include "estimator/config/job_text.h"
#include "estimator/config/job_values.h"
#include "estimator/config/key_table.h"
#include "tests/picture/drawing.h"
#include "tests/plan/planning.h"
#include "tests/support/ask.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MIB (UINT64_C(1) << 20)

static struct pl_job job;
static struct pl_model model;
static struct pl_traits traits;
static struct pl_budget budget;
static const struct pl_lengths *lengths;
static uint32_t effective_batch;
static struct pl_trials trials;

static void set(struct pl_job *j, const char *key, const char *value) {
    ck_assert_int_eq(pl_job_set(j, key, value, NULL), PL_ERR_OK);
}

static void prepare(void) {
    ck_assert_int_eq(pl_job_defaults(&job, NULL), PL_ERR_OK);
    set(&job, "mode", "lora");
    set(&job, "model", "SmolLM2-135M");
    set(&job, "max_seq_length", "300");
    set(&job, "batch_size", "3");
    pl_test_model("SmolLM2-135M", &model);
    traits = pl_traits_cpu(2);
    budget = (struct pl_budget){.known = true, .total_bytes = 600 * MIB, .source = "vram_budget"};
    lengths = NULL;
    effective_batch = 0;
}

static void finish(void) {
    pl_trials_finish(&trials);
    pl_job_finish(&job);
}

#define ASK(batch) PL_ASK(&job, &model, &traits, &budget, batch)

/* Returns the answer of `estimate-vram` about a job, which shares no code with the advice. */
static struct pl_verdict estimate(const struct pl_job *j, uint32_t batch) {
    struct pl_estimate e;
    struct pl_autobatch search;
    struct pl_job typed = *j; /* shallow */
    typed.batch_size = batch;
    struct pl_question *q = PL_ASK(&typed, &model, &traits, &budget, 0);
    ck_assert_int_eq(pl_decide(q, PL_BATCH_LIMIT, &search, NULL, NULL), PL_ERR_OK);
    ck_assert_int_eq(pl_estimate_init(&e, q, &search.planned, NULL), PL_ERR_OK);
    struct pl_verdict v = e.verdict;
    pl_autobatch_finish(&search);
    pl_estimate_finish(&e);
    return v;
}

/* A1 of advice.h */
START_TEST(the_cells_of_the_grid_are_single_estimates) {
    struct pl_fit_grid g;
    bool own = false, fits = false, not = false;
    ck_assert_int_eq(pl_advice_grid(ASK(3), &trials, &g, NULL), PL_ERR_OK);
    ck_assert_uint_eq(g.n_batches, PL_GRID_SIDE);
    ck_assert_uint_eq(g.n_lengths, PL_GRID_SIDE);
    for (uint32_t b = 0; b < g.n_batches; b++) {
        for (uint32_t l = 0; l < g.n_lengths; l++) {
            struct pl_job j = job;
            j.max_seq_length = g.lengths[l];
            struct pl_verdict v = estimate(&j, g.batches[b]);
            ck_assert_uint_eq(g.cells[b][l].needed_bytes, v.needed_bytes);
            ck_assert_int_eq(g.cells[b][l].verdict, v.kind);
            own |= g.lengths[l] == 300 && g.batches[b] == 3;
            fits |= v.kind == PL_VERDICT_FITS;
            not |= v.kind == PL_VERDICT_NO;
        }
    }
    ck_assert(own && fits && not );
}
END_TEST

#ifndef __SANITIZE_ADDRESS__ /* which makes everything slower, and nobody waits for it */
START_TEST(a_grid_of_eighty_layers_takes_seconds_at_most) {
    struct pl_fit_grid g;
    pl_test_model("Llama-3.1-70B", &model);
    ck_assert_uint_eq(model.layers, 80);
    clock_t before = clock();
    ck_assert_int_eq(pl_advice_grid(ASK(1), &trials, &g, NULL), PL_ERR_OK);
    ck_assert_double_lt((double)(clock() - before) / CLOCKS_PER_SEC, 4);
}
END_TEST
#endif

static const enum pl_key_id axes[] = {PL_KEY_batch_size, PL_KEY_max_seq_length, PL_KEY_lora_r};
#define N_AXES 3

static struct pl_verdict along(enum pl_key_id key, uint32_t value) {
    char text[16];
    uint32_t n;
    struct pl_job j = job;
    snprintf(text, sizeof text, "%u", value);
    set(&j, pl_key_table(&n)[key].key, text);
    return estimate(&j, key == PL_KEY_batch_size ? value : 3);
}

/* A2 of advice.h */
START_TEST(a_wall_fits_and_one_more_does_not) {
    enum pl_key_id key = axes[_i % N_AXES];
    uint32_t n, batch = 3;
    struct pl_wall w;
    if (_i / N_AXES) { /* from beyond the wall instead of from below it */
        batch = key == PL_KEY_batch_size ? 200 : 3;
        if (key != PL_KEY_batch_size) set(&job, pl_key_table(&n)[key].key, "4000");
    }
    ck_assert_int_eq(pl_advice_wall(ASK(batch), key, &trials, &w, NULL), PL_ERR_OK);
    ck_assert_int_eq(w.now > w.wall, _i / N_AXES);
    ck_assert_uint_gt(w.wall, 1);
    struct pl_verdict at = along(key, w.wall), beyond = along(key, w.wall + 1);
    ck_assert_int_eq(at.kind, PL_VERDICT_FITS);
    ck_assert_uint_eq(at.needed_bytes, w.wall_bytes);
    ck_assert_int_eq(beyond.kind, PL_VERDICT_NO);
    ck_assert_uint_eq(beyond.needed_bytes, w.next_bytes);
    ck_assert_int_eq(w.next_verdict, PL_VERDICT_NO);
    ck_assert_int_eq(w.doubling_known, 2 * w.now <= w.limit);
    if (!w.doubling_known) return;
    ck_assert_int_eq(w.doubling_bytes, (int64_t)(along(key, 2 * w.now).needed_bytes -
                                                 along(key, w.now).needed_bytes));
}
END_TEST

/* --- what is open ---------------------------------------------------------------------------- */

/* Tries updates in the backward pass and after it. */
static bool any_fits_with(struct pl_question *q) {
    struct pl_ladder ladder;
    bool fits = false;
    ck_assert_int_eq(pl_ladder_init(&ladder, q, &trials.held, NULL), PL_ERR_OK);
    for (uint32_t r = 0; r < pl_ladder_rungs(&ladder) && !fits; r++) {
        for (uint32_t c = 0; c < 2 && !fits; c++) { /* and the smallest chunk of the MLP */
            struct pl_planned p;
            q->decided.gradient_checkpointing = pl_ladder_value(&ladder, r);
            q->decided.mlp_chunk_tokens = c ? PL_MLP_CHUNK_MIN : 0;
            ck_assert_int_eq(pl_question_plan(q, NULL, &p, NULL), PL_ERR_OK);
            fits = p.plan->arena_bytes <= pl_budget_usable(&budget);
            pl_planned_finish(&p);
        }
    }
    return fits;
}

/* True if any level and chunk of the MLP that a decision may take fits, each planned. */
static bool any_fits(const struct pl_job *j, uint32_t batch) {
    struct pl_question *kept = PL_ASK(j, &model, &traits, &budget, batch);
    struct pl_question *let_go = PL_ASK(j, &model, &traits, &budget, batch);
    let_go->decided.optimizer_in_backward = PL_TRI_TRUE;
    return any_fits_with(kept) || (pl_question_may_let_go(let_go) && any_fits_with(let_go));
}

static const struct {
    const char *mode, *level, *chunk;
    uint64_t mib;
    bool cuda;
} opens[] = {
    {"lora", "auto", "auto", 250, true},   {"full", "auto", "auto", 900, false},
    {"qlora", "auto", "256", 150, true},   {"lora", "full", "auto", 230, true},
    {"full", "light", "auto", 1000, true},
};
enum { N_OPENS = sizeof opens / sizeof *opens };

static void take_open(int i) {
    model.layers = 3;
    set(&job, "mode", opens[i].mode);
    set(&job, "gradient_checkpointing", opens[i].level);
    set(&job, "loss_chunk_tokens", opens[i].chunk);
    budget.total_bytes = opens[i].mib * MIB;
    if (opens[i].cuda) traits = pl_traits_cuda(80);
}

/* The question as it comes to the advice: decided for the job's own batch. */
static struct pl_question decided(void) {
    struct pl_question *q = ASK(0);
    ck_assert_int_eq(pl_decide_levels(q, PL_BATCH_LIMIT, &trials, NULL, NULL), PL_ERR_OK);
    return *q;
}

/* A2 of advice.h, A3 of advice.h */
START_TEST(walls_of_what_is_open_are_those_of_every_choice_there_is) {
    take_open(_i / 2);
    const enum pl_key_id key = axes[_i % 2];
    const struct pl_question q = decided();
    struct pl_wall w;
    ck_assert_int_eq(pl_advice_wall(&q, key, &trials, &w, NULL), PL_ERR_OK);
    ck_assert_uint_gt(w.wall, 1);
    ck_assert_uint_ne(w.next_bytes, 0);
    for (uint32_t more = 0; more < 2; more++) {
        struct pl_job j = job; /* shallow */
        if (key == PL_KEY_max_seq_length) j.max_seq_length = w.wall + more;
        ck_assert_int_eq(any_fits(&j, key == PL_KEY_batch_size ? w.wall + more : 3), !more);
        ck_assert_uint_eq(along(key, w.wall + more).needed_bytes,
                          more ? w.next_bytes : w.wall_bytes);
    }
}
END_TEST

/* A3 of advice.h */
START_TEST(cells_of_what_is_open_fit_where_any_choice_does) {
    take_open(_i);
    const struct pl_question q = decided();
    struct pl_fit_grid g;
    uint32_t fits = 0, not = 0;
    ck_assert_int_eq(pl_advice_grid(&q, &trials, &g, NULL), PL_ERR_OK);
    for (uint32_t b = 0; b < g.n_batches; b += 3) {
        for (uint32_t l = 0; l < g.n_lengths; l += 3) {
            struct pl_job j = job; /* shallow */
            j.max_seq_length = g.lengths[l];
            const bool any = any_fits(&j, g.batches[b]);
            ck_assert_int_eq(g.cells[b][l].verdict == PL_VERDICT_FITS, any);
            ck_assert_uint_eq(g.cells[b][l].needed_bytes, estimate(&j, g.batches[b]).needed_bytes);
            fits += any;
            not += !any;
        }
    }
    ck_assert(fits && not );
}
END_TEST

START_TEST(without_room_for_the_smallest_there_is_no_wall) {
    struct pl_wall w;
    budget.total_bytes = 100 * MIB; /* the weights alone are more */
    ck_assert_int_eq(pl_advice_wall(ASK(3), axes[_i], &trials, &w, NULL), PL_ERR_OK);
    ck_assert_uint_eq(w.wall, 0);
    ck_assert_uint_gt(w.next_bytes, budget.total_bytes);
}
END_TEST

START_TEST(without_end_of_memory_the_limit_is_the_wall) {
    struct pl_wall w;
    budget.total_bytes = UINT64_C(1) << 60;
    ck_assert_int_eq(pl_advice_wall(ASK(3), PL_KEY_lora_r, &trials, &w, NULL), PL_ERR_OK);
    ck_assert_uint_eq(w.limit, 4096);
    ck_assert_uint_eq(w.wall, 4096);
    ck_assert_uint_eq(w.next_bytes, 0);
}
END_TEST

static void advise(struct pl_advice *a) {
    struct pl_diag d = {0};
    struct pl_question *q = ASK(0);
    ck_assert_int_eq(pl_autolevel_decide(q, pl_autobatch_limit(&job), NULL, NULL, NULL), PL_ERR_OK);
    ck_assert_msg(pl_advice_init(a, q, lengths, effective_batch, &d) == PL_ERR_OK, "%s", d.message);
}

/* A row is missing if a model or other keys do not allow its setting. */
static const struct {
    const char *key, *value;
    bool alone, both; /* rows without, and with both modules trained whole */
} wholes[] = {
    {"lora_modules_to_save", "[]", false, true},
    {"lora_modules_to_save", "lm_head", true, true},
    {"lora_modules_to_save", "[embed_tokens, lm_head]", true, false},
    {"freeze_layers", "1", false, false},
    {"lora_target_modules", "lm_head", false, false},
};

/* A1 of advice.h */
START_TEST(a_knob_costs_what_the_changed_job_costs) {
    static const char whole[] = "lora_modules_to_save";
    bool alone = false, both = false;
    set(&job, wholes[_i].key, wholes[_i].value);
    struct pl_advice a;
    advise(&a);
    uint64_t now = estimate(&job, 3).needed_bytes;
    ck_assert_uint_ge(a.n_knobs, 10);
    for (uint32_t i = 0; i < a.n_knobs; i++) {
        const struct pl_knob *k = &a.knobs[i];
        struct pl_job j = job;
        char key[64];
        size_t n = strcspn(k->change, ":");
        snprintf(key, sizeof key, "%.*s", (int)n, k->change);
        const bool list = strcmp(key, whole) == 0;
        if (list) j.lora_modules_to_save = (struct pl_str_list){0};
        set(&j, key, k->change + n + 2);
        struct pl_verdict v = estimate(&j, j.batch_size);
        alone |= list && j.lora_modules_to_save.n == 0;
        both |= list && j.lora_modules_to_save.n == 2;
        if (list) set(&j, key, "[]"); /* all else is the job's */
        ck_assert_msg(k->price.needed_bytes == v.needed_bytes, "%s", k->change);
        ck_assert_int_eq(k->saves_bytes, (int64_t)(now - v.needed_bytes));
        ck_assert_int_eq(k->price.verdict, v.kind);
    }
    ck_assert_int_eq(alone, wholes[_i].alone);
    ck_assert_int_eq(both, wholes[_i].both);
    pl_advice_finish(&a);
}
END_TEST

START_TEST(recomputing_saves_bytes_and_costs_work) {
    struct pl_advice a;
    advise(&a);
    static const char *const names[] = {"none", "light", "mlp", "attention", "full"};
    char name[PL_LEVEL_TEXT];
    ck_assert_uint_gt(a.n_tradeoffs, 6);
    pl_tradeoff_name(&a.tradeoffs[a.n_tradeoffs - 1], name);
    ck_assert_str_eq(name, "offload");
    for (uint32_t i = 0; i < a.n_tradeoffs; i++) {
        pl_tradeoff_name(&a.tradeoffs[i], name);
        if (i < 5) ck_assert_str_eq(name, names[i]);
        ck_assert_uint_lt(a.tradeoffs[i].price.needed_bytes,
                          a.tradeoffs[0].price.needed_bytes + !i);
        ck_assert_uint_ge(a.tradeoffs[i].largest_batch, a.tradeoffs[0].largest_batch);
    }
    ck_assert_uint_gt(a.tradeoffs[4].largest_batch, a.tradeoffs[0].largest_batch);
    /* a frozen layer costs forward 2 and backward 2 per weight; once more forward is at most half
     */
    ck_assert_double_gt(a.tradeoffs[4].time_percent, 20);
    ck_assert_double_lt(a.tradeoffs[4].time_percent, 50);
    pl_advice_finish(&a);
}
END_TEST

START_TEST(the_rows_of_the_job_and_of_auto_are_marked_and_other_mixes_are_worth_a_row) {
    uint32_t now = 0, automatic = 0, mixes = 0;
    job.gradient_checkpointing = PL_RECOMPUTE_EVERY_N(3);
    struct pl_advice a;
    advise(&a);
    struct pl_variant open;
    pl_variant_of(&open, ASK(0));
    open.job.gradient_checkpointing = PL_RECOMPUTE_AUTO;
    ck_assert_int_eq(pl_autolevel_decide(&open.q, PL_BATCH_LIMIT, NULL, NULL, NULL), PL_ERR_OK);
    for (uint32_t i = 0; i < a.n_tradeoffs; i++) {
        const struct pl_tradeoff *t = &a.tradeoffs[i];
        ck_assert_int_eq(t->now, t->recompute == job.gradient_checkpointing);
        ck_assert_int_eq(t->automatic, t->recompute == open.q.decided.gradient_checkpointing);
        ck_assert(!t->mixed || t->now || t->automatic || !pl_tradeoff_dominated(t));
        now += t->now;
        automatic += t->automatic;
        mixes += t->mixed;
    }
    ck_assert_uint_eq(now, 1);
    ck_assert_uint_eq(automatic, 1);
    ck_assert_uint_ge(mixes, 2);
    pl_advice_finish(&a);
}
END_TEST

static const struct pl_frontier_point *point_of(const struct pl_advice *a, uint32_t i) {
    return &a->tradeoffs[i / PL_FRONTIER_ENDS].points[i % PL_FRONTIER_ENDS];
}

static bool is_worse(const struct pl_frontier_point *p, const struct pl_frontier_point *than) {
    if (!than->batch_size) return false;
    uint64_t bytes = than->price.needed_bytes;
    double time = than->relative_time;
    return (p->price.needed_bytes > bytes && p->relative_time >= time) ||
           (p->price.needed_bytes >= bytes && p->relative_time > time);
}

/* Bytes by an estimate of each point, times and domination from the figures that are shown. */
START_TEST(the_frontier_is_planned_point_by_point) {
    uint32_t fastest = 0, dominated = 0, n;
    effective_batch = 24;
    struct pl_advice a;
    advise(&a);
    n = a.n_tradeoffs * PL_FRONTIER_ENDS;
    for (uint32_t i = 0; i < n; i++) {
        const struct pl_frontier_point *p = point_of(&a, i);
        struct pl_job j = job;
        j.gradient_checkpointing = a.tradeoffs[i / PL_FRONTIER_ENDS].recompute;
        ck_assert_uint_eq(p->price.needed_bytes, estimate(&j, p->batch_size).needed_bytes);
        ck_assert_int_eq(estimate(&j, p->batch_size).kind, PL_VERDICT_FITS);
        if (i % PL_FRONTIER_ENDS == PL_FRONTIER_LARGEST)
            ck_assert_int_ne(estimate(&j, p->batch_size + 1).kind, PL_VERDICT_FITS);
        else
            ck_assert_uint_eq(24 % p->batch_size, 0);
        for (uint32_t b = p->batch_size + 1; b <= point_of(&a, i - i % 2)->batch_size; b++)
            ck_assert_uint_ne(24 % b, 0);
        ck_assert_double_ge(p->relative_time, 1);
        fastest += p->relative_time == 1;
        bool worse = false;
        for (uint32_t k = 0; k < n; k++)
            worse |= is_worse(p, point_of(&a, k));
        ck_assert_int_eq(p->dominated, worse);
        dominated += worse;
    }
    ck_assert_uint_ge(fastest, 1);
    ck_assert_uint_ge(dominated, 1);
    ck_assert_uint_lt(dominated, n);
    pl_advice_finish(&a);
}
END_TEST

START_TEST(a_level_that_fits_nothing_has_no_point) {
    budget.total_bytes = 280 * MIB; /* the weights, and little more */
    struct pl_advice a;
    advise(&a);
    ck_assert_uint_eq(a.tradeoffs[0].points[PL_FRONTIER_LARGEST].batch_size, 0);
    ck_assert_uint_eq(a.tradeoffs[0].points[PL_FRONTIER_MICRO].batch_size, 0);
    ck_assert(!pl_tradeoff_dominated(&a.tradeoffs[0]));
    pl_advice_finish(&a);
    budget.known = false;
    advise(&a);
    for (uint32_t i = 0; i < a.n_tradeoffs; i++) {
        ck_assert_uint_eq(a.tradeoffs[i].points[PL_FRONTIER_LARGEST].batch_size, 0);
        ck_assert_uint_eq(a.tradeoffs[i].points[PL_FRONTIER_MICRO].batch_size, 3);
    }
    pl_advice_finish(&a);
}
END_TEST

START_TEST(the_recommended_batch_divides_the_effective_one_and_fits) {
    static const uint32_t wanted[] = {1, 7, 12, 16, 100};
    effective_batch = wanted[_i];
    struct pl_advice a;
    advise(&a);
    uint32_t b = a.recommended_batch;
    ck_assert_uint_gt(b, 0);
    ck_assert_uint_le(b, a.largest_batch);
    ck_assert_uint_eq(b * a.accumulation, wanted[_i]);
    struct pl_job j = job;
    j.global_batch_size = wanted[_i];
    for (uint32_t more = b + 1; more <= a.largest_batch; more++)
        ck_assert_uint_ne(wanted[_i] % more, 0);
    for (uint32_t i = 0; i < a.n_accumulations; i++) {
        const struct pl_accumulation_row *r = &a.accumulations[i];
        ck_assert_uint_eq(r->batch_size * r->steps, wanted[_i]);
        ck_assert_uint_eq(r->price.needed_bytes, estimate(&j, r->batch_size).needed_bytes);
    }
    ck_assert_uint_eq(a.recommended.needed_bytes, estimate(&j, b).needed_bytes);
    ck_assert_int_eq(a.recommended.verdict, PL_VERDICT_FITS);
    pl_advice_finish(&a);
}
END_TEST

START_TEST(the_advised_length_is_that_of_the_longest_sample_where_it_fits) {
    struct pl_lengths l;
    static const uint32_t longest[] = {120, 1200, 4000000};
    ck_assert_int_eq(pl_lengths_describe(&l, 1000, 100, longest[_i], NULL), PL_ERR_OK);
    lengths = &l;
    struct pl_advice a;
    advise(&a);
    if (longest[_i] < 4000000)
        ck_assert_uint_eq(a.length, longest[_i]);
    else
        ck_assert_uint_lt(a.length, longest[_i]);
    struct pl_job j = job;
    j.max_seq_length = a.length;
    ck_assert_int_eq(estimate(&j, a.recommended_batch).kind, PL_VERDICT_FITS);
    ck_assert_int_eq(estimate(&j, a.largest_batch + 1).kind, PL_VERDICT_NO);
    pl_advice_finish(&a);
}
END_TEST

START_TEST(no_length_is_advised_that_no_file_may_ask_for) {
    struct pl_lengths l;
    uint32_t n;
    const uint32_t most = (uint32_t)pl_key_table(&n)[PL_KEY_max_seq_length].hi;
    ck_assert_int_eq(pl_lengths_describe(&l, 10, 20000000, 20000000, NULL), PL_ERR_OK);
    lengths = &l;
    budget.known = false;
    struct pl_advice a;
    advise(&a);
    ck_assert_uint_eq(a.length, most);
    for (uint32_t i = 0; i < a.n_choices; i++)
        ck_assert_uint_le(a.choices[i].length, most);
    pl_advice_finish(&a);
}
END_TEST

START_TEST(the_yaml_is_a_job_that_needs_what_was_promised) {
    struct pl_text yaml = {0};
    struct pl_job read;
    struct pl_diag d = {0};
    set(&job, "gradient_accumulation_steps", "5");
    set(&job, "lora_target_modules", "[q_proj, v_proj]");
    effective_batch = 12;
    struct pl_advice a;
    advise(&a);
    pl_advice_yaml(&a, &yaml);
    ck_assert_msg(pl_job_parse(&read, "advice.yaml", pl_text_str(&yaml), yaml.len, NULL, 0, NULL,
                               &d) == PL_ERR_OK,
                  "%s in\n%s", d.message, pl_text_str(&yaml));
    ck_assert_uint_eq(read.batch_size * pl_job_accumulation(&read, read.batch_size), 12);
    ck_assert_uint_eq(read.lora_target_modules.n, 2);
    ck_assert_uint_eq(estimate(&read, read.batch_size).needed_bytes, a.recommended.needed_bytes);
    pl_job_finish(&read);
    pl_text_finish(&yaml);
    pl_advice_finish(&a);
}
END_TEST

/* The job's keys for its step, and the number of its samples; 0: no key gives it. */
static const struct {
    const char *batch, *accumulation, *global;
    uint32_t samples;
} steps[] = {
    {"4", "4", NULL, 16},   {"3", "5", NULL, 15},
    {"1", "1", NULL, 1},    {"auto", NULL, "24", 24},
    {"4", "6", "24", 24},   {"4", NULL, NULL, 0},
    {"auto", "4", NULL, 0}, {"65536", "65536", NULL, 1048576},
};

/* A batch and an accumulation give a step, and the advice keeps it: in the figures, in the file to
 * paste, and in a command for the file that has them. */
START_TEST(a_step_of_the_job_is_kept) {
    struct pl_text yaml = {0}, command = {0};
    struct pl_job read;
    job.max_seq_length = 32;
    set(&job, "batch_size", steps[_i].batch);
    if (steps[_i].accumulation) set(&job, "gradient_accumulation_steps", steps[_i].accumulation);
    if (steps[_i].global) set(&job, "global_batch_size", steps[_i].global);
    for (int key = 0; key < PL_KEY_COUNT; key++)
        job.place[key].line = job.given[key]; /* like a key in a file */
    job.path = strdup("job.yaml");
    struct pl_advice a;
    advise(&a);
    ck_assert_uint_eq(a.effective_batch, steps[_i].samples);
    if (!steps[_i].samples) goto out;
    ck_assert_uint_eq(a.recommended_batch * a.accumulation, steps[_i].samples);
    pl_advice_yaml(&a, &yaml);
    ck_assert_int_eq(
        pl_job_parse(&read, "advice.yaml", pl_text_str(&yaml), yaml.len, NULL, 0, NULL, NULL),
        PL_ERR_OK);
    ck_assert_uint_eq(read.batch_size, a.recommended_batch);
    ck_assert_uint_eq(pl_job_accumulation(&read, read.batch_size), a.accumulation);
    pl_job_finish(&read);
    char word[64];
    pl_advice_command(&a, &command);
    snprintf(word, sizeof word, " gradient_accumulation_steps=%u", a.accumulation);
    ck_assert_msg(!strstr(pl_text_str(&command), word) == !steps[_i].accumulation, "%s",
                  pl_text_str(&command));
    snprintf(word, sizeof word, " global_batch_size=%u", a.effective_batch);
    ck_assert_msg(!strstr(pl_text_str(&command), word) == !steps[_i].global, "%s",
                  pl_text_str(&command));
out:
    pl_text_finish(&yaml);
    pl_text_finish(&command);
    pl_advice_finish(&a);
}
END_TEST

/* A cell a figure, in words that touch nothing; the budget says which colour. */
START_TEST(the_grid_is_drawn_cell_by_cell) {
    struct pl_fit_grid g;
    struct pl_text svg = {0};
    ck_assert_int_eq(pl_advice_grid(ASK(3), &trials, &g, NULL), PL_ERR_OK);
    for (int known = 0; known < 2; known++) {
        budget.known = known;
        pl_advice_grid_svg(&g, &budget, "a <title>", &svg);
        drawn_check_well_formed(&svg);
        drawn_check_layout(&svg);
        struct drawn_box words[192];
        const int n = drawn_texts(&svg, words, 192);
        ck_assert_int_ge(n, (int)(g.n_batches * g.n_lengths));
        ck_assert_int_ge(drawn_count(&svg, "<rect x="), (int)(g.n_batches * g.n_lengths));
        pl_text_finish(&svg);
    }
}
END_TEST

START_TEST(the_command_quotes_what_a_shell_would_take_apart) {
    struct pl_text command = {0};
    set(&job, "model", "it's here");
    struct pl_advice a;
    advise(&a);
    pl_advice_command(&a, &command);
    ck_assert_msg(strstr(pl_text_str(&command), "plimsoll estimate-vram 'it'\\''s here' ") != NULL,
                  "%s", pl_text_str(&command));
    pl_text_finish(&command);
    pl_advice_finish(&a);
}
END_TEST

static struct pl_budget budget_of(const struct pl_card *c) {
    return (struct pl_budget){.known = true,
                              .total_bytes = c->visible_bytes,
                              .margin_bytes = PL_CARD_MARGIN,
                              .context_bytes = c->context_bytes,
                              .doubt_bytes = pl_card_context_doubt(c),
                              .source = c->name};
}

/* The job stands just beyond what fits one card for certain, so that its margins decide. */
START_TEST(a_card_is_judged_as_its_own_estimate) {
    size_t n;
    bool tight = false;
    const struct pl_card *cards = pl_card_table(&n), *aim = pl_card_named("RTX 3090", &tight);
    budget = budget_of(aim);
    traits = pl_traits_cuda(aim->sm);
    struct pl_wall wall;
    job.mlp_chunk_tokens = 0; /* larger values are not split until they fit */
    ck_assert_int_eq(pl_advice_wall(ASK(3), PL_KEY_max_seq_length, &trials, &wall, NULL),
                     PL_ERR_OK);
    job.max_seq_length = wall.wall + 1;
    tight = false;
    struct pl_advice a;
    advise(&a);
    ck_assert_uint_eq(a.n_cards, n);
    for (size_t i = 0; i < n; i++) {
        traits = pl_traits_cuda(cards[i].sm);
        budget = budget_of(&cards[i]);
        struct pl_verdict v = estimate(&job, 3);
        ck_assert_uint_eq(a.cards[i].needed_bytes, v.needed_bytes);
        ck_assert_int_eq(a.cards[i].verdict, v.kind);
        ck_assert_int_eq(a.cards[i].runs, cards[i].sm >= PL_CARD_OLDEST_SM);
        tight |= &cards[i] == aim && v.kind == PL_VERDICT_TIGHT;
    }
    ck_assert(tight);
    pl_advice_finish(&a);
}
END_TEST

/* A search, a cell or a row that the job's own chunk does not allow is left out, and the advice
 * stays. */
START_TEST(small_chunks_are_advised_on) {
    model.layers = 1;
    job.loss_chunk_tokens = 1;
    budget.total_bytes = UINT64_C(1) << 50;
    struct pl_advice a;
    advise(&a);
    ck_assert_uint_eq(a.largest_batch, (PL_CHUNKS_MAX + 1) / 300);
    for (uint32_t i = 0; i < a.n_walls; i++)
        ck_assert_uint_eq(a.walls[i].wall, a.walls[i].limit);
    ck_assert_uint_le(a.grid.batches[a.grid.n_batches - 1] * a.grid.lengths[a.grid.n_lengths - 1],
                      PL_CHUNKS_MAX);
    pl_advice_finish(&a);
}
END_TEST

START_TEST(the_text_stays_in_the_width_and_is_plain_without_colour) {
    struct pl_text text = {0};
    struct pl_lengths l = {0};
    for (uint32_t i = 1; i < 700; i++)
        ck_assert_int_eq(pl_lengths_add(&l, i, NULL), PL_ERR_OK);
    pl_lengths_sort(&l);
    lengths = &l;
    effective_batch = 16;
    struct pl_advice a;
    advise(&a);
    pl_advice_text(&a, PL_ADVICE_ALL, false, 60, &text);
    ck_assert_ptr_null(strchr(pl_text_str(&text), '\033'));
    const char *grid = strstr(pl_text_str(&text), "batch x length");
    ck_assert_ptr_nonnull(grid);
    for (const char *s = strchr(grid, '\n') + 1; *s != '\n'; s = strchr(s, '\n') + 1)
        ck_assert_uint_le(strcspn(s, "\n"), 60);
    pl_text_finish(&text);
    pl_advice_text(&a, PL_ADVICE_ALL, true, 80, &text);
    ck_assert_ptr_nonnull(strchr(pl_text_str(&text), '\033'));
    pl_text_finish(&text);
    pl_advice_finish(&a);
    pl_lengths_finish(&l);
}
END_TEST

/* Some names of levels are long. */
START_TEST(the_knobs_line_up) {
    struct pl_text text = {0};
    set(&job, "gradient_checkpointing", "attention:12+light");
    struct pl_advice a;
    advise(&a);
    pl_advice_text(&a, PL_ADVICE_ALL, false, 80, &text);
    const char *row = strchr(strstr(pl_text_str(&text), "\nsettings") + 1, '\n') + 1;
    size_t columns = strcspn(row, "\n");
    ck_assert_uint_gt(columns, 80);
    for (; *row != '\n'; row += strcspn(row, "\n") + 1)
        ck_assert_uint_eq(strcspn(row, "\n"), columns);
    pl_text_finish(&text);
    pl_advice_finish(&a);
}
END_TEST

START_TEST(every_line_of_the_ledger_says_where_it_comes_from) {
    struct pl_advice a;
    advise(&a);
    json_t *o = pl_advice_json(&a, NULL, ""), *row;
    size_t i;
    ck_assert_ptr_nonnull(o);
    json_array_foreach(json_object_get(o, "ledger"), i, row)
        ck_assert_str_eq(json_string_value(json_object_get(row, "provenance")), "planned");
    const json_t *p = json_object_get(o, "provenance");
    ck_assert_str_eq(json_string_value(json_object_get(p, "budget")), "user");
    ck_assert_uint_ge(json_array_size(json_object_get(o, "assumptions")), 4);
    json_decref(o);
    pl_advice_finish(&a);
}
END_TEST

/* A bf16 base with fp32 activations is for the CPU; a card is planned as a GPU, which has one
 * type. */
START_TEST(a_base_in_bf16_is_assumed_and_priced_on_the_cpu_alone) {
    bool wide = false;
    set(&job, "dtype", "fp32");
    set(&job, "base_dtype", "bf16");
    struct pl_advice a;
    advise(&a);
    json_t *o = pl_advice_json(&a, NULL, "");
    char *text = json_dumps(o, 0);
    ck_assert_ptr_nonnull(strstr(text, "frozen weights are held in bf16"));
    for (uint32_t i = 0; i < a.n_knobs; i++)
        wide |= strcmp(a.knobs[i].change, "base_dtype: fp32") == 0 && a.knobs[i].saves_bytes < 0;
    ck_assert(wide);
    ck_assert_uint_gt(a.n_cards, 0);
    free(text);
    json_decref(o);
    pl_advice_finish(&a);
}
END_TEST

int main(void) {
    Suite *s = suite_create("advice.advice");
    TCase *tc = tcase_create("advice");
    tcase_set_timeout(tc, 120);
    tcase_add_checked_fixture(tc, prepare, finish);
    tcase_add_test(tc, the_cells_of_the_grid_are_single_estimates);
#ifndef __SANITIZE_ADDRESS__
    tcase_add_test(tc, a_grid_of_eighty_layers_takes_seconds_at_most);
#endif
    tcase_add_loop_test(tc, a_wall_fits_and_one_more_does_not, 0, 2 * N_AXES);
    tcase_add_loop_test(tc, walls_of_what_is_open_are_those_of_every_choice_there_is, 0,
                        2 * N_OPENS);
    tcase_add_loop_test(tc, cells_of_what_is_open_fit_where_any_choice_does, 0, N_OPENS);
    tcase_add_loop_test(tc, without_room_for_the_smallest_there_is_no_wall, 0, N_AXES);
    tcase_add_test(tc, without_end_of_memory_the_limit_is_the_wall);
    tcase_add_loop_test(tc, a_knob_costs_what_the_changed_job_costs, 0,
                        sizeof wholes / sizeof *wholes);
    tcase_add_test(tc, a_base_in_bf16_is_assumed_and_priced_on_the_cpu_alone);
    tcase_add_test(tc, recomputing_saves_bytes_and_costs_work);
    tcase_add_test(tc, the_rows_of_the_job_and_of_auto_are_marked_and_other_mixes_are_worth_a_row);
    tcase_add_test(tc, the_frontier_is_planned_point_by_point);
    tcase_add_test(tc, a_level_that_fits_nothing_has_no_point);
    tcase_add_loop_test(tc, the_recommended_batch_divides_the_effective_one_and_fits, 0, 5);
    tcase_add_loop_test(tc, the_advised_length_is_that_of_the_longest_sample_where_it_fits, 0, 3);
    tcase_add_test(tc, no_length_is_advised_that_no_file_may_ask_for);
    tcase_add_test(tc, the_yaml_is_a_job_that_needs_what_was_promised);
    tcase_add_loop_test(tc, a_step_of_the_job_is_kept, 0, sizeof steps / sizeof *steps);
    tcase_add_test(tc, the_grid_is_drawn_cell_by_cell);
    tcase_add_test(tc, the_command_quotes_what_a_shell_would_take_apart);
    tcase_add_test(tc, a_card_is_judged_as_its_own_estimate);
    tcase_add_test(tc, small_chunks_are_advised_on);
    tcase_add_test(tc, the_text_stays_in_the_width_and_is_plain_without_colour);
    tcase_add_test(tc, the_knobs_line_up);
    tcase_add_test(tc, every_line_of_the_ledger_says_where_it_comes_from);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
