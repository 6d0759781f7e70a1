/* check_context.c - a job for a GPU before anything of CUDA runs, and the line `context`:
 * predicted, remembered, measured, judged again.
 *
 * NVML is the fake of tests/device; the CUDA back-end is the one below, which counts what is asked
 * of it and has no memory to give. */
#include "estimator/card/cards.h"
#include "estimator/config/job_text.h"
#include "runtime/kernels/back_ends.h"
#include "runtime/train/train.h"
#include "tests/support/scratch.h"
#include "tests/support/tiny.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define MIB (UINT64_C(1) << 20)

static struct {
    unsigned opened, allocated, pinned;
    uint64_t free_bytes; /* after the opening */
} cuda;

static pl_err fake_open(struct pl_device *dev, struct pl_diag *d) {
    (void)d;
    cuda.opened++;
    dev->traits = pl_traits_cuda(90);
    return PL_ERR_OK;
}

static void fake_close(struct pl_device *dev) {
    (void)dev;
}

static pl_err fake_alloc(struct pl_device *dev, uint64_t bytes, void **out, struct pl_diag *d) {
    (void)dev, (void)bytes;
    cuda.allocated++;
    *out = NULL;
    return pl_diag_set(d, PL_ERR_DEVICE_OOM, "the fake has no memory");
}

static pl_err fake_pin(struct pl_device *dev, struct pl_diag *d) {
    (void)dev;
    cuda.pinned++;
    return pl_diag_set(d, PL_ERR_DEVICE_OOM, "the fake has no memory");
}

static pl_err fake_free_bytes(struct pl_device *dev, uint64_t *out, struct pl_diag *d) {
    (void)dev, (void)d;
    *out = cuda.free_bytes;
    return PL_ERR_OK;
}

const struct pl_device_ops pl_device_cuda = {.name = "cuda",
                                             .open = fake_open,
                                             .close = fake_close,
                                             .alloc = fake_alloc,
                                             .pin = fake_pin,
                                             .free_bytes = fake_free_bytes};
const struct pl_back_end pl_back_end_cuda = {.ops = &pl_device_cuda};

static char dir[SCRATCH_PATH];
static struct pl_gpu gpu;

/* Every test runs in a process of its own, so variables need no cleaning up. */
static void set(const char *name, const char *value) {
    ck_assert_int_eq(setenv(name, value, 1), 0);
}

static void set_up(void) {
    scratch_make(dir);
    ck_assert_msg(getenv("FAKE_NVML") != NULL, "FAKE_NVML names the library");
    set("PLIMSOLL_NVML", getenv("FAKE_NVML"));
    set("XDG_CACHE_HOME", in_dir(dir, "cache"));
    unsetenv("CUDA_VISIBLE_DEVICES");
    cuda.free_bytes = 79000 * MIB;
    ck_assert_int_eq(pl_nvml_query(0, &gpu, NULL), PL_ERR_OK);
}

static void tear_down(void) {
    scratch_remove(dir);
}

static const char *cache_file(void) {
    return in_dir(dir, "cache/plimsoll/context.json");
}

/* --- the memory of earlier runs -------------------------------------------------------------- */

static void remember(const struct pl_gpu *of, uint64_t opened, uint64_t final) {
    pl_context_remember(of,
                        &(struct pl_context_seen){.opened_bytes = opened, .final_bytes = final});
}

static void expect_guess(uint64_t bytes, uint64_t growth, const char *source) {
    struct pl_context c;
    pl_context_predict(&gpu, &c);
    ck_assert_str_eq(c.source, source);
    ck_assert_uint_eq(c.bytes, bytes);
    ck_assert_uint_eq(c.growth_bytes, growth);
    ck_assert_int_eq(c.doubt_bytes == 0, strcmp(source, "earlier runs") == 0);
}

START_TEST(without_an_earlier_run_the_table_speaks) {
    expect_guess(pl_card_find("H100")->context_bytes, 0, "card table");
    strcpy(gpu.name, "NVIDIA Unheard-Of");
    expect_guess(PL_CARD_CONTEXT_DEFAULT, 0, "default");
}
END_TEST

START_TEST(what_was_measured_is_predicted) {
    remember(&gpu, 500 * MIB, 530 * MIB);
    expect_guess(530 * MIB, 30 * MIB, "earlier runs");
    remember(&gpu, 510 * MIB, 510 * MIB);
    expect_guess(510 * MIB, 0, "earlier runs");
}
END_TEST

/* One file serves every GPU model, driver and build. */
START_TEST(entries_of_others_stay_and_do_not_speak_for_us) {
    struct pl_gpu other = gpu;
    remember(&gpu, 500 * MIB, 530 * MIB);
    strcpy(other.driver, "999.1");
    remember(&other, 700 * MIB, 700 * MIB);
    strcpy(other.name, "NVIDIA L4");
    remember(&other, 200 * MIB, 200 * MIB);
    expect_guess(530 * MIB, 30 * MIB, "earlier runs");
    gpu = other;
    expect_guess(200 * MIB, 0, "earlier runs");
    strcpy(gpu.driver, "1.0");
    expect_guess(pl_card_find("L4")->context_bytes, 0, "card table");
}
END_TEST

/* A stale file: the build that is in it is not this one. */
START_TEST(an_entry_of_another_build_is_not_believed) {
    remember(&gpu, 500 * MIB, 530 * MIB);
    char *text = file_read(cache_file(), NULL), *build = strstr(text, "\"build\": \"");
    ck_assert_ptr_nonnull(build);
    char *digit = build + strlen("\"build\": \"");
    *digit = *digit == '0' ? '1' : '0';
    file_write(cache_file(), text);
    free(text);
    expect_guess(pl_card_find("H100")->context_bytes, 0, "card table");
}
END_TEST

static const char *const broken[] = {
    "",
    "{",
    "[]",
    "{\"schema\":2,\"entries\":[]}",
    "{\"schema\":1,\"entries\":{}}",
    "{\"schema\":1,\"entries\":[1,null,[]]}",
    "\xff\xfe\x00\x01",
};

START_TEST(a_broken_file_is_no_file_and_is_replaced) {
    remember(&gpu, 500 * MIB, 530 * MIB);
    file_write(cache_file(), broken[_i]);
    expect_guess(pl_card_find("H100")->context_bytes, 0, "card table");
    remember(&gpu, 400 * MIB, 410 * MIB);
    expect_guess(410 * MIB, 10 * MIB, "earlier runs");
}
END_TEST

/* Figures that cannot be true, each in place of the true one. */
static const struct {
    const char *key, *value;
} lies[] = {
    {"opened_bytes", "0"},
    {"opened_bytes", "-5"},
    {"opened_bytes", "555745281"}, /* above final */
    {"final_bytes", "9000000000000"},
    {"final_bytes", "\"many\""},
    {"final_bytes", "5.5"},
};

START_TEST(a_figure_that_cannot_be_is_not_believed) {
    remember(&gpu, 500 * MIB, 530 * MIB);
    json_t *root = json_load_file(cache_file(), 0, NULL);
    json_t *entry = json_array_get(json_object_get(root, "entries"), 0);
    json_t *lie = json_loads(lies[_i].value, JSON_DECODE_ANY, NULL);
    ck_assert_int_eq(json_object_set_new(entry, lies[_i].key, lie), 0);
    ck_assert_int_eq(json_dump_file(root, cache_file(), 0), 0);
    json_decref(root);
    expect_guess(pl_card_find("H100")->context_bytes, 0, "card table");
}
END_TEST

START_TEST(without_a_home_nothing_is_remembered) {
    set("XDG_CACHE_HOME", "relative");
    unsetenv("HOME");
    remember(&gpu, 500 * MIB, 530 * MIB);
    ck_assert(!path_exists("relative"));
    expect_guess(pl_card_find("H100")->context_bytes, 0, "card table");
}
END_TEST

START_TEST(the_file_does_not_grow_for_ever) {
    for (int i = 0; i < 100; i++) {
        snprintf(gpu.driver, sizeof gpu.driver, "%d", i);
        remember(&gpu, 500 * MIB, 530 * MIB);
    }
    expect_guess(530 * MIB, 30 * MIB, "earlier runs");
    json_t *root = json_load_file(cache_file(), 0, NULL);
    ck_assert_uint_eq(json_array_size(json_object_get(root, "entries")), 32);
    json_decref(root);
}
END_TEST

/* --- jobs ------------------------------------------------------------------------------------ */

static struct pl_job job;
static struct pl_preflight pf;
static struct pl_diag diag;

static pl_err preflight(const char *more) {
    tiny_make(dir, &(struct tiny){0}, textf("batch_size: 2\nmax_steps: 1\n%s", more));
    const char *const overrides[] = {textf("output_dir=%s", in_dir(dir, "out"))};
    ck_assert_msg(pl_job_read(&job, in_dir(dir, "run.yaml"), overrides, 1, NULL, &diag) ==
                      PL_ERR_OK,
                  "%s", diag.message);
    return pl_preflight_init(&pf, &job, &(struct pl_admission){0}, &diag);
}

static pl_err train(void) {
    struct pl_train_result result;
    FILE *messages = fopen("/dev/null", "w");
    ck_assert_ptr_nonnull(messages);
    const struct pl_train_options options = {.messages = messages, .quiet = true};
    pl_err err = pl_train(&pf, &options, &result, &diag);
    fclose(messages);
    return err;
}

static void finish_job(void) {
    pl_preflight_finish(&pf);
    pl_job_finish(&job);
}

START_TEST(the_budget_is_what_the_gpu_has_free) {
    set("FAKE_NVML_FREE", "20000000000");
    ck_assert_int_eq(preflight("device: cuda\n"), PL_ERR_OK);
    ck_assert_uint_eq(pf.q.budget.total_bytes, 20000000000);
    ck_assert_uint_eq(pf.q.budget.margin_bytes, 64 * MIB);
    ck_assert_uint_eq(pf.q.budget.context_bytes,
                      pl_card_find("H100")->context_bytes + pf.graph_bytes);
    ck_assert_int_eq(pf.q.traits.backend, PL_BACKEND_CUDA);
    ck_assert_uint_eq(pf.q.traits.sm, 90);
    ck_assert_uint_eq(pf.estimate.verdict.needed_bytes,
                      pf.estimate.planned.plan->arena_bytes + pf.q.budget.context_bytes);
    ck_assert_uint_eq(cuda.opened, 0);
    finish_job();
}
END_TEST

START_TEST(vram_budget_makes_a_smaller_card_but_no_larger_one) {
    set("FAKE_NVML_FREE", "20000000000");
    ck_assert_int_eq(preflight("device: cuda\nvram_budget: 10GB\n"), PL_ERR_OK);
    ck_assert_uint_eq(pf.q.budget.total_bytes, 10000000000);
    ck_assert_uint_eq(pf.q.budget.margin_bytes, 0);
    finish_job();
    ck_assert_int_eq(preflight("device: cuda\nvram_budget: 30GB\n"), PL_ERR_OK);
    ck_assert_uint_eq(pf.q.budget.total_bytes, 20000000000);
    ck_assert_uint_eq(pf.q.budget.margin_bytes, 64 * MIB);
    finish_job();
}
END_TEST

START_TEST(auto_takes_a_gpu_that_answers) {
    static const struct {
        const char *name, *value;
        uint32_t device;
    } cases[] = {{"FAKE_NVML_SM", "90", PL_DEVICE_CUDA},
                 {"FAKE_NVML_SM", "75", PL_DEVICE_CUDA},
                 {"FAKE_NVML_SM", "72", PL_DEVICE_CPU},
                 {"FAKE_NVML_FAIL", "1", PL_DEVICE_CPU},
                 {"PLIMSOLL_NVML", "/nonexistent", PL_DEVICE_CPU}};
    set(cases[_i].name, cases[_i].value);
    ck_assert_int_eq(preflight("device: auto\n"), PL_ERR_OK);
    ck_assert_uint_eq(pf.job->device, cases[_i].device);
    ck_assert_uint_eq(pf.context.bytes > 0, cases[_i].device == PL_DEVICE_CUDA);
    ck_assert_uint_eq(cuda.opened, 0);
    finish_job();
}
END_TEST

static const struct {
    const char *name, *value, *more, *word;
    pl_err err;
} refusals[] = {
    {"PLIMSOLL_NVML", "/nonexistent", "device: cuda\n", "no NVIDIA driver", PL_ERR_NO_DEVICE},
    {"FAKE_NVML_GPUS", "2", "device: cuda:2\n", "cuda:2", PL_ERR_NO_DEVICE},
    {"FAKE_NVML_SM", "70", "device: cuda\n", "Turing", PL_ERR_NO_DEVICE},
    {"FAKE_NVML_FREE", "280000000", "device: cuda\n", "free memory of the GPU",
     PL_ERR_DOES_NOT_FIT},
    {"FAKE_NVML_GPUS", "1", "device: cuda\nvram_budget: 280MiB\n", "vram_budget",
     PL_ERR_DOES_NOT_FIT},
    {"FAKE_NVML_GPUS", "1", "device: cuda\nfull_ft_ceiling_billions: 0\n", "ceiling",
     PL_ERR_FULL_FT_MODEL_TOO_LARGE},
};

START_TEST(a_refusal_comes_before_any_call_of_cuda) {
    set(refusals[_i].name, refusals[_i].value);
    ck_assert_int_eq(preflight(refusals[_i].more), refusals[_i].err);
    ck_assert_msg(strstr(diag.message, refusals[_i].word) != NULL, "%s", diag.message);
    ck_assert_uint_eq(cuda.opened, 0);
    finish_job();
}
END_TEST

/* The margin of the measured line is one byte: the arenas are what they are. Nothing is known of
 * the kernels to come, which are expected to take 128 MiB. */
START_TEST(a_measured_context_turns_the_verdict_before_the_arenas) {
    ck_assert_int_eq(preflight("device: cuda\nvram_budget: 2GiB\n"), PL_ERR_OK);
    uint64_t arenas = pf.estimate.planned.plan->arena_bytes;
    uint64_t just = 2048 * MIB - arenas;
    cuda.free_bytes = pf.gpu.free_bytes - (just - 128 * MIB) - (uint64_t)_i;
    pl_err err = train();
    ck_assert_uint_eq(cuda.opened, 1);
    ck_assert_uint_eq(pf.q.budget.context_bytes, just + (uint64_t)_i);
    if (_i == 0) { /* fits to the byte: the arena is asked for, which the fake refuses */
        ck_assert_int_eq(err, PL_ERR_DEVICE_OOM);
        ck_assert_uint_eq(cuda.allocated, 1);
    } else {
        ck_assert_int_eq(err, PL_ERR_DOES_NOT_FIT);
        ck_assert_uint_eq(cuda.allocated + cuda.pinned, 0);
        ck_assert_msg(
            strstr(diag.message, "`context` changed from 560.0 MiB (predicted: card table)"), "%s",
            diag.message);
        ck_assert_ptr_nonnull(
            strstr(diag.message, textf("%llu bytes", (unsigned long long)just + 1)));
        ck_assert(!path_exists(in_dir(dir, "out")));
    }
    finish_job();
}
END_TEST

/* The driver's own figure does not see the neighbours that free memory does. */
START_TEST(the_bytes_of_the_process_are_the_better_measure) {
    ck_assert_int_eq(preflight("device: cuda\n"), PL_ERR_OK);
    set("FAKE_NVML_PROCESS", "600000000");
    cuda.free_bytes = 4000 * MIB;
    ck_assert_int_eq(train(), PL_ERR_DEVICE_OOM);
    ck_assert_uint_eq(pf.q.budget.context_bytes, 600000000 + 128 * MIB + pf.graph_bytes);
    finish_job();
}
END_TEST

/* Library kernels come after the context was opened: earlier runs know how much. */
START_TEST(growth_is_added_to_what_was_measured) {
    remember(&gpu, 500 * MIB, 530 * MIB);
    ck_assert_int_eq(preflight("device: cuda\n"), PL_ERR_OK);
    ck_assert_uint_eq(pf.q.budget.context_bytes, 530 * MIB + pf.graph_bytes);
    set("FAKE_NVML_PROCESS", "600000000");
    ck_assert_int_eq(train(), PL_ERR_DEVICE_OOM);
    ck_assert_uint_eq(pf.q.budget.context_bytes, 600000000 + 30 * MIB + pf.graph_bytes);
    finish_job();
}
END_TEST

static void expect_growth(uint64_t opened, uint64_t bytes, uint64_t doubt) {
    struct pl_context c;
    pl_context_predict(&gpu, &c);
    const struct pl_growth growth = pl_context_growth(&c, opened);
    ck_assert_uint_eq(growth.bytes, bytes);
    ck_assert_uint_eq(growth.doubt_bytes, doubt);
}

/* Until a run has measured it, room for kernels is certain, and what the table says in all is
 * expected. The doubt is never more than that of the table. */
START_TEST(a_growth_that_nobody_measured_is_what_is_predicted_in_all) {
    ck_assert_uint_eq(pl_card_find("H100")->context_bytes, 560 * MIB);
    ck_assert_uint_eq(pl_card_context_doubt(pl_card_find("H100")), 280 * MIB);
    expect_growth(100 * MIB, 460 * MIB, 280 * MIB);
    expect_growth(300 * MIB, 260 * MIB, 132 * MIB);
    expect_growth(432 * MIB, 128 * MIB, 0);
    expect_growth(433 * MIB, 128 * MIB, 0);
    expect_growth(900 * MIB, 128 * MIB, 0);
    remember(&gpu, 500 * MIB, 500 * MIB);
    expect_growth(100 * MIB, 0, 0);
}
END_TEST

START_TEST(a_warning_lets_a_turned_verdict_pass) {
    ck_assert_int_eq(preflight("device: cuda\npreflight: warn\nvram_budget: 2GiB\n"), PL_ERR_OK);
    cuda.free_bytes = pf.gpu.free_bytes - 2047 * MIB - 900 * 1024;
    ck_assert_int_eq(train(), PL_ERR_DEVICE_OOM);
    ck_assert_int_eq(pf.estimate.verdict.kind, PL_VERDICT_NO);
    finish_job();
}
END_TEST

#define N(a) (int)(sizeof(a) / sizeof *(a))

int main(void) {
    Suite *s = suite_create("train.context");
    TCase *memory = tcase_create("memory");
    tcase_add_checked_fixture(memory, set_up, tear_down);
    tcase_add_test(memory, without_an_earlier_run_the_table_speaks);
    tcase_add_test(memory, what_was_measured_is_predicted);
    tcase_add_test(memory, entries_of_others_stay_and_do_not_speak_for_us);
    tcase_add_test(memory, an_entry_of_another_build_is_not_believed);
    tcase_add_loop_test(memory, a_broken_file_is_no_file_and_is_replaced, 0, N(broken));
    tcase_add_loop_test(memory, a_figure_that_cannot_be_is_not_believed, 0, N(lies));
    tcase_add_test(memory, without_a_home_nothing_is_remembered);
    tcase_add_test(memory, the_file_does_not_grow_for_ever);
    tcase_add_test(memory, a_growth_that_nobody_measured_is_what_is_predicted_in_all);
    suite_add_tcase(s, memory);
    TCase *jobs = tcase_create("jobs");
    tcase_set_timeout(jobs, 60);
    tcase_add_checked_fixture(jobs, set_up, tear_down);
    tcase_add_test(jobs, the_budget_is_what_the_gpu_has_free);
    tcase_add_test(jobs, vram_budget_makes_a_smaller_card_but_no_larger_one);
    tcase_add_loop_test(jobs, auto_takes_a_gpu_that_answers, 0, 4);
    tcase_add_loop_test(jobs, a_refusal_comes_before_any_call_of_cuda, 0, N(refusals));
    tcase_add_loop_test(jobs, a_measured_context_turns_the_verdict_before_the_arenas, 0, 2);
    tcase_add_test(jobs, the_bytes_of_the_process_are_the_better_measure);
    tcase_add_test(jobs, growth_is_added_to_what_was_measured);
    tcase_add_test(jobs, a_warning_lets_a_turned_verdict_pass);
    suite_add_tcase(s, jobs);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
