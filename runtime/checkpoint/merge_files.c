#include "estimator/base/alloc.h"
#include "estimator/base/checked.h"
#include "runtime/checkpoint/convert.h"
#include "runtime/checkpoint/durable.h"
#include "runtime/checkpoint/finite_entry.h"
#include "runtime/checkpoint/merge_files.h"
#include "runtime/checkpoint/model_io.h"
#include "runtime/checkpoint/surplus.h"
#include "runtime/checkpoint/weight_files.h"
#include "runtime/checkpoint/window_resolve.h"
#include "runtime/checkpoint/window_write.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Returns the A of a parameter that is listed already: the weights of one follow one another. */
static uint32_t find_listed(const struct pl_merge_files *f, const struct pl_window *a) {
    for (uint32_t i = f->matrices.n; i > 0; i -= 2)
        if (strcmp(f->matrices.items[i - 2].name, a->name) == 0) return i - 2;
    return PL_NONE;
}

/* `r`: the row with the adapter, which may be a parameter that the weight is a part of. */
static pl_err add_matrices(struct pl_merge_files *f, const struct pl_model *m,
                           const struct pl_param_row *row, uint32_t r, uint64_t layer,
                           uint32_t which, struct pl_adapter_place *place, struct pl_diag *d) {
    const pl_row_set adapted =
        row->per_layer ? pl_targets_of_layer(&f->targets, layer) : f->targets.once;
    struct pl_window pair[2];
    for (int i = 0; i < 2; i++) {
        pair[i] = pl_window_of_adapter(m, row, layer, which, adapted, f->config.r, "AB"[i]);
        pair[i].row = r;
        pair[i].count = pair[i].dims[0] * pair[i].dims[1];
    }
    f->modules++;
    place->a = pl_row_is_parameter(row) ? find_listed(f, &pair[0]) : PL_NONE;
    if (place->a != PL_NONE) return PL_ERR_OK;
    place->a = f->matrices.n;
    PL_TRY(pl_windows_append(&f->matrices, &pair[0], d));
    return pl_windows_append(&f->matrices, &pair[1], d);
}

static pl_err add_adapter(struct pl_merge_files *f, const struct pl_model *m,
                          const struct pl_param_row *rows, uint32_t r, uint64_t layer,
                          uint32_t which, struct pl_diag *d) {
    struct pl_adapter_place *place = &f->adapter_of[f->weights.n - 1];
    const uint32_t n_rows = f->n_rows;
    *place = (struct pl_adapter_place){.a = PL_NONE};
    const pl_row_set adapted =
        rows[r].per_layer ? pl_targets_of_layer(&f->targets, layer) : f->targets.once;
    const uint32_t by = pl_model_adapted_by(rows, n_rows, adapted, r);
    if (by == n_rows) return PL_ERR_OK;
    struct pl_param_row row = rows[by];
    pl_model_row_in(m, &row, layer);
    if (pl_row_is_parameter(&row))
        *place = (struct pl_adapter_place){
            .expert = which, .experts = row.experts, .row0 = rows[r].row0 - row.row0};
    return add_matrices(f, m, &row, by, layer, which, place, d);
}

static pl_err add_tensor(struct pl_merge_files *f, const struct pl_model *m,
                         const struct pl_param_row *rows, uint32_t r, uint64_t layer,
                         uint32_t which, struct pl_diag *d) {
    struct pl_window w = pl_window_of_row(&rows[r], layer, which);
    w.row = r;
    w.count = w.dims[0] * (w.rank == 2 ? w.dims[1] : 1);
    f->whole_of[f->weights.n] = PL_NONE;
    if (rows[r].slot == PL_SLOT_HEAD) f->head = f->weights.n;
    PL_TRY(pl_windows_append(&f->weights, &w, d));
    return add_adapter(f, m, rows, r, layer, which, d);
}

/* A head that was the embedding is a tensor of its own once an adapter changes one of the two, or
 * replaces it: a copy of what the embedding is before. */
static void set_own_head(struct pl_merge_files *f, const char *name) {
    struct pl_window *head = &f->weights.items[f->head];
    if (f->unties) snprintf(head->name, sizeof head->name, "%s", name);
}

static pl_err add_wholes(struct pl_merge_files *f, const struct pl_param_row *rows,
                         struct pl_diag *d) {
    for (uint32_t i = 0; i < f->weights.n; i++) {
        struct pl_window w = f->weights.items[i];
        if (!pl_row_set_has(f->targets.whole, w.row)) continue;
        pl_window_whole_name(&rows[w.row], w.name);
        f->whole_of[i] = f->matrices.n;
        PL_TRY(pl_windows_append(&f->matrices, &w, d));
    }
    return PL_ERR_OK;
}

static pl_err add_tensors(struct pl_merge_files *f, const struct pl_model *m,
                          const struct pl_param_row *rows, uint32_t r, uint64_t layer,
                          struct pl_diag *d) {
    for (uint32_t i = 0; i < pl_model_row_tensors(&rows[r]); i++)
        PL_TRY(add_tensor(f, m, rows, r, layer, i, d));
    return PL_ERR_OK;
}

static pl_err list_tensors(struct pl_merge_files *f, const struct pl_model *m, struct pl_diag *d) {
    struct pl_param_row rows[PL_MODEL_MAX_ROWS];
    uint64_t most = 0;
    f->n_rows = pl_model_modules(m, rows);
    for (uint32_t r = 0; r < f->n_rows; r++)
        most += (m->layers + 1) * pl_model_row_tensors(&rows[r]);
    f->adapter_of = pl_malloc(most * sizeof *f->adapter_of);
    f->whole_of = pl_malloc(most * sizeof *f->whole_of);
    if (!f->adapter_of || !f->whole_of) return pl_host_oom(d, "the list of tensors");
    for (uint64_t layer = 0; layer < m->layers; layer++)
        for (uint32_t r = 0; r < f->n_rows; r++)
            if ((rows[r].per_layer || layer == 0) &&
                /* A head of its own is one of the weights only where the merge unties it. */
                (!rows[r].module_only || (f->unties && rows[r].slot == PL_SLOT_HEAD)) &&
                pl_model_row_in(m, &rows[r], layer))
                PL_TRY(add_tensors(f, m, rows, r, layer, d));
    f->pairs = f->matrices.n;
    return add_wholes(f, rows, d);
}

/* The parts of the base that PEFT saved: copies of its embedding and its head. */
struct copies {
    struct pl_window window[2];
    uint32_t weight[2]; /* that it should be equal to */
    uint32_t n;
};

/* The number of the weight that a slot of the model is in its files; PL_NONE: no such weight is
 * kept. */
static uint32_t weight_of_slot(const struct pl_merge_files *f, const struct pl_param_row *rows,
                               enum pl_slot slot, bool tied) {
    const enum pl_slot holder = tied && !f->unties ? PL_SLOT_EMBED : slot;
    for (uint32_t i = 0; i < f->weights.n; i++) {
        const uint32_t r = f->weights.items[i].row;
        if (rows[r].slot == holder) return pl_row_set_has(f->targets.whole, r) ? PL_NONE : i;
    }
    return PL_NONE;
}

/* The copies stand after the matrices until they were found; they are no part of the merge. Without
 * the base they cannot be compared: that of a module with an adapter is taken on trust. */
static pl_err resolve_matrices(struct pl_merge_files *f, const struct pl_model *m, bool compared,
                               struct copies *copies, struct pl_diag *d) {
    static const enum pl_slot slots[] = {PL_SLOT_EMBED, PL_SLOT_HEAD};
    const uint32_t n = f->matrices.n;
    struct pl_param_row rows[PL_MODEL_MAX_ROWS];
    pl_model_modules(m, rows);
    for (size_t i = 0; i < sizeof slots / sizeof *slots; i++) {
        const uint32_t weight = weight_of_slot(f, rows, slots[i], m->tied), before = f->matrices.n;
        if (weight == PL_NONE || (!compared && f->adapter_of[weight].a == PL_NONE)) continue;
        PL_TRY(pl_windows_add_base_copy(&f->matrices, &f->adapter, m, slots[i], PL_NONE, d));
        if (f->matrices.n > before) copies->weight[copies->n++] = weight;
    }
    PL_TRY(pl_windows_resolve(&f->matrices, &f->adapter, PL_MATCH_COMPLETE,
                              PL_ERR_CHECKPOINT_MISMATCH, d));
    for (uint32_t i = 0; i < copies->n; i++)
        copies->window[i] = f->matrices.items[n + i];
    f->matrices.n = n;
    return PL_ERR_OK;
}

static pl_err check_copies(const struct pl_merge_files *f, const struct copies *copies,
                           struct pl_diag *d) {
    for (uint32_t i = 0; i < copies->n; i++) {
        bool same = true;
        PL_TRY(
            pl_windows_compare(&copies->window[i], &f->weights.items[copies->weight[i]], &same, d));
        if (!same) return pl_window_refuse_copy(&copies->window[i], d);
    }
    return PL_ERR_OK;
}

static pl_err open_all(struct pl_merge_files *f, const struct pl_model *m, const char *model_dir,
                       const char *adapter_dir, struct pl_diag *d) {
    PL_TRY(pl_adapter_config_read(&f->config, adapter_dir, d));
    PL_TRY(
        pl_weight_files_open(&f->adapter, adapter_dir, PL_ADAPTER_STEM, PL_ERR_CHECKPOINT_FILE, d));
    if (model_dir) PL_TRY(pl_weight_files_open(&f->base, model_dir, "model", PL_ERR_MODEL_FILE, d));
    PL_TRY(pl_adapter_config_targets(&f->config, m, &f->targets, d));
    f->unties = m->tied && (f->targets.once | f->targets.whole);
    PL_TRY(list_tensors(f, m, d));
    struct copies copies = {0};
    PL_TRY(resolve_matrices(f, m, model_dir != NULL, &copies, d));
    if (!model_dir) return PL_ERR_OK;
    set_own_head(f, "model.embed_tokens.weight");
    PL_TRY(pl_windows_resolve(&f->weights, &f->base, PL_MATCH_CONVERT, PL_ERR_MODEL_WEIGHTS, d));
    set_own_head(f, "lm_head.weight");
    PL_TRY(check_copies(f, &copies, d));
    return m->tied ? pl_windows_check_tied_head(&f->weights, &f->base, d) : PL_ERR_OK;
}

pl_err pl_merge_files_open(struct pl_merge_files *f, const struct pl_model *m,
                           const char *model_dir, const char *adapter_dir, struct pl_diag *d) {
    *f = (struct pl_merge_files){0};
    pl_err err = open_all(f, m, model_dir, adapter_dir, d);
    if (err == PL_ERR_CHECKPOINT_MISMATCH) pl_adapter_config_hint(&f->config, d);
    if (err != PL_ERR_OK) pl_merge_files_close(f);
    return err;
}

void pl_merge_files_close(struct pl_merge_files *f) {
    pl_adapter_config_finish(&f->config);
    pl_weight_files_close(&f->base);
    pl_weight_files_close(&f->adapter);
    pl_windows_finish(&f->weights);
    pl_windows_finish(&f->matrices);
    free(f->adapter_of);
    free(f->whole_of);
    *f = (struct pl_merge_files){0};
}

uint64_t pl_windows_set_dtype(struct pl_windows *w, enum pl_dtype dtype) {
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < w->n; i++) {
        struct pl_window *x = &w->items[i];
        x->dtype = dtype == PL_DTYPE_COUNT ? x->entry->dtype : dtype;
        bytes += x->count * pl_dtype_bytes(x->dtype);
    }
    return bytes;
}

pl_err pl_window_values(const struct pl_window *w, uint64_t first, uint64_t n,
                        const struct pl_merge_buffers *buffers, float *out, struct pl_diag *d) {
    enum pl_dtype from = w->entry->dtype;
    uint64_t size = pl_dtype_bytes(from);
    for (uint64_t at = 0; at < n; at += buffers->elements) {
        uint64_t some = pl_u64_min(buffers->elements, n - at);
        PL_TRY(pl_st_read(w->file, w->entry, (first + at) * size, buffers->raw, some * size, d));
        PL_TRY(pl_finite_check(w->file, w->entry, buffers->raw, first + at, some, d));
        pl_convert_to_f32(out + at, buffers->raw, from, some);
    }
    return PL_ERR_OK;
}

pl_err pl_window_round(const struct pl_window *w, enum pl_dtype to, const float *values,
                       uint64_t first, uint64_t n, void *out, struct pl_diag *d) {
    const char *type = pl_dtype_file_name(to);
    pl_convert_from_f32(out, values, to, n);
    const uint64_t at = pl_finite_scan(type, out, n);
    if (at == n) return PL_ERR_OK;
    const bool fits = isfinite(values[at]);
    pl_err err = pl_diag_set(d, PL_ERR_CHECKPOINT_FORMAT,
                             "tensor `%s`: element %llu would be %g, which %s does not hold",
                             w->name, (unsigned long long)(first + at), (double)values[at], type);
    pl_diag_hint(d, fits ? "give --dtype bf16 or --dtype fp32"
                         : "the adapter does not belong to this base, or its training diverged");
    return err;
}

struct writer {
    const struct pl_merge_files *files;
    const struct pl_merge_work *work;
};

/* fp32 values, of a window from `first` on, in its type into the file. */
static pl_err put_values(const struct writer *x, const struct pl_window *w, uint64_t first,
                         const struct pl_merge_buffers *buffers, uint64_t n, struct pl_outbox *o,
                         struct pl_diag *d) {
    uint64_t bytes = n * pl_dtype_bytes(w->dtype);
    PL_TRY(pl_window_round(w, w->dtype, buffers->values, first, n, buffers->raw, d));
    PL_TRY(pl_outbox_write(o, buffers->raw, bytes, d));
    return x->work->advance(x->work->ctx, bytes, d);
}

/* `from` in the type of `w`: what is copied, or what replaces it. */
static pl_err pass(const struct writer *x, const struct pl_window *w, const struct pl_window *from,
                   struct pl_outbox *o, struct pl_diag *d) {
    struct pl_merge_buffers buffers = x->work->buffers(x->work->ctx, PL_NONE, 0);
    uint64_t size = pl_dtype_bytes(w->dtype);
    for (uint64_t at = 0; at < w->count; at += buffers.elements) {
        uint64_t n = pl_u64_min(buffers.elements, w->count - at);
        if (from->entry->dtype == w->dtype) { /* F2 */
            PL_TRY(pl_st_read(from->file, from->entry, at * size, buffers.raw, n * size, d));
            PL_TRY(pl_finite_check(from->file, from->entry, buffers.raw, at, n, d));
            PL_TRY(pl_outbox_write(o, buffers.raw, n * size, d));
            PL_TRY(x->work->advance(x->work->ctx, n * size, d));
            continue;
        }
        PL_TRY(pl_window_values(from, at, n, &buffers, buffers.values, d));
        PL_TRY(put_values(x, w, at, &buffers, n, o, d));
    }
    return PL_ERR_OK;
}

/* A matrix of numbers of a file: number (i, j) is that many steps after the first. */
struct matrix {
    const struct pl_window *of;
    uint64_t first, step[2], n[2];
};

static struct matrix turned(struct matrix x) {
    return (struct matrix){x.of, x.first, {x.step[1], x.step[0]}, {x.n[1], x.n[0]}};
}

/* out[i, j] = number (i, j), for rows [row, row+n). The inner loop is along the smaller step. */
static pl_err read_matrix(const struct matrix *x, uint64_t row, uint64_t n,
                          const struct pl_merge_buffers *buffers, float *out, struct pl_diag *d) {
    float values[1024];
    if (x->step[1] == 1 && x->step[0] == x->n[1])
        return pl_window_values(x->of, x->first + row * x->step[0], n * x->n[1], buffers, out, d);
    const uint64_t count[2] = {n, x->n[1]}, at[2] = {x->n[1], 1};
    const int inner = x->step[1] <= x->step[0], outer = !inner;
    const uint64_t step = x->step[inner];
    const uint64_t most = (sizeof values / sizeof *values - 1) / step + 1;
    for (uint64_t i = 0; i < count[outer]; i++)
        for (uint64_t j = 0, some; j < count[inner]; j += some) {
            some = pl_u64_min(most, count[inner] - j);
            PL_TRY(pl_window_values(x->of,
                                    x->first + row * x->step[0] + i * x->step[outer] + j * step,
                                    (some - 1) * step + 1, buffers, values, d));
            for (uint64_t k = 0; k < some; k++)
                out[i * at[outer] + (j + k) * at[inner]] = values[k * step];
        }
    return PL_ERR_OK;
}

/* A [r, in] and B [out, r] of a weight that is [out, in], or turned round: W + s (B A)^T is
 * W + s A^T B^T, so that A^T takes the place of B, and B^T that of A. */
struct product {
    struct matrix a, b;
};

static struct product find_product(const struct pl_merge_files *f, const struct pl_window *w,
                                   const struct pl_adapter_place *place, uint32_t expert) {
    const struct pl_window *a = &f->matrices.items[place->a], *b = a + 1;
    const uint64_t r = f->config.r;
    struct product p = {.a = {a, 0, {a->dims[1], 1}, {r, a->dims[1]}},
                        .b = {b, 0, {b->dims[1], 1}, {b->dims[0], r}}};
    if (place->experts) {
        const uint64_t e = place->expert + expert, all = place->experts;
        p.a.first = e * r * a->dims[1];
        p.b = (struct matrix){b, place->row0 * r * all + e, {r * all, all}, {b->dims[0] / r, r}};
    }
    if (!a->turned && !w->matrices) return p;
    return (struct product){.a = turned(p.b), .b = turned(p.a)};
}

/* Rows of one matrix of a weight, some at a time. */
static pl_err merge_matrix(const struct writer *x, const struct pl_window *w,
                           const struct product *p, uint64_t row0, uint64_t rows,
                           struct pl_outbox *o, struct pl_diag *d) {
    const uint64_t cols = w->dims[1];
    const struct pl_merge_buffers buffers = x->work->buffers(x->work->ctx, w->row, cols);
    const uint64_t most = buffers.elements / cols;
    PL_TRY(read_matrix(&p->a, 0, p->a.n[0], &buffers, buffers.a, d));
    for (uint64_t row = 0, n; row < rows; row += n) {
        n = pl_u64_min(most, rows - row);
        PL_TRY(pl_window_values(w, (row0 + row) * cols, n * cols, &buffers, buffers.values, d));
        PL_TRY(read_matrix(&p->b, row, n, &buffers, buffers.b, d));
        PL_TRY(x->work->multiply(x->work->ctx, w->row, cols, n, d));
        PL_TRY(put_values(x, w, (row0 + row) * cols, &buffers, n * cols, o, d));
    }
    return PL_ERR_OK;
}

static pl_err merge(const struct writer *x, const struct pl_window *w,
                    const struct pl_adapter_place *place, struct pl_outbox *o, struct pl_diag *d) {
    const uint32_t n = w->matrices ? w->matrices : 1;
    const uint64_t rows = w->dims[0] / n;
    for (uint32_t e = 0; e < n; e++) {
        const struct product p = find_product(x->files, w, place, e);
        PL_TRY(merge_matrix(x, w, &p, e * rows, rows, o, d));
    }
    return PL_ERR_OK;
}

static pl_err write_window(void *ctx, const struct pl_window *w, struct pl_outbox *o,
                           struct pl_diag *d) {
    const struct writer *x = ctx;
    const struct pl_window *of_adapter = x->files->matrices.items;
    const size_t i = (size_t)(w - x->files->weights.items);
    const struct pl_adapter_place *place = &x->files->adapter_of[i];
    const uint32_t whole = x->files->whole_of[i];
    if (place->a != PL_NONE) return merge(x, w, place, o, d);
    return pass(x, w, whole == PL_NONE ? w : &of_adapter[whole], o, d);
}

pl_err pl_merge_files_write(struct pl_merge_files *f, const struct pl_merge_work *work,
                            const struct pl_merge_target *target, struct pl_diag *d) {
    struct writer x = {f, work};
    struct pl_merge_buffers buffers = work->buffers(work->ctx, PL_NONE, 0);
    struct pl_window_source source = {.write = write_window,
                                      .ctx = &x,
                                      .buffer = buffers.raw,
                                      .buffer_bytes = buffers.elements * sizeof(float)};
    return pl_model_write(&f->weights, &source, target->dir, target->config_json,
                          target->companions, target->shard_bytes, d);
}
