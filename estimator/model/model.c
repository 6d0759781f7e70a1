/* model.c - config.json text -> struct pl_model: what every family reads the same way. */
#include "estimator/model/model.h"

#include "estimator/base/alloc.h"
#include "estimator/base/json_tree.h"
#include "estimator/base/open_file.h"
#include "estimator/model/catalogue.h"
#include "estimator/model/families.h"
#include "estimator/model/gguf_config.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CONFIG_MAX_BYTES (4u << 20) /* the largest published ones are a few 100 kB */
/* Lists of labels, the longest of what is there, have a comma in eight bytes at least. */
#define CONFIG_WEIGHT(bytes) (8192 + (bytes) / 8)

/* Sizes that no class default may stand in for, but where published files rely on it: a file
 * without them is not a model's. */
static pl_err read_required(const struct pl_hf *h, const struct pl_family_row *f,
                            struct pl_model *m) {
    const struct {
        const char *key;
        uint64_t *out, high, when_absent;
    } sizes[] = {
        {"hidden_size", &m->hidden, PL_MODEL_MAX_WIDTH, 0},
        {"intermediate_size", &m->ffn, PL_MODEL_MAX_WIDTH, 0},
        {"num_hidden_layers", &m->layers, PL_MODEL_MAX_LAYERS, 0},
        {"num_attention_heads", &m->heads, PL_MODEL_MAX_WIDTH, f->heads},
        {"vocab_size", &m->vocab, PL_MODEL_MAX_VOCAB, f->vocab},
    };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        *sizes[i].out = sizes[i].when_absent;
        if (!sizes[i].when_absent || !pl_hf_absent(h, sizes[i].key))
            PL_TRY(pl_hf_uint(h, sizes[i].key, 1, sizes[i].high, sizes[i].out));
    }
    return PL_ERR_OK;
}

/* Settings of some class or fork that would change the arithmetic: only the neutral value runs. */
static const struct {
    const char *key, *why;
} must_be_off[] = {
    {"lm_head_bias", "a bias on the head is not computed here"},
    {"rope_interleaved", "interleaved rotary pairs are not computed here"},
    {"use_mrope", "multimodal positions are not computed here"},
    {"is_encoder_decoder", "only decoders are trained here"},
    {"add_cross_attention", "only decoders are trained here"},
};

static pl_err check_off(const struct pl_hf *h) {
    for (size_t i = 0; i < sizeof must_be_off / sizeof *must_be_off; i++) {
        const char *key = must_be_off[i].key;
        bool on = false;
        if (pl_hf_given(h, key)) PL_TRY(pl_hf_bool_or(h, key, &on));
        if (on) return pl_hf_refuse(h, key, PL_ERR_MODEL_UNSUPPORTED, "%s", must_be_off[i].why);
    }
    return PL_ERR_OK;
}

/* Dropout acts in training alone, so that only training is refused (pl_model_check_trains). */
static pl_err read_dropout(const struct pl_hf *h, struct pl_model *m) {
    static const char *const keys[] = {"attention_dropout", "embd_pdrop", "resid_pdrop",
                                       "hidden_dropout", "attn_pdrop"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        double share = 0;
        if (pl_hf_given(h, keys[i])) PL_TRY(pl_hf_real(h, keys[i], 0, 1, &share));
        if (share <= 0 || m->dropout_key) continue;
        m->dropout_key = keys[i];
        m->dropout = share;
    }
    return PL_ERR_OK;
}

pl_err pl_model_check_trains(const struct pl_model *m, const char *path, struct pl_diag *d) {
    if (!m->dropout_key) return PL_ERR_OK;
    pl_diag_at(d, PL_ERR_MODEL_UNSUPPORTED, path, 0, 0,
               "`%s` is %g: this dropout is not computed in training", m->dropout_key, m->dropout);
    pl_diag_hint(d,
                 "to train without it write `\"%s\": 0.0` in that file; commands that do not train "
                 "need no change",
                 m->dropout_key);
    return PL_ERR_MODEL_UNSUPPORTED;
}

static const char *const activation_names[] = {
#define ROW(id, name, glu) name,
    PL_ACTIVATIONS(ROW)
#undef ROW
};

/* Only the activation of the family's class is read: files for other programs (GGUF) have no word
 * for another. */
static pl_err read_activation(const struct pl_hf *h, const struct pl_family_row *f,
                              struct pl_model *m) {
    const char *key = f->activation_key ? f->activation_key : "hidden_act";
    const char *name = activation_names[f->activation];
    const char *act = json_string_value(json_object_get(h->object, key));
    m->activation = f->activation;
    if (act && strcmp(act, "swish") == 0) act = "silu";
    if (pl_hf_absent(h, key) || (act && strcmp(act, name) == 0)) return PL_ERR_OK;
    return pl_hf_refuse(h, key, PL_ERR_MODEL_UNSUPPORTED, "only \"%s\" is computed here", name);
}

static pl_err read_heads(const struct pl_hf *h, const struct pl_family_row *f, struct pl_model *m) {
    m->kv_heads = pl_hf_absent(h, "num_key_value_heads") && f->kv_heads ? f->kv_heads : m->heads;
    if (pl_hf_given(h, "num_key_value_heads"))
        PL_TRY(pl_hf_uint(h, "num_key_value_heads", 1, m->heads, &m->kv_heads));
    if (m->kv_heads > m->heads || m->heads % m->kv_heads != 0)
        return pl_hf_refuse(h, "num_key_value_heads", PL_ERR_MODEL_FIELD,
                            "%llu heads are no multiple of %llu key/value heads",
                            (unsigned long long)m->heads, (unsigned long long)m->kv_heads);
    if (pl_hf_given(h, "head_dim")) {
        PL_TRY(pl_hf_uint(h, "head_dim", 2, PL_MODEL_MAX_WIDTH, &m->head_dim));
    } else if (pl_hf_absent(h, "head_dim") && f->head_dim) {
        m->head_dim = f->head_dim;
    } else if (m->hidden % m->heads != 0) {
        return pl_hf_refuse(h, "num_attention_heads", PL_ERR_MODEL_FIELD,
                            "hidden_size %llu is no multiple of it, and there is no `head_dim`",
                            (unsigned long long)m->hidden);
    } else {
        m->head_dim = m->hidden / m->heads;
    }
    if (m->head_dim > PL_MODEL_MAX_WIDTH / m->heads)
        return pl_hf_refuse(h, "num_attention_heads", PL_ERR_MODEL_FIELD,
                            "heads x head_dim is above %d", PL_MODEL_MAX_WIDTH);
    return PL_ERR_OK;
}

static pl_err read_sizes(const struct pl_hf *h, const struct pl_family_row *f, struct pl_model *m) {
    PL_TRY(read_required(h, f, m));
    m->max_positions = f->max_positions;
    m->rms_eps = f->rms_eps;
    m->initializer_range = 0.02;
    m->tied = f->tied;
    PL_TRY(
        pl_hf_uint_or(h, "max_position_embeddings", 1, PL_MODEL_MAX_POSITIONS, &m->max_positions));
    PL_TRY(pl_hf_real_or(h, "rms_norm_eps", 1e-30, 1, &m->rms_eps));
    PL_TRY(pl_hf_real_or(h, "initializer_range", 0, 100, &m->initializer_range));
    PL_TRY(pl_hf_bool_or(h, "tie_word_embeddings", &m->tied));
    return read_heads(h, f, m);
}

static pl_err read_biases(const struct pl_hf *h, const struct pl_family_row *f,
                          struct pl_model *m) {
    bool attention = false;
    PL_TRY(pl_hf_bool_or(h, "attention_bias", &attention));
    PL_TRY(pl_hf_bool_or(h, "mlp_bias", &m->mlp_bias));
    if (attention && !f->reads_attention_bias)
        return pl_hf_refuse(h, "attention_bias", PL_ERR_MODEL_UNSUPPORTED,
                            "`%s` models do not have it", f->name);
    if (m->mlp_bias && !f->reads_mlp_bias)
        return pl_hf_refuse(h, "mlp_bias", PL_ERR_MODEL_UNSUPPORTED, "`%s` models do not have it",
                            f->name);
    m->qkv_bias = m->o_bias = attention;
    return PL_ERR_OK;
}

static pl_err read_token(const struct pl_hf *h, const char *key, int64_t when_absent,
                         const struct pl_model *m, int64_t *out) {
    const json_t *v = json_object_get(h->object, key);
    uint64_t id = 0;
    /* A class default beyond a small model's vocabulary names no token of it. */
    const bool has_default = when_absent >= 0 && (uint64_t)when_absent < m->vocab;
    *out = !v && has_default ? when_absent : -1;
    /* -1 was the way to say "none" before null was */
    if (!pl_hf_given(h, key) || (json_is_integer(v) && json_integer_value(v) == -1))
        return PL_ERR_OK;
    PL_TRY(pl_hf_uint(h, key, 0, m->vocab - 1, &id));
    *out = (int64_t)id;
    return PL_ERR_OK;
}

static pl_err read_eos_list(const struct pl_hf *h, const json_t *list, struct pl_model *m) {
    const json_t *item;
    size_t i;
    if (json_array_size(list) > PL_MODEL_MAX_EOS)
        return pl_hf_refuse(h, "eos_token_id", PL_ERR_MODEL_FIELD, "expected at most %d ids",
                            PL_MODEL_MAX_EOS);
    json_array_foreach(list, i, item) {
        json_int_t id = json_integer_value(item);
        if (!json_is_integer(item) || id < 0 || (uint64_t)id >= m->vocab)
            return pl_hf_refuse(h, "eos_token_id", PL_ERR_MODEL_FIELD,
                                "entry %zu is no id below vocab_size %llu", i,
                                (unsigned long long)m->vocab);
        m->eos[m->n_eos++] = id;
    }
    return PL_ERR_OK;
}

static pl_err read_tokens(const struct pl_hf *h, const struct pl_family_row *f,
                          struct pl_model *m) {
    const json_t *eos = json_object_get(h->object, "eos_token_id");
    PL_TRY(read_token(h, "bos_token_id", f->bos, m, &m->bos));
    PL_TRY(read_token(h, "pad_token_id", f->pad, m, &m->pad));
    if (json_is_array(eos)) return read_eos_list(h, eos, m);
    PL_TRY(read_token(h, "eos_token_id", f->eos, m, &m->eos[0]));
    m->n_eos = m->eos[0] >= 0;
    return PL_ERR_OK;
}

static pl_err read_dtype(const struct pl_hf *h, struct pl_model *m) {
    const char *key = pl_hf_given(h, "dtype") ? "dtype" : "torch_dtype";
    if (!pl_hf_given(h, key)) return PL_ERR_OK;
    const char *name = json_string_value(json_object_get(h->object, key));
    if (!name || strlen(name) >= sizeof m->torch_dtype)
        return pl_hf_refuse(h, key, PL_ERR_MODEL_FIELD, "expected a dtype such as \"bfloat16\"");
    strcpy(m->torch_dtype, name);
    return PL_ERR_OK;
}

static pl_err read_object(const struct pl_hf *h, struct pl_model *m) {
    PL_TRY(pl_family_find(h, &m->family));
    const struct pl_family_row *f = pl_family_get(m->family);
    PL_TRY(read_sizes(h, f, m));
    PL_TRY(read_biases(h, f, m));
    PL_TRY(read_activation(h, f, m));
    m->score_scale = 1 / sqrt((double)m->head_dim);
    m->embed_scale = 1;
    PL_TRY(check_off(h));
    PL_TRY(read_dropout(h, m));
    PL_TRY(read_tokens(h, f, m));
    PL_TRY(read_dtype(h, m));
    PL_TRY(pl_model_read_codes(h, m));
    for (uint64_t i = 0; i < m->layers; i++) /* alike until the facts of a family say otherwise */
        m->layer[i] = (struct pl_layer){.kv_heads = (uint32_t)m->kv_heads,
                                        .head_dim = (uint32_t)m->head_dim,
                                        .ffn = (uint32_t)m->ffn};
    PL_TRY(f->facts(h, m));
    for (uint64_t i = m->layers; i-- > 0;) {
        m->kinds |= 1u << m->layer[i].kind;
        m->first_of_kind[m->layer[i].kind] = (uint32_t)i;
    }
    return pl_model_read_rope(h, f, m);
}

pl_err pl_model_parse(const char *name, const char *json, uint64_t bytes, struct pl_model *out,
                      struct pl_diag *d) {
    struct pl_json_error e;
    *out = (struct pl_model){.bos = -1, .pad = -1};
    if (pl_json_weight(json, bytes) > CONFIG_WEIGHT(bytes))
        return pl_diag_at(d, PL_ERR_MODEL_FILE, name, 0, 0,
                          "more values than a config.json of its size has");
    json_t *root = pl_json_load(json, (size_t)bytes, PL_JSON_ONE_VALUE, &e);
    if (!root) return pl_json_refuse(&e, PL_ERR_MODEL_SYNTAX, name, d);
    struct pl_hf h = {root, name, "", d};
    pl_err err = json_is_object(root)
                     ? read_object(&h, out)
                     : pl_diag_at(d, PL_ERR_MODEL_SYNTAX, name, 1, 1,
                                  "expected one JSON object, as config.json holds");
    json_decref(root);
    return err;
}

static pl_err read_file(const char *path, FILE *f, char **text, uint64_t *bytes,
                        struct pl_diag *d) {
    size_t room = CONFIG_MAX_BYTES + 1u, n = 0;
    char *buf = pl_malloc(room + 1);
    if (!buf) return pl_host_oom(d, path);
    n = fread(buf, 1, room, f);
    pl_err err = PL_ERR_OK;
    if (ferror(f))
        err = pl_diag_at(d, pl_err_of_errno(PL_ERR_MODEL_FILE), path, 0, 0, "cannot read: %s",
                         strerror(errno));
    else if (n == room)
        err = pl_diag_at(d, PL_ERR_MODEL_FILE, path, 0, 0, "above %u MiB: not a config.json",
                         CONFIG_MAX_BYTES >> 20);
    if (err != PL_ERR_OK) {
        free(buf);
        return err;
    }
    buf[n] = 0;
    *text = buf;
    *bytes = n;
    return PL_ERR_OK;
}

static pl_err read_known(const char *name, char **text, uint64_t *bytes, struct pl_diag *d) {
    const struct pl_known_model *k = pl_catalogue_find(name, NULL);
    if (!k)
        return pl_diag_set(d, PL_ERR_MODEL_FILE, "no model of the catalogue is called `%s`", name);
    PL_TRY(pl_catalogue_config(k, text, d));
    *bytes = strlen(*text);
    return PL_ERR_OK;
}

static pl_err read_gguf(const char *path, char **text, uint64_t *bytes, struct pl_diag *d) {
    struct pl_gguf g;
    PL_TRY(pl_gguf_open(&g, path, d));
    pl_err err = pl_gguf_config_text(&g, path, text, bytes, d);
    pl_gguf_close(&g);
    return err;
}

/* --- a multimodal model, whose language model is one level down --- */

#define INNER "text_config"

/* Wrappers whose language model is one of the families, held under INNER. */
static const struct {
    const char *outer, *inner, *class;
} wrappers[] = {
    {"gemma3", "gemma3_text", "Gemma3ForCausalLM"},
    {"gemma4", "gemma4_text", "Gemma4ForCausalLM"},
    {"mistral3", "ministral3", "Ministral3ForCausalLM"},
    {"mistral3", "mistral", "MistralForCausalLM"},
    {"qwen3_5", "qwen3_5_text", "Qwen3_5ForCausalLM"},
};

/* Facts of the language model that such a file may hold at the top level alone. */
static const char *const shared_keys[] = {
    "bos_token_id", "eos_token_id", "pad_token_id",        "tie_word_embeddings",
    "torch_dtype",  "dtype",        "quantization_config", "transformers_version"};

static const char *type_of(const json_t *object) {
    const char *type = json_string_value(json_object_get(object, "model_type"));
    return type ? type : "";
}

static const char *wrapper_class(const json_t *root, const json_t *text) {
    for (size_t i = 0; i < sizeof wrappers / sizeof *wrappers; i++)
        if (strcmp(wrappers[i].outer, type_of(root)) == 0 &&
            strcmp(wrappers[i].inner, type_of(text)) == 0)
            return wrappers[i].class;
    return NULL;
}

static bool complete_inner(const json_t *root, json_t *text, const char *class) {
    for (size_t i = 0; i < sizeof shared_keys / sizeof *shared_keys; i++) {
        json_t *value = json_object_get(root, shared_keys[i]);
        if (value && !json_object_get(text, shared_keys[i]) &&
            json_object_set(text, shared_keys[i], value) != 0)
            return false;
    }
    return json_object_set_new(text, "architectures", json_pack("[s]", class)) == 0;
}

static pl_err replace_by_inner(const json_t *root, char **text, uint64_t *bytes,
                               struct pl_diag *d) {
    json_t *inner = json_object_get(root, INNER);
    const char *class = wrapper_class(root, inner);
    if (!class) return PL_ERR_OK;
    char *out = complete_inner(root, inner, class) ? pl_json_dump(inner, JSON_INDENT(2)) : NULL;
    if (!out) return pl_host_oom(d, "config.json");
    free(*text);
    *text = out;
    *bytes = strlen(out);
    return PL_ERR_OK;
}

/* If the text is the config.json of a known wrapper, replaces *text (malloc'd, with a NUL after its
 * *bytes bytes) by that of the language model. Leaves any other text unchanged, also one of more
 * values than most_weight (json_tree.h), which pl_model_parse() refuses. */
static pl_err unwrap(char **text, uint64_t *bytes, uint64_t most_weight, struct pl_diag *d) {
    struct pl_json_error e;
    if (!strstr(*text, "\"" INNER "\"")) return PL_ERR_OK; /* most files: they are parsed once */
    if (pl_json_weight(*text, *bytes) > most_weight) return PL_ERR_OK;
    json_t *root = pl_json_load(*text, (size_t)*bytes, PL_JSON_ONE_VALUE, &e);
    if (!root) return PL_ERR_OK; /* pl_model_parse() says what is wrong */
    pl_err err = replace_by_inner(root, text, bytes, d);
    json_decref(root);
    return err;
}

pl_err pl_model_read_text(const char *path, char **text, uint64_t *bytes, struct pl_diag *d) {
    static const char scheme[] = PL_CATALOGUE_SCHEME;
    *text = NULL;
    if (strncmp(path, scheme, strlen(scheme)) == 0)
        return read_known(path + strlen(scheme), text, bytes, d);
    if (pl_gguf_is(path)) return read_gguf(path, text, bytes, d);
    const char *why;
    FILE *f = pl_fopen_file(path, &why);
    if (!f)
        return pl_diag_at(d, pl_err_of_errno(PL_ERR_MODEL_FILE), path, 0, 0, "cannot open: %s",
                          why);
    pl_err err = read_file(path, f, text, bytes, d);
    fclose(f);
    if (err == PL_ERR_OK) err = unwrap(text, bytes, CONFIG_WEIGHT(*bytes), d);
    if (err == PL_ERR_OK) return PL_ERR_OK;
    free(*text);
    *text = NULL;
    return err;
}

pl_err pl_model_read(const char *path, struct pl_model *out, struct pl_diag *d) {
    char *text = NULL;
    uint64_t bytes = 0;
    PL_TRY(pl_model_read_text(path, &text, &bytes, d));
    pl_err err = pl_model_parse(path, text, bytes, out, d);
    free(text);
    return err;
}
