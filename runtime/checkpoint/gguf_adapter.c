#include "estimator/base/alloc.h"
#include "estimator/base/checked.h"
#include "estimator/model/families.h"
#include "runtime/checkpoint/durable.h"
#include "runtime/checkpoint/gguf_adapter.h"
#include "runtime/checkpoint/gguf_names.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GGUF_VERSION = 3 };

/* enum ggml_type, and llama.cpp's file type of files that hold nothing else */
static const struct {
    enum pl_dtype dtype;
    uint32_t ggml, file;
} types[] = {{PL_DTYPE_F32, 0, 0}, {PL_DTYPE_F16, 1, 1}, {PL_DTYPE_BF16, 30, 32}};

static size_t type_index(enum pl_dtype dtype) {
    size_t i = 0;
    while (i + 1 < sizeof types / sizeof *types && types[i].dtype != dtype)
        i++;
    return i;
}

static void put_int(struct pl_text *out, uint64_t v, int bytes) {
    char b[8];
    for (int i = 0; i < bytes; i++)
        b[i] = (char)(unsigned char)(v >> 8 * i);
    pl_text_addn(out, b, (size_t)bytes);
}

static void put_string(struct pl_text *out, const char *s) {
    put_int(out, strlen(s), 8);
    pl_text_add(out, s);
}

static void put_value(struct pl_text *out, const struct pl_gguf_setting *v) {
    float real = (float)v->number;
    uint32_t bits = (uint32_t)v->number;
    put_string(out, v->key);
    put_int(out, v->text ? PL_GGUF_STRING : v->real ? PL_GGUF_FLOAT32 : PL_GGUF_UINT32, 4);
    if (v->text) {
        put_string(out, v->text);
        return;
    }
    if (v->real) memcpy(&bits, &real, sizeof bits);
    put_int(out, bits, 4);
}

static uint64_t tensor_bytes(const struct pl_gguf_tensor *t) {
    return t->ne[0] * t->ne[1] * pl_dtype_bytes(t->dtype);
}

static uint64_t padding(uint64_t bytes) {
    return (PL_GGUF_ALIGN - bytes % PL_GGUF_ALIGN) % PL_GGUF_ALIGN;
}

static const char zeros[PL_GGUF_ALIGN];

pl_err pl_gguf_add_header(const struct pl_gguf_setting *values, uint64_t n_values,
                          const struct pl_gguf_tensor *tensors, uint64_t n_tensors,
                          struct pl_text *out, struct pl_diag *d) {
    uint64_t offset = 0;
    pl_text_add(out, "GGUF");
    put_int(out, GGUF_VERSION, 4);
    put_int(out, n_tensors, 8);
    put_int(out, n_values, 8);
    for (uint64_t i = 0; i < n_values; i++)
        put_value(out, &values[i]);
    for (uint64_t i = 0; i < n_tensors; i++) {
        const struct pl_gguf_tensor *t = &tensors[i];
        put_string(out, t->name);
        put_int(out, 2, 4);
        put_int(out, t->ne[0], 8);
        put_int(out, t->ne[1], 8);
        put_int(out, types[type_index(t->dtype)].ggml, 4);
        put_int(out, offset, 8);
        offset += tensor_bytes(t) + padding(tensor_bytes(t));
    }
    pl_text_addn(out, zeros, padding(out->len));
    return out->failed ? pl_host_oom(d, "the header of a GGUF file") : PL_ERR_OK;
}

struct export {
    const struct pl_merge_files *files;
    const struct pl_model *model;
    const struct pl_merge_work *work;
    struct pl_param_row rows[PL_MODEL_MAX_ROWS];
    struct pl_gguf_tensor *tensors; /* owned; those of files->matrices */
    enum pl_dtype dtype;
};

/* `name`: of what GGUF has no name for. A tied head has none of its own: llama.cpp multiplies by
 * token_embd there, and an adapter of it would change the embedding as well. */
static pl_err refuse_name(const char *name, bool shared, struct pl_diag *d) {
    pl_diag_set(d, PL_ERR_MODEL_UNSUPPORTED, "GGUF has no name for %s%s", name,
                shared ? ": the head of this model is its embedding, and an adapter of such a head "
                         "cannot be written as GGUF"
                       : "");
    pl_diag_hint(d, "merge the adapter into a model directory, without --gguf");
    return PL_ERR_MODEL_UNSUPPORTED;
}

static pl_err name_tensors(struct export *x, struct pl_diag *d) {
    const struct pl_windows *w = &x->files->matrices;
    pl_model_modules(x->model, x->rows);
    x->tensors = pl_calloc(w->n, sizeof *x->tensors);
    if (!x->tensors) return pl_host_oom(d, "the list of tensors");
    for (uint32_t i = 0; i < w->n; i++) {
        const struct pl_window *item = &w->items[i];
        char name[PL_GGUF_MODULE];
        const struct pl_param_row *row = &x->rows[item->row];
        const bool shared = x->model->tied && row->slot == PL_SLOT_HEAD; /* with token_embd */
        /* Matrices are listed layer by layer, so the layer stands in the window's name alone. */
        const char *at = strstr(item->name, "layers.");
        const uint64_t layer = at ? strtoull(at + strlen("layers."), NULL, 10) : 0;
        if (shared || !pl_gguf_module_name(row, layer, name))
            return refuse_name(item->name, shared, d);
        snprintf(x->tensors[i].name, sizeof x->tensors[i].name, "%s.weight.lora_%c", name,
                 i % 2 ? 'b' : 'a');
        x->tensors[i].dtype = x->dtype;
        x->tensors[i].ne[0] = item->dims[1];
        x->tensors[i].ne[1] = item->dims[0];
    }
    return PL_ERR_OK;
}

/* Heads whose rows are interleaved (G3); 0 = rows keep their places. */
static uint64_t permuted_heads(const struct export *x, const struct pl_param_row *row) {
    if (!pl_family_get(x->model->family)->gguf_interleaves) return 0;
    if (strcmp(row->module, "q_proj") == 0) return x->model->heads;
    return strcmp(row->module, "k_proj") == 0 ? x->model->kv_heads : 0;
}

/* Row 2i+j of a head comes from row i of its half j. */
static uint64_t source_row(uint64_t row, uint64_t head_rows) {
    uint64_t in_head = row % head_rows;
    return row - in_head + in_head % 2 * (head_rows / 2) + in_head / 2;
}

static pl_err put_matrix(const struct export *x, uint32_t i, struct pl_outbox *o,
                         struct pl_diag *d) {
    const struct pl_window *w = &x->files->matrices.items[i];
    struct pl_merge_buffers buffers = x->work->buffers(x->work->ctx, PL_NONE, 0);
    uint64_t heads = i % 2 ? permuted_heads(x, &x->rows[w->row]) : 0;
    uint64_t rows = w->dims[0], cols = w->dims[1], size = pl_dtype_bytes(x->dtype);
    PL_TRY(pl_window_values(w, 0, w->count, &buffers, buffers.values, d));
    for (uint64_t row = 0; row < rows; row++) {
        uint64_t from = heads ? source_row(row, rows / heads) : row;
        PL_TRY(pl_window_round(w, x->dtype, buffers.values + from * cols, from * cols, cols,
                               (char *)buffers.raw + row * cols * size, d));
    }
    uint64_t bytes = w->count * size;
    PL_TRY(pl_outbox_write(o, buffers.raw, bytes, d));
    PL_TRY(pl_outbox_write(o, zeros, padding(bytes), d));
    return x->work->advance(x->work->ctx, bytes, d);
}

static pl_err put_file(const struct export *x, struct pl_outbox *o, const char *name,
                       struct pl_diag *d) {
    const struct pl_adapter_config *c = &x->files->config;
    const struct pl_gguf_setting values[] = {
        {.key = "general.architecture", .text = pl_family_get(x->model->family)->gguf},
        {.key = "general.type", .text = "adapter"},
        {.key = "adapter.type", .text = "lora"},
        {.key = "adapter.lora.alpha", .real = true, .number = c->scale * (double)c->r},
        {.key = "general.file_type", .number = types[type_index(x->dtype)].file},
        {.key = "general.quantization_version", .number = 2},
    };
    struct pl_text header = {0};
    uint32_t n = x->files->matrices.n;
    pl_err err =
        pl_gguf_add_header(values, sizeof values / sizeof *values, x->tensors, n, &header, d);
    if (err == PL_ERR_OK) err = pl_outbox_open(o, name, d);
    if (err == PL_ERR_OK) err = pl_outbox_write(o, header.data, header.len, d);
    for (uint32_t i = 0; i < n && err == PL_ERR_OK; i++)
        err = put_matrix(x, i, o, d);
    if (err == PL_ERR_OK) err = pl_outbox_close(o, d);
    pl_text_finish(&header);
    return err;
}

/* llama.cpp adds products to matrices of a model, and replaces none. */
static pl_err check_pairs(const struct pl_merge_files *f, struct pl_diag *d) {
    if (f->pairs == f->matrices.n) return PL_ERR_OK;
    pl_diag_set(d, PL_ERR_MODEL_UNSUPPORTED,
                "a GGUF adapter cannot hold `%s`, a module trained whole",
                f->matrices.items[f->pairs].name);
    pl_diag_hint(d, "merge the adapter into its base, and convert the model");
    return PL_ERR_MODEL_UNSUPPORTED;
}

pl_err pl_gguf_write_adapter(const struct pl_merge_files *f, const struct pl_model *m,
                             const struct pl_merge_work *work, const char *path,
                             enum pl_dtype dtype, struct pl_diag *d) {
    struct export x = {.files = f, .model = m, .work = work, .dtype = dtype};
    struct pl_outbox o = {0};
    const char *name;
    pl_err err = check_pairs(f, d);
    if (err != PL_ERR_OK) goto out;
    PL_TRY_GOTO(name_tensors(&x, d), out);
    PL_TRY_GOTO(pl_outbox_init_file(&o, path, &name, d), out);
    PL_TRY_GOTO(put_file(&x, &o, name, d), out);
    err = pl_outbox_commit(&o, d);
out:
    pl_outbox_finish(&o);
    free(x.tensors);
    return err;
}
