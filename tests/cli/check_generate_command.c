/* check_generate_command.c - `plimsoll generate` through the binary: what it refuses, that the text
 * which streams is the text of the answer, what a signal leaves.
 * PLIMSOLL names the binary; runs in the repository root. */
#include "estimator/config/key_table.h"
#include "tests/support/child.h"
#include "tests/support/hang.h"
#include "tests/support/scratch.h"

#include <check.h>
#include <jansson.h>
#include <signal.h>
#include <string.h>

#define CONFIG "configs/quickstart-model"
#define RANDOM "generate", "--init", "random", "--model-config", CONFIG, "--threads", "2"

static json_t *answer(int status, const char *const words[]) {
    struct outcome o = plimsoll_expect(status, NULL, words);
    json_t *root = json_loads(o.out, 0, NULL);
    ck_assert_msg(root != NULL, "%s%s", o.out, o.err);
    outcome_finish(&o);
    return root;
}

static const struct {
    int status;
    const char *words[18];
    const char *says;
} refused[] = {
    {2, {"generate", "--json", "--prompt-ids", "1"}, "no model"},
    {2, {RANDOM, "--json"}, "nothing to continue"},
    {2, {RANDOM, "--json", "--prompt", "a", "--prompt-ids", "1"}, "not both"},
    {2, {RANDOM, "--json", "--prompt-ids", "1", "--chat"}, "--chat wants --prompt"},
    {2,
     {RANDOM, "--json", "--prompt", "a", "--tokenizer", "byte", "--chat-template", "chatml"},
     "--chat-template wants --chat"},
    {5, {RANDOM, "--json", "--prompt", "a", "--tokenizer", "byte", "--chat"}, "no chat template"},
    {2, {RANDOM, "--json", "--prompt", "a"}, "no tokenizer"},
    {2, {RANDOM, "--json", "--prompt-ids", "1,,2"}, "between commas"},
    {2, {RANDOM, "--json", "--prompt-ids", "1,x"}, "not `x`"},
    {2, {RANDOM, "--json", "--prompt-ids", "9999999"}, "the model knows 0 to"},
    {2,
     {RANDOM, "--json", "--prompt-ids", "1", "--greedy", "--top-k", "3"},
     "--greedy draws nothing"},
    {2, {RANDOM, "--json", "--prompt-ids", "1", "--top-p", "1.5"}, "from 0 to 1"},
    {2, {RANDOM, "--json", "--prompt-ids", "1", "--lora-r", "4"}, "`lora_r` has no meaning"},
    {2,
     {RANDOM, "--json", "--prompt-ids", "1", "--max-seq-length", "20"},
     "do not fit 20 positions"},
    {3, {RANDOM, "--json", "--prompt-ids", "1", "--vram", "1MiB"}, "vram_budget is 1.00 MiB"},
    {4,
     {RANDOM, "--json", "--prompt-ids", "1", "debug_inject=device_oom@alloc=1"},
     "job arena: asked for"},
    {4,
     {RANDOM, "--json", "--prompt-ids", "1", "debug_inject=device_oom@alloc=2"},
     "step 1: batch arena asked for"},
    {5,
     {"generate", "--json", "--model", "SmolLM2-135M", "--prompt-ids", "1"},
     "not on this machine"},
    {5,
     {"generate", "--json", "--model", "SmolLM2-135M", "--prompt", "a"},
     "the weights of `SmolLM2-135M` are not on this machine"},
};
#define N_REFUSED (int)(sizeof refused / sizeof *refused)

START_TEST(what_cannot_be_generated_is_refused_with_a_sentence) {
    json_t *root = answer(refused[_i].status, refused[_i].words);
    const char *message =
        json_string_value(json_object_get(json_object_get(root, "error"), "message"));
    ck_assert_msg(message && strstr(message, refused[_i].says), "%s", message);
    json_decref(root);
}
END_TEST

/* A1 of generate_args.h. The hint names the command's help, which lists every key that is not
 * refused so. */
START_TEST(the_help_lists_the_keys_that_have_a_meaning) {
    struct outcome help = plimsoll_expect(0, NULL, (const char *[]){"help", "generate", NULL});
    uint32_t n;
    const struct pl_key_info *keys = pl_key_table(&n);
    for (uint32_t i = 0; i < n; i++) {
        const bool listed = strstr(help.out, textf(" %s,", keys[i].key)) ||
                            strstr(help.out, textf("\n%s,", keys[i].key)) ||
                            strstr(help.out, textf(" %s.", keys[i].key));
        const char *value = keys[i].def[0] ? keys[i].def : "1";
        struct outcome o = plimsoll_run(
            NULL, (const char *[]){"generate", textf("%s=%s", keys[i].key, value), NULL});
        const bool is_refused = strstr(o.err, "has no meaning for `generate`");
        /* the value of some keys is refused before */
        if (strstr(o.err, "error[CONFIG_USAGE]"))
            ck_assert_msg(listed != is_refused, "%s: %s", keys[i].key, o.err);
        ck_assert_msg(!is_refused || strstr(o.err, "hint: run `plimsoll help generate`"), "%s",
                      o.err);
        outcome_finish(&o);
    }
    outcome_finish(&help);
}
END_TEST

/* A directory with the config.json of the quickstart and this generation_config.json; its first
 * greedy ids go to *ids. */
static struct outcome with_generation_config(char dir[SCRATCH_PATH], const char *text) {
    char *config = file_read(CONFIG "/config.json", NULL);
    file_write(in_dir(dir, "config.json"), config);
    file_write(in_dir(dir, "generation_config.json"), text);
    free(config);
    const char *const words[] = {"generate",         "--init",    "random", "--model-config", dir,
                                 "--json",           "--threads", "2",      "--prompt-ids",   "1,5",
                                 "--max-new-tokens", "3",         NULL};
    return plimsoll_expect(0, NULL, words);
}

static json_t *take_answer(struct outcome *o) {
    json_t *root = json_loads(o->out, 0, NULL);
    ck_assert_msg(root != NULL, "%s%s", o->out, o->err);
    return root;
}

/* G1 of generation_config.h: an answer ends where the file says, and without it where config.json
 * does. */
START_TEST(the_ends_of_generation_config_count) {
    char dir[SCRATCH_PATH];
    scratch_make(dir);
    struct outcome o = with_generation_config(dir, "{}");
    json_t *root = take_answer(&o);
    const json_t *ids = json_object_get(root, "ids");
    ck_assert_uint_eq(json_array_size(ids), 3);
    const long second = (long)json_integer_value(json_array_get(ids, 1));
    const bool repeats = second == json_integer_value(json_array_get(ids, 0));
    json_decref(root);
    outcome_finish(&o);
    const char *const forms[] = {textf("{\"eos_token_id\": %ld}", second),
                                 textf("{\"eos_token_id\": [0, %ld]}", second),
                                 textf("{\"eos_token_id\": [\"a\", null, %ld, 1.5]}", second)};
    for (size_t i = 0; i < 3; i++) {
        o = with_generation_config(dir, forms[i]);
        root = take_answer(&o);
        ck_assert_str_eq(json_string_value(json_object_get(root, "end")), "eos");
        ck_assert_uint_eq(json_array_size(json_object_get(root, "ids")), repeats ? 1 : 2);
        ck_assert_int_eq(strstr(o.err, "no id below") != NULL, i == 2);
        json_decref(root);
        outcome_finish(&o);
    }
    scratch_remove(dir);
}
END_TEST

static const struct {
    const char *text, *says;
} sampling_told[] = {
    {"{\"do_sample\": true}", "recommends --temperature 1 --top-k 50;"},
    {"{\"do_sample\": true, \"temperature\": 0.6, \"top_p\": 0.9, \"top_k\": 0}",
     "recommends --temperature 0.6 --top-p 0.9;"},
    {"{\"temperature\": 0.6, \"repetition_penalty\": 1.1}", "recommends --repetition-penalty 1.1;"},
    {"{\"do_sample\": true, \"temperature\": null, \"top_p\": \"x\"}",
     "recommends --temperature 1"},
    {"{\"do_sample\": null, \"eos_token_id\": null, \"temperature\": 2}", NULL},
    {"{\"eos_token_id\": -1}", "1 of `eos_token_id` is no id"},
    {"{\"eos_token_id\":", "is not used"},
    {"[]", "is not used"},
};

/* G2 of generation_config.h for sampling. G3 of generation_config.h: what cannot be read is told,
 * and an answer is given. */
START_TEST(the_sampling_of_generation_config_is_told) {
    char dir[SCRATCH_PATH];
    scratch_make(dir);
    struct outcome o = with_generation_config(dir, sampling_told[_i].text);
    const char *says = sampling_told[_i].says;
    ck_assert_msg(says ? strstr(o.err, says) != NULL : !strstr(o.err, "generation_config"), "%s",
                  o.err);
    outcome_finish(&o);
    scratch_remove(dir);
}
END_TEST

/* The bytes of a random model make broken and whole characters alike. */
START_TEST(the_text_that_streams_is_the_text_of_the_answer) {
    const char *seed = textf("%d", _i);
    const char *const words[] = {RANDOM, "--tokenizer",      "byte", "--prompt",
                                 "Name", "--max-new-tokens", "60",   "--temperature",
                                 "1.5",  "--seed",           seed,   NULL};
    const char *json_words[20];
    memcpy(json_words, words, sizeof words);
    json_words[sizeof words / sizeof *words - 1] = "--json";
    json_words[sizeof words / sizeof *words] = NULL;
    json_t *root = answer(0, json_words);
    struct outcome o = plimsoll_expect(0, NULL, words);
    size_t n = strlen(o.out);
    ck_assert_uint_gt(n, 1);
    ck_assert_int_eq(o.out[n - 1], '\n');
    o.out[n - 1] = 0;
    ck_assert_str_eq(o.out, json_string_value(json_object_get(root, "text")));
    ck_assert_int_eq(json_integer_value(json_object_get(root, "prompt_tokens")), 4);
    ck_assert_int_eq(json_integer_value(json_object_get(root, "planned_bytes")),
                     json_integer_value(json_object_get(root, "allocated_bytes")));
    outcome_finish(&o);
    json_decref(root);
}
END_TEST

/* <|im_start|>user\nName<|im_end|>\n<|im_start|>assistant\n, a byte a token. */
START_TEST(a_prompt_opens_a_conversation_by_the_named_template) {
    const char *const words[] = {RANDOM,
                                 "--tokenizer",
                                 "byte",
                                 "--prompt",
                                 "Name",
                                 "--chat",
                                 "--chat-template",
                                 "chatml",
                                 "--json",
                                 "--max-new-tokens",
                                 "1",
                                 NULL};
    json_t *root = answer(0, words);
    ck_assert_int_eq(json_integer_value(json_object_get(root, "prompt_tokens")), 17 + 4 + 11 + 22);
    json_decref(root);
}
END_TEST

START_TEST(a_signal_ends_the_answer_with_a_line) {
    const char *const words[] = {RANDOM,   "--prompt-ids", "1", "--max-new-tokens",
                                 "100000", "--ignore-eos", NULL};
    struct child c = plimsoll_start(NULL, words, true);
    char text[4096];
    ck_assert_uint_gt(fread(text, 1, 64, c.out), 0);
    kill(c.pid, SIGINT);
    size_t n, total = 0;
    while ((n = fread(text, 1, sizeof text, c.out)) > 0)
        total = n;
    ck_assert_uint_gt(total, 0);
    ck_assert_int_eq(text[total - 1], '\n');
    struct outcome o = child_wait(&c, HANG_SECONDS);
    ck_assert_int_eq(o.status, 130);
    ck_assert_ptr_nonnull(strstr(o.err, "stopped by a signal"));
    outcome_finish(&o);
}
END_TEST

int main(void) {
    Suite *s = suite_create("cli.generate_command");
    TCase *tc = tcase_create("binary");
    tcase_set_timeout(tc, 60);
    tcase_add_test(tc, the_ends_of_generation_config_count);
    tcase_add_loop_test(tc, the_sampling_of_generation_config_is_told, 0,
                        (int)(sizeof sampling_told / sizeof *sampling_told));
    tcase_add_loop_test(tc, what_cannot_be_generated_is_refused_with_a_sentence, 0, N_REFUSED);
    tcase_add_loop_test(tc, the_text_that_streams_is_the_text_of_the_answer, 0, 4);
    tcase_add_test(tc, the_help_lists_the_keys_that_have_a_meaning);
    tcase_add_test(tc, a_prompt_opens_a_conversation_by_the_named_template);
    tcase_add_test(tc, a_signal_ends_the_answer_with_a_line);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
