/* qwen3_5.c - facts of Qwen3.5: layers of linear attention, and some of attention with gates.
 * Source of keys and defaults: transformers' Qwen3_5TextConfig, 5.23. Keys of other classes that
 * its files hold (attn_output_gate, mtp_*, mrope_*) change nothing in a model of text. */
#include "estimator/model/families.h"

#include <string.h>

static const struct {
    const char *name;
    enum pl_layer_kind kind;
} types[] = {
    {"linear_attention", PL_LAYER_GATED_DELTA},
    {"full_attention", PL_LAYER_GATED_ATTENTION},
};
#define N_TYPES (sizeof types / sizeof *types)

/* Layers of linear attention keep a state in place of keys and values, and know no positions. */
static void give_kind(struct pl_layer *layer, enum pl_layer_kind kind) {
    layer->kind = kind;
    if (kind != PL_LAYER_GATED_DELTA) return;
    layer->kv_heads = 0;
    layer->rope = PL_NO_ROPE;
}

/* Layer i has attention if (i + 1) is a multiple of the interval, unless layer_types says
 * otherwise. */
static pl_err read_layers(const struct pl_hf *h, struct pl_model *m) {
    const json_t *list, *item;
    uint64_t interval = 4;
    size_t i;
    PL_TRY(pl_hf_uint_or(h, "full_attention_interval", 1, PL_MODEL_MAX_LAYERS, &interval));
    PL_TRY(pl_model_layer_names(h, m, &list));
    if (!list) {
        for (i = 0; i < m->layers; i++)
            give_kind(&m->layer[i], types[(i + 1) % interval == 0].kind);
        return PL_ERR_OK;
    }
    json_array_foreach(list, i, item) {
        const char *name = json_string_value(item);
        size_t k = 0;
        while (k < N_TYPES && (!name || strcmp(name, types[k].name) != 0))
            k++;
        if (k == N_TYPES)
            return pl_hf_refuse(h, "layer_types", PL_ERR_MODEL_UNSUPPORTED,
                                "layer %zu is no \"linear_attention\" layer and no "
                                "\"full_attention\" one",
                                i);
        give_kind(&m->layer[i], types[k].kind);
    }
    return PL_ERR_OK;
}

static pl_err read_delta(const struct pl_hf *h, struct pl_model *m) {
    struct pl_delta *x = &m->delta;
    const struct {
        const char *key;
        uint64_t when_absent, high;
        uint32_t *out;
    } sizes[] = {
        {"linear_num_key_heads", 16, PL_MODEL_MAX_WIDTH, &x->key_heads},
        {"linear_num_value_heads", 32, PL_MODEL_MAX_WIDTH, &x->value_heads},
        {"linear_key_head_dim", 128, PL_DELTA_MAX_KEY, &x->key_dim},
        {"linear_value_head_dim", 128, PL_MODEL_MAX_WIDTH, &x->value_dim},
        {"linear_conv_kernel_dim", 4, PL_CONV_MAX_TAPS, &x->taps},
    };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        uint64_t value = sizes[i].when_absent;
        PL_TRY(pl_hf_uint_or(h, sizes[i].key, 1, sizes[i].high, &value));
        *sizes[i].out = (uint32_t)value;
    }
    if (x->value_heads % x->key_heads != 0)
        return pl_hf_refuse(h, "linear_num_value_heads", PL_ERR_MODEL_FIELD,
                            "expected a multiple of linear_num_key_heads, %u", x->key_heads);
    if (pl_delta_channels(x) > PL_MODEL_MAX_WIDTH)
        return pl_hf_refuse(h, "linear_num_value_heads", PL_ERR_MODEL_FIELD,
                            "queries, keys and values have more than %d columns",
                            PL_MODEL_MAX_WIDTH);
    return PL_ERR_OK;
}

pl_err pl_qwen3_5_facts(const struct pl_hf *h, struct pl_model *m) {
    m->qk_norm = m->unit_offset = true;
    PL_TRY(read_delta(h, m));
    return read_layers(h, m);
}
