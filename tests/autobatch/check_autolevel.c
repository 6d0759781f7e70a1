/* check_autolevel.c - level and batch against every combination there is, planned one by
 * one.
 */
#include "estimator/autobatch/autobatch.h"
#include "estimator/autobatch/autolevel.h"
#include "estimator/autobatch/decide.h"
#include "estimator/config/job_text.h"
#include "estimator/config/job_values.h"
#include "estimator/program/cost.h"
#include "tests/plan/planning.h"
#include "tests/support/ask.h"

#include <check.h>
#include <string.h>
#include <time.h>

#define LAYERS    4
#define MAX_BATCH 7
#define MAX_MIXES 64

static struct pl_job job;
static struct pl_model model;
static struct pl_traits traits;

static void set(const char *key, const char *value) {
    ck_assert_int_eq(pl_job_set(&job, key, value, NULL), PL_ERR_OK);
}

/* A model of a few layers, so that its combinations can be counted out. */
static void prepare(void) {
    ck_assert_int_eq(pl_job_defaults(&job, NULL), PL_ERR_OK);
    set("mode", "full");
    set("max_seq_length", "256");
    set("gradient_checkpointing", "auto");
    set("optimizer_in_backward", "false"); /* a job without it keeps its gradients */
    pl_test_model("SmolLM2-135M", &model);
    model.layers = LAYERS;
    traits = pl_traits_cpu(2);
}

static void finish(void) {
    pl_job_finish(&job);
}

/* --- everything there is ---------------------------------------------------------------------- */

struct cell {
    uint64_t bytes;
    double seconds; /* per token */
};

struct table {
    uint32_t mixes[MAX_MIXES], n_mixes;
    struct cell cells[MAX_MIXES][MAX_BATCH + 1];
};
static struct table table;

static struct cell cell_at(uint32_t level, uint32_t batch) {
    const struct pl_speed speed = pl_speed_nominal(&traits);
    struct pl_job trial = job;
    struct pl_planned p;
    struct pl_diag d = {0};
    trial.gradient_checkpointing = level;
    ck_assert_msg(pl_question_plan(PL_ASK(&trial, &model, &traits, NULL, batch), NULL, &p, &d) ==
                      PL_ERR_OK,
                  "%s", d.message);
    const struct cell c = {p.plan->arena_bytes, pl_program_seconds_per_token(p.program, &speed)};
    pl_planned_finish(&p);
    return c;
}

static void add_mix(uint32_t mix) {
    ck_assert_uint_lt(table.n_mixes, MAX_MIXES);
    table.mixes[table.n_mixes++] = mix;
}

/* Every plain level, and the first k layers at one level with the rest at a lighter one. */
static void list_all_mixes(void) {
    for (uint32_t x = PL_RECOMPUTE_NONE; x <= PL_RECOMPUTE_FULL; x++) {
        add_mix(x);
        for (uint32_t y = PL_RECOMPUTE_NONE; y < x; y++)
            for (uint32_t k = 1; k < LAYERS; k++)
                add_mix(PL_RECOMPUTE_MIX(x, k, y));
    }
}

static void list_rungs(void) {
    struct pl_ladder l;
    struct pl_planned held = {0};
    ck_assert_int_eq(pl_ladder_init(&l, PL_ASK(&job, &model, &traits, NULL, 0), &held, NULL),
                     PL_ERR_OK);
    pl_planned_finish(&held);
    for (uint32_t r = 0; r < pl_ladder_rungs(&l); r++)
        add_mix(pl_ladder_value(&l, r));
}

static void fill_table(void (*list_mixes)(void), uint32_t from_batch, uint32_t to_batch) {
    table.n_mixes = 0;
    list_mixes();
    for (uint32_t m = 0; m < table.n_mixes; m++)
        for (uint32_t b = from_batch; b <= to_batch; b++)
            table.cells[m][b] = cell_at(table.mixes[m], b);
}

struct extremes {
    uint64_t least, most;
};

static struct extremes extremes_of_table(uint32_t from_batch, uint32_t to_batch) {
    struct extremes e = {UINT64_MAX, 0};
    for (uint32_t m = 0; m < table.n_mixes; m++)
        for (uint32_t b = from_batch; b <= to_batch; b++) {
            const uint64_t bytes = table.cells[m][b].bytes;
            if (bytes < e.least) e.least = bytes;
            if (bytes > e.most) e.most = bytes;
        }
    return e;
}

/* The least time of all that fits, 0 when nothing does. */
static double fastest(uint64_t budget, uint32_t from_batch, uint32_t to_batch) {
    double best = 0;
    for (uint32_t m = 0; m < table.n_mixes; m++)
        for (uint32_t b = from_batch; b <= to_batch; b++) {
            const struct cell *cell = &table.cells[m][b];
            if (cell->bytes <= budget && (best <= 0 || cell->seconds < best)) best = cell->seconds;
        }
    return best;
}

/* --- what is chosen ----------------------------------------------------------------------------
 */

struct chosen {
    uint32_t level;
    uint32_t batch; /* 0: none fits */
    struct cell cell;
};

static struct chosen choose(uint64_t budget) {
    const struct pl_budget b = {.known = true, .total_bytes = budget};
    struct pl_question *q = PL_ASK(&job, &model, &traits, &b, 0);
    struct pl_autobatch search;
    ck_assert_int_eq(pl_autolevel_decide(q, MAX_BATCH, NULL, NULL, NULL), PL_ERR_OK);
    struct chosen c = {.level = pl_question_level(q)};
    ck_assert_uint_ne(c.level, PL_RECOMPUTE_AUTO);
    ck_assert_int_eq(pl_autobatch_solve(q, MAX_BATCH, NULL, &search, NULL), PL_ERR_OK);
    c.batch = job.batch_size == PL_AUTO             ? search.batch_size
              : search.batch_size >= job.batch_size ? job.batch_size
                                                    : 0;
    pl_autobatch_finish(&search);
    if (c.batch) c.cell = cell_at(c.level, c.batch);
    return c;
}

static const struct {
    const char *mode, *batch; /* auto or a number */
    bool cuda;
    const char *key, *value; /* one more setting */
} jobs[] = {
    {"full", "auto", false, "dtype", "fp32"},
    {"full", "auto", true, "dtype", "bf16"},
    {"lora", "auto", false, "lora_r", "8"},
    {"lora", "auto", true, "lora_r", "64"},
    {"qlora", "auto", true, "max_seq_length", "1024"},
    {"full", "4", false, "dtype", "bf16"},
    {"lora", "3", true, "max_seq_length", "512"},
    {"full", "auto", true, "gradient_checkpointing", "full:2+light"},
    {"full", "auto", true, "loss_chunk_tokens", "256"},
    {"full", "4", true, "freeze_layers", "2"},
};
enum { N_JOBS = sizeof jobs / sizeof *jobs, BUDGETS = 40 };

static void take_job(int i, uint32_t *from, uint32_t *to) {
    set("mode", jobs[i].mode);
    set("batch_size", jobs[i].batch);
    set(jobs[i].key, jobs[i].value);
    if (jobs[i].cuda) traits = pl_traits_cuda(80);
    *from = job.batch_size == PL_AUTO ? 1 : job.batch_size;
    *to = job.batch_size == PL_AUTO ? MAX_BATCH : job.batch_size;
}

/* Returns budgets from less than anything needs to more than everything does. */
static uint64_t budget_of(const struct extremes *e, int i) {
    return e->least - 1 + (e->most - e->least + 2) / (BUDGETS - 1) * (uint64_t)i;
}

/* A batch whose last chunk of the loss has few tokens takes so much longer than a smaller one. */
#define ONE_MORE_CHUNK 1.004

START_TEST(the_decision_is_the_fastest_of_all_that_fit) {
    uint32_t from, to;
    take_job(_i, &from, &to);
    fill_table(list_rungs, from, to);
    const struct extremes e = extremes_of_table(from, to);
    double last = 0;
    for (int i = 0; i < BUDGETS; i++) {
        const uint64_t budget = budget_of(&e, i);
        const struct chosen c = choose(budget);
        const double best = fastest(budget, from, to);
        ck_assert_int_eq(c.batch != 0, best > 0);
        if (!c.batch) continue;
        ck_assert_uint_le(c.cell.bytes, budget); /* A2 */
        ck_assert_msg(c.cell.seconds <= best * ONE_MORE_CHUNK && c.cell.seconds >= best,
                      "budget %d: %.17g s a token with batch %u, level %x; %.17g is there", i,
                      c.cell.seconds, c.batch, c.level, best);
        ck_assert(last <= 0 || c.cell.seconds <= last * ONE_MORE_CHUNK); /* A3 */
        last = c.cell.seconds;
    }
    ck_assert(last > 0);
}
END_TEST

/* The most that one more layer a rung up may cost of a token's time, with so few layers. */
#define OFF_LADDER 1.02

/* Mixes off the ladder fill what a whole layer leaves free, and no more. */
/* A batch that was asked for is decided around, and what was decided is decided again from it. */
START_TEST(the_batch_that_was_found_leads_to_the_same_choice) {
    uint32_t from, to;
    take_job(_i, &from, &to);
    fill_table(list_rungs, from, to);
    const struct extremes e = extremes_of_table(from, to);
    for (int i = 0; i < BUDGETS; i += 7) {
        const struct chosen first = choose(budget_of(&e, i));
        const uint32_t given = job.batch_size, samples = job.global_batch_size;
        if (!first.batch) continue;
        if (pl_job_has_open_step(&job)) job.global_batch_size = pl_job_step_samples(&job);
        job.batch_size = first.batch;
        const struct chosen again = choose(budget_of(&e, i));
        job.batch_size = given;
        job.global_batch_size = samples;
        ck_assert_uint_eq(again.batch, first.batch);
        ck_assert_uint_eq(again.level, first.level);
    }
}
END_TEST

/* With a limit of time the same choice is found if it is within the limit, and none otherwise. */
START_TEST(what_takes_longer_than_was_asked_is_not_found) {
    uint32_t from, to;
    take_job(_i, &from, &to);
    fill_table(list_rungs, from, to);
    const struct extremes e = extremes_of_table(from, to);
    const bool decides = job.gradient_checkpointing == PL_RECOMPUTE_AUTO;
    for (int i = 0; i < BUDGETS && decides; i += 5) {
        const struct pl_budget b = {.known = true, .total_bytes = budget_of(&e, i)};
        const double best = fastest(b.total_bytes, from, to);
        for (int slower = 0; slower < 2; slower++) {
            struct pl_trials t = {.most_seconds = best * (slower ? ONE_MORE_CHUNK : 0.9999)};
            struct pl_question *q = PL_ASK(&job, &model, &traits, &b, 0);
            ck_assert_int_eq(pl_autolevel_decide(q, MAX_BATCH, &t, NULL, NULL), PL_ERR_OK);
            ck_assert_int_eq(t.none, best <= 0 || !slower);
            if (!t.none) {
                const struct chosen c = choose(b.total_bytes);
                ck_assert_uint_eq(pl_question_level(q), c.level);
            }
            pl_trials_finish(&t);
        }
    }
}
END_TEST

/* Returns the rows of logits at one time of the plan that is decided; 0: none. */
static uint64_t chunk_within(double gib) {
    const struct pl_budget b = {.known = gib > 0, .total_bytes = (uint64_t)(gib * 1073741824)};
    struct pl_question *q = PL_ASK(&job, &model, &traits, &b, 0);
    struct pl_autobatch search;
    struct pl_planned p;
    ck_assert_int_eq(pl_decide(q, PL_BATCH_LIMIT, &search, NULL, NULL), PL_ERR_OK);
    ck_assert_int_eq(pl_question_plan(q, &search.planned, &p, NULL), PL_ERR_OK);
    const uint64_t chunk = p.program->chunk_tokens;
    pl_planned_finish(&p);
    pl_autobatch_finish(&search);
    return chunk;
}

START_TEST(a_trained_head_has_chunks_of_1024_rows) {
    static const struct {
        const char *key, *value;
        uint64_t rows;
    } heads[] = {
        {"mode", "full", 1024}, {"mode", "lora", 256}, {"lora_modules_to_save", "lm_head", 1024}};
    set("max_seq_length", "2048");
    set("batch_size", "4");
    pl_test_model("Llama-3.1-70B", &model);
    model.layers = 1;
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
        set(heads[i].key, heads[i].value);
        ck_assert_msg(chunk_within(0) == heads[i].rows, "%s: %s", heads[i].key, heads[i].value);
    }
    set("mode", "full"); /* its logits are no larger than the head */
    set("lora_modules_to_save", "[]");
    pl_test_model("Qwen2.5-0.5B", &model);
    ck_assert_uint_eq(chunk_within(0), 896);
}
END_TEST

/* A1: bits of a run depend on the chunk. */
START_TEST(no_budget_and_no_level_decides_the_chunk_of_the_loss) {
    static const char *const levels[] = {"auto", "none", "full"};
    set("max_seq_length", "2048");
    set("batch_size", _i % 2 ? "2" : "auto");
    set("mode", _i / 2 ? "lora" : "full");
    pl_test_model("Qwen2.5-0.5B", &model);
    traits = pl_traits_cuda(90);
    const uint64_t chunk = chunk_within(0);
    ck_assert_uint_lt(chunk, 2048);
    for (size_t l = 0; l < sizeof levels / sizeof *levels; l++) {
        set("gradient_checkpointing", levels[l]);
        for (double gib = 1; gib < 200; gib *= 3)
            ck_assert_uint_eq(chunk_within(gib), chunk);
    }
}
END_TEST

START_TEST(without_a_budget_the_level_is_full) {
    const struct pl_budget b = {0};
    struct pl_question *q = PL_ASK(&job, &model, &traits, &b, 0);
    ck_assert_int_eq(pl_autolevel_decide(q, MAX_BATCH, NULL, NULL, NULL), PL_ERR_OK);
    ck_assert_uint_eq(pl_question_level(q), PL_RECOMPUTE_FULL);
}
END_TEST

START_TEST(where_nothing_fits_the_smallest_is_taken_for_the_refusal) {
    const struct chosen c = choose(1);
    ck_assert_uint_eq(c.batch, 0);
    ck_assert_uint_eq(c.level, PL_RECOMPUTE_FULL);
}
END_TEST

#ifndef __SANITIZE_ADDRESS__ /* which makes everything slower, and nobody waits for it */
static const struct {
    const char *model;
    double gib, most_seconds;
} clocks[] = {{"Qwen2.5-7B", 7, 1}, {"Qwen2.5-7B", 24, 1}, {"Llama-3.1-70B", 48, 2.5}};

START_TEST(deciding_is_not_waited_for) {
    set("mode", "qlora");
    set("max_seq_length", "2048");
    pl_test_model(clocks[_i].model, &model);
    traits = pl_traits_cuda(80);
    /* The best of three: whatever else the machine does may slow one of them. */
    double best = 1e9;
    for (int round = 0; round < 3; round++) {
        clock_t before = clock();
        choose((uint64_t)(clocks[_i].gib * 1073741824.0));
        best = fmin(best, (double)(clock() - before) / CLOCKS_PER_SEC);
    }
    ck_assert_double_lt(best, clocks[_i].most_seconds);
}
END_TEST
#endif

START_TEST(no_mix_of_two_levels_is_faster_by_a_layer) {
    uint32_t from, to;
    take_job(_i, &from, &to);
    if (job.gradient_checkpointing != PL_RECOMPUTE_AUTO) return;
    fill_table(list_all_mixes, from, to);
    const struct extremes e = extremes_of_table(from, to);
    for (int i = 0; i < BUDGETS; i++) {
        const uint64_t budget = budget_of(&e, i);
        const struct chosen c = choose(budget);
        const double best = fastest(budget, from, to);
        ck_assert_int_eq(c.batch != 0, best > 0);
        if (c.batch) ck_assert_double_le(c.cell.seconds, OFF_LADDER * best);
    }
}
END_TEST

int main(void) {
    Suite *s = suite_create("autobatch.autolevel");
    TCase *tc = tcase_create("autolevel");
    tcase_set_timeout(tc, 120);
    tcase_add_checked_fixture(tc, prepare, finish);
    tcase_add_loop_test(tc, the_decision_is_the_fastest_of_all_that_fit, 0, N_JOBS);
    tcase_add_loop_test(tc, the_batch_that_was_found_leads_to_the_same_choice, 0, N_JOBS);
    tcase_add_loop_test(tc, what_takes_longer_than_was_asked_is_not_found, 0, N_JOBS);
    tcase_add_test(tc, a_trained_head_has_chunks_of_1024_rows);
    tcase_add_loop_test(tc, no_budget_and_no_level_decides_the_chunk_of_the_loss, 0, 4);
    tcase_add_test(tc, without_a_budget_the_level_is_full);
    tcase_add_test(tc, where_nothing_fits_the_smallest_is_taken_for_the_refusal);
#ifndef __SANITIZE_ADDRESS__
    tcase_add_loop_test(tc, deciding_is_not_waited_for, 0, (int)(sizeof clocks / sizeof *clocks));
#endif
    tcase_add_loop_test(tc, no_mix_of_two_levels_is_faster_by_a_layer, 0, N_JOBS);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
