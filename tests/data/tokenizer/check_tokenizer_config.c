/* check_tokenizer_config.c - tokens that only other files than tokenizer.json name, as transformers
 * 5.23 adds them (config_cases.jsonl), and directories without tokenizer.json. TOKENIZER_CASES
 * names the directory of the tokenizers. */
#include "tests/data/tokenizer/bench.h"
#include "tests/support/scratch.h"

#include <jansson.h>
#include <unistd.h>

static char dir[SCRATCH_PATH];

static void set_up(void) {
    scratch_make(dir);
}

static void tear_down(void) {
    scratch_remove(dir);
}

static const char *at_cases(const char *name) {
    const char *cases = getenv("TOKENIZER_CASES");
    ck_assert_ptr_nonnull(cases);
    return in_dir(cases, name);
}

static void link_tokenizer(void) {
    char *target = strdup(at_cases("qwen2_style/tokenizer.json"));
    ck_assert_ptr_nonnull(target);
    (void)unlink(in_dir(dir, "tokenizer.json"));
    ck_assert_int_eq(symlink(target, in_dir(dir, "tokenizer.json")), 0);
    free(target);
}

static void write_config(const json_t *row) {
    static const char *const files[] = {"tokenizer_config.json", "special_tokens_map.json",
                                        "added_tokens.json"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        const json_t *v = json_object_get(row, files[i]);
        (void)unlink(in_dir(dir, files[i]));
        char *text = v ? json_dumps(v, JSON_COMPACT) : NULL;
        if (text) file_write(in_dir(dir, files[i]), text);
        free(text);
    }
}

static void compare_ids(struct bench *b, const json_t *row) {
    const char *name = json_string_value(json_object_get(row, "name"));
    const json_t *texts = json_object_get(row, "texts");
    for (size_t i = 0; i < json_array_size(texts); i++) {
        const json_t *text = json_array_get(texts, i);
        const json_t *ids = json_array_get(json_object_get(row, "ids"), i);
        bench_encode(b, json_string_value(text), json_string_length(text), true);
        ck_assert_msg(b->list.n == json_array_size(ids), "%s, text %zu: %llu ids, not %zu", name, i,
                      (unsigned long long)b->list.n, json_array_size(ids));
        for (size_t k = 0; k < b->list.n; k++)
            ck_assert_msg(b->list.ids[k] == json_integer_value(json_array_get(ids, k)),
                          "%s, text %zu: id %zu is %d", name, i, k, b->list.ids[k]);
    }
}

/* C1 of tokenizer_config.h and O3 of tokenizer_parts.h */
START_TEST(tokens_are_added_as_transformers_adds_them) {
    FILE *f = fopen(at_cases("config_cases.jsonl"), "r");
    char *line = NULL;
    size_t cap = 0, n = 0;
    ck_assert_ptr_nonnull(f);
    link_tokenizer();
    while (getline(&line, &cap, f) > 0) {
        struct bench b;
        json_t *row = json_loads(line, 0, NULL);
        ck_assert_ptr_nonnull(row);
        write_config(row);
        bench_open(&b, dir);
        compare_ids(&b, row);
        bench_close(&b);
        json_decref(row);
        n++;
    }
    ck_assert_uint_ge(n, 30);
    free(line);
    fclose(f);
}
END_TEST

static void note_of(const char *config, const char *says) {
    struct bench b;
    link_tokenizer();
    file_write(in_dir(dir, "tokenizer_config.json"), config);
    bench_open(&b, dir);
    const char *notes = pl_tokenizer_notes(b.t);
    ck_assert_msg(says ? strstr(notes, says) != NULL : !notes[0], "%s", notes);
    ck_assert_uint_eq(pl_tokenizer_file_size(b.t), 2014);
    bench_close(&b);
}

START_TEST(what_is_added_is_noted) {
    note_of("{\"eos_token\": \"<|im_end|>\", \"tokenizer_class\": \"PreTrainedTokenizerFast\"}",
            NULL);
    note_of("{\"pad_token\": \"NEWTOK\"}",
            "adds 1 token that tokenizer.json lacks: `NEWTOK`, id 2014");
    note_of("{\"extra_special_tokens\": [\"A1\", \"A2\"]}", "adds 2 tokens");
    note_of("{\"added_tokens_decoder\": {\"2020\": {\"content\": \"NEWTOK\"}}}",
            "another id than transformers does, which is used: `NEWTOK` has id 2014");
    note_of("{\"tokenizer_class\": \"LlamaTokenizerFast\"}", "rebuilds the class");
}
END_TEST

static void refused(const char *config, const char *says) {
    struct pl_tokenizer *t;
    struct pl_diag d = {0};
    link_tokenizer();
    file_write(in_dir(dir, "tokenizer_config.json"), config);
    ck_assert_int_eq(pl_tokenizer_open(dir, &t, &d), PL_ERR_TOKENIZER_FIELD);
    ck_assert_msg(strstr(d.message, says) != NULL, "%s", d.message);
    ck_assert_msg(strstr(d.file, "tokenizer_config.json") != NULL, "%s", d.file);
}

START_TEST(damaged_tokens_are_refused_by_name) {
    refused("{\"added_tokens_decoder\": []}", "added_tokens_decoder");
    refused("{\"added_tokens_decoder\": {\"x\": {\"content\": \"A\"}}}", "the id `x`");
    refused("{\"added_tokens_decoder\": {\"1e9\": {\"content\": \"A\"}}}", "the id `1e9`");
    refused("{\"added_tokens_decoder\": {\"99999999999999999999\": {\"content\": \"A\"}}}",
            "the id");
    refused("{\"added_tokens_decoder\": {\"7\": {}}}", "content");
    refused("{\"added_tokens_decoder\": {\"7\": {\"content\": \"A\", \"lstrip\": 3}}}", "lstrip");
    refused("{\"pad_token\": 7}", "pad_token");
    refused("[]", "no JSON object");
}
END_TEST

static const struct {
    const char *files[2], *message, *hint;
} without[] = {
    {{"tokenizer.model"}, "has tokenizer.model, but no tokenizer.json", "save_pretrained"},
    {{"vocab.json", "merges.txt"}, "has vocab.json and merges.txt, but", "save_pretrained"},
    {{"qwen.tiktoken"}, "has qwen.tiktoken, but", "save_pretrained"},
    {{"own.tiktoken"}, "has own.tiktoken, but", "save_pretrained"},
    {{"vocab.txt"}, "has vocab.txt, but", "save_pretrained"},
    {{"vocab.json"}, "has no tokenizer.json", "copy the files"},
    {{NULL}, "has no tokenizer.json", "copy the files"},
};

START_TEST(a_directory_without_tokenizer_json_says_what_converts_it) {
    struct pl_tokenizer *t;
    struct pl_diag d = {0};
    for (size_t i = 0; i < 2 && without[_i].files[i]; i++)
        file_write(in_dir(dir, without[_i].files[i]), "x");
    ck_assert_int_eq(pl_tokenizer_open(dir, &t, &d), PL_ERR_TOKENIZER_FILE);
    ck_assert_msg(strstr(d.message, without[_i].message) != NULL, "%s", d.message);
    ck_assert_msg(strstr(pl_diag_hint_text(&d), without[_i].hint) != NULL, "%s", d.hint);
}
END_TEST

int main(void) {
    Suite *s = suite_create("tokenizer_config");
    TCase *c = tcase_create("tokenizer_config");
    tcase_add_checked_fixture(c, set_up, tear_down);
    tcase_set_timeout(c, 60);
    tcase_add_test(c, tokens_are_added_as_transformers_adds_them);
    tcase_add_test(c, what_is_added_is_noted);
    tcase_add_test(c, damaged_tokens_are_refused_by_name);
    tcase_add_loop_test(c, a_directory_without_tokenizer_json_says_what_converts_it, 0,
                        (int)(sizeof without / sizeof *without));
    suite_add_tcase(s, c);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
