#include "tests/fault/fault_rig.h"
#include "tests/support/hang.h"

#include "tests/support/tiny.h"
#include "tools/plimsoll/cli.h"

#include <check.h>
#include <fcntl.h>
#include <jansson.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define RIG_LIMIT_S HANG_SECONDS /* a run that takes longer hangs */

static void run_command(const char *dir, const char *const words[]);

const char *rig_path(const struct rig *r, const char *name) {
    return in_dir(r->dir, name);
}

/* --- what runs find --------------------------------------------------------------------------- */

void rig_make_model(const char *dir) {
    tiny_make(dir, &(struct tiny){.rows = 4, .layers = 1, .longest = 8, .hidden = 8, .ffn = 16},
              "max_steps: 2\nbatch_size: 1\nsave_steps: 1\nthreads: 1\n");
}

/* A finished run in out/, the base of what follows. */
void rig_make_trained(const char *dir) {
    rig_make_model(dir);
    run_command(dir, (const char *[]){"train", "run.yaml", NULL});
}

/* Removes the last checkpoint, so that step 2 runs again; the final files are there. */
void rig_make_interrupted(const char *dir) {
    rig_make_trained(dir);
    scratch_remove(in_dir(dir, "out/checkpoint-2"));
}

void rig_make_adapter(const char *dir) {
    rig_make_trained(dir);
    run_command(dir, (const char *[]){"train", "run.yaml", "mode=lora", "lora_r=2", "model=out",
                                      "init=pretrained", "model_config=null", "save_steps=0",
                                      "output_dir=adapter", NULL});
}

/* --- one run ---------------------------------------------------------------------------------- */

static void hold_disks(const struct rig *r, void *ctx) {
    (void)r, (void)ctx;
#ifdef RIG_HAS_SHIM
    setenv("FAULT_NO_SYNC", "1", 1);
    fault_shim_begin();
#endif
}

static void let_go(const struct rig *r, void *ctx) {
    (void)r, (void)ctx;
#ifdef RIG_HAS_SHIM
    fault_shim_end();
#endif
}

static void redirect(int fd, const char *path, int flags) {
    int opened = open(path, flags, 0666);
    if (opened < 0 || dup2(opened, fd) != fd) _exit(99);
    close(opened);
}

/* The child: the program from its first line to its last. */
static void become(const struct rig *r, const char *const words[], const char *cwd,
                   const struct rig_faults *f) {
    char *argv[RIG_WORDS + 2] = {strdup("plimsoll")};
    int argc = 1;
    for (; words[argc - 1]; argc++)
        argv[argc] = strdup(words[argc - 1]);
    redirect(0, in_dir(r->dir, "stdin"), O_RDONLY);
    redirect(1, in_dir(r->dir, "stdout"), O_WRONLY | O_CREAT | O_TRUNC);
    redirect(2, in_dir(r->dir, "stderr"), O_WRONLY | O_CREAT | O_TRUNC);
    if (chdir(cwd) != 0) _exit(99);
    mallopt(M_PERTURB, 0); /* which meson sets, and which touches every page of large blocks */
    setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
    alarm(RIG_LIMIT_S);
    f->begin(r, f->ctx);
    int status = pl_cli_main(argc, argv);
    f->end(r, f->ctx);
    for (int i = 0; i < argc; i++)
        free(argv[i]);
    exit(status);
}

int rig_run(const struct rig *r, const char *const words[], const char *cwd,
            const struct rig_faults *f) {
    static const struct rig_faults none = {hold_disks, let_go, NULL};
    int status;
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) become(r, words, cwd, f ? f : &none);
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* --- what must hold --------------------------------------------------------------------------- */

static bool ends_with(const char *s, const char *end) {
    size_t n = strlen(s), m = strlen(end);
    return n >= m && strcmp(s + n - m, end) == 0;
}

/* A finding of one run; NULL: all is well. */
struct look {
    const struct rig *rig;
    char path[600]; /* below the directory of the run */
    const char *why;
    bool gone; /* files of this tree must be in work/: nothing was lost */
};

static bool file_is(const struct rig *r, const char *tree, const char *path) {
    const char *ours = textf("%s/%s/%s", r->dir, RIG_WORK, path);
    const char *theirs = textf("%s/%s/%s", r->dir, tree, path);
    return path_exists(theirs) && path_exists(ours) && file_same(ours, theirs);
}

static bool json_is_whole(const char *path) {
    size_t n;
    char *text = file_read(path, &n);
    json_t *o = json_loadb(text, n, 0, NULL);
    bool whole = o != NULL;
    json_decref(o);
    free(text);
    return whole;
}

/* A weight file is the old one or the one of a run that nothing disturbed; JSON is whole. What is
 * being written has another name. */
static const char *judge_file(const struct rig *r, const char *path) {
    if (strstr(path, ".tmp")) return NULL;
    if (ends_with(path, ".safetensors"))
        return file_is(r, RIG_START, path) || file_is(r, RIG_UNDISTURBED, path)
                   ? NULL
                   : "is neither the old file nor the new one";
    if (ends_with(path, ".json"))
        return json_is_whole(textf("%s/%s/%s", r->dir, RIG_WORK, path)) ? NULL : "is not whole";
    return NULL;
}

/* False for temporaries, and for the journal of a save that was cut short. */
static bool is_result(const char *name) {
    return !strstr(name, ".tmp") && !ends_with(name, ".journal");
}

static void walk(struct look *l, const char *tree);

static void visit(const char *name, void *ctx) {
    struct look *l = ctx;
    struct stat st;
    size_t n = strlen(l->path);
    if (l->why || (l->gone && !is_result(name))) return;
    snprintf(l->path + n, sizeof l->path - n, "%s%s", n ? "/" : "", name);
    const char *tree = l->gone ? RIG_START : RIG_WORK;
    if (lstat(textf("%s/%s/%s", l->rig->dir, tree, l->path), &st) != 0)
        l->why = "cannot be looked at";
    else if (S_ISDIR(st.st_mode))
        walk(l, tree);
    else if (l->gone)
        l->why = path_exists(textf("%s/%s/%s", l->rig->dir, RIG_WORK, l->path)) ? NULL : "is gone";
    else
        l->why = judge_file(l->rig, l->path);
    if (!l->why) l->path[n] = 0;
}

static void walk(struct look *l, const char *tree) {
    char dir[1024];
    snprintf(dir, sizeof dir, "%s/%s/%s", l->rig->dir, tree, l->path);
    dir_each(dir, visit, l);
}

/* Results that a run which said it succeeded does not have. */
static void visit_done(const char *name, void *ctx) {
    struct look *l = ctx;
    struct stat st;
    size_t n = strlen(l->path);
    if (l->why) return;
    snprintf(l->path + n, sizeof l->path - n, "%s%s", n ? "/" : "", name);
    if (stat(textf("%s/%s/%s", l->rig->dir, RIG_UNDISTURBED, l->path), &st) == 0 &&
        S_ISDIR(st.st_mode))
        dir_each(textf("%s/%s/%s", l->rig->dir, RIG_UNDISTURBED, l->path), visit_done, l);
    else if (ends_with(l->path, ".safetensors") && !file_is(l->rig, RIG_UNDISTURBED, l->path))
        l->why = "is not what an undisturbed run writes";
    if (!l->why) l->path[n] = 0;
}

const char *rig_judge_files(const struct rig *r, bool done) {
    struct look l = {.rig = r};
    walk(&l, RIG_WORK);
    if (!l.why) {
        l.gone = true;
        walk(&l, RIG_START);
    }
    if (!l.why && done) dir_each(rig_path(r, RIG_UNDISTURBED), visit_done, &l);
    return l.why ? textf("%s %s", l.path, l.why) : NULL;
}

static uint64_t hash_text(const char *s, uint64_t hash) {
    for (; *s; s++)
        hash = (hash ^ (unsigned char)*s) * UINT64_C(1099511628211);
    return hash;
}

void rig_report(struct rig *r, const char *where, int status, const char *what) {
    char *err = file_read(rig_path(r, "stderr"), NULL);
    const char *said = err;
    for (const char *s = err; (s = strstr(s, "plimsoll: ")); s++)
        said = s;
    uint64_t hash = hash_text(said, hash_text(what, (uint64_t)status));
    bool told = r->n_told == RIG_REPORTS;
    for (unsigned i = 0; i < r->n_told; i++)
        told |= r->told[i] == hash;
    r->broken++;
    if (!told) {
        r->told[r->n_told++] = hash;
        fprintf(stderr, "%s: exit %d: %s; last said: %.300s\n", where, status, what, said);
    }
    free(err);
}

/* --- directories ------------------------------------------------------------------------------ */

static void run_command(const char *dir, const char *const words[]) {
    struct rig r = {0};
    snprintf(r.dir, sizeof r.dir, "%.*s", (int)(strrchr(dir, '/') - dir), dir);
    file_write(in_dir(r.dir, "stdin"), "");
    int status = rig_run(&r, words, dir, NULL);
    char *err = file_read(in_dir(r.dir, "stderr"), NULL);
    ck_assert_msg(status == 0, "%s: exit %d: %s", words[0], status, err);
    free(err);
}

/* The directory is in memory if there is such a file system: no run waits for a disk. */
void rig_make(struct rig *r, void (*prepare)(const char *dir), const char *input) {
    *r = (struct rig){0};
    if (access("/dev/shm", W_OK) == 0 && !getenv("TMPDIR")) setenv("TMPDIR", "/dev/shm", 1);
    scratch_make(r->dir);
    ck_assert_int_eq(mkdir(rig_path(r, RIG_START), 0777), 0);
    setenv("XDG_CACHE_HOME", "cache", 1);
    setenv("HF_HUB_CACHE", "hub", 1);
    char dir[SCRATCH_PATH + 16];
    snprintf(dir, sizeof dir, "%s/%s", r->dir, RIG_START);
    prepare(dir);
    file_write(rig_path(r, "stdin"), input ? input : "");
}

void rig_restore(const struct rig *r) {
    scratch_remove(rig_path(r, RIG_WORK));
    scratch_copy(rig_path(r, RIG_START), rig_path(r, RIG_WORK));
}

int rig_check(const char *suite, const TTest *test) {
    Suite *s = suite_create(suite);
    TCase *tc = tcase_create("calls");
    tcase_set_timeout(tc, 0);
    tcase_add_test(tc, test);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_set_fork_status(sr, CK_NOFORK);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
