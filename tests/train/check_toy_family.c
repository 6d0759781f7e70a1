/* check_toy_family.c - that an enumerator and a row of families.c are all that a family needs whose
 * steps are known: the binary under test has one of its own (toy_family.h), and no other file knows
 * of it. GOLDEN_CASES as in check_golden.c. */
#include "tests/support/child.h"
#include "tests/support/scratch.h"
#include "tests/support/tensorset.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

static char dir[SCRATCH_PATH], toy[SCRATCH_PATH + 16];
static const char *source;

/* The model of the case under the toy's name. */
static void setup(void) {
    static char path[SCRATCH_PATH];
    static const char name[] = "\"gemma3_text\"";
    ck_assert_ptr_nonnull(getenv("GOLDEN_CASES"));
    snprintf(path, sizeof path, "%s/gemma3-lora", getenv("GOLDEN_CASES"));
    source = path;
    scratch_make(dir);
    snprintf(toy, sizeof toy, "%s/toy", dir);
    scratch_copy(in_dir(source, "model"), toy);
    char *text = file_read(in_dir(toy, "config.json"), NULL), *at = strstr(text, name);
    ck_assert_ptr_nonnull(at);
    ck_assert_ptr_null(strstr(at + 1, name));
    file_write(in_dir(toy, "config.json"),
               textf("%.*s\"toy_text\"%s", (int)(at - text), text, at + strlen(name)));
    free(text);
}

static void teardown(void) {
    scratch_remove(dir);
}

static void expect(int status, const char *const words[], const char *text) {
    struct outcome o = plimsoll_expect(status, source, words);
    ck_assert_msg(!text || strstr(o.out, text) || strstr(o.err, text), "%s%s: no `%s`", o.out,
                  o.err, text ? text : "");
    outcome_finish(&o);
}

START_TEST(it_trains_as_what_it_is_made_of) {
    expect(0, (const char *[]){"train", "run.yaml", "--output_dir", textf("%s/real", dir), NULL},
           NULL);
    expect(0,
           (const char *[]){"train", "run.yaml", textf("model=%s", toy), "--output_dir",
                            textf("%s/out", dir), NULL},
           "toy_text");
    char a[SCRATCH_PATH + 8], b[SCRATCH_PATH + 8];
    snprintf(a, sizeof a, "%s/real", dir);
    snprintf(b, sizeof b, "%s/out", dir);
    weights_assert_same(a, b, "adapter_model");
}
END_TEST

START_TEST(estimates_and_refusals_know_its_name) {
    expect(0, (const char *[]){"estimate-vram", textf("%s/config.json", toy), NULL}, "toy_text");
    file_write(in_dir(dir, "config.json"), "{\"model_type\": \"toy_test\"}");
    expect(3, (const char *[]){"estimate-vram", textf("%s/config.json", dir), NULL},
           "the nearest is `toy_text`");
}
END_TEST

int main(void) {
    Suite *s = suite_create("train.toy_family");
    TCase *tc = tcase_create("family");
    tcase_set_timeout(tc, 60);
    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_test(tc, it_trains_as_what_it_is_made_of);
    tcase_add_test(tc, estimates_and_refusals_know_its_name);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
