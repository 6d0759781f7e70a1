/* check_chunked_mlp.c - programs whose MLPs are computed chunk by chunk: every size of a chunk is a
 * sound plan, the gradient of every weight has the rows of every token once, and what the MLP holds
 * is of one chunk. */
#include "estimator/plan/plan_digest.h"
#include "tests/plan/planning.h"

#include <check.h>
#include <stdlib.h>

enum { SAMPLES = 3, LENGTH = 11, TOKENS = SAMPLES * LENGTH };

static const char *const models[] = {"Qwen2.5-0.5B", "Gemma-3-1B"};
static const uint32_t levels[] = {PL_RECOMPUTE_MLP, PL_RECOMPUTE_FULL, PL_RECOMPUTE_OFFLOAD,
                                  PL_RECOMPUTE_ATTENTION};
enum { N_MODELS = sizeof models / sizeof *models, N_LEVELS = sizeof levels / sizeof *levels };
enum { MODES = PL_MODE_QLORA + 1, KINDS = N_MODELS * N_LEVELS * MODES };

static struct pl_model model;

static struct pl_job_shape shape_of(int kind) {
    pl_test_model(models[kind / N_LEVELS / MODES], &model);
    model.layers = 2;
    struct pl_job_shape s = pl_test_shape(&model, (uint32_t)(kind / N_LEVELS % MODES),
                                          levels[kind % N_LEVELS], SAMPLES, LENGTH);
    s.loss_chunk_tokens = 0;
    s.lora_dropout = kind % 2 ? 0.1 : 0;
    return s;
}

/* plan_check is part of the plan. */
static void make_plan(struct pl_planned *out, const struct pl_job_shape *s) {
    const struct pl_traits traits = pl_traits_cuda(80);
    struct pl_diag d = {0};
    ck_assert_msg(pl_planned_init_shape(out, s, &model, &traits, &d) == PL_ERR_OK, "%s", d.message);
    ck_assert_msg(pl_plan_check(out->plan, &d) == PL_ERR_OK, "%s", d.message);
}

static uint64_t digest_of(const struct pl_planned *p) {
    struct pl_digest h;
    pl_digest_init(&h, 0);
    pl_digest_add_plan(&h, p->plan);
    return pl_digest_value(&h);
}

/* Returns the rows of gate, up and their product, and their gradients: the peak of a layer. */
static uint64_t most_rows_of_mlp(const struct pl_program *p) {
    uint64_t most = 0;
    for (uint32_t i = 0; i < p->n_tensors; i++) {
        const struct pl_tensor *t = &p->tensors[i];
        if (t->scope != PL_SCOPE_STEP || t->rows != PL_ROWS_TOKENS || t->dims[1] < model.ffn)
            continue;
        most = t->dims[0] > most ? t->dims[0] : most;
    }
    return most;
}

/* Rows of tokens that the gradient of each tensor sums over. */
static void expect_every_token_once(const struct pl_program *p) {
    uint64_t *rows = calloc(p->n_tensors, sizeof *rows);
    ck_assert_ptr_nonnull(rows);
    for (uint32_t i = 0; i < p->n_ops; i++) {
        const struct pl_op *op = &p->ops[i];
        if (op->kind != PL_OP_LINEAR_DW || op->layer == PL_NONE) continue;
        const struct pl_operand *dy = &op->in[0];
        uint64_t *sum = &rows[op->out[0].id];
        ck_assert_int_eq(op->attr.accumulate == PL_ACC_ADD, *sum > 0);
        *sum += dy->nrows ? dy->nrows : p->tensors[dy->id].dims[0];
    }
    for (uint32_t i = 0; i < p->n_tensors; i++)
        ck_assert_msg(rows[i] == 0 || rows[i] == TOKENS, "gradient %u sums over %llu rows", i,
                      (unsigned long long)rows[i]);
    free(rows);
}

START_TEST(every_chunk_is_a_sound_plan) {
    struct pl_job_shape s = shape_of(_i);
    const bool keeps = s.recompute == PL_RECOMPUTE_ATTENTION;
    struct pl_planned whole, cut;
    make_plan(&whole, &s);
    for (uint64_t chunk = 1; chunk <= TOKENS + 1; chunk++) {
        s.mlp_chunk_tokens = chunk;
        make_plan(&cut, &s);
        const bool same = keeps || chunk >= TOKENS;
        ck_assert_int_eq(digest_of(&cut) == digest_of(&whole), same);
        ck_assert_uint_eq(most_rows_of_mlp(cut.program), same ? TOKENS : chunk);
        expect_every_token_once(cut.program);
        pl_planned_finish(&cut);
    }
    pl_planned_finish(&whole);
}
END_TEST

/* The gradients of an MLP in chunks are settled one after the other, their squares as one op. */
START_TEST(updates_in_the_backward_pass_are_sound) {
    struct pl_planned p;
    struct pl_job_shape s = shape_of(0);
    ck_assert_int_eq(s.mode, PL_MODE_FULL);
    s.gradients = PL_GRADIENTS_OF_UPDATE;
    s.max_grad_norm = _i;
    s.mlp_chunk_tokens = TOKENS / 2;
    make_plan(&p, &s);
    pl_planned_finish(&p);
}
END_TEST

/* At lengths where activations are most of the peak, chunks leave out the rows of the MLP: gate,
 * up, their product and its gradient. */
START_TEST(the_hump_of_a_layer_falls) {
    enum { LONG = 16384, CHUNK = 512 };
    struct pl_planned whole, cut;
    pl_test_model("Llama-3.1-8B", &model);
    struct pl_job_shape s = pl_test_shape(&model, PL_MODE_QLORA, PL_RECOMPUTE_FULL, 1, LONG);
    make_plan(&whole, &s);
    s.mlp_chunk_tokens = CHUNK;
    make_plan(&cut, &s);
    const uint64_t hump = 4 * model.ffn * 2 * (LONG - CHUNK);
    const uint64_t before = whole.plan->phases[PL_PHASE_MICRO].live_bytes;
    const uint64_t after = cut.plan->phases[PL_PHASE_MICRO].live_bytes;
    /* until something else is the peak: attention, whose gradients are 2 x (2 Q + 2 K) wide */
    ck_assert_uint_gt(before - after, hump / 2);
    pl_planned_finish(&whole);
    pl_planned_finish(&cut);
}
END_TEST

/* The limit of a program is its layers' operations, times chunks. */
START_TEST(too_many_chunks_are_refused) {
    struct pl_job_shape s = shape_of(0);
    const struct pl_traits traits = pl_traits_cpu(1);
    struct pl_planned p;
    struct pl_diag d = {0};
    s.max_seq_length = PL_MLP_CHUNKS_MAX + 1;
    s.batch_size = s.mlp_chunk_tokens = 1;
    ck_assert_int_eq(pl_planned_init_shape(&p, &s, &model, &traits, &d), PL_ERR_CONFIG_RANGE);
    ck_assert_str_eq(d.message, "`mlp_chunk_tokens` 1 cuts 1025 tokens into more than 1024 chunks");
    s.mlp_chunk_tokens = 2;
    pl_test_plan(&p, &s, &model);
    pl_planned_finish(&p);
}
END_TEST

int main(void) {
    Suite *s = suite_create("program.chunked_mlp");
    TCase *tc = tcase_create("chunks");
    tcase_set_timeout(tc, 60);
    tcase_add_loop_test(tc, every_chunk_is_a_sound_plan, 0, KINDS);
    tcase_add_loop_test(tc, updates_in_the_backward_pass_are_sound, 0, 2);
    tcase_add_test(tc, the_hump_of_a_layer_falls);
    tcase_add_test(tc, too_many_chunks_are_refused);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
