/* rows.c - the slots a program computes with, the rows of them that files hold, and exact counts.
 * Both are tables over symbolic extents, so a family's layout is data, not code. */
#include "estimator/model/model.h"

#include <stdio.h>

/* Extents: products of model sizes, each below 2^22 but for V, 2^24 (see families.h), so sums and
 * products of two of them stay far below 2^64. */
enum extent { X_ZERO, X_ONE, X_V, X_C, X_Q, X_K, X_QK, X_QKV, X_D, X_F, X_2F };

/* A switch: programs of large models ask for thousands of extents. */
static uint64_t extent(const struct pl_model *m, enum extent x) {
    const uint64_t q = m->heads * m->head_dim, k = m->kv_heads * m->head_dim;
    switch (x) {
    case X_ZERO:
        return 0;
    case X_ONE:
        return 1;
    case X_V:
        return m->vocab;
    case X_C:
        return m->hidden;
    case X_Q:
        return q;
    case X_K:
        return k;
    case X_QK:
        return q + k;
    case X_QKV:
        return q + 2 * k;
    case X_D:
        return m->head_dim;
    case X_F:
        return m->ffn;
    case X_2F:
        return 2 * m->ffn;
    }
    return 0;
}

enum condition {
    IF_ALWAYS,
    IF_QKV_BIAS,
    IF_O_BIAS,
    IF_MLP_BIAS,
    IF_QK_NORM,
    IF_UNTIED,
    IF_POST_NORMS,
    IF_PRE_NORMS_ONLY,
    IF_SPLIT,
    IF_FUSED
};

static bool holds(const struct pl_model *m, enum condition c) {
    switch (c) {
    case IF_ALWAYS:
        return true;
    case IF_QKV_BIAS:
        return m->qkv_bias;
    case IF_O_BIAS:
        return m->o_bias;
    case IF_MLP_BIAS:
        return m->mlp_bias;
    case IF_QK_NORM:
        return m->qk_norm;
    case IF_UNTIED:
        return !m->tied;
    case IF_POST_NORMS:
        return m->post_norms;
    case IF_PRE_NORMS_ONLY:
        return !m->post_norms;
    case IF_SPLIT:
        return m->family != PL_FAMILY_PHI3;
    case IF_FUSED:
        return m->family == PL_FAMILY_PHI3;
    }
    return false;
}

static const struct {
    const char *name;
    enum condition when;
    bool per_layer, vector, linear; /* linear: a decoder matrix, not embedding or head */
    enum extent rows, cols;
} slots[PL_SLOT_COUNT] = {
    [PL_SLOT_EMBED] = {"embed", IF_ALWAYS, false, false, false, X_V, X_C},
    [PL_SLOT_NORM1] = {"norm1", IF_ALWAYS, true, true, false, X_C, X_ONE},
    [PL_SLOT_QKV] = {"qkv", IF_ALWAYS, true, false, true, X_QKV, X_C},
    [PL_SLOT_QKV_B] = {"qkv_b", IF_QKV_BIAS, true, true, false, X_QKV, X_ONE},
    [PL_SLOT_QNORM] = {"qnorm", IF_QK_NORM, true, true, false, X_D, X_ONE},
    [PL_SLOT_KNORM] = {"knorm", IF_QK_NORM, true, true, false, X_D, X_ONE},
    [PL_SLOT_O] = {"o", IF_ALWAYS, true, false, true, X_C, X_Q},
    [PL_SLOT_O_B] = {"o_b", IF_O_BIAS, true, true, false, X_C, X_ONE},
    [PL_SLOT_POST1] = {"post1", IF_POST_NORMS, true, true, false, X_C, X_ONE},
    [PL_SLOT_NORM2] = {"norm2", IF_ALWAYS, true, true, false, X_C, X_ONE},
    [PL_SLOT_GU] = {"gu", IF_ALWAYS, true, false, true, X_2F, X_C},
    [PL_SLOT_GU_B] = {"gu_b", IF_MLP_BIAS, true, true, false, X_2F, X_ONE},
    [PL_SLOT_DOWN] = {"down", IF_ALWAYS, true, false, true, X_C, X_F},
    [PL_SLOT_DOWN_B] = {"down_b", IF_MLP_BIAS, true, true, false, X_C, X_ONE},
    [PL_SLOT_POST2] = {"post2", IF_POST_NORMS, true, true, false, X_C, X_ONE},
    [PL_SLOT_NORMF] = {"normf", IF_ALWAYS, false, true, false, X_C, X_ONE},
    [PL_SLOT_HEAD] = {"head", IF_UNTIED, false, false, false, X_V, X_C},
};

void pl_model_slot(const struct pl_model *m, enum pl_slot s, struct pl_slot_shape *out) {
    *out = (struct pl_slot_shape){
        .name = slots[s].name,
        .present = holds(m, slots[s].when),
        .per_layer = slots[s].per_layer,
        .rows = extent(m, slots[s].rows),
        .cols = extent(m, slots[s].cols),
        .vector = slots[s].vector,
    };
}

/* Rows are in the order of a transformers state dict; columns are the slot's. Phi-3 stores the
 * fused matrices themselves; the other families store their parts. Gemma calls another norm
 * post_attention_layernorm. */
static const struct {
    enum pl_slot slot;
    enum condition when; /* and the slot is present */
    const char *suffix, *module;
    enum extent row0, rows;
} file_rows[] = {
    {PL_SLOT_EMBED, IF_ALWAYS, "model.embed_tokens.weight", "embed_tokens", X_ZERO, X_V},
    {PL_SLOT_QKV, IF_SPLIT, "self_attn.q_proj.weight", "q_proj", X_ZERO, X_Q},
    {PL_SLOT_QKV_B, IF_SPLIT, "self_attn.q_proj.bias", NULL, X_ZERO, X_Q},
    {PL_SLOT_QKV, IF_SPLIT, "self_attn.k_proj.weight", "k_proj", X_Q, X_K},
    {PL_SLOT_QKV_B, IF_SPLIT, "self_attn.k_proj.bias", NULL, X_Q, X_K},
    {PL_SLOT_QKV, IF_SPLIT, "self_attn.v_proj.weight", "v_proj", X_QK, X_K},
    {PL_SLOT_QKV_B, IF_SPLIT, "self_attn.v_proj.bias", NULL, X_QK, X_K},
    {PL_SLOT_QKV, IF_FUSED, "self_attn.qkv_proj.weight", "qkv_proj", X_ZERO, X_QKV},
    {PL_SLOT_O, IF_ALWAYS, "self_attn.o_proj.weight", "o_proj", X_ZERO, X_C},
    {PL_SLOT_O_B, IF_ALWAYS, "self_attn.o_proj.bias", NULL, X_ZERO, X_C},
    {PL_SLOT_QNORM, IF_ALWAYS, "self_attn.q_norm.weight", NULL, X_ZERO, X_D},
    {PL_SLOT_KNORM, IF_ALWAYS, "self_attn.k_norm.weight", NULL, X_ZERO, X_D},
    {PL_SLOT_GU, IF_SPLIT, "mlp.gate_proj.weight", "gate_proj", X_ZERO, X_F},
    {PL_SLOT_GU_B, IF_SPLIT, "mlp.gate_proj.bias", NULL, X_ZERO, X_F},
    {PL_SLOT_GU, IF_SPLIT, "mlp.up_proj.weight", "up_proj", X_F, X_F},
    {PL_SLOT_GU_B, IF_SPLIT, "mlp.up_proj.bias", NULL, X_F, X_F},
    {PL_SLOT_GU, IF_FUSED, "mlp.gate_up_proj.weight", "gate_up_proj", X_ZERO, X_2F},
    {PL_SLOT_DOWN, IF_ALWAYS, "mlp.down_proj.weight", "down_proj", X_ZERO, X_C},
    {PL_SLOT_DOWN_B, IF_ALWAYS, "mlp.down_proj.bias", NULL, X_ZERO, X_C},
    {PL_SLOT_NORM1, IF_ALWAYS, "input_layernorm.weight", NULL, X_ZERO, X_C},
    {PL_SLOT_NORM2, IF_PRE_NORMS_ONLY, "post_attention_layernorm.weight", NULL, X_ZERO, X_C},
    {PL_SLOT_POST1, IF_ALWAYS, "post_attention_layernorm.weight", NULL, X_ZERO, X_C},
    {PL_SLOT_NORM2, IF_POST_NORMS, "pre_feedforward_layernorm.weight", NULL, X_ZERO, X_C},
    {PL_SLOT_POST2, IF_ALWAYS, "post_feedforward_layernorm.weight", NULL, X_ZERO, X_C},
    {PL_SLOT_NORMF, IF_ALWAYS, "model.norm.weight", NULL, X_ZERO, X_C},
    /* the last: pl_model_modules() */
    {PL_SLOT_HEAD, IF_ALWAYS, "lm_head.weight", "lm_head", X_ZERO, X_V},
};
#define N_FILE_ROWS (sizeof file_rows / sizeof *file_rows)
_Static_assert(N_FILE_ROWS <= PL_MODEL_MAX_ROWS, "rows fit the mask");

static struct pl_param_row row_of(const struct pl_model *m, size_t i) {
    const enum pl_slot slot = file_rows[i].slot;
    return (struct pl_param_row){
        .slot = slot,
        .suffix = file_rows[i].suffix,
        .module = file_rows[i].module,
        .per_layer = slots[slot].per_layer,
        .vector = slots[slot].vector,
        .row0 = extent(m, file_rows[i].row0),
        .rows = extent(m, file_rows[i].rows),
        .cols = extent(m, slots[slot].cols),
    };
}

static bool is_in_files(const struct pl_model *m, size_t i) {
    return holds(m, slots[file_rows[i].slot].when) && holds(m, file_rows[i].when);
}

uint32_t pl_model_rows(const struct pl_model *m, struct pl_param_row out[PL_MODEL_MAX_ROWS]) {
    uint32_t n = 0;
    for (size_t i = 0; i < N_FILE_ROWS; i++)
        if (is_in_files(m, i)) out[n++] = row_of(m, i);
    return n;
}

uint32_t pl_model_modules(const struct pl_model *m, struct pl_param_row out[PL_MODEL_MAX_ROWS]) {
    uint32_t n = pl_model_rows(m, out);
    if (m->tied) out[n++] = row_of(m, N_FILE_ROWS - 1);
    return n;
}

uint32_t pl_model_slot_rows(const struct pl_model *m, enum pl_slot slot,
                            struct pl_param_row out[PL_MODEL_SLOT_ROWS],
                            uint32_t index[PL_MODEL_SLOT_ROWS]) {
    uint32_t n = 0, at = 0;
    for (size_t i = 0; i < N_FILE_ROWS; i++) {
        const bool tied = m->tied && i == N_FILE_ROWS - 1;
        if (!tied && !is_in_files(m, i)) continue;
        if (file_rows[i].slot == slot) {
            out[n] = row_of(m, i);
            index[n++] = at;
        }
        at++;
    }
    return n;
}

void pl_model_row_name(const struct pl_param_row *row, uint64_t layer, char buf[128]) {
    if (row->per_layer)
        snprintf(buf, 128, "model.layers.%llu.%s", (unsigned long long)layer, row->suffix);
    else
        snprintf(buf, 128, "%s", row->suffix);
}

static uint64_t count(const struct pl_model *m, bool linear_only) {
    uint64_t total = 0;
    for (int i = 0; i < PL_SLOT_COUNT; i++) {
        struct pl_slot_shape s;
        pl_model_slot(m, (enum pl_slot)i, &s);
        if (!s.present || (linear_only && !slots[i].linear)) continue;
        total += s.rows * s.cols * (s.per_layer ? m->layers : 1);
    }
    return total;
}

uint64_t pl_model_param_count(const struct pl_model *m) {
    return count(m, false);
}
uint64_t pl_model_linear_params(const struct pl_model *m) {
    return count(m, true);
}

uint64_t pl_model_lora_params(const struct pl_model *m, uint32_t mask, uint64_t r,
                              uint64_t first_layer) {
    struct pl_param_row rows[PL_MODEL_MAX_ROWS];
    uint32_t n_rows = pl_model_rows(m, rows);
    uint64_t layers = first_layer < m->layers ? m->layers - first_layer : 0, total = 0;
    for (uint32_t i = 0; i < n_rows; i++) {
        if (mask >> i & 1) total += layers * r * (rows[i].rows + rows[i].cols);
    }
    return total;
}
