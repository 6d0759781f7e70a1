/* check_sim_offload.c - tensors in host memory with the emulated GPU: copies and kernels of the
 * device give the bits of a run that offloads nothing; updates by the host's kernels give the same
 * numbers; pinned memory that is refused is named. */
#include "tests/support/child.h"
#include "tests/support/joblog.h"
#include "tests/support/scratch.h"
#include "tests/support/tensorset.h"
#include "tests/support/tiny.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static char dir[SCRATCH_PATH];

static void set_up(void) {
    scratch_make(dir);
    ck_assert_int_eq(setenv("XDG_CACHE_HOME", dir, 1), 0);
}

static void tear_down(void) {
    scratch_remove(dir);
}

static void make(const char *mode, const char *more) {
    tiny_make(dir, &(struct tiny){.mode = mode},
              textf("device: cuda\nlearning_rate: 0.01\nmax_steps: 3\nbatch_size: 2\n"
                    "gradient_accumulation_steps: 2\n%s",
                    more));
}

#define TRAIN(...) plimsoll_train_expect(0, dir, (const char *[]){__VA_ARGS__, NULL})

static char *path_of(const char *name, char buf[SCRATCH_PATH + 64]) {
    snprintf(buf, SCRATCH_PATH + 64, "%s/%s", dir, name);
    return buf;
}

static void expect_books_closed(const char *out) {
    char path[SCRATCH_PATH + 64];
    double planned = joblog_summary(path_of(out, path), "planned_host_bytes");
    ck_assert(planned > 0);
    ck_assert(planned == joblog_summary(path, "allocated_host_bytes"));
    ck_assert(joblog_summary(path, "planned_peak_bytes") ==
              joblog_summary(path, "allocated_peak_bytes"));
}

static const struct {
    const char *mode, *more;
} jobs[] = {{"full", ""},
            {"full", "dtype: bf16\nmaster_weights: false\n"},
            {"lora", "dtype: bf16\nlora_dropout: 0.1\n"}};

static const char *const by_device[][3] = {
    {"offload=optimizer", "offload_update=device"},
    {"offload=gradients", "offload_update=device"},
    {"offload=weights", "offload_update=device"},
    {"gradient_checkpointing=offload"},
    {"gradient_checkpointing=offload:1+full"},
    {"gradient_checkpointing=offload:1+light", "offload=weights", "offload_update=device"},
};
enum { N_BY_DEVICE = sizeof by_device / sizeof *by_device };

START_TEST(what_the_device_computes_does_not_depend_on_where_it_is_kept) {
    char x[SCRATCH_PATH + 64], y[SCRATCH_PATH + 64];
    bool lora = strcmp(jobs[_i].mode, "lora") == 0;
    make(jobs[_i].mode, jobs[_i].more);
    TRAIN("output_dir=plain");
    for (size_t w = 0; w < N_BY_DEVICE; w++) {
        TRAIN(textf("output_dir=way%zu", w), by_device[w][0], by_device[w][1], by_device[w][2]);
        weights_assert_same(path_of("plain", x), path_of(textf("way%zu", w), y),
                            lora ? "adapter_model" : "model");
        joblog_assert_same_steps(x, y);
        expect_books_closed(textf("way%zu", w));
    }
}
END_TEST

/* The norm and the update are the CPU's: sums of another order, fp32. */
START_TEST(an_update_on_the_host_gives_the_same_numbers) {
    char x[SCRATCH_PATH + 64], y[SCRATCH_PATH + 64];
    make("full", "");
    TRAIN("output_dir=plain");
    TRAIN("output_dir=full", "full_ft_offload=true");
    expect_books_closed("full");
    json_t *plain = joblog_read(path_of("plain", x)), *full = joblog_read(path_of("full", y));
    for (uint64_t step = 1; step <= 3; step++) {
        const char *const keys[] = {"loss", "grad_norm"};
        for (int k = 0; k < 2; k++) {
            double want = joblog_number(joblog_step(plain, step), keys[k]);
            double got = joblog_number(joblog_step(full, step), keys[k]);
            ck_assert_msg(fabs(got - want) <= 1e-5 * want, "step %d: %s is %.9g, not %.9g",
                          (int)step, keys[k], got, want);
        }
    }
    json_decref(plain);
    json_decref(full);
}
END_TEST

/* The first pinned memory of a run that offloads states is theirs. */
START_TEST(pinned_memory_that_the_driver_refuses_is_named) {
    make("full", "");
    ck_assert_int_eq(setenv("PLSIM_FAIL", "hostalloc@1:2,forever", 1), 0);
    struct outcome o = plimsoll_train(dir, (const char *[]){"offload=optimizer", NULL});
    ck_assert_msg(o.status == 1, "exit %d: %s", o.status, o.err);
    ck_assert_msg(strstr(o.err, "error[RUNTIME_HOST_OOM]"), "%s", o.err);
    ck_assert_msg(strstr(o.err, "job arena of the host"), "%s", o.err);
    outcome_finish(&o);
}
END_TEST

int main(void) {
    Suite *s = suite_create("cuda.offload");
    TCase *tc = tcase_create("runs");
    tcase_set_timeout(tc, 120);
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_loop_test(tc, what_the_device_computes_does_not_depend_on_where_it_is_kept, 0,
                        (int)(sizeof jobs / sizeof *jobs));
    tcase_add_test(tc, an_update_on_the_host_gives_the_same_numbers);
    tcase_add_test(tc, pinned_memory_that_the_driver_refuses_is_named);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
