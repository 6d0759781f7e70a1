/* checkpoint.c - checkpoint-<step> directories: begun, filled, committed, rotated, found.
 *
 *            begin              commit: directory synced, renamed, parent synced
 *   (none) ---------> NAME.tmp -------------------------------------------------> NAME
 *     ^                  |              then older ones are rotated out
 *     +------------------+  abort, or any failure of these
 */
#include "estimator/base/alloc.h"
#include "runtime/checkpoint/adapter_io.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/checkpoint/durable.h"
#include "runtime/checkpoint/foreign.h"
#include "runtime/checkpoint/manifest.h"
#include "runtime/checkpoint/model_io.h"
#include "runtime/checkpoint/read_file.h"
#include "runtime/checkpoint/run_state.h"
#include "runtime/checkpoint/share.h"
#include "runtime/checkpoint/tensor_io.h"
#include "runtime/checkpoint/weight_files.h"
#include "runtime/checkpoint/window_load.h"
#include "runtime/checkpoint/window_resolve.h"
#include "runtime/checkpoint/window_write.h"
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
    pl_outbox_finish(&c->outbox);
    free(c->final_path);
    free(c->tmp_path);
    json_decref(c->files);
    *c = (struct pl_checkpoint){0};
}

char *pl_checkpoint_path(const char *output_dir, uint64_t step) {
    char *path = NULL;
    int n = pl_asprintf(&path, "%s/" PREFIX "%llu", output_dir, (unsigned long long)step);
    return n < 0 ? NULL : path;
}

/* The name of a checkpoint until it is complete. */
static char *temporary_path(const char *output_dir, uint64_t step) {
    char *path = NULL;
    int n = pl_asprintf(&path, "%s/" PREFIX "%llu.tmp", output_dir, (unsigned long long)step);
    return n < 0 ? NULL : path;
}

pl_err pl_checkpoint_begin(struct pl_checkpoint *c, const char *output_dir, uint64_t step,
                           struct pl_diag *d) {
    *c = (struct pl_checkpoint){.step = step};
    pl_err err = PL_ERR_OK;
    c->final_path = pl_checkpoint_path(output_dir, step);
    c->tmp_path = temporary_path(output_dir, step);
    c->files = json_object();
    if (!c->final_path || !c->tmp_path || !c->files) err = pl_host_oom(d, "a path");
    if (err == PL_ERR_OK) err = pl_tree_remove(c->tmp_path, d);
    if (err == PL_ERR_OK) err = pl_dir_create(c->tmp_path, d);
    if (err == PL_ERR_OK) err = pl_outbox_init(&c->outbox, c->tmp_path, d);
    c->outbox.manifest = c->files;
    if (err != PL_ERR_OK) forget(c);
    return err;
}

/* Adds the windows of all that a resumed run needs: the optimizer states are apart. */
static pl_err add_all(struct pl_windows *trained, struct pl_windows *states,
                      const struct pl_program *p, struct pl_diag *d) {
    PL_TRY(pl_mode_adapts(p->shape.mode) ? pl_windows_add_adapter(trained, p, d)
                                         : pl_windows_add_model(trained, p, d));
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
    if (err == PL_ERR_OK) *out = (struct pl_save_bytes){bytes_of(&trained), bytes_of(&states)};
    pl_windows_finish(&states);
    pl_windows_finish(&trained);
    return err;
}

static pl_err put_states(const struct pl_tensor_io *io, struct pl_outbox *o, struct pl_diag *d) {
    struct pl_windows trained = {0}, states = {0};
    const struct pl_window_source source = pl_window_source_device(io);
    pl_err err = add_all(&trained, &states, io->program, d);
    if (err == PL_ERR_OK) err = pl_windows_save(&states, 0, states.n, &source, o, STATES_FILE, d);
    pl_windows_finish(&states);
    pl_windows_finish(&trained);
    return err;
}

pl_err pl_checkpoint_write_state(struct pl_checkpoint *c, const struct pl_tensor_io *io,
                                 const struct pl_run_state *s, struct json_t *job,
                                 struct pl_diag *d) {
    PL_TRY(put_states(io, &c->outbox, d));
    PL_TRY(pl_run_record_put(&c->outbox, s, job, d));
    return pl_outbox_commit(&c->outbox, d);
}

pl_err pl_checkpoint_join(const struct pl_tensor_io *io, const char *output_dir, uint64_t step,
                          uint64_t shard_bytes, struct pl_diag *d) {
    struct pl_outbox o = {0};
    char *path = temporary_path(output_dir, step);
    pl_err err = path ? pl_outbox_init(&o, path, d) : pl_host_oom(d, "a path");
    if (err == PL_ERR_OK)
        err = pl_mode_adapts(io->program->shape.mode) ? pl_adapter_join(io, &o, d)
                                                      : pl_model_join(io, &o, shard_bytes, d);
    if (err == PL_ERR_OK) err = put_states(io, &o, d);
    pl_outbox_finish(&o);
    free(path);
    return err;
}

pl_err pl_checkpoint_feed(const struct pl_tensor_io *io, bool with_states, struct pl_diag *d) {
    struct pl_windows trained = {0}, states = {0};
    pl_err err = add_all(&trained, &states, io->program, d);
    if (err == PL_ERR_OK) err = pl_windows_feed(&trained, io, d);
    if (err == PL_ERR_OK && with_states) err = pl_windows_feed(&states, io, d);
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

enum entry {                 /* what has the name of a checkpoint */
             ENTRY_NONE,     /* it has gone meanwhile */
             ENTRY_DIR,      /* a directory of this name */
             ENTRY_LINK,     /* a link to a directory somewhere else */
             ENTRY_DANGLING, /* a link to what is not there */
             ENTRY_OTHER     /* a file, or a link to one */
};

struct step {
    uint64_t step;
    enum entry entry;
};

struct step_list {
    struct step *steps; /* owned, newest first */
    size_t n, cap;
};

static int newest_first(const void *a, const void *b) {
    const uint64_t x = ((const struct step *)a)->step, y = ((const struct step *)b)->step;
    return (x < y) - (x > y);
}

/* After ENTRY_NONE without an error, errno says nothing. */
static pl_err look_at_path(const char *path, enum entry *out, struct pl_diag *d) {
    struct stat st;
    *out = ENTRY_NONE;
    if (lstat(path, &st) != 0) return errno == ENOENT ? PL_ERR_OK : pl_file_read_error(d, path);
    const bool link = S_ISLNK(st.st_mode);
    *out = ENTRY_DANGLING;
    if (link && stat(path, &st) != 0)
        return errno == ENOENT || errno == ELOOP || errno == ENOTDIR ? PL_ERR_OK
                                                                     : pl_file_read_error(d, path);
    *out = !S_ISDIR(st.st_mode) ? ENTRY_OTHER : link ? ENTRY_LINK : ENTRY_DIR;
    return PL_ERR_OK;
}

static pl_err look_at_entry(const char *output_dir, const char *name, enum entry *out,
                            struct pl_diag *d) {
    char *path = pl_path_join(output_dir, name);
    if (!path) return pl_host_oom(d, "a path");
    pl_err err = look_at_path(path, out, d);
    free(path);
    return err;
}

static pl_err add_step(struct step_list *list, struct step step, struct pl_diag *d) {
    if (list->n == list->cap) {
        size_t cap = list->cap ? 2 * list->cap : 16;
        struct step *steps = pl_realloc(list->steps, cap * sizeof *steps);
        if (!steps) return pl_host_oom(d, "the list of checkpoints");
        list->steps = steps;
        list->cap = cap;
    }
    list->steps[list->n++] = step;
    return PL_ERR_OK;
}

static pl_err list_error(struct pl_diag *d, const char *output_dir) {
    return pl_diag_at(d, pl_err_of_errno(PL_ERR_CHECKPOINT_FILE), output_dir, 0, 0,
                      "cannot list %s: %s", output_dir, strerror(errno));
}

/* NAME.tmp or NAME.old.tmp: a process that was killed while it saved or removed leaves a directory
 * as large as a checkpoint, and nobody comes by the same step again. */
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

pl_err pl_checkpoint_clear(const char *output_dir, struct pl_diag *d) {
    return pl_dir_clear(output_dir, is_leftover, NULL, d);
}

/* Notes an entry that looks like a checkpoint and is not taken for one. */
static void note_passed(const char *output_dir, const char *name, const char *why,
                        struct pl_text *notes) {
    if (notes && strncmp(name, PREFIX, strlen(PREFIX)) == 0 && !is_leftover(name, NULL))
        pl_text_addf(notes, "%s/%s is not taken for a checkpoint: %s\n", output_dir, name, why);
}

static pl_err take_entry(struct step_list *list, const char *output_dir, const char *name,
                         struct pl_text *notes, struct pl_diag *d) {
    struct step s;
    if (!parse_step(name, &s.step)) {
        note_passed(output_dir, name, "its name is not `" PREFIX "` and a step", notes);
        return PL_ERR_OK;
    }
    PL_TRY(look_at_entry(output_dir, name, &s.entry, d));
    if (s.entry == ENTRY_OTHER) note_passed(output_dir, name, "it is not a directory", notes);
    return s.entry == ENTRY_NONE || s.entry == ENTRY_OTHER ? PL_ERR_OK : add_step(list, s, d);
}

/* A directory that is not there holds no checkpoints; one that does not answer may hold some. */
static pl_err list_steps(const char *output_dir, struct step_list *list, struct pl_text *notes,
                         struct pl_diag *d) {
    pl_err err = PL_ERR_OK;
    const struct dirent *e;
    DIR *dir = opendir(output_dir);
    if (!dir && errno == ENOENT) return PL_ERR_OK;
    if (!dir) return list_error(d, output_dir);
    while (err == PL_ERR_OK && (errno = 0, e = readdir(dir)))
        err = take_entry(list, output_dir, e->d_name, notes, d);
    if (err == PL_ERR_OK && errno) err = list_error(d, output_dir);
    closedir(dir);
    if (list->n) qsort(list->steps, list->n, sizeof *list->steps, newest_first);
    return err;
}

pl_err pl_checkpoint_count(const char *output_dir, uint64_t *out, struct pl_diag *d) {
    struct step_list list = {0};
    pl_err err = list_steps(output_dir, &list, NULL, d);
    *out = list.n;
    free(list.steps);
    return err;
}

/* The name of a checkpoint until it is gone, or of one that a checkpoint of the same step has
 * replaced. */
static char *aside_path(const char *path) {
    char *aside = NULL;
    return pl_asprintf(&aside, "%s.old.tmp", path) < 0 ? NULL : aside;
}

/* The name goes first, for good: a removal that is cut short leaves nothing that looks like a
 * checkpoint, and the next save clears it (pl_checkpoint_clear). */
static pl_err remove_checkpoint(const char *output_dir, const char *path, struct pl_diag *d) {
    char *aside = aside_path(path);
    if (!aside) return pl_host_oom(d, "a path");
    pl_err err = pl_tree_remove(aside, d);
    if (err == PL_ERR_OK) err = pl_path_rename(path, aside, d);
    if (err == PL_ERR_OK) err = pl_dir_sync(output_dir, d);
    if (err == PL_ERR_OK) err = pl_tree_remove(aside, d);
    free(aside);
    return err;
}

/* True only for a directory that a run here has written, and whose record says so. One that cannot
 * be read may be anybody's, and whole once its disk answers again; a link is somebody's. */
static bool is_own(const char *path) {
    struct pl_run_state s;
    enum entry entry;
    return look_at_path(path, &entry, NULL) == PL_ERR_OK && entry == ENTRY_DIR &&
           pl_checkpoint_read_state(path, &s, NULL) == PL_ERR_OK;
}

static pl_err remove_own(const char *output_dir, uint64_t step, struct pl_diag *d) {
    char *path = pl_checkpoint_path(output_dir, step);
    if (!path) return pl_host_oom(d, "a path");
    pl_err err = is_own(path) ? remove_checkpoint(output_dir, path, d) : PL_ERR_OK;
    free(path);
    return err;
}

/* Keeps the checkpoint of the step that was written, the best one and the newest before them. Later
 * steps belong to a run that was started over or went back. The newest one and the best one stay
 * under `keep: 1` too, as in transformers. */
static pl_err rotate(const char *output_dir, uint64_t written, struct pl_rotation stay,
                     struct pl_diag *d) {
    struct step_list list = {0};
    const bool has_best = stay.best && stay.best != written;
    const uint32_t newest = has_best && stay.keep > 1 ? stay.keep - 1 : stay.keep;
    uint32_t kept = 0;
    pl_err err = list_steps(output_dir, &list, NULL, d);
    for (size_t i = 0; i < list.n && err == PL_ERR_OK; i++) {
        const uint64_t step = list.steps[i].step;
        if (has_best && step == stay.best) continue;
        kept += kept || step == written;
        if (kept == 0 || kept > newest) err = remove_own(output_dir, step, d);
    }
    free(list.steps);
    return err;
}

/* NAME.replaced, NAME.replaced-2, ...: the first that is free, for what nobody here may remove. */
#define MOST_REPLACED 1000
static pl_err free_name(const char *path, char **out, struct pl_diag *d) {
    struct stat st;
    *out = NULL;
    for (int i = 1; i <= MOST_REPLACED; i++) {
        char *name = NULL;
        const int n = i == 1 ? pl_asprintf(&name, "%s.replaced", path)
                             : pl_asprintf(&name, "%s.replaced-%d", path, i);
        if (n < 0) return pl_host_oom(d, "a path");
        if (lstat(name, &st) != 0 && errno == ENOENT) {
            *out = name;
            return PL_ERR_OK;
        }
        free(name);
    }
    return pl_diag_at(d, PL_ERR_CHECKPOINT_WRITE, path, 0, 0,
                      "%s is in the way, and so are %d others that were moved aside", path,
                      MOST_REPLACED);
}

/* rename cannot replace a directory that holds files, so a checkpoint of the same step left by an
 * earlier run steps aside first. Until the parent is synced the new name may not survive a power
 * cut; should that fail, everything goes back (C2). Should going back fail as well, both are still
 * whole, under names that nobody reads. */
static pl_err take_name(const struct pl_checkpoint *c, const char *output_dir, bool taken,
                        const char *aside, struct pl_diag *d) {
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

pl_err pl_checkpoint_commit(struct pl_checkpoint *c, const char *output_dir,
                            struct pl_rotation stay, struct pl_diag *d) {
    char *aside = NULL;
    struct stat st;
    const bool taken = lstat(c->final_path, &st) == 0, own = !taken || is_own(c->final_path);
    pl_err err = PL_ERR_OK;
    if (own)
        aside = aside_path(c->final_path);
    else
        PL_TRY_GOTO(free_name(c->final_path, &aside, d), out);
    if (!aside) {
        err = pl_host_oom(d, "a path");
        goto out;
    }
    PL_TRY_GOTO(pl_dir_sync(c->tmp_path, d), out);
    PL_TRY_GOTO(take_name(c, output_dir, taken, aside, d), out);
    if (own) PL_TRY_GOTO(pl_tree_remove(aside, d), out);
    PL_TRY_GOTO(pl_checkpoint_clear(output_dir, d), out);
    err = rotate(output_dir, c->step, stay, d);
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

/* The newest checkpoint that was seen, and one of a run that cannot be told from its run. */
struct newest {
    char *path, *rival; /* owned */
    struct pl_run_state state;
};

/* Runs that started over count up, so a lesser step may be the newer one. Takes `path`. Called with
 * the latest step first. */
static void consider(struct newest *n, char *path, const struct pl_run_state *s) {
    if (!n->path || s->run_number > n->state.run_number) {
        free(n->path);
        free(n->rival);
        *n = (struct newest){.path = path, .state = *s};
    } else if (s->run_number == n->state.run_number && !n->rival &&
               strcmp(s->run_id, n->state.run_id) != 0) {
        n->rival = path;
    } else {
        free(path);
    }
}

/* A link whose disk is not there may lead to the newest checkpoint of all. */
static pl_err refuse_dangling(const char *path, struct pl_diag *d) {
    pl_diag_at(d, PL_ERR_CHECKPOINT_FILE, path, 0, 0,
               "%s is a link to a directory that is not there", path);
    pl_diag_hint(d, "mount the disk that it is on, or remove the link to do without it");
    return PL_ERR_CHECKPOINT_FILE;
}

/* A directory without a record: whose it is, as far as its files tell. */
static pl_err note_without_state(const char *path, struct pl_text *notes, struct pl_diag *d) {
    const char *who;
    if (!notes) return PL_ERR_OK;
    PL_TRY(pl_foreign_find(path, &who, d));
    if (who)
        pl_text_addf(notes, "%s is a checkpoint of another trainer (%s): it is skipped\n", path,
                     who);
    else
        pl_text_addf(notes,
                     "%s has no " PL_STATE_FILE ": it is no whole checkpoint, so it is skipped\n",
                     path);
    return PL_ERR_OK;
}

/* C4. Takes `path`. */
static pl_err look_at(struct newest *n, char *path, enum entry entry, struct pl_text *notes,
                      struct pl_diag *d) {
    struct pl_run_state s;
    bool there = false;
    if (entry == ENTRY_LINK && notes)
        pl_text_addf(notes, "%s is a link: it is a checkpoint, and is never removed\n", path);
    pl_err err =
        entry == ENTRY_DANGLING ? refuse_dangling(path, d) : pl_run_record_exists(path, &there, d);
    if (err == PL_ERR_OK && there) err = pl_checkpoint_read_state(path, &s, d);
    if (err == PL_ERR_OK && there) {
        consider(n, path, &s);
        return PL_ERR_OK;
    }
    if (err == PL_ERR_OK) err = note_without_state(path, notes, d);
    if ((err == PL_ERR_CHECKPOINT_FILE || err == PL_ERR_CHECKPOINT_FORMAT) && d && !d->hint[0])
        pl_diag_hint(d, "make it readable, or move the checkpoint away to do without it; nothing "
                        "was removed");
    free(path);
    return err;
}

pl_err pl_checkpoint_find(const char *output_dir, char **out, struct pl_text *notes,
                          struct pl_diag *d) {
    return pl_checkpoint_search(output_dir, PL_CHECKPOINT_ANY, out, notes, d);
}

/* The latest of the checkpoints of other trainers. It explains why there is nothing to resume where
 * no run of this program left a checkpoint. */
static pl_err look_at_all(struct newest *n, const char *output_dir, const struct step_list *list,
                          struct pl_diag *foreign, struct pl_text *notes, struct pl_diag *d) {
    for (size_t i = 0; i < list->n; i++) {
        struct pl_diag why = {0};
        char *path = pl_checkpoint_path(output_dir, list->steps[i].step);
        if (!path) return pl_host_oom(d, "a path");
        pl_err err = look_at(n, path, list->steps[i].entry, notes, &why);
        if (err == PL_ERR_CHECKPOINT_MISMATCH) {
            if (notes) pl_text_addf(notes, "%s: it is skipped\n", why.message);
            if (foreign->err == PL_ERR_OK) *foreign = why;
        } else if (err != PL_ERR_OK) {
            if (d && d->err == PL_ERR_OK) *d = why;
            return err;
        }
    }
    return PL_ERR_OK;
}

pl_err pl_checkpoint_search(const char *output_dir, enum pl_checkpoint_want want, char **out,
                            struct pl_text *notes, struct pl_diag *d) {
    struct step_list list = {0};
    struct newest n = {0};
    struct pl_diag foreign = {0};
    *out = NULL;
    pl_err err = list_steps(output_dir, &list, notes, d);
    if (err == PL_ERR_OK && notes) err = pl_foreign_note(output_dir, notes, d);
    if (err == PL_ERR_OK) err = look_at_all(&n, output_dir, &list, &foreign, notes, d);
    if (err == PL_ERR_OK && !n.path && want == PL_CHECKPOINT_ANY && foreign.err != PL_ERR_OK) {
        err = foreign.err;
        if (d && d->err == PL_ERR_OK) *d = foreign;
    }
    if (err == PL_ERR_OK && n.rival) {
        err = pl_diag_at(
            d, PL_ERR_CHECKPOINT_MISMATCH, n.rival, 0, 0,
            "%s and %s are of two runs, and it cannot be determined which is the later one", n.path,
            n.rival);
        pl_diag_hint(d, "move one of them away");
    }
    if (err == PL_ERR_OK) {
        *out = n.path;
        n.path = NULL;
    }
    free(n.path);
    free(n.rival);
    free(list.steps);
    return err;
}

struct part { /* one set of files of a checkpoint */
    struct pl_windows windows;
    struct pl_weight_files files;
};

/* Every byte of every file is the one that was saved; nothing is known of checkpoints of versions
 * that wrote no digests. */
static pl_err check_bytes(const char *path, struct pl_diag *d) {
    struct pl_run_record r;
    pl_err err = pl_run_record_read(&r, path, d);
    if (err == PL_ERR_OK) err = pl_manifest_check(r.files, path, d);
    pl_run_record_finish(&r);
    return err;
}

static pl_err find_part(struct part *part, const char *path, const char *stem, struct pl_diag *d) {
    PL_TRY(pl_weight_files_open(&part->files, path, stem, PL_ERR_CHECKPOINT_MISMATCH, d));
    return pl_windows_resolve(&part->windows, &part->files, PL_MATCH_EXACT,
                              PL_ERR_CHECKPOINT_MISMATCH, d);
}

static void finish_part(struct part *part) {
    pl_weight_files_close(&part->files);
    pl_windows_finish(&part->windows);
}

/* Both parts are found right before a byte of either is loaded (C3). Masters are states of their
 * own and come back bit for bit, so loading does not derive them from the weights. */
pl_err pl_checkpoint_load(const struct pl_tensor_io *io, const char *path, struct pl_diag *d) {
    struct part trained = {0}, states = {0};
    const struct pl_program *p = io->program;
    const char *stem = pl_mode_adapts(p->shape.mode) ? "adapter_model" : "model";
    pl_err err = add_all(&trained.windows, &states.windows, p, d);
    if (err != PL_ERR_OK) goto out;
    PL_TRY_GOTO(check_bytes(path, d), out);
    PL_TRY_GOTO(find_part(&trained, path, stem, d), out);
    PL_TRY_GOTO(find_part(&states, path, STATES_STEM, d), out);
    PL_TRY_GOTO(pl_windows_load(&trained.windows, io, false, d), out);
    err = pl_windows_load(&states.windows, io, false, d);
out:
    finish_part(&trained);
    finish_part(&states);
    return err;
}
