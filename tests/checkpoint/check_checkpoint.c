/* check_checkpoint.c - checkpoint directories: exact resume, and no failure that loses anything. */
#include "estimator/config/job_text.h"
#include "runtime/checkpoint/adapter_io.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/checkpoint/durable.h"
#include "runtime/checkpoint/model_io.h"
#include "runtime/checkpoint/run_state.h"
#include "tests/checkpoint/rig.h"

#include <dirent.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char dir[64];
static struct pl_diag diag;
static struct pl_job job;

static void setup(void) {
    diag = (struct pl_diag){0};
    OK(pl_job_defaults(&job, &diag));
    dir_make(dir);
}
static void teardown(void) {
    pl_checkpoint_set_fault(NULL);
    pl_job_finish(&job);
    dir_remove(dir);
}

static const struct rig_options kinds[] = {
    {.mode = PL_MODE_FULL, .dtype = PL_DTYPE_BF16, .master = true},
    {.mode = PL_MODE_FULL, .dtype = PL_DTYPE_BF16, .staging_bytes = 4096},
    {.mode = PL_MODE_FULL, .dtype = PL_DTYPE_F32, .freeze_layers = 1, .untied = true},
    {.mode = PL_MODE_LORA, .dtype = PL_DTYPE_BF16, .adapter_dtype = PL_DTYPE_F32},
    {.mode = PL_MODE_LORA, .dtype = PL_DTYPE_BF16, .adapter_dtype = PL_DTYPE_BF16, .master = true},
    {.mode = PL_MODE_FULL, .dtype = PL_DTYPE_F32, .optimizer = PL_OPTIMIZER_SGD},
    {.mode = PL_MODE_LORA, .lora_r = 300, .optimizer = PL_OPTIMIZER_ADAMW_8BIT},
    {.mode = PL_MODE_FULL,
     .dtype = PL_DTYPE_BF16,
     .master = true,
     .optimizer = PL_OPTIMIZER_ADAMW_8BIT,
     .staging_bytes = 4096},
    {.mode = PL_MODE_QLORA, .lora_r = 300, .optimizer = PL_OPTIMIZER_ADAMW_8BIT},
    {.mode = PL_MODE_LORA,
     .dtype = PL_DTYPE_BF16,
     .adapter_dtype = PL_DTYPE_F32,
     .master = true,
     .whole = {"embed_tokens"}},
    {.mode = PL_MODE_LORA,
     .adapter_dtype = PL_DTYPE_BF16,
     .master = true,
     .target = "embed_tokens",
     .staging_bytes = 4096},
    {.mode = PL_MODE_QLORA,
     .lora_r = 300,
     .optimizer = PL_OPTIMIZER_ADAMW_8BIT,
     .whole = {"embed_tokens", "lm_head"},
     .untied = true,
     .staging_bytes = 4096},
};
enum { N_KINDS = sizeof kinds / sizeof *kinds };

static struct pl_run_state state_at(uint64_t step) {
    return (struct pl_run_state){.step = step,
                                 .position = 1000 + step,
                                 .batch_size = 3,
                                 .global_batch = 12,
                                 .tokens = (UINT64_C(1) << 53) + 1,
                                 .oom_recoveries = 2,
                                 .seed = UINT64_MAX - 5,
                                 .loss_chunk_tokens = 640,
                                 .epoch_rows = 1200,
                                 .data_tokens = UINT64_C(1) << 41,
                                 .chat_day = 20240229,
                                 .run_number = 3,
                                 .run_id = "00112233445566778899aabbccddeeff"};
}

/* Saves as the trainer does; aborts on failure as it must. */
static pl_err save(struct rig *r, uint64_t step, uint32_t keep, struct pl_diag *d) {
    struct pl_checkpoint c = {0};
    const struct pl_run_state s = state_at(step);
    pl_err err = pl_checkpoint_begin(&c, dir, step, d);
    if (err != PL_ERR_OK) goto out;
    PL_TRY_GOTO(pl_mode_adapts(r->program->shape.mode)
                    ? pl_adapter_put(&r->io, &c.outbox, &job, NULL, d)
                    : pl_model_put(&r->io, &c.outbox, "{}", NULL, PL_SHARD_BYTES, d),
                out);
    PL_TRY_GOTO(pl_checkpoint_write_state(&c, &r->io, &s, NULL, d), out);
    err = pl_checkpoint_commit(&c, dir, (struct pl_rotation){keep, 0}, d);
out:
    pl_checkpoint_abort(&c);
    return err;
}

static bool same_states(const struct rig *a, const struct rig *b) {
    const struct pl_job_shape *s = &a->program->shape;
    bool lora = pl_mode_adapts(s->mode);
    bool blocks = lora && pl_optimizer_is_in_blocks(s->optimizer); /* adapters of rank 300, so that
                                                                      some are large */
    if (!lora && !rig_same(a, b, PL_ROLE_WEIGHT)) return false;
    if (lora && !(rig_same(a, b, PL_ROLE_LORA_A) && rig_same(a, b, PL_ROLE_LORA_B))) return false;
    if (blocks && !rig_same(a, b, PL_ROLE_STATE_ABSMAX)) return false;
    if (lora && !rig_same_whole(a, b)) return false;
    if (s->master_weights && !rig_same(a, b, PL_ROLE_MASTER)) return false;
    return !pl_optimizer_row(s->optimizer)->states[0].name || rig_same(a, b, PL_ROLE_STATE);
}

START_TEST(a_resumed_run_has_every_bit_it_had) {
    struct rig a, b;
    struct pl_run_state s;
    rig_open(&a, &kinds[_i]);
    rig_open(&b, &kinds[_i]);
    rig_scramble(&a, 77);
    OK(save(&a, 8, 1, &diag));
    OK(pl_checkpoint_load(&b.io, in(dir, "checkpoint-8"), &diag));
    ck_assert(same_states(&a, &b));
    OK(pl_checkpoint_read_state(in(dir, "checkpoint-8"), &s, &diag));
    const struct pl_run_state want = state_at(8);
    ck_assert_uint_eq(s.step, want.step);
    ck_assert_uint_eq(s.position, want.position);
    ck_assert_uint_eq(s.batch_size, want.batch_size);
    ck_assert_uint_eq(s.global_batch, want.global_batch);
    ck_assert_uint_eq(s.tokens, want.tokens);
    ck_assert_uint_eq(s.oom_recoveries, want.oom_recoveries);
    ck_assert_uint_eq(s.seed, want.seed);
    ck_assert_uint_eq(s.loss_chunk_tokens, want.loss_chunk_tokens);
    ck_assert_uint_eq(s.epoch_rows, want.epoch_rows);
    ck_assert_uint_eq(s.data_tokens, want.data_tokens);
    ck_assert_uint_eq(s.chat_day, want.chat_day);
    ck_assert_uint_eq(s.run_number, want.run_number);
    ck_assert_str_eq(s.run_id, want.run_id);
    rig_close(&a);
    rig_close(&b);
}
END_TEST

START_TEST(trainer_state_speaks_to_hugging_faces_tools) {
    struct rig r;
    rig_open(&r, &kinds[3]);
    OK(save(&r, 8, 1, &diag));
    json_t *root = json_load_file(in(dir, "checkpoint-8/trainer_state.json"), 0, NULL);
    ck_assert_int_eq(json_integer_value(json_object_get(root, "global_step")), 8);
    ck_assert_int_eq(json_integer_value(json_object_get(root, "train_batch_size")), 3);
    ck_assert(json_is_array(json_object_get(root, "log_history")));
    ck_assert(json_is_null(json_object_get(root, "epoch")));
    json_decref(root);
    rig_close(&r);
}
END_TEST

static const struct {
    struct rig_options saved, resumed;
    const char *says;
} mismatches[] = {
    {{.dtype = PL_DTYPE_BF16}, {.dtype = PL_DTYPE_F32}, "is stored as BF16, not as F32"},
    {{.dtype = PL_DTYPE_BF16}, {.dtype = PL_DTYPE_BF16, .master = true}, ".master` is missing"},
    {{.dtype = PL_DTYPE_BF16, .master = true}, {.dtype = PL_DTYPE_BF16}, ".master` has no place"},
    {{.dtype = PL_DTYPE_F32},
     {.dtype = PL_DTYPE_F32, .optimizer = PL_OPTIMIZER_SGD},
     "exp_avg` has no place"},
    {{.dtype = PL_DTYPE_F32}, {.mode = PL_MODE_LORA}, "has neither adapter_model.safetensors"},
    {{.mode = PL_MODE_LORA}, {.mode = PL_MODE_LORA, .lora_r = 8}, "has shape [4, 16]"},
    {{.mode = PL_MODE_LORA, .target = "v_proj"},
     {.mode = PL_MODE_LORA},
     "is missing (and 35 more)"},
    {{.dtype = PL_DTYPE_F32},
     {.dtype = PL_DTYPE_F32, .untied = true},
     "`lm_head.weight` is missing"},
};

/* W2 of windows.h: no byte moves before all windows are found. */
START_TEST(a_checkpoint_of_another_configuration_is_refused) {
    struct rig a, b, c;
    rig_open(&a, &mismatches[_i].saved);
    rig_open(&b, &mismatches[_i].resumed);
    rig_open(&c, &mismatches[_i].resumed);
    rig_scramble(&a, 1);
    rig_scramble(&b, 2);
    rig_scramble(&c, 2);
    OK(save(&a, 1, 1, &diag));
    FAILS(pl_checkpoint_load(&b.io, in(dir, "checkpoint-1"), &diag), PL_ERR_CHECKPOINT_MISMATCH,
          mismatches[_i].says);
    ck_assert_msg(same_states(&b, &c), "nothing may be loaded before all is right");
    rig_close(&a);
    rig_close(&b);
    rig_close(&c);
}
END_TEST

static char *find_checkpoint(void) {
    char *path;
    OK(pl_checkpoint_find(dir, &path, NULL, &diag));
    return path;
}

START_TEST(find_returns_the_newest_complete_one) {
    struct rig r;
    rig_open(&r, &kinds[3]);
    ck_assert_ptr_null(find_checkpoint());
    OK(save(&r, 9, 9, &diag));
    OK(save(&r, 10, 9, &diag));
    OK(save(&r, 100, 9, &diag));
    char *path = find_checkpoint();
    ck_assert_str_eq(path, in(dir, "checkpoint-100"));
    free(path);
    ck_assert_int_eq(unlink(in(dir, "checkpoint-100/trainer_state.json")), 0);
    ck_assert_int_eq(mkdir(in(dir, "checkpoint-200"), 0777), 0);
    ck_assert_int_eq(mkdir(in(dir, "checkpoint-300.tmp"), 0777), 0);
    ck_assert_int_eq(rename(in(dir, "checkpoint-9"), in(dir, "checkpoint-0400")), 0);
    spill(in(dir, "checkpoint-500"), "", 0);
    ck_assert_int_eq(mkdir(in(dir, "checkpoint-18446744073709551616"), 0777), 0);
    path = find_checkpoint();
    ck_assert_str_eq(path, in(dir, "checkpoint-10"));
    free(path);
    rig_close(&r);
}
END_TEST

/* --- what has the name of a checkpoint and was not written here ------------------------------- */

static const char *notes_of_find(struct pl_text *notes) {
    char *path = NULL;
    notes->len = 0;
    OK(pl_checkpoint_search(dir, PL_CHECKPOINT_OWN, &path, notes, &diag));
    free(path);
    return pl_text_str(notes);
}

static void move_and_link(const char *name, const char *to, const char *link) {
    ck_assert_int_eq(rename(in(dir, name), in(dir, to)), 0);
    ck_assert_int_eq(symlink(link, in(dir, name)), 0);
}

static bool is_link(const char *name) {
    struct stat st;
    return lstat(in(dir, name), &st) == 0 && S_ISLNK(st.st_mode);
}

/* Relative, absolute, and through another link. */
START_TEST(a_link_to_a_directory_is_a_checkpoint_and_stays) {
    struct rig r;
    struct pl_text notes = {0};
    char absolute[128];
    snprintf(absolute, sizeof absolute, "%s/away", dir);
    rig_open(&r, &kinds[3]);
    OK(save(&r, 2, 9, &diag));
    OK(save(&r, 4, 9, &diag));
    move_and_link("checkpoint-4", "away", _i == 1 ? absolute : "away");
    if (_i == 2) move_and_link("away", "far", "far");
    char *path = find_checkpoint();
    ck_assert_str_eq(path, in(dir, "checkpoint-4"));
    free(path);
    ck_assert_ptr_nonnull(strstr(notes_of_find(&notes), "checkpoint-4 is a link"));
    for (uint64_t step = 5; step <= 7; step++)
        OK(save(&r, step, 1, &diag));
    ck_assert(is_link("checkpoint-4") && exists(in(dir, "checkpoint-4/trainer_state.json")));
    ck_assert(!exists(in(dir, "checkpoint-2")) && !exists(in(dir, "checkpoint-6")));
    /* one of the same step takes the name, and the link stays under another */
    OK(save(&r, 4, 1, &diag));
    ck_assert(!is_link("checkpoint-4") && is_link("checkpoint-4.replaced"));
    ck_assert(exists(in(dir, _i == 2 ? "far/trainer_state.json" : "away/trainer_state.json")));
    pl_text_finish(&notes);
    rig_close(&r);
}
END_TEST

START_TEST(a_link_to_what_is_not_there_is_refused) {
    struct rig r;
    char *path = NULL;
    rig_open(&r, &kinds[3]);
    OK(save(&r, 2, 9, &diag));
    ck_assert_int_eq(symlink(_i ? "checkpoint-4" : "nowhere", in(dir, "checkpoint-4")), 0);
    ck_assert_int_eq(pl_checkpoint_find(dir, &path, NULL, &diag), PL_ERR_CHECKPOINT_FILE);
    ck_assert_msg(strstr(diag.message, "checkpoint-4 is a link to a directory that is not there"),
                  "%s", diag.message);
    diag = (struct pl_diag){0};
    OK(save(&r, 5, 1, &diag));
    ck_assert(is_link("checkpoint-4"));
    rig_close(&r);
}
END_TEST

START_TEST(what_is_not_taken_is_named) {
    static const char *const rows[] = {"checkpoint-98 is not taken", "checkpoint-0005 is not taken",
                                       "checkpoint-best is not taken", "checkpoint-7 is not taken",
                                       "checkpoint-3 has no"};
    struct rig r;
    struct pl_text notes = {0};
    rig_open(&r, &kinds[3]);
    OK(save(&r, 2, 9, &diag));
    spill(in(dir, "checkpoint-98"), "", 0);
    ck_assert_int_eq(symlink("checkpoint-98", in(dir, "checkpoint-7")), 0);
    ck_assert_int_eq(mkdir(in(dir, "checkpoint-0005"), 0777), 0);
    ck_assert_int_eq(mkdir(in(dir, "checkpoint-best"), 0777), 0);
    ck_assert_int_eq(mkdir(in(dir, "checkpoint-3"), 0777), 0);
    ck_assert_int_eq(mkdir(in(dir, "checkpoint-6.old.tmp"), 0777), 0);
    notes_of_find(&notes);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        ck_assert_msg(strstr(pl_text_str(&notes), rows[i]), "%s: %s", rows[i], pl_text_str(&notes));
    ck_assert_ptr_null(strstr(pl_text_str(&notes), ".old.tmp"));
    OK(save(&r, 4, 1, &diag));
    ck_assert(exists(in(dir, "checkpoint-3")) && exists(in(dir, "checkpoint-98")));
    ck_assert(!exists(in(dir, "checkpoint-6.old.tmp")));
    pl_text_finish(&notes);
    rig_close(&r);
}
END_TEST

#define HF_STATE "{\"epoch\": 1.0, \"global_step\": 5, \"log_history\": [{\"loss\": NaN}]}"

static const struct {
    const char *file; /* NULL: none besides the state */
    bool state;
    const char *says;
} foreign[] = {
    {NULL, true, "transformers' Trainer"},
    {"scheduler.pt", true, "transformers' Trainer"},
    {"zero_to_fp32.py", true, "DeepSpeed"},
    {"pytorch_model_fsdp.bin", true, "FSDP"},
    {"optimizer.pt", false, "transformers' Trainer"},
    {"__0_0.distcp", false, "FSDP"},
    {"recipe_state.pt", false, "torchtune"},
    {"random_states_0.pkl", false, "accelerate"},
};
enum { N_FOREIGN = sizeof foreign / sizeof *foreign };

static void make_foreign(int i, const char *name) {
    char where[160];
    snprintf(where, sizeof where, "%s", in(dir, name));
    ck_assert_int_eq(mkdir(where, 0777), 0);
    if (foreign[i].file) spill(in(where, foreign[i].file), "x", 1);
    if (foreign[i].state) spill(in(where, "trainer_state.json"), HF_STATE, strlen(HF_STATE));
}

/* R1 of foreign.h and C5: no save removes it, and one of its step moves it aside. */
START_TEST(a_checkpoint_of_another_trainer_is_said_and_stays) {
    struct rig r;
    struct pl_text notes = {0};
    char *path = NULL;
    make_foreign(_i, "checkpoint-5");
    spill(in(dir, "checkpoint-5/adapter_config.json"), "{}", 2);
    const pl_err err = pl_checkpoint_find(dir, &path, NULL, &diag);
    ck_assert_int_eq(err, foreign[_i].state ? PL_ERR_CHECKPOINT_MISMATCH : PL_ERR_OK);
    if (foreign[_i].state) {
        ck_assert_msg(strstr(diag.message, "a checkpoint of another trainer") &&
                          strstr(diag.message, foreign[_i].says),
                      "%s", diag.message);
        ck_assert_msg(strstr(diag.hint, "`adapter_path: ") && strstr(diag.hint, "checkpoint-5`"),
                      "%s", diag.hint);
    }
    diag = (struct pl_diag){0};
    ck_assert_msg(strstr(notes_of_find(&notes), foreign[_i].says), "%s", pl_text_str(&notes));
    ck_assert(strstr(pl_text_str(&notes), "it is skipped"));
    rig_open(&r, &kinds[3]);
    OK(save(&r, 7, 1, &diag));
    OK(save(&r, 8, 1, &diag));
    ck_assert(exists(in(dir, "checkpoint-5/adapter_config.json")));
    path = find_checkpoint(); /* with one of a run here it is in nobody's way */
    ck_assert_str_eq(path, in(dir, "checkpoint-8"));
    free(path);
    OK(save(&r, 5, 1, &diag));
    ck_assert(exists(in(dir, "checkpoint-5.replaced/adapter_config.json")));
    ck_assert(exists(in(dir, "checkpoint-5/optimizer.safetensors")));
    pl_text_finish(&notes);
    rig_close(&r);
}
END_TEST

START_TEST(directories_of_other_trainers_are_named) {
    static const char *const names[] = {"global_step100", "epoch_0", "last.ckpt"};
    struct pl_text notes = {0};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        ck_assert_int_eq(mkdir(in(dir, names[i]), 0777), 0);
    notes_of_find(&notes);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        ck_assert_msg(strstr(pl_text_str(&notes), names[i]), "%s", pl_text_str(&notes));
    pl_text_finish(&notes);
}
END_TEST

/* True if a save that would be killed at its call `at` ended before it. */
static bool survives(struct rig *r, uint64_t at) {
    int status;
    const pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        struct pl_io_fault fault = {.at = at, .count = 1, .before = rig_die};
        pl_checkpoint_set_fault(&fault);
        _exit(save(r, at + 1, 1, NULL) == PL_ERR_OK ? 0 : 1);
    }
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/* Wherever that may be: what is left is a whole checkpoint, or has no name of one. C1 and C5:
 * neither the save nor the removal gives such a name to a part. */
START_TEST(a_removal_that_is_cut_short_leaves_no_checkpoint) {
    struct rig r;
    bool ended = false;
    rig_open(&r, &kinds[3]);
    OK(save(&r, 1, 9, &diag));
    for (uint64_t at = 1; !ended; at++) {
        struct pl_text notes = {0};
        ended = survives(&r, at);
        char *path = find_checkpoint();
        ck_assert_ptr_nonnull(path);
        free(path);
        ck_assert_str_eq(notes_of_find(&notes), "");
        pl_text_finish(&notes);
    }
    rig_close(&r);
}
END_TEST

START_TEST(a_directory_that_is_not_there_holds_no_checkpoint) {
    char *path = dir;
    OK(pl_checkpoint_find(in(dir, "none"), &path, NULL, &diag));
    ck_assert_ptr_null(path);
}
END_TEST

static const char *const bad_states[] = {
    "{}",
    "[]",
    "{\"plimsoll\":{\"step\":1}}",
    "{\"plimsoll\":{\"step\":-1,\"position\":0,\"batch_size\":0,\"global_batch\":0,\"tokens\":0,"
    "\"oom_recoveries\":0,\"seed\":0}}",
    "{\"plimsoll\":{\"step\":1,\"position\":0,\"batch_size\":4294967296,\"global_batch\":0,"
    "\"tokens\":0,\"oom_recoveries\":0,\"seed\":0}}",
    "{\"plimsoll\":{\"step\":1,\"position\":0,\"batch_size\":1,\"global_batch\":0,"
    "\"tokens\":0,\"oom_recoveries\":0,\"seed\":\"18446744073709551616\"}}",
    "{\"plimsoll\":{\"step\":1.5,\"position\":0,\"batch_size\":1,\"global_batch\":0,"
    "\"tokens\":0,\"oom_recoveries\":0,\"seed\":0}}",
};

START_TEST(a_damaged_trainer_state_is_refused) {
    struct pl_run_state s;
    spill(in(dir, "trainer_state.json"), bad_states[_i], strlen(bad_states[_i]));
    ck_assert_int_eq(pl_checkpoint_read_state(dir, &s, &diag), PL_ERR_CHECKPOINT_FORMAT);
    ck_assert_str_eq(diag.file, in(dir, "trainer_state.json"));
}
END_TEST

START_TEST(rotation_keeps_the_newest_and_touches_nothing_else) {
    struct rig r;
    rig_open(&r, &kinds[3]);
    ck_assert_int_eq(mkdir(in(dir, "checkpoint-best"), 0777), 0);
    ck_assert_int_eq(mkdir(in(dir, "checkpoint-1.tmp"), 0777), 0);
    ck_assert_int_eq(mkdir(in(dir, "checkpoint-0099"), 0777), 0);
    ck_assert_int_eq(mkdir(in(dir, "checkpoint-18446744073709551616"), 0777), 0);
    spill(in(dir, "checkpoint-98"), "", 0);
    for (uint64_t step = 1; step <= 12; step++)
        OK(save(&r, step, 3, &diag));
    for (int step = 1; step <= 12; step++) {
        char name[32];
        snprintf(name, sizeof name, "checkpoint-%d", step);
        ck_assert_int_eq(exists(in(dir, name)), step >= 10);
    }
    /* step 1 wrote over the stale temporary of the same name */
    ck_assert(exists(in(dir, "checkpoint-best")) && exists(in(dir, "checkpoint-0099")));
    ck_assert(exists(in(dir, "checkpoint-98")));
    /* an older step than those that are there: never the one just written */
    OK(save(&r, 5, 1, &diag));
    ck_assert(exists(in(dir, "checkpoint-5")) && !exists(in(dir, "checkpoint-12")));
    rig_close(&r);
}
END_TEST

/* Steps beyond the one just written are of a run that was started over. */
START_TEST(rotation_removes_what_was_started_over) {
    struct rig r;
    char *newest = NULL;
    rig_open(&r, &kinds[3]);
    for (uint64_t step = 10; step <= 40; step += 10)
        OK(save(&r, step, 9, &diag));
    OK(save(&r, 25, 9, &diag));
    ck_assert(exists(in(dir, "checkpoint-10")) && exists(in(dir, "checkpoint-20")));
    ck_assert(!exists(in(dir, "checkpoint-30")) && !exists(in(dir, "checkpoint-40")));
    OK(pl_checkpoint_find(dir, &newest, NULL, &diag));
    ck_assert_str_eq(newest, in(dir, "checkpoint-25"));
    free(newest);
    rig_close(&r);
}
END_TEST

START_TEST(what_a_killed_save_left_goes_with_the_next_one) {
    static const struct {
        const char *name;
        bool stays;
    } rows[] = {{"checkpoint-3.tmp", false},
                {"checkpoint-8.tmp", false},
                {"checkpoint-5.old.tmp", false},
                {"checkpoint-best.tmp", true},
                {"checkpoint-3.tmp.tmp", true},
                {"checkpoint-.tmp", true},
                {"notes.tmp", true},
                {"checkpoint-3.tmp2", true}};
    struct rig r;
    rig_open(&r, &kinds[3]);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ck_assert_int_eq(mkdir(in(dir, rows[i].name), 0777), 0);
        if (!rows[i].stays) spill(in(in(dir, rows[i].name), "model.safetensors.tmp"), "x", 1);
    }
    OK(save(&r, 5, 2, &diag));
    ck_assert(exists(in(dir, "checkpoint-5")));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        ck_assert_msg(exists(in(dir, rows[i].name)) == rows[i].stays, "%s", rows[i].name);
    rig_close(&r);
}
END_TEST

START_TEST(a_stale_temporary_of_the_step_is_cleared) {
    struct pl_checkpoint c;
    ck_assert_int_eq(mkdir(in(dir, "checkpoint-4.tmp"), 0777), 0);
    spill(in(dir, "checkpoint-4.tmp/junk"), "x", 1);
    OK(pl_checkpoint_begin(&c, dir, 4, &diag));
    ck_assert_str_eq(c.tmp_path, in(dir, "checkpoint-4.tmp"));
    ck_assert_str_eq(c.final_path, in(dir, "checkpoint-4"));
    ck_assert(exists(c.tmp_path) && !exists(in(dir, "checkpoint-4.tmp/junk")));
    pl_checkpoint_abort(&c);
    ck_assert(!exists(in(dir, "checkpoint-4.tmp")));
    pl_checkpoint_abort(&c);
}
END_TEST

START_TEST(a_failed_begin_leaves_nothing) {
    struct pl_checkpoint c;
    struct pl_io_fault fault = {.at = 1, .count = 1};
    pl_checkpoint_set_fault(&fault);
    FAILS(pl_checkpoint_begin(&c, dir, 4, &diag), PL_ERR_CHECKPOINT_WRITE,
          "checkpoint-4.tmp: No sp");
    ck_assert_ptr_null(c.tmp_path);
    ck_assert(!exists(in(dir, "checkpoint-4.tmp")));
}
END_TEST

START_TEST(the_final_path_outlives_the_commit) {
    struct rig r;
    struct pl_checkpoint c;
    const struct pl_run_state s = state_at(6);
    rig_open(&r, &kinds[3]);
    OK(pl_checkpoint_begin(&c, dir, 6, &diag));
    OK(pl_checkpoint_write_state(&c, &r.io, &s, NULL, &diag));
    ck_assert(!exists(c.final_path));
    OK(pl_checkpoint_commit(&c, dir, (struct pl_rotation){1, 0}, &diag));
    ck_assert(exists(c.final_path));
    pl_checkpoint_abort(&c);
    ck_assert(exists(in(dir, "checkpoint-6")));
    rig_close(&r);
}
END_TEST

/* Counts the checkpoints; nothing else may be there. Each must be whole: step 2 holds `at_2`, step
 * 1 what was saved first. */
static unsigned complete_ones(const struct rig_options *o, const struct rig *first,
                              const struct rig *at_2) {
    unsigned n = 0;
    DIR *d = opendir(dir);
    ck_assert_ptr_nonnull(d);
    for (const struct dirent *e; (e = readdir(d));) {
        struct rig got;
        if (e->d_name[0] == '.') continue;
        ck_assert_msg(!strstr(e->d_name, ".tmp"), "%s was left", e->d_name);
        rig_open(&got, o);
        OK(pl_checkpoint_load(&got.io, in(dir, e->d_name), &diag));
        ck_assert(same_states(&got, strcmp(e->d_name, "checkpoint-2") == 0 ? at_2 : first));
        rig_close(&got);
        n++;
    }
    closedir(d);
    return n;
}

/* SQLite tests itself in this way: call N fails once, or all from N on, until nothing fails any
 * more. The old checkpoint is written once, and must survive every failure. */
static void torture(const struct rig_options *o, uint64_t count, bool same_step) {
    struct rig old, new;
    rig_open(&old, o);
    rig_open(&new, o);
    rig_scramble(&old, 1);
    rig_scramble(&new, 2);
    OK(save(&old, same_step ? 2 : 1, 5, &diag));
    for (uint64_t at = 1;; at++) {
        struct pl_io_fault fault = {.at = at, .count = count};
        struct pl_diag failure = {0};
        ck_assert_uint_lt(at, 200);
        pl_checkpoint_set_fault(&fault);
        pl_err err = save(&new, 2, 5, &failure);
        pl_checkpoint_set_fault(NULL);
        if (fault.calls < at) {
            ck_assert_int_eq(err, PL_ERR_OK);
            ck_assert_uint_eq(complete_ones(o, &old, &new), same_step ? 1 : 2);
            ck_assert_uint_gt(at, 20);
            break;
        }
        ck_assert_int_eq(err, PL_ERR_CHECKPOINT_WRITE);
        ck_assert_ptr_nonnull(strstr(failure.message, dir));
        ck_assert_ptr_nonnull(strstr(failure.message, "No space left on device"));
        ck_assert_uint_eq(complete_ones(o, &old, &old), 1);
    }
    rig_close(&old);
    rig_close(&new);
}

START_TEST(whichever_call_fails_the_previous_checkpoint_stays) {
    static const struct {
        int kind;
        uint64_t count;
        bool same_step;
    } rows[] = {
        {0, 1, false},          {0, UINT64_MAX, false}, {3, 1, false},
        {3, UINT64_MAX, false}, {3, 1, true},           {3, UINT64_MAX, true},
    };
    torture(&kinds[rows[_i].kind], rows[_i].count, rows[_i].same_step);
}
END_TEST

START_TEST(a_failed_sync_of_the_parent_takes_the_new_name_back) {
    struct rig r;
    struct pl_checkpoint c;
    const struct pl_run_state s = state_at(2);
    rig_open(&r, &kinds[3]);
    OK(save(&r, 1, 5, &diag));
    OK(pl_checkpoint_begin(&c, dir, 2, &diag));
    OK(pl_checkpoint_write_state(&c, &r.io, &s, NULL, &diag));
    struct pl_io_fault fault = {.at = 4, .count = 1}; /* fsync, close, rename, fsync */
    pl_checkpoint_set_fault(&fault);
    FAILS(pl_checkpoint_commit(&c, dir, (struct pl_rotation){1, 0}, &diag), PL_ERR_CHECKPOINT_WRITE,
          "cannot sync");
    pl_checkpoint_set_fault(NULL);
    ck_assert_ptr_null(c.tmp_path);
    ck_assert(!exists(in(dir, "checkpoint-2")) && !exists(in(dir, "checkpoint-2.tmp")));
    ck_assert_msg(exists(in(dir, "checkpoint-1")), "rotation waits until the new name is on disk");
    rig_close(&r);
}
END_TEST

int main(void) {
    Suite *s = suite_create("checkpoint.checkpoint");
    TCase *t = tcase_create("checkpoint");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, a_resumed_run_has_every_bit_it_had, 0, N_KINDS);
    tcase_add_test(t, trainer_state_speaks_to_hugging_faces_tools);
    tcase_add_loop_test(t, a_checkpoint_of_another_configuration_is_refused, 0,
                        sizeof mismatches / sizeof *mismatches);
    tcase_add_test(t, find_returns_the_newest_complete_one);
    tcase_add_loop_test(t, a_link_to_a_directory_is_a_checkpoint_and_stays, 0, 3);
    tcase_add_loop_test(t, a_link_to_what_is_not_there_is_refused, 0, 2);
    tcase_add_test(t, what_is_not_taken_is_named);
    tcase_add_loop_test(t, a_checkpoint_of_another_trainer_is_said_and_stays, 0, N_FOREIGN);
    tcase_add_test(t, directories_of_other_trainers_are_named);
    tcase_add_test(t, a_removal_that_is_cut_short_leaves_no_checkpoint);
    tcase_add_test(t, a_directory_that_is_not_there_holds_no_checkpoint);
    tcase_add_loop_test(t, a_damaged_trainer_state_is_refused, 0,
                        sizeof bad_states / sizeof *bad_states);
    tcase_add_test(t, rotation_keeps_the_newest_and_touches_nothing_else);
    tcase_add_test(t, rotation_removes_what_was_started_over);
    tcase_add_test(t, what_a_killed_save_left_goes_with_the_next_one);
    tcase_add_test(t, a_stale_temporary_of_the_step_is_cleared);
    tcase_add_test(t, a_failed_begin_leaves_nothing);
    tcase_add_test(t, the_final_path_outlives_the_commit);
    tcase_add_loop_test(t, whichever_call_fails_the_previous_checkpoint_stays, 0, 6);
    tcase_add_test(t, a_failed_sync_of_the_parent_takes_the_new_name_back);
    suite_add_tcase(s, t);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
