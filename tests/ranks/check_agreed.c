/* check_agreed.c - what one rank cannot do no rank does: out of memory, differing starts, disks.
 *
 * One rank of a crew is given one setting more than the others. */
#include "runtime/checkpoint/save_set.h"
#include "tests/ranks/crew.h"
#include "tests/support/hang.h"
#include "tests/support/joblog.h"
#include "tests/support/saved.h"
#include "tests/support/tensorset.h"
#include "tests/support/tiny.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static char dir[SCRATCH_PATH];

static void set_up(void) {
    scratch_make(dir);
}

static void tear_down(void) {
    scratch_remove(dir);
}

#define WORDS(...)                                                                                 \
    (const char *[]) {                                                                             \
        __VA_ARGS__, NULL                                                                          \
    }

static void one_rank(const char *const words[]) {
    plimsoll_train_expect(0, dir, words);
}

static void expect_all(const struct crew_outcome *o, unsigned ranks, int status, const char *says) {
    for (unsigned r = 0; r < ranks; r++) {
        ck_assert_msg(o->ranks[r].status == status, "rank %u: exit %d: %s", r, o->ranks[r].status,
                      o->ranks[r].err);
        ck_assert_msg(strstr(o->ranks[r].err, says), "rank %u does not say %s: %s", r, says,
                      o->ranks[r].err);
    }
}

/* One of them, rank 0 unless it came late, shows the refusal with its hint, the others its code. */
static void expect_one_refusal(const struct crew_outcome *o, unsigned ranks, const char *code) {
    unsigned shown = 0;
    expect_all(o, ranks, o->status, code);
    for (unsigned r = 0; r < ranks; r++) {
        const bool in_full = strstr(o->ranks[r].err, "error[") != NULL;
        shown += in_full;
        ck_assert_msg(in_full || strstr(o->ranks[r].err, textf("plimsoll: rank %u: %s", r, code)),
                      "rank %u: %s", r, o->ranks[r].err);
    }
    ck_assert_msg(shown == 1, "%u of them: %s%s", shown, o->ranks[0].err, o->ranks[1].err);
}

/* --- a launcher that started one process ------------------------------------------------------ */

/* Such as a shell of `srun --pty` or the only worker of torchrun: `devices` decides. Variables are
 * those of this test's process. */
START_TEST(one_process_of_a_launcher_starts_the_ranks) {
    static const struct {
        const char *name, *value;
    } sets[2][5] = {{{"SLURM_PROCID", "0"},
                     {"SLURM_STEP_NUM_TASKS", "1"},
                     {"SLURM_LOCALID", "0"},
                     {"PMI_RANK", "0"},
                     {"PMI_SIZE", "1"}},
                    {{"RANK", "0"},
                     {"WORLD_SIZE", "1"},
                     {"MASTER_ADDR", "nowhere.invalid"},
                     {"MASTER_PORT", "9"},
                     {"TORCHELASTIC_USE_AGENT_STORE", "True"}}};
    tiny_make(dir, &(struct tiny){.mode = "full"},
              "threads: 1\npreflight: off\nglobal_batch_size: 4\nbatch_size: 2\n"
              "rank_order: true\nmax_steps: 2\n");
    one_rank(WORDS("output_dir=one"));
    for (int i = 0; i < 5; i++)
        ck_assert_int_eq(setenv(sets[_i][i].name, sets[_i][i].value, 1), 0);
    one_rank(WORDS("output_dir=two", "devices=2"));
    weights_assert_same(in_dir(dir, "one"), in_dir(dir, "two"), "model");
    json_t *log = joblog_read(in_dir(dir, "two"));
    ck_assert_uint_eq(json_array_size(json_object_get(joblog_event(log, "ranks", 0), "ranks")), 2);
    json_decref(log);
}
END_TEST

/* --- out of memory ---------------------------------------------------------------------------- */

static const struct {
    const char *mode, *more;
    unsigned ranks, odd;
    const char *fault;
    int halvings;
} memory[] = {
    {"full", "", 2, 1, "debug_inject=device_oom@step=1,count=2", 2},
    {"full", "sharding: weights\n", 3, 2, "debug_inject=device_oom@step=1,count=2", 2},
    {"full", "sharding: optimizer\n", 4, 0, "debug_inject=device_oom@step=1", 1},
    {"lora", "lora_r: 4\nlora_dropout: 0.2\nsharding: weights\n", 2, 0,
     "debug_inject=device_oom@step=1", 1},
    {"full", "sharding: gradients\n", 3, 1, "debug_inject=device_oom@alloc=2", 1},
    {"full", "sharding: weights\n", 2, 1, "debug_inject=device_oom@alloc=2,count=2", 2},
};

static void make_in(const char *where, const char *mode, const char *more) {
    tiny_make(where, &(struct tiny){.mode = mode},
              textf("%slearning_rate: 0.01\nlr_scheduler: constant\nthreads: 1\npreflight: off\n"
                    "global_batch_size: 24\nrank_order: true\n",
                    more));
}

static void make(const char *mode, const char *more) {
    make_in(dir, mode, more);
}

static void expect_recoveries(const char *out, int n, unsigned rank) {
    json_t *log = joblog_read(in_dir(dir, out));
    ck_assert_uint_eq(joblog_count(log, "oom_recovery"), (size_t)n);
    for (int i = 0; i < n; i++) {
        const json_t *event = joblog_event(log, "oom_recovery", (size_t)i);
        const char *what = json_string_value(json_object_get(event, "what"));
        ck_assert_msg(what && strstr(what, textf(", rank %u", rank)), "%s", what);
        ck_assert(joblog_number(event, "step") == 1);
        ck_assert(joblog_number(event, "new_batch_size") == (double)(8 >> (i + 1)));
        ck_assert(joblog_number(event, "requested_bytes") > 0);
    }
    ck_assert(joblog_number(joblog_event(log, "summary", 0), "oom_recoveries") == n);
    ck_assert(joblog_number(joblog_event(log, "summary", 0), "planned_peak_bytes") ==
              joblog_number(joblog_event(log, "summary", 0), "allocated_peak_bytes"));
    json_decref(log);
}

/* It is equal to a start of one rank, and of all ranks, with the smaller micro-batch. */
START_TEST(all_halve_when_one_is_out_of_memory) {
    make(memory[_i].mode, memory[_i].more);
    const char *small = textf("batch_size=%d", 8 >> memory[_i].halvings);
    const char *stem = strcmp(memory[_i].mode, "full") == 0 ? "model" : "adapter_model";
    one_rank(WORDS("max_steps=3", "output_dir=one", "sharding=none", small));
    crew_expect(
        0, dir, &(struct crew){memory[_i].ranks, 0, NULL},
        WORDS("max_steps=3", "output_dir=small", small, textf("devices=%u", memory[_i].ranks)));
    crew_expect(0, dir, &(struct crew){memory[_i].ranks, memory[_i].odd, memory[_i].fault},
                WORDS("max_steps=3", "output_dir=large", "batch_size=8",
                      textf("devices=%u", memory[_i].ranks)));
    expect_recoveries("large", memory[_i].halvings, memory[_i].odd);
    const char *others[] = {"one", "small"};
    for (int i = 0; i < 2; i++) {
        joblog_assert_same_steps(in_dir(dir, others[i]), in_dir(dir, "large"));
        weights_assert_same(in_dir(dir, others[i]), in_dir(dir, "large"), stem);
    }
    ck_assert(joblog_summary(in_dir(dir, "small"), "planned_peak_bytes") ==
              joblog_summary(in_dir(dir, "large"), "planned_peak_bytes"));
}
END_TEST

/* The fault comes in a later step: the steps before it stay, and only that one is repeated. */
START_TEST(a_later_step_alone_is_done_again) {
    make("full", "sharding: weights\n");
    crew_expect(0, dir, &(struct crew){3, 0, NULL},
                WORDS("max_steps=3", "output_dir=plain", "batch_size=8", "devices=3"));
    crew_expect(0, dir, &(struct crew){3, 2, "debug_inject=device_oom@step=3"},
                WORDS("max_steps=3", "output_dir=hit", "batch_size=8", "devices=3"));
    json_t *plain = joblog_read(in_dir(dir, "plain")), *hit = joblog_read(in_dir(dir, "hit"));
    for (uint64_t step = 1; step <= 3; step++) {
        const json_t *a = joblog_step(plain, step), *b = joblog_step(hit, step);
        ck_assert(a && b);
        ck_assert(joblog_number(b, "batch_size") == (step < 3 ? 8 : 4));
        ck_assert(joblog_number(a, "tokens") == joblog_number(b, "tokens"));
        if (step < 3) ck_assert(joblog_number(a, "loss") == joblog_number(b, "loss"));
    }
    json_decref(plain);
    json_decref(hit);
}
END_TEST

/* The work of the other ranks in the step that failed changes none that follows. */
START_TEST(steps_after_it_are_those_of_one_rank) {
    static const struct {
        const char *mode, *more;
        unsigned ranks, odd;
    } rows[] = {
        {"lora", "lora_r: 4\nlora_dropout: 0.2\nsharding: none\n", 2, 1},
        {"lora", "lora_r: 4\nsharding: optimizer\n", 2, 0},
        {"full", "sharding: weights\n", 3, 1},
    };
    const char *fault = "debug_inject=device_oom@step=3";
    make(rows[_i].mode, rows[_i].more);
    one_rank(WORDS("max_steps=6", "output_dir=one", "sharding=none", "batch_size=4",
                   "gradient_checkpointing=none", fault));
    crew_expect(0, dir, &(struct crew){rows[_i].ranks, rows[_i].odd, fault},
                WORDS("max_steps=6", "output_dir=hit", "batch_size=4",
                      "gradient_checkpointing=none", textf("devices=%u", rows[_i].ranks)));
    joblog_assert_same_steps(in_dir(dir, "one"), in_dir(dir, "hit"));
    weights_assert_same(in_dir(dir, "one"), in_dir(dir, "hit"),
                        strcmp(rows[_i].mode, "full") == 0 ? "model" : "adapter_model");
}
END_TEST

/* A lack that no rank can avoid ends all with the status of missing memory, and rank 0 says
 * whose. */
START_TEST(exhaustion_ends_all) {
    make("full", "sharding: optimizer\n");
    for (unsigned odd = 0; odd < 3; odd += 2) {
        struct crew_outcome o =
            crew_run(dir, &(struct crew){3, odd, "debug_inject=device_oom@step=2,forever"},
                     WORDS("max_steps=3", "batch_size=2", "devices=3", "save_steps=1",
                           textf("output_dir=out%u", odd)));
        ck_assert_int_eq(o.status, 4);
        expect_all(&o, 3, 4, "error[RUNTIME_GPU_OOM]");
        ck_assert_msg(strstr(o.ranks[0].err, textf(", rank %u", odd)), "%s", o.ranks[0].err);
        ck_assert(path_exists(textf("%s/out%u/checkpoint-1/trainer_state.json", dir, odd)));
        ck_assert(!path_exists(textf("%s/out%u/checkpoint-2", dir, odd)));
        crew_finish(&o);
    }
}
END_TEST

/* The memory for what is there as long as the job cannot be halved. */
START_TEST(a_rank_without_room_for_weights_ends_all) {
    make("full", "");
    struct crew_outcome o = crew_run(dir, &(struct crew){2, 1, "debug_inject=device_oom@alloc=1"},
                                     WORDS("max_steps=2", "batch_size=2", "devices=2"));
    ck_assert_int_eq(o.status, 4);
    ck_assert_int_eq(o.ranks[1].status, 4);
    ck_assert_msg(strstr(o.ranks[1].err, "error[RUNTIME_DEVICE_OOM]: job arena"), "%s",
                  o.ranks[1].err);
    ck_assert_int_ne(o.ranks[0].status, 0);
    ck_assert_msg(strstr(o.ranks[0].err, "rank 1"), "%s", o.ranks[0].err);
    crew_finish(&o);
}
END_TEST

/* --- budgets that differ ---------------------------------------------------------------------- */

static const struct {
    const char *mode, *more;
    unsigned ranks, odd;
} budgets[] = {
    {"full", "", 2, 0},
    {"full", "sharding: weights\n", 2, 1},
    {"full", "gradient_checkpointing: none\n", 3, 1},
    {"lora", "lora_r: 4\nloss_chunk_tokens: 4\n", 4, 2},
};

/* Returns the need without recomputation. */
static double needed_bytes(unsigned ranks, const char *threads, const char *batch) {
    struct outcome o =
        plimsoll_expect(0, dir,
                        WORDS("estimate-vram", "run.yaml", "--json", "--devices",
                              textf("%u", ranks), threads, batch, "gradient_checkpointing=none"));
    json_t *estimate = json_loads(o.out, 0, NULL);
    const double bytes = joblog_number(
        json_array_get(json_object_get(estimate, "ranks"), ranks - 1), "needed_bytes");
    json_decref(estimate);
    outcome_finish(&o);
    return bytes;
}

static void expect_taken(const char *out, unsigned ranks, double budget) {
    json_t *log = joblog_read(in_dir(dir, out));
    const json_t *list = json_object_get(joblog_event(log, "ranks", 0), "ranks");
    ck_assert_uint_eq(json_array_size(list), ranks);
    for (unsigned r = 0; r < ranks; r++) {
        const double planned = joblog_number(json_array_get(list, r), "planned_bytes");
        ck_assert(planned == joblog_number(json_array_get(list, r), "allocated_bytes"));
        ck_assert_msg(planned <= budget, "rank %u takes %.0f of %.0f bytes", r, planned, budget);
    }
    json_decref(log);
}

static double batch_of(const char *out) {
    json_t *log = joblog_read(in_dir(dir, out));
    const double batch = joblog_number(joblog_step(log, 1), "batch_size");
    json_decref(log);
    return batch;
}

/* G2 of agreed.h: `batch_size: auto` is that of the rank with the smallest budget. It has as much
 * as two samples take without recomputation; each of the others could have the whole of its share
 * at once. */
START_TEST(the_smallest_budget_decides_for_all) {
    const unsigned ranks = budgets[_i].ranks;
    char devices[24], small[48]; /* textf's own do not last so long */
    snprintf(devices, sizeof devices, "devices=%u", ranks);
    make(budgets[_i].mode, budgets[_i].more);
    const double budget = needed_bytes(ranks, "threads=1", "batch_size=2");
    snprintf(small, sizeof small, "vram_budget=%.0fB", budget);
    crew_expect(0, dir, &(struct crew){ranks, 0, NULL},
                WORDS("max_steps=2", "batch_size=auto", "output_dir=all", devices, small));
    crew_expect(0, dir, &(struct crew){ranks, budgets[_i].odd, small},
                WORDS("max_steps=2", "batch_size=auto", "output_dir=odd", devices));
    crew_expect(0, dir, &(struct crew){ranks, 0, NULL},
                WORDS("max_steps=2", "batch_size=auto", "output_dir=large", devices));
    expect_taken("odd", ranks, budget);
    ck_assert(batch_of("odd") == batch_of("all"));
    ck_assert(batch_of("odd") < batch_of("large"));
    joblog_assert_same_steps(in_dir(dir, "all"), in_dir(dir, "odd"));
    weights_assert_same(in_dir(dir, "all"), in_dir(dir, "odd"),
                        strcmp(budgets[_i].mode, "full") == 0 ? "model" : "adapter_model");
}
END_TEST

/* G2, too. Threads have scratch of their own: the same budget leads to other decisions. */
START_TEST(ranks_with_other_threads_decide_alike) {
    make("full", "batch_size: auto\n");
    for (int percent = 100; percent < 130; percent += 10) {
        const double budget = needed_bytes(2, "threads=7", "batch_size=3") * percent / 100;
        char out[16];
        snprintf(out, sizeof out, "%d", percent);
        crew_expect(0, dir, &(struct crew){2, (unsigned)percent / 10 % 2, "threads=7"},
                    WORDS("max_steps=1", "devices=2", textf("output_dir=%s", out),
                          textf("vram_budget=%.0fB", budget)));
        expect_taken(out, 2, budget);
    }
}
END_TEST

static int answer(const char *const asked[], const char *const more[], double budget) {
    const char *words[16];
    int n = 0;
    for (; *asked; asked++)
        words[n++] = *asked;
    for (; *more; more++)
        words[n++] = *more;
    words[n++] = textf("vram_budget=%.0fB", budget);
    words[n] = NULL;
    struct outcome o = plimsoll_run(textf("%s/llama-full", getenv("GOLDEN_CASES")), words);
    const int status = o.status;
    outcome_finish(&o);
    return status;
}

/* Whatever is asked about ranks, the one whose plan is the largest decides. */
static const char *const asked_of_ranks[][6] = {
    {"devices=2", "threads=1", "batch_size=auto", "gradient_checkpointing=auto", NULL},
    {"devices=2", "threads=1", "gradient_checkpointing=auto", NULL},
    {"devices=3", "threads=1", "sharding=weights", "gradient_checkpointing=auto", NULL},
};

START_TEST(all_commands_answer_alike) {
    const char *const *more = asked_of_ranks[_i];
    int fits = 0, refused = 0;
    for (double budget = 551e3; budget < 1600e3; budget += 69e3) {
        char out[SCRATCH_PATH + 32];
        snprintf(out, sizeof out, "output_dir=%s/%.0f", dir, budget);
        const int status = answer(WORDS("estimate-vram", "run.yaml", "device=cpu"), more, budget);
        fits += status == 0;
        refused += status == 3;
        ck_assert_int_eq(answer(WORDS("validate", "run.yaml", out), more, budget), status);
        ck_assert_int_eq(answer(WORDS("train", "run.yaml", "--dry-run", out), more, budget),
                         status);
        ck_assert_int_eq(answer(WORDS("train", "run.yaml", "max_steps=1", out), more, budget),
                         status);
    }
    ck_assert(fits > 2 && refused > 2);
}
END_TEST

START_TEST(all_refuse_what_does_not_fit_one) {
    make("full", "batch_size: auto\n");
    struct crew_outcome o = crew_run(dir, &(struct crew){3, 1, "vram_budget=20000B"},
                                     WORDS("max_steps=2", "devices=3", "preflight=enforce"));
    ck_assert_int_eq(o.status, 3);
    expect_one_refusal(&o, 3, "RUNTIME_DOES_NOT_FIT");
    ck_assert_msg(strstr(o.ranks[0].err, "budget: that of rank 1"), "%s", o.ranks[0].err);
    crew_finish(&o);
}
END_TEST

/* The ranks need different bytes; all of them refuse the job for the one that needs the most. */
START_TEST(a_job_that_is_refused_has_one_answer_with_the_cause) {
    scratch_copy(textf("%s/llama-full", getenv("GOLDEN_CASES")), in_dir(dir, "job"));
    struct outcome o = plimsoll_run(in_dir(dir, "job"), WORDS("train", "run.yaml", "devices=3",
                                                              "--json", "vram_budget=980KiB"));
    json_error_t why;
    json_t *root = json_loads(o.out, 0, &why); /* refuses a second object */
    ck_assert_msg(o.status == 3 && root, "exit %d, %s: %s%s", o.status, why.text, o.out, o.err);
    const json_t *error = json_object_get(root, "error");
    ck_assert_str_eq(json_string_value(json_object_get(error, "code")), "RUNTIME_DOES_NOT_FIT");
    ck_assert_msg(!strstr(o.err, "COMM_PEER_LOST") && !strstr(o.err, "the same command resumes"),
                  "%s", o.err);
    const char *first = strstr(o.err, "error[");
    ck_assert_msg(first && !strstr(first + 1, "error["), "%s", o.err);
    json_decref(root);
    outcome_finish(&o);
}
END_TEST

/* Each of them reads the job before they meet. */
START_TEST(an_error_of_the_job_is_shown_once) {
    make("full", "");
    struct crew_outcome o =
        crew_run(dir, &(struct crew){3, 0, NULL}, WORDS("devices=3", "max_steps=none"));
    ck_assert_int_eq(o.status, 2);
    expect_one_refusal(&o, 3, "CONFIG_");
    ck_assert_msg(strstr(o.ranks[0].err, "error["), "%s", o.ranks[0].err);
    ck_assert_msg(strstr(o.ranks[2].err, "max_steps"), "%s", o.ranks[2].err);
    crew_finish(&o);
}
END_TEST

/* The others are told at once, before a device is opened, and wait for no rank that is gone. */
START_TEST(a_rank_that_is_refused_ends_all_at_once) {
    make("full", "");
    struct crew_outcome o = crew_run(dir, &(struct crew){3, 2, "val_set_size=24"},
                                     WORDS("max_steps=2", "batch_size=2", "devices=3"));
    ck_assert_int_eq(o.status, o.ranks[2].status);
    ck_assert_msg(strstr(o.ranks[2].err, "error[CONFIG_RANGE]"), "%s", o.ranks[2].err);
    for (unsigned r = 0; r < 2; r++)
        ck_assert_msg(strstr(o.ranks[r].err, "CONFIG_RANGE") && strstr(o.ranks[r].err, "rank 2 on"),
                      "%s", o.ranks[r].err);
    ck_assert_msg(o.seconds < HANG_SECONDS, "it took %.1f s", o.seconds);
    crew_finish(&o);
}
END_TEST

/* --- ranks that were started differently ------------------------------------------------------ */

static const struct {
    const char *word, *what;
} differences[] = {
    {"learning_rate=0.5", "`learning_rate`"},
    {"seed=3", "`seed`"},
    {"max_seq_length=9", "`max_seq_length`"},
    {"global_batch_size=12", "rank"},
    {"sharding=weights", "rank"},
    {"sharding=none", "rank"},
    {"other/", "`data`"},
    {"batch_size=1", "rank"},
    {"max_steps=9", "rank"},
    {"save_steps=1", "rank"},
    {"gradient_checkpointing=full", "rank"},
};

/* The same job in another directory, where a token of the data is another one. */
static void make_other_rows(void) {
    char other[SCRATCH_PATH + 8];
    snprintf(other, sizeof other, "%s/other", dir);
    ck_assert_int_eq(mkdir(other, 0700), 0);
    make_in(other, "full", "");
    char *rows = file_read(in_dir(other, "train.jsonl"), NULL), *digit = strstr(rows, "[1");
    ck_assert_ptr_nonnull(digit);
    digit[1] = '2';
    file_write(in_dir(other, "train.jsonl"), rows);
    free(rows);
}

/* N1 of agree.h, and G1 of agreed.h: a rank that left out a call because of its settings would
 * be told of another call, and not of the setting. */
START_TEST(ranks_that_were_started_differently_are_refused) {
    make("full", "");
    make_other_rows();
    struct crew_outcome o =
        crew_run(dir, &(struct crew){3, 1, differences[_i].word},
                 WORDS("max_steps=2", "batch_size=2", "devices=3", "gradient_checkpointing=none"));
    ck_assert_int_ne(o.status, 0);
    expect_one_refusal(&o, 3, "COMM_MISMATCH");
    ck_assert_msg(strstr(o.ranks[0].err, differences[_i].what), "%s", o.ranks[0].err);
    ck_assert_msg(strstr(o.ranks[0].err, "of rank 1 "), "%s", o.ranks[0].err);
    ck_assert(!path_exists(in_dir(dir, "out/checkpoint-2")));
    crew_finish(&o);
}
END_TEST

/* --- a full disk ------------------------------------------------------------------------------ */

static void expect_no_temporary(const char *name, void *ctx) {
    (void)ctx;
    ck_assert_msg(!strstr(name, ".tmp"), "%s was left behind", name);
}

static const struct {
    unsigned odd;
    const char *sharding;
    int every, least; /* calls on files from one fault to the next; how many fail at least */
} disks[] = {{0, "none", 9, 3}, {0, "weights", 9, 6}, {1, "none", 3, 3}, {2, "weights", 9, 6}};

/* Step 1 is saved, then the disk fills at a later call of that rank. What it fails with, all fail
 * with; where rank 0 writes files of its own the others wait, and lose it. */
static void expect_all_ended(const struct crew_outcome *o, unsigned odd, int at) {
    ck_assert_msg(strstr(o->ranks[odd].err, "error[CHECKPOINT_WRITE]"), "call %d: %s", at,
                  o->ranks[odd].err);
    for (unsigned r = 0; r < 3; r++) {
        const char *err = o->ranks[r].err;
        const bool lost = odd == 0 && strstr(err, "error[COMM_PEER_LOST]");
        if (r == odd || (odd == 0 && o->ranks[r].status == 0)) continue;
        ck_assert_msg(o->ranks[r].status != 0 && (lost || strstr(err, "error[CHECKPOINT_WRITE]")),
                      "call %d: rank %u: exit %d: %s", at, r, o->ranks[r].status, err);
        ck_assert_msg(strstr(err, textf(lost ? "rank %u on " : "rank %u: ", odd)), "call %d: %s",
                      at, err);
    }
}

/* N2 of agree.h: what one rank cannot write no rank has written. */
START_TEST(a_full_disk_ends_all_and_leaves_the_checkpoint_before) {
    const unsigned odd = disks[_i].odd;
    make("full", textf("sharding: %s\n", disks[_i].sharding));
    const struct crew crew = {3, 0, NULL};
    crew_expect(0, dir, &crew, WORDS("max_steps=1", "save_steps=1", "batch_size=2", "devices=3"));
    scratch_copy(in_dir(dir, "out"), textf("%s/start", dir));
    int failed = 0;
    for (int at = 1; at < 60; at += disks[_i].every) {
        struct pl_diag d = {0};
        scratch_remove(in_dir(dir, "out"));
        scratch_copy(textf("%s/start", dir), textf("%s/out", dir));
        struct crew_outcome o =
            crew_run(dir, &(struct crew){3, odd, textf("debug_inject=disk_full@write=%d", at)},
                     WORDS("max_steps=2", "save_steps=1", "batch_size=2", "devices=3"));
        const bool ended = o.ranks[odd].status != 0;
        ck_assert_msg(o.seconds < HANG_SECONDS, "it took %.1f s", o.seconds);
        failed += ended;
        if (ended) expect_all_ended(&o, odd, at);
        ck_assert_int_eq(o.status, o.ranks[odd].status);
        crew_finish(&o);
        ck_assert_msg(pl_save_set_settle(in_dir(dir, "out"), &d) == PL_ERR_OK, "%s", d.message);
        dir_each(in_dir(dir, "out"), expect_no_temporary, NULL);
        checkpoint_assert_same(textf("%s/start/checkpoint-1", dir),
                               textf("%s/out/checkpoint-1", dir));
        if (!ended && odd != 0) break; /* it does not make as many */
    }
    ck_assert_int_ge(failed, disks[_i].least);
}
END_TEST

static TCase *add_case(Suite *s, const char *name) {
    TCase *tc = tcase_create(name);
    tcase_set_timeout(tc, 120);
    tcase_add_checked_fixture(tc, set_up, tear_down);
    suite_add_tcase(s, tc);
    return tc;
}

int main(int argc, char **argv) {
    if (crew_is_rank(argc, argv)) return crew_rank(argc, argv);
    if (!crew_has_ranks()) return 77;
    Suite *s = suite_create("ranks.agreed");
    TCase *tc = add_case(s, "memory");
    tcase_add_loop_test(tc, all_halve_when_one_is_out_of_memory, 0,
                        (int)(sizeof memory / sizeof *memory));
    tcase_add_test(tc, a_later_step_alone_is_done_again);
    tcase_add_loop_test(tc, steps_after_it_are_those_of_one_rank, 0, 3);
    tcase_add_test(tc, exhaustion_ends_all);
    tcase_add_test(tc, a_rank_without_room_for_weights_ends_all);
    tc = add_case(s, "budgets");
    tcase_add_loop_test(tc, the_smallest_budget_decides_for_all, 0,
                        (int)(sizeof budgets / sizeof *budgets));
    tcase_add_test(tc, ranks_with_other_threads_decide_alike);
    tcase_add_loop_test(tc, all_commands_answer_alike, 0, 3);
    tcase_add_test(tc, all_refuse_what_does_not_fit_one);
    tcase_add_test(tc, a_job_that_is_refused_has_one_answer_with_the_cause);
    tcase_add_test(tc, an_error_of_the_job_is_shown_once);
    tcase_add_test(tc, a_rank_that_is_refused_ends_all_at_once);
    tc = add_case(s, "starts");
    tcase_add_loop_test(tc, one_process_of_a_launcher_starts_the_ranks, 0, 2);
    tcase_add_loop_test(tc, ranks_that_were_started_differently_are_refused, 0,
                        (int)(sizeof differences / sizeof *differences));
    tc = add_case(s, "disks");
    tcase_add_loop_test(tc, a_full_disk_ends_all_and_leaves_the_checkpoint_before, 0,
                        (int)(sizeof disks / sizeof *disks));
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
