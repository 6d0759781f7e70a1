/* rows.c - the slots a program computes with, the rows of them that files hold, and exact counts.
 * Both are tables over symbolic extents, so a family's layout is data, not code. */
#include "estimator/model/model.h"

#include <stdio.h>
#include <string.h>

/* Extents: products of model sizes, each below 2^22 but for V, 2^24 (see families.h), so sums and
 * products of two of them stay far below 2^64. */
enum extent {
    X_ZERO,
    X_ONE,
    X_V,
    X_C,
    X_Q,
    X_QG, /* queries with their gates, where there are some; the next two are with them, too */
    X_K,
    X_QK,
    X_QKV,
    X_D,
    X_F,
    X_2F,
    X_H,
    X_E,
    X_CHANNELS, /* of linear attention; the next ones are rows of its projections, up to each */
    X_UP_TO_Z,
    X_UP_TO_B,
    X_UP_TO_A,
    X_TAPS,
    X_VALUES,
    X_VALUE_DIM,
    X_VALUE_HEADS,
    X_P,
    X_LP,
    X_VP
};

uint64_t pl_model_query_rows(const struct pl_model *m, uint64_t layer) {
    const struct pl_layer *l = &m->layer[layer];
    return (l->kind == PL_LAYER_GATED_ATTENTION ? 2 : 1) * m->heads * l->head_dim;
}

/* A switch: programs of large models ask for thousands of extents. */
static uint64_t extent(const struct pl_model *m, uint64_t layer, enum extent x) {
    const struct pl_layer *l = &m->layer[layer];
    const struct pl_delta *delta = &m->delta;
    const uint64_t q = pl_model_query_rows(m, layer), k = pl_layer_kv_columns(l);
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
        return m->heads * l->head_dim;
    case X_QG:
        return q;
    case X_K:
        return k;
    case X_QK:
        return q + k;
    case X_QKV:
        return q + pl_kind_kv_matrices(l->kind) * k;
    case X_D:
        return l->head_dim;
    case X_F:
        return l->ffn;
    case X_2F:
        return 2 * (uint64_t)l->ffn;
    case X_H:
        return m->heads;
    case X_E:
        return m->experts.n;
    case X_CHANNELS:
        return pl_delta_channels(delta);
    case X_UP_TO_Z:
        return pl_delta_channels(delta) + pl_delta_values(delta);
    case X_UP_TO_B:
        return pl_delta_channels(delta) + pl_delta_values(delta) + delta->value_heads;
    case X_UP_TO_A:
        return pl_delta_channels(delta) + pl_delta_values(delta) + 2 * (uint64_t)delta->value_heads;
    case X_TAPS:
        return delta->taps;
    case X_VALUES:
        return pl_delta_values(delta);
    case X_VALUE_DIM:
        return delta->value_dim;
    case X_VALUE_HEADS:
        return delta->value_heads;
    case X_P:
        return m->layer_input;
    case X_LP:
        return m->layers * m->layer_input;
    case X_VP:
        return m->layer_input_vocab;
    }
    return 0;
}

#define BIT(slot) (UINT64_C(1) << PL_SLOT_##slot)
#define ATTENTION                                                                                  \
    (BIT(NORM1) | BIT(QKV) | BIT(QKV_B) | BIT(QNORM) | BIT(KNORM) | BIT(O) | BIT(O_B) | BIT(SINKS))
#define DENSE_MLP (BIT(NORM2) | BIT(GU) | BIT(GU_B) | BIT(DOWN) | BIT(DOWN_B))
#define EXPERTS                                                                                    \
    (BIT(NORM2) | BIT(ROUTER) | BIT(ROUTER_B) | BIT(EXPERT_GU) | BIT(EXPERT_GU_B) |                \
     BIT(EXPERT_DOWN) | BIT(EXPERT_DOWN_B))
#define DELTA                                                                                      \
    (BIT(NORM1) | BIT(DELTA_DT_BIAS) | BIT(DELTA_A_LOG) | BIT(DELTA_CONV) | BIT(DELTA_NORM) |      \
     BIT(DELTA_OUT) | BIT(DELTA_IN))
#define POST_NORMS (BIT(POST1) | BIT(POST2))
#define SCALED                                                                                     \
    (ATTENTION | DENSE_MLP | POST_NORMS | BIT(SCALAR) | BIT(INPUT_GATE) | BIT(INPUT_OUT) |         \
     BIT(POST3))

/* The slots that a kind of layers has, as far as the facts of the model ask for them. */
static const uint64_t kind_slots[PL_LAYER_KIND_COUNT] = {
    [PL_LAYER_PRE_NORM] = ATTENTION | DENSE_MLP,
    [PL_LAYER_POST_NORM] = ((ATTENTION | DENSE_MLP) & ~(BIT(NORM1) | BIT(NORM2))) | POST_NORMS,
    [PL_LAYER_FOUR_NORM] = ATTENTION | DENSE_MLP | POST_NORMS,
    [PL_LAYER_EXPERTS] = ATTENTION | EXPERTS,
    [PL_LAYER_GATED_ATTENTION] = ATTENTION | DENSE_MLP,
    [PL_LAYER_GATED_DELTA] = DELTA | DENSE_MLP,
    [PL_LAYER_SCALED] = SCALED,
    [PL_LAYER_SCALED_KEYS] = SCALED,
    [PL_LAYER_SCALED_QUERIES] = SCALED & ~BIT(KNORM),
    PL_LAYER_ROWS_OF_A_TEST};
_Static_assert(PL_SLOT_COUNT <= 64, "slots are bits of a word");
_Static_assert((int)PL_LAYER_KIND_COUNT <= PL_LAYER_MAX_KINDS, "kinds are bits of a word");

static bool kind_has(enum pl_layer_kind kind, enum pl_slot slot) {
    return kind_slots[kind] >> slot & 1;
}

enum condition {
    IF_ALWAYS,
    IF_QKV_BIAS,
    IF_O_BIAS,
    IF_MLP_BIAS,
    IF_QK_NORM,
    IF_UNTIED,
    IF_PRE_NORMS_ONLY,
    IF_POST_NORMS,
    IF_SPLIT,
    IF_KEYS,
    IF_VALUES,
    IF_FUSED,
    IF_SINKS,
    IF_EXPERT_BIASES,
    IF_EXPERTS_SPLIT,
    IF_EXPERTS_FUSED,
    IF_LAYER_INPUT,
};

static bool holds(const struct pl_model *m, enum pl_layer_kind kind, enum condition c) {
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
    case IF_PRE_NORMS_ONLY:
        return !kind_has(kind, PL_SLOT_POST1);
    case IF_POST_NORMS:
        return kind_has(kind, PL_SLOT_POST1);
    case IF_SPLIT:
        return m->family != PL_FAMILY_PHI3;
    case IF_KEYS:
        return m->family != PL_FAMILY_PHI3 && pl_kind_kv_matrices(kind) > 0;
    case IF_VALUES:
        return m->family != PL_FAMILY_PHI3 && pl_kind_kv_matrices(kind) > 1;
    case IF_FUSED:
        return m->family == PL_FAMILY_PHI3;
    case IF_SINKS:
        return m->sinks;
    case IF_EXPERT_BIASES:
        return m->experts.biases;
    case IF_EXPERTS_SPLIT:
        return !m->experts.fused;
    case IF_EXPERTS_FUSED:
        return m->experts.fused;
    case IF_LAYER_INPUT:
        return m->layer_input > 0;
    }
    return false;
}

static const struct {
    const char *name;
    enum condition when;
    bool per_layer, vector, linear; /* linear: one of `all-linear` */
    enum extent rows, cols;         /* of one expert, where there are some */
    bool of_experts;
} slots[PL_SLOT_COUNT] = {
    [PL_SLOT_EMBED] = {"embed", IF_ALWAYS, false, false, false, X_V, X_C, false},
    [PL_SLOT_NORM1] = {"norm1", IF_ALWAYS, true, true, false, X_C, X_ONE, false},
    [PL_SLOT_QKV] = {"qkv", IF_ALWAYS, true, false, true, X_QKV, X_C, false},
    [PL_SLOT_QKV_B] = {"qkv_b", IF_QKV_BIAS, true, true, false, X_QKV, X_ONE, false},
    [PL_SLOT_QNORM] = {"qnorm", IF_QK_NORM, true, true, false, X_D, X_ONE, false},
    [PL_SLOT_KNORM] = {"knorm", IF_QK_NORM, true, true, false, X_D, X_ONE, false},
    [PL_SLOT_O] = {"o", IF_ALWAYS, true, false, true, X_C, X_Q, false},
    [PL_SLOT_O_B] = {"o_b", IF_O_BIAS, true, true, false, X_C, X_ONE, false},
    [PL_SLOT_POST1] = {"post1", IF_ALWAYS, true, true, false, X_C, X_ONE, false},
    [PL_SLOT_NORM2] = {"norm2", IF_ALWAYS, true, true, false, X_C, X_ONE, false},
    [PL_SLOT_GU] = {"gu", IF_ALWAYS, true, false, true, X_2F, X_C, false},
    [PL_SLOT_GU_B] = {"gu_b", IF_MLP_BIAS, true, true, false, X_2F, X_ONE, false},
    [PL_SLOT_DOWN] = {"down", IF_ALWAYS, true, false, true, X_C, X_F, false},
    [PL_SLOT_DOWN_B] = {"down_b", IF_MLP_BIAS, true, true, false, X_C, X_ONE, false},
    [PL_SLOT_POST2] = {"post2", IF_ALWAYS, true, true, false, X_C, X_ONE, false},
    [PL_SLOT_NORMF] = {"normf", IF_ALWAYS, false, true, false, X_C, X_ONE, false},
    [PL_SLOT_HEAD] = {"head", IF_UNTIED, false, false, false, X_V, X_C, false},
    [PL_SLOT_SINKS] = {"sinks", IF_SINKS, true, true, false, X_H, X_ONE, false},
    [PL_SLOT_ROUTER] = {"router", IF_ALWAYS, true, false, false, X_E, X_C, false},
    [PL_SLOT_ROUTER_B] = {"router_b", IF_EXPERT_BIASES, true, true, false, X_E, X_ONE, false},
    [PL_SLOT_EXPERT_GU] = {"experts_gu", IF_ALWAYS, true, false, false, X_2F, X_C, true},
    [PL_SLOT_EXPERT_GU_B] = {"experts_gu_b", IF_EXPERT_BIASES, true, true, false, X_2F, X_ONE,
                             true},
    [PL_SLOT_EXPERT_DOWN] = {"experts_down", IF_ALWAYS, true, false, false, X_C, X_F, true},
    [PL_SLOT_EXPERT_DOWN_B] = {"experts_down_b", IF_EXPERT_BIASES, true, true, false, X_C, X_ONE,
                               true},
    [PL_SLOT_DELTA_DT_BIAS] = {"dt_bias", IF_ALWAYS, true, true, false, X_VALUE_HEADS, X_ONE,
                               false},
    [PL_SLOT_DELTA_A_LOG] = {"A_log", IF_ALWAYS, true, true, false, X_VALUE_HEADS, X_ONE, false},
    [PL_SLOT_DELTA_CONV] = {"conv", IF_ALWAYS, true, false, false, X_CHANNELS, X_TAPS, false},
    [PL_SLOT_DELTA_NORM] = {"delta_norm", IF_ALWAYS, true, true, false, X_VALUE_DIM, X_ONE, false},
    [PL_SLOT_DELTA_OUT] = {"delta_out", IF_ALWAYS, true, false, true, X_C, X_VALUES, false},
    [PL_SLOT_DELTA_IN] = {"delta_in", IF_ALWAYS, true, false, true, X_UP_TO_A, X_C, false},
    [PL_SLOT_SCALAR] = {"layer_scalar", IF_ALWAYS, true, true, false, X_ONE, X_ONE, false},
    [PL_SLOT_INPUT_EMBED] = {"input_embed", IF_LAYER_INPUT, false, false, false, X_VP, X_LP, false},
    [PL_SLOT_INPUT_MODEL] = {"input_model", IF_LAYER_INPUT, false, false, true, X_LP, X_C, false},
    [PL_SLOT_INPUT_NORM] = {"input_norm", IF_LAYER_INPUT, false, true, false, X_P, X_ONE, false},
    [PL_SLOT_INPUT_GATE] = {"input_gate", IF_LAYER_INPUT, true, false, true, X_P, X_C, false},
    [PL_SLOT_INPUT_OUT] = {"input_out", IF_LAYER_INPUT, true, false, true, X_C, X_P, false},
    [PL_SLOT_POST3] = {"post3", IF_LAYER_INPUT, true, true, false, X_C, X_ONE, false},
};

/* True if layers of a kind have a slot; one that the model has once is of no kind. */
static bool has_slot(const struct pl_model *m, enum pl_layer_kind kind, enum pl_slot s) {
    return (!slots[s].per_layer || kind_has(kind, s)) && holds(m, kind, slots[s].when);
}

/* Slots that the model has once have the extents of any layer. */
static uint64_t a_layer(uint64_t layer) {
    return layer < PL_MODEL_MAX_LAYERS ? layer : 0;
}

/* Files of gpt_oss hold [in,out]. */
static bool is_turned(const struct pl_model *m, enum pl_slot s) {
    return slots[s].of_experts && !slots[s].vector && m->experts.fused;
}

void pl_model_slot(const struct pl_model *m, uint64_t layer, enum pl_slot s,
                   struct pl_slot_shape *out) {
    layer = a_layer(layer);
    const bool turned = is_turned(m, s);
    const uint64_t rows = extent(m, layer, slots[s].rows), cols = extent(m, layer, slots[s].cols);
    const uint32_t experts = slots[s].of_experts ? m->experts.n : 0;
    *out = (struct pl_slot_shape){
        .name = slots[s].name,
        .present = has_slot(m, m->layer[layer].kind, s),
        .per_layer = slots[s].per_layer,
        .rows = (turned ? cols : rows) * (experts ? experts : 1),
        .cols = turned ? rows : cols,
        .vector = slots[s].vector,
        .buffer = s == PL_SLOT_SCALAR, /* files hold it, and the class has it as no parameter */
        .experts = experts,
        .turned = turned,
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
    {PL_SLOT_INPUT_EMBED, IF_ALWAYS, "model.embed_tokens_per_layer.weight", NULL, X_ZERO, X_VP},
    {PL_SLOT_QKV, IF_SPLIT, "self_attn.q_proj.weight", "q_proj", X_ZERO, X_QG},
    {PL_SLOT_QKV_B, IF_SPLIT, "self_attn.q_proj.bias", NULL, X_ZERO, X_QG},
    {PL_SLOT_QKV, IF_KEYS, "self_attn.k_proj.weight", "k_proj", X_QG, X_K},
    {PL_SLOT_QKV_B, IF_KEYS, "self_attn.k_proj.bias", NULL, X_QG, X_K},
    {PL_SLOT_QKV, IF_VALUES, "self_attn.v_proj.weight", "v_proj", X_QK, X_K},
    {PL_SLOT_QKV_B, IF_VALUES, "self_attn.v_proj.bias", NULL, X_QK, X_K},
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
    {PL_SLOT_SINKS, IF_ALWAYS, "self_attn.sinks", NULL, X_ZERO, X_H},
    {PL_SLOT_ROUTER, IF_EXPERTS_SPLIT, "mlp.gate.weight", NULL, X_ZERO, X_E},
    {PL_SLOT_EXPERT_GU, IF_EXPERTS_SPLIT, "mlp.experts.*.gate_proj.weight", "gate_proj", X_ZERO,
     X_F},
    {PL_SLOT_EXPERT_GU, IF_EXPERTS_SPLIT, "mlp.experts.*.up_proj.weight", "up_proj", X_F, X_F},
    {PL_SLOT_EXPERT_DOWN, IF_EXPERTS_SPLIT, "mlp.experts.*.down_proj.weight", "down_proj", X_ZERO,
     X_C},
    {PL_SLOT_ROUTER, IF_EXPERTS_FUSED, "mlp.router.weight", NULL, X_ZERO, X_E},
    {PL_SLOT_ROUTER_B, IF_ALWAYS, "mlp.router.bias", NULL, X_ZERO, X_E},
    {PL_SLOT_EXPERT_GU, IF_EXPERTS_FUSED, "mlp.experts.gate_up_proj", "gate_up_proj", X_ZERO, X_2F},
    {PL_SLOT_EXPERT_GU_B, IF_ALWAYS, "mlp.experts.gate_up_proj_bias", NULL, X_ZERO, X_2F},
    {PL_SLOT_EXPERT_DOWN, IF_EXPERTS_FUSED, "mlp.experts.down_proj", "down_proj", X_ZERO, X_C},
    {PL_SLOT_EXPERT_DOWN_B, IF_ALWAYS, "mlp.experts.down_proj_bias", NULL, X_ZERO, X_C},
    {PL_SLOT_DELTA_DT_BIAS, IF_ALWAYS, "linear_attn.dt_bias", NULL, X_ZERO, X_VALUE_HEADS},
    {PL_SLOT_DELTA_A_LOG, IF_ALWAYS, "linear_attn.A_log", NULL, X_ZERO, X_VALUE_HEADS},
    {PL_SLOT_DELTA_CONV, IF_ALWAYS, "linear_attn.conv1d.weight", NULL, X_ZERO, X_CHANNELS},
    {PL_SLOT_DELTA_NORM, IF_ALWAYS, "linear_attn.norm.weight", NULL, X_ZERO, X_VALUE_DIM},
    {PL_SLOT_DELTA_OUT, IF_ALWAYS, "linear_attn.out_proj.weight", "out_proj", X_ZERO, X_C},
    {PL_SLOT_DELTA_IN, IF_ALWAYS, "linear_attn.in_proj_qkv.weight", "in_proj_qkv", X_ZERO,
     X_CHANNELS},
    {PL_SLOT_DELTA_IN, IF_ALWAYS, "linear_attn.in_proj_z.weight", "in_proj_z", X_CHANNELS,
     X_VALUES},
    {PL_SLOT_DELTA_IN, IF_ALWAYS, "linear_attn.in_proj_b.weight", "in_proj_b", X_UP_TO_Z,
     X_VALUE_HEADS},
    {PL_SLOT_DELTA_IN, IF_ALWAYS, "linear_attn.in_proj_a.weight", "in_proj_a", X_UP_TO_B,
     X_VALUE_HEADS},
    {PL_SLOT_SCALAR, IF_ALWAYS, "layer_scalar", NULL, X_ZERO, X_ONE},
    {PL_SLOT_INPUT_GATE, IF_ALWAYS, "per_layer_input_gate.weight", "per_layer_input_gate", X_ZERO,
     X_P},
    {PL_SLOT_INPUT_OUT, IF_ALWAYS, "per_layer_projection.weight", "per_layer_projection", X_ZERO,
     X_C},
    {PL_SLOT_POST3, IF_ALWAYS, "post_per_layer_input_norm.weight", NULL, X_ZERO, X_C},
    {PL_SLOT_INPUT_MODEL, IF_ALWAYS, "model.per_layer_model_projection.weight",
     "per_layer_model_projection", X_ZERO, X_LP},
    {PL_SLOT_INPUT_NORM, IF_ALWAYS, "model.per_layer_projection_norm.weight", NULL, X_ZERO, X_P},
    {PL_SLOT_NORMF, IF_ALWAYS, "model.norm.weight", NULL, X_ZERO, X_C},
    /* those that may be modules only come last */
    {PL_SLOT_HEAD, IF_ALWAYS, "lm_head.weight", "lm_head", X_ZERO, X_V},
    {PL_SLOT_EXPERT_GU, IF_EXPERTS_SPLIT, "mlp.experts.gate_up_proj", "gate_up_proj", X_ZERO, X_2F},
    {PL_SLOT_EXPERT_DOWN, IF_EXPERTS_SPLIT, "mlp.experts.down_proj", "down_proj", X_ZERO, X_C},
};
#define N_ROWS (sizeof file_rows / sizeof *file_rows)
enum { ROW_HEAD = N_ROWS - 3, ROW_GATE_UP = N_ROWS - 2, ROW_DOWN = N_ROWS - 1 };
_Static_assert(N_ROWS <= PL_MODEL_MAX_ROWS, "rows are bits of a set");

/* The parameters in which transformers holds all experts of a layer are what PEFT adapts, and no
 * tensors of files that split them. */
static bool is_module_only(const struct pl_model *m, size_t i) {
    return (i == ROW_HEAD && m->tied) || i == ROW_GATE_UP || i == ROW_DOWN;
}

static struct pl_param_row row_of(const struct pl_model *m, uint64_t layer, size_t i) {
    const enum pl_slot slot = file_rows[i].slot;
    const bool turned = is_turned(m, slot);
    const uint64_t rows = extent(m, layer, file_rows[i].rows);
    const uint64_t cols = extent(m, layer, slots[slot].cols);
    return (struct pl_param_row){
        .slot = slot,
        .file_row = (uint32_t)i,
        .suffix = file_rows[i].suffix,
        .module = file_rows[i].module,
        .per_layer = slots[slot].per_layer,
        .vector = slots[slot].vector,
        .linear = slots[slot].linear,
        .module_only = is_module_only(m, i),
        .experts = slots[slot].of_experts ? m->experts.n : 0,
        .split = strchr(file_rows[i].suffix, '*') != NULL,
        .of_channels = slot == PL_SLOT_DELTA_CONV,
        .row0 = extent(m, layer, file_rows[i].row0),
        .rows = turned ? cols : rows,
        .cols = turned ? rows : cols,
    };
}

static bool is_in_layers(const struct pl_model *m, enum pl_layer_kind kind, size_t i) {
    const bool slot = has_slot(m, kind, file_rows[i].slot) || (i == ROW_HEAD && m->tied);
    return slot && holds(m, kind, file_rows[i].when);
}

/* The first layer with a row of the table; PL_MODEL_MAX_LAYERS: the model has no such row. */
static uint64_t first_layer_with(const struct pl_model *m, size_t i) {
    uint64_t first = PL_MODEL_MAX_LAYERS;
    for (uint32_t k = 0; k < PL_LAYER_KIND_COUNT; k++) {
        const bool has = (m->kinds >> k & 1) && is_in_layers(m, (enum pl_layer_kind)k, i);
        if (has && m->first_of_kind[k] < first) first = m->first_of_kind[k];
    }
    return first;
}

/* Appends the rows of the model that are modules only, or those that are not. */
static uint32_t list_rows(const struct pl_model *m, bool module_only, uint32_t n,
                          struct pl_param_row out[PL_MODEL_MAX_ROWS]) {
    for (size_t i = 0; i < N_ROWS; i++) {
        if (is_module_only(m, i) != module_only) continue;
        const uint64_t layer = first_layer_with(m, i);
        if (layer < PL_MODEL_MAX_LAYERS) out[n++] = row_of(m, layer, i);
    }
    return n;
}

uint32_t pl_model_rows(const struct pl_model *m, struct pl_param_row out[PL_MODEL_MAX_ROWS]) {
    return list_rows(m, false, 0, out);
}

uint32_t pl_model_modules(const struct pl_model *m, struct pl_param_row out[PL_MODEL_MAX_ROWS]) {
    return list_rows(m, true, pl_model_rows(m, out), out);
}

bool pl_model_row_in(const struct pl_model *m, struct pl_param_row *row, uint64_t layer) {
    layer = a_layer(layer);
    if (!is_in_layers(m, m->layer[layer].kind, row->file_row)) return false;
    *row = row_of(m, layer, row->file_row);
    return true;
}

uint32_t pl_model_slot_rows(const struct pl_model *m, uint64_t layer, enum pl_slot slot,
                            struct pl_param_row out[PL_MODEL_SLOT_ROWS],
                            uint32_t index[PL_MODEL_SLOT_ROWS]) {
    uint32_t n = 0, at = 0;
    for (int only = 0; only < 2; only++)
        for (size_t i = 0; i < N_ROWS; i++) {
            struct pl_param_row row = {.file_row = (uint32_t)i};
            if (is_module_only(m, i) != only || first_layer_with(m, i) == PL_MODEL_MAX_LAYERS)
                continue;
            if (file_rows[i].slot == slot && pl_model_row_in(m, &row, layer)) {
                out[n] = row;
                index[n++] = at;
            }
            at++;
        }
    return n;
}

uint32_t pl_model_adapted_by(const struct pl_param_row *rows, uint32_t n, pl_row_set set,
                             uint32_t row) {
    if (pl_row_set_has(set, row) || !rows[row].split) return pl_row_set_has(set, row) ? row : n;
    for (uint32_t i = 0; i < n; i++)
        if (pl_row_is_parameter(&rows[i]) && rows[i].slot == rows[row].slot &&
            pl_row_set_has(set, i))
            return i;
    return n;
}

void pl_model_row_name(const struct pl_param_row *row, uint64_t layer, char buf[128]) {
    if (row->per_layer)
        snprintf(buf, 128, "model.layers.%llu.%s", (unsigned long long)layer, row->suffix);
    else
        snprintf(buf, 128, "%s", row->suffix);
}

void pl_model_expert_name(const struct pl_param_row *row, uint64_t layer, uint32_t expert,
                          char buf[128]) {
    const char *star = strchr(row->suffix, '*');
    if (!row->split || !star) {
        pl_model_row_name(row, layer, buf);
        return;
    }
    snprintf(buf, 128, "model.layers.%llu.%.*s%u%s", (unsigned long long)layer,
             (int)(star - row->suffix), row->suffix, expert, star + 1);
}

uint32_t pl_model_widest_head(const struct pl_model *m) {
    uint32_t widest = 0;
    for (uint64_t l = 0; l < m->layers; l++)
        if (m->layer[l].head_dim > widest) widest = m->layer[l].head_dim;
    return widest;
}

enum counted { COUNT_ALL, COUNT_LINEAR, COUNT_EXPERTS };

static bool is_counted(enum pl_slot s, enum counted what) {
    if (what == COUNT_LINEAR) return slots[s].linear;
    return what == COUNT_ALL || (slots[s].of_experts && !slots[s].vector);
}

static uint64_t count(const struct pl_model *m, enum counted what) {
    uint64_t total = 0;
    for (uint64_t l = 0; l < m->layers; l++)
        for (int i = 0; i < PL_SLOT_COUNT; i++) {
            struct pl_slot_shape s;
            pl_model_slot(m, l, (enum pl_slot)i, &s);
            if (s.present && !s.buffer && is_counted((enum pl_slot)i, what) &&
                (s.per_layer || l == 0))
                total += s.rows * s.cols;
        }
    return total;
}

uint64_t pl_model_param_count(const struct pl_model *m) {
    return count(m, COUNT_ALL);
}
uint64_t pl_model_linear_params(const struct pl_model *m) {
    return count(m, COUNT_LINEAR);
}
uint64_t pl_model_expert_params(const struct pl_model *m) {
    return count(m, COUNT_EXPERTS);
}

uint64_t pl_model_lora_params(const struct pl_model *m, pl_row_set set, uint64_t r,
                              uint64_t first_layer) {
    struct pl_param_row rows[PL_MODEL_MAX_ROWS];
    uint32_t n_rows = pl_model_modules(m, rows);
    uint64_t total = 0;
    for (uint64_t l = first_layer; l < m->layers; l++)
        for (uint32_t i = 0; i < n_rows; i++)
            if (pl_row_set_has(set, i) && (rows[i].per_layer || l == first_layer) &&
                pl_model_row_in(m, &rows[i], l))
                total +=
                    r * (rows[i].rows + rows[i].cols) * (rows[i].experts ? rows[i].experts : 1);
    return total;
}
