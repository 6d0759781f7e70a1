/* check_watch.c - plsim_watch.h finds what it is for, in kernels that compute the right numbers
 * here, and is silent about the same kernels without the mistake. */
#include "tests/cuda_sim/plsim_watch.h"
#include "tests/cuda_sim/sim.h"
#include "tests/cuda_sim/watch_kernels.h"

#include <check.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

static void run(int what, int right) {
    int *words = NULL;
    ck_assert(plsim_watching);
    ck_assert_int_eq(cudaMalloc((void **)&words, 2 * WATCH_WORDS * sizeof *words), cudaSuccess);
    memset(words, 0, 2 * WATCH_WORDS * sizeof *words);
    const struct plsim_window window = {
        "words", (const char *)words, 1, WATCH_WORDS * sizeof *words, WATCH_WORDS * sizeof *words,
        true};
    plsim_watch_call(&window, 1);
    watch_run(what, right, words);
    plsim_watch_call(NULL, 0);
    ck_assert_int_eq(cudaFree(words), cudaSuccess);
}

START_TEST(a_kernel_without_a_mistake_passes) {
    run(_i, 1);
}
END_TEST

START_TEST(a_mistake_ends_the_process) {
    run(_i, 0);
}
END_TEST

/* Waiting work is done in the middle of an op's call: its windows are those of its launch, and the
 * launches after it keep those of the op. */
static void drain_within(bool right) {
    int *words = NULL;
    const size_t bytes = WATCH_WORDS * sizeof *words;
    ck_assert_int_eq(setenv("PLSIM_STREAMS", "late", 1), 0);
    plsim_restart();
    ck_assert_int_eq(cudaMalloc((void **)&words, 2 * bytes), cudaSuccess);
    memset(words, 0, 2 * bytes);
    const struct plsim_window window = {"words", (const char *)words, 1, bytes, bytes, true};
    plsim_watch_call(&window, 1);
    watch_run(WATCH_WINDOW, 1, words);
    ck_assert_int_eq(cudaDeviceSynchronize(), cudaSuccess);
    watch_run(WATCH_WINDOW, right, words);
    plsim_watch_call(NULL, 0);
    ck_assert_int_eq(cudaDeviceSynchronize(), cudaSuccess);
    ck_assert_int_eq(words[0], 1);
    ck_assert_int_eq(cudaFree(words), cudaSuccess);
}

START_TEST(work_that_waited_leaves_the_windows_of_the_op) {
    drain_within(_i);
}
END_TEST

START_TEST(an_input_is_not_written) {
    int *words = NULL;
    ck_assert_int_eq(cudaMalloc((void **)&words, WATCH_WORDS * sizeof *words), cudaSuccess);
    const struct plsim_window window = {
        "words", (const char *)words, 1, WATCH_WORDS * sizeof *words, WATCH_WORDS * sizeof *words,
        false};
    plsim_watch_call(&window, 1);
    watch_run(0, 1, words);
}
END_TEST

enum { COMERS = 32 };

static void come(int of_threads, int order[COMERS]) {
    int *out = NULL;
    ck_assert_int_eq(cudaMalloc((void **)&out, (1 + COMERS) * sizeof *out), cudaSuccess);
    memset(out, 0, (1 + COMERS) * sizeof *out);
    watch_order(of_threads, out);
    memcpy(order, out + 1, COMERS * sizeof *out);
    ck_assert_int_eq(cudaFree(out), cudaSuccess);
}

/* Blocks of a launch, and warps after a barrier. */
START_TEST(a_random_order_is_complete_and_never_the_same) {
    int order[3][COMERS];
    uint64_t here = 0;
    ck_assert_int_eq(setenv("PLSIM_ORDER", "random:7", 1), 0);
    plsim_restart();
    for (int i = 0; i < 3; i++)
        come(_i, order[i]);
    for (int i = 0; i < COMERS; i++)
        here |= UINT64_C(1) << order[0][i];
    ck_assert_uint_eq(here, UINT32_MAX);
    ck_assert_mem_ne(order[0], order[1], sizeof order[0]);
    ck_assert_mem_ne(order[1], order[2], sizeof order[0]);
}
END_TEST

int main(void) {
    Suite *s = suite_create("cuda.watch");
    TCase *tc = tcase_create("accesses");
    suite_add_tcase(s, tc);
    tcase_add_loop_test(tc, a_kernel_without_a_mistake_passes, 0, WATCH_KERNELS);
    tcase_add_loop_test_raise_signal(tc, a_mistake_ends_the_process, SIGABRT, 0, WATCH_KERNELS);
    tcase_add_loop_test(tc, a_random_order_is_complete_and_never_the_same, 0, 2);
    tcase_add_test_raise_signal(tc, an_input_is_not_written, SIGABRT);
    tcase_add_loop_test_raise_signal(tc, work_that_waited_leaves_the_windows_of_the_op, SIGABRT, 0,
                                     1);
    tcase_add_loop_test(tc, work_that_waited_leaves_the_windows_of_the_op, 1, 2);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
