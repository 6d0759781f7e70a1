/* checkpoint.c - checkpoint-<step> directories: begun, filled, committed, rotated, found.
 *
 *            begin              commit: directory synced, renamed, parent synced
 *   (none) ---------> NAME.tmp -------------------------------------------------> NAME
 *     ^                  |              then older ones are rotated out
 *     +------------------+  abort, or any failure of these
 */
#include "runtime/checkpoint/checkpoint.h"
#include "estimator/base/alloc.h"
#include "runtime/checkpoint/durable.h"
#include "runtime/checkpoint/run_state.h"
#include "runtime/checkpoint/windows.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define PREFIX      "checkpoint-"
#define STATES_STEM "optimizer"
#define STATES_FILE "optimizer.safetensors"

static void forget(struct pl_checkpoint *c) {
    free(c->final_path);
    free(c->tmp_path);
    *c = (struct pl_checkpoint){0};
}

pl_err pl_checkpoint_begin(struct pl_checkpoint *c, const char *output_dir, uint64_t step,
                           struct pl_diag *d) {
    *c = (struct pl_checkpoint){0};
    pl_err err = PL_ERR_OK;
    if (pl_asprintf(&c->final_path, "%s/" PREFIX "%llu", output_dir, (unsigned long long)step) < 0)
        c->final_path = NULL;
    if (!c->final_path || pl_asprintf(&c->tmp_path, "%s.tmp", c->final_path) < 0)
        c->tmp_path = NULL;
    if (!c->tmp_path) err = pl_host_oom(d, "a path");
    if (err == PL_ERR_OK) err = pl_tree_remove(c->tmp_path, d);
    if (err == PL_ERR_OK) err = pl_dir_create(c->tmp_path, d);
    if (err != PL_ERR_OK) forget(c);
    return err;
}

/* What a resumed run needs beside the optimizer states. */
static pl_err add_trained(struct pl_windows *w, const struct pl_program *p, struct pl_diag *d) {
    return pl_mode_adapts(p->shape.mode) ? pl_windows_add_adapter(w, p, d)
                                         : pl_windows_add_model(w, p, d);
}

static pl_err add_all(struct pl_windows *trained, struct pl_windows *states,
                      const struct pl_program *p, struct pl_diag *d) {
    PL_TRY(add_trained(trained, p, d));
    return pl_windows_add_states(states, trained, p, d);
}

static uint64_t bytes_of(const struct pl_windows *w) {
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < w->n; i++)
        bytes += w->items[i].count * pl_dtype_bytes(w->items[i].dtype);
    return bytes;
}

pl_err pl_checkpoint_bytes(const struct pl_program *p, struct pl_save_bytes *out,
                           struct pl_diag *d) {
    struct pl_windows trained = {0}, states = {0};
    *out = (struct pl_save_bytes){0};
    pl_err err = add_all(&trained, &states, p, d);
    if (err == PL_ERR_OK)
        *out = (struct pl_save_bytes){bytes_of(&trained), bytes_of(&states)};
    pl_windows_finish(&states);
    pl_windows_finish(&trained);
    return err;
}

pl_err pl_checkpoint_write_state(struct pl_checkpoint *c, const struct pl_tensor_io *io,
                                 const struct pl_run_state *s, struct pl_diag *d) {
    struct pl_windows trained = {0}, states = {0};
    struct pl_outbox o = {0};
    const struct pl_window_source source = pl_window_source_device(io);
    pl_err err = add_all(&trained, &states, io->program, d);
    if (err != PL_ERR_OK) goto out;
    PL_TRY_GOTO(pl_outbox_init(&o, c->tmp_path, d), out);
    PL_TRY_GOTO(pl_windows_save(&states, 0, states.n, &source, &o, STATES_FILE, d), out);
    PL_TRY_GOTO(pl_run_state_put(&o, s, d), out);
    err = pl_outbox_commit(&o, d);
out:
    pl_outbox_finish(&o);
    pl_windows_finish(&states);
    pl_windows_finish(&trained);
    return err;
}

/* The step in "checkpoint-<step>"; only as begin writes it, so 007 and +7 are not ours. */
static bool parse_step(const char *name, uint64_t *out) {
    const char *digits = name + strlen(PREFIX);
    char *end;
    if (strncmp(name, PREFIX, strlen(PREFIX)) != 0 || *digits < '0' || *digits > '9') return false;
    if (digits[0] == '0' && digits[1]) return false;
    errno = 0;
    *out = strtoull(digits, &end, 10);
    return *end == 0 && errno == 0;
}

struct step_list {
    uint64_t *steps; /* owned, newest first */
    size_t n, cap;
};

static int newest_first(const void *a, const void *b) {
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x < y) - (x > y);
}

static bool is_directory(const char *output_dir, const char *name) {
    struct stat st;
    char *path = pl_path_join(output_dir, name);
    bool yes = path && lstat(path, &st) == 0 && S_ISDIR(st.st_mode);
    free(path);
    return yes;
}

static pl_err add_step(struct step_list *list, uint64_t step, struct pl_diag *d) {
    if (list->n == list->cap) {
        size_t cap = list->cap ? 2 * list->cap : 16;
        uint64_t *steps = pl_realloc(list->steps, cap * sizeof *steps);
        if (!steps) return pl_host_oom(d, "the list of checkpoints");
        list->steps = steps;
        list->cap = cap;
    }
    list->steps[list->n++] = step;
    return PL_ERR_OK;
}

/* A directory that is not there holds no checkpoints. */
static pl_err list_steps(const char *output_dir, struct step_list *list, struct pl_diag *d) {
    pl_err err = PL_ERR_OK;
    uint64_t step;
    DIR *dir = opendir(output_dir);
    if (!dir && errno == ENOENT) return PL_ERR_OK;
    if (!dir)
        return pl_diag_at(d, PL_ERR_CHECKPOINT_FILE, output_dir, 0, 0, "cannot list %s: %s",
                          output_dir, strerror(errno));
    for (const struct dirent *e; err == PL_ERR_OK && (e = readdir(dir));)
        if (parse_step(e->d_name, &step) && is_directory(output_dir, e->d_name))
            err = add_step(list, step, d);
    closedir(dir);
    if (list->n) qsort(list->steps, list->n, sizeof *list->steps, newest_first);
    return err;
}

pl_err pl_checkpoint_count(const char *output_dir, uint64_t *out, struct pl_diag *d) {
    struct step_list list = {0};
    pl_err err = list_steps(output_dir, &list, d);
    *out = list.n;
    free(list.steps);
    return err;
}

static char *step_path(const char *output_dir, uint64_t step) {
    char *path = NULL;
    int n = pl_asprintf(&path, "%s/" PREFIX "%llu", output_dir, (unsigned long long)step);
    return n < 0 ? NULL : path;
}

/* trainer_state.json goes first: a removal that is cut short leaves a directory that find skips. */
static pl_err remove_checkpoint(const char *path, struct pl_diag *d) {
    char *state = pl_path_join(path, PL_STATE_FILE);
    pl_err err = state ? pl_tree_remove(state, d) : pl_host_oom(d, "a path");
    if (err == PL_ERR_OK) err = pl_tree_remove(path, d);
    free(state);
    return err;
}

/* Keeps `written` and the keep - 1 newest before it. Later steps are those of a run that was
 * started over, or gone back behind: left there they would be what resuming finds. */
static pl_err rotate(const char *output_dir, const char *written, uint32_t keep,
                     struct pl_diag *d) {
    struct step_list list = {0};
    uint32_t kept = 0;
    pl_err err = list_steps(output_dir, &list, d);
    for (size_t i = 0; i < list.n && err == PL_ERR_OK; i++) {
        char *path = step_path(output_dir, list.steps[i]);
        if (!path) {
            err = pl_host_oom(d, "a path");
            break;
        }
        kept += kept || strcmp(path, written) == 0;
        if (kept == 0 || kept > keep) err = remove_checkpoint(path, d);
        free(path);
    }
    free(list.steps);
    return err;
}

/* NAME.tmp or NAME.old.tmp: a process that was killed while it saved leaves a directory as large as
 * a checkpoint, and nobody comes by the same step again. */
static bool is_leftover(const char *name, const void *unused) {
    static const char *const suffixes[] = {".old.tmp", ".tmp"};
    char stem[64];
    uint64_t step;
    (void)unused;
    for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++) {
        const char *end = strstr(name, suffixes[i]);
        if (!end || strcmp(end, suffixes[i]) != 0 || (size_t)(end - name) >= sizeof stem) continue;
        snprintf(stem, sizeof stem, "%.*s", (int)(end - name), name);
        return parse_step(stem, &step);
    }
    return false;
}

/* rename cannot replace a directory that holds files, so a checkpoint of the same step left by an
 * earlier run steps aside first. Until the parent is synced the new name may not survive a power
 * cut; should that fail, everything goes back (C2). Should going back fail as well, both are still
 * whole, under names that nobody reads. */
static pl_err take_name(const struct pl_checkpoint *c, const char *output_dir, const char *aside,
                        struct pl_diag *d) {
    struct stat st;
    bool taken = lstat(c->final_path, &st) == 0;
    if (taken) {
        PL_TRY(pl_tree_remove(aside, d));
        PL_TRY(pl_path_rename(c->final_path, aside, d));
    }
    pl_err err = pl_path_rename(c->tmp_path, c->final_path, d);
    if (err == PL_ERR_OK) {
        err = pl_dir_sync(output_dir, d);
        if (err != PL_ERR_OK) (void)rename(c->final_path, c->tmp_path);
    }
    if (err != PL_ERR_OK && taken) (void)rename(aside, c->final_path);
    return err;
}

pl_err pl_checkpoint_commit(struct pl_checkpoint *c, const char *output_dir, uint32_t keep,
                            struct pl_diag *d) {
    char *aside = NULL;
    pl_err err = PL_ERR_OK;
    if (pl_asprintf(&aside, "%s.old.tmp", c->final_path) < 0) {
        aside = NULL;
        err = pl_host_oom(d, "a path");
        goto out;
    }
    PL_TRY_GOTO(pl_dir_sync(c->tmp_path, d), out);
    PL_TRY_GOTO(take_name(c, output_dir, aside, d), out);
    PL_TRY_GOTO(pl_tree_remove(aside, d), out);
    PL_TRY_GOTO(pl_dir_clear(output_dir, is_leftover, NULL, d), out);
    err = rotate(output_dir, c->final_path, keep, d);
out:
    free(aside);
    if (err != PL_ERR_OK) pl_checkpoint_abort(c);
    return err;
}

void pl_checkpoint_abort(struct pl_checkpoint *c) {
    /* After a commit the temporary has its final name, and there is nothing to remove. */
    if (c->tmp_path) pl_tree_remove(c->tmp_path, NULL);
    forget(c);
}

static bool is_complete(const char *path) {
    struct pl_run_state s;
    return pl_checkpoint_read_state(path, &s, NULL) == PL_ERR_OK;
}

pl_err pl_checkpoint_find(const char *output_dir, char **out, struct pl_diag *d) {
    struct step_list list = {0};
    *out = NULL;
    pl_err err = list_steps(output_dir, &list, d);
    for (size_t i = 0; i < list.n && err == PL_ERR_OK && !*out; i++) {
        *out = step_path(output_dir, list.steps[i]);
        if (!*out) {
            err = pl_host_oom(d, "a path");
        } else if (!is_complete(*out)) {
            free(*out);
            *out = NULL;
        }
    }
    free(list.steps);
    return err;
}

struct part { /* one set of files of a checkpoint */
    struct pl_windows windows;
    struct pl_weight_files files;
};

static pl_err find_part(struct part *part, const char *path, const char *stem, struct pl_diag *d) {
    PL_TRY(pl_weight_files_open(&part->files, path, stem, PL_ERR_CHECKPOINT_MISMATCH, d));
    return pl_windows_resolve(&part->windows, &part->files, PL_MATCH_EXACT,
                              PL_ERR_CHECKPOINT_MISMATCH, d);
}

static void finish_part(struct part *part) {
    pl_weight_files_close(&part->files);
    pl_windows_finish(&part->windows);
}

/* Both parts are found right before a byte of either is read (C3). Masters are states of their own
 * and come back bit for bit, so loading does not derive them from the weights. */
pl_err pl_checkpoint_load(const struct pl_tensor_io *io, const char *path, struct pl_diag *d) {
    struct part trained = {0}, states = {0};
    const struct pl_program *p = io->program;
    const char *stem = pl_mode_adapts(p->shape.mode) ? "adapter_model" : "model";
    pl_err err = add_all(&trained.windows, &states.windows, p, d);
    if (err != PL_ERR_OK) goto out;
    PL_TRY_GOTO(find_part(&trained, path, stem, d), out);
    PL_TRY_GOTO(find_part(&states, path, STATES_STEM, d), out);
    PL_TRY_GOTO(pl_windows_load(&trained.windows, io, false, d), out);
    err = pl_windows_load(&states.windows, io, false, d);
out:
    finish_part(&trained);
    finish_part(&states);
    return err;
}
