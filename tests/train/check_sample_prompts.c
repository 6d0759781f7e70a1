/* check_sample_prompts.c - prompts that the model in training answers: who is told, and that
 * nothing of what is trained changes. Through the real binary. */
#include "tests/support/child.h"
#include "tests/support/joblog.h"
#include "tests/support/saved.h"
#include "tests/support/scratch.h"
#include "tests/support/tiny.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#define TRAIN(...) plimsoll_train_expect(0, dir, (const char *[]){__VA_ARGS__, NULL})
#define SAMPLED    "sample_prompts=[say it, say it not]", "sample_max_new_tokens=9"
enum { N_PROMPTS = 2, MOST = 9 };

static char dir[SCRATCH_PATH];

static void set_up(void) {
    scratch_make(dir);
}

static void tear_down(void) {
    scratch_remove(dir);
}

static void make(const char *mode, const char *more) {
    const struct tiny t = {
        .mode = mode, .hidden = 64, .ffn = 64, .layers = 3, .vocab = 300, .longest = 24};
    tiny_make(dir, &t,
              textf("tokenizer: byte\nbatch_size: 3\nmax_steps: 6\nlearning_rate: 0.01\n"
                    "save_steps: 6\neval_steps: 2\n%s",
                    more));
}

/* --- what is trained stays as it is ----------------------------------------------------------- */

static const char *const kinds[][2] = {
    {"full", ""},
    {"full", "dtype: bf16\nmaster_weights: false\ngradient_checkpointing: full\n"
             "mlp_chunk_tokens: 7\n"},
    {"full", "optimizer_in_backward: true\nmax_grad_norm: 0\n"},
    {"full", "offload: weights\n"},
    {"lora", "lora_r: 4\nlora_dropout: 0.2\nval_set_size: 4\n"},
    {"qlora", "lora_r: 4\npacking: true\nquantize_embedding: true\n"},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

/* A1 of samples.h; A2 of samples.h: what is allocated is what was planned. */
START_TEST(samples_change_no_bit_of_what_is_trained) {
    make(kinds[_i][0], kinds[_i][1]);
    TRAIN("output_dir=plain");
    TRAIN("output_dir=sampled", SAMPLED, "sample_temperature=1.5");
    joblog_assert_same_steps(in_dir(dir, "plain"), in_dir(dir, "sampled"));
    checkpoint_assert_same(in_dir(dir, "plain/checkpoint-6"), in_dir(dir, "sampled/checkpoint-6"));
    json_t *log = joblog_read(in_dir(dir, "sampled"));
    ck_assert_uint_eq(joblog_count(log, "sample"), 3 * N_PROMPTS);
    ck_assert(joblog_summary(in_dir(dir, "sampled"), "planned_peak_bytes") ==
              joblog_summary(in_dir(dir, "sampled"), "allocated_peak_bytes"));
    json_decref(log);
}
END_TEST

/* The batch arena is larger by what the cache needs more than a step: recovery halves the step
 * alone. */
START_TEST(a_halved_micro_batch_answers_as_well) {
    make("lora", "lora_r: 4\ndebug_inject: [\"device_oom@step=3\"]\n");
    TRAIN("output_dir=plain");
    TRAIN("output_dir=sampled", SAMPLED);
    checkpoint_assert_same(in_dir(dir, "plain/checkpoint-6"), in_dir(dir, "sampled/checkpoint-6"));
    json_t *log = joblog_read(in_dir(dir, "sampled"));
    ck_assert_uint_eq(joblog_count(log, "oom_recovery"), 1);
    ck_assert_uint_eq(joblog_count(log, "sample"), 3 * N_PROMPTS);
    json_decref(log);
}
END_TEST

START_TEST(a_resumed_run_may_ask_other_prompts) {
    make("full", "");
    TRAIN("output_dir=whole");
    TRAIN("output_dir=parts", SAMPLED, "max_steps=4", "save_steps=2", "warmup_steps=1");
    TRAIN("output_dir=again", "max_steps=4", "save_steps=2", "warmup_steps=1");
    TRAIN("output_dir=parts", "sample_prompts=[more]", "save_steps=2", "warmup_steps=1");
    TRAIN("output_dir=again", "save_steps=2", "warmup_steps=1");
    checkpoint_assert_same(in_dir(dir, "again/checkpoint-6"), in_dir(dir, "parts/checkpoint-6"));
    json_t *log = joblog_read(in_dir(dir, "parts"));
    const json_t *last = joblog_event(log, "sample", joblog_count(log, "sample") - 1);
    ck_assert_str_eq(json_string_value(json_object_get(last, "text")), "more");
    json_decref(log);
}
END_TEST

/* --- the answers ------------------------------------------------------------------------------ */

static json_t *generated(const char *prompt) {
    struct outcome o = plimsoll_expect(
        0, dir,
        (const char *[]){"generate", "--model", "out", "--tokenizer", "byte", "--device", "cpu",
                         "--prompt", prompt, "--max-new-tokens", "9", "--json", NULL});
    json_t *answer = json_loads(o.out, JSON_ALLOW_NUL, NULL);
    ck_assert_ptr_nonnull(answer);
    outcome_finish(&o);
    return answer;
}

/* The log has U+FFFD in the place of NUL. */
static const char *without_nul(const json_t *text) {
    static char out[256];
    const char *s = json_string_value(text);
    out[0] = 0;
    for (size_t i = 0; i < json_string_length(text); i++) {
        if (s[i])
            strncat(out, s + i, 1);
        else
            strcat(out, "\xEF\xBF\xBD");
    }
    return out;
}

START_TEST(the_last_samples_are_what_the_saved_model_generates) {
    static const char *const prompts[N_PROMPTS] = {"say it", "say it not"};
    make("full", "");
    TRAIN(SAMPLED);
    json_t *log = joblog_read(in_dir(dir, "out"));
    for (size_t i = 0; i < N_PROMPTS; i++) {
        const json_t *sample = joblog_event(log, "sample", 2 * N_PROMPTS + i);
        json_t *answer = generated(prompts[i]);
        ck_assert(joblog_number(sample, "step") == 6);
        ck_assert(joblog_number(sample, "prompt") == (double)i + 1);
        ck_assert(joblog_number(sample, "prompt_tokens") == (double)strlen(prompts[i]));
        ck_assert(joblog_number(sample, "new_tokens") ==
                  (double)json_array_size(json_object_get(answer, "ids")));
        ck_assert_str_eq(json_string_value(json_object_get(sample, "text")), prompts[i]);
        ck_assert_str_eq(json_string_value(json_object_get(sample, "answer")),
                         without_nul(json_object_get(answer, "text")));
        json_decref(answer);
    }
    json_decref(log);
}
END_TEST

/* Returns the answers of a run, one a line; malloc'd. */
static char *answers_of(const char *out) {
    json_t *log = joblog_read(in_dir(dir, out)), *line;
    size_t i;
    char *all = calloc(1, 65536);
    ck_assert_ptr_nonnull(all);
    json_array_foreach(log, i, line) {
        char *answer = json_dumps(json_object_get(line, "answer"), JSON_ENCODE_ANY);
        if (answer) strncat(strncat(all, answer, 1024), "\n", 2);
        free(answer);
    }
    json_decref(log);
    return all;
}

START_TEST(drawn_samples_follow_the_seed) {
    make("full", "");
    TRAIN("output_dir=greedy", SAMPLED);
    TRAIN("output_dir=a", SAMPLED, "sample_temperature=1", "sample_top_p=0.9");
    TRAIN("output_dir=b", SAMPLED, "sample_temperature=1", "sample_top_p=0.9");
    char *greedy = answers_of("greedy"), *a = answers_of("a"), *b = answers_of("b");
    ck_assert_str_eq(a, b);
    ck_assert_str_ne(a, greedy);
    free(greedy);
    free(a);
    free(b);
}
END_TEST

/* --- prompts as rows of the data have them ---------------------------------------------------- */

#define CHATML "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
#define ALPACA                                                                                     \
    "Below is an instruction that describes a task. Write a response that appropriately "          \
    "completes the request.\n\n### Instruction:\nHi\n\n### Response:"

static const struct {
    const char *row, *format, *prompt; /* the prompt "Hi" as it is encoded */
} forms[] = {
    {"{\"text\": \"some words\"}", "text", "Hi"},
    {"{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", "
     "\"content\": \"b\"}]}",
     "messages", CHATML},
    {"{\"instruction\": \"a\", \"output\": \"b\"}", "alpaca", ALPACA},
    {"{\"prompt\": \"a\", \"completion\": \"b\"}", "prompt_completion", "Hi"},
};
enum { FORMS = sizeof forms / sizeof *forms };

START_TEST(a_prompt_has_the_form_of_the_rows) {
    make("full", "");
    file_write(in_dir(dir, "rows.jsonl"), textf("%s\n%s\n", forms[_i].row, forms[_i].row));
    TRAIN(textf("datasets=[{path: rows.jsonl, format: %s}]", forms[_i].format),
          "chat_template=chatml", "max_seq_length=256", "max_steps=1", "sample_prompts=[Hi]");
    json_t *log = joblog_read(in_dir(dir, "out"));
    ck_assert_uint_eq(joblog_count(log, "sample"), 1);
    const double n = joblog_number(joblog_event(log, "sample", 0), "prompt_tokens");
    ck_assert_msg(n == (double)strlen(forms[_i].prompt), "%g tokens", n);
    json_decref(log);
}
END_TEST

/* A path of the job is looked for from its own directory. */
START_TEST(the_template_of_a_file_beside_the_job_is_used) {
    make("full", "chat_template: own.jinja\nsample_prompts: [Hi]\n");
    file_write(in_dir(dir, "own.jinja"),
               "{% for m in messages %}{{ m['role'] }}:{{ m['content'] }};{% endfor %}");
    file_write(in_dir(dir, "train.jsonl"), textf("%s\n", forms[1].row));
    struct outcome o = plimsoll_expect(
        0, "/",
        (const char *[]){"train", in_dir(dir, "run.yaml"),
                         textf("datasets=[{path: %s/train.jsonl, format: messages}]", dir),
                         textf("output_dir=%s/out", dir), "max_steps=1", NULL});
    outcome_finish(&o);
    json_t *log = joblog_read(in_dir(dir, "out"));
    const double n = joblog_number(joblog_event(log, "sample", 0), "prompt_tokens");
    ck_assert_msg(n == (double)strlen("user:Hi;"), "%g tokens", n);
    json_decref(log);
}
END_TEST

/* --- who is told ------------------------------------------------------------------------------ */

static void find_tags(const char *name, void *ctx) {
    static const char *const words[] = {"samples/1", "samples/2", "say it\n\n", "text"};
    size_t bytes;
    char *events = file_read(textf("%s/%s", (const char *)ctx, name), &bytes);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        ck_assert_msg(memmem(events, bytes, words[i], strlen(words[i])) != NULL, "no %s", words[i]);
    free(events);
}

START_TEST(notes_and_board_tell_every_answer) {
    char board[SCRATCH_PATH + 16];
    make("full", "report_to: tensorboard\n");
    struct outcome o =
        plimsoll_expect(0, dir, (const char *[]){"train", "run.yaml", SAMPLED, NULL});
    ck_assert_msg(strstr(o.err, "\nsample 1 at step 2: ") &&
                      strstr(o.err, "\nsample 2 at step 6: "),
                  "%s", o.err);
    outcome_finish(&o);
    snprintf(board, sizeof board, "%s/out/runs", dir);
    ck_assert_uint_eq(dir_each(board, find_tags, board), 1);
}
END_TEST

/* --- refusals, before a device is opened ------------------------------------------------------ */

static const char *const refused[][2] = {
    {"sample_prompts=[a prompt of more bytes than fit]",
     "prompt 1 of `sample_prompts` has 31 tokens, and `max_seq_length` is 24"},
    {"sample_prompts=[ok, \"\"]", "`sample_prompts` holds an empty text"},
};
enum { REFUSED = sizeof refused / sizeof *refused };

START_TEST(a_prompt_without_room_for_an_answer_is_refused) {
    make("full", "");
    struct outcome o = plimsoll_train(dir, (const char *[]){refused[_i][0], NULL});
    ck_assert_int_ne(o.status, 0);
    ck_assert_msg(strstr(o.err, refused[_i][1]) != NULL, "%s", o.err);
    outcome_finish(&o);
}
END_TEST

int main(void) {
    Suite *s = suite_create("train.sample_prompts");
    TCase *bits = tcase_create("bits"), *t = tcase_create("answers");
    TCase *const all[] = {bits, t};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        tcase_set_timeout(all[i], 0);
        tcase_add_checked_fixture(all[i], set_up, tear_down);
        suite_add_tcase(s, all[i]);
    }
    tcase_add_loop_test(bits, samples_change_no_bit_of_what_is_trained, 0, KINDS);
    tcase_add_test(bits, a_halved_micro_batch_answers_as_well);
    tcase_add_test(t, a_resumed_run_may_ask_other_prompts);
    tcase_add_test(t, the_last_samples_are_what_the_saved_model_generates);
    tcase_add_test(t, drawn_samples_follow_the_seed);
    tcase_add_loop_test(t, a_prompt_has_the_form_of_the_rows, 0, FORMS);
    tcase_add_test(t, the_template_of_a_file_beside_the_job_is_used);
    tcase_add_test(t, notes_and_board_tell_every_answer);
    tcase_add_loop_test(t, a_prompt_without_room_for_an_answer_is_refused, 0, REFUSED);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_ENV);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? 1 : 0;
}
