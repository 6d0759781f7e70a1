/* windows.c - the lists: base model, adapter, optimizer states. */
#include "runtime/checkpoint/windows.h"
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

static bool tensor_elements(const struct pl_tensor *t, uint64_t *out) {
    return pl_u64_mul(t->dims[0], t->dims[1], out) && pl_u64_mul(*out, t->dims[2], out);
}

pl_err pl_windows_append(struct pl_windows *w, const struct pl_window *item, struct pl_diag *d) {
    if (w->n == w->cap) {
        uint32_t cap = w->cap ? 2 * w->cap : 64;
        struct pl_window *items = realloc(w->items, cap * sizeof *items);
        if (!items) return pl_host_oom(d, "the list of tensors");
        w->items = items;
        w->cap = cap;
    }
    w->items[w->n++] = *item;
    return PL_ERR_OK;
}

/* A window of whole rows [row0, row0+rows) of tensor `id`. */
static pl_err add_window(struct pl_windows *w, const struct pl_program *p, struct pl_window item,
                         uint64_t row0, struct pl_diag *d) {
    uint64_t cols = item.rank == 2 ? item.dims[1] : 1, end, elements;
    if (!pl_u64_mul(row0, cols, &item.first) || !pl_u64_mul(item.dims[0], cols, &item.count) ||
        !pl_u64_add(item.first, item.count, &end) ||
        !tensor_elements(&p->tensors[item.tensor], &elements) || end > elements)
        return layout_error(p, item.tensor, item.name, d);
    item.dtype = p->tensors[item.tensor].dtype;
    return pl_windows_append(w, &item, d);
}

static uint32_t find_of(const struct pl_program *p, enum pl_role role, uint32_t of) {
    for (uint32_t i = 0; i < p->n_tensors; i++)
        if (p->tensors[i].role == role && p->tensors[i].of == of) return i;
    return PL_NONE;
}

pl_err pl_windows_add_model(struct pl_windows *w, const struct pl_program *p, struct pl_diag *d) {
    struct pl_param_row rows[PL_MODEL_MAX_ROWS];
    uint32_t n_rows = pl_model_rows(p->model, rows);
    for (uint32_t id = 0; id < p->n_tensors; id++) {
        const struct pl_tensor *t = &p->tensors[id];
        if (t->role != PL_ROLE_WEIGHT) continue;
        uint32_t master = find_of(p, PL_ROLE_MASTER, id);
        for (uint32_t r = 0; r < n_rows; r++) {
            if (rows[r].slot != t->slot) continue;
            struct pl_window item = {.tensor = id,
                                     .row = r,
                                     .master = master,
                                     .rank = rows[r].vector ? 1 : 2,
                                     .dims = {rows[r].rows, rows[r].cols}};
            char name[128];
            pl_model_row_name(&rows[r], t->layer, name);
            snprintf(item.name, sizeof item.name, "%s", name);
            PL_TRY(add_window(w, p, item, rows[r].row0, d));
        }
    }
    return PL_ERR_OK;
}

/* PEFT: base_model.model.<module path>.lora_A.weight; the module path is the weight's name without
 * its last component. */
void pl_window_adapter_name(const struct pl_param_row *row, uint64_t layer, char which,
                            char out[PL_WINDOW_NAME]) {
    char name[128];
    pl_model_row_name(row, layer, name);
    char *end = strrchr(name, '.');
    if (end) *end = 0;
    snprintf(out, PL_WINDOW_NAME, "base_model.model.%s.lora_%c.weight", name, which);
}

static pl_err add_adapter_part(struct pl_windows *w, const struct pl_program *p, uint32_t id,
                               const struct pl_param_row *rows, uint32_t r, uint64_t row0,
                               struct pl_diag *d) {
    const struct pl_tensor *t = &p->tensors[id];
    bool a = t->role == PL_ROLE_LORA_A;
    struct pl_window item = {
        .tensor = id,
        .row = r,
        .master = find_of(p, PL_ROLE_MASTER, id),
        .rank = 2,
        .dims = {a ? p->shape.lora_r : rows[r].rows, a ? rows[r].cols : p->shape.lora_r}};
    pl_window_adapter_name(&rows[r], t->layer, a ? 'A' : 'B', item.name);
    return add_window(w, p, item, row0, d);
}

/* The A matrices of the targeted rows of a slot are stacked in row order. */
static pl_err add_stacked_a(struct pl_windows *w, const struct pl_program *p, uint32_t id,
                            const struct pl_param_row *rows, uint32_t n_rows, struct pl_diag *d) {
    uint64_t row0 = 0;
    for (uint32_t r = 0; r < n_rows; r++) {
        if (rows[r].slot != p->tensors[id].slot || !(p->shape.lora_targets >> r & 1)) continue;
        PL_TRY(add_adapter_part(w, p, id, rows, r, row0, d));
        row0 += p->shape.lora_r;
    }
    if (row0 != p->tensors[id].dims[0]) return layout_error(p, id, "a stack of LoRA matrices", d);
    return PL_ERR_OK;
}

pl_err pl_windows_add_adapter(struct pl_windows *w, const struct pl_program *p, struct pl_diag *d) {
    struct pl_param_row rows[PL_MODEL_MAX_ROWS];
    uint32_t n_rows = pl_model_rows(p->model, rows);
    for (uint32_t id = 0; id < p->n_tensors; id++) {
        const struct pl_tensor *t = &p->tensors[id];
        if (t->role == PL_ROLE_LORA_A) PL_TRY(add_stacked_a(w, p, id, rows, n_rows, d));
        if (t->role != PL_ROLE_LORA_B) continue;
        if (t->row >= n_rows) return layout_error(p, id, "a LoRA matrix", d);
        PL_TRY(add_adapter_part(w, p, id, rows, t->row, 0, d));
    }
    return PL_ERR_OK;
}

static const struct {
    enum pl_role role;
    const char *suffix; /* PyTorch's names of the states */
} state_kinds[] = {
    {PL_ROLE_MOMENT1, ".exp_avg"},
    {PL_ROLE_MOMENT2, ".exp_avg_sq"},
    {PL_ROLE_MASTER, ".master"},
};

pl_err pl_windows_add_states(struct pl_windows *w, const struct pl_windows *base,
                             const struct pl_program *p, struct pl_diag *d) {
    for (uint32_t i = 0; i < base->n; i++) {
        for (size_t k = 0; k < sizeof state_kinds / sizeof *state_kinds; k++) {
            struct pl_window item = base->items[i];
            item.tensor = find_of(p, state_kinds[k].role, item.tensor);
            if (item.tensor == PL_NONE) continue;
            uint64_t cols = item.rank == 2 ? item.dims[1] : 1;
            strncat(item.name, state_kinds[k].suffix, sizeof item.name - strlen(item.name) - 1);
            item.master = PL_NONE;
            PL_TRY(add_window(w, p, item, cols ? item.first / cols : 0, d));
        }
    }
    return PL_ERR_OK;
}

void pl_windows_finish(struct pl_windows *w) {
    free(w->items);
    *w = (struct pl_windows){0};
}
