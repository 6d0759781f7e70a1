/* gemma4.c - the facts of Gemma 4: layers of two sizes of heads, keys that are values as well, keys
 * and values of earlier layers, and an input for every layer.
 * Source of keys and defaults: Gemma4TextConfig of transformers 5.23. */
#include "estimator/model/families.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Layer i sees all positions if (i + 1) is a multiple of 6, unless layer_types says otherwise; the
 * class makes the last one such a layer whatever the list says. */
static pl_err read_gemma4_windows(const struct pl_hf *h, struct pl_model *m) {
    uint64_t window = 512;
    bool given;
    PL_TRY(pl_hf_uint_or(h, "sliding_window", 1, PL_MODEL_MAX_POSITIONS, &window));
    PL_TRY(pl_model_read_layer_types(h, window, m, &given));
    for (uint64_t i = 0; i < m->layers; i++) {
        if (!given) m->layer[i].window = (i + 1) % 6 ? (uint32_t)window : 0;
        if (i + 1 == m->layers) m->layer[i].window = 0;
        m->layer[i].rope = m->layer[i].window != 0;
    }
    return PL_ERR_OK;
}

/* Key and value heads, and their size, of a layer or of all layers that see all positions. */
struct heads {
    uint64_t kv, dim;
};

static pl_err check_heads(const struct pl_hf *h, const struct pl_model *m, const struct heads *x) {
    if (x->dim > PL_MODEL_MAX_WIDTH / m->heads)
        return pl_hf_refuse(h, "num_attention_heads", PL_ERR_MODEL_FIELD,
                            "heads x head size %llu is above %d", (unsigned long long)x->dim,
                            PL_MODEL_MAX_WIDTH);
    if (x->kv <= m->heads && m->heads % x->kv == 0) return PL_ERR_OK;
    return pl_hf_refuse(h, "num_attention_heads", PL_ERR_MODEL_FIELD,
                        "no multiple of %llu key/value heads", (unsigned long long)x->kv);
}

static void give_heads(struct pl_model *m, uint64_t layer, const struct heads *x) {
    m->layer[layer].kv_heads = (uint32_t)x->kv;
    m->layer[layer].head_dim = (uint32_t)x->dim;
}

/* Reads the keys of published files, which are of all layers that see all positions. transformers
 * 5.23 writes per_layer_config instead, and then none of the defaults counts. */
static pl_err read_global_heads(const struct pl_hf *h, bool keys_are_values, struct pl_model *m) {
    const bool own = pl_hf_given(h, "global_head_dim") || !pl_hf_given(h, "per_layer_config");
    struct heads x = {m->kv_heads, own ? 512 : m->head_dim};
    PL_TRY(pl_hf_uint_or(h, "global_head_dim", 2, PL_MODEL_MAX_WIDTH, &x.dim));
    if (keys_are_values && pl_hf_given(h, "num_global_key_value_heads"))
        PL_TRY(pl_hf_uint(h, "num_global_key_value_heads", 1, m->heads, &x.kv));
    PL_TRY(check_heads(h, m, &x));
    for (uint64_t i = 0; i < m->layers; i++)
        if (!m->layer[i].window) give_heads(m, i, &x);
    return PL_ERR_OK;
}

static pl_err read_layer_heads(const struct pl_hf *h, json_t *object, const char *number,
                               struct pl_model *m) {
    const char *key;
    json_t *value;
    char *end;
    const unsigned long long i = strtoull(number, &end, 10);
    if (*number < '0' || *number > '9' || *end || i >= m->layers || !json_is_object(object))
        return pl_diag_at(h->d, PL_ERR_MODEL_FIELD, h->file, 0, 0,
                          "`per_layer_config`: expected the number of a layer with an object, not "
                          "`%.40s`",
                          number);
    struct heads x = {m->layer[i].kv_heads, m->layer[i].head_dim};
    json_object_foreach(object, key, value) {
        if (strcmp(key, "head_dim") != 0 && strcmp(key, "num_key_value_heads") != 0)
            return pl_hf_refuse(h, key, PL_ERR_MODEL_UNSUPPORTED,
                                "layers that differ in this are not computed here");
    }
    PL_TRY(pl_hf_uint_or(h, "head_dim", 2, PL_MODEL_MAX_WIDTH, &x.dim));
    PL_TRY(pl_hf_uint_or(h, "num_key_value_heads", 1, m->heads, &x.kv));
    PL_TRY(check_heads(h, m, &x));
    give_heads(m, i, &x);
    return PL_ERR_OK;
}

static pl_err read_per_layer_config(const struct pl_hf *h, struct pl_model *m) {
    json_t *all = json_object_get(h->object, "per_layer_config"), *one;
    const char *number;
    if (!pl_hf_given(h, "per_layer_config")) return PL_ERR_OK;
    if (!json_is_object(all))
        return pl_hf_refuse(h, "per_layer_config", PL_ERR_MODEL_FIELD, "expected an object");
    json_object_foreach(all, number, one) {
        const struct pl_hf of_layer = {one, h->file, "per_layer_config.", h->d};
        PL_TRY(read_layer_heads(&of_layer, one, number, m));
    }
    return PL_ERR_OK;
}

/* The last layers use keys and values of the last one before them that sees as many positions. */
static pl_err share_kv(const struct pl_hf *h, uint64_t n, struct pl_model *m) {
    const uint64_t own = m->layers - n;
    for (uint64_t i = own; i < m->layers; i++) {
        struct pl_layer *x = &m->layer[i];
        uint64_t from = own;
        while (from > 0 && !m->layer[from - 1].window != !x->window)
            from--;
        if (from == 0)
            return pl_hf_refuse(h, "num_kv_shared_layers", PL_ERR_MODEL_FIELD,
                                "layer %llu shares keys and values, and no layer before those that "
                                "share is of its type",
                                (unsigned long long)i);
        x->kind = PL_LAYER_SCALED_QUERIES;
        x->kv_layer = m->layer[from - 1].kv_layer = (uint16_t)from;
        give_heads(m, i, &(struct heads){m->layer[from - 1].kv_heads, m->layer[from - 1].head_dim});
    }
    return PL_ERR_OK;
}

static pl_err read_shared_layers(const struct pl_hf *h, struct pl_model *m) {
    uint64_t n = 0;
    bool wide = false;
    PL_TRY(pl_hf_uint_or(h, "num_kv_shared_layers", 0, m->layers - 1, &n));
    PL_TRY(pl_hf_bool_or(h, "use_double_wide_mlp", &wide));
    if (wide && m->ffn > PL_MODEL_MAX_WIDTH / 2)
        return pl_hf_refuse(h, "intermediate_size", PL_ERR_MODEL_FIELD, "twice it is above %d",
                            PL_MODEL_MAX_WIDTH);
    for (uint64_t i = m->layers - n; wide && i < m->layers; i++)
        m->layer[i].ffn *= 2;
    return share_kv(h, n, m);
}

/* Each layer has an embedding of its own; 0 columns = none has. */
static pl_err read_layer_input(const struct pl_hf *h, struct pl_model *m) {
    const uint64_t most = PL_MODEL_MAX_WIDTH / m->layers;
    m->layer_input = 256;
    m->layer_input_vocab = 262144;
    PL_TRY(pl_hf_uint_or(h, "hidden_size_per_layer_input", 0, most, &m->layer_input));
    if (m->layer_input > most)
        return pl_hf_refuse(h, "num_hidden_layers", PL_ERR_MODEL_FIELD,
                            "times 256 columns of input for each is above %d", PL_MODEL_MAX_WIDTH);
    PL_TRY(pl_hf_uint_or(h, "vocab_size_per_layer_input", 1, PL_MODEL_MAX_VOCAB,
                         &m->layer_input_vocab));
    if (m->layer_input == 0 || m->layer_input_vocab >= m->vocab) return PL_ERR_OK;
    return pl_hf_refuse(h, "vocab_size", PL_ERR_MODEL_FIELD,
                        "more than the %llu rows of the per-layer embeddings",
                        (unsigned long long)m->layer_input_vocab);
}

pl_err pl_gemma4_facts(const struct pl_hf *h, struct pl_model *m) {
    bool keys_are_values = false;
    m->qk_norm = true;
    m->score_scale = 1;
    m->embed_scale = sqrt((double)m->hidden);
    PL_TRY(pl_hf_refuse_setting(h, "enable_moe_block",
                                "experts next to a dense MLP are not computed here"));
    const char *directions =
        json_string_value(json_object_get(h->object, "use_bidirectional_attention"));
    if (!directions || strcmp(directions, "vision") != 0) /* that is of images alone */
        PL_TRY(pl_hf_refuse_setting(h, "use_bidirectional_attention",
                                    "only decoders are trained here"));
    PL_TRY(pl_hf_bool_or(h, "attention_k_eq_v", &keys_are_values));
    if (pl_hf_given(h, "final_logit_softcapping"))
        PL_TRY(pl_hf_real(h, "final_logit_softcapping", 1e-3, 1e6, &m->softcap));
    PL_TRY(read_gemma4_windows(h, m));
    PL_TRY(read_global_heads(h, keys_are_values, m));
    PL_TRY(read_per_layer_config(h, m));
    for (uint64_t i = 0; i < m->layers; i++)
        m->layer[i].kind =
            keys_are_values && !m->layer[i].window ? PL_LAYER_SCALED_KEYS : PL_LAYER_SCALED;
    PL_TRY(read_shared_layers(h, m));
    PL_TRY(read_layer_input(h, m));
    if (!json_is_object(
            json_object_get(json_object_get(h->object, "rope_parameters"), "full_attention")))
        return pl_hf_refuse(h, "rope_parameters", PL_ERR_MODEL_FIELD,
                            "expected an object with one for `full_attention`");
    return PL_ERR_OK;
}
