/* check_generate.c - greedy decoding against that of transformers from the same files.
 *
 * GOLDEN_CASES names the directory of the cases: those with a continued.json hold prompts and the
 * ids that follow (continue.py); PLIMSOLL_GOLDEN_DIR, when set, a directory whose generate/ holds
 * more, as model/ and expected.json. GOLDEN_DEVICE, when set: a device other than the CPU. Ids are
 * compared exactly: where the two likeliest tokens are near each other, the files say how near. */
#include "tests/support/child.h"
#include "tests/support/scratch.h"

#include <check.h>
#include <glob.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_FILES 64
#define IDS_TEXT  4096

static char *files[MAX_FILES];
static int n_files;

static void join_ids(const json_t *ids, char out[IDS_TEXT]) {
    size_t i, len = 0;
    const json_t *id;
    out[0] = 0;
    json_array_foreach(ids, i, id) len += (size_t)snprintf(
        out + len, IDS_TEXT - len, "%s%lld", i ? "," : "", (long long)json_integer_value(id));
    ck_assert_uint_lt(len, IDS_TEXT);
}

static json_t *load_json(const char *path) {
    json_error_t error;
    json_t *root = json_load_file(path, 0, &error);
    ck_assert_msg(root != NULL, "%s: %s", path, error.text);
    return root;
}

/* `generate` in the directory of the file; the ids as text. */
static void decode(const char *dir, const char *prompt, size_t n, char out[IDS_TEXT]) {
    const char *device = getenv("GOLDEN_DEVICE") ? getenv("GOLDEN_DEVICE") : "cpu";
    const char *words[24] = {"generate",
                             "--model",
                             "model",
                             "--json",
                             "--greedy",
                             "--dtype",
                             "fp32",
                             "--prompt-ids",
                             prompt,
                             "--threads",
                             "2",
                             "--device",
                             device,
                             "--ignore-eos",
                             "--max-new-tokens",
                             textf("%zu", n)};
    if (path_exists(in_dir(dir, "adapter"))) {
        words[16] = "--adapter";
        words[17] = "adapter";
    }
    struct outcome o = plimsoll_expect(0, dir, words);
    json_t *answer = json_loads(o.out, 0, NULL);
    ck_assert_msg(answer != NULL, "%s", o.out);
    ck_assert_int_eq(json_integer_value(json_object_get(answer, "planned_bytes")),
                     json_integer_value(json_object_get(answer, "allocated_bytes")));
    join_ids(json_object_get(answer, "ids"), out);
    json_decref(answer);
    outcome_finish(&o);
}

START_TEST(greedy_ids_are_those_of_transformers) {
    char dir[SCRATCH_PATH], prompt[IDS_TEXT], want[IDS_TEXT], got[IDS_TEXT];
    snprintf(dir, sizeof dir, "%.*s", (int)(strrchr(files[_i], '/') - files[_i]), files[_i]);
    json_t *root = load_json(files[_i]), *row;
    size_t i;
    ck_assert_uint_gt(json_array_size(json_object_get(root, "prompts")), 0);
    json_array_foreach(json_object_get(root, "prompts"), i, row) {
        const json_t *ids = json_object_get(row, "output_ids");
        join_ids(json_object_get(row, "prompt_ids"), prompt);
        join_ids(ids, want);
        decode(dir, prompt, json_array_size(ids), got);
        ck_assert_msg(
            strcmp(want, got) == 0, "%s, prompt %zu (smallest lead %g):\n  %s\n  %s", files[_i], i,
            json_number_value(json_object_get(row, "smallest_top2_logit_gap")), want, got);
    }
    json_decref(root);
}
END_TEST

static void find_files(const char *pattern) {
    glob_t g;
    if (glob(pattern, 0, NULL, &g) != 0) return;
    for (size_t i = 0; i < g.gl_pathc && n_files < MAX_FILES; i++)
        files[n_files++] = strdup(g.gl_pathv[i]);
    globfree(&g);
}

int main(void) {
    char pattern[SCRATCH_PATH];
    const char *cases = getenv("GOLDEN_CASES"), *more = getenv("PLIMSOLL_GOLDEN_DIR");
    if (!cases) {
        puts("skipped: needs GOLDEN_CASES, a directory of recorded runs");
        return 77;
    }
    snprintf(pattern, sizeof pattern, "%s/*/continued.json", cases);
    find_files(pattern);
    if (more) {
        snprintf(pattern, sizeof pattern, "%s/generate/*/expected.json", more);
        find_files(pattern);
    }
    if (!n_files) return 1;
    Suite *s = suite_create("golden.generate");
    TCase *tc = tcase_create("cases");
    tcase_set_timeout(tc, 120);
    tcase_add_loop_test(tc, greedy_ids_are_those_of_transformers, 0, n_files);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    for (int i = 0; i < n_files; i++)
        free(files[i]);
    return failed != 0;
}
