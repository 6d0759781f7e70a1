/* check_resume.c - what a start does with what it finds in output_dir: another run's, another
 * job's, unreadable, older, finished. Through the real binary. */
#include "tests/support/child.h"
#include "tests/support/joblog.h"
#include "tests/support/saved.h"
#include "tests/support/scratch.h"
#include "tests/support/tensorset.h"
#include "tests/support/tiny.h"

#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char dir[SCRATCH_PATH];

static void set_up(void) {
    scratch_make(dir);
}

static void tear_down(void) {
    scratch_remove(dir);
}

#define TRAIN(...)      plimsoll_train(dir, (const char *[]){__VA_ARGS__, NULL})
#define TRAIN_WELL(...) plimsoll_train_expect(0, dir, (const char *[]){__VA_ARGS__, NULL})
#define FAILS_WITH(status, code, what, ...)                                                        \
    do {                                                                                           \
        struct outcome fails_o_ = TRAIN(__VA_ARGS__);                                              \
        expect(&fails_o_, status, "error[" code "]");                                              \
        expect(&fails_o_, status, what);                                                           \
        outcome_finish(&fails_o_);                                                                 \
    } while (0)
#define SAYS(what, ...)                                                                            \
    do {                                                                                           \
        struct outcome says_o_ = TRAIN(__VA_ARGS__);                                               \
        expect(&says_o_, 0, what);                                                                 \
        outcome_finish(&says_o_);                                                                  \
    } while (0)

static void expect(const struct outcome *o, int status, const char *what) {
    ck_assert_msg(o->status == status, "exit %d: %s", o->status, o->err);
    ck_assert_msg(strstr(o->err, what) != NULL, "no `%s` in: %s", what, o->err);
}

/* Sets the variables of fault_shim.h for the next runs, name and value in turn; no name: none any
 * more. */
static void shim(const char *const settings[]) {
    static const char *const names[] = {"FAULT_CALLS", "FAULT_AT",  "FAULT_DO",
                                        "FAULT_PATH",  "FAULT_LOG", "LD_PRELOAD"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        unsetenv(names[i]);
    if (!settings) return;
    for (size_t i = 0; settings[i]; i += 2)
        setenv(settings[i], settings[i + 1], 1);
    setenv("LD_PRELOAD", FAULT_SHIM, 1);
    /* it comes before the sanitizer's library, which has no quarrel with that */
    setenv("ASAN_OPTIONS", "verify_asan_link_order=0:detect_leaks=0", 1);
}
#define SHIM(...) shim((const char *[]){__VA_ARGS__, NULL})

/* --- what cannot be read is not absent ----------------------------------------------------------
 */

static const struct {
    int error;
    const char *says;
} errors[] = {{EIO, "Input/output error"}, {EACCES, "Permission denied"}};

START_TEST(a_checkpoint_that_cannot_be_read_ends_the_start_and_stays) {
    tiny_make(dir, &(struct tiny){0}, "batch_size: 2\nsave_steps: 1\n");
    TRAIN_WELL("max_steps=3");
    scratch_copy(in_dir(dir, "out"), textf("%s/before", dir));
    SHIM("FAULT_CALLS", "open", "FAULT_PATH", "/trainer_state.json$", "FAULT_AT", "1+", "FAULT_DO",
         textf("%d", errors[_i].error));
    FAILS_WITH(5, "CHECKPOINT_FILE", errors[_i].says, "max_steps=6");
    FAILS_WITH(5, "CHECKPOINT_FILE", "out/checkpoint-3/trainer_state.json", "max_steps=6");
    FAILS_WITH(5, "CHECKPOINT_FILE", "nothing was removed", "max_steps=6");
    FAILS_WITH(5, "CHECKPOINT_FILE", "trainer_state.json", "max_steps=6", "resume=never");
    shim(NULL);
    for (int step = 1; step <= 3; step++)
        checkpoint_assert_same(textf("%s/before/checkpoint-%d", dir, step),
                               textf("%s/out/checkpoint-%d", dir, step));
    SAYS("after step 3", "max_steps=6");
}
END_TEST

START_TEST(an_emptied_state_is_not_one_checkpoint_less) {
    tiny_make(dir, &(struct tiny){0}, "batch_size: 2\nsave_steps: 1\n");
    TRAIN_WELL("max_steps=3");
    ck_assert_int_eq(truncate(in_dir(dir, "out/checkpoint-3/trainer_state.json"), 0), 0);
    FAILS_WITH(5, "CHECKPOINT_FORMAT", "out/checkpoint-3/trainer_state.json", "max_steps=6");
    ck_assert(path_exists(in_dir(dir, "out/checkpoint-3/optimizer.safetensors")));
}
END_TEST

static void flip(const char *path, long at) {
    FILE *f = fopen(path, "r+b");
    ck_assert_ptr_nonnull(f);
    ck_assert_int_eq(fseek(f, at, SEEK_SET), 0);
    int c = fgetc(f);
    ck_assert_int_eq(fseek(f, at, SEEK_SET), 0);
    ck_assert_int_ne(fputc(c ^ 1, f), EOF);
    ck_assert_int_eq(fclose(f), 0);
}

START_TEST(a_flipped_bit_is_found_before_it_is_trained_on) {
    tiny_make(dir, &(struct tiny){0}, "batch_size: 2\nsave_steps: 1\n");
    TRAIN_WELL("max_steps=3");
    flip(in_dir(dir, "out/checkpoint-3/optimizer.safetensors"), 20000);
    FAILS_WITH(5, "CHECKPOINT_FORMAT", "out/checkpoint-3/optimizer.safetensors is damaged",
               "max_steps=4");
}
END_TEST

/* --- other settings ----------------------------------------------------------------------------
 */

static const struct {
    const char *word, *says;
} meanings[] = {
    {"learning_rate=0.25", "learning_rate: 0.02 -> 0.25"},
    {"lr_scheduler=linear", "lr_scheduler: cosine -> linear"},
    {"warmup_steps=3", "warmup_steps: 1 -> 3"},
    {"warmup_ratio=0.5", "warmup_ratio: 0.029999999999999999 -> 0.5"},
    {"weight_decay=0.5", "weight_decay: 0 -> 0.5"},
    {"adam_beta2=0.9", "adam_beta2: 0.999 -> 0.9"},
    {"max_grad_norm=0", "max_grad_norm: 1 -> 0"},
    {"lora_alpha=32", "lora_alpha: 8 -> 32"},
    {"lora_dropout=0.5", "lora_dropout: 0.1 -> 0.5"},
    {"seed=7", "seed: 42 -> 7"},
    {"shuffle=false", "shuffle: true -> false"},
    {"max_seq_length=9", "max_seq_length: 16 -> 9"},
    {"packing=true", "packing: false -> true"},
    {"rope_long_from=sample", "rope_long_from: batch -> sample"},
    {"batch_size=3", "samples_per_step: 2 -> 3"},
    {"val_set_size=4", "data: 23 rows, "},
    {"model_config=other.json", "config_json: xxh64 "},
};

static void make_lora(const char *more) {
    tiny_make(dir, &(struct tiny){.mode = "lora"},
              textf("learning_rate: 0.02\nbatch_size: 2\nsave_steps: 2\nlora_r: 4\n"
                    "lora_dropout: 0.1\n%s",
                    more));
}

START_TEST(what_changes_the_meaning_is_refused_with_the_list) {
    make_lora("");
    TRAIN_WELL("max_steps=4");
    char *config = file_read(in_dir(dir, "config.json"), NULL), *eps = strstr(config, "1e-");
    ck_assert_ptr_nonnull(eps);
    eps[0] = '2';
    file_write(in_dir(dir, "other.json"), config);
    free(config);
    FAILS_WITH(5, "CHECKPOINT_MISMATCH", meanings[_i].says, "max_steps=6", meanings[_i].word);
    FAILS_WITH(5, "CHECKPOINT_MISMATCH", "resume: force", "max_steps=6", meanings[_i].word);
    ck_assert(path_exists(in_dir(dir, "out/checkpoint-4/optimizer.safetensors")));
}
END_TEST

static const struct {
    const char *word, *says;
} forms[] = {
    {"optimizer=lion", "optimizer: adamw -> lion"},
    {"optimizer=sgd", "optimizer: adamw -> sgd"},
    {"moment_dtype=bf16", "moment_dtype: fp32 -> bf16"},
    {"lora_r=8", "lora_r: 4 -> 8"},
};

/* Nothing loads the states of one optimizer into another: `force` is neither enough nor advised. */
START_TEST(what_is_saved_in_another_form_is_refused_by_force_too) {
    static const char *const commands[] = {"train", "validate"};
    make_lora("");
    TRAIN_WELL("max_steps=4");
    for (int i = 0; i < 4; i++) {
        const char *resume = i / 2 ? "resume=force" : "resume=auto";
        struct outcome o = plimsoll_run(dir, (const char *[]){commands[i % 2], "run.yaml", resume,
                                                              forms[_i].word, "max_steps=6", NULL});
        ck_assert_msg(o.status == 5 && strstr(o.err, "error[CHECKPOINT_MISMATCH]"), "%d: %s",
                      o.status, o.err);
        ck_assert_msg(strstr(o.err, forms[_i].says) != NULL, "%s", o.err);
        ck_assert_msg(!strstr(o.err, "resume: force"), "%s", o.err);
        outcome_finish(&o);
    }
}
END_TEST

START_TEST(what_is_not_set_is_recorded_as_such) {
    json_t *ours;
    make_lora("");
    TRAIN_WELL("max_steps=2");
    json_t *root = saved_state(in_dir(dir, "out/checkpoint-2"), &ours);
    const json_t *job = json_object_get(ours, "job");
    const char *const unset[] = {"adapter_path", "chat_date", "tokenizer", "tokenizer_files"};
    for (size_t i = 0; i < sizeof unset / sizeof *unset; i++)
        ck_assert_str_eq(json_string_value(json_object_get(job, unset[i])), "");
    ck_assert_str_eq(json_string_value(json_object_get(job, "lora_r")), "4");
    json_decref(root);
}
END_TEST

START_TEST(several_differences_are_listed_together) {
    make_lora("");
    TRAIN_WELL("max_steps=4");
    FAILS_WITH(5, "CHECKPOINT_MISMATCH",
               "was trained with other settings: lora_alpha: 8 -> 16; learning_rate: 0.02 -> 0.5",
               "max_steps=6", "learning_rate=0.5", "lora_alpha=16");
    SAYS("resume: force - out/checkpoint-4 was trained with other settings: lora_alpha: 8 -> 16; "
         "learning_rate: 0.02 -> 0.5",
         "max_steps=6", "learning_rate=0.5", "lora_alpha=16", "resume=force");
    SAYS("after step 6", "max_steps=7", "learning_rate=0.5", "lora_alpha=16");
}
END_TEST

static const struct {
    const char *word, *says; /* NULL: nothing is said */
} harmless[] = {
    {"logging_steps=2", "logging_steps: 1 -> 2"},
    {"save_steps=1", "save_steps: 2 -> 1"},
    {"vram_budget=64MiB", "vram_budget: auto -> "},
    {"gradient_checkpointing=none", "gradient_checkpointing: full -> none"},
    {"batch_size=1 gradient_accumulation_steps=2", "gradient_accumulation_steps: 1 -> 2"},
    {"max_steps=9", "max_steps: 4 -> 9"},
    {"lora_target_modules=all-linear", NULL},
    {"learning_rate=2e-2", NULL},
    {"warmup_steps=1", NULL},
};

START_TEST(what_may_change_is_told) {
    char words[128], *save = NULL;
    make_lora("");
    TRAIN_WELL("max_steps=4");
    snprintf(words, sizeof words, "%s", harmless[_i].word);
    const char *first = strtok_r(words, " ", &save), *second = strtok_r(NULL, " ", &save);
    struct outcome o = TRAIN("max_steps=4", first, second);
    expect(&o, 0, harmless[_i].says ? harmless[_i].says : "after step 4");
    ck_assert_msg((strstr(o.err, "other settings than") != NULL) == (harmless[_i].says != NULL),
                  "%s", o.err);
    outcome_finish(&o);
}
END_TEST

/* Every token is another one, and every count is as it was. F2 of record.h: data are compared
 * byte for byte. */
START_TEST(other_tokens_of_equal_counts_are_refused) {
    make_lora("");
    TRAIN_WELL("max_steps=4");
    char *rows = file_read(in_dir(dir, "train.jsonl"), NULL);
    for (char *p = rows; (p = strstr(p, "\"input_ids\"")) != NULL; p++)
        for (char *c = p; *c && *c != ']'; c++)
            if (*c >= '1' && *c <= '5' && c[-1] < '0') *c = *c == '1' ? '2' : *c == '2' ? '1' : *c;
    file_write(in_dir(dir, "train.jsonl"), rows);
    free(rows);
    FAILS_WITH(5, "CHECKPOINT_MISMATCH", "data: 23 rows, ", "max_steps=6");
}
END_TEST

/* F2 of record.h: the base is known by bytes of its tensors. */
START_TEST(another_base_of_the_same_shapes_is_refused) {
    tiny_make(dir, &(struct tiny){0}, "batch_size: 2\nmax_steps: 1\n");
    TRAIN_WELL("output_dir=one");
    TRAIN_WELL("output_dir=two", "seed=3");
    make_lora("");
#define ON(base) "init=pretrained", "model_config=~", "model=" base
    TRAIN_WELL("max_steps=4", ON("one"));
    FAILS_WITH(5, "CHECKPOINT_MISMATCH", "base_weights: xxh64 ", "max_steps=6", ON("two"));
    ck_assert_int_eq(rename(in_dir(dir, "one"), in_dir(dir, "moved")), 0);
    SAYS("model: one -> moved", "max_steps=6", ON("moved"));
    SAYS("was trained with other settings: base_weights: xxh64 ", "max_steps=7", "resume=force",
         ON("two"));
#undef ON
}
END_TEST

START_TEST(the_resolved_configuration_goes_on) {
    make_lora("");
    TRAIN_WELL("max_steps=4");
    struct outcome o = plimsoll_run(
        dir, (const char *[]){"train", "out/config.resolved.yaml", "max_steps=6", NULL});
    expect(&o, 0, "after step 4");
    outcome_finish(&o);
}
END_TEST

/* Writes it as the version before digests did. */
static void make_earlier(const char *checkpoint) {
    static const char *const since[] = {"run_id", "run_number", "job",
                                        "files",  "format",     "state_xxh64"};
    json_t *ours, *root = saved_state(checkpoint, &ours);
    for (size_t i = 0; i < sizeof since / sizeof *since; i++)
        ck_assert_int_eq(json_object_del(ours, since[i]), 0);
    ck_assert_int_eq(json_dump_file(root, in_dir(checkpoint, "trainer_state.json"), 0), 0);
    json_decref(root);
}

START_TEST(a_checkpoint_of_an_earlier_version_goes_on) {
    make_lora("lr_scheduler: constant\n");
    TRAIN_WELL("max_steps=8", "output_dir=straight");
    TRAIN_WELL("max_steps=4");
    make_earlier(in_dir(dir, "out/checkpoint-2"));
    make_earlier(in_dir(dir, "out/checkpoint-4"));
    ck_assert_int_eq(unlink(in_dir(dir, "out/trainer_state.json")), 0);
    FAILS_WITH(5, "CHECKPOINT_MISMATCH", "seed: 42 -> 7", "max_steps=8", "seed=7");
    SAYS("out/checkpoint-4 is of an earlier version: it has no digests", "max_steps=8");
    char straight[SCRATCH_PATH + 16];
    snprintf(straight, sizeof straight, "%s/straight", dir);
    weights_assert_same(straight, in_dir(dir, "out"), "adapter_model");
}
END_TEST

/* --- starting over -----------------------------------------------------------------------------
 */

/* However far it came: either nothing of the new run has its name, and the old one goes on, or the
 * new one does. */
START_TEST(a_start_over_that_is_killed_never_goes_on_as_the_old_run) {
    bool ended = false;
    tiny_make(dir, &(struct tiny){0}, "batch_size: 2\nlr_scheduler: constant\n");
    TRAIN_WELL("max_steps=6", "save_steps=2", "output_dir=old");
    ck_assert_int_eq(unlink(in_dir(dir, "old/trainer_state.json")), 0); /* it was stopped there */
    for (int at = 1; !ended; at++) {
        scratch_remove(in_dir(dir, "out"));
        scratch_copy(in_dir(dir, "old"), textf("%s/out", dir));
        SHIM("FAULT_CALLS", "rename,unlink", "FAULT_DO", "kill", "FAULT_AT", textf("%d", at));
        struct outcome o =
            TRAIN("max_steps=3", "save_steps=1", "resume=never", "save_total_limit=9");
        shim(NULL);
        ended = o.status == 0;
        ck_assert_msg(ended || o.status == 128 + 9, "exit %d: %s", o.status, o.err);
        outcome_finish(&o);
        const bool begun = path_exists(in_dir(dir, "out/checkpoint-1"));
        o = TRAIN("max_steps=3", "save_steps=1");
        ck_assert_msg(o.status == 0, "killed at %d: exit %d: %s", at, o.status, o.err);
        ck_assert_msg(!begun || !strstr(o.err, "after step 6"), "killed at %d: %s", at, o.err);
        ck_assert_msg(begun || strstr(o.err, "after step 6"), "killed at %d: %s", at, o.err);
        outcome_finish(&o);
        ck_assert_int_lt(at, 200);
        ck_assert_msg(!ended || at > 10, "only %d calls were met", at - 1);
    }
}
END_TEST

START_TEST(going_back_is_a_run_of_its_own) {
    json_t *first, *second;
    tiny_make(dir, &(struct tiny){0}, "batch_size: 2\nlr_scheduler: constant\nsave_steps: 2\n");
    TRAIN_WELL("max_steps=6");
    TRAIN_WELL("max_steps=6");
    TRAIN_WELL("max_steps=3", "resume=out/checkpoint-2", "save_steps=1");
    json_t *a = saved_state(in_dir(dir, "out/checkpoint-2"), &first);
    json_t *b = saved_state(in_dir(dir, "out/checkpoint-3"), &second);
    ck_assert_int_eq(json_integer_value(json_object_get(first, "run_number")), 1);
    ck_assert_int_eq(json_integer_value(json_object_get(second, "run_number")), 2);
    ck_assert_uint_eq(json_string_length(json_object_get(second, "run_id")), 32);
    ck_assert(!json_equal(json_object_get(first, "run_id"), json_object_get(second, "run_id")));
    json_decref(a);
    json_decref(b);
}
END_TEST

/* --- what is finished there --------------------------------------------------------------------
 */

static const char asks[] = "`overwrite_output_dir: true`";

START_TEST(the_finished_run_of_another_job_is_not_replaced) {
    tiny_make(dir, &(struct tiny){0}, "batch_size: 2\nmax_steps: 2\n");
    TRAIN_WELL("seed=1");
    scratch_copy(in_dir(dir, "out"), textf("%s/before", dir));
    FAILS_WITH(2, "CONFIG_CONFLICT", "holds the finished run of another job: seed: 1 -> 2",
               "seed=2");
    FAILS_WITH(2, "CONFIG_CONFLICT", asks, "seed=2", "resume=never");
    ck_assert(
        file_same(in_dir(dir, "before/model.safetensors"), in_dir(dir, "out/model.safetensors")));
    ck_assert(file_same(in_dir(dir, "before/train_log.jsonl"), in_dir(dir, "out/train_log.jsonl")));
    TRAIN_WELL("seed=1"); /* the same job: the same weights again */
    ck_assert(
        file_same(in_dir(dir, "before/model.safetensors"), in_dir(dir, "out/model.safetensors")));
    TRAIN_WELL("seed=1", "max_steps=3");
    TRAIN_WELL("seed=2", "overwrite_output_dir=true");
    FAILS_WITH(2, "CONFIG_CONFLICT", "seed: 2 -> 1", "seed=1");
}
END_TEST

START_TEST(the_model_that_is_trained_is_not_replaced) {
    tiny_make(dir, &(struct tiny){0}, "batch_size: 2\nmax_steps: 1\n");
    TRAIN_WELL("output_dir=base");
    ck_assert_int_eq(symlink("base", in_dir(dir, "link")), 0);
    FAILS_WITH(2, "CONFIG_CONFLICT", "is the directory of the model that is trained",
               "init=pretrained", "model_config=~", "model=base", "output_dir=link");
    FAILS_WITH(2, "CONFIG_CONFLICT", asks, "init=pretrained", "model_config=~", "model=base",
               "output_dir=./base/");
    TRAIN_WELL("init=pretrained", "model_config=~", "model=base", "output_dir=base",
               "overwrite_output_dir=true");
}
END_TEST

START_TEST(weights_of_which_nothing_is_known_are_not_replaced) {
    tiny_make(dir, &(struct tiny){0}, "batch_size: 2\nmax_steps: 1\n");
    ck_assert_int_eq(mkdir(in_dir(dir, "out"), 0777), 0);
    file_write(in_dir(dir, "out/model.safetensors"), "somebody's");
    FAILS_WITH(2, "CONFIG_CONFLICT", "out holds weights that no run here has recorded", "seed=1");
    TRAIN_WELL("overwrite_output_dir=true");
}
END_TEST

/* Makes the files that transformers' Trainer leaves in its output directory. */
static void make_foreign(const char *more) {
    tiny_make(dir, &(struct tiny){.mode = "lora"}, "batch_size: 2\nmax_steps: 2\nsave_steps: 1\n");
    ck_assert_int_eq(mkdir(in_dir(dir, "out"), 0777), 0);
    ck_assert_int_eq(mkdir(in_dir(dir, "out/checkpoint-2"), 0777), 0);
    file_write(in_dir(dir, "out/checkpoint-2/trainer_state.json"),
               "{\"global_step\": 2, \"epoch\": 1.0, \"log_history\": []}");
    file_write(in_dir(dir, "out/checkpoint-2/adapter_config.json"), "{\"peft_type\": \"LORA\"}");
    if (more) file_write(in_dir(dir, more), "somebody's");
}

START_TEST(a_checkpoint_of_another_trainer_is_said_to_be_one) {
    make_foreign(NULL);
    FAILS_WITH(5, "CHECKPOINT_MISMATCH", "out/checkpoint-2 is a checkpoint of another trainer",
               "seed=1");
    FAILS_WITH(5, "CHECKPOINT_MISMATCH", "`adapter_path: out/checkpoint-2` continues", "seed=1");
    FAILS_WITH(5, "CHECKPOINT_MISMATCH", "another trainer", "resume=out/checkpoint-2");
    SAYS("another trainer", "resume=never");
    ck_assert(path_exists(in_dir(dir, "out/checkpoint-2.replaced/adapter_config.json")));
    SAYS("after step 2", "max_steps=3");
}
END_TEST

START_TEST(what_another_trainer_has_written_is_not_replaced) {
    static const char *const files[] = {"out/adapter_config.json", "out/adapter_model.bin"};
    make_foreign(files[_i]);
    FAILS_WITH(2, "CONFIG_CONFLICT", "out holds weights that no run here has recorded",
               "resume=never");
    TRAIN_WELL("overwrite_output_dir=true", "resume=never");
}
END_TEST

START_TEST(the_state_of_another_trainer_is_not_replaced) {
    make_foreign(NULL);
    file_write(in_dir(dir, "out/trainer_state.json"), "{\"global_step\": 2, \"epoch\": NaN}");
    FAILS_WITH(2, "CONFIG_CONFLICT", "out holds what another trainer has written", "resume=never");
    TRAIN_WELL("overwrite_output_dir=true", "resume=never");
}
END_TEST

/* A checkpoint that was moved to another disk, output_dir as a link, and both. */
START_TEST(a_checkpoint_that_was_moved_and_linked_is_resumed) {
    tiny_make(dir, &(struct tiny){0}, "batch_size: 2\nsave_steps: 2\nsave_total_limit: 1\n");
    TRAIN_WELL("max_steps=8", "output_dir=straight");
    TRAIN_WELL("max_steps=2");
    if (_i != 1) {
        ck_assert_int_eq(rename(in_dir(dir, "out/checkpoint-2"), in_dir(dir, "away")), 0);
        ck_assert_int_eq(symlink("../away", in_dir(dir, "out/checkpoint-2")), 0);
    }
    if (_i != 0) {
        ck_assert_int_eq(rename(in_dir(dir, "out"), in_dir(dir, "far")), 0);
        if (_i == 2) ck_assert_int_eq(unlink(in_dir(dir, "far/checkpoint-2")), 0);
        if (_i == 2)
            ck_assert_int_eq(symlink(in_dir(dir, "away"), in_dir(dir, "far/checkpoint-2")), 0);
        ck_assert_int_eq(symlink("far", in_dir(dir, "out")), 0);
    }
    SAYS("out/checkpoint-2 after step 2", "max_steps=8");
    ck_assert_int_eq(path_exists(in_dir(dir, "out/checkpoint-2")), _i != 1);
    weights_assert_same(in_dir(dir, "straight"), in_dir(dir, "out"), "model");
}
END_TEST

/* A kill during the last removal: the run that resumes has no save to come that would clear it. */
START_TEST(what_a_cut_removal_left_goes_with_the_end_of_the_run) {
    tiny_make(dir, &(struct tiny){0}, "batch_size: 2\nsave_steps: 2\nmax_steps: 4\n");
    TRAIN_WELL("output_dir=out");
    ck_assert_int_eq(
        rename(in_dir(dir, "out/checkpoint-2"), in_dir(dir, "out/checkpoint-2.old.tmp")), 0);
    SAYS("out/checkpoint-4 after step 4", "output_dir=out");
    ck_assert(!path_exists(in_dir(dir, "out/checkpoint-2.old.tmp")));
}
END_TEST

START_TEST(a_checkpoint_from_before_the_finished_run_is_not_gone_on_from) {
    tiny_make(dir, &(struct tiny){0}, "batch_size: 2\nlr_scheduler: constant\n");
    TRAIN_WELL("max_steps=2", "save_steps=2");
    ck_assert_int_eq(unlink(in_dir(dir, "out/trainer_state.json")), 0); /* it was stopped there */
    TRAIN_WELL("max_steps=4", "resume=never");
    FAILS_WITH(2, "CONFIG_CONFLICT", "out/checkpoint-2 was saved before the run that is finished",
               "max_steps=5");
    FAILS_WITH(2, "CONFIG_CONFLICT", asks, "max_steps=5");
    TRAIN_WELL("max_steps=5", "resume=never");
}
END_TEST

/* --- the log, and the first micro-batch --------------------------------------------------------
 */

/* After a power cut the log has the lines that were synced: a run that resumes from a checkpoint
 * has the steps before it. */
START_TEST(the_log_is_on_disk_before_the_checkpoint_that_follows_it) {
    char log[SCRATCH_PATH + 16];
    snprintf(log, sizeof log, "%s/calls", dir);
    tiny_make(dir, &(struct tiny){0}, "batch_size: 2\nsave_steps: 1\n");
    SHIM("FAULT_CALLS", "rename,sync", "FAULT_LOG", log);
    TRAIN_WELL("max_steps=3");
    shim(NULL);
    char *calls = file_read(log, NULL), *from = calls;
    for (int step = 1; step <= 3; step++) {
        char *named = strstr(from, textf("/out/checkpoint-%d\n", step));
        ck_assert_msg(named != NULL, "checkpoint-%d has no name: %s", step, calls);
        *named = 0;
        ck_assert_msg(strstr(from, "/out/train_log.jsonl\n") != NULL,
                      "no fsync of the log before checkpoint-%d: %s", step, from);
        from = named + 1;
    }
    free(calls);
}
END_TEST

static void expect_gradients(const char *type) {
    char *text = file_read(in_dir(dir, "out/config.resolved.yaml"), NULL);
    ck_assert_msg(strstr(text, textf("\ngradient_dtype: %s\n", type)) != NULL, "%s", text);
    free(text);
}

/* One micro-batch a step has its gradients in bf16, more have them in fp32. `auto` and a step of a
 * given size leave open which of both the run began with. */
START_TEST(a_run_keeps_the_gradients_that_it_began_with) {
    tiny_make(dir, &(struct tiny){0},
              "batch_size: auto\nglobal_batch_size: 8\ndtype: bf16\nsave_steps: 1\n"
              "lr_scheduler: constant\n");
    TRAIN_WELL("max_steps=2", "debug_inject=device_oom@step=2");
    expect_gradients("bf16");
    TRAIN_WELL("max_steps=3");
    expect_gradients("bf16");
    TRAIN_WELL("max_steps=3", "debug_inject=device_oom@step=2", "output_dir=straight");
    checkpoint_assert_same(in_dir(dir, "straight/checkpoint-3"), in_dir(dir, "out/checkpoint-3"));
}
END_TEST

int main(void) {
    Suite *s = suite_create("train.resume");
    TCase *tc = tcase_create("resume");
    tcase_set_timeout(tc, 180);
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_loop_test(tc, a_checkpoint_that_cannot_be_read_ends_the_start_and_stays, 0,
                        (int)(sizeof errors / sizeof *errors));
    tcase_add_test(tc, an_emptied_state_is_not_one_checkpoint_less);
    tcase_add_test(tc, a_flipped_bit_is_found_before_it_is_trained_on);
    tcase_add_loop_test(tc, what_changes_the_meaning_is_refused_with_the_list, 0,
                        (int)(sizeof meanings / sizeof *meanings));
    tcase_add_loop_test(tc, what_is_saved_in_another_form_is_refused_by_force_too, 0,
                        (int)(sizeof forms / sizeof *forms));
    tcase_add_test(tc, what_is_not_set_is_recorded_as_such);
    tcase_add_test(tc, several_differences_are_listed_together);
    tcase_add_loop_test(tc, what_may_change_is_told, 0, (int)(sizeof harmless / sizeof *harmless));
    tcase_add_test(tc, other_tokens_of_equal_counts_are_refused);
    tcase_add_test(tc, another_base_of_the_same_shapes_is_refused);
    tcase_add_test(tc, the_resolved_configuration_goes_on);
    tcase_add_test(tc, a_checkpoint_of_an_earlier_version_goes_on);
    tcase_add_test(tc, a_start_over_that_is_killed_never_goes_on_as_the_old_run);
    tcase_add_test(tc, going_back_is_a_run_of_its_own);
    tcase_add_test(tc, the_finished_run_of_another_job_is_not_replaced);
    tcase_add_test(tc, the_model_that_is_trained_is_not_replaced);
    tcase_add_test(tc, weights_of_which_nothing_is_known_are_not_replaced);
    tcase_add_test(tc, a_checkpoint_of_another_trainer_is_said_to_be_one);
    tcase_add_loop_test(tc, what_another_trainer_has_written_is_not_replaced, 0, 2);
    tcase_add_test(tc, the_state_of_another_trainer_is_not_replaced);
    tcase_add_loop_test(tc, a_checkpoint_that_was_moved_and_linked_is_resumed, 0, 3);
    tcase_add_test(tc, what_a_cut_removal_left_goes_with_the_end_of_the_run);
    tcase_add_test(tc, a_checkpoint_from_before_the_finished_run_is_not_gone_on_from);
    tcase_add_test(tc, the_log_is_on_disk_before_the_checkpoint_that_follows_it);
    tcase_add_test(tc, a_run_keeps_the_gradients_that_it_began_with);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
