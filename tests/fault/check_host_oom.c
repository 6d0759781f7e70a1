/* check_host_oom.c - every request for memory of a command fails, once or from there on.
 *
 * check_host_oom NAME: a run of the case without a failure counts its requests; then a child each
 * runs it with request N failing once, and with N and all after it failing. What must hold is in
 * check_outcome(). Requests that the same calls led to more often than the case allows are passed
 * over, and under a sanitizer, where a run also must not leak, all but some 150;
 * PLIMSOLL_FAULT=all tries every one, PLIMSOLL_FAULT=N and N+ that one alone. */
#include "estimator/base/alloc.h"
#include "estimator/base/errors.h"
#include "tests/fault/fault_rig.h"
#include "tests/support/tiny.h"

#include <check.h>
#include <inttypes.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define SLOW_RUNS 150 /* requests that are tried where a run is slow */

/* --- the cases -------------------------------------------------------------------------------- */

struct oom_case {
    const char *name;
    const char *words[RIG_WORDS];
    void (*prepare)(const char *dir); /* makes the directory that the command runs in */
    const char *input;                /* text of stdin; NULL = nothing */
    unsigned alike;                   /* requests of the same callers that are tried; 0: all */
    bool writes;                      /* files: every run gets its own copy of the directory */
    bool timed;                       /* stdout holds times: not compared */
};

/* A model of the catalogue, whose files the hub cache has with another width. */
static void make_hub(const char *dir) {
    rig_make_model(dir);
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

static void make_foreign(const char *dir) {
    ck_assert_int_eq(mkdir(in_dir(dir, "data"), 0777), 0);
    file_write(in_dir(dir, "data/dataset_info.json"),
               "{\"a\": {\"file_name\": \"a.json\", \"formatting\": \"sharegpt\"}}");
    file_write(in_dir(dir, "their.yaml"),
               "model_name_or_path: x\nfinetuning_type: lora\nlora_target: q_proj,v_proj\n"
               "dataset: a\ntemplate: llama3\nbf16: true\nlora_rank: 4\nlora_rank: 8\n"
               "deepspeed: data/dataset_info.json\nreport_to: none\n");
    file_write(in_dir(dir, "tune.yaml"),
               "model: {_component_: a.lora_b, lora_attn_modules: [q_proj]}\n"
               "checkpointer: {checkpoint_dir: \"${a}\"}\na: x\n"
               "tokenizer: {max_seq_len: 8}\n");
}

/* A hub cache that is whole, and a program in place of `hf` that leaves it as it is. */
static void make_fetched(const char *dir) {
    make_hub(dir);
    file_write(in_dir(dir, "hub/models--HuggingFaceTB--SmolLM2-135M/snapshots/abc/"
                           "model.safetensors"),
               "");
    file_write(in_dir(dir, "hf"), "#!/bin/sh\necho fetched\n");
    ck_assert_int_eq(chmod(in_dir(dir, "hf"), 0700), 0);
    ck_assert_int_eq(setenv("PATH", dir, 1), 0);
}

static const struct oom_case cases[] = {
    {.name = "import",
     .words = {"import", "their.yaml", "-o", "job.yaml"},
     .prepare = make_foreign,
     .alike = 1,
     .writes = true},
    {.name = "import_json",
     .words = {"import", "tune.yaml", "--json"},
     .prepare = make_foreign,
     .alike = 1},
    {.name = "estimate",
     .words = {"estimate-vram", "config.json", "--mode", "qlora", "--json"},
     .prepare = rig_make_model},
    {.name = "estimate_judged",
     .words = {"estimate-vram", "config.json", "--mode", "full", "--vram", "1GiB"},
     .prepare = rig_make_model,
     .alike = 1},
    {.name = "estimate_hub",
     .words = {"estimate-vram", "HuggingFaceTB/SmolLM2-135M", "--json"},
     .prepare = make_hub,
     .alike = 1},
    {.name = "estimate_receipt",
     .words = {"estimate-vram", "config.json", "--mode", "lora", "--receipt", "receipt.json"},
     .prepare = rig_make_model,
     .alike = 1,
     .writes = true},
    {.name = "fetch", .words = {"fetch", "smollm2-135m", "--json"}, .prepare = make_fetched},
    {.name = "plan_diff",
     .words = {"plan", "--diff", "out/receipt.json", "out/receipt.json", "--json"},
     .prepare = rig_make_trained},
    {.name = "report",
     .words = {"report", "out", "--json"},
     .prepare = rig_make_trained,
     .alike = 1,
     .writes = true},
    {.name = "plan",
     .words = {"plan", "run.yaml", "--json"},
     .prepare = rig_make_model,
     .alike = 1},
    {.name = "plan_judged",
     .words = {"plan", "run.yaml", "--vram", "300KiB", "--device", "cpu"},
     .prepare = rig_make_model,
     .alike = 1},
    {.name = "inspect", .words = {"inspect", "run.yaml", "--json"}, .prepare = rig_make_model},
    {.name = "validate",
     .words = {"validate", "run.yaml", "--json"},
     .prepare = rig_make_model,
     .alike = 1},
    {.name = "tokenize",
     .words = {"tokenize", "--tokenizer", "tokenizer.json", "--json"},
     .input = "{\"text\":\"abc ab\"}\n{\"text\":\"<s>a\\nb\"}\n",
     .prepare = tiny_make_tokenizer},
    {.name = "tokenize_text",
     .words = {"tokenize", "--tokenizer", "tokenizer.json"},
     .input = "abc ab\n",
     .prepare = tiny_make_tokenizer},
    {.name = "train",
     .words = {"train", "run.yaml"},
     .prepare = rig_make_model,
     .alike = 1,
     .writes = true},
    {.name = "train_json",
     .words = {"train", "run.yaml", "--json", "mode=qlora", "lora_r=2"},
     .prepare = rig_make_model,
     .alike = 1,
     .writes = true,
     .timed = true},
    {.name = "resume",
     .words = {"train", "run.yaml"},
     .prepare = rig_make_interrupted,
     .alike = 1,
     .writes = true},
    {.name = "generate",
     .words = {"generate", "--model", "out", "--prompt-ids", "1,2,3", "--max-new-tokens", "3"},
     .prepare = rig_make_trained},
    {.name = "merge",
     .words = {"merge", "--model", "out", "--adapter", "adapter", "--output", "merged"},
     .prepare = rig_make_adapter,
     .alike = 1,
     .writes = true},
};

/* --- one run ---------------------------------------------------------------------------------- */

struct loop {
    struct rig rig;
    const struct oom_case *c;
    uint64_t requests, *callers; /* requests of the run without faults; [requests], hashes */
    uint64_t only;               /* the request that was asked for; 0: all */
    uint64_t tried, survived, refused;
};

struct failure {
    uint64_t at, count; /* at 0: none */
    bool traced;
};

/* Memory of the process by fault_shim.h. A sanitizer has its own: there, what Plimsoll and jansson
 * ask for. */
#ifdef RIG_HAS_SHIM
enum { IS_SLOW = false };

static void begin_faults(const struct rig *r, void *ctx) {
    const struct failure *f = ctx;
    setenv("FAULT_CALLS", "memory", 1);
    setenv("FAULT_AT", textf("%" PRIu64 "%s", f->at, f->count > 1 ? "+" : ""), 1);
    setenv("FAULT_COUNT", rig_path(r, "requests"), 1);
    if (!f->at) setenv("FAULT_CALLERS", rig_path(r, "callers"), 1);
    if (f->traced) setenv("FAULT_TRACE", "1", 1);
    setenv("FAULT_NO_SYNC", "1", 1);
    fault_shim_begin();
}

static void end_faults(const struct rig *r, void *ctx) {
    (void)r, (void)ctx;
    fault_shim_end();
}
#else
enum { IS_SLOW = true };

static void begin_faults(const struct rig *r, void *ctx) {
    const struct failure *f = ctx;
    (void)r;
    pl_alloc_fail(f->at, f->count);
}

static void end_faults(const struct rig *r, void *ctx) {
    uint64_t requests = pl_alloc_requests();
    (void)ctx;
    pl_alloc_fail(0, 0);
    file_write(rig_path(r, "requests"), textf("%" PRIu64 "\n", requests));
}
#endif

static int run(const struct loop *l, const char *tree, struct failure f) {
    const struct rig_faults faults = {begin_faults, end_faults, &f};
    return rig_run(&l->rig, l->c->words, rig_path(&l->rig, tree), &faults);
}

/* --- what must hold --------------------------------------------------------------------------- */

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

static const char *check_outcome(const struct loop *l, int status) {
    const struct rig *r = &l->rig;
    if (status == 128 + SIGALRM) return "hangs";
    if (status > 128) return "is killed";
    if (status != 0 && status != pl_err_exit_status(PL_ERR_HOST_OOM)) return "another exit status";
    if (status == 0 && !l->c->timed && !file_same(rig_path(r, "stdout"), rig_path(r, "expected")))
        return "exit 0 and another answer";
    if (status != 0 && !names_shortage(r)) return "does not say RUNTIME_HOST_OOM";
    if (status != 0 && has_word(l->c, "--json") && !tells_in_json(r))
        return "no error object on stdout";
    return l->c->writes ? rig_judge_files(r, status == 0) : NULL;
}

/* --- the loop --------------------------------------------------------------------------------- */

static void try(struct loop *l, struct failure f) {
    if (l->c->writes) rig_restore(&l->rig);
    int status = run(l, l->c->writes ? RIG_WORK : RIG_START, f);
    const char *wrong = check_outcome(l, status);
    l->tried++;
    l->survived += status == 0;
    l->refused += status != 0;
    if (wrong)
        rig_report(&l->rig,
                   textf("%s, request %" PRIu64 "%s", l->c->name, f.at, f.count > 1 ? "+" : ""),
                   status, wrong);
}

static void run_undisturbed(struct loop *l) {
    const struct rig *r = &l->rig;
    size_t n = 0;
    if (l->c->writes) scratch_copy(rig_path(r, RIG_START), rig_path(r, RIG_UNDISTURBED));
    int status = run(l, l->c->writes ? RIG_UNDISTURBED : RIG_START, (struct failure){0});
    char *err = file_read(rig_path(r, "stderr"), NULL);
    ck_assert_msg(status == 0, "undisturbed: exit %d: %s", status, err);
    free(err);
    ck_assert_int_eq(rename(rig_path(r, "stdout"), rig_path(r, "expected")), 0);
    char *requests = file_read(rig_path(r, "requests"), NULL);
    l->requests = strtoull(requests, NULL, 10);
    free(requests);
    if (!IS_SLOW) l->callers = (uint64_t *)(void *)file_read(rig_path(r, "callers"), &n);
    ck_assert(IS_SLOW || n == l->requests * sizeof *l->callers);
}

/* True if request n has callers of which not enough requests were tried. */
static bool is_new(const struct loop *l, uint64_t n) {
    unsigned seen = 0;
    if (!l->c->alike || IS_SLOW) return true;
    for (uint64_t i = 0; i + 1 < n && seen < l->c->alike; i++)
        seen += l->callers[i] == l->callers[n - 1];
    return seen < l->c->alike;
}

static void try_all(struct loop *l) {
    const char *given = getenv("PLIMSOLL_FAULT");
    bool all = given && strcmp(given, "all") == 0;
    l->only = given && !all ? strtoull(given, NULL, 10) : 0;
    if (l->only) {
        try(l, (struct failure){l->only, strchr(given, '+') ? UINT64_MAX : 1, true});
        printf("%s: its files are in %s\n", l->c->name, l->rig.dir);
        return;
    }
    uint64_t stride = !all && IS_SLOW ? 1 + l->requests / SLOW_RUNS : 1;
    for (uint64_t n = 1; n <= l->requests; n += stride) {
        if (!all && !is_new(l, n)) continue;
        try(l, (struct failure){n, 1, false});
        try(l, (struct failure){n, UINT64_MAX, false});
    }
}

static const char *wanted;

START_TEST(every_request_that_fails_is_told_or_made_up_for) {
    static struct loop l;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (strcmp(cases[i].name, wanted) == 0) l.c = &cases[i];
    ck_assert_msg(l.c != NULL, "no case is called %s", wanted);
    rig_make(&l.rig, l.c->prepare, l.c->input);
    run_undisturbed(&l);
    try_all(&l);
    printf("%s: %" PRIu64 " requests; %" PRIu64 " runs, %" PRIu64 " succeeded, %" PRIu64
           " were refused, %u broke the rules\n",
           wanted, l.requests, l.tried, l.survived, l.refused, l.rig.broken);
    if (!l.only) scratch_remove(l.rig.dir);
    free(l.callers);
    ck_assert_uint_eq(l.rig.broken, 0);
}
END_TEST

int main(int argc, char *argv[]) {
    if (argc != 2) return 2;
    wanted = argv[1];
    return rig_check("fault.host_oom", every_request_that_fails_is_told_or_made_up_for);
}
