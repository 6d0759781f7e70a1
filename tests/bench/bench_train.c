/* bench_train.c - training from the outside: rate, memory, time to the first step. JSON.
 *
 * Usage: PLIMSOLL=path/to/plimsoll bench_train [--only NAME] [--steps N] [--threads N] [key=value]
 * Runs the real binary on generated files. Rates are medians over the steps after the fifth. */
#include "tests/bench/machine.h"
#include "tests/bench/shapes.h"
#include "tests/support/child.h"
#include "tests/support/joblog.h"
#include "tests/support/scratch.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define WARM_UP       5
#define MAX_STEPS     1000
#define LIMIT_SECONDS 600.0

static struct {
    const char *only, *override;
    uint64_t steps;
    uint32_t threads;
} options = {.steps = 25, .threads = 2};

static double first_step_seconds(struct child *c, double started) {
    char line[4096];
    double first = -1;
    while (fgets(line, sizeof line, c->out))
        if (first < 0 && strstr(line, "\"event\":\"step\"")) first = seconds_now() - started;
    return first;
}

static double median_rate(const json_t *log) {
    double rates[MAX_STEPS];
    int n = 0;
    for (uint64_t step = WARM_UP + 1; step <= options.steps; step++)
        rates[n++] = joblog_number(joblog_step(log, step), "tokens_per_second");
    return median(rates, n);
}

static bool wanted(int i) {
    return !options.only || strcmp(options.only, shapes[i].name) == 0;
}

static bool is_last(int i) {
    while (++i < n_shapes)
        if (wanted(i)) return false;
    return true;
}

static void report(int i, const char *out, double first, const struct outcome *o) {
    json_t *log = joblog_read(out);
    const json_t *summary = joblog_event(log, "summary", 0);
    double rate = median_rate(log);
    printf("  {\"shape\":\"%s\",\"steps\":%llu,\"tokens_per_second\":%.1f,\"gflops\":%.1f,"
           "\"peak_rss_bytes\":%llu,\"planned_bytes\":%.0f,\"first_step_seconds\":%.3f,"
           "\"first_loss\":%.6f,\"last_loss\":%.6f}%s\n",
           shapes[i].name, (unsigned long long)options.steps, rate,
           1e-9 * rate * shape_flops_per_token(&shapes[i]), (unsigned long long)o->peak_bytes,
           joblog_number(summary, "planned_peak_bytes"), first,
           joblog_number(joblog_step(log, 1), "loss"),
           joblog_number(joblog_step(log, options.steps), "loss"), is_last(i) ? "" : ",");
    json_decref(log);
}

/* A test only so that the helpers can report what goes wrong. */
START_TEST(measure) {
    char dir[SCRATCH_PATH];
    if (!wanted(_i)) return;
    scratch_make(dir);
    shape_write(&shapes[_i], dir, options.steps, options.threads);
    double started = seconds_now();
    struct child c = plimsoll_start(
        dir, (const char *[]){"train", "run.yaml", "--json", options.override, NULL}, true);
    double first = first_step_seconds(&c, started);
    struct outcome o = child_wait(&c, LIMIT_SECONDS);
    ck_assert_msg(o.status == 0, "exit %d: %s", o.status, o.err);
    report(_i, in_dir(dir, "out"), first, &o);
    outcome_finish(&o);
    scratch_remove(dir);
}
END_TEST

static bool read_options(int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : NULL;
        if (strchr(argv[i], '='))
            options.override = argv[i];
        else if (!value)
            return false;
        else if (strcmp(argv[i], "--only") == 0)
            options.only = argv[++i];
        else if (strcmp(argv[i], "--steps") == 0)
            options.steps = strtoull(argv[++i], NULL, 10);
        else if (strcmp(argv[i], "--threads") == 0)
            options.threads = (uint32_t)strtoul(argv[++i], NULL, 10);
        else
            return false;
    }
    return options.threads > 0 && options.steps > WARM_UP && options.steps <= MAX_STEPS &&
           (!options.only || shape_find(options.only));
}

int main(int argc, char **argv) {
    if (!read_options(argc, argv)) {
        fprintf(stderr,
                "usage: bench_train [--only NAME] [--steps 6..%d] [--threads N] "
                "[key=value]\n",
                MAX_STEPS);
        return 2;
    }
    printf("{\"threads\":%u,\"sgemm_2048_gflops\":%.1f,\"runs\":[\n", options.threads,
           machine_sgemm_gflops(options.threads));
    fflush(stdout);
    Suite *s = suite_create("bench.train");
    TCase *tc = tcase_create("shapes");
    tcase_add_loop_test(tc, measure, 0, n_shapes);
    suite_add_tcase(s, tc);
    int failed = run_measurements(s, "bench_train");
    printf("]}\n");
    return failed != 0;
}
