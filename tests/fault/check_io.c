/* check_io.c - every call of a command on a file fails, once or from there on.
 *
 * check_io NAME: a run of the case without a failure lists its calls below the working directory;
 * then a child each runs it with call N meeting a fault of `faults`. What must hold is in
 * check_outcome() and check_after(): the failure is told by file and reason or made up for, the
 * disk holds the old state or the new one, and the same command then comes to what an undisturbed
 * run makes. Where there are more than MOST_TRIES, every k-th is tried; PLIMSOLL_FAULT_ALL=1 tries
 * all, PLIMSOLL_FAULT=N that call alone. */
#include "estimator/base/errors.h"
#include "tests/fault/fault_rig.h"

#include <check.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MOST_TRIES 400
#define MOST_CALLS 4096
#define PATH_TEXT  512

/* --- the cases -------------------------------------------------------------------------------- */

struct io_case {
    const char *name;
    const char *words[RIG_WORDS];
    void (*prepare)(const char *dir);
    const char *verify; /* a directory that is whole whenever it was before; NULL: none is */
    const char *log;    /* the directory whose log holds every step in the end */
    bool once;          /* it cannot be repeated: that is a usage error */
};

static void make_log_of(const char *dir, const char *calls, const char *at, const char *path);

/* A run that was killed between the renames of its final files: its journal is left. */
static void make_unsettled(const char *dir) {
    rig_make_interrupted(dir);
    make_log_of(dir, "rename", "1", "/out/config.json$");
    ck_assert(path_exists(in_dir(dir, "out/plimsoll-save.journal")));
}

static const struct io_case cases[] = {
    {.name = "train", .words = {"train", "run.yaml"}, .prepare = rig_make_model, .log = "out"},
    {.name = "resume",
     .words = {"train", "run.yaml"},
     .prepare = rig_make_interrupted,
     .verify = "out",
     .log = "out"},
    {.name = "settle",
     .words = {"generate", "--model", "out", "--prompt-ids", "1,2,3", "--max-new-tokens", "3"},
     .prepare = make_unsettled},
    {.name = "merge",
     .words = {"merge", "--model", "out", "--adapter", "adapter", "--output", "merged"},
     .prepare = rig_make_adapter,
     .verify = "adapter",
     .once = true},
};

/* --- faults ----------------------------------------------------------------------------------- */

enum need {
    TOLD,    /* a failure is told, or what was asked for is there all the same */
    TAKEN_UP /* the call is made again, or for the rest: nothing has failed */
};

static const struct fault {
    const char *name, *kinds; /* it makes sense for; NULL: for all */
    const char *what;         /* FAULT_DO; NULL: the errno */
    int error;
    bool forever;
    enum need need;
} faults[] = {
    {"EIO", NULL, NULL, EIO, false, TOLD},
    {"EIO for good", NULL, NULL, EIO, true, TOLD},
    {"ENOSPC", "create write mkdir rename sync close", NULL, ENOSPC, false, TOLD},
    {"ENOSPC for good", "create write mkdir rename sync close", NULL, ENOSPC, true, TOLD},
    {"EMFILE", "open create dir", NULL, EMFILE, false, TOLD},
    {"short", "read write", "short", 0, false, TAKEN_UP},
    {"short for good", "read write", "short", 0, true, TAKEN_UP},
    {"EINTR", "read write lock", NULL, EINTR, false, TOLD}, /* libc's streams do not take it up */
};
enum { N_FAULTS = sizeof faults / sizeof *faults };

static bool is_kind_of(const struct fault *f, const char *kind) {
    const char *at = f->kinds ? strstr(f->kinds, kind) : NULL;
    return !f->kinds || at;
}

struct call {
    char kind[16], path[PATH_TEXT];
};

struct loop {
    struct rig rig;
    const struct io_case *c;
    struct call calls[MOST_CALLS];
    unsigned n;
    struct call hit; /* call of this attempt: its calls may differ from those listed */
    unsigned tried, all, told, silent;
};

struct attempt {
    const struct fault *fault; /* NULL: none; the calls are listed */
    unsigned at;               /* from 1 on */
};

static void begin_faults(const struct rig *r, void *ctx) {
    const struct attempt *a = ctx;
    setenv("FAULT_CALLS", "files", 1);
    setenv("FAULT_PATH", textf("%s/", r->dir), 1);
    setenv("FAULT_NO_SYNC", "1", 1);
    setenv("FAULT_LOG", rig_path(r, "calls"), 1);
    if (a->fault) {
        const char *what = a->fault->what ? a->fault->what : textf("%d", a->fault->error);
        setenv("FAULT_DO", what, 1);
        setenv("FAULT_AT", textf("%u%s", a->at, a->fault->forever ? "+" : ""), 1);
        if (getenv("PLIMSOLL_FAULT")) setenv("FAULT_TRACE", "1", 1);
    }
    fault_shim_begin();
}

static void end_faults(const struct rig *r, void *ctx) {
    (void)r, (void)ctx;
    fault_shim_end();
}

struct killing {
    const char *calls, *at, *path;
};

static void begin_killing(const struct rig *r, void *ctx) {
    const struct killing *k = ctx;
    (void)r;
    setenv("FAULT_CALLS", k->calls, 1);
    setenv("FAULT_PATH", k->path, 1);
    setenv("FAULT_AT", k->at, 1);
    setenv("FAULT_DO", "kill", 1);
    fault_shim_begin();
}

static void make_log_of(const char *dir, const char *calls, const char *at, const char *path) {
    struct rig r = {0};
    struct killing k = {calls, at, path};
    const struct rig_faults f = {begin_killing, end_faults, &k};
    snprintf(r.dir, sizeof r.dir, "%.*s", (int)(strrchr(dir, '/') - dir), dir);
    ck_assert_int_eq(rig_run(&r, (const char *[]){"train", "run.yaml", NULL}, dir, &f),
                     128 + SIGKILL);
}

/* --- what must hold --------------------------------------------------------------------------- */

/* Failures of input and output; what a file that cannot be read might have held is not one. */
static bool is_code_of_io(const char *said) {
    static const char *const codes[] = {"CONFIG_FILE", "MODEL_FILE",      "TOKENIZER_FILE",
                                        "DATA_FILE",   "CHECKPOINT_FILE", "CHECKPOINT_WRITE",
                                        "RUNTIME_IO"};
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
        if (strstr(said, textf("error[%s]: ", codes[i]))) return true;
    return false;
}

/* The last part of the path, as it is called when it is done. */
static void name_of(const char *path, char name[PATH_TEXT]) {
    const char *slash = strrchr(path, '/');
    snprintf(name, PATH_TEXT, "%s", slash ? slash + 1 : path);
    char *end = strstr(name, ".tmp");
    if (end) *end = 0;
    if (strcmp(name, RIG_WORK) == 0) name[0] = 0; /* it is "." or, of a directory, ".." */
}

static const char *check_message(const struct loop *l, const struct attempt *a) {
    static char why[1024];
    char name[PATH_TEXT], *said = file_read(rig_path(&l->rig, "stderr"), NULL);
    const char *wrong = NULL;
    name_of(l->hit.path, name);
    if (!is_code_of_io(said))
        wrong = "has no code of a failed call";
    else if (!strstr(said, strerror(a->fault->error)))
        wrong = "does not give the reason";
    else if (!a->fault->forever && !strstr(said, name)) {
        snprintf(why, sizeof why, "does not name %s", name);
        wrong = why;
    }
    free(said);
    return wrong;
}

static size_t steps_of(const struct loop *l, const char *tree) {
    const char *path = textf("%s/%s/%s/train_log.jsonl", l->rig.dir, tree, l->c->log);
    size_t n = 0;
    if (!path_exists(path)) return 0;
    char *log = file_read(path, NULL);
    for (const char *s = log; (s = strstr(s, "\"event\":\"step\"")); s++)
        n++;
    free(log);
    return n;
}

static const char *check_done(const struct loop *l) {
    const char *wrong = rig_judge_files(&l->rig, true);
    if (wrong) return wrong;
    if (!l->c->log) {
        if (file_same(rig_path(&l->rig, "stdout"), rig_path(&l->rig, "expected"))) return NULL;
        return "another answer";
    }
    return steps_of(l, RIG_WORK) == steps_of(l, RIG_UNDISTURBED) ? NULL : "steps not in the log";
}

static const char *check_outcome(const struct loop *l, const struct attempt *a, int status) {
    if (status == 128 + SIGALRM) return "hangs";
    if (status > 128) return "is killed";
    if (status == 0) return check_done(l);
    if (a->fault->need == TAKEN_UP && is_kind_of(a->fault, l->hit.kind)) return "gives up";
    const char *wrong = check_message(l, a);
    return wrong ? wrong : rig_judge_files(&l->rig, false);
}

/* The next one that reads or saves finishes that save. */
static bool has_journal(const struct loop *l) {
    return path_exists(textf("%s/%s/%s/plimsoll-save.journal", l->rig.dir, RIG_WORK, l->c->verify));
}

/* The same command once more, which nothing disturbs. */
static const char *check_after(const struct loop *l, bool done) {
    if (l->c->once && (done || !check_done(l))) return NULL;
    if (l->c->verify && !has_journal(l)) {
        const char *words[] = {"verify", l->c->verify, NULL};
        if (rig_run(&l->rig, words, rig_path(&l->rig, RIG_WORK), NULL) != 0)
            return "then verify finds damage";
    }
    int status = rig_run(&l->rig, l->c->words, rig_path(&l->rig, RIG_WORK), NULL);
    if (l->c->once && status == pl_err_exit_status(PL_ERR_USAGE))
        return rig_judge_files(&l->rig, true); /* it has finished the save, and finds it whole */
    if (status != 0) return textf("then the next run ends with %d", status);
    const char *wrong = check_done(l);
    return wrong ? textf("after the next run: %s", wrong) : NULL;
}

/* --- the loop --------------------------------------------------------------------------------- */

static unsigned read_calls(const struct loop *l, struct call *to, unsigned most) {
    unsigned n = 0;
    char *text = file_read(rig_path(&l->rig, "calls"), NULL), *rest = NULL;
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        ck_assert_uint_lt(n, most);
        unsigned number = 0; /* threads may write their lines in another order */
        struct call c;
        ck_assert_int_eq(sscanf(line, "%u %15s %*s %511[^\n]", &number, c.kind, c.path), 3);
        ck_assert(number >= 1 && number <= most);
        to[number - 1] = c;
        n++;
    }
    free(text);
    return n;
}

/* False: the run came to its end before that call. */
static bool find_hit(struct loop *l, unsigned at) {
    static struct call calls[MOST_CALLS];
    if (!path_exists(rig_path(&l->rig, "calls")) || read_calls(l, calls, MOST_CALLS) < at)
        return false;
    l->hit = calls[at - 1];
    return true;
}

static void try(struct loop *l, struct attempt a) {
    const struct rig_faults f = {begin_faults, end_faults, &a};
    rig_restore(&l->rig);
    unlink(rig_path(&l->rig, "calls"));
    int status = rig_run(&l->rig, l->c->words, rig_path(&l->rig, RIG_WORK), &f);
    if (!find_hit(l, a.at)) return;
    const char *wrong = check_outcome(l, &a, status);
    l->tried++;
    l->told += status != 0;
    l->silent += status == 0;
    if (!wrong) wrong = check_after(l, status == 0);
    if (wrong)
        rig_report(&l->rig,
                   textf("%s, call %u (%s %s) %s", l->c->name, a.at, l->hit.kind,
                         l->hit.path + strlen(l->rig.dir), a.fault->name),
                   status, wrong);
}

static void list_calls(struct loop *l) {
    struct attempt none = {0};
    const struct rig_faults f = {begin_faults, end_faults, &none};
    scratch_copy(rig_path(&l->rig, RIG_START), rig_path(&l->rig, RIG_UNDISTURBED));
    int status = rig_run(&l->rig, l->c->words, rig_path(&l->rig, RIG_UNDISTURBED), &f);
    char *err = file_read(rig_path(&l->rig, "stderr"), NULL);
    ck_assert_msg(status == 0, "undisturbed: exit %d: %s", status, err);
    free(err);
    ck_assert_int_eq(rename(rig_path(&l->rig, "stdout"), rig_path(&l->rig, "expected")), 0);
    l->n = read_calls(l, l->calls, MOST_CALLS);
}

static unsigned try_each(struct loop *l, unsigned stride, bool counting) {
    unsigned n = 0;
    for (unsigned at = 1; at <= l->n; at++)
        for (size_t k = 0; k < N_FAULTS; k++) {
            if (!is_kind_of(&faults[k], l->calls[at - 1].kind)) continue;
            if (!counting && n % stride == 0) try(l, (struct attempt){&faults[k], at});
            n++;
        }
    return n;
}

static void try_all(struct loop *l) {
    const char *only = getenv("PLIMSOLL_FAULT");
    l->all = try_each(l, 1, true);
    if (only) {
        for (size_t k = 0; k < N_FAULTS; k++)
            try(l, (struct attempt){&faults[k], (unsigned)atoi(only)});
        return;
    }
    try_each(l, getenv("PLIMSOLL_FAULT_ALL") ? 1 : 1 + l->all / MOST_TRIES, false);
}

static const char *wanted;

START_TEST(every_call_that_fails_is_told_and_loses_nothing) {
    static struct loop l;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (strcmp(cases[i].name, wanted) == 0) l.c = &cases[i];
    ck_assert_msg(l.c != NULL, "no case is called %s", wanted);
    rig_make(&l.rig, l.c->prepare, NULL);
    list_calls(&l);
    try_all(&l);
    printf("%s: %u calls; %u of %u faults tried, %u told, %u made up for, %u broke the rules\n",
           wanted, l.n, l.tried, l.all, l.told, l.silent, l.rig.broken);
    scratch_remove(l.rig.dir);
    ck_assert_uint_eq(l.rig.broken, 0);
}
END_TEST

int main(int argc, char *argv[]) {
    if (argc != 2) return 2;
    wanted = argv[1];
    return rig_check("fault.io", every_call_that_fails_is_told_and_loses_nothing);
}
