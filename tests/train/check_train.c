/* check_train.c - the trainer as a whole, through the real binary: a run that stops and goes on is
 * the run that never stopped, signals are obeyed in order, and the books are right. */
#include "tests/support/child.h"
#include "tests/support/hang.h"
#include "tests/support/joblog.h"
#include "tests/support/saved.h"
#include "tests/support/scratch.h"
#include "tests/support/tensorset.h"
#include "tests/support/tiny.h"

#include <check.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static char dir[SCRATCH_PATH];

static void set_up(void) {
    scratch_make(dir);
}

static void tear_down(void) {
    scratch_remove(dir);
}

#define TRAIN(status, ...) plimsoll_train_expect(status, dir, (const char *[]){__VA_ARGS__, NULL})

/* --- a run that goes on ------------------------------------------------------------------------
 */

static const struct {
    const char *mode, *more;
} jobs[] = {
    {"full", "batch_size: 4\nweight_decay: 0.1\n"},
    {"full", "batch_size: 2\ngradient_accumulation_steps: 3\noptimizer: sgd\n"},
    {"full", "batch_size: 4\ndtype: bf16\nmaster_weights: true\n"},
    {"full", "batch_size: 4\ndtype: bf16\nmaster_weights: false\n"},
    {"lora", "batch_size: 3\nlora_r: 4\nlora_dropout: 0.2\n"},
    {"lora", "batch_size: 3\nlora_r: 4\ndtype: bf16\nadapter_dtype: bf16\n"},
    {"lora", "batch_size: 3\nlora_r: 256\noptimizer: adamw_8bit\nweight_decay: 0.1\n"},
    {"full", "batch_size: 4\ndtype: bf16\nmaster_weights: false\noptimizer: adamw_8bit\n"},
    {"full", "batch_size: 4\ndtype: bf16\nmaster_weights: false\nmoment_dtype: bf16\n"},
    {"full", "batch_size: 1\ngradient_accumulation_steps: 4\ndtype: bf16\nmaster_weights: false\n"
             "gradient_dtype: bf16\n"},
    {"qlora", "batch_size: 3\nlora_r: 4\nlora_dropout: 0.2\n"},
    {"qlora", "batch_size: 3\nlora_r: 4\ndtype: bf16\nquant_type: fp4\ndouble_quant: false\n"},
    {"lora", "batch_size: 3\nlora_r: 4\nlora_modules_to_save: [embed_tokens, lm_head]\n"},
    {"qlora", "batch_size: 2\ngradient_accumulation_steps: 2\nlora_r: 4\ndtype: bf16\n"
              "optimizer: adamw_8bit\nlora_modules_to_save: embed_tokens\n"},
    {"lora", "batch_size: 2\nlora_r: 5\ndtype: bf16\nadapter_dtype: bf16\n"
             "lora_target_modules: [embed_tokens, v_proj]\n"},
};
enum { N_JOBS = sizeof jobs / sizeof *jobs };

/* Rows of 24 in steps of 3 to 6: both halves of a run cross an epoch, with another order in each.
 */
static void make_job(int i, const char *more) {
    char yaml[512];
    snprintf(yaml, sizeof yaml, "%slearning_rate: 0.01\n%s", jobs[i].more, more);
    tiny_make(dir, &(struct tiny){.mode = jobs[i].mode}, yaml);
}

static const char *stem(int i) {
    return strcmp(jobs[i].mode, "full") == 0 ? "model" : "adapter_model";
}

static void expect_same_checkpoint(const char *a, const char *b) {
    checkpoint_assert_same(in_dir(dir, a), in_dir(dir, b));
}

START_TEST(ten_steps_and_ten_more_are_twenty_bit_for_bit) {
    make_job(_i, "lr_scheduler: constant\nsave_steps: 10\n");
    TRAIN(0, "max_steps=20", "output_dir=straight");
    TRAIN(0, "max_steps=10", "output_dir=halves");
    TRAIN(0, "max_steps=20", "output_dir=halves");
    expect_same_checkpoint("straight/checkpoint-20", "halves/checkpoint-20");
    char a[SCRATCH_PATH + 16], b[SCRATCH_PATH + 16];
    snprintf(a, sizeof a, "%s/straight", dir);
    snprintf(b, sizeof b, "%s/halves", dir);
    weights_assert_same(a, b, stem(_i));
    joblog_assert_same_steps(a, b);
}
END_TEST

/* Reads events from the pipe until `n` steps were reported. */
static void read_steps(struct child *c, int n) {
    char line[4096];
    while (n > 0) {
        ck_assert_msg(fgets(line, sizeof line, c->out), "the run ended early");
        if (strstr(line, "\"event\":\"step\"")) n--;
    }
}

static void drain(struct child *c) {
    char line[4096];
    while (fgets(line, sizeof line, c->out))
        continue;
}

static void pause_ms(long ms) {
    nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL);
}

/* Waits until nothing has come for a fifth of a second: a signal then meets a blocked write, the
 * harder case. */
static void wait_for_full_pipe(const struct child *c) {
    const int pipe = fileno(c->out), capacity = fcntl(pipe, F_GETPIPE_SZ);
    int last = 0, still = 0;
    for (int waits = 0; still < 10; waits++) {
        int held = 0;
        ck_assert_msg(waits < 50 * HANG_SECONDS, "%d of %d bytes", last, capacity);
        ck_assert_int_eq(ioctl(pipe, FIONREAD, &held), 0);
        still = held == last && held > capacity / 2 ? still + 1 : 0;
        last = held;
        pause_ms(20);
    }
}

/* Starts a run whose reports fill the pipe long before its last step: it cannot end by itself. */
static struct child start_long_run(const char *out) {
    struct child c = plimsoll_start(
        dir, (const char *[]){"train", "run.yaml", "--json", "max_steps=120", out, NULL}, true);
    read_steps(&c, 3);
    wait_for_full_pipe(&c);
    return c;
}

static const struct { int number, status; } signals[] = {{SIGINT, 130}, {SIGTERM, 143}};

START_TEST(a_probe_leaves_no_trace_in_the_weights) {
    make_job(_i, "max_steps: 3\n");
    TRAIN(0, "output_dir=plain");
    TRAIN(0, "output_dir=probed", "probe_steps=2");
    char plain[SCRATCH_PATH + 16], probed[SCRATCH_PATH + 16];
    snprintf(plain, sizeof plain, "%s/plain", dir);
    snprintf(probed, sizeof probed, "%s/probed", dir);
    weights_assert_same(plain, probed, stem(_i));
    joblog_assert_same_steps(plain, probed);
    json_t *log = joblog_read(probed);
    const json_t *probe = joblog_event(log, "probe", 0);
    ck_assert_ptr_nonnull(probe);
    ck_assert(joblog_number(probe, "steps") == 2);
    ck_assert(joblog_number(probe, "planned_peak_bytes") ==
              joblog_number(probe, "allocated_peak_bytes"));
    json_decref(log);
    TRAIN(0, "output_dir=alone", "--probe");
    ck_assert_int_ne(access(in_dir(dir, textf("alone/%s.safetensors", stem(_i))), F_OK), 0);
}
END_TEST

START_TEST(a_finished_run_says_that_nothing_is_left) {
    make_job(0, "max_steps: 2\nsave_steps: 2\n");
    TRAIN(0, "resume=never");
    struct outcome o = plimsoll_expect(0, dir, (const char *[]){"train", "run.yaml", NULL});
    ck_assert_ptr_nonnull(strstr(o.err, "nothing was left to train"));
    outcome_finish(&o);
}
END_TEST

START_TEST(a_signal_saves_and_the_same_command_goes_on_bit_for_bit) {
    make_job(0, "lr_scheduler: cosine\nsave_steps: 1000\n");
    struct child c = start_long_run("output_dir=stopped");
    kill(c.pid, signals[_i].number);
    drain(&c);
    struct outcome o = child_wait(&c, HANG_SECONDS);
    ck_assert_msg(!o.timed_out && o.status == signals[_i].status, "exit %d: %s", o.status, o.err);
    ck_assert_msg(strstr(o.err, "error[RUNTIME_INTERRUPTED]"), "%s", o.err);
    outcome_finish(&o);

    char stopped[SCRATCH_PATH + 16], straight[SCRATCH_PATH + 16];
    snprintf(stopped, sizeof stopped, "%s/stopped", dir);
    snprintf(straight, sizeof straight, "%s/straight", dir);
    json_t *log = joblog_read(stopped);
    size_t done = joblog_count(log, "step");
    ck_assert(done >= 3 && done < 120);
    ck_assert_ptr_nonnull(joblog_event(log, "checkpoint", 0));
    json_decref(log);
    ck_assert(path_exists(textf("%s/checkpoint-%zu/optimizer.safetensors", stopped, done)));

    TRAIN(0, "max_steps=120", "output_dir=stopped");
    TRAIN(0, "max_steps=120", "output_dir=straight");
    expect_same_checkpoint("straight/checkpoint-120", "stopped/checkpoint-120");
    weights_assert_same(straight, stopped, "model");
    joblog_assert_same_steps(straight, stopped);
}
END_TEST

/* Nobody reads the pipe any more: the run hangs in a write until it is told twice, and not in one
 * second. */
START_TEST(a_second_signal_is_obeyed_at_once) {
    make_job(0, "");
    struct child c = start_long_run("output_dir=out");
    kill(c.pid, signals[_i].number);
    pause_ms(100); /* a loaded machine may make much more of it */
    kill(c.pid, signals[_i].number);
    pause_ms(1500);
    ck_assert_int_eq(waitpid(c.pid, NULL, WNOHANG), 0);
    kill(c.pid, signals[_i].number);
    struct outcome o = child_wait(&c, HANG_SECONDS);
    ck_assert_msg(!o.timed_out && o.status == signals[_i].status, "exit %d: %s", o.status, o.err);
    outcome_finish(&o);
}
END_TEST

START_TEST(a_checkpoint_of_another_run_is_refused) {
    make_job(0, "max_steps: 2\nsave_steps: 2\n");
    TRAIN(0, "seed=1");
    struct outcome o = plimsoll_expect(
        5, dir, (const char *[]){"train", "run.yaml", "seed=2", "max_steps=4", NULL});
    ck_assert_msg(strstr(o.err, "error[CHECKPOINT_MISMATCH]"), "%s", o.err);
    outcome_finish(&o);
    o = plimsoll_expect(5, dir,
                        (const char *[]){"train", "run.yaml", "seed=1", "max_steps=4",
                                         "gradient_accumulation_steps=2", NULL});
    ck_assert_msg(strstr(o.err, "error[CHECKPOINT_MISMATCH]"), "%s", o.err);
    outcome_finish(&o);
    TRAIN(0, "seed=2", "max_steps=4", "resume=never", "overwrite_output_dir=true");
}
END_TEST

/* Another chunk would sum in another order. */
START_TEST(a_run_that_goes_on_keeps_its_chunk) {
    tiny_make(dir, &(struct tiny){.mode = "full"}, "batch_size: 4\noutput_dir: out\n");
    TRAIN(0, "max_steps=2", "save_steps=2", "loss_chunk_tokens=5");
    TRAIN(0, "max_steps=4", "loss_chunk_tokens=auto");
    char *text = file_read(in_dir(dir, "out/config.resolved.yaml"), NULL);
    ck_assert_msg(strstr(text, "\nloss_chunk_tokens: 5\n") != NULL, "%s", text);
    free(text);
}
END_TEST

/* --- the books ---------------------------------------------------------------------------------
 */

static const struct {
    const char *mode, *more;
} books[] = {
    {"full", "batch_size: 4\n"},
    {"full", "batch_size: 4\ngradient_checkpointing: none\nloss_chunk_tokens: 0\n"},
    {"full", "batch_size: 4\ngradient_checkpointing: light\nloss_chunk_tokens: 5\n"},
    {"full", "batch_size: 5\ngradient_checkpointing: every_2\nmax_grad_norm: 0\n"},
    {"full", "batch_size: 4\ngradient_checkpointing: mlp\n"},
    {"full", "batch_size: 4\ngradient_checkpointing: mlp\nmlp_chunk_tokens: 7\n"},
    {"lora", "batch_size: 4\ngradient_checkpointing: attention:1+light\nlora_dropout: 0.1\n"},
    {"full", "batch_size: 4\ndtype: bf16\n"},
    {"full", "batch_size: 4\ndtype: bf16\nmaster_weights: false\noptimizer: sgd\n"},
    {"full", "batch_size: 2\ngradient_accumulation_steps: 3\nfreeze_layers: 1\n"},
    {"full", "batch_size: 3\nval_set_size: 4\neval_steps: 2\n"},
    {"lora", "batch_size: 4\nlora_dropout: 0.1\n"},
    {"lora", "batch_size: 4\ndtype: bf16\nlora_target_modules: [q_proj, v_proj]\n"},
    {"lora", "batch_size: 1\nthreads: 1\n"},
    {"full", "batch_size: auto\nvram_budget: 3MiB\n"},
    {"full", "batch_size: 4\noptimizer: adamw_8bit\n"},
    {"full", "batch_size: 4\noptimizer: lion\nmoment_dtype: bf16\n"},
    {"full", "batch_size: 4\ngradient_checkpointing: auto\nvram_budget: 2MiB\n"},
    {"qlora", "batch_size: 4\ndtype: bf16\ncompute_dtype: fp32\n"},
    {"qlora", "batch_size: 2\nlora_r: 256\noptimizer: adamw_8bit\ndouble_quant: false\n"},
    {"qlora", "batch_size: 3\nquantize_head: true\nval_set_size: 4\neval_steps: 2\n"},
    {"lora", "batch_size: 4\ndtype: bf16\nlora_modules_to_save: lm_head\n"},
    {"qlora", "batch_size: 2\nlora_modules_to_save: [embed_tokens, lm_head]\n"
              "val_set_size: 4\neval_steps: 2\n"},
};

static double arena_of(const char *json) {
    json_error_t error;
    json_t *o = json_loads(json, 0, &error);
    ck_assert_msg(o != NULL, "%s in %s", error.text, json);
    double bytes = joblog_number(json_object_get(o, "bytes"), "arena");
    json_decref(o);
    return bytes;
}

/* The estimate asked for beforehand, the plan, and what the device counted are one number. */
START_TEST(what_was_estimated_is_planned_and_allocated_to_the_byte) {
    char yaml[512];
    snprintf(yaml, sizeof yaml, "%smax_steps: 4\nsave_steps: 2\n", books[_i].more);
    const bool untied = strstr(books[_i].more, "quantize_head") != NULL;
    tiny_make(dir, &(struct tiny){.mode = books[_i].mode, .untied = untied}, yaml);
    TRAIN(0, "output_dir=out");
    json_t *log = joblog_read(in_dir(dir, "out"));
    const json_t *end = joblog_event(log, "summary", 0), *begin = joblog_event(log, "preflight", 0);
    ck_assert(end && begin);
    double planned = joblog_number(end, "planned_peak_bytes");
    ck_assert(planned > 0);
    ck_assert(planned == joblog_number(end, "allocated_peak_bytes"));
    ck_assert(planned == joblog_number(begin, "planned_bytes"));
    ck_assert(planned == joblog_number(joblog_step(log, 4), "device_bytes"));
    double batch = joblog_number(begin, "batch_size");
    struct outcome o =
        plimsoll_expect(0, dir,
                        (const char *[]){"estimate-vram", "run.yaml", "--json", "--batch_size",
                                         textf("%.0f", batch), NULL});
    ck_assert(planned == arena_of(o.out));
    outcome_finish(&o);
    json_decref(log);
}
END_TEST

/* N1 of not_finite.h: the first value is named. The decay multiplies weights by -10^5 a step, which
 * fp32 does not stand for long. That the last step leaves them as they were is the kernels' promise
 * and shown with them. */
START_TEST(a_step_that_is_not_finite_ends_the_run) {
    tiny_make(dir, &(struct tiny){0},
              "batch_size: 4\nmax_steps: 20\nlearning_rate: 1000\nweight_decay: 100\n"
              "lr_scheduler: constant\nsave_steps: 1\nsave_total_limit: 1\n");
    struct outcome o = plimsoll_expect(1, dir, (const char *[]){"train", "run.yaml", NULL});
    ck_assert_msg(strstr(o.err, "error[RUNTIME_NOT_FINITE]") != NULL, "%s", o.err);
    ck_assert_ptr_nonnull(strstr(o.err, "the weights were not touched"));
    ck_assert_msg(strstr(o.err, "the first value that is not finite: layers.0."), "%s", o.err);
    outcome_finish(&o);
    json_t *log = joblog_read(in_dir(dir, "out"));
    uint64_t step = 1;
    for (; joblog_event(log, "step", (size_t)step - 1); step++)
        ck_assert(isfinite(joblog_number(joblog_step(log, step), "loss")));
    ck_assert_uint_gt(step, 1);
    ck_assert(!joblog_event(log, "summary", 0));
    json_decref(log);
    ck_assert(path_exists(in_dir(
        dir, textf("out/checkpoint-%llu/model.safetensors", (unsigned long long)(step - 1)))));
}
END_TEST

START_TEST(the_resolved_configuration_repeats_the_run) {
    make_job(_i, "max_steps: 4\n");
    TRAIN(0, "output_dir=first");
    struct outcome o =
        plimsoll_expect(0, dir,
                        (const char *[]){"train", "first/config.resolved.yaml", "--output_dir",
                                         in_dir(dir, "second"), NULL});
    outcome_finish(&o);
    char a[SCRATCH_PATH + 16], b[SCRATCH_PATH + 16];
    snprintf(a, sizeof a, "%s/first", dir);
    snprintf(b, sizeof b, "%s/second", dir);
    weights_assert_same(a, b, stem(_i));
}
END_TEST

START_TEST(a_saved_model_has_the_tokenizer_of_the_job) {
    make_job(0, "max_steps: 1\ntokenizer: words\n");
    ck_assert_int_eq(mkdir(in_dir(dir, "words"), 0777), 0);
    file_write(in_dir(dir, "words/tokenizer.json"), "{}");
    TRAIN(0, "output_dir=directory");
    ck_assert(
        file_same(in_dir(dir, "words/tokenizer.json"), textf("%s/directory/tokenizer.json", dir)));
    TRAIN(0, "output_dir=file", "tokenizer=words/tokenizer.json");
    ck_assert(file_same(in_dir(dir, "words/tokenizer.json"), textf("%s/file/tokenizer.json", dir)));
}
END_TEST

int main(void) {
    Suite *s = suite_create("train.train");
    TCase *tc = tcase_create("runs");
    tcase_set_timeout(tc, 90);
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_loop_test(tc, ten_steps_and_ten_more_are_twenty_bit_for_bit, 0, N_JOBS);
    tcase_add_loop_test(tc, a_signal_saves_and_the_same_command_goes_on_bit_for_bit, 0, 2);
    tcase_add_loop_test(tc, a_second_signal_is_obeyed_at_once, 0, 2);
    tcase_add_loop_test(tc, a_probe_leaves_no_trace_in_the_weights, 0, N_JOBS);
    tcase_add_test(tc, a_finished_run_says_that_nothing_is_left);
    tcase_add_test(tc, a_checkpoint_of_another_run_is_refused);
    tcase_add_test(tc, a_run_that_goes_on_keeps_its_chunk);
    tcase_add_loop_test(tc, what_was_estimated_is_planned_and_allocated_to_the_byte, 0,
                        (int)(sizeof books / sizeof *books));
    tcase_add_test(tc, a_step_that_is_not_finite_ends_the_run);
    tcase_add_loop_test(tc, the_resolved_configuration_repeats_the_run, 0, N_JOBS);
    tcase_add_test(tc, a_saved_model_has_the_tokenizer_of_the_job);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
