/* crew.c - the launcher of the runtime, with the test's own program as each rank. */
#include "tests/ranks/crew.h"
#include "runtime/checkpoint/save_set.h"

#include "runtime/comm/launch.h"
#include "tests/support/hang.h"

#include <check.h>
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MARK    "--rank"
#define PRELOAD "LD_PRELOAD="
/* The limit of the launcher for ranks that outlive the first. */
enum { LIMIT_SECONDS = HANG_SECONDS / 2 };

const char *crew_device(void) {
    const char *given = getenv("GOLDEN_DEVICE");
    return given ? given : "cpu";
}

bool crew_has_ranks(void) {
    const bool gpu = strcmp(crew_device(), "cpu") != 0;
    const char *engine = getenv(gpu ? "PLIMSOLL_NCCL" : "PLIMSOLL_MPI_MODULE");
    if (engine && access(engine, R_OK) == 0) return true;
    fprintf(stderr, "skipped: needs %s\n",
            gpu ? "NCCL" : "a build with MPI (package libmpich-dev or libopenmpi-dev)");
    return false;
}

void crew_pause(double seconds) {
    const struct timespec t = {(time_t)seconds, (long)(1e9 * (seconds - (double)(time_t)seconds))};
    nanosleep(&t, NULL);
}

/* ---- a rank: no test, so nothing of Check ---- */

bool crew_is_rank(int argc, char *const *argv) {
    return argc > 4 && strcmp(argv[1], MARK) == 0;
}

/* The arguments of a rank: MARK, the rank that is given one word more, that word, the words. */
static void become_plimsoll(unsigned rank, int argc, char *const *argv) {
    const bool odd = argv[3][0] && rank == (unsigned)strtoul(argv[2], NULL, 10);
    const bool elsewhere = odd && argv[3][strlen(argv[3]) - 1] == '/';
    const bool preloaded = odd && strncmp(argv[3], PRELOAD, strlen(PRELOAD)) == 0;
    char *words[CREW_WORDS + 6] = {getenv("PLIMSOLL"), (char[]){"train"}, (char[]){"run.yaml"}};
    char name[32];
    int at = 3;
    for (int i = 4; i < argc && at < CREW_WORDS + 4; i++)
        words[at++] = argv[i];
    if (odd && !elsewhere && !preloaded) words[at++] = argv[3];
    if (preloaded && setenv("LD_PRELOAD", argv[3] + strlen(PRELOAD), 1) != 0) _exit(126);
    snprintf(name, sizeof name, "rank.%u.err", rank);
    int err = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (err < 0 || dup2(err, 2) < 0) _exit(126);
    if (elsewhere && chdir(argv[3]) != 0) _exit(126);
    execv(words[0], words);
    _exit(127);
}

int crew_rank(int argc, char *const *argv) {
    struct pl_world w;
    struct pl_diag d = {0};
    char name[32];
    int status;
    if (pl_world_init(&w, &d) != PL_ERR_OK || !getenv("PLIMSOLL")) return 125;
    const pid_t self = getpid(), pid = fork();
    if (pid == 0) {
        if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != self) _exit(124);
        become_plimsoll(w.rank, argc, argv);
    }
    if (pid < 0 || waitpid(pid, &status, 0) != pid) return 123;
    status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    snprintf(name, sizeof name, "rank.%u.status", w.rank);
    FILE *f = fopen(name, "w");
    if (!f || fprintf(f, "%d\n", status) < 0 || fclose(f) != 0) return 122;
    return status;
}

/* ---- all of them ---- */

static void keep_absolute(const char *name) {
    static char path[PATH_MAX];
    const char *given = getenv(name);
    ck_assert_msg(given && realpath(given, path), "set %s", name);
    setenv(name, path, 1);
}

static struct crew_end end_of(unsigned rank) {
    struct crew_end e = {.status = -1};
    if (path_exists(textf("rank.%u.status", rank))) {
        char *text = file_read(textf("rank.%u.status", rank), NULL);
        e.status = atoi(text);
        free(text);
    }
    e.err = path_exists(textf("rank.%u.err", rank)) ? file_read(textf("rank.%u.err", rank), NULL)
                                                    : strdup("");
    unlink(textf("rank.%u.status", rank));
    unlink(textf("rank.%u.err", rank));
    return e;
}

struct crew_outcome crew_run(const char *cwd, const struct crew *crew, const char *const words[]) {
    struct crew_outcome o = {0};
    struct pl_diag d = {0};
    char before[PATH_MAX], odd[16];
    const char *argv[CREW_WORDS + 5] = {"ranks", MARK, odd, crew->odd_word ? crew->odd_word : ""};
    snprintf(odd, sizeof odd, "%u", crew->odd);
    int n = 0;
    for (; words[n]; n++) {
        ck_assert_int_lt(n, CREW_WORDS);
        argv[4 + n] = words[n];
    }
    keep_absolute("PLIMSOLL");
    keep_absolute("PLIMSOLL_MPI_MODULE");
    ck_assert_ptr_nonnull(getcwd(before, sizeof before));
    ck_assert_int_eq(chdir(cwd), 0);
    const double start = seconds_now();
    const struct pl_launch l = {.ranks = crew->ranks,
                                .timeout_seconds = LIMIT_SECONDS,
                                .mpi = true,
                                .argv = (char *const *)(uintptr_t)argv};
    ck_assert_msg(pl_launch(&l, &o.status, &d) == PL_ERR_OK, "%s", d.message);
    o.seconds = seconds_now() - start;
    for (unsigned r = 0; r < crew->ranks; r++)
        o.ranks[r] = end_of(r);
    ck_assert_int_eq(chdir(before), 0);
    return o;
}

void crew_finish(struct crew_outcome *o) {
    for (unsigned r = 0; r < CREW_RANKS; r++)
        free(o->ranks[r].err);
    *o = (struct crew_outcome){0};
}

void crew_expect(int status, const char *cwd, const struct crew *crew, const char *const words[]) {
    struct crew_outcome o = crew_run(cwd, crew, words);
    for (unsigned r = 0; r < crew->ranks; r++)
        ck_assert_msg(o.ranks[r].status == status, "rank %u: exit %d, not %d: %s", r,
                      o.ranks[r].status, status, o.ranks[r].err);
    crew_finish(&o);
}

/* ---- ranks of the command ---- */

static bool has_variable(const char *pid, const char *name, unsigned value) {
    const char *path = textf("/proc/%s/environ", pid), *want = textf("%s=%u", name, value);
    char text[16384];
    FILE *f = fopen(path, "r");
    if (!f) return false;
    const size_t n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    text[n] = 0;
    for (const char *p = text; p < text + n; p += strlen(p) + 1)
        if (strcmp(p, want) == 0) return true;
    return false;
}

static bool runs_in(const char *pid, const char *cwd) {
    char at[PATH_MAX], real[PATH_MAX];
    const ssize_t n = readlink(textf("/proc/%s/cwd", pid), at, sizeof at - 1);
    if (n <= 0 || !realpath(cwd, real)) return false;
    at[n] = 0;
    return strcmp(at, real) == 0;
}

pid_t crew_try_rank(const char *cwd, unsigned rank) {
    DIR *proc = opendir("/proc");
    pid_t found = 0;
    ck_assert_ptr_nonnull(proc);
    for (struct dirent *e; !found && (e = readdir(proc)) != NULL;)
        if (e->d_name[0] >= '1' && e->d_name[0] <= '9' && runs_in(e->d_name, cwd) &&
            (has_variable(e->d_name, "RANK", rank) || has_variable(e->d_name, "PMI_RANK", rank) ||
             has_variable(e->d_name, "OMPI_COMM_WORLD_RANK", rank)))
            found = (pid_t)strtol(e->d_name, NULL, 10);
    closedir(proc);
    return found;
}

pid_t crew_look_for_rank(const char *cwd, unsigned rank) {
    pid_t pid = 0;
    for (int i = 0; i < 1000 * HANG_SECONDS && !(pid = crew_try_rank(cwd, rank)); i++)
        crew_pause(1e-3);
    return pid;
}

pid_t crew_find_rank(const char *cwd, unsigned rank) {
    const pid_t pid = crew_look_for_rank(cwd, rank);
    ck_assert_msg(pid != 0, "rank %u is not there", rank);
    return pid;
}

bool crew_has_steps(const char *cwd, const char *out, int n) {
    const char *log = textf("%s/%s/train_log.jsonl", cwd, out);
    char *text = path_exists(log) ? file_read(log, NULL) : NULL;
    int steps = 0;
    for (const char *p = text; p && (p = strstr(p, "\"event\":\"step\"")) != NULL; p++)
        steps++;
    free(text);
    return steps >= n;
}

void crew_wait_for_steps(const char *cwd, const char *out, int n) {
    for (int i = 0; i < 1000 * HANG_SECONDS; i++) {
        if (crew_has_steps(cwd, out, n)) return;
        crew_pause(1e-3);
    }
    ck_abort_msg("%d steps were not made", n);
}

/* A directory under construction, which the next start removes, is no checkpoint yet. */
static void note_checkpoint(const char *name, void *last) {
    int step;
    if (strstr(name, ".tmp") || sscanf(name, "checkpoint-%d", &step) != 1) return;
    if (step > *(int *)last) *(int *)last = step;
}

int crew_last_checkpoint(const char *cwd, const char *out) {
    const char *at = textf("%s/%s", cwd, out);
    struct pl_diag d = {0};
    int last = 0;
    ck_assert_msg(pl_save_set_settle(at, &d) == PL_ERR_OK, "%s", d.message);
    dir_each(at, note_checkpoint, &last);
    ck_assert_int_gt(last, 0);
    return last;
}
