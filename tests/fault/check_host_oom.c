/* check_host_oom.c - every request for memory of a command fails, once or from there on.
 *
 * check_host_oom NAME: a run of the case without a failure counts its requests; then a child each
 * runs it with request N failing once, and with N and all after it failing. What must hold is in
 * check_outcome(). Requests that the same calls led to more often than the case allows are passed
 * over, and under a sanitizer, where a run also must not leak, all but some 150;
 * PLIMSOLL_FAULT=all tries every one, PLIMSOLL_FAULT=N and N+ that one alone. */
#include "estimator/base/alloc.h"
#include "estimator/base/errors.h"
#include "tests/support/fault_shim.h"
#include "tests/support/scratch.h"
#include "tests/support/tiny.h"
#include "tools/cli.h"

#include <check.h>
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define MAX_WORDS   16
#define MAX_REPORTS 24         /* of failures that differ, by a case */
#define SLOW_RUNS   150        /* requests that are tried where a run is slow */
#define LIMIT_S     20         /* seconds that a run may take: it hangs */

/* --- the cases -------------------------------------------------------------------------------- */

struct oom_case {
    const char *name;
    const char *words[MAX_WORDS];
    void (*prepare)(const char *dir); /* makes the directory that the command runs in */
    const char *input;                /* of stdin; NULL: nothing */
    unsigned alike;                   /* requests of the same callers that are tried; 0: all */
    bool writes;                      /* files: every run gets its own copy of the directory */
    bool timed;                       /* stdout holds times: not compared */
};

static void run_command(const char *dir, const char *const words[]);

static void make_model(const char *dir) {
    tiny_make(dir, &(struct tiny){.rows = 4, .layers = 1, .longest = 8, .hidden = 8, .ffn = 16},
              "max_steps: 2\nbatch_size: 1\nsave_steps: 1\nthreads: 1\n");
}

/* A finished run in out/, the base of what follows. */
static void make_trained(const char *dir) {
    make_model(dir);
    run_command(dir, (const char *[]){"train", "run.yaml", NULL});
}

/* Its last checkpoint is gone, so that step 2 runs again; the final files are there. */
static void make_interrupted(const char *dir) {
    make_trained(dir);
    scratch_remove(in_dir(dir, "out/checkpoint-2"));
}

static void make_adapter(const char *dir) {
    make_trained(dir);
    run_command(dir, (const char *[]){"train", "run.yaml", "mode=lora", "lora_r=2", "model=out",
                                      "init=pretrained", "model_config=null", "save_steps=0",
                                      "output_dir=adapter", NULL});
}

/* A model of the catalogue, whose files the hub cache has with another width. */
static void make_hub(const char *dir) {
    make_model(dir);
    const char *const parts[] = {"hub", "hub/models--HuggingFaceTB--SmolLM2-135M",
                                 "hub/models--HuggingFaceTB--SmolLM2-135M/refs",
                                 "hub/models--HuggingFaceTB--SmolLM2-135M/snapshots",
                                 "hub/models--HuggingFaceTB--SmolLM2-135M/snapshots/abc"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        ck_assert_int_eq(mkdir(in_dir(dir, parts[i]), 0777), 0);
    file_write(in_dir(dir, textf("%s/main", parts[2])), "abc\n");
    ck_assert_int_eq(
        rename(in_dir(dir, "config.json"), in_dir(dir, textf("%s/config.json", parts[4]))), 0);
}

static void make_tokenizer(const char *dir) {
    file_write(
        in_dir(dir, "tokenizer.json"),
        "{\"version\":\"1.0\",\"added_tokens\":[{\"id\":8,\"content\":\"<s>\",\"special\":true,"
        "\"single_word\":false,\"lstrip\":false,\"rstrip\":false,\"normalized\":false}],"
        "\"normalizer\":{\"type\":\"NFC\"},"
        "\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false,"
        "\"trim_offsets\":true,\"use_regex\":true},\"post_processor\":null,"
        "\"decoder\":{\"type\":\"ByteLevel\",\"add_prefix_space\":true,"
        "\"trim_offsets\":true,\"use_regex\":true},"
        "\"model\":{\"type\":\"BPE\",\"dropout\":null,\"unk_token\":null,"
        "\"vocab\":{\"a\":0,\"b\":1,\"c\":2,\"\xC4\xA0\":3,\"ab\":4,\"abc\":5,"
        "\"\xC4\xA0"
        "a\":6,\"\xC4\x8A\":7},\"merges\":[\"a b\",\"ab c\",\"\xC4\xA0 a\"]}}");
}

static const struct oom_case cases[] = {
    {.name = "estimate",
     .words = {"estimate-vram", "config.json", "--mode", "qlora", "--json"},
     .prepare = make_model},
    {.name = "estimate_judged",
     .words = {"estimate-vram", "config.json", "--mode", "full", "--vram", "1GiB"},
     .prepare = make_model,
     .alike = 1},
    {.name = "estimate_hub",
     .words = {"estimate-vram", "HuggingFaceTB/SmolLM2-135M", "--json"},
     .prepare = make_hub,
     .alike = 1},
    {.name = "plan", .words = {"plan", "run.yaml", "--json"}, .prepare = make_model, .alike = 1},
    {.name = "plan_judged",
     .words = {"plan", "run.yaml", "--vram", "300KiB"},
     .prepare = make_model,
     .alike = 1},
    {.name = "inspect", .words = {"inspect", "run.yaml", "--json"}, .prepare = make_model},
    {.name = "validate",
     .words = {"validate", "run.yaml", "--json"},
     .prepare = make_model,
     .alike = 1},
    {.name = "tokenize",
     .words = {"tokenize", "--tokenizer", "tokenizer.json", "--json"},
     .input = "{\"text\":\"abc ab\"}\n{\"text\":\"<s>a\\nb\"}\n",
     .prepare = make_tokenizer},
    {.name = "tokenize_text",
     .words = {"tokenize", "--tokenizer", "tokenizer.json"},
     .input = "abc ab\n",
     .prepare = make_tokenizer},
    {.name = "train",
     .words = {"train", "run.yaml"},
     .prepare = make_model,
     .alike = 1,
     .writes = true},
    {.name = "train_json",
     .words = {"train", "run.yaml", "--json", "mode=qlora", "lora_r=2"},
     .prepare = make_model,
     .alike = 1,
     .writes = true,
     .timed = true},
    {.name = "resume",
     .words = {"train", "run.yaml"},
     .prepare = make_interrupted,
     .alike = 1,
     .writes = true},
    {.name = "generate",
     .words = {"generate", "--model", "out", "--prompt-ids", "1,2,3", "--max-new-tokens", "3"},
     .prepare = make_trained},
    {.name = "merge",
     .words = {"merge", "--model", "out", "--adapter", "adapter", "--output", "merged"},
     .prepare = make_adapter,
     .alike = 1,
     .writes = true},
};

/* --- one run ---------------------------------------------------------------------------------- */

struct rig {
    const struct oom_case *c;
    char dir[SCRATCH_PATH];
    uint64_t requests, *callers; /* of the run that nothing disturbs; [requests], hashes */
    uint64_t told[MAX_REPORTS]; /* hashes of what was reported */
    unsigned n_told, broken;
    uint64_t only; /* the request that was asked for; 0: all */
    uint64_t tried, survived, refused;
};

struct failure {
    uint64_t at, count; /* at 0: none */
};

static void redirect(int fd, const char *path, int flags) {
    int opened = open(path, flags, 0666);
    if (opened < 0 || dup2(opened, fd) != fd) _exit(99);
    close(opened);
}

/* Memory of the process by fault_shim.h. A sanitizer has its own: there, what Plimsoll and jansson
 * ask for. */
#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
enum { IS_SLOW = false };

static void begin_faults(const struct rig *r, struct failure f) {
    setenv("FAULT_CALLS", "memory", 1);
    setenv("FAULT_AT", textf("%" PRIu64 "%s", f.at, f.count > 1 ? "+" : ""), 1);
    setenv("FAULT_COUNT", in_dir(r->dir, "requests"), 1);
    if (!f.at) setenv("FAULT_CALLERS", in_dir(r->dir, "callers"), 1);
    if (r->only) setenv("FAULT_TRACE", "1", 1);
    setenv("FAULT_NO_SYNC", "1", 1);
    fault_shim_begin();
}

static void end_faults(const struct rig *r) {
    (void)r;
    fault_shim_end();
}
#else
enum { IS_SLOW = true };

static void begin_faults(const struct rig *r, struct failure f) {
    (void)r;
    pl_alloc_fail(f.at, f.count);
}

static void end_faults(const struct rig *r) {
    uint64_t requests = pl_alloc_requests();
    pl_alloc_fail(0, 0);
    file_write(in_dir(r->dir, "requests"), textf("%" PRIu64 "\n", requests));
}
#endif

/* The child: the program from its first line to its last. */
static void become(const struct rig *r, const char *const words[], const char *cwd,
                   struct failure f) {
    char *argv[MAX_WORDS + 2] = {strdup("plimsoll")};
    int argc = 1;
    for (; words[argc - 1]; argc++)
        argv[argc] = strdup(words[argc - 1]);
    redirect(0, in_dir(r->dir, "stdin"), O_RDONLY);
    redirect(1, in_dir(r->dir, "stdout"), O_WRONLY | O_CREAT | O_TRUNC);
    redirect(2, in_dir(r->dir, "stderr"), O_WRONLY | O_CREAT | O_TRUNC);
    if (chdir(cwd) != 0) _exit(99);
    mallopt(M_PERTURB, 0); /* which meson sets, and which touches every page of large blocks */
    setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
    alarm(LIMIT_S);
    begin_faults(r, f);
    int status = pl_cli_main(argc, argv);
    end_faults(r);
    for (int i = 0; i < argc; i++)
        free(argv[i]);
    exit(status);
}

/* The exit status, or 128 + a signal. */
static int run(const struct rig *r, const char *const words[], const char *cwd, struct failure f) {
    int status;
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) become(r, words, cwd, f);
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* --- what must hold --------------------------------------------------------------------------- */

static const char *const work = "work", *const start = "start", *const undisturbed = "undisturbed";

static const char *rig_path(const struct rig *r, const char *name) {
    return in_dir(r->dir, name);
}

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
    const char *ours = textf("%s/%s/%s", r->dir, work, path);
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
        return file_is(r, start, path) || file_is(r, undisturbed, path)
                   ? NULL
                   : "is neither the old file nor the new one";
    if (ends_with(path, ".json"))
        return json_is_whole(textf("%s/%s/%s", r->dir, work, path)) ? NULL : "is not whole";
    return NULL;
}

static void walk(struct look *l, const char *tree);

static void visit(const char *name, void *ctx) {
    struct look *l = ctx;
    struct stat st;
    size_t n = strlen(l->path);
    if (l->why) return;
    snprintf(l->path + n, sizeof l->path - n, "%s%s", n ? "/" : "", name);
    const char *tree = l->gone ? start : work;
    if (lstat(textf("%s/%s/%s", l->rig->dir, tree, l->path), &st) != 0)
        l->why = "cannot be looked at";
    else if (S_ISDIR(st.st_mode))
        walk(l, tree);
    else if (l->gone)
        l->why = path_exists(textf("%s/%s/%s", l->rig->dir, work, l->path)) ? NULL : "is gone";
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
    if (stat(textf("%s/%s/%s", l->rig->dir, undisturbed, l->path), &st) == 0 && S_ISDIR(st.st_mode))
        dir_each(textf("%s/%s/%s", l->rig->dir, undisturbed, l->path), visit_done, l);
    else if (ends_with(l->path, ".safetensors") && !file_is(l->rig, undisturbed, l->path))
        l->why = "is not what an undisturbed run writes";
    if (!l->why) l->path[n] = 0;
}

static uint64_t hash_text(const char *s, uint64_t hash) {
    for (; *s; s++)
        hash = (hash ^ (unsigned char)*s) * UINT64_C(1099511628211);
    return hash;
}

static void report(struct rig *r, struct failure f, int status, const char *what) {
    char *err = file_read(rig_path(r, "stderr"), NULL);
    const char *said = err;
    for (const char *s = err; (s = strstr(s, "plimsoll: ")); s++)
        said = s;
    uint64_t hash = hash_text(said, hash_text(what, (uint64_t)status));
    bool told = r->n_told == MAX_REPORTS;
    for (unsigned i = 0; i < r->n_told; i++)
        told |= r->told[i] == hash;
    r->broken++;
    if (!told) {
        r->told[r->n_told++] = hash;
        fprintf(stderr, "%s, request %" PRIu64 "%s: exit %d: %s; last said: %.300s\n", r->c->name,
                f.at, f.count == 1 ? "" : "+", status, what, said);
    }
    free(err);
}

static const char *judge_files(struct look *l, bool done) {
    walk(l, work);
    if (!l->why) {
        l->gone = true;
        walk(l, start);
    }
    if (!l->why && done) dir_each(textf("%s/%s", l->rig->dir, undisturbed), visit_done, l);
    return l->why ? textf("%s %s", l->path, l->why) : NULL;
}

/* The last line of stdout is {"error": ...} of the shortage. */
static bool tells_in_json(const struct rig *r) {
    char *out = file_read(rig_path(r, "stdout"), NULL);
    size_t n = strlen(out);
    while (n && out[n - 1] == '\n')
        out[--n] = 0;
    const char *line = strrchr(out, '\n');
    json_t *o = json_loads(line ? line + 1 : out, 0, NULL);
    const char *code = json_string_value(json_object_get(json_object_get(o, "error"), "code"));
    bool tells = code && strcmp(code, pl_err_code(PL_ERR_HOST_OOM)) == 0;
    json_decref(o);
    free(out);
    return tells;
}

static bool has_word(const struct oom_case *c, const char *word) {
    for (size_t i = 0; c->words[i]; i++)
        if (strcmp(c->words[i], word) == 0) return true;
    return false;
}

static bool names_shortage(const struct rig *r) {
    char *err = file_read(rig_path(r, "stderr"), NULL);
    bool names = strstr(err, textf("error[%s]: ", pl_err_code(PL_ERR_HOST_OOM)));
    free(err);
    return names;
}

static const char *check_outcome(const struct rig *r, int status) {
    struct look look = {.rig = r};
    if (status == 128 + SIGALRM) return "hangs";
    if (status > 128) return "is killed";
    if (status != 0 && status != pl_err_exit_status(PL_ERR_HOST_OOM)) return "another exit status";
    if (status == 0 && !r->c->timed && !file_same(rig_path(r, "stdout"), rig_path(r, "expected")))
        return "exit 0 and another answer";
    if (status != 0 && !names_shortage(r)) return "does not say RUNTIME_HOST_OOM";
    if (status != 0 && has_word(r->c, "--json") && !tells_in_json(r))
        return "no error object on stdout";
    return r->c->writes ? judge_files(&look, status == 0) : NULL;
}

/* --- the loop --------------------------------------------------------------------------------- */

static void try(struct rig *r, struct failure f) {
    if (r->c->writes) {
        scratch_remove(rig_path(r, work));
        scratch_copy(rig_path(r, start), rig_path(r, work));
    }
    int status = run(r, r->c->words, rig_path(r, r->c->writes ? work : start), f);
    const char *wrong = check_outcome(r, status);
    r->tried++;
    r->survived += status == 0;
    r->refused += status != 0;
    if (wrong) report(r, f, status, wrong);
}

static void run_command(const char *dir, const char *const words[]) {
    struct rig r = {0};
    snprintf(r.dir, sizeof r.dir, "%.*s", (int)(strrchr(dir, '/') - dir), dir);
    file_write(in_dir(r.dir, "stdin"), "");
    int status = run(&r, words, dir, (struct failure){0, 0});
    char *err = file_read(in_dir(r.dir, "stderr"), NULL);
    ck_assert_msg(status == 0, "%s: exit %d: %s", words[0], status, err);
    free(err);
}

/* In memory where there is such a file system: no run waits for a disk. */
static void make_rig(struct rig *r, const struct oom_case *c) {
    *r = (struct rig){.c = c};
    if (access("/dev/shm", W_OK) == 0 && !getenv("TMPDIR")) setenv("TMPDIR", "/dev/shm", 1);
    scratch_make(r->dir);
    ck_assert_int_eq(mkdir(rig_path(r, start), 0777), 0);
    setenv("XDG_CACHE_HOME", "cache", 1);
    setenv("HF_HUB_CACHE", "hub", 1);
    char dir[SCRATCH_PATH + 16];
    snprintf(dir, sizeof dir, "%s/%s", r->dir, start);
    c->prepare(dir);
    file_write(rig_path(r, "stdin"), c->input ? c->input : "");
}

/* The run that nothing disturbs; two, since the first may leave files that the second finds. */
static void run_undisturbed(struct rig *r) {
    const char *cwd = r->c->writes ? undisturbed : start;
    size_t n = 0;
    if (r->c->writes) scratch_copy(rig_path(r, start), rig_path(r, undisturbed));
    int status = run(r, r->c->words, rig_path(r, cwd), (struct failure){0, 0});
    char *err = file_read(rig_path(r, "stderr"), NULL);
    ck_assert_msg(status == 0, "undisturbed: exit %d: %s", status, err);
    free(err);
    ck_assert_int_eq(rename(rig_path(r, "stdout"), rig_path(r, "expected")), 0);
    char *requests = file_read(rig_path(r, "requests"), NULL);
    r->requests = strtoull(requests, NULL, 10);
    free(requests);
    if (!IS_SLOW) r->callers = (uint64_t *)(void *)file_read(rig_path(r, "callers"), &n);
    ck_assert(IS_SLOW || n == r->requests * sizeof *r->callers);
}

/* Whether request n has callers that not enough were tried of. */
static bool is_new(const struct rig *r, uint64_t n) {
    unsigned seen = 0;
    if (!r->c->alike || IS_SLOW) return true;
    for (uint64_t i = 0; i + 1 < n && seen < r->c->alike; i++)
        seen += r->callers[i] == r->callers[n - 1];
    return seen < r->c->alike;
}

static void loop(struct rig *r) {
    const char *given = getenv("PLIMSOLL_FAULT");
    bool all = given && strcmp(given, "all") == 0;
    uint64_t requests = r->requests;
    r->only = given && !all ? strtoull(given, NULL, 10) : 0;
    if (r->only) {
        try(r, (struct failure){r->only, strchr(given, '+') ? UINT64_MAX : 1});
        printf("%s: its files are in %s\n", r->c->name, r->dir);
        return;
    }
    uint64_t stride = !all && IS_SLOW ? 1 + requests / SLOW_RUNS : 1;
    for (uint64_t n = 1; n <= requests; n += stride) {
        if (!all && !is_new(r, n)) continue;
        try(r, (struct failure){n, 1});
        try(r, (struct failure){n, UINT64_MAX});
    }
}

static const char *wanted;

START_TEST(every_request_that_fails_is_told_or_made_up_for) {
    static struct rig r;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (strcmp(cases[i].name, wanted) == 0) make_rig(&r, &cases[i]);
    ck_assert_msg(r.c != NULL, "no case is called %s", wanted);
    run_undisturbed(&r);
    loop(&r);
    printf("%s: %" PRIu64 " requests; %" PRIu64 " runs, %" PRIu64 " succeeded, %" PRIu64
           " were refused, %u broke the rules\n",
           wanted, r.requests, r.tried, r.survived, r.refused, r.broken);
    if (!r.only) scratch_remove(r.dir);
    free(r.callers);
    ck_assert_uint_eq(r.broken, 0);
}
END_TEST

int main(int argc, char *argv[]) {
    if (argc != 2) return 2;
    wanted = argv[1];
    Suite *s = suite_create("fault.host_oom");
    TCase *tc = tcase_create("host_oom");
    tcase_set_timeout(tc, 0);
    tcase_add_test(tc, every_request_that_fails_is_told_or_made_up_for);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_set_fork_status(sr, CK_NOFORK);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
