#include "estimator/base/alloc.h"
#include "estimator/base/checked.h"
#include "estimator/base/open_file.h"
#include "runtime/checkpoint/adapter_config.h"
#include "runtime/checkpoint/finite_entry.h"
#include "runtime/checkpoint/json_io.h"
#include "runtime/checkpoint/manifest.h"
#include "runtime/checkpoint/read_file.h"
#include "runtime/checkpoint/run_state.h"
#include "runtime/checkpoint/surplus.h"
#include "runtime/checkpoint/verify.h"
#include "runtime/checkpoint/weight_files.h"
#include "runtime/checkpoint/windows.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define CHUNK (1u << 20)

/* --- rows --------------------------------------------------------------------------------------
 */

static struct pl_verify_file *find_row(struct pl_verify *v, const char *path) {
    uint32_t i;
    return pl_names_get(&v->places, path, &i) ? &v->files[i] : NULL;
}

static bool grow_rows(struct pl_verify *v) {
    const uint32_t cap = v->cap ? 2 * v->cap : 16;
    struct pl_verify_file *files =
        v->n < v->cap ? v->files : pl_realloc(v->files, cap * sizeof *files);
    if (!files) return false;
    if (v->n == v->cap) v->cap = cap;
    v->files = files;
    return true;
}

/* The row of a file, added where there is none; NULL when out of memory. */
static struct pl_verify_file *row_of(struct pl_verify *v, const char *path, struct pl_diag *d) {
    struct stat st;
    struct pl_verify_file *row = find_row(v, path);
    if (row) return row;
    char *copy = pl_strdup(path);
    if (!copy || !grow_rows(v) || !pl_names_put(&v->places, path, v->n)) {
        free(copy);
        pl_host_oom(d, "the list of files");
        return NULL;
    }
    row = &v->files[v->n++];
    *row = (struct pl_verify_file){.path = copy};
    if (stat(path, &st) == 0) row->bytes = (uint64_t)st.st_size;
    return row;
}

/* A message that does not name its file gets it. */
static char *problem_of(const struct pl_diag *said) {
    char *text = NULL;
    if (!said->file[0] || strstr(said->message, said->file)) return pl_strdup(said->message);
    (void)pl_asprintf(&text, "%s: %s", said->file, said->message);
    return text;
}

/* V1: what a check said of a file becomes its row; memory that is not there stays an error. */
static pl_err take_problem(struct pl_verify *v, const char *path, pl_err err,
                           const struct pl_diag *said, struct pl_diag *d) {
    struct pl_verify_file *row = row_of(v, path, d);
    if (!row || err == PL_ERR_HOST_OOM) return pl_host_oom(d, path);
    if (err == PL_ERR_OK || row->problem) return PL_ERR_OK;
    row->problem = problem_of(said);
    v->problems++;
    return row->problem ? PL_ERR_OK : pl_host_oom(d, path);
}

/* A model or an adapter of a kind that is not supported is as whole as any other: what its shapes
 * should be is not known, and its row says so. */
static pl_err take_shapes(struct pl_verify *v, const char *path, pl_err err,
                          const struct pl_diag *said, struct pl_diag *d) {
    if (err != PL_ERR_MODEL_UNSUPPORTED && err != PL_ERR_CHECKPOINT_MISMATCH)
        return take_problem(v, path, err, said, d);
    struct pl_verify_file *row = row_of(v, path, d);
    if (!row) return PL_ERR_HOST_OOM;
    if (!row->not_compared) row->not_compared = problem_of(said);
    return row->not_compared ? PL_ERR_OK : pl_host_oom(d, path);
}

/* --- numbers -----------------------------------------------------------------------------------
 */

static pl_err check_tensor(const struct pl_st_file *f, const struct pl_st_entry *e,
                           unsigned char *buf, struct pl_verify_file *row, struct pl_diag *d) {
    const enum pl_number_class class = pl_number_class(e->dtype_name, NULL);
    row->not_floating += class == PL_NUMBERS_NOT_FLOATING;
    if (class == PL_NUMBERS_UNKNOWN && !row->unchecked++) {
        if (pl_asprintf(&row->unknown, "dtype `%s` of `%s` is not known", e->dtype_name, e->name) <
            0) {
            row->unknown = NULL;
            return pl_host_oom(d, f->path);
        }
    }
    return pl_finite_read(f, e, buf, CHUNK, d);
}

static pl_err check_numbers(struct pl_verify *v, const struct pl_st_file *f, struct pl_diag *d) {
    pl_err err = PL_ERR_OK;
    struct pl_diag said = {0};
    unsigned char *buf = pl_malloc(CHUNK);
    struct pl_verify_file *row = row_of(v, f->path, d);
    if (!buf || !row) err = PL_ERR_HOST_OOM;
    if (row) row->tensors = f->n;
    for (uint64_t i = 0; i < f->n && err == PL_ERR_OK; i++)
        err = check_tensor(f, &f->entries[i], buf, row, &said);
    free(buf);
    return take_problem(v, f->path, err, &said, d);
}

/* --- shapes ------------------------------------------------------------------------------------
 */

static pl_err check_shape(const struct pl_st_entry *e, const struct pl_window *w, const char *path,
                          struct pl_diag *d) {
    char have[PL_ST_SHAPE_TEXT], want[PL_ST_SHAPE_TEXT];
    if (pl_window_fits(w, e, want)) return PL_ERR_OK;
    return pl_diag_at(d, PL_ERR_CHECKPOINT_FORMAT, path, 0, 0,
                      "%s: tensor `%s` has shape %s, where %s belongs", path, e->name,
                      pl_st_shape_text(e->rank, e->dims, have), want);
}

static pl_err report_absent(const struct pl_weight_files *f, const char *name, struct pl_diag *d) {
    return pl_diag_at(d, PL_ERR_CHECKPOINT_FORMAT, f->path, 0, 0, "%s: tensor `%s` is missing",
                      f->path, name);
}

/* Codes of bitsandbytes in place of a matrix lie in a shape of their own. */
static pl_err check_row(const struct pl_weight_files *f, const struct pl_param_row *row,
                        uint64_t layer, uint32_t which, struct pl_diag *d) {
    struct pl_window w = pl_window_of_row(row, layer, which);
    if (!pl_window_find(f, &w)) return report_absent(f, w.name, d);
    bool codes = row->module && row->slot != PL_SLOT_EMBED && w.entry->dtype == PL_DTYPE_U8;
    if (codes) return PL_ERR_OK;
    return check_shape(w.entry, &w, w.file->path, d);
}

static pl_err check_model(const struct pl_weight_files *f, const char *dir, struct pl_diag *d) {
    struct pl_model m;
    struct pl_param_row rows[PL_MODEL_MAX_ROWS];
    char *path = pl_path_join(dir, "config.json");
    pl_err err = path ? pl_model_read(path, &m, d) : pl_host_oom(d, "a path");
    free(path);
    if (err != PL_ERR_OK) return err;
    const uint32_t n = pl_model_rows(&m, rows);
    for (uint32_t r = 0; r < n; r++)
        for (uint64_t layer = 0; layer < (rows[r].per_layer ? m.layers : 1); layer++)
            for (uint32_t i = 0;
                 pl_model_row_in(&m, &rows[r], layer) && i < pl_model_row_tensors(&rows[r]); i++)
                PL_TRY(check_row(f, &rows[r], layer, i, d));
    return PL_ERR_OK;
}

/* A module that was trained whole, or the base's weight that was saved with an adapter on it. */
static bool is_whole(const struct pl_adapter_config *c, const char *name) {
    const size_t length = strlen(name);
    char end[PL_WINDOW_NAME];
    if (pl_window_names_base_copy(name)) return true;
    for (uint32_t i = 0; i < c->choice.whole.n; i++) {
        const int n = snprintf(end, sizeof end, ".%s.weight", c->choice.whole.items[i]);
        if (n > 0 && (size_t)n < sizeof end && (size_t)n <= length &&
            strcmp(name + length - (size_t)n, end) == 0)
            return true;
    }
    return false;
}

static bool has_rank(const struct pl_adapter_config *c, const struct pl_st_entry *e, bool a) {
    if (e->rank != 2) return false;
    const uint64_t ranks = e->dims[a ? 0 : 1];
    /* A matrix of all experts of a layer has the rank so many times. */
    const bool of_experts =
        c->choice.parameters.n &&
        (strstr(e->name, ".experts.lora_") || strstr(e->name, ".experts.base_layer.lora_"));
    return of_experts ? ranks && ranks % c->r == 0 : ranks == c->r;
}

/* The other matrix of the pair: lora_A and lora_B have names of one length. */
static pl_err check_pair(const struct pl_weight_files *f, const struct pl_st_file *file,
                         const struct pl_st_entry *e, const struct pl_adapter_config *c,
                         struct pl_diag *d) {
    struct pl_window other = {0};
    static const char plain[] = ".lora_", of_embedding[] = ".lora_embedding_";
    const char *mark = strstr(e->name, plain);
    const size_t at = strstr(e->name, of_embedding) ? strlen(of_embedding) : strlen(plain);
    const bool a = mark && mark[at] == 'A';
    if (!mark || (!a && mark[at] != 'B'))
        return pl_diag_at(d, PL_ERR_CHECKPOINT_FORMAT, file->path, 0, 0,
                          "%s: tensor `%s` is no matrix of LoRA", file->path, e->name);
    if (!has_rank(c, e, a)) {
        char have[PL_ST_SHAPE_TEXT];
        return pl_diag_at(d, PL_ERR_CHECKPOINT_FORMAT, file->path, 0, 0,
                          "%s: tensor `%s` has shape %s, and " PL_ADAPTER_CONFIG " says rank %llu",
                          file->path, e->name, pl_st_shape_text(e->rank, e->dims, have),
                          (unsigned long long)c->r);
    }
    snprintf(other.name, sizeof other.name, "%s", e->name);
    if (strlen(e->name) < sizeof other.name)
        other.name[mark - e->name + (ptrdiff_t)at] = a ? 'B' : 'A';
    if (!pl_window_find(f, &other)) return report_absent(f, other.name, d);
    if (other.entry->rank == 2 && other.entry->dims[a ? 1 : 0] == e->dims[a ? 0 : 1])
        return PL_ERR_OK;
    return pl_diag_at(d, PL_ERR_CHECKPOINT_FORMAT, file->path, 0, 0,
                      "%s: `%s` and `%s` have different ranks", file->path, e->name,
                      other.entry->name);
}

static pl_err check_adapter(const struct pl_weight_files *f, const char *dir, struct pl_diag *d) {
    struct pl_adapter_config c;
    PL_TRY(pl_adapter_config_read(&c, dir, d));
    pl_err err = PL_ERR_OK;
    for (uint32_t i = 0; i < f->n; i++)
        for (uint64_t k = 0; k < f->files[i].n && err == PL_ERR_OK; k++) {
            const struct pl_st_entry *e = &f->files[i].entries[k];
            if (!is_whole(&c, e->name)) err = check_pair(f, &f->files[i], e, &c, d);
        }
    pl_adapter_config_finish(&c);
    return err;
}

/* --- sets of files -----------------------------------------------------------------------------
 */

/* A set of weight files, and what its shapes are held against. */
static const struct set {
    const char *stem;
    pl_err (*check)(const struct pl_weight_files *f, const char *dir, struct pl_diag *d);
} sets[] = {
    {"model", check_model},
    {PL_ADAPTER_STEM, check_adapter},
};

/* True if a tensor of the shape of its weight has this name: a state of an optimizer, or a master.
 * Scales of states in blocks have a shape of their own. */
static bool is_state_name(const char *last) {
    uint32_t n;
    const struct pl_optimizer *table = pl_optimizer_table(&n);
    for (uint32_t i = 0; i < n; i++)
        for (const struct pl_state *s = table[i].states; s->name; s++)
            if (strcmp(last, s->name) == 0) return true;
    return strcmp(last, PL_MASTER_NAME) == 0;
}

/* The tensor that a state is of, by the name without what the state adds. */
static pl_err check_state(const struct pl_weight_files *trained, const struct pl_st_file *f,
                          const struct pl_st_entry *e, struct pl_diag *d) {
    const char *dot = strrchr(e->name, '.');
    struct pl_window of = {.rank = e->rank, .dims = {e->dims[0], e->dims[1]}};
    if (e->rank == 3)
        of = (struct pl_window){.rank = 2,
                                .dims = {e->dims[0] * e->dims[1], e->dims[2]},
                                .matrices = (uint32_t)e->dims[0]};
    if (!dot || dot == e->name || !is_state_name(dot + 1)) return PL_ERR_OK;
    snprintf(of.name, sizeof of.name, "%.*s", (int)(dot - e->name), e->name);
    if (!pl_window_find(trained, &of))
        return pl_diag_at(d, PL_ERR_CHECKPOINT_FORMAT, f->path, 0, 0,
                          "%s: `%s` is the state of a tensor that is not there", f->path, e->name);
    return check_shape(of.entry, &of, of.file->path, d);
}

static pl_err check_states(const struct pl_weight_files *states,
                           const struct pl_weight_files *trained, struct pl_diag *d) {
    for (uint32_t i = 0; i < states->n; i++)
        for (uint64_t k = 0; k < states->files[i].n; k++)
            PL_TRY(check_state(trained, &states->files[i], &states->files[i].entries[k], d));
    return PL_ERR_OK;
}

static bool holds_file(const char *dir, const char *stem, const char *suffix) {
    char name[96];
    snprintf(name, sizeof name, "%s%s", stem, suffix);
    char *path = pl_path_join(dir, name);
    bool there = path && pl_look_for(path) != PL_NOT_THERE; /* opening it says what is wrong */
    free(path);
    return there;
}

static bool holds_set(const char *dir, const char *stem) {
    return holds_file(dir, stem, ".safetensors") ||
           holds_file(dir, stem, ".safetensors.index.json");
}

/* Headers and numbers of a set that is there; *f is open afterwards where its headers are right. */
static pl_err open_set(struct pl_verify *v, struct pl_weight_files *f, const char *dir,
                       const char *stem, struct pl_diag *d) {
    struct pl_diag said = {0};
    pl_err err = pl_weight_files_open(f, dir, stem, PL_ERR_CHECKPOINT_FILE, &said);
    if (err != PL_ERR_OK) return take_problem(v, said.file[0] ? said.file : dir, err, &said, d);
    for (uint32_t i = 0; i < f->n; i++)
        PL_TRY(check_numbers(v, &f->files[i], d));
    return PL_ERR_OK;
}

static pl_err verify_set(struct pl_verify *v, const struct set *set, const char *dir,
                         struct pl_diag *d) {
    struct pl_weight_files f = {0}, states = {0};
    struct pl_diag said = {0}, of_states = {0};
    if (!holds_set(dir, set->stem)) return PL_ERR_OK;
    pl_err err = open_set(v, &f, dir, set->stem, d);
    if (err != PL_ERR_OK || !f.n) goto out;
    PL_TRY_GOTO(take_shapes(v, f.path, set->check(&f, dir, &said), &said, d), out);
    if (!holds_set(dir, "optimizer")) goto out;
    PL_TRY_GOTO(open_set(v, &states, dir, "optimizer", d), out);
    if (states.n)
        err = take_problem(v, states.path, check_states(&states, &f, &of_states), &of_states, d);
out:
    pl_weight_files_close(&f);
    pl_weight_files_close(&states);
    return err;
}

/* --- directories -------------------------------------------------------------------------------
 */

static pl_err verify_digests(struct pl_verify *v, const char *dir, json_t *files,
                             struct pl_diag *d) {
    const char *name;
    json_t *entry;
    json_object_foreach(files, name, entry) {
        struct pl_diag said = {0};
        char *path = pl_path_join(dir, name);
        pl_err found = pl_manifest_check_file(dir, name, entry, &said);
        pl_err err = path ? take_problem(v, path, found, &said, d) : pl_host_oom(d, "a path");
        if (err == PL_ERR_OK) find_row(v, path)->digested = true;
        free(path);
        PL_TRY(err);
    }
    return PL_ERR_OK;
}

/* Other trainers write a file of this name, too. */
static bool is_ours(const char *path) {
    json_t *root = NULL;
    const bool ours =
        pl_json_read(path, &root, NULL) != PL_ERR_OK || json_object_get(root, "plimsoll") != NULL;
    json_decref(root);
    return ours;
}

static pl_err verify_state(struct pl_verify *v, const char *dir, struct pl_diag *d) {
    struct pl_run_record r = {0};
    struct pl_diag said = {0};
    char *path = pl_path_join(dir, PL_STATE_FILE);
    pl_err err = path ? PL_ERR_OK : pl_host_oom(d, "a path");
    if (path && holds_file(dir, PL_STATE_FILE, "") && is_ours(path)) {
        pl_err found = pl_run_record_read(&r, dir, &said);
        err = take_problem(v, path, found, &said, d);
        if (err == PL_ERR_OK && r.files) find_row(v, path)->digested = true;
        if (err == PL_ERR_OK) err = verify_digests(v, dir, r.files, d);
    }
    pl_run_record_finish(&r);
    free(path);
    return err;
}

static pl_err verify_one(struct pl_verify *v, const char *dir, struct pl_diag *d) {
    PL_TRY(verify_state(v, dir, d));
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++)
        PL_TRY(verify_set(v, &sets[i], dir, d));
    return PL_ERR_OK;
}

/* checkpoint-N of an output_dir. */
static pl_err verify_inside(struct pl_verify *v, const char *dir, struct pl_diag *d) {
    static const char prefix[] = "checkpoint-";
    pl_err err = PL_ERR_OK;
    const struct dirent *e;
    DIR *list = opendir(dir);
    if (!list) return pl_file_read_error(d, dir);
    while (err == PL_ERR_OK && (errno = 0, e = readdir(list))) {
        const char *digits = e->d_name + strlen(prefix);
        if (strncmp(e->d_name, prefix, strlen(prefix)) != 0 || !*digits ||
            digits[strspn(digits, "0123456789")])
            continue;
        /* Without any of these files it is the rest of a removal that was cut off; no run starts
         * from it. */
        char *path = pl_path_join(dir, e->d_name);
        if (!path)
            err = pl_host_oom(d, "a path");
        else if (holds_file(path, PL_STATE_FILE, "") || holds_file(path, "config.json", "") ||
                 holds_file(path, PL_ADAPTER_CONFIG, ""))
            err = verify_one(v, path, d);
        free(path);
    }
    if (err == PL_ERR_OK && errno) err = pl_file_read_error(d, dir);
    closedir(list);
    return err;
}

/* A directory with a configuration and without the weights of it says what it has instead. */
static pl_err refuse_none(const char *dir, struct pl_diag *d) {
    if (holds_file(dir, PL_ADAPTER_CONFIG, ""))
        return pl_weight_files_absent(dir, PL_ADAPTER_STEM, PL_ERR_CHECKPOINT_FILE, d);
    if (holds_file(dir, "config.json", ""))
        return pl_weight_files_absent(dir, "model", PL_ERR_CHECKPOINT_FILE, d);
    return pl_diag_at(d, PL_ERR_CHECKPOINT_FILE, dir, 0, 0,
                      "%s holds no checkpoint, adapter or model", dir);
}

pl_err pl_verify_dir(struct pl_verify *v, const char *dir, struct pl_diag *d) {
    *v = (struct pl_verify){0};
    pl_err err = verify_one(v, dir, d);
    if (err == PL_ERR_OK) err = verify_inside(v, dir, d);
    if (err == PL_ERR_OK && !v->n) err = refuse_none(dir, d);
    if (err != PL_ERR_OK) pl_verify_finish(v);
    return err;
}

void pl_verify_finish(struct pl_verify *v) {
    for (uint32_t i = 0; i < v->n; i++) {
        free(v->files[i].path);
        free(v->files[i].problem);
        free(v->files[i].unknown);
        free(v->files[i].not_compared);
    }
    pl_names_finish(&v->places);
    free(v->files);
    *v = (struct pl_verify){0};
}
