/* check_recovery.c - the recovery machine against hooks that follow a script.
 *
 * A script is one letter for each call of a hook that can fail: o = ok, m = out of device memory,
 * l = device lost; past its end everything is ok. The hooks write one letter each into a trace:
 * A attempt, F facts, D drain, X discard, E event, P replan, R reserve. */
#include "oom_recovery/recovery.h"

#include <check.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#define MAX_TRACE  512
#define MAX_EVENTS 32

struct fake {
    const char *script;
    char trace[MAX_TRACE];
    size_t calls;
    struct pl_oom_event events[MAX_EVENTS];
    uint32_t n_events, planned_for, failures;
    bool no_facts;   /* the facts hook knows nothing */
    pl_err other;    /* the error of 'l'; DEVICE_LOST unless a test sets it */
    const char *say; /* nullable: message of every failing hook */
};

static void note(struct fake *f, char c) {
    if (f->calls < MAX_TRACE - 1) f->trace[f->calls] = c;
    f->calls++;
}

static pl_err answer(struct fake *f, char call, struct pl_diag *d) {
    note(f, call);
    char c = *f->script ? *f->script++ : 'o';
    if (c == 'o') return PL_ERR_OK;
    pl_err err = c == 'm' ? PL_ERR_DEVICE_OOM : f->other ? f->other : PL_ERR_DEVICE_LOST;
    f->failures++;
    return f->say ? pl_diag_set(d, err, "%s %u", f->say, f->failures) : err;
}

static pl_err fake_attempt(void *ctx, struct pl_diag *d) {
    return answer(ctx, 'A', d);
}
static pl_err fake_drain(void *ctx, struct pl_diag *d) {
    return answer(ctx, 'D', d);
}
static pl_err fake_reserve(void *ctx, struct pl_diag *d) {
    return answer(ctx, 'R', d);
}
static void fake_discard(void *ctx) {
    note(ctx, 'X');
}

static pl_err fake_replan(void *ctx, uint32_t batch_size, struct pl_diag *d) {
    struct fake *f = ctx;
    f->planned_for = batch_size;
    return answer(f, 'P', d);
}

/* Other figures at every failure, as with a neighbour that comes and goes. */
static void fake_facts(void *ctx, struct pl_oom_facts *out) {
    struct fake *f = ctx;
    note(f, 'F');
    if (f->no_facts) return;
    *out = (struct pl_oom_facts){.what = "batch arena",
                                 .requested_bytes = 1000u * f->failures,
                                 .free_bytes = 100u * f->failures};
}

static void fake_event(void *ctx, const struct pl_oom_event *e) {
    struct fake *f = ctx;
    note(f, 'E');
    if (f->n_events < MAX_EVENTS) f->events[f->n_events++] = *e;
}

static struct pl_oom_hooks hooks_of(struct fake *f) {
    return (struct pl_oom_hooks){f,           fake_attempt, fake_drain, fake_discard,
                                 fake_replan, fake_reserve, fake_facts, fake_event};
}

/* One step with a new script; the trace starts again. */
static pl_err run_step(struct pl_oom *m, struct fake *f, const char *script, uint64_t step,
                       struct pl_diag *d) {
    struct pl_oom_hooks h = hooks_of(f);
    f->script = script;
    f->calls = 0;
    memset(f->trace, 0, sizeof f->trace);
    return pl_oom_run(m, &h, step, false, d);
}

/* --- sequences ------------------------------------------------------------------------------- */

#define ROUND "FDXEPR" /* from a failure to the next reservation */

static const struct {
    bool enabled;
    uint32_t max_retries, batch;
    bool reserve_first;
    const char *script, *trace;
    pl_err err;
    enum pl_oom_state state;
    uint32_t batch_after;
} walks[] = {
    {true, 3, 8, false, "", "A", PL_ERR_OK, PL_OOM_DONE, 8},
    {true, 3, 8, true, "", "RA", PL_ERR_OK, PL_OOM_DONE, 8},
    /* drained, discarded and planned again before the same samples are tried again */
    {true, 3, 8, false, "m", "A" ROUND "A", PL_ERR_OK, PL_OOM_DONE, 4},
    {true, 3, 8, false, "mooom", "A" ROUND "A" ROUND "A", PL_ERR_OK, PL_OOM_DONE, 2},
    /* at most three halvings is at most eight times smaller: 16 -> 2 */
    {true, 3, 16, false, "mooomooomooo", "A" ROUND "A" ROUND "A" ROUND "A", PL_ERR_OK, PL_OOM_DONE,
     2},
    {true, 3, 16, false, "mooomooomooom", "A" ROUND "A" ROUND "A" ROUND "AF", PL_ERR_GPU_OOM,
     PL_OOM_EXHAUSTED, 2},
    /* odd sizes round up, and one sample is the floor */
    {true, 9, 3, false, "mooomooom", "A" ROUND "A" ROUND "AF", PL_ERR_GPU_OOM, PL_OOM_EXHAUSTED, 1},
    {true, 3, 1, false, "m", "AF", PL_ERR_GPU_OOM, PL_OOM_EXHAUSTED, 1},
    {false, 3, 8, false, "m", "AF", PL_ERR_GPU_OOM, PL_OOM_EXHAUSTED, 8},
    {true, 0, 8, false, "m", "AF", PL_ERR_GPU_OOM, PL_OOM_EXHAUSTED, 8},
    /* out of memory again while the smaller arena is reserved */
    {true, 3, 8, false, "moom", "A" ROUND ROUND "A", PL_ERR_OK, PL_OOM_DONE, 2},
    {true, 1, 8, false, "moom", "A" ROUND "F", PL_ERR_GPU_OOM, PL_OOM_EXHAUSTED, 4},
    {true, 3, 8, true, "m", "R" ROUND "A", PL_ERR_OK, PL_OOM_DONE, 4},
    {true, 3, 8, true, "moomoomoom", "R" ROUND ROUND ROUND "F", PL_ERR_GPU_OOM, PL_OOM_EXHAUSTED,
     1},
    /* anything else is never tried again, wherever it happens */
    {true, 3, 8, false, "l", "A", PL_ERR_DEVICE_LOST, PL_OOM_FAILED, 8},
    {true, 3, 8, true, "l", "R", PL_ERR_DEVICE_LOST, PL_OOM_FAILED, 8},
    {true, 3, 8, false, "ml", "AFD", PL_ERR_DEVICE_LOST, PL_OOM_FAILED, 8},
    {true, 3, 8, false, "mol", "AFDXEP", PL_ERR_DEVICE_LOST, PL_OOM_FAILED, 4},
    {true, 3, 8, false, "mool", "A" ROUND, PL_ERR_DEVICE_LOST, PL_OOM_FAILED, 4},
    {true, 3, 8, false, "moool", "A" ROUND "A", PL_ERR_DEVICE_LOST, PL_OOM_FAILED, 4},
    /* a device that cannot be drained, and a plan that cannot be made, are not cured by halving */
    {true, 3, 8, false, "mm", "AFD", PL_ERR_DEVICE_OOM, PL_OOM_FAILED, 8},
    {true, 3, 8, false, "mom", "AFDXEP", PL_ERR_DEVICE_OOM, PL_OOM_FAILED, 4},
};

START_TEST(a_walk_calls_its_hooks_in_the_order_of_the_diagram) {
    struct fake f = {.script = walks[_i].script};
    struct pl_oom_hooks h = hooks_of(&f);
    struct pl_oom m;
    pl_oom_init(&m, walks[_i].enabled, walks[_i].max_retries, walks[_i].batch, 16);
    struct pl_diag d = {0};
    pl_err err = pl_oom_run(&m, &h, 1, walks[_i].reserve_first, &d);
    ck_assert_str_eq(f.trace, walks[_i].trace);
    ck_assert_str_eq(pl_err_code(err), pl_err_code(walks[_i].err));
    ck_assert_int_eq(d.err, walks[_i].err);
    ck_assert_int_eq(m.state, walks[_i].state);
    ck_assert_uint_eq(m.batch_size, walks[_i].batch_after);
}
END_TEST

/* O4: what is tried is to bring a state back, and only with a smaller micro-batch. */
START_TEST(a_lost_commit_takes_the_way_from_its_failure_on) {
    static const struct {
        uint32_t batch;
        const char *script, *trace;
        pl_err err;
        uint32_t batch_after;
    } ways[] = {
        {8, "", ROUND "A", PL_ERR_OK, 4},
        {8, "oom", ROUND ROUND "A", PL_ERR_OK, 2},
        {1, "", "F", PL_ERR_GPU_OOM, 1},
        {8, "oool", ROUND "A", PL_ERR_DEVICE_LOST, 4},
    };
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        struct fake f = {.script = ways[i].script};
        struct pl_oom_hooks h = hooks_of(&f);
        struct pl_oom m;
        pl_oom_init(&m, true, 3, ways[i].batch, 16);
        struct pl_diag d = {0};
        ck_assert_int_eq(pl_oom_go_back(&m, &h, 5, &d), ways[i].err);
        ck_assert_str_eq(f.trace, ways[i].trace);
        ck_assert_int_eq(d.err, ways[i].err);
        ck_assert_uint_eq(m.batch_size, ways[i].batch_after);
        if (f.n_events) ck_assert_uint_eq(f.events[0].step, 5);
    }
}
END_TEST

START_TEST(only_device_oom_is_ever_tried_again) {
    if (_i == PL_ERR_OK || _i == PL_ERR_DEVICE_OOM) return;
    struct fake f = {.other = (pl_err)_i};
    struct pl_oom m;
    pl_oom_init(&m, true, 3, 8, 8);
    ck_assert_int_eq(run_step(&m, &f, "l", 1, NULL), _i);
    ck_assert_str_eq(f.trace, "A");
    ck_assert_uint_eq(m.retries, 0);
}
END_TEST

/* --- the run as a whole ---------------------------------------------------------------------- */

/* O2 */
START_TEST(halvings_are_counted_over_the_run_not_the_step) {
    struct fake f = {0};
    struct pl_oom m;
    pl_oom_init(&m, true, 3, 16, 16);
    for (uint64_t step = 1; step <= 3; step++)
        ck_assert_int_eq(run_step(&m, &f, "m", step, NULL), PL_ERR_OK);
    ck_assert_uint_eq(m.batch_size, 2);
    ck_assert_int_eq(run_step(&m, &f, "o", 4, NULL), PL_ERR_OK);
    ck_assert_int_eq(run_step(&m, &f, "m", 5, NULL), PL_ERR_GPU_OOM);
    ck_assert_str_eq(f.trace, "AF");
    ck_assert_uint_eq(m.retries, 3);
}
END_TEST

START_TEST(the_smaller_batch_stays_for_the_steps_that_follow) {
    struct fake f = {0};
    struct pl_oom m;
    pl_oom_init(&m, true, 3, 8, 8);
    ck_assert_int_eq(run_step(&m, &f, "m", 1, NULL), PL_ERR_OK);
    ck_assert_int_eq(run_step(&m, &f, "", 2, NULL), PL_ERR_OK);
    ck_assert_str_eq(f.trace, "A");
    ck_assert_uint_eq(m.batch_size, 4);
    ck_assert_uint_eq(f.planned_for, 4);
}
END_TEST

START_TEST(events_number_the_halvings_of_the_run) {
    static const uint32_t sizes[] = {7, 4, 2, 1};
    static const uint64_t accumulations[] = {2, 4, 7};
    struct fake f = {0};
    struct pl_oom m;
    pl_oom_init(&m, true, 3, sizes[0], 7);
    ck_assert_int_eq(run_step(&m, &f, "mooom", 11, NULL), PL_ERR_OK);
    ck_assert_int_eq(run_step(&m, &f, "m", 12, NULL), PL_ERR_OK);
    ck_assert_uint_eq(f.n_events, 3);
    for (uint32_t i = 0; i < 3; i++) {
        const struct pl_oom_event *e = &f.events[i];
        ck_assert_uint_eq(e->step, i < 2 ? 11 : 12);
        ck_assert_uint_eq(e->attempt, i + 1);
        ck_assert_uint_eq(e->old_batch_size, sizes[i]);
        ck_assert_uint_eq(e->new_batch_size, sizes[i + 1]);
        ck_assert_uint_eq(e->gradient_accumulation_steps, accumulations[i]);
        ck_assert_str_eq(e->facts.what, "batch arena");
        ck_assert_uint_eq(e->facts.requested_bytes, 1000 * (i + 1));
        ck_assert_uint_eq(e->facts.free_bytes, 100 * (i + 1));
    }
}
END_TEST

/* O3 */
START_TEST(the_micro_batches_of_a_step_cover_its_samples_exactly) {
    for (uint64_t global = 1; global <= 70; global++) {
        for (uint32_t batch = 70;; batch = pl_oom_halve(batch)) {
            uint64_t n = pl_oom_accumulation(global, batch);
            ck_assert_msg(n * batch >= global && (n - 1) * batch < global, "%llu by %u",
                          (unsigned long long)global, batch);
            if (batch == 1) break;
        }
    }
}
END_TEST

/* O3 */
START_TEST(halving_rounds_up_and_stops_at_one) {
    static const uint32_t halves[][2] = {{1, 1}, {2, 1},  {3, 2},
                                         {5, 3}, {16, 8}, {UINT32_MAX, 1u << 31}};
    for (size_t i = 0; i < sizeof halves / sizeof *halves; i++)
        ck_assert_uint_eq(pl_oom_halve(halves[i][0]), halves[i][1]);
}
END_TEST

/* --- reports --------------------------------------------------------------------------------- */

static const struct {
    bool enabled;
    uint32_t max_retries, batch;
    const char *script;
    const char *said[4], *hint;
} refusals[] = {
    {true,
     1,
     8,
     "mooom",
     {"batch arena", "(2000 bytes)", "(200 bytes) free", "halvings done: 1 of 1"},
     "oom_max_retries"},
    {false,
     3,
     8,
     "m",
     {"oom_recovery is off", "(1000 bytes)", "(100 bytes) free", "halvings done: 0 of 3"},
     "oom_recovery: true"},
    {true,
     3,
     2,
     "mooom",
     {"one sample", "micro-batch 1", "(2000 bytes)", "halvings done: 1 of 3"},
     "lower max_seq_length, or change what is marked [!] above"},
};

START_TEST(exhaustion_says_what_was_asked_what_was_free_and_what_was_tried) {
    struct fake f = {.say = "of the hook"};
    struct pl_oom m;
    pl_oom_init(&m, refusals[_i].enabled, refusals[_i].max_retries, refusals[_i].batch, 8);
    struct pl_diag d = {0};
    ck_assert_int_eq(run_step(&m, &f, refusals[_i].script, 3, &d), PL_ERR_GPU_OOM);
    ck_assert_str_eq(pl_err_code(d.err), "RUNTIME_GPU_OOM");
    ck_assert_ptr_nonnull(strstr(d.message, "step 3"));
    for (size_t i = 0; i < 4; i++)
        ck_assert_msg(strstr(d.message, refusals[_i].said[i]), "'%s' lacks '%s'", d.message,
                      refusals[_i].said[i]);
    ck_assert_msg(strstr(d.hint, refusals[_i].hint), "%s", d.hint);
}
END_TEST

START_TEST(an_oom_that_was_survived_leaves_no_trace_in_the_diag) {
    struct fake f = {.say = "failure"};
    struct pl_oom m;
    pl_oom_init(&m, true, 3, 8, 8);
    struct pl_diag d = {0};
    ck_assert_int_eq(run_step(&m, &f, "mooom", 1, &d), PL_ERR_OK);
    ck_assert_int_eq(d.err, PL_ERR_OK);
    ck_assert_str_eq(d.message, "");
    ck_assert_int_eq(run_step(&m, &f, "moool", 2, &d), PL_ERR_DEVICE_LOST);
    ck_assert_int_eq(d.err, PL_ERR_DEVICE_LOST);
    ck_assert_str_eq(d.message, "failure 4");
}
END_TEST

START_TEST(a_failure_without_words_still_gets_a_message) {
    struct fake f = {0};
    struct pl_oom m;
    pl_oom_init(&m, true, 3, 8, 8);
    struct pl_diag d = {0};
    ck_assert_int_eq(run_step(&m, &f, "l", 9, &d), PL_ERR_DEVICE_LOST);
    ck_assert_ptr_nonnull(strstr(d.message, "step 9"));
}
END_TEST

START_TEST(facts_that_are_not_known_are_not_those_of_an_older_failure) {
    struct fake f = {0};
    struct pl_oom m;
    pl_oom_init(&m, true, 1, 8, 8);
    ck_assert_int_eq(run_step(&m, &f, "m", 1, NULL), PL_ERR_OK);
    f.no_facts = true;
    struct pl_diag d = {0};
    ck_assert_int_eq(run_step(&m, &f, "m", 2, &d), PL_ERR_GPU_OOM);
    ck_assert_uint_eq(m.last.requested_bytes, 0);
    ck_assert_ptr_nonnull(strstr(d.message, "step 2: device memory asked for 0 B"));
}
END_TEST

START_TEST(a_batch_of_nothing_is_caught_by_an_assert) {
    struct fake f = {0};
    struct pl_oom m;
    pl_oom_init(&m, true, 3, 0, 8);
    (void)run_step(&m, &f, "", 1, NULL);
}
END_TEST

/* --- no allocation --------------------------------------------------------------------------- */

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t n, size_t bytes);
void *__real_realloc(void *p, size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t n, size_t bytes);
void *__wrap_realloc(void *p, size_t bytes);

/* volatile: the compiler knows malloc and believes that it cannot look at these */
static volatile bool counting;
static volatile unsigned allocations;

void *__wrap_malloc(size_t bytes) {
    allocations += counting;
    return __real_malloc(bytes);
}

void *__wrap_calloc(size_t n, size_t bytes) {
    allocations += counting;
    return __real_calloc(n, bytes);
}

void *__wrap_realloc(void *p, size_t bytes) {
    allocations += counting;
    return __real_realloc(p, bytes);
}

START_TEST(recovery_allocates_nothing_of_its_own) {
    static const char *const scripts[] = {"m", "moom", "mooomooomooom", "l", "mol"};
    counting = true;
    void *volatile kept = malloc(1);
    free(kept);
    counting = false;
    ck_assert_uint_eq(allocations, 1); /* the counter counts */
    for (size_t i = 0; i < sizeof scripts / sizeof *scripts; i++) {
        struct fake f = {0};
        struct pl_oom m;
        struct pl_diag d = {0};
        allocations = 0;
        counting = true;
        pl_oom_init(&m, true, 3, 16, 16);
        (void)run_step(&m, &f, scripts[i], 1, &d);
        counting = false;
        ck_assert_uint_eq(allocations, 0);
    }
}
END_TEST

/* --- every short script ---------------------------------------------------------------------- */

/* Returns the calls that may precede a call; '^' is the start. */
static const char *predecessors(char call, bool reserve_first) {
    switch (call) {
    case 'A':
        return reserve_first ? "R" : "^R";
    case 'F':
        return "AR";
    case 'D':
        return "F";
    case 'X':
        return "D";
    case 'E':
        return "X";
    case 'P':
        return "E";
    case 'R':
        return reserve_first ? "^P" : "P";
    default:
        return "";
    }
}

/* NULL when the walk kept every promise, else the promise it broke. */
static const char *broken_promise(const struct fake *f, const struct pl_oom *m, pl_err err,
                                  bool reserve_first, const char *script) {
    char before = '^';
    if (f->calls > 7u * (m->max_retries + 1u) + 2u) return "a bounded number of steps";
    for (const char *t = f->trace; *t; before = *t++) {
        if (!strchr(predecessors(*t, reserve_first), before)) return "the order of the diagram";
        if (!strchr("ADPR", *t)) continue;
        char result = *script ? *script++ : 'o';
        if (result == 'l' && t[1]) return "nothing after a device was lost";
        if (*t == 'A' && result == 'o' && t[1]) return "nothing after success"; /* O1 */
    }
    if (f->n_events != m->retries || m->retries > m->max_retries) return "one event a halving";
    if (f->n_events && f->events[f->n_events - 1].new_batch_size != m->batch_size)
        return "the event names the new size";
    if (err == PL_ERR_OK)
        return m->state == PL_OOM_DONE && before == 'A' ? NULL : "done means tried";
    if (err == PL_ERR_GPU_OOM)
        return m->state == PL_OOM_EXHAUSTED && before == 'F' ? NULL : "exhausted after the facts";
    if (m->state != PL_OOM_FAILED) return "an error ends in failed";
    bool told = err == PL_ERR_DEVICE_LOST || (err == PL_ERR_DEVICE_OOM && strchr("DP", before));
    return told ? NULL : "the error of the hook";
}

#define LONGEST_SCRIPT 8

/* _i counts (batch size, retries, entry). */
START_TEST(every_short_script_ends_and_keeps_every_promise) {
    static const uint32_t batches[] = {1, 2, 3, 16};
    uint32_t batch = batches[_i % 4], max_retries = (uint32_t)(_i / 4 % 4);
    bool reserve_first = _i / 16;
    uint32_t n_scripts = 1;
    for (int length = 0; length <= LONGEST_SCRIPT; length++, n_scripts *= 3) {
        for (uint32_t code = 0; code < n_scripts; code++) {
            char script[LONGEST_SCRIPT + 1] = "";
            uint32_t rest = code;
            for (int i = 0; i < length; i++, rest /= 3)
                script[i] = "oml"[rest % 3];
            struct fake f = {.script = script};
            struct pl_oom_hooks h = hooks_of(&f);
            struct pl_oom m;
            pl_oom_init(&m, true, max_retries, batch, 16);
            pl_err err = pl_oom_run(&m, &h, 1, reserve_first, NULL);
            const char *broken = broken_promise(&f, &m, err, reserve_first, script);
            if (broken) ck_abort_msg("%s: %s -> %s", broken, script, f.trace);
        }
    }
}
END_TEST

int main(void) {
    Suite *s = suite_create("oom.recovery");
    TCase *tc = tcase_create("walks");
    tcase_add_loop_test(tc, a_walk_calls_its_hooks_in_the_order_of_the_diagram, 0,
                        (int)(sizeof walks / sizeof *walks));
    tcase_add_test(tc, a_lost_commit_takes_the_way_from_its_failure_on);
    tcase_add_loop_test(tc, only_device_oom_is_ever_tried_again, 0, PL_ERR_COUNT);
    suite_add_tcase(s, tc);
    tc = tcase_create("runs");
    tcase_add_test(tc, halvings_are_counted_over_the_run_not_the_step);
    tcase_add_test(tc, the_smaller_batch_stays_for_the_steps_that_follow);
    tcase_add_test(tc, events_number_the_halvings_of_the_run);
    tcase_add_test(tc, the_micro_batches_of_a_step_cover_its_samples_exactly);
    tcase_add_test(tc, halving_rounds_up_and_stops_at_one);
    suite_add_tcase(s, tc);
    tc = tcase_create("reports");
    tcase_add_loop_test(tc, exhaustion_says_what_was_asked_what_was_free_and_what_was_tried, 0,
                        (int)(sizeof refusals / sizeof *refusals));
    tcase_add_test(tc, an_oom_that_was_survived_leaves_no_trace_in_the_diag);
    tcase_add_test(tc, a_failure_without_words_still_gets_a_message);
    tcase_add_test(tc, facts_that_are_not_known_are_not_those_of_an_older_failure);
    tcase_add_test_raise_signal(tc, a_batch_of_nothing_is_caught_by_an_assert, SIGABRT);
    tcase_add_test(tc, recovery_allocates_nothing_of_its_own);
    suite_add_tcase(s, tc);
    tc = tcase_create("every script");
    tcase_add_loop_test(tc, every_short_script_ends_and_keeps_every_promise, 0, 32);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
