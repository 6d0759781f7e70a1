/* check_brief.c - brief programs of models as they are, whose equal layers are left out: every
 * figure is the whole program's. */
#include "estimator/base/checked.h"
#include "estimator/gate/gate.h"
#include "estimator/plan/expand.h"
#include "estimator/plan/step_time.h"
#include "estimator/program/cost.h"
#include "estimator/search/planned.h"
#include "tests/plan/planning.h"
#include "tests/program/listed.h"

#include <check.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Levels that the search for the fastest mixes, and those that host memory takes part in; either
 * the first third of the layers or all but three are at the heavier one. */
static const uint32_t mixes[][2] = {
    {PL_RECOMPUTE_LIGHT, PL_RECOMPUTE_NONE},     {PL_RECOMPUTE_MLP, PL_RECOMPUTE_LIGHT},
    {PL_RECOMPUTE_FULL, PL_RECOMPUTE_LIGHT},     {PL_RECOMPUTE_ATTENTION, PL_RECOMPUTE_LIGHT},
    {PL_RECOMPUTE_FULL, PL_RECOMPUTE_ATTENTION}, {PL_RECOMPUTE_FULL, PL_RECOMPUTE_NONE},
    {PL_RECOMPUTE_ATTENTION, PL_RECOMPUTE_MLP},  {PL_RECOMPUTE_OFFLOAD, PL_RECOMPUTE_FULL},
    {PL_RECOMPUTE_OFFLOAD, PL_RECOMPUTE_LIGHT},  {PL_RECOMPUTE_OFFLOAD, PL_RECOMPUTE_NONE},
};
static const struct {
    uint32_t batch;
    uint64_t chunk, mlp;
} sizes[] = {{1, 128, 0},       {2, 256, 100}, {9, 1024, 0},
             {5, PL_AUTO, 512}, {16, 512, 0},  {1, PL_AUTO, 64}};
enum {
    N_MIXES = sizeof mixes / sizeof *mixes,
    N_SIZES = sizeof sizes / sizeof *sizes,
    HOSTED = PL_TEST_VARIANTS + 2 * N_MIXES, /* alone: inputs of layers, the embedding */
    SAMPLES = HOSTED + 2,                    /* alone, and with weights in host memory */
    N_VARIANTS = SAMPLES + 2,
    N_PROGRAMS = 3 * N_VARIANTS * N_SIZES,
    STRIDE = 23 /* the choice of programs of a model depends on it */
};

static struct pl_model model;

static void mix(struct pl_job_shape *s, int i) {
    const uint64_t k = i % 2 ? model.layers - 3 : model.layers / 3;
    s->recompute = PL_RECOMPUTE_MIX(mixes[i / 2][0], k, mixes[i / 2][1]);
}

static struct pl_job_shape shape_of(int program) {
    const int variant = program / N_SIZES % N_VARIANTS, size = program % N_SIZES;
    struct pl_job_shape s = pl_test_listed_shape(&model, program / N_SIZES / N_VARIANTS);
    if (variant < PL_TEST_VARIANTS)
        pl_test_vary(&s, variant);
    else if (variant < HOSTED)
        mix(&s, variant - PL_TEST_VARIANTS);
    if (variant == HOSTED) s.recompute = PL_RECOMPUTE_OFFLOAD;
    s.embedding_on_host |= variant == HOSTED + 1 && s.mode != PL_MODE_FULL;
    s.samples = variant >= SAMPLES;
    if (variant == SAMPLES + 1) s.offload = PL_OFFLOAD_WEIGHTS;
    s.batch_size = sizes[size].batch;
    s.loss_chunk_tokens = sizes[size].chunk;
    if (!s.inference) s.mlp_chunk_tokens = sizes[size].mlp;
    if (s.mode == PL_MODE_QLORA && s.mlp_chunk_tokens)
        s.unpack_bytes =
            model.ffn * model.hidden / (size == 3 ? 16 : 1); /* half of gate, and less */
    s.keeps_unpacked = s.mode == PL_MODE_QLORA && !s.inference && (size + variant) % 2;
    return s;
}

static void plan_both(const struct pl_job_shape *s, const struct pl_traits *t,
                      struct pl_planned *brief, struct pl_planned *whole) {
    struct pl_diag d = {0};
    *brief = (struct pl_planned){0};
    ck_assert_msg(pl_program_create_brief(&model, s, t, &brief->program, &d) == PL_ERR_OK, "%s",
                  d.message);
    ck_assert_msg(pl_plan_create(brief->program, &brief->plan, &d) == PL_ERR_OK, "%s", d.message);
    ck_assert_msg(pl_planned_init_shape(whole, s, &model, t, &d) == PL_ERR_OK, "%s", d.message);
}

static void compare_bytes(const struct pl_plan *a, const struct pl_plan *b) {
    ck_assert_uint_eq(a->job_bytes, b->job_bytes);
    for (int p = 0; p < PL_PHASE_COUNT; p++) {
        ck_assert_uint_eq(a->phases[p].bytes, b->phases[p].bytes);
        ck_assert_uint_eq(a->phases[p].live_bytes, b->phases[p].live_bytes);
    }
    for (int p = 0; p < PL_PLACE_COUNT; p++) {
        ck_assert_uint_eq(a->host[p].job_bytes, b->host[p].job_bytes);
        ck_assert_uint_eq(a->host[p].batch_bytes, b->host[p].batch_bytes);
    }
    ck_assert_mem_eq(a->ledger, b->ledger, sizeof a->ledger);
    ck_assert_uint_eq(a->arena_bytes, b->arena_bytes);
    ck_assert_uint_eq(a->alignment_bytes, b->alignment_bytes);
    ck_assert_uint_eq(pl_plan_host_total(a), pl_plan_host_total(b));
}

/* Another order of a sum of so many terms. */
static void check_close(double a, double b, uint32_t n) {
    ck_assert_double_le(fabs(a - b), n * DBL_EPSILON * b);
}

static void compare_times(const struct pl_program *a, const struct pl_program *b) {
    const struct pl_speed speed = pl_speed_nominal(&a->traits);
    const uint32_t n = b->n_ops;
    check_close(pl_program_micro_seconds(a, &speed), pl_program_micro_seconds(b, &speed), n);
    check_close(pl_program_first_seconds(a, &speed), pl_program_first_seconds(b, &speed), n);
    check_close(pl_program_update_seconds(a, &speed), pl_program_update_seconds(b, &speed), n);
}

/* Returns true if the brief program lacks layers. */
static bool compare_both(const struct pl_job_shape *s, const struct pl_traits *t,
                         void (*times)(const struct pl_program *a, const struct pl_program *b)) {
    struct pl_planned brief, whole;
    struct pl_diag d = {0};
    plan_both(s, t, &brief, &whole);
    const bool lacks = brief.program->layers_left_out != NULL;
    ck_assert_msg(pl_plan_check(whole.plan, &d) == PL_ERR_OK, "%s", d.message);
    compare_bytes(brief.plan, whole.plan);
    times(brief.program, whole.program);
    ck_assert_uint_eq(pl_gate_trained(brief.program), pl_gate_trained(whole.program));
    pl_planned_finish(&brief);
    pl_planned_finish(&whole);
    return lacks;
}

/* A sample of each model's programs; all of them with PLIMSOLL_EVERY=1. */
START_TEST(a_program_without_equal_layers_has_the_figures_of_the_whole) {
    const char *every = getenv("PLIMSOLL_EVERY");
    const int stride = every ? atoi(every) : STRIDE;
    uint32_t layers_left_out = 0;
    pl_test_model(pl_test_models[_i], &model);
    for (int i = _i % stride; i < N_PROGRAMS; i += stride) {
        const struct pl_traits t = i % 3 ? pl_traits_cuda(i % 2 ? 80 : 89) : pl_traits_cpu(2);
        const struct pl_job_shape s = shape_of(i);
        layers_left_out += compare_both(&s, &t, compare_times);
    }
    if (!model.layer[0].window) ck_assert_uint_gt(layers_left_out, 0); /* else in long periods */
}
END_TEST

/* --- ranks ----------------------------------------------------------------------------------- */

enum { N_OF_RANKS = 4 * 2 * 4 * PL_RECOMPUTE_OFFLOAD * 3, RANKS_STRIDE = 17 };

static struct pl_job_shape shape_of_ranks(int i) {
    static const uint32_t ranks[] = {1, 2, 3, 8}; /* one alone adds as several do */
    struct pl_job_shape s = pl_test_listed_shape(&model, i % 3);
    s.recompute = (uint32_t)i / 3 % PL_RECOMPUTE_OFFLOAD;
    s.sharding = (uint32_t)i / (3 * PL_RECOMPUTE_OFFLOAD) % 4;
    s.ranks = ranks[i / (3 * 4 * PL_RECOMPUTE_OFFLOAD) % 4];
    s.rank_order = s.ranks == 1 || i / (3 * 4 * 4 * PL_RECOMPUTE_OFFLOAD);
    s.rank = (uint32_t)i % s.ranks;
    if (s.ranks == 1) s.sharding = PL_SHARDING_NONE;
    s.gradient_dtype = i % 2 ? PL_DTYPE_F32 : PL_DTYPE_BF16;
    s.batch_size = 1 + (uint32_t)i % 5;
    s.loss_chunk_tokens = 512;
    if (i % 4 == 0) s.mlp_chunk_tokens = 256;
    return s;
}

static void compare_links(const struct pl_program *a, const struct pl_program *b) {
    const struct pl_speed speed = pl_speed_nominal(&a->traits);
    const struct pl_link link = {.start_seconds = 1e-5, .bytes_per_second = 5e10};
    struct pl_step_time x, y;
    pl_program_step_time(a, &speed, &link, 4, &x);
    pl_program_step_time(b, &speed, &link, 4, &y);
    check_close(x.sent_bytes, y.sent_bytes, b->n_ops);
    check_close(x.link_seconds, y.link_seconds, b->n_ops);
    check_close(x.compute_seconds, y.compute_seconds, b->n_ops);
}

/* A sample of each model's programs; all of them with PLIMSOLL_EVERY=1. */
START_TEST(a_brief_program_of_ranks_has_the_figures_of_the_whole) {
    const char *every = getenv("PLIMSOLL_EVERY");
    const int stride = every ? atoi(every) : RANKS_STRIDE;
    uint32_t layers_left_out = 0;
    pl_test_model(pl_test_models[_i], &model);
    for (int i = _i % stride; i < N_OF_RANKS; i += stride) {
        const struct pl_traits t = i % 3 ? pl_traits_cuda(80) : pl_traits_cpu(2);
        const struct pl_job_shape s = shape_of_ranks(i);
        layers_left_out += compare_both(&s, &t, compare_links);
    }
    if (!model.layer[0].window) ck_assert_uint_gt(layers_left_out, 0);
}
END_TEST

/* --- intervals ------------------------------------------------------------------------------- */

static int by_life(const void *a, const void *b) {
    const struct pl_interval *x = a, *y = b;
    if (x->first != y->first) return x->first < y->first ? -1 : 1;
    if (x->last != y->last) return x->last < y->last ? -1 : 1;
    return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

static struct pl_expansion intervals_of(const struct pl_plan *plan, enum pl_tensor_place place) {
    struct pl_expansion e;
    uint32_t *ids = malloc((plan->program->n_tensors + 1) * sizeof *ids);
    ck_assert_ptr_nonnull(ids);
    const struct pl_phase_tensors t = pl_test_tensors(plan, PL_PHASE_MICRO, place, ids);
    ck_assert_int_eq(pl_expand(&t, &e, NULL), PL_ERR_OK);
    free(ids);
    qsort(e.rows, e.n, sizeof *e.rows, by_life);
    return e;
}

static const struct {
    const char *model;
    int mode, variant;
    enum { OF_JOB, OF_UPDATE, CLIPPED } gradients;
} expanded[] = {{"Llama-3.1-8B", 1, PL_TEST_VARIANTS, OF_JOB},
                {"Llama-3.1-8B", 2, PL_TEST_VARIANTS + 9, OF_JOB},
                {"Gemma-3-12B", 2, 1, OF_JOB},
                {"SmolLM3-3B", 0, PL_TEST_VARIANTS + 5, OF_JOB},
                {"Qwen3-4B", 1, 9, OF_JOB},
                {"Qwen3-4B", 2, 10, OF_JOB},
                {"Qwen2.5-0.5B", 1, 14, OF_JOB},
                {"Qwen2.5-0.5B", 0, 2, OF_JOB},
                {"Qwen2.5-0.5B", 0, 2, OF_UPDATE},
                {"Qwen3-4B", 0, 0, CLIPPED},
                {"SmolLM3-3B", 0, PL_TEST_VARIANTS + 5, CLIPPED}};

/* E1 of expand.h, L2 of layer_runs.h: Every life and every size, with the head in one chunk so that
 * the ops of both are counted alike. */
START_TEST(expanded_intervals_are_those_of_the_whole) {
    const struct pl_traits t = pl_traits_cuda(89);
    pl_test_model(expanded[_i].model, &model);
    struct pl_job_shape s =
        shape_of((expanded[_i].mode * N_VARIANTS + expanded[_i].variant) * N_SIZES + 1);
    s.loss_chunk_tokens = s.mlp_chunk_tokens = 0;
    if (expanded[_i].gradients) s.gradients = PL_GRADIENTS_OF_UPDATE;
    if (expanded[_i].gradients) s.max_grad_norm = expanded[_i].gradients == CLIPPED;
    struct pl_planned brief, whole;
    plan_both(&s, &t, &brief, &whole);
    ck_assert_ptr_nonnull(brief.program->layers_left_out);
    compare_bytes(brief.plan, whole.plan);
    for (int place = 0; place < PL_PLACE_COUNT; place++) {
        struct pl_expansion a = intervals_of(brief.plan, (enum pl_tensor_place)place);
        struct pl_expansion b = intervals_of(whole.plan, (enum pl_tensor_place)place);
        ck_assert_uint_eq(a.n, b.n);
        ck_assert_uint_eq(a.n_ops, b.n_ops);
        for (uint32_t i = 0; i < a.n; i++)
            ck_assert_msg(by_life(&a.rows[i], &b.rows[i]) == 0,
                          "interval %u: ops %u to %u, %llu bytes; of the whole %u to %u, %llu", i,
                          a.rows[i].first, a.rows[i].last, (unsigned long long)a.rows[i].bytes,
                          b.rows[i].first, b.rows[i].last, (unsigned long long)b.rows[i].bytes);
        free(a.rows);
        free(b.rows);
    }
    pl_planned_finish(&brief);
    pl_planned_finish(&whole);
}
END_TEST

int main(void) {
    Suite *s = suite_create("program.brief");
    TCase *tc = tcase_create("layers");
    tcase_set_timeout(tc, 120);
    tcase_add_loop_test(tc, a_program_without_equal_layers_has_the_figures_of_the_whole, 0,
                        pl_test_n_all_models);
    tcase_add_loop_test(tc, a_brief_program_of_ranks_has_the_figures_of_the_whole, 0,
                        pl_test_n_all_models);
    tcase_add_loop_test(tc, expanded_intervals_are_those_of_the_whole, 0,
                        (int)(sizeof expanded / sizeof *expanded));
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
