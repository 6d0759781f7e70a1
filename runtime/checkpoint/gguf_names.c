#include "runtime/checkpoint/gguf_names.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ANY NULL

/* Rows of one architecture come before those of any. Phi-3's fused gate and up stay one matrix,
 * which llama.cpp calls ffn_up. */
static const struct {
    const char *architecture, *gguf, *hf;
    enum pl_gguf_change change;
} layer_parts[] = {
    {"phi3", "attn_qkv", "self_attn.qkv_proj", PL_GGUF_AS_IS},
    {"phi3", "ffn_up", "mlp.gate_up_proj", PL_GGUF_AS_IS},
    {"gemma3", "ffn_norm", "pre_feedforward_layernorm", PL_GGUF_AS_IS},
    {"gemma3", "post_attention_norm", "post_attention_layernorm", PL_GGUF_AS_IS},
    {"gemma3", "post_ffw_norm", "post_feedforward_layernorm", PL_GGUF_AS_IS},
    {ANY, "attn_norm", "input_layernorm", PL_GGUF_AS_IS},
    {ANY, "attn_q", "self_attn.q_proj", PL_GGUF_QUERY_ROWS},
    {ANY, "attn_k", "self_attn.k_proj", PL_GGUF_KEY_ROWS},
    {ANY, "attn_v", "self_attn.v_proj", PL_GGUF_AS_IS},
    {ANY, "attn_output", "self_attn.o_proj", PL_GGUF_AS_IS},
    {ANY, "attn_q_norm", "self_attn.q_norm", PL_GGUF_AS_IS},
    {ANY, "attn_k_norm", "self_attn.k_norm", PL_GGUF_AS_IS},
    {ANY, "ffn_norm", "post_attention_layernorm", PL_GGUF_AS_IS},
    {ANY, "ffn_gate", "mlp.gate_proj", PL_GGUF_AS_IS},
    {ANY, "ffn_up", "mlp.up_proj", PL_GGUF_AS_IS},
    {ANY, "ffn_down", "mlp.down_proj", PL_GGUF_AS_IS},
};
#define N_PARTS (sizeof layer_parts / sizeof *layer_parts)

static const struct {
    const char *gguf, *hf; /* hf NULL: config.json has what it holds */
} whole_names[] = {
    {"token_embd.weight", "model.embed_tokens.weight"},
    {"output_norm.weight", "model.norm.weight"},
    {"output.weight", "lm_head.weight"},
    {"rope_freqs.weight", NULL},
    {"rope_factors_short.weight", NULL},
    {"rope_factors_long.weight", NULL},
};
#define N_WHOLE (sizeof whole_names / sizeof *whole_names)

/* "blk.3.attn_q.weight" */
static bool name_in_layer(const char *architecture, const char *name, char out[128],
                          enum pl_gguf_change *change) {
    char *end;
    if (strncmp(name, "blk.", 4) != 0) return false;
    const unsigned long long layer = strtoull(name + 4, &end, 10);
    const char *dot = strrchr(name, '.');
    if (end == name + 4 || *end != '.' || dot <= end) return false;
    const size_t n = (size_t)(dot - end - 1);
    for (size_t i = 0; i < N_PARTS; i++) {
        const char *only = layer_parts[i].architecture;
        if ((only && strcmp(only, architecture) != 0) || strlen(layer_parts[i].gguf) != n ||
            memcmp(layer_parts[i].gguf, end + 1, n) != 0)
            continue;
        *change = layer_parts[i].change;
        snprintf(out, 128, "model.layers.%llu.%s%s", layer, layer_parts[i].hf, dot);
        return true;
    }
    return false;
}

bool pl_gguf_name_of_file(const char *architecture, const struct pl_gguf_string *gguf,
                          char out[128], enum pl_gguf_change *change) {
    char name[PL_GGUF_NAME + 1];
    *change = PL_GGUF_AS_IS;
    snprintf(name, sizeof name, "%.*s", gguf->n < sizeof name ? (int)gguf->n : PL_GGUF_NAME,
             gguf->s);
    for (size_t i = 0; i < N_WHOLE; i++) {
        if (strcmp(name, whole_names[i].gguf) != 0) continue;
        if (whole_names[i].hf) snprintf(out, 128, "%s", whole_names[i].hf);
        return whole_names[i].hf != NULL;
    }
    if (!name_in_layer(architecture, name, out, change)) snprintf(out, 128, "%s", name);
    return true;
}

bool pl_gguf_module_name(const struct pl_param_row *row, uint64_t layer, char out[PL_GGUF_MODULE]) {
    if (row->slot == PL_SLOT_HEAD) return snprintf(out, PL_GGUF_MODULE, "output") > 0;
    for (size_t i = 0; row->module && i < N_PARTS; i++) {
        const size_t n = strlen(layer_parts[i].hf);
        if (strncmp(row->suffix, layer_parts[i].hf, n) != 0 || row->suffix[n] != '.') continue;
        snprintf(out, PL_GGUF_MODULE, "blk.%llu.%s", (unsigned long long)layer,
                 layer_parts[i].gguf);
        return true;
    }
    return false;
}
