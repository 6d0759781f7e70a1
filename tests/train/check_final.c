/* check_final.c - what a run leaves in output_dir is of one save, wherever the process that writes
 * it is killed: the real binary, killed before every call that changes a file of its final save.
 * FAULT_SHIM names the preloaded library that kills (tests/support/fault_shim.h). */
#include "tests/support/child.h"
#include "tests/support/hang.h"
#include "tests/support/scratch.h"
#include "tests/support/tiny.h"

#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MOST_CALLS 400

static char dir[SCRATCH_PATH];

static void set_up(void) {
    /* A kill takes nothing from the kernel, so a disk would only make this slow. */
    if (access("/dev/shm", W_OK) == 0) setenv("TMPDIR", "/dev/shm", 1);
    scratch_make(dir);
}

static void tear_down(void) {
    scratch_remove(dir);
}

#define TRAIN_WELL(...) plimsoll_train_expect(0, dir, (const char *[]){__VA_ARGS__, NULL})

static const struct kind {
    const char *mode, *from;    /* FAULT_FROM */
    const char *old, *new;      /* the key in which the two runs differ */
    const char *const files[4]; /* files of the set, in the directory `in` */
    const char *in;
    const char *const generate[5]; /* that reads them */
} kinds[] = {
    {"full",
     "out/model.safetensors.tmp",
     "seed=1",
     "seed=2",
     {"model.safetensors", "config.json"},
     "out",
     {"--model", "out"}},
    {"lora",
     "out/adapter_model.safetensors.tmp",
     "lora_alpha=8",
     "lora_alpha=64",
     {"adapter_model.safetensors", "adapter_config.json"},
     "out",
     {"--model", "base", "--adapter", "out"}},
    {"lora",
     "merged/model.safetensors.tmp",
     "lora_alpha=8",
     "lora_alpha=64",
     {"model.safetensors", "config.json"},
     "out/merged",
     {"--model", "out/merged"}},
};
enum { N_KINDS = sizeof kinds / sizeof *kinds };

static const char *out_of(const char *where, const char *file) {
    return textf("%s/%s/%s", dir, where, file);
}

static bool is_set_of(const struct kind *k, const char *of) {
    bool same = true;
    for (int i = 0; k->files[i]; i++) {
        const char *made = out_of(k->in, k->files[i]);
        const char *reference = out_of(textf("%s%s", of, k->in + strlen("out")), k->files[i]);
        same = same && path_exists(made) && file_same(made, reference);
    }
    return same;
}

static void generate(const struct kind *k, const char *when) {
    const char *words[16] = {"generate", "--prompt-ids", "1,2,3", "--max-new-tokens",
                             "2",        "--device",     "cpu"};
    for (int i = 0; k->generate[i]; i++)
        words[7 + i] = k->generate[i];
    struct outcome o = plimsoll_run(dir, words);
    ck_assert_msg(o.status == 0, "%s: exit %d: %s", when, o.status, o.err);
    outcome_finish(&o);
}

/* The record of the run lists the files with their digests. */
static void verify(const char *when) {
    struct outcome o = plimsoll_run(dir, (const char *[]){"verify", "out", NULL});
    ck_assert_msg(o.status == 0, "%s: verify: exit %d: %s%s", when, o.status, o.out, o.err);
    outcome_finish(&o);
}

/* False: it came to its end before that call. */
static bool train_killed_at(const struct kind *k, int at) {
    const char *words[] = {"env",
                           textf("LD_PRELOAD=%s", getenv("FAULT_SHIM")),
                           "FAULT_CALLS=changes",
                           "FAULT_DO=kill",
                           textf("FAULT_FROM=%s", k->from),
                           textf("FAULT_AT=%d", at),
                           getenv("PLIMSOLL"),
                           "train",
                           "run.yaml",
                           "-q",
                           "output_dir=out",
                           "overwrite_output_dir=true",
                           k->new,
                           NULL};
    struct outcome o = child_run(words, dir, HANG_SECONDS);
    ck_assert_msg(o.status == 0 || o.status == 128 + SIGKILL, "call %d: exit %d: %s", at, o.status,
                  o.err);
    bool killed = o.status != 0;
    outcome_finish(&o);
    return killed;
}

static void make_runs(const struct kind *k) {
    const char *merged = strstr(k->in, "merged") ? "save_merged: true\n" : "";
    tiny_make(dir, &(struct tiny){.longest = 6}, "batch_size: 2\nmax_steps: 1\n");
    TRAIN_WELL("output_dir=base");
    if (strcmp(k->mode, "lora") == 0)
        tiny_make(
            dir, &(struct tiny){.mode = "lora", .longest = 6},
            textf("model: base\ninit: pretrained\nmodel_config: ~\nbatch_size: 2\nmax_steps: 1\n"
                  "resume: never\nsave_steps: 0\nlr_scheduler: constant\nlearning_rate: 0.01\n%s",
                  merged));
    else
        tiny_make(dir, &(struct tiny){.longest = 6},
                  "batch_size: 2\nmax_steps: 1\nresume: never\nsave_steps: 0\n");
    TRAIN_WELL("output_dir=old", k->old);
    TRAIN_WELL("output_dir=new", k->new);
}

/* _i: every kind, over the files of an earlier run and then into a new directory. */
START_TEST(a_kill_in_the_final_save_leaves_one_save) {
    const struct kind *k = &kinds[_i % N_KINDS];
    const bool over = _i < N_KINDS;
    int seen[2] = {0}, refused = 0;
    bool killed = true;
    make_runs(k);
    for (int at = 1; killed; at++) {
        ck_assert_int_lt(at, MOST_CALLS);
        scratch_remove(in_dir(dir, "out"));
        if (over) scratch_copy(textf("%s/old", dir), textf("%s/out", dir));
        killed = train_killed_at(k, at);
        if (!over && !path_exists(out_of(k->in, "plimsoll-save.journal")) &&
            !path_exists(out_of(k->in, k->files[0]))) {
            ck_assert(!path_exists(out_of(k->in, k->files[1])));
            refused++;
            continue;
        }
        generate(k, textf("call %d", at));
        verify(textf("call %d", at));
        bool old = is_set_of(k, "old"), new = is_set_of(k, "new");
        ck_assert_msg(old != new, "call %d: %s", at, old ? "both" : "neither");
        seen[new]++;
    }
    ck_assert_msg((over ? seen[0] : refused) > 10 && seen[1] > 5, "%d old, %d new, %d none",
                  seen[0], seen[1], refused);
}
END_TEST

int main(void) {
    Suite *s = suite_create("train.final");
    TCase *tc = tcase_create("kills");
    if (!getenv("FAULT_SHIM")) { /* a sanitizer's own library has to be the first */
        puts("skipped: needs a build without a sanitizer");
        return 77;
    }
    tcase_set_timeout(tc, 300);
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_loop_test(tc, a_kill_in_the_final_save_leaves_one_save, 0, 2 * N_KINDS);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
