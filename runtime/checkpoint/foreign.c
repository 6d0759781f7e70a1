#include "runtime/checkpoint/foreign.h"

#include "runtime/checkpoint/read_file.h"

#include <dirent.h>
#include <errno.h>
#include <fnmatch.h>
#include <string.h>

#define TRAINER "transformers' Trainer, which TRL, axolotl, unsloth and LLaMA-Factory use"

/* The files that only one trainer writes into a checkpoint; the first row that one of them matches
 * counts, since Trainer's own files are there with DeepSpeed and FSDP, too. */
static const struct {
    const char *pattern, *who;
} marks[] = {
    {"zero_to_fp32.py", "DeepSpeed"}, {"global_step[0-9]*", "DeepSpeed"},
    {"pytorch_model_fsdp*", "FSDP"},  {"*.distcp", "FSDP"},
    {"recipe_state.pt", "torchtune"}, {"random_states_[0-9]*.pkl", "accelerate"},
    {"*.ckpt", "PyTorch Lightning"},  {"training_args.bin", TRAINER},
    {"scheduler.pt", TRAINER},        {"optimizer.pt", TRAINER},
    {"rng_state*.pth", TRAINER},
};
#define N_MARKS (sizeof marks / sizeof *marks)

/* Entries of an output directory that are checkpoints of other trainers; `checkpoint-<step>` is
 * looked into. */
static const struct {
    const char *pattern, *who;
} entries[] = {
    {"global_step[0-9]*", "DeepSpeed"},
    {"epoch_[0-9]*", "torchtune, accelerate"},
    {"step_[0-9]*", "accelerate"},
    {"*.ckpt", "PyTorch Lightning"},
};
#define N_ENTRIES (sizeof entries / sizeof *entries)

/* Either of two keys that every version has written is enough: a damaged one is still its own, and
 * so may be a text that a zero cuts off. */
bool pl_foreign_is_state(const char *text, uint64_t bytes) {
    return strlen(text) == bytes && !strstr(text, "\"plimsoll\"") &&
           !strstr(text, "\"oom_recoveries\"") && strstr(text, "\"global_step\"");
}

/* Calls `see` with the name of every entry; a directory that is not there has none. */
static pl_err each_entry(const char *path, void (*see)(const char *name, void *ctx), void *ctx,
                         struct pl_diag *d) {
    DIR *dir = opendir(path);
    if (!dir && errno == ENOENT) return PL_ERR_OK;
    if (!dir) return pl_file_read_error(d, path);
    errno = 0;
    for (const struct dirent *e; (e = readdir(dir)); errno = 0)
        see(e->d_name, ctx);
    pl_err err = errno ? pl_file_read_error(d, path) : PL_ERR_OK;
    closedir(dir);
    return err;
}

static void see_mark(const char *name, void *first) {
    size_t *at = first;
    for (size_t i = 0; i < *at; i++)
        if (fnmatch(marks[i].pattern, name, 0) == 0) *at = i;
}

pl_err pl_foreign_find(const char *dir, const char **who, struct pl_diag *d) {
    size_t first = N_MARKS;
    *who = NULL;
    PL_TRY(each_entry(dir, see_mark, &first, d));
    if (first < N_MARKS) *who = marks[first].who;
    return PL_ERR_OK;
}

/* The key that goes on from what is there, without the optimizer's states; "": none does. */
static const char *usable_as(const char *dir) {
    bool there = false;
    if (pl_dir_holds(dir, "adapter_config.json", &there, NULL) == PL_ERR_OK && there)
        return "adapter_path";
    if (pl_dir_holds(dir, "config.json", &there, NULL) == PL_ERR_OK && there) return "model";
    return "";
}

pl_err pl_foreign_refuse(const char *dir, struct pl_diag *d) {
    const char *who, *key = usable_as(dir);
    PL_TRY(pl_foreign_find(dir, &who, d));
    pl_diag_at(d, PL_ERR_CHECKPOINT_MISMATCH, dir, 0, 0,
               "%s is a checkpoint of another trainer (%s): its trainer_state.json has no "
               "`plimsoll`, so the run cannot be resumed from it",
               dir, who ? who : TRAINER);
    if (*key)
        pl_diag_hint(d,
                     "set another `output_dir`; `%s: %s` continues from its %s without its "
                     "optimizer; `resume: never` passes over it",
                     key, dir, strcmp(key, "model") == 0 ? "weights" : "adapter");
    else
        pl_diag_hint(d, "set another `output_dir`; `resume: never` passes over it");
    return PL_ERR_CHECKPOINT_MISMATCH;
}

struct listing {
    const char *output_dir;
    struct pl_text *notes;
};

static void see_entry(const char *name, void *ctx) {
    const struct listing *l = ctx;
    for (size_t i = 0; i < N_ENTRIES; i++) {
        if (fnmatch(entries[i].pattern, name, 0) != 0) continue;
        pl_text_addf(l->notes, "%s/%s is a checkpoint of another trainer (%s): it is skipped\n",
                     l->output_dir, name, entries[i].who);
        return;
    }
}

pl_err pl_foreign_note(const char *output_dir, struct pl_text *notes, struct pl_diag *d) {
    struct listing l = {output_dir, notes};
    return each_entry(output_dir, see_entry, &l, d);
}
