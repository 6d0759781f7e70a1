/* toy_runs.c - see toy_runs.h. */
#include "tests/support/toy_runs.h"

#include "tests/support/child.h"
#include "tests/support/scratch.h"
#include "tests/support/tensorset.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

static char dir[SCRATCH_PATH], source[SCRATCH_PATH], toy[SCRATCH_PATH + 16];

static void replace(const char *path, const char *old, const char *with) {
    char *text = file_read(path, NULL), *at = strstr(text, old);
    ck_assert_msg(at && !strstr(at + 1, old), "%s", old);
    file_write(path, textf("%.*s%s%s", (int)(at - text), text, with, at + strlen(old)));
    free(text);
}

void toy_begin(const char *const pairs[]) {
    ck_assert_ptr_nonnull(getenv("GOLDEN_CASES"));
    snprintf(source, sizeof source, "%s/llama-full", getenv("GOLDEN_CASES"));
    scratch_make(dir);
    snprintf(toy, sizeof toy, "%s/toy", dir);
    scratch_copy(in_dir(source, "model"), toy);
    char path[SCRATCH_PATH + 32];
    snprintf(path, sizeof path, "%s/config.json", toy);
    for (; *pairs; pairs += 2)
        replace(path, pairs[0], pairs[1]);
}

void toy_end(void) {
    scratch_remove(dir);
}

const char *toy_dir(void) {
    return dir;
}
const char *toy_case(void) {
    return source;
}
const char *toy_model(void) {
    return toy;
}

static void train(const struct toy_run *run, const char *model, const char *out) {
    const char *const words[] = {"train",
                                 "run.yaml",
                                 textf("model=%s", model),
                                 textf("mode=%s", run->mode),
                                 textf("device=%s", run->device),
                                 textf("gradient_checkpointing=%s", run->level),
                                 textf("output_dir=%s", out),
                                 NULL};
    struct outcome o = plimsoll_expect(0, source, words);
    outcome_finish(&o);
}

void toy_compare(const struct toy_run *run) {
    char a[SCRATCH_PATH + 8], b[SCRATCH_PATH + 8];
    snprintf(a, sizeof a, "%s/real", dir);
    snprintf(b, sizeof b, "%s/out", dir);
    train(run, in_dir(source, "model"), a);
    train(run, toy, b);
    weights_assert_same(a, b, strcmp(run->mode, "full") == 0 ? "model" : "adapter_model");
}
