/* check_resize.c - brief programs: their bytes are those of whole ones, and a program that was
 * resized is the one that is built. */
#include "estimator/program/cost.h"
#include "estimator/program/resize.h"
#include "estimator/plan/plan_digest.h"
#include "estimator/search/planned.h"
#include "tests/plan/planning.h"
#include "tests/program/listed.h"

#include <check.h>
#include <float.h>
#include <math.h>

/* One of each kind: QK-norm, biases and a tied head, partial rotation, windows, a scaled embedding;
 * of few layers, but enough that equal ones are left out. */
static const char *const models[] = {"Qwen3-0.6B", "Qwen2.5-0.5B",    "Phi-4-mini",
                                     "Gemma-3-1B", "Mistral-7B-v0.3", "Qwen3.5-2B"};
enum { N_MODELS = sizeof models / sizeof *models, LAYERS = 7, KINDS = N_MODELS * PL_TEST_MODES };

static const struct {
    uint32_t batch;
    uint64_t chunk, mlp; /* tokens of the MLP, in variants that split it */
} sizes[] = {{1, 128, 100}, {2, PL_AUTO, 100}, {9, 100, 64}, {5, 2048, 1000},
             {3, 16, 64},   {1, 0, 0},         {7, 250, 64}, {4, 64, 100}};
enum { N_SIZES = sizeof sizes / sizeof *sizes };

static struct pl_model model;
static struct pl_traits traits[2];

static void prepare(int kind) {
    pl_test_model(models[kind / PL_TEST_MODES], &model);
    model.layers = LAYERS;
    traits[0] = pl_traits_cpu(2);
    traits[1] = pl_traits_cuda(80);
}

/* Variants beyond the listed ones: lives of gradients, of full fine-tuning alone. */
enum { LIVES = 4, UNCUT = PL_TEST_VARIANTS + LIVES };
/* Some of them also have an MLP in chunks, with a level that drops it. */
enum { VARIANTS = 2 * UNCUT, SOME = 3 };

static int next_variant(int kind, int v) {
    do
        v++;
    while (v >= UNCUT && v < VARIANTS && (v + kind) % SOME);
    return v;
}

static void set_gradients(struct pl_job_shape *s, int life) {
    if (life < 0 || s->mode != PL_MODE_FULL || s->inference) return;
    s->gradients = life == 3 ? PL_GRADIENTS_OF_STEP : PL_GRADIENTS_OF_UPDATE;
    s->max_grad_norm = life == 1 ? 0 : 1;
    s->offload = life == 2 ? PL_OFFLOAD_OPTIMIZER : PL_OFFLOAD_NONE;
    s->update_on_host = false;
}

static struct pl_job_shape shape_of(int kind, int variant, int size) {
    struct pl_job_shape s = pl_test_listed_shape(&model, kind % PL_TEST_MODES);
    pl_test_vary(&s, variant % UNCUT % PL_TEST_VARIANTS);
    set_gradients(&s, variant % UNCUT - PL_TEST_VARIANTS);
    if (variant >= UNCUT && !s.inference) s.mlp_chunk_tokens = sizes[size].mlp;
    s.samples = variant % SOME == 1 && !s.inference;
    if (variant >= UNCUT && s.mode == PL_MODE_QLORA)
        s.unpack_bytes =
            model.ffn * model.hidden / (variant % 2 ? 1 : 16); /* half of gate, and less */
    s.keeps_unpacked = s.mode == PL_MODE_QLORA && !s.inference && variant % 2;
    s.batch_size = sizes[size].batch;
    s.loss_chunk_tokens = sizes[size].chunk;
    return s;
}

static struct pl_planned brief_of(const struct pl_job_shape *s, const struct pl_traits *t) {
    struct pl_planned p = {0};
    struct pl_diag d = {0};
    ck_assert_msg(pl_program_create_brief(&model, s, t, &p.program, &d) == PL_ERR_OK, "%s",
                  d.message);
    ck_assert_msg(pl_plan_create(p.program, &p.plan, &d) == PL_ERR_OK, "%s", d.message);
    return p;
}

static void compare_bytes(const struct pl_plan *a, const struct pl_plan *b) {
    ck_assert_uint_eq(a->job_bytes, b->job_bytes);
    for (int p = 0; p < PL_PHASE_COUNT; p++) {
        ck_assert_msg(a->phases[p].bytes == b->phases[p].bytes,
                      "%s: %llu bytes of the brief plan, %llu of the whole, at least %llu",
                      pl_phase_name((enum pl_phase)p), (unsigned long long)a->phases[p].bytes,
                      (unsigned long long)b->phases[p].bytes,
                      (unsigned long long)b->phases[p].live_bytes);
        ck_assert_uint_eq(a->phases[p].live_bytes, b->phases[p].live_bytes);
    }
    for (int p = 0; p < PL_PLACE_COUNT; p++) {
        ck_assert_uint_eq(a->host[p].job_bytes, b->host[p].job_bytes);
        ck_assert_uint_eq(a->host[p].batch_bytes, b->host[p].batch_bytes);
    }
}

/* F2 of fold.h */
START_TEST(a_brief_plan_has_the_bytes_of_the_whole) {
    uint32_t shortened = 0;
    prepare(_i);
    for (int v = 0; v < VARIANTS; v = next_variant(_i, v)) {
        for (int i = 0; i < 2 * N_SIZES; i++) {
            const struct pl_traits *t = &traits[i % 2];
            const struct pl_speed speed = pl_speed_nominal(t);
            const struct pl_job_shape s = shape_of(_i, v, i / 2);
            struct pl_planned brief = brief_of(&s, t), whole;
            ck_assert_int_eq(pl_planned_init_shape(&whole, &s, &model, t, NULL), PL_ERR_OK);
            shortened += brief.program->shortened;
            ck_assert_int_eq(brief.program->shortened, brief.program->n_ops < whole.program->n_ops);
            compare_bytes(brief.plan, whole.plan);
            const double seconds = pl_program_micro_seconds(whole.program, &speed);
            const double off = pl_program_micro_seconds(brief.program, &speed) - seconds;
            ck_assert_double_le(fabs(off), whole.program->n_ops * DBL_EPSILON * seconds);
            pl_planned_finish(&brief);
            pl_planned_finish(&whole);
        }
    }
    const bool trains = _i % PL_TEST_MODES < 3;
    ck_assert_int_eq(shortened > 0, trains);
}
END_TEST

static uint64_t digest_of(const struct pl_planned *p) {
    struct pl_digest h;
    pl_digest_init(&h, 0);
    pl_digest_add_plan(&h, p->plan);
    for (uint32_t i = 0; i < p->program->n_ops; i++) {
        const double copies = pl_op_copies(p->program, &p->program->ops[i]);
        pl_digest_add(&h, &copies, sizeof copies);
    }
    const uint64_t numbers[] = {p->program->tokens, p->program->seqs, p->program->chunk_tokens,
                                p->program->mlp_chunk_tokens, p->program->shortened};
    pl_digest_add(&h, numbers, sizeof numbers);
    return pl_digest_value(&h);
}

static bool resize(struct pl_planned *p, const struct pl_job_shape *s) {
    if (!pl_program_resize(p->program, s)) return false;
    pl_plan_destroy(&p->plan);
    ck_assert_int_eq(pl_plan_create(p->program, &p->plan, NULL), PL_ERR_OK);
    return true;
}

/* Z1 */
START_TEST(a_resized_program_is_the_one_that_is_built) {
    uint32_t resized = 0;
    prepare(_i);
    for (int v = 0; v < VARIANTS; v = next_variant(_i, v)) {
        for (int from = 0; from < N_SIZES; from++) {
            const struct pl_traits *t = &traits[(v + from) % 2];
            const struct pl_job_shape first = shape_of(_i, v, from);
            struct pl_planned p = brief_of(&first, t);
            for (int to = 0; to < N_SIZES; to++) { /* one after another */
                const struct pl_job_shape s = shape_of(_i, v, to);
                if (!resize(&p, &s)) continue;
                struct pl_planned built = brief_of(&s, t);
                ck_assert_uint_eq(digest_of(&p), digest_of(&built));
                pl_planned_finish(&built);
                resized++;
            }
            pl_planned_finish(&p);
        }
    }
    const bool trains = _i % PL_TEST_MODES < 3;
    ck_assert_int_eq(resized > 200, trains);
}
END_TEST

static struct pl_planned folds_of(struct pl_job_shape *s, bool order) {
    s->dtype = s->gradient_dtype = PL_DTYPE_BF16;
    s->ranks = 2;
    s->rank = 1;
    s->sharding = order ? PL_SHARDING_GRADIENTS : PL_SHARDING_OPTIMIZER;
    s->rank_order = order;
    s->folds_gradients = true;
    return brief_of(s, &traits[0]);
}

/* FOLD counts random numbers by the elements of a weight, which no batch changes. _i: whether ranks
 * exchange after every micro-batch; once a step no fold of theirs is rounded. */
START_TEST(elements_of_weights_stay_what_they_are) {
    uint32_t folds = 0;
    prepare(0);
    struct pl_job_shape one = shape_of(0, 0, 0), two = one;
    two.batch_size = 2 * one.batch_size;
    struct pl_planned p = folds_of(&one, _i), built = folds_of(&two, _i);
    ck_assert(resize(&p, &two));
    ck_assert_uint_eq(digest_of(&p), digest_of(&built));
    ck_assert_uint_eq(p.program->n_ops, built.program->n_ops);
    for (uint32_t i = 0; i < p.program->n_ops; i++) {
        const struct pl_op *op = &p.program->ops[i];
        folds += op->kind == PL_OP_FOLD && op->attr.first_element;
        ck_assert_msg(op->attr.first_element == built.program->ops[i].attr.first_element,
                      "op %u (%s) begins at another element", i, pl_op_name(op->kind));
    }
    ck_assert((folds > 0) == (_i == 1));
    pl_planned_finish(&built);
    pl_planned_finish(&p);
}
END_TEST

/* More than the samples and the chunk is another program. */
START_TEST(only_sizes_are_resized) {
    prepare(0);
    for (int change = 0; change < 6; change++) {
        struct pl_job_shape s = shape_of(0, 0, 0);
        struct pl_planned p = brief_of(&s, &traits[0]);
        s.batch_size = 2;
        if (change == 1) s.max_seq_length /= 2;
        if (change == 2) s.recompute = PL_RECOMPUTE_LIGHT;
        if (change == 3) s.loss_chunk_tokens = 1024;
        if (change == 4) s.batch_size = INT32_MAX;
        if (change == 5) s.mlp_chunk_tokens = 64;
        ck_assert_int_eq(pl_program_resize(p.program, &s), change == 0);
        pl_planned_finish(&p);
    }
}
END_TEST

int main(void) {
    Suite *s = suite_create("program.resize");
    TCase *tc = tcase_create("brief");
    tcase_set_timeout(tc, 240);
    tcase_add_loop_test(tc, a_brief_plan_has_the_bytes_of_the_whole, 0, KINDS);
    tcase_add_loop_test(tc, a_resized_program_is_the_one_that_is_built, 0, KINDS);
    tcase_add_test(tc, only_sizes_are_resized);
    suite_add_tcase(s, tc);
    tc = tcase_create("folds");
    tcase_add_loop_test(tc, elements_of_weights_stay_what_they_are, 0, 2);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
