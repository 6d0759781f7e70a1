/* check_repeats.c - which ranges of ops are written down, which are replayed, and when neither is;
 * on a device that only takes notes. */
#include "runtime/exec/repeats.h"
#include "runtime/exec/exec.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

struct pl_graph {
    uint64_t shape; /* tokens of the micro-batch it was written down for */
};

static struct {
    int runs, recorded_runs, begun, replays, forgotten;
    uint64_t last_shape; /* that a replay was of */
    bool recording;
    pl_err begin, end, replay, run;
    struct pl_graph graphs[4 * PL_EXEC_RECORDINGS];
    uint32_t n;
} device;

static pl_err record_begin(struct pl_device *dev) {
    (void)dev;
    device.begun++;
    device.recording = device.begin == PL_ERR_OK;
    return device.begin;
}

static struct pl_exec e;

static pl_err record_end(struct pl_device *dev, bool keep, struct pl_graph **out) {
    (void)dev;
    device.recording = false;
    *out = NULL;
    if (!keep || device.end != PL_ERR_OK) return device.end;
    *out = &device.graphs[device.n++];
    (*out)->shape = e.batch.n_tokens;
    return PL_ERR_OK;
}

static pl_err replay(struct pl_device *dev, const struct pl_graph *g) {
    (void)dev;
    device.replays++;
    device.last_shape = g->shape;
    return device.replay;
}

static void forget(struct pl_device *dev, struct pl_graph **g) {
    (void)dev;
    device.forgotten++;
    *g = NULL;
}

static const struct pl_device_ops ops = {
    .record_begin = record_begin, .record_end = record_end, .replay = replay, .forget = forget};

static pl_err run_ops(struct pl_exec *x, uint32_t first, uint32_t n, struct pl_diag *d) {
    (void)x, (void)first, (void)n, (void)d;
    *(device.recording ? &device.recorded_runs : &device.runs) += 1;
    return device.recording ? device.run : PL_ERR_OK;
}

enum { OPS = 64 };
static struct pl_op list[OPS];
static struct pl_program program = {.ops = list, .n_ops = OPS};
static struct pl_plan plan = {.program = &program};
static struct pl_device dev = {.ops = &ops};
static uint32_t patches_before[OPS + 1];

/* Every op has rows of the micro-batch. */
static void follow_everywhere(void) {
    for (uint32_t i = 0; i <= OPS; i++)
        patches_before[i] = i;
}

static void set_up(void) {
    memset(&device, 0, sizeof device);
    memset(list, 0, sizeof list);
    dev.graphs = (struct pl_graph_books){.limit_bytes = 1};
    follow_everywhere();
    static struct pl_exec_shape shapes[PL_EXEC_SHAPES];
    memset(shapes, 0, sizeof shapes);
    e = (struct pl_exec){.plan = &plan,
                         .device = &dev,
                         .host = &dev,
                         .patches_before = patches_before,
                         .shapes = shapes};
}

/* Ops [first, first + 8) for a micro-batch of so many tokens. */
static void run_range(uint32_t first, uint64_t tokens, bool opens) {
    e.batch =
        (struct pl_batch){.n_tokens = tokens, .n_seqs = 1, .n_targets = tokens - 1, .first = opens};
    ck_assert_int_eq(pl_exec_replay(&e, first, 8, run_ops, NULL), PL_ERR_OK);
}

static void run(uint64_t tokens) {
    run_range(0, tokens, true);
}

START_TEST(the_second_time_is_written_down_and_the_third_replayed) {
    run(10);
    ck_assert_int_eq(device.runs, 1);
    run(10);
    ck_assert_int_eq(device.runs, 1);
    ck_assert_int_eq(device.recorded_runs, 1);
    ck_assert_int_eq(device.replays, 1);
    run(10);
    ck_assert_int_eq(device.recorded_runs, 1);
    ck_assert_int_eq(device.replays, 2);
    ck_assert_uint_eq(dev.graphs.replays, 2);
    ck_assert(e.pending);
}
END_TEST

/* The key has everything that grids and products depend on, and whether gradients are
 * overwritten. */
START_TEST(every_part_of_the_key_tells_ranges_apart) {
    run(10), run(10);
    run(11);
    run_range(8, 10, true);
    run_range(0, 10, false);
    ck_assert_int_eq(device.replays, 1);
    ck_assert_int_eq(device.runs, 4);
    e.batch.n_seqs = 2, e.batch.first = true;
    ck_assert_int_eq(pl_exec_replay(&e, 0, 8, run_ops, NULL), PL_ERR_OK);
    e.batch.n_seqs = 1, e.batch.n_targets = 3;
    ck_assert_int_eq(pl_exec_replay(&e, 0, 8, run_ops, NULL), PL_ERR_OK);
    ck_assert_int_eq(pl_exec_replay(&e, 0, 9, run_ops, NULL), PL_ERR_OK);
    ck_assert_int_eq(device.replays, 1);
    ck_assert_int_eq(device.runs, 7);
}
END_TEST

/* A range of norm or update, after the micro-batches that a ragged data set has. */
START_TEST(counts_are_no_part_of_the_key_of_a_range_without_their_rows) {
    for (uint32_t i = 9; i <= OPS; i++)
        patches_before[i] = patches_before[8];
    run_range(8, 10, true), run_range(8, 11, true), run_range(8, 12, true);
    ck_assert_int_eq(device.runs, 1);
    ck_assert_int_eq(device.begun, 1);
    ck_assert_int_eq(device.replays, 2);
    run_range(7, 10, true), run_range(7, 11, true);
    ck_assert_int_eq(device.runs, 3);
}
END_TEST

START_TEST(facts_are_no_part_of_the_key) {
    run(10), run(10);
    e.batch.step = 7, e.batch.learning_rate = 3, e.batch.loss_scale = 2, e.batch.max_len = 9;
    ck_assert_int_eq(pl_exec_replay(&e, 0, 8, run_ops, NULL), PL_ERR_OK);
    ck_assert_int_eq(device.replays, 2);
}
END_TEST

/* G3. */
START_TEST(the_least_recently_used_gives_way) {
    for (uint64_t t = 1; t <= PL_GRAPHS_MOST; t++)
        run(t), run(t);
    ck_assert_int_eq(device.forgotten, 0);
    run(1);
    run(100), run(100);
    ck_assert_int_eq(device.forgotten, 1);
    int replays = device.replays, begun = device.begun;
    run(1);
    ck_assert_int_eq(device.replays, replays + 1);
    ck_assert_uint_eq(device.last_shape, 1);
    run(2); /* it had to go, and comes back */
    ck_assert_int_eq(device.begun, begun + 1);
}
END_TEST

/* G2. */
START_TEST(recordings_end_until_the_next_binding) {
    for (uint64_t t = 1; t <= 2 * PL_EXEC_RECORDINGS; t++)
        run(t), run(t);
    ck_assert_int_eq(device.begun, PL_EXEC_RECORDINGS);
    ck_assert_int_eq(device.runs + device.replays, 4 * PL_EXEC_RECORDINGS);
    pl_exec_forget(&e);
    ck_assert_int_eq(device.forgotten, PL_EXEC_RECORDINGS);
    run(1), run(1);
    ck_assert_int_eq(device.begun, PL_EXEC_RECORDINGS + 1);
}
END_TEST

/* Other arenas may lie elsewhere, and libraries choose anew: nothing is left of what was known. */
START_TEST(a_binding_forgets_every_range) {
    static struct pl_call calls[OPS];
    const struct pl_arena none = {0};
    e.calls = calls;
    run(10), run(10);
    run(20);
    ck_assert_int_eq(pl_exec_bind(&e, &none, &none, NULL), PL_ERR_OK);
    follow_everywhere();
    ck_assert_int_eq(device.forgotten, 1);
    run(10), run(20);
    ck_assert_int_eq(device.runs, 4);
    ck_assert_int_eq(device.begun, 1);
    ck_assert_int_eq(device.replays, 1);
    run(10), run(20);
    ck_assert_int_eq(device.begun, 3);
}
END_TEST

START_TEST(a_range_with_an_op_of_the_host_is_never_written_down) {
    list[5].host = true;
    run(10), run(10), run(10);
    run_range(8, 10, true), run_range(8, 10, true);
    ck_assert_int_eq(device.runs, 3 + 1);
    ck_assert_int_eq(device.begun, 1);
}
END_TEST

START_TEST(without_a_grant_nothing_is_written_down) {
    dev.graphs.limit_bytes = 0;
    run(10), run(10), run(10);
    ck_assert_int_eq(device.runs, 3);
    ck_assert_int_eq(device.begun, 0);
}
END_TEST

static const struct {
    pl_err *which, err;
    bool ends;
} failures[] = {{&device.begin, PL_ERR_DEVICE_LOST, true},
                {&device.end, PL_ERR_DEVICE_LOST, true},
                {&device.end, PL_ERR_DEVICE_OOM, false},
                {&device.run, PL_ERR_DEVICE_OOM, true},
                {&device.replay, PL_ERR_PLAN_BROKEN, true}};

/* G2. */
START_TEST(what_fails_is_run_and_not_tried_again) {
    *failures[_i].which = failures[_i].err;
    run(10), run(10), run(10);
    ck_assert_int_eq(device.runs, 3);
    ck_assert_int_eq(device.begun, 1);
    ck_assert(!device.recording);
    ck_assert_int_eq(dev.graphs.off != NULL, failures[_i].ends);
    run(20), run(20);
    ck_assert_int_eq(device.runs, 5);
    ck_assert_int_eq(device.begun, failures[_i].ends ? 1 : 2);
}
END_TEST

int main(void) {
    Suite *s = suite_create("exec.repeats");
    TCase *tc = tcase_create("ranges");
    tcase_add_checked_fixture(tc, set_up, NULL);
    tcase_add_test(tc, the_second_time_is_written_down_and_the_third_replayed);
    tcase_add_test(tc, every_part_of_the_key_tells_ranges_apart);
    tcase_add_test(tc, counts_are_no_part_of_the_key_of_a_range_without_their_rows);
    tcase_add_test(tc, facts_are_no_part_of_the_key);
    tcase_add_test(tc, the_least_recently_used_gives_way);
    tcase_add_test(tc, recordings_end_until_the_next_binding);
    tcase_add_test(tc, a_binding_forgets_every_range);
    tcase_add_test(tc, a_range_with_an_op_of_the_host_is_never_written_down);
    tcase_add_test(tc, without_a_grant_nothing_is_written_down);
    tcase_add_loop_test(tc, what_fails_is_run_and_not_tried_again, 0,
                        (int)(sizeof failures / sizeof *failures));
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
