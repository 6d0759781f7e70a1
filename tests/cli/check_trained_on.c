/* check_trained_on.c - the examples of docs/trained-on.md are what the binary prints.
 *
 * An example is fences in this order: jsonl (rows.jsonl), perhaps jinja (chat.jinja), yaml (lines
 * of the job), text (what is printed). PLIMSOLL names the binary, TRAINED_ON the page, TOKENIZER
 * the tokenizer. With TRAINED_ON_OUT set the page of today is written there. */
#include "estimator/base/text.h"
#include "tests/support/child.h"
#include "tests/support/scratch.h"
#include "tests/support/tiny.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

static char dir[SCRATCH_PATH];

static void set_up(void) {
    scratch_make(dir);
    ck_assert_int_eq(setenv("NO_COLOR", "1", 1), 0);
    tiny_make(dir, &(struct tiny){.vocab = 2048}, "");
}

static void tear_down(void) {
    scratch_remove(dir);
}

/* malloc'd: the content of the next fence of a kind, if one begins before `end`; else NULL. */
static char *fence(const char *page, const char *end, const char *kind) {
    const char *open = strstr(page, textf("\n```%s\n", kind));
    if (!open || open >= end) return NULL;
    const char *content = strchr(open + 1, '\n') + 1;
    const char *close = strstr(content - 1, "\n```\n");
    ck_assert_ptr_nonnull(close);
    return strndup(content, (size_t)(close + 1 - content));
}

/* Writes a fence as a file of the example, after `head`. */
static void put_file(const char *page, const char *end, const char *kind, const char *name,
                     const char *head) {
    char *content = fence(page, end, kind);
    struct pl_text file = {0};
    if (!content) return;
    pl_text_add(&file, head);
    pl_text_add(&file, content);
    file_write(in_dir(dir, name), pl_text_str(&file));
    pl_text_finish(&file);
    free(content);
}

/* [page, end): an example, up to its text fence. */
static void add_output(const char *page, const char *end, struct pl_text *out) {
    char *yaml = fence(page, end, "yaml");
    ck_assert_ptr_nonnull(yaml);
    const char *longest = strstr(yaml, "max_seq_length") ? "" : "max_seq_length: 48\n";
    put_file(page, end, "jsonl", "rows.jsonl", "");
    put_file(page, end, "jinja", "chat.jinja", "");
    put_file(page, end, "yaml", "job.yaml",
             textf("model_config: config.json\ninit: random\nmode: full\ndevice: cpu\n"
                   "tokenizer: %s\ndataset_cache: off\n%s",
                   getenv("TOKENIZER"), longest));
    struct outcome o =
        plimsoll_run(dir, (const char *[]){"tokenize", "job.yaml", "--show", "3", NULL});
    pl_text_add(out, o.out);
    pl_text_add(out, o.err);
    outcome_finish(&o);
    free(yaml);
}

START_TEST(the_page_prints_what_the_binary_prints) {
    static const char begin[] = "\n```jsonl\n", text[] = "\n```text\n";
    const char *path = getenv("TRAINED_ON"), *written = getenv("TRAINED_ON_OUT");
    char *page = file_read(path, NULL), *at = page;
    struct pl_text today = {0};
    int n = 0;
    for (char *example; (example = strstr(at, begin)); n++) {
        char *end = strstr(example, text);
        ck_assert_ptr_nonnull(end);
        pl_text_addn(&today, at, (size_t)(end + strlen(text) - at));
        add_output(example, end, &today);
        at = strstr(end + strlen(text) - 1, "\n```\n") + 1;
    }
    pl_text_add(&today, at);
    ck_assert_int_ge(n, 12);
    if (written) file_write(written, pl_text_str(&today));
    if (!written) ck_assert_str_eq(pl_text_str(&today), page);
    pl_text_finish(&today);
    free(page);
}
END_TEST

int main(void) {
    Suite *s = suite_create("cli.trained_on");
    TCase *tc = tcase_create("page");
    tcase_set_timeout(tc, 120);
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_test(tc, the_page_prints_what_the_binary_prints);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
