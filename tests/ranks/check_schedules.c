/* check_schedules.c - random faults of random ranks: the others end in time and by name, and what
 * resumes ends with the bits of a run that nothing disturbed.
 *
 * With `rank_order: false` bits depend on the number of ranks, which then is one all along.
 * PLIMSOLL_SCHEDULES (8, every kind of fault once) schedules are drawn from
 * PLIMSOLL_SCHEDULES_SEED (1), from the number PLIMSOLL_SCHEDULES_FIRST (0) on. */
#include "runtime/checkpoint/run_state.h"
#include "runtime/checkpoint/save_set.h"
#include "tests/ranks/crew.h"
#include "tests/support/hang.h"
#include "tests/support/joblog.h"
#include "tests/support/saved.h"
#include "tests/support/tensorset.h"
#include "tests/support/tiny.h"

#include <check.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 10, BATCH = 4, LIMIT = 4 /* comm_timeout_seconds */ };

static char dir[SCRATCH_PATH], story[600];
static uint64_t state;

static unsigned number_of(const char *variable, unsigned otherwise) {
    const char *text = getenv(variable);
    return text ? (unsigned)strtoul(text, NULL, 10) : otherwise;
}

/* SplitMix64 (Steele, Lea and Flood, 2014). */
static unsigned draw(unsigned below) {
    uint64_t z = state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return (unsigned)((z ^ z >> 31) % below);
}

static void set_up(void) {
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    scratch_make(dir);
    story[0] = 0;
}

static void tear_down(void) {
    scratch_remove(dir);
}

static void tell(const char *text) {
    strncat(story, text, sizeof story - strlen(story) - 1);
}

/* --- runs ------------------------------------------------------------------------------------- */

static const struct {
    const char *mode, *more, *stem;
} jobs[] = {
    {"full", "", "model"},
    {"full", "dtype: bf16\nval_set_size: 5\neval_steps: 3\n", "model"},
    {"lora", "lora_r: 4\nlora_dropout: 0.2\n", "adapter_model"},
};

static unsigned once; /* ranks of a schedule with `rank_order: false`; 0 = it has not */

static void make(unsigned job) {
    tiny_make(dir, &(struct tiny){.mode = jobs[job].mode},
              textf("%slearning_rate: 0.01\nlr_scheduler: constant\nthreads: 1\npreflight: off\n"
                    "global_batch_size: 24\nbatch_size: %d\nrank_order: %s\nmax_steps: %d\n"
                    "gradient_checkpointing: none\nlogging_steps: 1\ncomm_timeout_seconds: %d\n",
                    jobs[job].more, BATCH, once ? "false" : "true", STEPS, LIMIT));
}

struct run {              /* a run of several ranks */
    unsigned ranks, rank; /* rank: that is disturbed */
    char devices[24], cut[24], save[24];
};

static struct run draw_run(void) {
    static const char *const cuts[] = {"none", "optimizer", "gradients", "weights"};
    struct run r = {.ranks = once ? once : 2 + draw(3)};
    r.rank = draw(r.ranks);
    snprintf(r.devices, sizeof r.devices, "devices=%u", r.ranks);
    snprintf(r.cut, sizeof r.cut, "sharding=%s", cuts[draw(once ? 2 : 4)]);
    snprintf(r.save, sizeof r.save, "save_steps=%u", 1 + draw(4));
    tell(textf("; %u ranks, %s, %s, rank %u: ", r.ranks, r.cut, r.save, r.rank));
    return r;
}

/* Runs as one rank if that has the same bits. */
static void undisturbed(const char *out, const char *fault) {
    const char *words[] = {textf("output_dir=%s", out),
                           "save_steps=1",
                           "save_total_limit=100",
                           fault,
                           textf("devices=%u", once ? once : 1),
                           NULL};
    plimsoll_train_expect(0, dir, words);
}

/* --- what a disturbed run may say ------------------------------------------------------------- */

/* Lines of the log. */
static size_t steps_done(void) {
    if (!path_exists(in_dir(dir, "out/train_log.jsonl"))) return 0;
    char *text = file_read(in_dir(dir, "out/train_log.jsonl"), NULL);
    size_t n = 0;
    for (const char *p = text; (p = strstr(p, "\"event\":\"step\"")) != NULL; p++)
        n++;
    free(text);
    return n;
}

static bool names_a_loss(const char *err) {
    return strstr(err, "error[COMM_PEER_LOST]") || strstr(err, "error[COMM_INIT]");
}

/* A rank that a signal ended is named by the command, if no rank is left to do so. */
static bool names_a_rank(const char *err) {
    return names_a_loss(err) || strstr(err, " was ended by signal ");
}

/* After the last step there may be no rank left to miss it. */
static void expect_lost(const struct outcome *o, bool may_be_done) {
    ck_assert_msg(o->status != 0 || may_be_done, "%s: exit 0: %s", story, o->err);
    ck_assert_msg(o->status == 0 || names_a_rank(o->err) || may_be_done, "%s: exit %d: %s", story,
                  o->status, o->err);
}

static void expect_stopped(const struct outcome *o, bool begun) {
    ck_assert_msg(o->status == 0 || o->status == 128 + SIGTERM, "%s: exit %d: %s", story, o->status,
                  o->err);
    if (o->status == 0 || !begun) return;
    ck_assert_msg(strstr(o->err, "RUNTIME_INTERRUPTED") && !names_a_loss(o->err), "%s: %s", story,
                  o->err);
}

/* --- signals ---------------------------------------------------------------------------------- */

enum { KILL, STOP, PAUSE, TERM };
static const int numbers[] = {
    [KILL] = SIGKILL, [STOP] = SIGSTOP, [PAUSE] = SIGSTOP, [TERM] = SIGTERM};
static const char *const names[] = {"SIGKILL", "SIGSTOP", "SIGSTOP and SIGCONT", "SIGTERM"};

/* Waits for a random time, or until soon after the next step. */
static void wait_for_the_moment(size_t had) {
    const bool steps = draw(2) && had < STEPS;
    const unsigned after = steps ? (unsigned)had + 1 + draw(STEPS - (unsigned)had) : 0;
    const unsigned us = draw(after ? 30000 : 1200000);
    if (after) tell(textf(" after step %u and", after));
    tell(textf(" after %u us", us));
    if (after) crew_wait_for_steps(dir, "out", (int)after);
    crew_pause(us / 1e6);
}

static void signal_rank(int kind) {
    const struct run r = draw_run();
    const size_t had = steps_done();
    struct child c = plimsoll_start(dir,
                                    (const char *[]){"train", "run.yaml", "-q", "--no-progress",
                                                     r.devices, r.cut, r.save, NULL},
                                    false);
    tell(names[kind]);
    const pid_t rank = crew_look_for_rank(dir, r.rank);
    if (rank) wait_for_the_moment(had);
    const bool begun = steps_done() > had;
    const double since = seconds_now();
    const bool struck = rank && kill(rank, numbers[kind]) == 0;
    if (kind == PAUSE && struck) {
        crew_pause(LIMIT / 4.0);
        kill(rank, SIGCONT);
    }
    struct outcome o = child_wait(&c, HANG_SECONDS);
    const double took = seconds_now() - since;
    ck_assert_msg(!o.timed_out, "%s: it took %.1f s", story, took);
    if (!struck || kind == PAUSE)
        ck_assert_msg(o.status == 0, "%s: exit %d: %s", story, o.status, o.err);
    else if (kind == TERM)
        expect_stopped(&o, begun);
    else
        expect_lost(&o, steps_done() == STEPS);
    outcome_finish(&o);
    for (unsigned i = 0; i < r.ranks; i++)
        ck_assert_msg(crew_try_rank(dir, i) == 0, "%s: rank %u is still there", story, i);
}

/* --- memory and disks ------------------------------------------------------------------------- */

static void inject(const char *fault, bool (*may_end)(const struct crew_outcome *, unsigned rank)) {
    const struct run r = draw_run();
    char word[64];
    snprintf(word, sizeof word, "%s", fault);
    tell(word);
    struct crew_outcome o = crew_run(dir, &(struct crew){r.ranks, r.rank, word},
                                     (const char *[]){r.devices, r.cut, r.save, "-q", NULL});
    ck_assert_msg(o.seconds < HANG_SECONDS, "%s: it took %.1f s", story, o.seconds);
    for (unsigned i = 0; i < r.ranks; i++) {
        const struct crew_end *e = &o.ranks[i];
        const bool other = i != r.rank && (strstr(e->err, "error[COMM_PEER_LOST]") ||
                                           strstr(e->err, textf("rank %u on ", r.rank)));
        ck_assert_msg(e->status == 0 || other || may_end(&o, i), "%s: rank %u: exit %d: %s", story,
                      i, e->status, e->err);
    }
    crew_finish(&o);
}

static bool lacks_memory(const struct crew_outcome *o, unsigned rank) {
    const struct crew_end *e = &o->ranks[rank];
    return e->status == 4 && (strstr(e->err, "error[RUNTIME_GPU_OOM]") ||
                              strstr(e->err, "error[RUNTIME_DEVICE_OOM]"));
}

static bool cannot_write(const struct crew_outcome *o, unsigned rank) {
    return o->ranks[rank].status == 1 && strstr(o->ranks[rank].err, "error[CHECKPOINT_WRITE]");
}

static void memory_of_step(void) {
    static const char *const often[] = {"", ",count=2", ",forever"};
    inject(textf("debug_inject=device_oom@step=%u%s", 1 + draw(STEPS), often[draw(3)]),
           lacks_memory);
}

static void memory_of_op(void) {
    inject(textf("debug_inject=device_oom@op=%u", 1 + draw(4000)), lacks_memory);
}

static void memory_of_arena(void) {
    inject(textf("debug_inject=device_oom@alloc=%u", 1 + draw(3)), lacks_memory);
}

static void disk(void) {
    inject(textf("debug_inject=disk_full@write=%u", 1 + draw(60)), cannot_write);
}

static void killed(void) {
    signal_rank(KILL);
}
static void stopped(void) {
    signal_rank(STOP);
}
static void paused(void) {
    signal_rank(PAUSE);
}
static void ended(void) {
    signal_rank(TERM);
}

static void (*const faults[])(void) = {killed, memory_of_step, ended,           memory_of_op,
                                       disk,   stopped,        memory_of_arena, paused};
enum { FAULTS = sizeof faults / sizeof *faults };

/* --- what is left ----------------------------------------------------------------------------- */

/* The first step with a smaller micro-batch than the one before, and how often it was halved. */
static void halvings(unsigned *step, unsigned *n) {
    json_t *log = joblog_read(in_dir(dir, "out"));
    *n = 0;
    for (unsigned s = 1; s <= STEPS && *n == 0; s++) {
        const json_t *line = joblog_step(log, s);
        const unsigned batch = line ? (unsigned)joblog_number(line, "batch_size") : BATCH;
        for (unsigned b = BATCH; b > batch; b /= 2)
            ++*n;
        *step = s;
    }
    json_decref(log);
}

/* The step of a checkpoint, 0 of anything else. A directory under construction, which the next
 * start removes, is none yet; one whose removal was cut short has lost its state first, and is
 * skipped by every start. */
static unsigned step_of(const char *name) {
    unsigned step;
    if (strstr(name, ".tmp") || sscanf(name, "checkpoint-%u", &step) != 1) return 0;
    return path_exists(textf("%s/out/%s/" PL_STATE_FILE, dir, name)) ? step : 0;
}

static void compare_checkpoint(const char *name, void *ref) {
    if (!step_of(name)) return;
    checkpoint_assert_same(textf("%s/%s/%s", dir, (const char *)ref, name),
                           textf("%s/out/%s", dir, name));
}

/* Every checkpoint is that of a run that nothing disturbed but the same lack of memory. */
static void compare(const char *stem) {
    char ref[] = "ref";
    unsigned step, n;
    halvings(&step, &n);
    if (n) {
        scratch_remove(in_dir(dir, ref));
        undisturbed(ref, textf("debug_inject=device_oom@step=%u,count=%u", step, n));
    }
    joblog_assert_same_steps(in_dir(dir, ref), in_dir(dir, "out"));
    weights_assert_same(in_dir(dir, ref), in_dir(dir, "out"), stem);
    dir_each(in_dir(dir, "out"), compare_checkpoint, ref);
}

static void note_newest(const char *name, void *newest) {
    const unsigned step = step_of(name);
    if (step > *(unsigned *)newest) *(unsigned *)newest = step;
}

/* The newest checkpoint is whole. Older ones may be half removed. */
static void compare_newest(void) {
    struct pl_diag d = {0};
    char ref[] = "ref";
    unsigned newest = 0;
    if (!path_exists(in_dir(dir, "out"))) return;
    ck_assert_msg(pl_save_set_settle(in_dir(dir, "out"), &d) == PL_ERR_OK, "%s", d.message);
    dir_each(in_dir(dir, "out"), note_newest, &newest);
    if (newest) compare_checkpoint(textf("checkpoint-%u", newest), ref);
}

START_TEST(a_disturbed_run_ends_with_the_same_bits) {
    const unsigned number = number_of("PLIMSOLL_SCHEDULES_FIRST", 0) + (unsigned)_i;
    const unsigned seed = number_of("PLIMSOLL_SCHEDULES_SEED", 1), fault = number % FAULTS;
    state = (uint64_t)seed << 32 | number;
    const unsigned job = draw(sizeof jobs / sizeof *jobs);
    once = draw(2) ? 2 + draw(3) : 0;
    tell(textf("schedule %u of seed %u, job %u%s", number, seed, job, once ? ", once a step" : ""));
    make(job);
    undisturbed("ref", "seed=42");
    faults[fault]();
    const bool memory = fault == 1 || fault == 3 || fault == 6;
    if (!memory) compare_newest();
    if (draw(3) == 0) signal_rank((int)draw(4));
    struct run last = draw_run();
    tell("nothing");
    if (!once && draw(3) == 0) snprintf(last.devices, sizeof last.devices, "devices=1");
    fprintf(stderr, "%s\n", story); /* the helpers that compare do not know it */
    plimsoll_train_expect(0, dir, (const char *[]){last.devices, last.cut, last.save, NULL});
    compare(jobs[job].stem);
}
END_TEST

int main(int argc, char **argv) {
    if (crew_is_rank(argc, argv)) return crew_rank(argc, argv);
    if (!crew_has_ranks()) return 77;
    Suite *s = suite_create("ranks.schedules");
    TCase *tc = tcase_create("schedules");
    tcase_set_timeout(tc, 180);
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_loop_test(tc, a_disturbed_run_ends_with_the_same_bits, 0,
                        (int)number_of("PLIMSOLL_SCHEDULES", FAULTS));
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
