#include "tests/ranks/slurm_cluster.h"

#include "tests/ranks/crew.h"
#include "tests/support/child.h"
#include "tests/support/hang.h"

#include <arpa/inet.h>
#include <check.h>
#include <dirent.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

enum { NODES = 2, PORTS = NODES + 2, START_SECONDS = 60 };

/* The first node has the name of the machine, which resolves as those of a real cluster do. Slurm
 * sorts names, and the other one comes after it. */
static const char *node_name(int i) {
    static char host[256];
    if (i > 0) return "zz-second";
    ck_assert_int_eq(gethostname(host, sizeof host), 0);
    return host;
}

/* ---- what there is --------------------------------------------------------------------------- */

static bool is_in_path(const char *name) {
    char path[4096], *save = NULL;
    snprintf(path, sizeof path, "%s", getenv("PATH"));
    for (char *d = strtok_r(path, ":", &save); d; d = strtok_r(NULL, ":", &save))
        if (access(in_dir(d, name), X_OK) == 0) return true;
    return false;
}

static bool has_packages(void) {
    static const struct {
        const char *program, *package;
    } all[] = {{"munged", "munge"},         {"slurmctld", "slurmctld"}, {"slurmd", "slurmd"},
               {"srun", "slurm-client"},    {"sbatch", "slurm-client"}, {"scancel", "slurm-client"},
               {"scontrol", "slurm-client"}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (is_in_path(all[i].program)) continue;
        fprintf(stderr, "skipped: needs the package %s (%s)\n", all[i].package, all[i].program);
        return false;
    }
    return true;
}

static void forget_other_launchers(void) {
    static const char *const begins[] = {"SLURM", "SBATCH_", "SALLOC_", "SRUN_", "PMI", "OMPI_"};
    char name[256];
    for (char **e = environ; *e;) {
        bool is_other = false;
        for (size_t i = 0; i < sizeof begins / sizeof *begins; i++)
            is_other |= strncmp(*e, begins[i], strlen(begins[i])) == 0;
        snprintf(name, sizeof name, "%.*s", (int)strcspn(*e, "="), *e);
        if (is_other && unsetenv(name) == 0)
            e = environ; /* the variables after it have moved */
        else
            e++;
    }
}

/* ---- the files ------------------------------------------------------------------------------- */

/* Ports that no program has now. */
static void find_ports(uint16_t ports[PORTS]) {
    int fds[PORTS];
    for (int i = 0; i < PORTS; i++) {
        struct sockaddr_in at = {.sin_family = AF_INET};
        socklen_t bytes = sizeof at;
        fds[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        ck_assert_int_eq(bind(fds[i], (struct sockaddr *)&at, sizeof at), 0);
        ck_assert_int_eq(getsockname(fds[i], (struct sockaddr *)&at, &bytes), 0);
        ports[i] = ntohs(at.sin_port);
    }
    for (int i = 0; i < PORTS; i++)
        close(fds[i]);
}

static void write_key(const char *path) {
    unsigned char key[128];
    FILE *random = fopen("/dev/urandom", "rb");
    const int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
    ck_assert(random && fread(key, 1, sizeof key, random) == sizeof key);
    ck_assert(fd >= 0 && write(fd, key, sizeof key) == (ssize_t)sizeof key && close(fd) == 0);
    fclose(random);
}

/* Limits are those of a busy machine. The GPUs of a node have any device files, which emulated ones
 * do not open. */
static void write_conf(const char *dir, const char *user, const uint16_t ports[PORTS]) {
    FILE *f = fopen(in_dir(dir, "slurm.conf"), "w");
    ck_assert_ptr_nonnull(f);
    fprintf(f,
            "ClusterName=here\nSlurmctldHost=localhost(127.0.0.1)\nSlurmctldPort=%u\n"
            "SlurmUser=%s\nSlurmdUser=%s\nAuthType=auth/munge\nAuthInfo=socket=%s/munge.socket\n"
            "StateSaveLocation=%s/state\nSlurmdSpoolDir=%s/spool.%%n\n"
            "SlurmctldPidFile=%s/slurmctld.pid\nSlurmdPidFile=%s/slurmd.%%n.pid\n",
            ports[0], user, user, dir, dir, dir, dir, dir);
    fputs("ProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\nSwitchType=switch/none\n"
          "JobAcctGatherType=jobacct_gather/none\nSchedulerType=sched/builtin\n"
          "SelectType=select/cons_tres\nSelectTypeParameters=CR_Core\nMpiDefault=none\n"
          "SlurmdParameters=config_overrides\nReturnToService=2\nMinJobAge=3600\n"
          "MessageTimeout=100\nBatchStartTimeout=100\nKillWait=100\nUnkillableStepTimeout=200\n"
          "GresTypes=gpu\n",
          f);
    for (int i = 0; i < NODES; i++)
        fprintf(f,
                "NodeName=%s NodeHostname=%s NodeAddr=127.0.0.1 Port=%u CPUs=4 Gres=gpu:2 "
                "State=UNKNOWN\n",
                node_name(i), node_name(0), ports[1 + i]);
    fprintf(f, "PartitionName=all Nodes=%s,%s Default=YES MaxTime=INFINITE State=UP\n",
            node_name(0), node_name(1));
    ck_assert_int_eq(fclose(f), 0);
    file_write(in_dir(dir, "gres.conf"), "Name=gpu File=/dev/null\nName=gpu File=/dev/zero\n");
    ck_assert_int_eq(mkdir(in_dir(dir, "state"), 0700), 0);
    for (int i = 0; i < NODES; i++)
        ck_assert_int_eq(mkdir(textf("%s/spool.%s", dir, node_name(i)), 0700), 0);
}

/* ---- the guardian ---------------------------------------------------------------------------- */

/* munged would refuse a directory that others cannot enter; all daemons are of one user. */
static const struct daemon {
    const char *name;     /* of its output, too */
    const char *words[6]; /* %s = the directory */
    int node;             /* of slurmd, from 1 */
} daemons[] = {
    {"munged",
     {"--foreground", "--force", "--key-file=%s/key", "--socket=%s/munge.socket",
      "--pid-file=%s/munged.pid", "--seed-file=%s/munged.seed"},
     0},
    {"slurmctld", {"-D"}, 0},
    {"slurmd", {"-D", "-N"}, 1},
    {"slurmd", {"-D", "-N"}, 2},
};
enum { DAEMONS = sizeof daemons / sizeof *daemons };

static const char *output_of(const char *dir, int i) {
    return textf("%s/%s.%d.out", dir, daemons[i].name, i);
}

static pid_t start_daemon(const char *dir, int i) {
    const char *words[8] = {daemons[i].name};
    const pid_t guardian = getpid();
    int w = 0;
    for (; w < 6 && daemons[i].words[w]; w++) {
        const char *at = strstr(daemons[i].words[w], "%s");
        words[w + 1] = at ? textf("%.*s%s%s", (int)(at - daemons[i].words[w]), daemons[i].words[w],
                                  dir, at + 2)
                          : daemons[i].words[w];
    }
    if (daemons[i].node) words[w + 1] = node_name(daemons[i].node - 1);
    const pid_t pid = fork();
    if (pid != 0) return pid;
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    const int out = open(output_of(dir, i), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != guardian) _exit(126);
    if (out < 0 || dup2(out, 1) < 0 || dup2(out, 2) < 0) _exit(126);
    execvp(words[0], (char *const *)(uintptr_t)words);
    _exit(127);
}

static pid_t parent_of(const char *pid) {
    char text[512];
    int parent = 0;
    FILE *f = fopen(textf("/proc/%s/stat", pid), "r");
    const size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;
    if (f) fclose(f);
    text[n] = 0;
    const char *after = strrchr(text, ')'); /* the name of a program may hold blanks */
    return after && sscanf(after, ") %*c %d", &parent) == 1 ? (pid_t)parent : 0;
}

static void kill_children(void) {
    DIR *proc = opendir("/proc");
    for (const struct dirent *e; proc && (e = readdir(proc)) != NULL;)
        if (e->d_name[0] >= '1' && e->d_name[0] <= '9' && parent_of(e->d_name) == getpid())
            (void)kill((pid_t)strtol(e->d_name, NULL, 10), SIGKILL);
    if (proc) closedir(proc);
}

/* The children of a child that has ended become those of the guardian, so all are found in turn. */
static void end_all(void) {
    do
        kill_children();
    while (waitpid(-1, NULL, 0) > 0);
}

/* Returns when a daemon has ended, or the guardian was told to. */
static void watch(const pid_t pids[DAEMONS], const sigset_t *signals) {
    for (int number = 0; number != SIGTERM;) {
        if (sigwait(signals, &number) != 0) return;
        for (pid_t ended; (ended = waitpid(-1, NULL, WNOHANG)) > 0;)
            for (int i = 0; i < DAEMONS; i++)
                if (pids[i] == ended) return;
    }
}

/* Slurm's daemons need the socket of munged. */
static bool has_socket(const char *dir) {
    for (int i = 0; i < 10 * START_SECONDS; i++) {
        if (path_exists(in_dir(dir, "munge.socket"))) return true;
        if (waitpid(-1, NULL, WNOHANG) > 0) return false;
        crew_pause(0.1);
    }
    return false;
}

/* A signal that nobody handles may be dropped although it is waited for. */
static void note_child(int number) {
    (void)number;
}

static _Noreturn void be_guardian(const char *dir, pid_t test) {
    pid_t pids[DAEMONS] = {0};
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGCHLD);
    sigprocmask(SIG_SETMASK, &signals, NULL);
    signal(SIGCHLD, note_child);
    setsid(); /* what kills the group of the test is not meant for the guardian */
    if (prctl(PR_SET_CHILD_SUBREAPER, 1) != 0 || prctl(PR_SET_PDEATHSIG, SIGTERM) != 0 ||
        getppid() != test)
        _exit(1);
    for (int i = 0; i < DAEMONS && (i == 0 || has_socket(dir)); i++)
        pids[i] = start_daemon(dir, i);
    if (pids[DAEMONS - 1] > 0) watch(pids, &signals);
    end_all();
    if (getppid() != test) scratch_remove(dir);
    _exit(0);
}

/* ---- the test's side ------------------------------------------------------------------------- */

/* Both nodes run a task. */
static bool is_up(void) {
    struct outcome o = child_run((const char *[]){"srun", "--mpi=none", "-N2", "-n2", "true", NULL},
                                 NULL, START_SECONDS);
    const bool up = o.status == 0;
    outcome_finish(&o);
    return up;
}

static bool wait_until_up(struct slurm_cluster *c) {
    const double until = seconds_now() + START_SECONDS;
    while (seconds_now() < until) {
        if (waitpid(c->guardian, NULL, WNOHANG) == c->guardian) {
            c->guardian = 0;
            return false;
        }
        if (is_up()) return true;
        crew_pause(0.1);
    }
    return false;
}

/* Prints the last line of the first daemon that said something fatal, or of the last one. */
static void tell_why(const struct slurm_cluster *c) {
    char line[512] = "";
    for (int i = 0; i < DAEMONS && !strstr(line, "fatal"); i++) {
        FILE *f = fopen(output_of(c->dir, i), "r");
        while (f && !strstr(line, "fatal") && fgets(line, sizeof line, f)) {
        }
        if (f) fclose(f);
    }
    line[strcspn(line, "\n")] = 0;
    fprintf(stderr, "skipped: needs a Slurm that starts here: %s\n", line);
}

bool slurm_cluster_open(struct slurm_cluster *c) {
    const struct passwd *user = getpwuid(geteuid());
    const pid_t test = getpid();
    uint16_t ports[PORTS];
    *c = (struct slurm_cluster){.guardian = 0};
    forget_other_launchers();
    setenv("PATH", textf("%s:/usr/sbin:/sbin", getenv("PATH")), 1);
    if (!has_packages()) return false;
    if (!user) {
        fputs("skipped: needs a user with a name\n", stderr);
        return false;
    }
    scratch_make(c->dir);
    write_key(in_dir(c->dir, "key"));
    find_ports(ports);
    write_conf(c->dir, user->pw_name, ports);
    c->port = ports[PORTS - 1];
    setenv("SLURM_CONF", in_dir(c->dir, "slurm.conf"), 1);
    c->guardian = fork();
    if (c->guardian == 0) be_guardian(c->dir, test);
    if (c->guardian > 0 && wait_until_up(c)) return true;
    tell_why(c);
    slurm_cluster_close(c);
    return false;
}

void slurm_cluster_close(struct slurm_cluster *c) {
    if (c->guardian > 0 && kill(c->guardian, SIGTERM) == 0) waitpid(c->guardian, NULL, 0);
    scratch_remove(c->dir);
    *c = (struct slurm_cluster){.guardian = 0};
}
