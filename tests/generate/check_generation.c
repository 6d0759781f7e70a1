/* check_generation.c - the program of inference against the program of training, and sequences
 * against each other: whatever the cache, the pieces and the neighbours, the logits are those of
 * one forward pass over the same tokens. */
#include "estimator/config/job_text.h"
#include "runtime/generate/generate.h"
#include "runtime/train/evaluate.h"
#include "runtime/train/run_open.h"
#include "runtime/train/step.h"
#include "runtime/train/weights_io.h"
#include "tests/support/scratch.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define VOCAB 61
#define MOST  720

static char dir[SCRATCH_PATH];

static void set_up(void) {
    scratch_make(dir);
}

static void tear_down(void) {
    scratch_remove(dir);
}

/* ---- models ---- */

#define SIZES                                                                                      \
    "\"hidden_size\": 32, \"intermediate_size\": 48, \"num_hidden_layers\": 4, \"vocab_size\": "   \
    "61, "                                                                                         \
    "\"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"rms_norm_eps\": 1e-5, "             \
    "\"initializer_range\": 0.15, \"rope_theta\": 10000.0, "

static const struct {
    const char *name, *config;
    uint64_t first_compared; /* after so many tokens both sides use one table of frequencies */
} models[] = {
    {"llama", "\"model_type\": \"llama\", \"max_position_embeddings\": 1024", 1},
    {"tied",
     "\"model_type\": \"llama\", \"max_position_embeddings\": 1024, "
     "\"tie_word_embeddings\": true",
     1},
    {"window",
     "\"model_type\": \"mistral\", \"max_position_embeddings\": 1024, "
     "\"sliding_window\": 7",
     1},
    {"biases", "\"model_type\": \"qwen2\", \"max_position_embeddings\": 1024", 1},
    {"norms on q and k",
     "\"model_type\": \"qwen3\", \"head_dim\": 12, "
     "\"max_position_embeddings\": 1024",
     1},
    {"layers without rope",
     "\"model_type\": \"smollm3\", \"max_position_embeddings\": 1024, "
     "\"no_rope_layers\": [1, 0, 1, 0]",
     1},
    {"longrope",
     "\"model_type\": \"phi3\", \"max_position_embeddings\": 64, "
     "\"original_max_position_embeddings\": 20, \"rope_scaling\": {\"type\": \"longrope\", "
     "\"short_factor\": [1, 1, 1.1, 1.2], \"long_factor\": [1, 2, 3, 4]}",
     21},
};
#define N_MODELS (int)(sizeof models / sizeof *models)

static void write_model(const char *config, const char *eos) {
    file_write(in_dir(dir, "config.json"),
               textf("{" SIZES "%s, \"eos_token_id\": %s}\n", config, eos));
}

static void make_ids(int32_t *ids, uint64_t n, uint32_t seed) {
    uint64_t x = seed;
    for (uint64_t i = 0; i < n; i++) {
        x = x * UINT64_C(6364136223846793005) + 1442695040888963407u;
        ids[i] = (int32_t)((x >> 33) % (VOCAB - 1));
    }
}

/* ---- generating ---- */

struct answer {
    struct pl_generated out;
    float *logits[2]; /* logits of each sequence: row p comes after p tokens */
    pl_err err;
};

static void keep_logits(void *ctx, uint32_t sequence, uint64_t position, const float *row) {
    struct answer *a = ctx;
    memcpy(a->logits[sequence] + position * VOCAB, row, VOCAB * sizeof *row);
}

static void set(struct pl_job *job, const char *key, const char *value) {
    struct pl_diag d = {0};
    ck_assert_msg(pl_job_set(job, key, value, &d) == PL_ERR_OK, "%s", d.message);
}

static void begin_job(struct pl_job *job) {
    ck_assert_int_eq(pl_job_defaults(job, NULL), PL_ERR_OK);
    set(job, "init", "random");
    set(job, "model_config", in_dir(dir, "config.json"));
    set(job, "dtype", "fp32");
    set(job, "device", "cpu");
    set(job, "threads", "2");
    job->mode = PL_MODE_FULL;
}

static const struct pl_sampling greedy = {.top_p = 1, .repetition_penalty = 1};

/* context 0: what prompts and answers need. */
static void generate(struct answer *a, const struct pl_prompt *prompts, uint32_t n,
                     const struct pl_generate_options *how, uint64_t context) {
    struct pl_job job;
    struct pl_preflight pf;
    struct pl_diag d = {0};
    struct pl_generate_options opt = *how;
    *a = (struct answer){0};
    begin_job(&job);
    job.batch_size = n;
    for (uint32_t i = 0; i < n; i++) {
        a->logits[i] = calloc(MOST * VOCAB, sizeof **a->logits);
        ck_assert_ptr_nonnull(a->logits[i]);
        if (context < prompts[i].n + opt.max_new_tokens)
            context = prompts[i].n + opt.max_new_tokens;
    }
    job.max_seq_length = (uint32_t)context;
    opt.messages = stderr;
    opt.quiet = true;
    opt.logits = keep_logits;
    opt.ctx = a;
    pl_err err = pl_preflight_init_generate(&pf, &job, &d);
    ck_assert_msg(err == PL_ERR_OK, "%s", d.message);
    a->err = pl_generate(&pf, &opt, prompts, n, &a->out, &d);
    ck_assert_msg(a->err == PL_ERR_OK || a->err == PL_ERR_INTERRUPTED, "%s", d.message);
    ck_assert_uint_gt(a->out.planned_bytes, 0);
    ck_assert_uint_eq(a->out.planned_bytes, a->out.allocated_bytes);
    pl_preflight_finish(&pf);
    pl_job_finish(&job);
}

static void answer_finish(struct answer *a) {
    pl_generated_finish(&a->out);
    for (int i = 0; i < 2; i++)
        free(a->logits[i]);
}

/* ---- a generator that answers again ---- */

/* D4 of decode.h. */
START_TEST(a_second_answer_computes_only_what_is_new) {
    static int32_t ids[MOST];
    struct pl_job job;
    struct pl_preflight pf;
    struct pl_diag d = {0};
    struct pl_generator *g;
    struct pl_generated first, second, fresh;
    const struct pl_generate_options opt = {.messages = stderr,
                                            .quiet = true,
                                            .max_new_tokens = 5,
                                            .ignore_eos = true,
                                            .sampling = greedy};
    const struct pl_prompt prompt = {ids, 12};
    write_model(models[_i].config, "60");
    make_ids(ids, 12, 7);
    begin_job(&job);
    job.batch_size = 1;
    job.max_seq_length = 40;
    ck_assert_msg(pl_preflight_init_generate(&pf, &job, &d) == PL_ERR_OK, "%s", d.message);
    ck_assert_int_eq(pl_generator_open(&pf, &opt, 1, &g, &d), PL_ERR_OK);
    ck_assert_int_eq(pl_generator_answer(g, &prompt, &first, &d), PL_ERR_OK);
    ck_assert_uint_eq(first.prompt_tokens, 12);
    /* the answer, of which the last token was not computed, and three tokens more */
    memcpy(ids, first.sequences[0].ids, 17 * sizeof *ids);
    make_ids(ids + 17, 3, 9);
    const struct pl_prompt longer = {ids, 20};
    ck_assert_int_eq(pl_generator_answer(g, &longer, &second, &d), PL_ERR_OK);
    ck_assert_uint_eq(second.planned_bytes, second.allocated_bytes);
    pl_generator_close(&g);
    ck_assert_int_eq(pl_generate(&pf, &opt, &longer, 1, &fresh, &d), PL_ERR_OK);
    ck_assert(_i > 0 || fresh.prompt_tokens == 20);
    if (fresh.prompt_tokens == 20) /* else positions turn by the length of the sequence */
        ck_assert_uint_eq(second.prompt_tokens, 20 - 16);
    ck_assert_mem_eq(second.sequences[0].ids, fresh.sequences[0].ids, 25 * sizeof *ids);
    pl_generated_finish(&first);
    pl_generated_finish(&second);
    pl_generated_finish(&fresh);
    pl_preflight_finish(&pf);
    pl_job_finish(&job);
}
END_TEST

/* ---- the reference: evaluation, as training runs it ---- */

static uint32_t find_logits(const struct pl_program *p) {
    for (uint32_t i = 0; i < p->n_tensors; i++)
        if (p->tensors[i].category == PL_CATEGORY_LOGITS && p->tensors[i].phase == PL_PHASE_EVAL)
            return i;
    ck_abort_msg("no logits in the evaluation");
}

static void write_rows(const int32_t *ids, uint64_t n) {
    FILE *f = fopen(in_dir(dir, "rows.jsonl"), "w");
    ck_assert_ptr_nonnull(f);
    for (uint64_t i = 0; i < n; i++)
        fprintf(f, "%s%d", i ? "," : "{\"input_ids\":[", ids[i]);
    fputs("]}\n", f);
    ck_assert_int_eq(fclose(f), 0);
}

/* Counts what an evaluation tells of such logits again, in doubles. */
static void expect_figures(const struct pl_evaluation *e, const float *logits, const int32_t *ids,
                           uint64_t n) {
    uint64_t right = 0;
    double loss = 0;
    for (uint64_t t = 0; t + 1 < n; t++) {
        const float *row = logits + t * VOCAB;
        const int32_t target = ids[t + 1];
        double sum = 0;
        int32_t best = 0;
        for (int32_t i = 0; i < VOCAB; i++) {
            if ((double)row[i] > (double)row[best]) best = i;
            sum += exp((double)row[i]);
        }
        right += best == target;
        loss += log(sum) - (double)row[target];
    }
    ck_assert_uint_eq(e->tokens, n - 1);
    ck_assert_uint_eq(e->right, right);
    ck_assert_double_eq(e->accuracy, (double)right / (double)(n - 1));
    ck_assert_double_eq_tol(e->loss, loss / (double)(n - 1), 1e-6);
    ck_assert_double_eq_tol(e->perplexity, exp(loss / (double)(n - 1)), 1e-4);
}

/* logits[t] = row after t + 1 tokens, t < n - 1. */
static void evaluate(const int32_t *ids, uint64_t n, float *logits) {
    struct pl_job job;
    struct pl_preflight pf;
    struct pl_run run;
    struct pl_diag d = {0};
    const struct pl_train_options opt = {.messages = stderr, .quiet = true};
    write_rows(ids, n);
    file_write(in_dir(dir, "run.yaml"),
               textf("init: random\nmodel_config: config.json\nmode: full\ndtype: fp32\n"
                     "device: cpu\nthreads: 2\nbatch_size: 1\nmax_seq_length: %llu\n"
                     "loss_chunk_tokens: 0\nmax_steps: 1\noutput_dir: %s/out\n"
                     "datasets:\n  - path: rows.jsonl\n    format: tokens\n"
                     "eval_datasets:\n  - path: rows.jsonl\n    format: tokens\n",
                     (unsigned long long)n, dir));
    ck_assert_msg(pl_job_read(&job, in_dir(dir, "run.yaml"), NULL, 0, NULL, &d) == PL_ERR_OK, "%s",
                  d.message);
    ck_assert_msg(pl_preflight_init(&pf, &job, &(struct pl_admission){0}, &d) == PL_ERR_OK, "%s",
                  d.message);
    ck_assert_msg(pl_run_open(&run, &pf, &opt, &d) == PL_ERR_OK, "%s", d.message);
    ck_assert_msg(pl_run_reserve(&run, &d) == PL_ERR_OK, "%s", d.message);
    ck_assert_msg(pl_run_load(&run, &d) == PL_ERR_OK, "%s", d.message);
    struct pl_evaluation figures;
    ck_assert_msg(pl_run_evaluate(&run, &figures, &d) == PL_ERR_OK, "%s", d.message);
    ck_assert_uint_eq(run.s.micro.n_targets, n - 1);
    const struct pl_rung *rung = pl_run_rung(&run);
    const struct pl_program *p = rung->planned.program;
    const uint32_t id = find_logits(p);
    const float *from = pl_exec_address(&rung->exec, id);
    for (uint64_t t = 0; t + 1 < n; t++)
        memcpy(logits + t * VOCAB, from + t * p->tensors[id].dims[1], VOCAB * sizeof *logits);
    expect_figures(&figures, logits, ids, n);
    pl_run_close(&run);
    pl_preflight_finish(&pf);
    pl_job_finish(&job);
}

/* Both sides compute the same in fp32 except for the order of sums: 4 layers of sums of at most 48
 * terms, residuals of order 1, logits of order 1. */
#define TOLERANCE 2e-5

static void expect_near(const float *got, const float *want, const char *what, uint64_t position) {
    for (uint64_t i = 0; i < VOCAB; i++)
        ck_assert_msg(fabs((double)got[i] - (double)want[i]) <= TOLERANCE,
                      "%s, behind %llu tokens: logit %llu is %.9g, the forward pass gives %.9g",
                      what, (unsigned long long)position, (unsigned long long)i, (double)got[i],
                      (double)want[i]);
}

static void compare_with_forward(int model, uint64_t prompt_tokens, uint64_t new_tokens) {
    static int32_t ids[MOST];
    static float want[MOST * VOCAB];
    struct answer a;
    const struct pl_prompt prompt = {ids, prompt_tokens};
    const struct pl_generate_options how = {
        .max_new_tokens = new_tokens, .ignore_eos = true, .sampling = greedy};
    write_model(models[model].config, "60");
    make_ids(ids, prompt_tokens, 7);
    generate(&a, &prompt, 1, &how, 0);
    const struct pl_generated_sequence *s = &a.out.sequences[0];
    ck_assert_uint_eq(s->n, prompt_tokens + new_tokens);
    ck_assert_int_eq(s->end, PL_END_LENGTH);
    evaluate(s->ids, s->n, want);
    double spread = 0;
    for (uint64_t p = prompt_tokens; p < s->n; p++) {
        const float *got = a.logits[0] + p * VOCAB;
        if (p < models[model].first_compared) continue;
        expect_near(got, want + (p - 1) * VOCAB, models[model].name, p);
        for (uint64_t i = 0; i < VOCAB; i++)
            spread = fmax(spread, fabs((double)got[i] - (double)got[0]));
    }
    ck_assert_double_gt(spread, 0.05); /* equal logits would agree with anything */
    answer_finish(&a);
}

START_TEST(logits_over_a_cache_are_those_of_a_forward_pass) {
    compare_with_forward(_i, 16, 14);
}
END_TEST

/* More tokens than one run computes: pieces of 512 and 78. */
START_TEST(a_prompt_in_pieces_is_a_prompt_at_once) {
    compare_with_forward(_i, 590, 6);
}
END_TEST

/* ---- several sequences ---- */

static void compare_alone(const uint64_t *lengths, uint64_t new_tokens, bool same_bits) {
    static int32_t ids[2][MOST];
    struct answer both, alone;
    struct pl_prompt prompts[2];
    const struct pl_generate_options how = {
        .max_new_tokens = new_tokens, .ignore_eos = true, .sampling = greedy};
    write_model(models[2].config, "60");
    for (uint32_t i = 0; i < 2; i++) {
        make_ids(ids[i], lengths[i], i + 3);
        prompts[i] = (struct pl_prompt){ids[i], lengths[i]};
    }
    generate(&both, prompts, 2, &how, 0);
    for (uint32_t i = 0; i < 2; i++) {
        const struct pl_generated_sequence *s = &both.out.sequences[i];
        generate(&alone, &prompts[i], 1, &how, 0);
        ck_assert_mem_eq(s->ids, alone.out.sequences[0].ids, s->n * sizeof *s->ids);
        for (uint64_t p = lengths[i]; p < s->n; p++) {
            const float *got = both.logits[i] + p * VOCAB, *want = alone.logits[0] + p * VOCAB;
            expect_near(got, want, "beside another", p);
            if (same_bits) ck_assert_mem_eq(got, want, VOCAB * sizeof *got);
        }
        answer_finish(&alone);
    }
    answer_finish(&both);
}

/* D2 of decode.h. Attention never lets sequences meet, and products of few rows sum every row
 * alike. Many rows go to a library whose order of sums may follow their number: then the last bits
 * may differ. */
START_TEST(short_prompts_beside_each_other_give_the_bits_of_each_alone) {
    compare_alone((const uint64_t[]){3, 5}, 12, true);
}
END_TEST

START_TEST(long_prompts_beside_each_other_give_the_tokens_of_each_alone) {
    compare_alone((const uint64_t[]){40, 530}, 12, false);
}
END_TEST

START_TEST(a_longer_cache_changes_no_bit) {
    int32_t ids[9];
    struct answer near, far;
    const struct pl_prompt prompt = {ids, 9};
    const struct pl_generate_options how = {
        .max_new_tokens = 10, .ignore_eos = true, .sampling = greedy};
    write_model(models[0].config, "60");
    make_ids(ids, 9, 1);
    generate(&near, &prompt, 1, &how, 0);
    generate(&far, &prompt, 1, &how, 300);
    ck_assert_mem_eq(near.logits[0], far.logits[0], MOST * VOCAB * sizeof(float));
    answer_finish(&near);
    answer_finish(&far);
}
END_TEST

/* ---- ends ---- */

/* D3 of decode.h. */
START_TEST(an_end_token_ends_a_sequence_and_is_its_last) {
    int32_t ids[6];
    struct answer a;
    const struct pl_prompt prompt = {ids, 6};
    struct pl_generate_options how = {.max_new_tokens = 10, .ignore_eos = true, .sampling = greedy};
    write_model(models[0].config, "60");
    make_ids(ids, 6, 5);
    generate(&a, &prompt, 1, &how, 0);
    const int32_t *answer = a.out.sequences[0].ids + 6;
    uint64_t first = 0;
    while (answer[first] != answer[4])
        first++;
    write_model(models[0].config, textf("[59, %d]", answer[4]));
    answer_finish(&a);
    how.ignore_eos = false;
    generate(&a, &prompt, 1, &how, 0);
    ck_assert_uint_eq(a.out.sequences[0].n, 6 + first + 1);
    ck_assert_int_eq(a.out.sequences[0].end, PL_END_EOS);
    answer_finish(&a);
}
END_TEST

START_TEST(the_end_of_a_turn_ends_an_answer_unless_ends_are_ignored) {
    int32_t ids[6];
    struct answer a;
    const struct pl_prompt prompt = {ids, 6};
    struct pl_generate_options how = {.max_new_tokens = 10, .sampling = greedy};
    write_model(models[0].config, "60");
    make_ids(ids, 6, 5);
    generate(&a, &prompt, 1, &how, 0);
    const int32_t turn_end = a.out.sequences[0].ids[6];
    answer_finish(&a);
    how.turn_end = &turn_end;
    for (int ignored = 0; ignored < 2; ignored++) {
        how.ignore_eos = ignored;
        generate(&a, &prompt, 1, &how, 0);
        ck_assert_uint_eq(a.out.sequences[0].n, ignored ? 16 : 7);
        ck_assert_int_eq(a.out.sequences[0].end, ignored ? PL_END_LENGTH : PL_END_EOS);
        answer_finish(&a);
    }
}
END_TEST

static volatile sig_atomic_t stop;

static void stop_soon(void *ctx, uint32_t sequence, int32_t id) {
    (void)sequence, (void)id;
    if (++*(int *)ctx == 3) stop = SIGINT;
}

/* D3 of decode.h. */
START_TEST(a_signal_leaves_what_was_generated) {
    int32_t ids[6];
    int tokens = 0;
    struct pl_job job;
    struct pl_preflight pf;
    struct pl_generated out;
    const struct pl_prompt prompt = {ids, 6};
    const struct pl_generate_options how = {.messages = stderr,
                                            .quiet = true,
                                            .max_new_tokens = 10,
                                            .ignore_eos = true,
                                            .sampling = greedy,
                                            .stop = &stop,
                                            .token = stop_soon,
                                            .ctx = &tokens};
    write_model(models[0].config, "60");
    make_ids(ids, 6, 5);
    begin_job(&job);
    job.batch_size = 1;
    job.max_seq_length = 16;
    ck_assert_int_eq(pl_preflight_init_generate(&pf, &job, NULL), PL_ERR_OK);
    ck_assert_int_eq(pl_generate(&pf, &how, &prompt, 1, &out, NULL), PL_ERR_INTERRUPTED);
    ck_assert_uint_eq(out.sequences[0].n, 9);
    ck_assert_int_eq(out.sequences[0].end, PL_END_SIGNAL);
    ck_assert_uint_eq(out.planned_bytes, out.allocated_bytes);
    pl_generated_finish(&out);
    pl_preflight_finish(&pf);
    pl_job_finish(&job);
}
END_TEST

START_TEST(a_plan_larger_than_the_budget_is_refused_before_a_device_opens) {
    struct pl_job job;
    struct pl_preflight pf;
    struct pl_diag d = {0};
    write_model(models[0].config, "60");
    begin_job(&job);
    set(&job, "vram_budget", "64KiB");
    job.batch_size = 1;
    job.max_seq_length = 512;
    ck_assert_int_eq(pl_preflight_init_generate(&pf, &job, &d), PL_ERR_DOES_NOT_FIT);
    ck_assert_uint_gt(pf.estimate.planned.plan->ledger[PL_CATEGORY_KV_CACHE], 0);
    pl_preflight_finish(&pf);
    pl_job_finish(&job);
}
END_TEST

START_TEST(prompts_the_model_cannot_read_are_refused) {
    static const int32_t ids[] = {1, VOCAB, -1};
    static const struct {
        uint64_t first, n, most;
    } rows[] = {{1, 1, 1}, {2, 1, 1}, {0, 0, 1}, {0, 1, 8}, {0, 1, UINT64_MAX}};
    struct pl_job job;
    struct pl_preflight pf;
    struct pl_generated out;
    const struct pl_prompt prompt = {ids + rows[_i].first, rows[_i].n};
    const struct pl_generate_options how = {
        .messages = stderr, .max_new_tokens = rows[_i].most, .sampling = greedy};
    write_model(models[0].config, "60");
    begin_job(&job);
    job.batch_size = 1;
    job.max_seq_length = 8;
    ck_assert_int_eq(pl_preflight_init_generate(&pf, &job, NULL), PL_ERR_OK);
    ck_assert_int_eq(pl_generate(&pf, &how, &prompt, 1, &out, NULL), PL_ERR_USAGE);
    pl_generated_finish(&out);
    pl_preflight_finish(&pf);
    pl_job_finish(&job);
}
END_TEST

int main(void) {
    Suite *s = suite_create("train.generation");
    TCase *tc = tcase_create("generation");
    tcase_set_timeout(tc, 120);
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_loop_test(tc, logits_over_a_cache_are_those_of_a_forward_pass, 0, N_MODELS);
    tcase_add_loop_test(tc, a_prompt_in_pieces_is_a_prompt_at_once, 0, 3);
    tcase_add_test(tc, short_prompts_beside_each_other_give_the_bits_of_each_alone);
    tcase_add_test(tc, long_prompts_beside_each_other_give_the_tokens_of_each_alone);
    tcase_add_loop_test(tc, a_second_answer_computes_only_what_is_new, 0, N_MODELS);
    tcase_add_test(tc, a_longer_cache_changes_no_bit);
    tcase_add_test(tc, an_end_token_ends_a_sequence_and_is_its_last);
    tcase_add_test(tc, the_end_of_a_turn_ends_an_answer_unless_ends_are_ignored);
    tcase_add_test(tc, a_signal_leaves_what_was_generated);
    tcase_add_test(tc, a_plan_larger_than_the_budget_is_refused_before_a_device_opens);
    tcase_add_loop_test(tc, prompts_the_model_cannot_read_are_refused, 0, 5);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
