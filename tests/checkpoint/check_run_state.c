/* check_run_state.c - what a checkpoint says of itself: damage is named, nothing unreadable counts
 * as absent, and the later of two runs is found. */
#include "estimator/config/job_text.h"
#include "runtime/checkpoint/adapter_io.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/checkpoint/run_state.h"
#include "tests/checkpoint/rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char dir[64];
static struct pl_diag diag;
static struct pl_job job;
static struct rig rig;
static const struct rig_options options = {
    .mode = PL_MODE_LORA, .dtype = PL_DTYPE_BF16, .adapter_dtype = PL_DTYPE_F32};

static void setup(void) {
    diag = (struct pl_diag){0};
    OK(pl_job_defaults(&job, &diag));
    dir_make(dir);
    ck_assert_int_eq(chmod(dir, 0755), 0);
    rig_open(&rig, &options);
    rig_scramble(&rig, 5);
}
static void teardown(void) {
    rig_close(&rig);
    pl_job_finish(&job);
    dir_remove(dir);
}

static struct pl_run_state state_of(uint64_t step, uint64_t run_number, const char *run_id) {
    struct pl_run_state s = {.step = step, .batch_size = 1, .run_number = run_number};
    snprintf(s.run_id, sizeof s.run_id, "%s", run_id);
    return s;
}

#define RUN_A "0123456789abcdef0123456789abcdef"
#define RUN_B "fedcba9876543210fedcba9876543210"

static void save(uint64_t step, uint64_t run_number, const char *run_id, uint32_t keep) {
    struct pl_checkpoint c;
    const struct pl_run_state s = state_of(step, run_number, run_id);
    OK(pl_checkpoint_begin(&c, dir, step, &diag));
    OK(pl_adapter_put(&rig.io, &c.outbox, &job, NULL, &diag));
    OK(pl_checkpoint_write_state(&c, &rig.io, &s, NULL, &diag));
    OK(pl_checkpoint_commit(&c, dir, (struct pl_rotation){keep, 0}, &diag));
    pl_checkpoint_abort(&c);
}

static const char *found(void) {
    static char name[64];
    char *path = NULL;
    OK(pl_checkpoint_find(dir, &path, NULL, &diag));
    snprintf(name, sizeof name, "%s", path ? path + strlen(dir) + 1 : "none");
    free(path);
    return name;
}

static void flip(const char *path, long at, int bit) {
    FILE *f = fopen(path, "r+b");
    ck_assert_ptr_nonnull(f);
    ck_assert_int_eq(fseek(f, at, SEEK_SET), 0);
    int c = fgetc(f);
    ck_assert_int_ne(c, EOF);
    ck_assert_int_eq(fseek(f, at, SEEK_SET), 0);
    ck_assert_int_ne(fputc(c ^ 1 << bit, f), EOF);
    ck_assert_int_eq(fclose(f), 0);
}

static long size_of(const char *path) {
    struct stat st;
    ck_assert_int_eq(stat(path, &st), 0);
    return (long)st.st_size;
}

/* --- damage ------------------------------------------------------------------------------------
 */

static const struct {
    const char *file;
    long stride; /* bytes from one flip to the next; prime, so that every bit of a word is met */
} saved[] = {
    {"adapter_config.json", 7},
    {"adapter_model.safetensors", 61},
    {"optimizer.safetensors", 127},
    {"trainer_state.json", 1},
};

/* R1 for the other files, and R2 for the state itself. */
START_TEST(any_flipped_bit_is_refused_by_the_name_of_its_file) {
    struct rig other;
    char path[160];
    save(8, 1, RUN_A, 1);
    rig_open(&other, &options);
    snprintf(path, sizeof path, "%s/checkpoint-8/%s", dir, saved[_i].file);
    const long bytes = size_of(path);
    ck_assert_int_gt(bytes, 0);
    for (long at = 0; at < bytes; at += saved[_i].stride) {
        const int bit = (int)(at % 8);
        struct pl_diag d = {0};
        flip(path, at, bit);
        pl_err err = pl_checkpoint_load(&other.io, in(dir, "checkpoint-8"), &d);
        ck_assert_msg(err == PL_ERR_CHECKPOINT_FORMAT, "bit %d of byte %ld: %s %s", bit, at,
                      pl_err_code(err), d.message);
        ck_assert_str_eq(d.file, path);
        flip(path, at, bit);
    }
    OK(pl_checkpoint_load(&other.io, in(dir, "checkpoint-8"), &diag));
    ck_assert(rig_same(&rig, &other, PL_ROLE_LORA_A));
    rig_close(&other);
}
END_TEST

START_TEST(files_that_are_missing_or_longer_are_refused) {
    save(8, 1, RUN_A, 1);
    FILE *f = fopen(in(dir, "checkpoint-8/optimizer.safetensors"), "ab");
    ck_assert_ptr_nonnull(f);
    fputc(0, f);
    ck_assert_int_eq(fclose(f), 0);
    FAILS(pl_checkpoint_load(&rig.io, in(dir, "checkpoint-8"), &diag), PL_ERR_CHECKPOINT_FORMAT,
          "optimizer.safetensors is damaged: it was saved with");
    ck_assert_int_eq(unlink(in(dir, "checkpoint-8/optimizer.safetensors")), 0);
    FAILS(pl_checkpoint_load(&rig.io, in(dir, "checkpoint-8"), &diag), PL_ERR_CHECKPOINT_FILE,
          "optimizer.safetensors: No such file");
}
END_TEST

/* --- versions ----------------------------------------------------------------------------------
 */

static const char earlier[] =
    "{\"plimsoll\":{\"step\":3,\"position\":6,\"batch_size\":2,\"global_batch\":2,\"tokens\":9,"
    "\"oom_recoveries\":0,\"seed\":1}}";

START_TEST(a_state_of_an_earlier_version_is_read_without_digests) {
    struct pl_run_record r;
    spill(in(dir, "trainer_state.json"), earlier, strlen(earlier));
    OK(pl_run_record_read(&r, dir, &diag));
    ck_assert_uint_eq(r.state.step, 3);
    ck_assert_uint_eq(r.state.run_number, 0);
    ck_assert_str_eq(r.state.run_id, "");
    ck_assert(!r.files && !r.job);
    pl_run_record_finish(&r);
}
END_TEST

static const struct {
    const char *fields, *says;
} strange[] = {
    {"\"format\":4", "is of format 4; this version reads up to 3"},
    {"\"format\":3", "some of what belongs to format 2 is missing"},
    {"\"format\":2", "some of what belongs to format 2 is missing"},
    {"\"run_id\":\"\"", "some of what belongs to format 2 is missing"},
    {"\"format\":2,\"run_id\":\"\",\"job\":{},\"files\":{},\"state_xxh64\":\"\"",
     "its digest is missing"},
    {"\"format\":2,\"run_id\":\"\",\"job\":{},\"files\":{},\"state_xxh64\": \"0000000000000000\"",
     "its text is not the one that its digest was made of"},
};

START_TEST(a_state_that_is_neither_of_both_versions_is_refused) {
    struct pl_run_record r;
    char text[1024];
    snprintf(text, sizeof text, "%.*s,%s}}", (int)strlen(earlier) - 2, earlier, strange[_i].fields);
    spill(in(dir, "trainer_state.json"), text, strlen(text));
    FAILS(pl_run_record_read(&r, dir, &diag), PL_ERR_CHECKPOINT_FORMAT, strange[_i].says);
    ck_assert(!r.files && !r.job);
}
END_TEST

/* --- what cannot be read -----------------------------------------------------------------------
 */

static void refuses(pl_err err, const char *says) {
    char *path = NULL;
    struct pl_diag d = {0};
    ck_assert_str_eq(pl_err_code(pl_checkpoint_find(dir, &path, NULL, &d)), pl_err_code(err));
    ck_assert_msg(strstr(d.message, says) || strstr(d.file, says), "`%s: %s` does not say `%s`",
                  d.file, d.message, says);
    ck_assert_msg(strstr(d.hint, "nothing was removed"), "%s", d.hint);
    ck_assert_ptr_null(path);
}

/* Whichever of the checkpoints it is: it may be the newer one. */
START_TEST(a_checkpoint_that_is_damaged_is_not_passed_over) {
    static const char *const texts[] = {"", "{\"global", "[]"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        save(4, 1, RUN_A, 9);
        save(6, 1, RUN_A, 9);
        const char *state =
            in(dir, _i ? "checkpoint-4/trainer_state.json" : "checkpoint-6/trainer_state.json");
        spill(state, texts[i], strlen(texts[i]));
        refuses(PL_ERR_CHECKPOINT_FORMAT, "trainer_state.json");
    }
}
END_TEST

/* The superuser may read everything, so somebody else looks. */
static void as_nobody(bool on) {
    if (getuid() == 0) ck_assert_int_eq(seteuid(on ? 65534 : 0), 0);
}

START_TEST(a_checkpoint_that_may_not_be_read_is_not_passed_over) {
    save(4, 1, RUN_A, 9);
    save(6, 1, RUN_A, 9);
    const char *hidden = in(dir, _i ? "checkpoint-6" : "checkpoint-6/trainer_state.json");
    ck_assert_int_eq(chmod(hidden, 0), 0);
    as_nobody(true);
    refuses(PL_ERR_CHECKPOINT_FILE, "trainer_state.json: Permission denied");
    as_nobody(false);
    ck_assert_int_eq(chmod(hidden, 0755), 0);
    ck_assert_str_eq(found(), "checkpoint-6");
}
END_TEST

START_TEST(what_a_removal_left_is_passed_over_with_a_note) {
    struct pl_text notes = {0};
    char *path = NULL;
    save(4, 1, RUN_A, 9);
    save(6, 1, RUN_A, 9);
    ck_assert_int_eq(unlink(in(dir, "checkpoint-6/trainer_state.json")), 0);
    OK(pl_checkpoint_find(dir, &path, &notes, &diag));
    ck_assert_str_eq(path, in(dir, "checkpoint-4"));
    ck_assert_ptr_nonnull(strstr(pl_text_str(&notes), "checkpoint-6 has no trainer_state.json"));
    pl_text_finish(&notes);
    free(path);
}
END_TEST

START_TEST(what_cannot_be_read_is_not_rotated_out) {
    save(4, 1, RUN_A, 9);
    save(6, 1, RUN_A, 9);
    spill(in(dir, "checkpoint-4/trainer_state.json"), "", 0);
    spill(in(dir, "checkpoint-6/trainer_state.json"), "", 0);
    save(5, 1, RUN_A, 1);
    ck_assert(exists(in(dir, "checkpoint-4")) && exists(in(dir, "checkpoint-6")));
}
END_TEST

/* --- runs --------------------------------------------------------------------------------------
 */

START_TEST(the_later_run_is_found_whatever_its_step) {
    save(2, 0, "", 9);
    save(4, 0, "", 9);
    ck_assert_str_eq(found(), "checkpoint-4");
    save(6, 1, RUN_A, 9);
    ck_assert_str_eq(found(), "checkpoint-6");
    ck_assert_int_eq(rename(in(dir, "checkpoint-6"), in(dir, "later")), 0);
    save(1, 2, RUN_B, 9);
    ck_assert_int_eq(rename(in(dir, "later"), in(dir, "checkpoint-6")), 0);
    ck_assert_str_eq(found(), "checkpoint-1");
}
END_TEST

START_TEST(two_runs_of_one_number_are_not_chosen_between) {
    char *path = NULL;
    save(4, 1, RUN_A, 9);
    save(6, 1, RUN_B, 9);
    FAILS(pl_checkpoint_find(dir, &path, NULL, &diag), PL_ERR_CHECKPOINT_MISMATCH,
          "are of two runs");
    ck_assert_ptr_null(path);
    save(7, 2, RUN_B, 9);
    ck_assert_str_eq(found(), "checkpoint-7");
}
END_TEST

int main(void) {
    Suite *s = suite_create("checkpoint.run_state");
    TCase *t = tcase_create("run_state");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, any_flipped_bit_is_refused_by_the_name_of_its_file, 0,
                        sizeof saved / sizeof *saved);
    tcase_add_test(t, files_that_are_missing_or_longer_are_refused);
    tcase_add_test(t, a_state_of_an_earlier_version_is_read_without_digests);
    tcase_add_loop_test(t, a_state_that_is_neither_of_both_versions_is_refused, 0,
                        sizeof strange / sizeof *strange);
    tcase_add_loop_test(t, a_checkpoint_that_is_damaged_is_not_passed_over, 0, 2);
    tcase_add_loop_test(t, a_checkpoint_that_may_not_be_read_is_not_passed_over, 0, 2);
    tcase_add_test(t, what_a_removal_left_is_passed_over_with_a_note);
    tcase_add_test(t, what_cannot_be_read_is_not_rotated_out);
    tcase_add_test(t, the_later_run_is_found_whatever_its_step);
    tcase_add_test(t, two_runs_of_one_number_are_not_chosen_between);
    suite_add_tcase(s, t);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
