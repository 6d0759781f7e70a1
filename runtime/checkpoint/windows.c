/* windows.c - the lists: base model, adapter, optimizer states. */
#include "runtime/checkpoint/windows.h"
#include "estimator/base/alloc.h"
#include "estimator/base/checked.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static pl_err layout_error(const struct pl_program *p, uint32_t id, const char *name,
                           struct pl_diag *d) {
    char tensor[96];
    pl_tensor_name(p, id, tensor);
    return pl_diag_set(d, PL_ERR_PLAN_BROKEN, "%s does not lie inside tensor %s", name, tensor);
}

pl_err pl_windows_append(struct pl_windows *w, const struct pl_window *item, struct pl_diag *d) {
    if (w->n == w->cap) {
        uint32_t cap = w->cap ? 2 * w->cap : 64;
        struct pl_window *items = pl_realloc(w->items, cap * sizeof *items);
        if (!items) return pl_host_oom(d, "the list of tensors");
        w->items = items;
        w->cap = cap;
    }
    w->items[w->n++] = *item;
    return PL_ERR_OK;
}

/* The experts whose matrices, or vectors, a tensor has; 0: it is of no experts. */
static uint32_t experts_of(const struct pl_program *p, uint32_t id) {
    const struct pl_tensor *t = &p->tensors[id];
    struct pl_slot_shape shape;
    pl_model_slot(p->model, t->layer, t->slot, &shape);
    return shape.experts;
}

/* Codes hold two values an element, and one module a tensor: one matrix, or that of each expert. */
static bool fits_codes(const struct pl_program *p, const struct pl_window *item) {
    const struct pl_tensor *t = &p->tensors[item->tensor];
    const uint64_t all = pl_u64_max(experts_of(p, item->tensor), 1),
                   here = pl_window_matrices(item);
    return item->which <= all - here && t->bytes == all * pl_quant_codes_bytes(item->count / here);
}

/* Codes and scales of the experts' matrices lie one after another; each has an offset after its
 * nests. */
struct pl_codes_place pl_window_codes_place(const struct pl_window *w, uint64_t matrix) {
    const uint64_t n = w->count / pl_window_matrices(w), at = w->which + matrix;
    const bool nested = w->absmax8 != PL_NONE;
    return (struct pl_codes_place){
        .codes = at * pl_quant_codes_bytes(n),
        .absmax = at * pl_quant_count_absmax(w->quant, n, nested),
        .absmax8 = nested ? at * pl_quant_blocks(n) : 0,
    };
}

/* A window of whole rows [row0, row0+rows) of tensor `id`. */
static pl_err add_window(struct pl_windows *w, const struct pl_program *p, struct pl_window item,
                         uint64_t row0, struct pl_diag *d) {
    const struct pl_tensor *t = &p->tensors[item.tensor];
    uint64_t cols = item.rank == 2 ? item.dims[1] : 1, end, elements;
    if (!pl_u64_mul(row0, cols, &item.first) || !pl_u64_mul(item.dims[0], cols, &item.count) ||
        !pl_u64_add(item.first, item.count, &end) ||
        !pl_u64_mul(t->dims[0], t->dims[1], &elements) ||
        !pl_u64_mul(elements, t->dims[2], &elements) ||
        (item.quantised ? !fits_codes(p, &item) : end > elements))
        return layout_error(p, item.tensor, item.name, d);
    item.dtype = p->tensors[item.tensor].dtype;
    return pl_windows_append(w, &item, d);
}

static uint32_t find_of(const struct pl_program *p, enum pl_role role, uint32_t of) {
    for (uint32_t i = 0; i < p->n_tensors; i++)
        if (p->tensors[i].role == role && p->tensors[i].of == of) return i;
    return PL_NONE;
}

/* Returns a row as the layer of a tensor has it. */
static struct pl_param_row row_in(const struct pl_program *p, uint32_t id,
                                  const struct pl_param_row *row) {
    struct pl_param_row own = *row;
    pl_model_row_in(p->model, &own, p->tensors[id].layer);
    return own;
}

/* Experts in one tensor are its first dimension; their vectors are then rows of a matrix. */
struct pl_window pl_window_of_row(const struct pl_param_row *row, uint64_t layer, uint32_t which) {
    const bool joined = row->experts && !row->split;
    struct pl_window item = {.tensor = PL_NONE,
                             .which = which,
                             .master = PL_NONE,
                             .rank = row->vector && !joined ? 1 : 2,
                             .dims = {row->rows, row->cols}};
    if (joined && row->vector) {
        item.dims[0] = row->experts;
        item.dims[1] = row->rows;
    } else if (joined) {
        item.dims[0] = row->experts * row->rows;
        item.matrices = row->experts;
    } else if (row->of_channels) {
        item.matrices = (uint32_t)row->rows;
    }
    char name[128];
    pl_model_expert_name(row, layer, which, name);
    snprintf(item.name, sizeof item.name, "%s", name);
    return item;
}

uint32_t pl_window_shape(const struct pl_window *w, uint64_t out[3]) {
    uint32_t n = 0;
    if (w->folded) {
        out[0] = w->dims[0] / w->folded;
        out[1] = w->dims[1] * w->folded;
        return 2;
    }
    if (w->matrices) out[n++] = w->matrices;
    out[n++] = w->dims[0] / (w->matrices ? w->matrices : 1);
    if (w->rank == 2) out[n++] = w->dims[1];
    return n;
}

bool pl_window_fits(const struct pl_window *w, const struct pl_st_entry *e,
                    char wanted[PL_ST_SHAPE_TEXT]) {
    uint64_t dims[3];
    const uint32_t rank = pl_window_shape(w, dims);
    pl_st_shape_text(rank, dims, wanted);
    return e->rank == rank && memcmp(e->dims, dims, rank * sizeof *dims) == 0;
}

/* The tensors of a program that hold a weight, for its windows. */
struct holder {
    uint32_t id, master, absmax, absmax8;
};

static struct holder holder_of(const struct pl_program *p, uint32_t id) {
    const bool codes = p->tensors[id].role == PL_ROLE_CODES;
    return (struct holder){.id = id,
                           .master = find_of(p, PL_ROLE_MASTER, id),
                           .absmax = codes ? find_of(p, PL_ROLE_ABSMAX, id) : PL_NONE,
                           .absmax8 = codes ? find_of(p, PL_ROLE_ABSMAX8, id) : PL_NONE};
}

static struct pl_window weight_window(const struct pl_program *p, const struct holder *h,
                                      uint32_t r, const struct pl_param_row *row, uint32_t which) {
    const struct pl_tensor *t = &p->tensors[h->id];
    struct pl_window item = pl_window_of_row(row, t->layer, which);
    item.tensor = h->id;
    item.row = r;
    item.master = h->master;
    item.quantised = t->role == PL_ROLE_CODES;
    item.quant = p->shape.quant;
    item.absmax = h->absmax;
    item.absmax8 = h->absmax8;
    return item;
}

/* The row of a module in the files of the model: a tied head as the embedding. */
static uint32_t row_in_files(const struct pl_program *p, const struct pl_param_row *rows,
                             uint32_t r) {
    if (!p->model->tied || rows[r].slot != PL_SLOT_HEAD) return r;
    for (r = 0; rows[r].slot != PL_SLOT_EMBED; r++)
        continue;
    return r;
}

/* The tensors of the files that a tensor with the matrices, or vectors, of all experts of a layer
 * is made of. */
static pl_err add_experts(struct pl_windows *w, const struct pl_program *p, uint32_t id,
                          struct pl_diag *d) {
    const struct pl_tensor *t = &p->tensors[id];
    const struct holder holder = holder_of(p, id);
    struct pl_param_row rows[PL_MODEL_SLOT_ROWS];
    uint32_t index[PL_MODEL_SLOT_ROWS];
    const uint32_t n = pl_model_slot_rows(p->model, t->layer, t->slot, rows, index);
    for (uint32_t i = 0; i < n; i++) {
        const bool codes = t->role == PL_ROLE_CODES; /* of one row alone */
        if (rows[i].module_only || (codes && index[i] != t->row)) continue;
        const uint64_t own = t->dims[0] / rows[i].experts;
        for (uint32_t e = 0; e < pl_model_row_tensors(&rows[i]); e++)
            PL_TRY(add_window(w, p, weight_window(p, &holder, index[i], &rows[i], e),
                              codes ? 0 : e * own + rows[i].row0, d));
    }
    return PL_ERR_OK;
}

static pl_err add_weight(struct pl_windows *w, const struct pl_program *p, uint32_t id,
                         const struct pl_param_row *rows, struct pl_diag *d) {
    struct pl_part parts[PL_MAX_PARTS];
    if (experts_of(p, id)) return add_experts(w, p, id, d);
    const struct holder holder = holder_of(p, id);
    uint32_t n = pl_tensor_parts(p, id, parts);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t r = row_in_files(p, rows, parts[i].row);
        const struct pl_param_row own = row_in(p, id, &rows[r]);
        PL_TRY(add_window(w, p, weight_window(p, &holder, r, &own, 0), parts[i].row0, d));
    }
    return PL_ERR_OK;
}

pl_err pl_windows_add_model(struct pl_windows *w, const struct pl_program *p, struct pl_diag *d) {
    struct pl_param_row rows[PL_MODEL_MAX_ROWS];
    uint32_t n_rows = pl_model_modules(p->model, rows);
    for (uint32_t id = 0; id < p->n_tensors; id++) {
        const struct pl_tensor *t = &p->tensors[id];
        if (t->role != PL_ROLE_WEIGHT && t->role != PL_ROLE_CODES) continue;
        if (t->role == PL_ROLE_CODES && t->row >= n_rows)
            return layout_error(p, id, "a quantised matrix", d);
        PL_TRY(add_weight(w, p, id, rows, d));
    }
    return PL_ERR_OK;
}

/* PEFT: base_model.model.<module path>.lora_A.weight; the path of a module is the name of its
 * weight without the last component, and that of a parameter is the module that holds it. */
static void adapter_name(const struct pl_param_row *row, uint64_t layer, uint32_t which,
                         bool inside, char letter, char out[PL_WINDOW_NAME]) {
    char name[128];
    pl_model_expert_name(row, layer, which, name);
    char *end = strrchr(name, '.');
    if (end) *end = 0;
    if (row->slot == PL_SLOT_EMBED)
        snprintf(out, PL_WINDOW_NAME, "base_model.model.%s.lora_embedding_%c", name, letter);
    else
        snprintf(out, PL_WINDOW_NAME, "base_model.model.%s.%slora_%c.weight", name,
                 inside ? "base_layer." : "", letter);
}

/* PEFT wraps the module that holds the parameters once for each of them, in the order of the class,
 * so that the last one is outside. */
static bool is_inside(const struct pl_model *m, const struct pl_param_row *row, uint64_t layer,
                      pl_row_set adapted) {
    struct pl_param_row rows[PL_MODEL_SLOT_ROWS];
    uint32_t index[PL_MODEL_SLOT_ROWS];
    bool inside = false;
    if (!pl_row_is_parameter(row) || row->slot != PL_SLOT_EXPERT_GU) return false;
    const uint32_t n = pl_model_slot_rows(m, layer, PL_SLOT_EXPERT_DOWN, rows, index);
    for (uint32_t i = 0; i < n; i++)
        inside |= pl_row_is_parameter(&rows[i]) && pl_row_set_has(adapted, index[i]);
    return inside;
}

/* A of an embedding is [r,V] and B is [C,r]: its input counts tokens. The A of all E experts of a
 * parameter lie one after another, [E r, in]; the columns of their B are in the order of ranks,
 * [out, r E], which is [out r, E] turned round of ours. */
struct pl_window pl_window_of_adapter(const struct pl_model *m, const struct pl_param_row *row,
                                      uint64_t layer, uint32_t which, pl_row_set adapted,
                                      uint64_t r, char letter) {
    struct pl_slot_shape shape;
    pl_model_slot(m, layer, row->slot, &shape);
    const bool swapped = row->slot == PL_SLOT_EMBED || shape.turned, a = letter == 'A';
    const uint64_t in = swapped ? row->rows : row->cols, out = swapped ? row->cols : row->rows;
    const bool joined = pl_row_is_parameter(row);
    struct pl_window w = {.tensor = PL_NONE,
                          .which = which,
                          .master = PL_NONE,
                          .rank = 2,
                          .finite = true,
                          .turned = a ? row->slot == PL_SLOT_EMBED : joined,
                          .folded = !a && joined ? (uint32_t)r : 0,
                          .dims = {a ? r : out, a ? in : r}};
    if (joined) w.dims[0] *= a ? row->experts : r;
    if (joined && !a) w.dims[1] = row->experts;
    adapter_name(row, layer, which, is_inside(m, row, layer, adapted), letter, w.name);
    return w;
}

static struct pl_window adapter_window(const struct pl_program *p, uint32_t id,
                                       const struct pl_param_row *row, uint32_t r, uint32_t which) {
    const struct pl_tensor *t = &p->tensors[id];
    const pl_row_set adapted = pl_shape_adapted_rows(&p->shape, t->layer);
    struct pl_window w =
        pl_window_of_adapter(p->model, row, t->layer, which, adapted, p->shape.lora_r,
                             t->role == PL_ROLE_LORA_A ? 'A' : 'B');
    w.tensor = id;
    w.row = r;
    w.master = find_of(p, PL_ROLE_MASTER, id);
    return w;
}

/* The A of the parts of an expert lie one after another, and then those of the next expert. */
static pl_err add_expert_adapters(struct pl_windows *w, const struct pl_program *p, uint32_t id,
                                  struct pl_diag *d) {
    const struct pl_tensor *t = &p->tensors[id];
    const pl_row_set adapted = pl_shape_adapted_rows(&p->shape, t->layer);
    struct pl_param_row rows[PL_MODEL_SLOT_ROWS];
    uint32_t index[PL_MODEL_SLOT_ROWS], part = 0;
    const uint32_t n = pl_model_slot_rows(p->model, t->layer, t->slot, rows, index);
    for (uint32_t i = 0; i < n; i++) {
        const bool a = t->role == PL_ROLE_LORA_A;
        if (!pl_row_set_has(adapted, index[i]) || (!a && t->row != index[i])) continue;
        const uint64_t own = t->dims[0] / rows[i].experts, row0 = part++ * p->shape.lora_r;
        for (uint32_t e = 0; e < pl_model_row_tensors(&rows[i]); e++)
            PL_TRY(add_window(w, p, adapter_window(p, id, &rows[i], index[i], e),
                              e * own + (a ? row0 : 0), d));
    }
    return PL_ERR_OK;
}

void pl_window_whole_name(const struct pl_param_row *row, char out[PL_WINDOW_NAME]) {
    snprintf(out, PL_WINDOW_NAME, "base_model.model.%s", row->suffix);
}

/* Such a slot has one part. */
static pl_err add_whole(struct pl_windows *w, const struct pl_program *p, uint32_t id,
                        const struct pl_param_row *rows, struct pl_diag *d) {
    struct pl_part part[PL_MAX_PARTS];
    pl_tensor_parts(p, id, part);
    const struct holder holder = holder_of(p, id);
    struct pl_window item = weight_window(p, &holder, part->row, &rows[part->row], 0);
    pl_window_whole_name(&rows[part->row], item.name);
    item.finite = true;
    return add_window(w, p, item, 0, d);
}

pl_err pl_windows_add_adapter(struct pl_windows *w, const struct pl_program *p, struct pl_diag *d) {
    struct pl_param_row rows[PL_MODEL_MAX_ROWS];
    struct pl_part parts[PL_MAX_PARTS];
    uint32_t n_rows = pl_model_modules(p->model, rows);
    for (uint32_t id = 0; id < p->n_tensors; id++) {
        const struct pl_tensor *t = &p->tensors[id];
        if (t->role == PL_ROLE_WEIGHT && pl_shape_is_whole(&p->shape, p->model, t->slot))
            PL_TRY(add_whole(w, p, id, rows, d));
        if (t->role != PL_ROLE_LORA_A && t->role != PL_ROLE_LORA_B) continue;
        if (experts_of(p, id)) {
            PL_TRY(add_expert_adapters(w, p, id, d));
            continue;
        }
        uint64_t held = 0;
        uint32_t n = pl_tensor_parts(p, id, parts);
        for (uint32_t i = 0; i < n; i++) {
            const uint32_t r = parts[i].row;
            if (r >= n_rows) return layout_error(p, id, "a LoRA matrix", d);
            const struct pl_param_row own = row_in(p, id, &rows[r]);
            PL_TRY(add_window(w, p, adapter_window(p, id, &own, r, 0), parts[i].row0, d));
            held += parts[i].rows;
        }
        if (held != t->dims[0]) return layout_error(p, id, "a stack of LoRA matrices", d);
    }
    return PL_ERR_OK;
}

/* True if `t` is kept for a window: for its whole tensor, or for the part that the window is, or is
 * in: the experts of a layer are one part, in whose states each of them has whole blocks. */
static bool is_state_of(const struct pl_program *p, const struct pl_tensor *t,
                        const struct pl_window *w) {
    if (t->role < PL_ROLE_STATE || t->role > PL_ROLE_MASTER || t->of != w->tensor) return false;
    return !pl_state_is_of_part(&p->shape, t->role) || t->row == w->row || experts_of(p, w->tensor);
}

static pl_err add_state(struct pl_windows *w, const struct pl_program *p,
                        const struct pl_window *base, uint32_t id, struct pl_diag *d) {
    struct pl_window item = *base;
    const struct pl_tensor *t = &p->tensors[id];
    uint64_t cols = item.rank == 2 ? item.dims[1] : 1;
    const bool of_part = pl_state_is_of_part(&p->shape, t->role) && !experts_of(p, item.tensor);
    uint64_t row0 = cols && !of_part ? item.first / cols : 0;
    const size_t length = strlen(item.name);
    item.tensor = id;
    item.master = PL_NONE;
    snprintf(item.name + length, sizeof item.name - length, ".%s", t->name);
    if (t->role == PL_ROLE_STATE_ABSMAX) {
        const uint64_t all = p->tensors[t->of].dims[0] * p->tensors[t->of].dims[1];
        const bool whole = of_part || item.count == all;
        item.rank = 1;
        row0 = whole ? 0 : item.first / PL_STATE8_BLOCK;
        item.dims[0] = whole ? t->dims[0] : item.count / PL_STATE8_BLOCK;
        item.dims[1] = 1;
        item.matrices = item.folded = 0;
        item.turned = false;
    }
    return add_window(w, p, item, row0, d);
}

/* The program has states in the order of files: the kinds one after another. */
pl_err pl_windows_add_states(struct pl_windows *w, const struct pl_windows *base,
                             const struct pl_program *p, struct pl_diag *d) {
    for (uint32_t i = 0; i < base->n; i++)
        for (uint32_t id = 0; id < p->n_tensors; id++)
            if (is_state_of(p, &p->tensors[id], &base->items[i]))
                PL_TRY(add_state(w, p, &base->items[i], id, d));
    return PL_ERR_OK;
}

void pl_windows_finish(struct pl_windows *w) {
    free(w->items);
    *w = (struct pl_windows){0};
}

uint64_t pl_window_columns(const struct pl_window *w, uint64_t elements) {
    return pl_u64_min(elements / w->dims[0], w->dims[1]);
}
