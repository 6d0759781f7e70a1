/* check_binary.c - damaged files through the real program: it ends by itself, soon, with a status
 * of the contract, a failure has its code and its sentence, and memory stays small. PLIMSOLL names
 * the binary. */
#include "estimator/base/errors.h"
#include "tests/fuzz/mutate.h"
#include "tests/support/child.h"
#include "tests/support/scratch.h"
#include "tests/support/tiny.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CAP       131072
#define MUTATIONS 40 /* mutations of each row; PLIMSOLL_FUZZ_RUNS replaces it */
#define MOST_MIB  512

static const struct {
    const char *file; /* that is damaged, below the directory of a finished run */
    const char *words[6];
} rows[] = {
    {"run.yaml", {"validate", "run.yaml"}},
    {"run.yaml", {"estimate-vram", "run.yaml", "--json"}},
    {"run.yaml", {"train", "run.yaml", "--dry-run"}},
    {"config.json", {"validate", "run.yaml"}},
    {"config.json", {"estimate-vram", ".", "--vram", "1GiB"}},
    {"config.json", {"inspect", "--program", ".", "--batch-size", "1"}},
    {"train.jsonl", {"validate", "run.yaml"}},
    {"out/model.safetensors", {"validate", "weights.yaml"}},
    {"out/config.json", {"validate", "weights.yaml"}},
    {"out/checkpoint-1/trainer_state.json", {"validate", "again.yaml"}},
};

static char dir[SCRATCH_PATH];

/* run.yaml is what a run starts from, again.yaml resumes it, weights.yaml continues with its
 * result. */
static void set_up(void) {
    scratch_make(dir);
    tiny_make(dir, &(struct tiny){.rows = 6, .hidden = 8, .layers = 1, .ffn = 8},
              "max_steps: 1\nbatch_size: 2\nsave_steps: 1\n");
    size_t n;
    char *yaml = file_read(in_dir(dir, "run.yaml"), &n);
    file_write(in_dir(dir, "again.yaml"), yaml);
    free(yaml);
    file_write(in_dir(dir, "weights.yaml"),
               "model: out\nmode: lora\ndtype: fp32\nmax_seq_length: 16\nbatch_size: 1\n"
               "datasets:\n  - {path: train.jsonl, format: tokens}\noutput_dir: next\n"
               "device: cpu\nthreads: 2\n");
    struct outcome trained =
        plimsoll_expect(0, dir, (const char *[]){"train", "run.yaml", "--quiet", NULL});
    outcome_finish(&trained);
    /* a run that is done would be resumed by the first of the three */
    yaml = file_read(in_dir(dir, "run.yaml"), &n);
    file_write(in_dir(dir, "run.yaml"), textf("%sresume: never\n", yaml));
    free(yaml);
}

static void tear_down(void) {
    scratch_remove(dir);
}

static void write_bytes(const char *path, const uint8_t *data, size_t n) {
    FILE *f = fopen(path, "wb");
    ck_assert_ptr_nonnull(f);
    ck_assert_uint_eq(fwrite(data, 1, n, f), n);
    ck_assert_int_eq(fclose(f), 0);
}

/* The code of the failure is one of the table, and it ends a program with this status. Only the
 * verdict of an estimate is no failure. */
static void check_failure(const struct outcome *p, const char *label) {
    static const char start[] = "plimsoll: error[";
    const char *at = strstr(p->err, start);
    if (!at) {
        ck_assert_msg(p->status == 3 && p->out[0], "%s: exit %d and no word: %s", label, p->status,
                      p->err);
        return;
    }
    ck_assert_msg(at == p->err || at[-1] == '\n', "%s: %s", label, p->err);
    at += strlen(start);
    size_t n = strcspn(at, "]");
    bool known = false;
    for (int e = PL_ERR_OK + 1; e < PL_ERR_COUNT; e++) {
        const char *code = pl_err_code((pl_err)e);
        if (strlen(code) != n || memcmp(code, at, n) != 0) continue;
        known = pl_err_exit_status((pl_err)e) == p->status ||
                (e == PL_ERR_MODEL_UNSUPPORTED && p->status == 3);
    }
    ck_assert_msg(known, "%s: exit %d: %s", label, p->status, p->err);
    ck_assert_msg(strlen(at + n) > 5, "%s: %s", label, p->err);
}

START_TEST(a_damaged_file_ends_in_an_answer) {
    static uint8_t data[CAP];
    size_t n;
    const struct fuzz_corpus none = {0};
    const char *path = in_dir(dir, rows[_i].file);
    char *good = file_read(path, &n), kept[512];
    snprintf(kept, sizeof kept, "%s", path);
    ck_assert_uint_lt(n, CAP);
    const char *more = getenv("PLIMSOLL_FUZZ_RUNS");
    uint64_t runs = more ? strtoull(more, NULL, 10) : MUTATIONS;
    for (uint64_t seed = 0; seed < runs; seed++) {
        memcpy(data, good, n);
        write_bytes(kept, data, fuzz_mutate(data, n, CAP, &none, 1000 * (uint64_t)_i + seed));
        struct outcome p = plimsoll_run(dir, rows[_i].words);
        const char *label = textf("%s %s, seed %d", rows[_i].file, rows[_i].words[0], (int)seed);
        bool contract = p.status == 0 || p.status == 2 || p.status == 3 || p.status == 5 ||
                        p.status == 6; /* a mutated `device` */
        ck_assert_msg(contract, "%s: exit %d: %s", label, p.status, p.err);
        ck_assert_msg(!p.timed_out, "%s: %g s", label, p.seconds);
        ck_assert_msg(p.peak_bytes < (uint64_t)MOST_MIB << 20, "%s: %llu bytes", label,
                      (unsigned long long)p.peak_bytes);
        if (p.status) check_failure(&p, label);
        outcome_finish(&p);
    }
    free(good);
}
END_TEST

int main(void) {
    Suite *s = suite_create("fuzz.binary");
    TCase *tc = tcase_create("binary");
    tcase_set_timeout(tc, 300);
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_loop_test(tc, a_damaged_file_ends_in_an_answer, 0, (int)(sizeof rows / sizeof *rows));
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
