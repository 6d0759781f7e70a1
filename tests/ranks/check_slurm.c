/* check_slurm.c - ranks that a real Slurm starts, signals, loses and queues again.
 *
 * SCRIPTS names the directory of the scripts that the manual shows. With GOLDEN_DEVICE=cuda only
 * the script for GPUs is run. */
#include "runtime/checkpoint/save_set.h"
#include "tests/ranks/crew.h"
#include "tests/ranks/slurm_cluster.h"
#include "tests/support/hang.h"
#include "tests/support/joblog.h"
#include "tests/support/saved.h"
#include "tests/support/tensorset.h"
#include "tests/support/tiny.h"

#include <check.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct slurm_cluster cluster;
static char dir[SCRATCH_PATH];

#define WORDS(...)                                                                                 \
    (const char *[]) {                                                                             \
        __VA_ARGS__, NULL                                                                          \
    }

static bool has_gpus(void) {
    return strcmp(crew_device(), "cpu") != 0;
}

static void open_cluster(void) {
    if (!slurm_cluster_open(&cluster)) exit(77);
}

static void close_cluster(void) {
    slurm_cluster_close(&cluster);
}

/* The scripts find `plimsoll` in PATH. */
static void set_up(void) {
    char binary[PATH_MAX];
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    scratch_make(dir);
    ck_assert(getenv("PLIMSOLL") && realpath(getenv("PLIMSOLL"), binary));
    ck_assert_int_eq(mkdir(in_dir(dir, "bin"), 0700), 0);
    ck_assert_int_eq(symlink(binary, in_dir(dir, "bin/plimsoll")), 0);
    setenv("PATH", textf("%s/bin:%s", dir, getenv("PATH")), 1);
}

static void tear_down(void) {
    struct outcome o =
        child_run(WORDS("scancel", "--signal=KILL", "--full", "--me"), NULL, HANG_SECONDS);
    outcome_finish(&o);
    scratch_remove(dir);
}

static void make(unsigned long max_steps) {
    tiny_make(dir, &(struct tiny){.mode = "full"},
              textf("learning_rate: 0.01\nlr_scheduler: constant\npreflight: off\ndevice: %s\n"
                    "global_batch_size: 12\nbatch_size: 2\nrank_order: true\nthreads: 1\n"
                    "gradient_checkpointing: none\nsave_steps: 1000000000\nmax_steps: %lu\n"
                    "comm_timeout_seconds: %d\n",
                    crew_device(), max_steps, NEVER_SECONDS));
}

enum { FOREVER = 100000000 };

static void one_process(const char *const words[]) {
    plimsoll_train_expect(0, dir, words);
}

static struct outcome run(const char *const words[]) {
    struct outcome o = child_run(words, dir, HANG_SECONDS);
    ck_assert_msg(!o.timed_out, "%s did not end: %s", words[0], o.err);
    return o;
}

static void run_well(const char *const words[]) {
    struct outcome o = run(words);
    ck_assert_msg(o.status == 0, "%s: exit %d: %s", words[0], o.status, o.err);
    outcome_finish(&o);
}

static size_t ranks_of(const char *out) {
    json_t *log = joblog_read(in_dir(dir, out));
    const size_t n = json_array_size(json_object_get(joblog_event(log, "ranks", 0), "ranks"));
    json_decref(log);
    return n;
}

static void note_checkpoint(const char *name, void *last) {
    unsigned long step;
    if (!strstr(name, ".tmp") && sscanf(name, "checkpoint-%lu", &step) == 1 &&
        step > *(unsigned long *)last)
        *(unsigned long *)last = step;
}

/* Returns the step of the last checkpoint of `out`; 0 = none. */
static unsigned long last_saved(const char *out) {
    struct pl_diag d = {0};
    unsigned long last = 0;
    ck_assert_msg(pl_save_set_settle(in_dir(dir, out), &d) == PL_ERR_OK, "%s", d.message);
    dir_each(in_dir(dir, out), note_checkpoint, &last);
    return last;
}

/* --- srun ------------------------------------------------------------------------------------- */

START_TEST(tasks_of_srun_end_where_one_process_ends) {
    static const struct {
        const char *nodes, *tasks, *more;
        size_t ranks;
    } cuts[] = {{"-N2", "-n2", "sharding=weights", 2},
                {"-N2", "-n3", "sharding=gradients", 3},
                {"-N1", "-n2", "sharding=optimizer", 2},
                {"-N1", "-n1", "devices=2", 2}};
    make(4);
    one_process(WORDS("output_dir=one"));
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        run_well(WORDS("srun", "--mpi=pmi2", cuts[i].nodes, cuts[i].tasks, "plimsoll", "train",
                       "run.yaml", "-q", cuts[i].more, textf("output_dir=%zu", i)));
        const char *const out = textf("%s/%zu", dir, i);
        joblog_assert_same_steps(in_dir(dir, "one"), out);
        weights_assert_same(in_dir(dir, "one"), out, "model");
        checkpoint_assert_same(in_dir(dir, "one/checkpoint-4"), in_dir(out, "checkpoint-4"));
        ck_assert_uint_eq(ranks_of(textf("%zu", i)), cuts[i].ranks);
    }
}
END_TEST

/* MPI is not told of the other tasks. With an address it is found when MPI starts. */
START_TEST(a_wrong_type_is_answered_with_the_right_one) {
    make(4);
    for (int has_address = 0; has_address < 2; has_address++) {
        if (has_address) {
            setenv("MASTER_ADDR", "localhost", 1);
            setenv("MASTER_PORT", textf("%u", cluster.port), 1);
            setenv("PLIMSOLL_JOB_TOKEN", "secret", 1);
        }
        struct outcome o =
            run(WORDS("srun", "--mpi=none", "-N2", "-n2", "plimsoll", "train", "run.yaml", "-q"));
        ck_assert_msg(o.status == 1 && strstr(o.err, "error[COMM_INIT]"), "exit %d: %s", o.status,
                      o.err);
        ck_assert_msg(strstr(o.err, "`srun --mpi=pmi2`") && !strstr(o.err, "mpiexec"), "%s", o.err);
        outcome_finish(&o);
    }
}
END_TEST

static struct child start_srun(void) {
    return child_start(WORDS("srun", "--mpi=pmi2", "--job-name=check", "-N2", "-n2", "plimsoll",
                             "train", "run.yaml", "-q", "sharding=weights"),
                       dir, false);
}

/* One node resumes the run of two. */
START_TEST(scancel_saves_and_ends_with_143) {
    make(FOREVER);
    struct child c = start_srun();
    crew_wait_for_steps(dir, "out", 3);
    run_well(WORDS("scancel", "--name=check"));
    struct outcome o = child_wait(&c, HANG_SECONDS);
    const unsigned long last = last_saved("out");
    ck_assert_msg(!o.timed_out && strstr(o.err, "RUNTIME_INTERRUPTED"), "%s", o.err);
    ck_assert_msg(strstr(o.err, "task 0: Exited with exit code 143"), "%s", o.err);
    ck_assert_msg(strstr(o.err, "task 1: Exited with exit code 143"), "%s", o.err);
    ck_assert_msg(strstr(o.err, textf("after step %lu, saved", last)), "%s", o.err);
    outcome_finish(&o);
    make(last);
    one_process(WORDS("output_dir=one"));
    checkpoint_assert_same(textf("%s/one/checkpoint-%lu", dir, last),
                           textf("%s/out/checkpoint-%lu", dir, last));
    make(last + 2);
    one_process(WORDS("output_dir=one"));
    run_well(WORDS("srun", "--mpi=pmi2", "-N1", "-n3", "plimsoll", "train", "run.yaml", "-q"));
    joblog_assert_same_steps(in_dir(dir, "one"), in_dir(dir, "out"));
    weights_assert_same(in_dir(dir, "one"), in_dir(dir, "out"), "model");
}
END_TEST

/* --- sbatch ----------------------------------------------------------------------------------- */

struct job {
    char id[32];
};

/* Fewer CPUs, GPUs and less time than the script asks for. NCCL refuses two ranks on one GPU, which
 * the first GPUs of two nodes on one machine are. */
static struct job submit(const char *time, const char *warning) {
    struct job job;
    struct outcome o = run(WORDS(
        "sbatch", "--parsable", "--output=job.log", has_gpus() ? "--nodes=1" : "--nodes=2",
        has_gpus() ? "--ntasks-per-node=2" : "--ntasks-per-node=1", "--cpus-per-task=1",
        has_gpus() ? "--gpus-per-node=2" : "--gpus-per-node=0", textf("--time=%s", time),
        textf("--signal=TERM@%s", warning),
        textf("%s/slurm-%s.sh", getenv("SCRIPTS"), has_gpus() ? "gpu" : "cpu"), "run.yaml", "-q"));
    ck_assert_msg(o.status == 0 && sscanf(o.out, "%31[0-9]", job.id) == 1, "%s", o.err);
    outcome_finish(&o);
    return job;
}

/* Returns what Slurm knows of the job, malloc'd. */
static char *show(const struct job *job) {
    struct outcome o = run(WORDS("scontrol", "-o", "show", "job", job->id));
    char *text = o.out;
    ck_assert_msg(o.status == 0, "%s", o.err);
    o.out = NULL;
    outcome_finish(&o);
    return text;
}

static bool job_has(const struct job *job, const char *what) {
    char *text = show(job);
    const bool has = strstr(text, what) != NULL;
    free(text);
    return has;
}

static char *job_log(void) {
    return path_exists(in_dir(dir, "job.log")) ? file_read(in_dir(dir, "job.log"), NULL)
                                               : strdup("");
}

/* A job that failed has nothing else to come. */
static void wait_for(const struct job *job, const char *what) {
    const double until = seconds_now() + HANG_SECONDS;
    for (bool has = false; !has; crew_pause(0.1)) {
        char *text = show(job), *log = job_log();
        has = strstr(text, what) != NULL;
        ck_assert_msg(has || (seconds_now() < until && !strstr(text, "JobState=FAILED")),
                      "job %s has no %s: %s", job->id, what, log);
        free(text);
        free(log);
    }
}

static void wait_for_steps(const struct job *job) {
    wait_for(job, "JobState=RUNNING");
    while (!crew_has_steps(dir, "out", 3))
        wait_for(job, "JobState=RUNNING");
}

/* A job that is queued again waits for two minutes, unless it is told otherwise. */
static void release(const struct job *job) {
    run_well(WORDS("scontrol", "update", textf("JobId=%s", job->id), "StartTime=now"));
}

static void requeue(const struct job *job) {
    run_well(WORDS("scontrol", "requeue", job->id));
}

/* The script itself queues the job again. */
static void signal_steps(const struct job *job) {
    run_well(WORDS("scancel", "--signal=TERM", job->id));
}

static void wait_for_the_limit(const struct job *job) {
    (void)job;
}

static const struct {
    void (*interrupt)(const struct job *job);
    const char *time, *warning; /* minutes; the seconds before it at which Slurm signals, which are
                                   up to 30 more */
} interruptions[] = {
    {requeue, "30", "120"}, {signal_steps, "30", "120"}, {wait_for_the_limit, "2", "85"}};

/* The run is signalled while it trains, and continues where it was, to the end. */
START_TEST(a_job_that_is_queued_again_continues) {
    make(FOREVER);
    const struct job job = submit(interruptions[_i].time, interruptions[_i].warning);
    wait_for_steps(&job);
    interruptions[_i].interrupt(&job);
    wait_for(&job, "JobState=PENDING");
    const unsigned long last = last_saved("out");
    char *log = job_log();
    ck_assert_msg(strstr(log, textf("after step %lu, saved", last)), "%s", log);
    free(log);
    ck_assert(job_has(&job, "Restarts=1"));
    scratch_copy(in_dir(dir, "out"), in_dir(dir, "one"));
    make(last + 2);
    release(&job);
    wait_for(&job, "JobState=COMPLETED");
    one_process(WORDS("output_dir=one"));
    joblog_assert_same_steps(in_dir(dir, "one"), in_dir(dir, "out"));
    weights_assert_same(in_dir(dir, "one"), in_dir(dir, "out"), "model");
    json_t *lines = joblog_read(in_dir(dir, "out"));
    ck_assert_uint_eq(joblog_count(lines, "preflight"), 2);
    ck_assert_uint_eq(joblog_count(lines, "step"), last + 2);
    json_decref(lines);
}
END_TEST

/* The script must not queue again what a user has ended. */
START_TEST(a_job_that_is_cancelled_stays_so) {
    make(FOREVER);
    const struct job job = submit("30", "120");
    wait_for_steps(&job);
    run_well(WORDS("scancel", job.id));
    wait_for(&job, "JobState=CANCELLED");
    ck_assert(job_has(&job, "Restarts=0"));
    ck_assert_uint_ge(last_saved("out"), 3);
}
END_TEST

/* It may be the job that kills its ranks, so that it is not queued again. srun may drop what rank 0
 * prints at its end. */
START_TEST(a_killed_task_is_named) {
    make(FOREVER);
    const struct job job = submit("30", "120");
    wait_for_steps(&job);
    ck_assert_int_eq(kill(crew_find_rank(dir, 1), SIGKILL), 0);
    wait_for(&job, "JobState=FAILED");
    json_t *log = joblog_read(in_dir(dir, "out"));
    const json_t *error = joblog_event(log, "error", 0);
    ck_assert_str_eq(json_string_value(json_object_get(error, "code")), "COMM_PEER_LOST");
    const char *const message = json_string_value(json_object_get(error, "message"));
    ck_assert_msg(message && strncmp(message, "rank 1 on ", 10) == 0, "%s", message);
    ck_assert_uint_eq(joblog_count(log, "error"), 1);
    ck_assert(job_has(&job, "Restarts=0"));
    json_decref(log);
}
END_TEST

int main(void) {
    if (!crew_has_ranks()) return 77;
    Suite *s = suite_create("ranks.slurm");
    TCase *tc = tcase_create("jobs");
    tcase_set_timeout(tc, 2 * HANG_SECONDS);
    tcase_add_unchecked_fixture(tc, open_cluster, close_cluster);
    tcase_add_checked_fixture(tc, set_up, tear_down);
    if (!has_gpus()) {
        tcase_add_test(tc, tasks_of_srun_end_where_one_process_ends);
        tcase_add_test(tc, a_wrong_type_is_answered_with_the_right_one);
        tcase_add_test(tc, scancel_saves_and_ends_with_143);
        tcase_add_test(tc, a_killed_task_is_named);
        tcase_add_test(tc, a_job_that_is_cancelled_stays_so);
    }
    tcase_add_loop_test(tc, a_job_that_is_queued_again_continues, 0,
                        has_gpus() ? 1 : (int)(sizeof interruptions / sizeof *interruptions));
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    const int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
