/* check_order.c - admission runs from cheap to dear, and a plan is made once.
 *
 * The command runs in the test itself. fault_shim tells which files it asks for; the linker puts
 * the functions below before those that open a device, reserve memory, make a plan and take one to
 * run (--wrap). A refusal is tried on a job of which everything dearer is broken as well, so that
 * its code says which stage spoke, and the calls which stages were touched. */
#include "runtime/exec/exec.h"
#include "tests/support/child.h"
#include "tests/support/fault_shim.h"
#include "tests/support/scratch.h"
#include "tests/support/tiny.h"
#include "tools/plimsoll/cli.h"

#include "estimator/plan/plan.h"
#include "tests/support/hang.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* --- what is counted ------------------------------------------------------------------------- */

#define MOST_PLANS 2000
static struct {
    unsigned devices, arenas, plans;
    struct pl_job_shape shape_of[MOST_PLANS], runs; /* shape of each plan; shape of the first that
                                                       is executed */
    bool sketch[MOST_PLANS]; /* true for a brief program, by which levels are compared */
    bool asked[MOST_PLANS];  /* only whether a limit is enough */
    bool executes;
} seen;

/* A call on a file of this name, so that it stands among the others in the log. */
static void mark(const char *name) {
    int fd = open(name, O_RDONLY);
    if (fd >= 0) close(fd);
}

pl_err __real_pl_device_open_at(const struct pl_back_end *back_end, uint32_t ordinal,
                                uint32_t threads, uint64_t budget_bytes, struct pl_device **out,
                                struct pl_diag *d);
pl_err __wrap_pl_device_open_at(const struct pl_back_end *back_end, uint32_t ordinal,
                                uint32_t threads, uint64_t budget_bytes, struct pl_device **out,
                                struct pl_diag *d);
pl_err __wrap_pl_device_open_at(const struct pl_back_end *back_end, uint32_t ordinal,
                                uint32_t threads, uint64_t budget_bytes, struct pl_device **out,
                                struct pl_diag *d) {
    seen.devices++;
    mark("mark.device");
    return __real_pl_device_open_at(back_end, ordinal, threads, budget_bytes, out, d);
}

pl_err __real_pl_arena_reserve(struct pl_device *dev, uint64_t bytes, const char *what,
                               struct pl_arena *out, struct pl_diag *d);
pl_err __wrap_pl_arena_reserve(struct pl_device *dev, uint64_t bytes, const char *what,
                               struct pl_arena *out, struct pl_diag *d);
pl_err __wrap_pl_arena_reserve(struct pl_device *dev, uint64_t bytes, const char *what,
                               struct pl_arena *out, struct pl_diag *d) {
    seen.arenas++;
    mark("mark.reserve");
    return __real_pl_arena_reserve(dev, bytes, what, out, d);
}

pl_err __real_pl_plan_create(const struct pl_program *p, struct pl_plan **out, struct pl_diag *d);
pl_err __wrap_pl_plan_create(const struct pl_program *p, struct pl_plan **out, struct pl_diag *d);
pl_err __real_pl_plan_create_within(const struct pl_program *p, uint64_t limit,
                                    struct pl_plan **out, struct pl_diag *d);
pl_err __wrap_pl_plan_create_within(const struct pl_program *p, uint64_t limit,
                                    struct pl_plan **out, struct pl_diag *d);
pl_err __real_pl_plan_again(struct pl_plan *plan, uint64_t limit, struct pl_diag *d);
pl_err __wrap_pl_plan_again(struct pl_plan *plan, uint64_t limit, struct pl_diag *d);

static void see_plan(const struct pl_program *p, uint64_t limit) {
    ck_assert_uint_lt(seen.plans, MOST_PLANS);
    seen.sketch[seen.plans] = p->brief;
    seen.asked[seen.plans] = limit > 0;
    seen.shape_of[seen.plans++] = p->shape;
}

pl_err __wrap_pl_plan_create(const struct pl_program *p, struct pl_plan **out, struct pl_diag *d) {
    see_plan(p, 0);
    return __real_pl_plan_create(p, out, d);
}

pl_err __wrap_pl_plan_create_within(const struct pl_program *p, uint64_t limit,
                                    struct pl_plan **out, struct pl_diag *d) {
    see_plan(p, limit);
    return __real_pl_plan_create_within(p, limit, out, d);
}

pl_err __wrap_pl_plan_again(struct pl_plan *plan, uint64_t limit, struct pl_diag *d) {
    see_plan(plan->program, limit);
    return __real_pl_plan_again(plan, limit, d);
}

pl_err __real_pl_exec_init(struct pl_exec *e, const struct pl_plan *plan, struct pl_device *dev,
                           struct pl_diag *d);
pl_err __wrap_pl_exec_init(struct pl_exec *e, const struct pl_plan *plan, struct pl_device *dev,
                           struct pl_diag *d);
pl_err __wrap_pl_exec_init(struct pl_exec *e, const struct pl_plan *plan, struct pl_device *dev,
                           struct pl_diag *d) {
    if (!seen.executes) seen.runs = plan->program->shape;
    seen.executes = true;
    return __real_pl_exec_init(e, plan, dev, d);
}

/* --- one command ----------------------------------------------------------------------------- */

static char dir[SCRATCH_PATH];
static char *said, *calls; /* the latest run's stderr, and its calls on files */

static int redirect(int fd, const char *path) {
    int kept = dup(fd), opened = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    ck_assert(kept >= 0 && opened >= 0 && dup2(opened, fd) == fd);
    close(opened);
    return kept;
}

static void restore(int fd, int kept) {
    ck_assert_int_eq(dup2(kept, fd), fd);
    close(kept);
}

static int run(const char *const words[]) {
    char *argv[24] = {strdup("plimsoll")};
    int argc = 1;
    for (; words[argc - 1]; argc++)
        argv[argc] = strdup(words[argc - 1]);
    free(said);
    free(calls);
    memset(&seen, 0, sizeof seen);
    unlink("log");
    fflush(NULL);
    int out = redirect(1, "stdout"), err = redirect(2, "stderr");
    setenv("FAULT_CALLS", "open,create,lock,mkdir", 1);
    setenv("FAULT_LOG", "log", 1);
    setenv("FAULT_NO_SYNC", "1", 1);
    fault_shim_begin();
    int status = pl_cli_main(argc, argv);
    fflush(NULL);
    fault_shim_end();
    restore(1, out);
    restore(2, err);
    said = file_read("stderr", NULL);
    calls = file_read("log", NULL);
    for (int i = 0; i < argc; i++)
        free(argv[i]);
    return status;
}
#define RUN(...) run((const char *[]){__VA_ARGS__, NULL})

/* --- the job --------------------------------------------------------------------------------- */

/* Cheap to dear, and by what in the log each is known. */
enum stage {
    KEYS,
    MODEL,
    SIZE,
    LOCK,
    WEIGHTS,
    ADAPTER,
    CHECKPOINT,
    TOKENIZER,
    DATA,
    DEVICE,
    STAGES
};
static const char *const marks[STAGES][3] = {
    [MODEL] = {"/base/config.json"},
    [LOCK] = {" lock flock ", " mkdir "},
    [WEIGHTS] = {"/base/model.safetensors"},
    [ADAPTER] = {"/first/adapter_model.safetensors"},
    [TOKENIZER] = {"/tok/tokenizer.json"},
    [DATA] = {"/train.jsonl"},
    [DEVICE] = {"/mark.device", "/mark.reserve"},
};

static bool is_touched(enum stage s) {
    for (int i = 0; i < 3 && marks[s][i]; i++)
        if (strstr(calls, marks[s][i])) return true;
    return false;
}

/* base/: a model; first/: an adapter of it; tok/: a tokenizer; out/: a run of one step. */
static void set_up(void) {
    scratch_make(dir);
    ck_assert_int_eq(chdir(dir), 0);
    setenv("XDG_CACHE_HOME", "cache", 1);
    setenv("HF_HUB_CACHE", "hub", 1);
    setenv("PLIMSOLL_NVML", "/nonexistent", 1); /* `device: auto` is the CPU */
    tiny_make(dir, &(struct tiny){.rows = 4, .hidden = 8, .ffn = 16, .layers = 1},
              "max_steps: 1\nbatch_size: 1\n");
    ck_assert_msg(RUN("train", "run.yaml", "output_dir=base") == 0, "%s", said);
    ck_assert_int_eq(mkdir("tok", 0777), 0);
    tiny_make_tokenizer("tok");
    file_write("train.jsonl", "{\"text\": \"abc ab\"}\n{\"text\": \"ab ab abc\"}\n"
                              "{\"text\": \"abc\"}\n{\"text\": \"ab c\"}\n");
    file_write("run.yaml", "model: base\nmode: lora\nlora_r: 2\ndtype: fp32\ntokenizer: tok\n"
                           "datasets:\n- path: train.jsonl\n  format: text\ndataset_cache: off\n"
                           "max_seq_length: 16\nbatch_size: 2\nmax_steps: 1\nsave_steps: 1\n"
                           "device: cpu\nthreads: 1\noutput_dir: out\n");
    ck_assert_msg(RUN("train", "run.yaml", "output_dir=first") == 0, "%s", said);
    ck_assert_msg(RUN("train", "run.yaml", "adapter_path=first") == 0, "%s", said);
}

static void tear_down(void) {
    ck_assert_int_eq(chdir("/"), 0);
    scratch_remove(dir);
}

/* --- refusals -------------------------------------------------------------------------------- */

/* Held until the test ends. */
static void hold_output_dir(void) {
    int fd = open("out", O_RDONLY | O_DIRECTORY);
    ck_assert(fd >= 0 && flock(fd, LOCK_EX) == 0);
}

static void break_files(enum stage from) {
    if (from < MODEL) file_write("base/config.json", "{");
    if (from < LOCK) hold_output_dir();
    if (from < WEIGHTS) ck_assert_int_eq(unlink("base/model.safetensors"), 0);
    if (from < ADAPTER) ck_assert_int_eq(unlink("first/adapter_config.json"), 0);
    if (from < TOKENIZER) ck_assert_int_eq(unlink("tok/tokenizer.json"), 0);
    if (from < DATA) ck_assert_int_eq(unlink("train.jsonl"), 0);
}

static void let_weights_be_others(void) {
    size_t n;
    char *config = file_read("base/config.json", &n);
    char *width = strstr(config, "\"intermediate_size\": 16");
    ck_assert_ptr_nonnull(width);
    memcpy(width, "\"intermediate_size\": 24", strlen("\"intermediate_size\": 24"));
    file_write("base/config.json", config);
    free(config);
}

static void break_the_first_row(void) {
    file_write("train.jsonl", "{\"text\": 1}\n");
}

static const struct refusal {
    enum stage stage; /* that refuses */
    int status;
    const char *code;
    const char *words[4]; /* keys of this job */
    void (*prepare)(void);
} refusals[] = {
    {KEYS, 2, "CONFIG_UNKNOWN_KEY", {"lora_rr=8"}, NULL},
    {KEYS, 2, "CONFIG_CONFLICT", {"mode=full", "save_steps=0"}, NULL}, /* adapter_path */
    {KEYS, 2, "CONFIG_MISSING", {"datasets=null"}, NULL},
    {MODEL, 5, "MODEL_", {0}, NULL},
    {KEYS, 2, "CONFIG_CONFLICT", {"comm=nccl"}, NULL},
    {MODEL, 2, "CONFIG_CONFLICT", {"comm=nccl", "device=auto"}, NULL},
    {MODEL, 2, "CONFIG_CONFLICT", {"comm=nccl", "device=auto", "devices=2"}, NULL},
    {SIZE, 3, "RUNTIME_DOES_NOT_FIT", {"vram_budget=1KiB"}, NULL},
    {SIZE, 3, "RUNTIME_DOES_NOT_FIT", {"vram_budget=1KiB", "resume=never"}, NULL},
    {SIZE,
     3,
     "RUNTIME_DOES_NOT_FIT",
     {"vram_budget=1KiB", "resume=never", "batch_size=auto"},
     NULL},
    {SIZE,
     3,
     "RUNTIME_DOES_NOT_FIT",
     {"vram_budget=1KiB", "resume=never", "batch_size=auto", "gradient_checkpointing=auto"},
     NULL},
    {SIZE,
     3,
     "RUNTIME_FULL_FT_MODEL_TOO_LARGE",
     {"mode=full", "adapter_path=null", "full_ft_ceiling_billions=0", "resume=never"},
     NULL},
    {LOCK, 1, "RUNTIME_IO", {0}, hold_output_dir},
    {WEIGHTS, 5, "MODEL_FILE", {0}, NULL},
    {WEIGHTS, 5, "MODEL_WEIGHTS", {0}, let_weights_be_others},
    {ADAPTER, 5, "CHECKPOINT_", {0}, NULL},
    {ADAPTER, 5, "CHECKPOINT_MISMATCH", {"lora_r=4", "resume=never"}, NULL},
    {CHECKPOINT, 5, "CHECKPOINT_MISMATCH", {"seed=7"}, NULL},
    {CHECKPOINT, 5, "CHECKPOINT_MISMATCH", {"global_batch_size=4", "batch_size=2"}, NULL},
    {CHECKPOINT, 2, "CONFIG_CONFLICT", {"seed=7", "resume=never"}, NULL},
    {CHECKPOINT, 2, "CONFIG_CONFLICT", {"seed=7", "resume=never", "batch_size=auto"}, NULL},
    {TOKENIZER, 5, "TOKENIZER_FILE", {0}, NULL},
    {DATA, 5, "DATA_FILE", {0}, NULL},
    {DATA, 5, "DATA_FIELD", {0}, break_the_first_row},
};
static const char *const commands[] = {"train", "validate"};
#define N_COMMANDS (int)(sizeof commands / sizeof *commands)

/* A1 of preflight.h: later stages are damaged, and not looked at. A3 of preflight.h: no device is
 * opened. */
START_TEST(a_refusal_touches_nothing_dearer) {
    const struct refusal *r = &refusals[_i / N_COMMANDS];
    const char *command = commands[_i % N_COMMANDS];
    const char *words[10] = {command, "run.yaml", "adapter_path=first"};
    int n = 3;
    for (int i = 0; i < 4 && r->words[i]; i++)
        words[n++] = r->words[i];
    if (strcmp(command, "train") != 0 || r->stage > LOCK) words[n++] = "--json";
    /* keys, and what the row prepares, stand for the damage of its own stage */
    break_files(r->prepare || r->words[0] ? r->stage : (enum stage)(r->stage - 1));
    if (r->prepare) r->prepare();
    int status = run(words);
    ck_assert_msg(status == r->status && strstr(said, textf("error[%s", r->code)),
                  "%s, row %d: exit %d: %s", command, _i / N_COMMANDS, status, said);
    for (int s = r->stage + 1; s < STAGES; s++)
        ck_assert_msg(!is_touched((enum stage)s), "%s, row %d: stage %d: %s", command,
                      _i / N_COMMANDS, s, calls);
    ck_assert_uint_eq(seen.devices + seen.arenas, 0);
    if (r->stage < SIZE) ck_assert_uint_eq(seen.plans, 0);
}
END_TEST

/* The job that nothing refuses touches all of it, in this order. */
START_TEST(an_admitted_job_goes_from_cheap_to_dear) {
    const char *before = NULL;
    ck_assert_int_eq(RUN("train", "run.yaml", "adapter_path=first", "output_dir=new"), 0);
    for (int s = 0; s < STAGES; s++) {
        const char *at = marks[s][0] ? strstr(calls, marks[s][0]) : before;
        ck_assert_msg(s == KEYS || at, "stage %d: %s", s, calls);
        ck_assert_msg(!before || at >= before, "stage %d: %s", s, calls);
        if (at) before = at;
    }
    ck_assert_uint_eq(seen.devices, 1);
    ck_assert_uint_ge(seen.arenas, 2);
}
END_TEST

START_TEST(a_refused_job_leaves_no_output_dir) {
    break_files((enum stage)(DATA - 1));
    ck_assert_int_eq(RUN("train", "run.yaml", "output_dir=a/b/c"), 5);
    ck_assert_msg(strstr(said, "error[DATA_FILE]"), "%s", said);
    ck_assert(!path_exists("a"));
    ck_assert_int_eq(mkdir("a", 0777), 0);
    ck_assert_int_eq(RUN("train", "run.yaml", "output_dir=a/b/c/"), 5);
    ck_assert(path_exists("a") && !path_exists("a/b"));
}
END_TEST

/* A directory that is only read stays unchanged, and free for others. */
START_TEST(validate_makes_nothing_and_locks_nothing) {
    ck_assert_msg(RUN("validate", "run.yaml", "output_dir=a/b") == 0, "%s", said);
    ck_assert(!path_exists("a"));
    file_write("file", "");
    ck_assert_int_eq(RUN("validate", "run.yaml", "output_dir=file/b", "resume=never"), 1);
    ck_assert_msg(strstr(said, "output_dir cannot be made"), "%s", said);
    ck_assert_msg(RUN("validate", "run.yaml", "adapter_path=first") == 0, "%s", said);
    ck_assert_msg(RUN("train", "run.yaml", "adapter_path=first", "--dry-run") == 0, "%s", said);
    hold_output_dir();
    ck_assert_int_eq(RUN("train", "run.yaml", "adapter_path=first", "--dry-run"), 1);
    ck_assert_msg(strstr(said, "another run writes"), "%s", said);
}
END_TEST

/* --- models that are not here ---------------------------------------------------------------- */

START_TEST(a_model_that_is_not_here_is_one_error_with_the_command_that_fetches_it) {
    static const char *const names[][2] = {
        {"model=HuggingFaceTB/SmolLM2-135M-Instruct",
         "`plimsoll fetch HuggingFaceTB/SmolLM2-135M-Instruct`"},
        {"model=SmolLM2-135M", "`plimsoll fetch HuggingFaceTB/SmolLM2-135M`"},
        {"model=nobody/has-this-model", "`plimsoll fetch nobody/has-this-model`"},
    };
    break_files(ADAPTER); /* no tokenizer, no data */
    ck_assert_int_eq(RUN(_i / 3 ? "validate" : "train", "run.yaml", names[_i % 3][0],
                         "tokenizer=null", "output_dir=new"),
                     5);
    ck_assert_msg(strstr(said, names[_i % 3][1]), "%s", said);
    ck_assert_ptr_null(strstr(strstr(said, "error[") + 1, "error["));
    ck_assert_msg(!is_touched(TOKENIZER) && !is_touched(DATA), "%s", calls);
}
END_TEST

/* A plan needs no weights: that they are not here is a warning. */
START_TEST(a_dry_run_goes_on_without_weights) {
    ck_assert_msg(RUN("train", "run.yaml", "model=HuggingFaceTB/SmolLM2-135M", "output_dir=new",
                      "--dry-run") == 0,
                  "%s", said);
    ck_assert_msg(strstr(said, "warning: the weights of `HuggingFaceTB/SmolLM2-135M` are not on "
                               "this machine; `plimsoll fetch HuggingFaceTB/SmolLM2-135M`"),
                  "%s", said);
    ck_assert_int_eq(RUN("train", "run.yaml", "model=HuggingFaceTB/SmolLM2-135M", "tokenizer=null",
                         "output_dir=new", "--dry-run"),
                     5);
    ck_assert_msg(strstr(said, "error[TOKENIZER_FILE]") && strstr(said, "is not on this machine"),
                  "%s", said);
    ck_assert(!is_touched(DATA));
}
END_TEST

/* --- plans ----------------------------------------------------------------------------------- */

static unsigned plans_of(uint64_t batch_size) {
    unsigned n = 0;
    for (unsigned i = 0; i < seen.plans; i++)
        n += seen.shape_of[i].batch_size == batch_size;
    return n;
}

/* Programs that were only built to check a limit do not count. */
static unsigned whole_plans_of(uint64_t batch_size) {
    unsigned n = 0;
    for (unsigned i = 0; i < seen.plans; i++)
        n += seen.shape_of[i].batch_size == batch_size && !seen.asked[i];
    return n;
}

/* Counts the plans of the shape that pl_exec_init was given first. */
static unsigned plans_of_the_run(bool sketch) {
    unsigned n = 0;
    for (unsigned i = 0; i < seen.plans; i++)
        n += seen.sketch[i] == sketch &&
             memcmp(&seen.shape_of[i], &seen.runs, sizeof seen.runs) == 0;
    return n;
}

static void widen_data(void) {
    struct pl_text rows = {0};
    for (int i = 0; i < 40; i++)
        pl_text_add(&rows, "{\"text\": \"abc ab\"}\n");
    file_write("train.jsonl", pl_text_str(&rows));
    pl_text_finish(&rows);
}

#define SET_LEVEL "gradient_checkpointing=full", "loss_chunk_tokens=64", "mlp_chunk_tokens=0"

/* A2 of preflight.h, and S3 of session.h: the plan is given, or found by the search for a
 * micro-batch. Recovery has one plan for each micro-batch of its own. */
START_TEST(the_plan_that_runs_is_made_once) {
    static const char *const sizes[] = {"batch_size=8", "batch_size=auto"};
    widen_data();
    ck_assert_msg(RUN("train", "run.yaml", sizes[_i], "global_batch_size=8", "output_dir=new",
                      "oom_max_retries=2", SET_LEVEL) == 0,
                  "%s", said);
    ck_assert_uint_eq(whole_plans_of(8), 1);
    if (_i == 0) ck_assert_uint_eq(plans_of(4), 1);
    if (_i == 0) ck_assert_uint_eq(plans_of(2), 1);
    if (_i == 0) ck_assert_uint_eq(seen.plans, 3);
}
END_TEST

/* Several levels and chunks are compared by sketches; one of these may be the plan. */
START_TEST(the_plan_of_the_level_that_wins_is_made_once) {
    static const char *const sizes[] = {"batch_size=8", "batch_size=auto"};
    widen_data();
    ck_assert_msg(RUN("train", "run.yaml", sizes[_i], "global_batch_size=8", "output_dir=new",
                      "oom_recovery=false", "gradient_checkpointing=auto") == 0,
                  "%s", said);
    ck_assert_uint_gt(plans_of(8), 1);
    ck_assert_uint_ge(plans_of_the_run(false) + plans_of_the_run(true), 1);
    ck_assert_uint_le(plans_of_the_run(false), 1);
}
END_TEST

/* The story of a failure is told by the plans that are there. S2 of session.h: the plans of all
 * halvings are made before the first step. */
START_TEST(an_out_of_memory_makes_no_plan) {
    widen_data();
    ck_assert_int_eq(RUN("train", "run.yaml", "batch_size=8", "global_batch_size=8",
                         "output_dir=new", "oom_max_retries=2", SET_LEVEL,
                         "debug_inject=device_oom@step=1,forever"),
                     4);
    ck_assert_msg(strstr(said, "error[RUNTIME_GPU_OOM]") && strstr(said, "VRAM estimate"), "%s",
                  said);
    ck_assert_uint_eq(plans_of(8), 1);
    ck_assert_uint_eq(plans_of(4), 1);
    ck_assert_uint_eq(plans_of(2), 1);
    ck_assert_uint_eq(seen.plans, 3);
}
END_TEST

/* --- reading the data ------------------------------------------------------------------------ */

/* A terminal hands over in pieces what was written to it; once nobody can write to it any more and
 * all is read, it fails. */
static void read_terminal(int master, char *text, size_t size) {
    size_t n = 0;
    ssize_t more;
    while (n < size - 1 && (more = read(master, text + n, size - 1 - n)) > 0)
        n += (size_t)more;
    text[n] = 0;
}

/* Returns the output on a terminal; quiet ones show nothing. */
static char *on_a_terminal(const char *flag) {
    static char text[4096];
    int master = posix_openpt(O_RDWR | O_NOCTTY);
    ck_assert(master >= 0 && grantpt(master) == 0 && unlockpt(master) == 0);
    setenv("TERM", "xterm", 1);
    const char *const line = textf(
        "exec \"$0\" validate run.yaml output_dir=new %s >/dev/null 2>%s", flag, ptsname(master));
    int slave = open(ptsname(master), O_RDWR | O_NOCTTY); /* keeps what the child has written */
    struct outcome o =
        child_run((const char *[]){"sh", "-c", line, getenv("PLIMSOLL"), NULL}, dir, HANG_SECONDS);
    ck_assert_int_eq(o.status, 0);
    outcome_finish(&o);
    close(slave);
    read_terminal(master, text, sizeof text);
    close(master);
    return text;
}

START_TEST(a_terminal_shows_how_far_the_data_are_read) {
    widen_data();
    const char *text = on_a_terminal("");
    ck_assert_msg(strstr(text, "\rtokenising train.jsonl: ") && strstr(text, " rows\033[K"), "%s",
                  text);
    ck_assert_msg(strstr(text, "\r\033[K"), "%s", text); /* wiped */
    ck_assert_ptr_null(strstr(on_a_terminal("--quiet"), "tokenising"));
    ck_assert_ptr_null(strstr(on_a_terminal("--no-progress"), "tokenising"));
    ck_assert_int_eq(RUN("validate", "run.yaml", "output_dir=new"), 0);
    ck_assert_ptr_null(strstr(said, "tokenising"));
}
END_TEST

#define COUNT(a) (int)(sizeof(a) / sizeof *(a))

int main(void) {
    Suite *s = suite_create("train.order");
    TCase *tc = tcase_create("admission");
    tcase_set_timeout(tc, 60);
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_loop_test(tc, a_refusal_touches_nothing_dearer, 0, COUNT(refusals) * N_COMMANDS);
    tcase_add_test(tc, an_admitted_job_goes_from_cheap_to_dear);
    tcase_add_test(tc, a_refused_job_leaves_no_output_dir);
    tcase_add_test(tc, validate_makes_nothing_and_locks_nothing);
    tcase_add_loop_test(tc, a_model_that_is_not_here_is_one_error_with_the_command_that_fetches_it,
                        0, 6);
    tcase_add_test(tc, a_dry_run_goes_on_without_weights);
    tcase_add_loop_test(tc, the_plan_that_runs_is_made_once, 0, 2);
    tcase_add_loop_test(tc, the_plan_of_the_level_that_wins_is_made_once, 0, 2);
    tcase_add_test(tc, an_out_of_memory_makes_no_plan);
    tcase_add_test(tc, a_terminal_shows_how_far_the_data_are_read);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
