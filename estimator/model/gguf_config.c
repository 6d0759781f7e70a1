#include "estimator/model/gguf_config.h"

#include "estimator/base/checked.h"
#include "estimator/base/json_tree.h"
#include "estimator/model/families.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

struct reader {
    const struct pl_gguf *g;
    const char *path;
    char architecture[48];
    const struct pl_family_row *family; /* NULL: none of ours, which parsing the text refuses */
    uint64_t heads, head_dim, hidden;
    json_t *config; /* owned; NULL after a lack of memory */
    struct pl_diag *d;
};

static const struct pl_gguf_value *find_key(const struct reader *r, const char *key) {
    return pl_gguf_find_own(r->g, key);
}

static pl_err refuse_key(const struct reader *r, const char *key, pl_err err, const char *why) {
    pl_diag_at(r->d, err, r->path, 0, 0, "`%s.%s` %s", r->architecture, key, why);
    pl_diag_hint(r->d,
                 err == PL_ERR_MODEL_FIELD
                     ? "write the file again with a current convert_hf_to_gguf.py of llama.cpp"
                     : "`plimsoll models` lists what is computed here");
    return err;
}

static void set_uint(struct reader *r, const char *key, uint64_t v) {
    pl_json_set(&r->config, key, json_integer((json_int_t)v));
}

/* A number that is the same in all layers; some files list it by layer. */
static pl_err read_uint(const struct reader *r, const char *key, uint64_t *out) {
    const struct pl_gguf_value *v = find_key(r, key);
    uint64_t item;
    if (!pl_gguf_uint_at(v, 0, out) || *out > INT64_MAX)
        return refuse_key(r, key, PL_ERR_MODEL_FIELD, v ? "is not a size" : "is missing");
    for (uint64_t i = 1; i < v->n; i++)
        if (!pl_gguf_uint_at(v, i, &item) || item != *out)
            return refuse_key(r, key, PL_ERR_MODEL_UNSUPPORTED, "differs between layers");
    return PL_ERR_OK;
}

static pl_err read_uint_or(const struct reader *r, const char *key, uint64_t *out) {
    return find_key(r, key) ? read_uint(r, key, out) : PL_ERR_OK;
}

static pl_err read_real(const struct reader *r, const char *key, double *out) {
    const struct pl_gguf_value *v = find_key(r, key);
    if (v && (!pl_gguf_real(v, out) || !isfinite(*out)))
        return refuse_key(r, key, PL_ERR_MODEL_FIELD, "is not a number");
    return PL_ERR_OK;
}

static bool has_tensor(const struct reader *r, const char *name) {
    return pl_gguf_entry(r->g, name) != NULL;
}

/* --- sizes --- */

static pl_err read_sizes(struct reader *r) {
    static const struct {
        const char *gguf, *key;
    } sizes[] = {
        {"embedding_length", "hidden_size"},
        {"feed_forward_length", "intermediate_size"},
        {"block_count", "num_hidden_layers"},
        {"context_length", "max_position_embeddings"},
    };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        uint64_t v;
        PL_TRY(read_uint(r, sizes[i].gguf, &v));
        set_uint(r, sizes[i].key, v);
        if (i == 0) r->hidden = v;
    }
    return PL_ERR_OK;
}

/* Files without key_length are older than models whose heads are not hidden / heads wide. */
static pl_err read_heads(struct reader *r) {
    uint64_t value_length;
    PL_TRY(read_uint(r, "attention.head_count", &r->heads));
    uint64_t kv = r->heads;
    PL_TRY(read_uint_or(r, "attention.head_count_kv", &kv));
    r->head_dim = r->heads && r->hidden % r->heads == 0 ? r->hidden / r->heads : 0;
    PL_TRY(read_uint_or(r, "attention.key_length", &r->head_dim));
    value_length = r->head_dim;
    PL_TRY(read_uint_or(r, "attention.value_length", &value_length));
    if (value_length != r->head_dim)
        return refuse_key(r, "attention.value_length", PL_ERR_MODEL_UNSUPPORTED,
                          "is not attention.key_length");
    set_uint(r, "num_attention_heads", r->heads);
    set_uint(r, "num_key_value_heads", kv);
    set_uint(r, "head_dim", r->head_dim);
    return PL_ERR_OK;
}

/* The rows of the embedding count; a list of tokens may be shorter or longer. */
static pl_err read_vocabulary(struct reader *r) {
    const struct pl_gguf_entry *e = pl_gguf_entry(r->g, "token_embd.weight");
    if (!e || e->rank != 2 || e->ne[1] > INT64_MAX)
        return pl_diag_at(r->d, PL_ERR_MODEL_FIELD, r->path, 0, 0,
                          "there is no matrix `token_embd.weight`");
    set_uint(r, "vocab_size", e->ne[1]);
    pl_json_set(&r->config, "tie_word_embeddings", json_boolean(!has_tensor(r, "output.weight")));
    return PL_ERR_OK;
}

static void read_biases(struct reader *r) {
    if (r->family && r->family->reads_attention_bias)
        pl_json_set(&r->config, "attention_bias",
                    json_boolean(has_tensor(r, "blk.0.attn_output.bias")));
    if (r->family && r->family->reads_mlp_bias)
        pl_json_set(&r->config, "mlp_bias", json_boolean(has_tensor(r, "blk.0.ffn_up.bias")));
}

static pl_err read_norms(struct reader *r) {
    double eps = 0;
    if (!find_key(r, "attention.layer_norm_rms_epsilon"))
        return refuse_key(r, "attention.layer_norm_rms_epsilon", PL_ERR_MODEL_FIELD, "is missing");
    PL_TRY(read_real(r, "attention.layer_norm_rms_epsilon", &eps));
    pl_json_set(&r->config, "rms_norm_eps", json_real(eps));
    return PL_ERR_OK;
}

static void read_tokens(struct reader *r) {
    static const struct {
        const char *gguf, *key;
    } ids[] = {
        {"tokenizer.ggml.bos_token_id", "bos_token_id"},
        {"tokenizer.ggml.eos_token_id", "eos_token_id"},
        {"tokenizer.ggml.padding_token_id", "pad_token_id"},
    };
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
        uint64_t id;
        const bool given = pl_gguf_uint(pl_gguf_find(r->g, ids[i].gguf), &id) && id <= INT32_MAX;
        pl_json_set(&r->config, ids[i].key, given ? json_integer((json_int_t)id) : json_null());
    }
}

/* --- layers --- */

/* llama.cpp has the scale of Gemma 3's queries in its code: 27B, of 62 layers, divides by another
 * number than the size of a head. */
static pl_err read_windows(struct reader *r) {
    uint64_t window = 0, layers = 0;
    PL_TRY(read_uint_or(r, "attention.sliding_window", &window));
    PL_TRY(read_uint(r, "block_count", &layers));
    pl_json_set(&r->config, "sliding_window",
                window ? json_integer((json_int_t)window) : json_null());
    if (strcmp(r->architecture, "gemma3") != 0) return PL_ERR_OK;
    const uint64_t scalar = layers == 62 && r->heads ? r->hidden / r->heads : r->head_dim;
    set_uint(r, "query_pre_attn_scalar", scalar);
    return PL_ERR_OK;
}

/* --- positions --- */

static pl_err read_factors(const struct reader *r, const char *name, uint64_t n, float *out,
                           bool *there) {
    const struct pl_gguf_entry *e = pl_gguf_entry(r->g, name);
    *there = e != NULL;
    if (!e) return PL_ERR_OK;
    if (e->type_id != PL_GGUF_F32 || e->rank != 1 || e->ne[0] != n)
        return pl_diag_at(r->d, PL_ERR_MODEL_FIELD, r->path, 0, 0,
                          "`%s` is not %llu numbers in fp32", name, (unsigned long long)n);
    PL_TRY(pl_gguf_read(r->g, e, 0, out, n * sizeof *out, r->d));
    for (uint64_t i = 0; i < n; i++)
        if (!isfinite(out[i]))
            return pl_diag_at(r->d, PL_ERR_MODEL_FIELD, r->path, 0, 0,
                              "`%s` holds a number that is not finite", name);
    return PL_ERR_OK;
}

/* The factor of a pair under the rule of Llama 3.1 (transformers, _compute_llama3_parameters). */
static double llama3_factor(double wave, double factor, double original) {
    const double low = 1, high = 4;
    if (wave < original / high) return 1;
    if (wave > original / low) return factor;
    const double smooth = (original / wave - low) / (high - low);
    return 1 / ((1 - smooth) / factor + smooth);
}

/* The converter writes factors in place of the rule. Its `factor` is the largest of them; the other
 * numbers of the rule are those of every published model, and the factors must follow from them. */
static pl_err read_llama3(struct reader *r, double theta, uint64_t dim, json_t **out) {
    float factors[PL_ROPE_MAX_PAIRS];
    bool there;
    const double original = 8192;
    *out = NULL;
    if (dim / 2 > PL_ROPE_MAX_PAIRS) return PL_ERR_OK; /* parsing the text refuses such a head */
    PL_TRY(read_factors(r, "rope_freqs.weight", dim / 2, factors, &there));
    if (!there) return PL_ERR_OK;
    const double factor = (double)factors[dim / 2 - 1];
    for (uint64_t i = 0; i < dim / 2; i++) {
        const double wave = 2 * acos(-1.0) * pow(theta, 2.0 * (double)i / (double)dim);
        const double expected = llama3_factor(wave, factor, original);
        if (fabs((double)factors[i] - expected) <= 1e-4 * expected) continue;
        return pl_diag_at(r->d, PL_ERR_MODEL_UNSUPPORTED, r->path, 0, 0,
                          "`rope_freqs.weight` does not follow the rule of Llama 3.1");
    }
    *out = json_pack("{s:s,s:f,s:f,s:f,s:I}", "rope_type", "llama3", "factor", factor,
                     "low_freq_factor", 1.0, "high_freq_factor", 4.0,
                     "original_max_position_embeddings", (json_int_t)original);
    return *out ? PL_ERR_OK : pl_host_oom(r->d, "config.json");
}

static json_t *reals(const float *v, uint64_t n) {
    json_t *list = json_array();
    for (uint64_t i = 0; i < n; i++)
        pl_json_append(&list, json_real((double)v[i]));
    return list;
}

static pl_err read_longrope(struct reader *r, uint64_t dim, json_t **out) {
    float near[PL_ROPE_MAX_PAIRS], far[PL_ROPE_MAX_PAIRS];
    bool has_near, has_far;
    uint64_t original;
    *out = NULL;
    if (dim / 2 > PL_ROPE_MAX_PAIRS) return PL_ERR_OK;
    PL_TRY(read_factors(r, "rope_factors_short.weight", dim / 2, near, &has_near));
    PL_TRY(read_factors(r, "rope_factors_long.weight", dim / 2, far, &has_far));
    if (!has_near || !has_far) return PL_ERR_OK;
    PL_TRY(read_uint(r, "rope.scaling.original_context_length", &original));
    set_uint(r, "original_max_position_embeddings", original);
    *out = json_pack("{s:s,s:o,s:o}", "rope_type", "longrope", "short_factor", reals(near, dim / 2),
                     "long_factor", reals(far, dim / 2));
    return *out ? PL_ERR_OK : pl_host_oom(r->d, "config.json");
}

/* A number of the scaling under the name of transformers, where the file has it. */
static pl_err copy_real(const struct reader *r, const char *gguf, const char *key, json_t **out) {
    double v;
    if (!find_key(r, gguf)) return PL_ERR_OK;
    PL_TRY(read_real(r, gguf, &v));
    pl_json_set(out, key, json_real(v));
    return PL_ERR_OK;
}

static pl_err read_yarn(struct reader *r, json_t **out) {
    uint64_t original;
    PL_TRY(read_uint(r, "rope.scaling.original_context_length", &original));
    *out = json_pack("{s:s,s:I}", "rope_type", "yarn", "original_max_position_embeddings",
                     (json_int_t)original);
    PL_TRY(copy_real(r, "rope.scaling.factor", "factor", out));
    PL_TRY(copy_real(r, "rope.scaling.yarn_beta_fast", "beta_fast", out));
    PL_TRY(copy_real(r, "rope.scaling.yarn_beta_slow", "beta_slow", out));
    PL_TRY(copy_real(r, "rope.scaling.yarn_log_multiplier", "mscale_all_dim", out));
    if (find_key(r, "rope.scaling.yarn_log_multiplier"))
        pl_json_set(out, "mscale", json_real(1)); /* of every model that has the other one */
    PL_TRY(copy_real(r, "attention.temperature_scale", "llama_4_scaling_beta", out));
    return *out ? PL_ERR_OK : pl_host_oom(r->d, "config.json");
}

static pl_err read_scaling(struct reader *r, double theta, uint64_t dim, json_t **out) {
    const struct pl_gguf_value *type = find_key(r, "rope.scaling.type");
    PL_TRY(read_longrope(r, dim, out));
    if (*out) return PL_ERR_OK;
    PL_TRY(read_llama3(r, theta, dim, out));
    if (*out || !type || pl_gguf_string_is(type, "none")) return PL_ERR_OK;
    if (pl_gguf_string_is(type, "yarn")) return read_yarn(r, out);
    if (!pl_gguf_string_is(type, "linear"))
        return refuse_key(r, "rope.scaling.type", PL_ERR_MODEL_UNSUPPORTED,
                          "is none of none, linear and yarn");
    *out = json_pack("{s:s}", "rope_type", "linear");
    return copy_real(r, "rope.scaling.factor", "factor", out);
}

/* Ministral 3 reads its positions from rope_parameters, the others from keys of their own. */
static pl_err read_positions(struct reader *r) {
    double theta = r->family ? r->family->theta : 1e4;
    uint64_t dim = r->head_dim;
    json_t *scaling = NULL;
    PL_TRY(read_real(r, "rope.freq_base", &theta));
    PL_TRY(read_uint_or(r, "rope.dimension_count", &dim));
    if (!r->head_dim || dim > r->head_dim)
        return refuse_key(r, "rope.dimension_count", PL_ERR_MODEL_FIELD, "is more than a head has");
    PL_TRY(read_scaling(r, theta, dim, &scaling));
    const bool inside = strcmp(r->architecture, "mistral3") == 0;
    if (inside) {
        if (scaling) pl_json_set(&scaling, "rope_theta", json_real(theta));
        pl_json_set(&r->config, "rope_parameters", scaling ? scaling : json_null());
        return PL_ERR_OK;
    }
    pl_json_set(&r->config, "rope_theta", json_real(theta));
    if (scaling) pl_json_set(&r->config, "rope_scaling", scaling);
    if (dim != r->head_dim)
        pl_json_set(&r->config, "partial_rotary_factor",
                    json_real((double)dim / (double)r->head_dim));
    double local;
    if (find_key(r, "rope.freq_base_swa")) {
        PL_TRY(read_real(r, "rope.freq_base_swa", &local));
        pl_json_set(&r->config, "rope_local_base_freq", json_real(local));
    }
    return PL_ERR_OK;
}

/* --- the family --- */

/* llama.cpp writes Mistral's older models, and Mixtral, as `llama`. */
static void name_family(struct reader *r) {
    uint64_t window = 0, experts = 0;
    const char *type = r->architecture;
    r->family = pl_family_of_gguf(r->architecture);
    if (r->family) type = r->family->name;
    (void)pl_gguf_uint(find_key(r, "expert_count"), &experts);
    (void)pl_gguf_uint(find_key(r, "attention.sliding_window"), &window);
    if (strcmp(r->architecture, "llama") == 0 && window) {
        r->family = pl_family_get(PL_FAMILY_MISTRAL);
        type = r->family->name;
    }
    if (strcmp(r->architecture, "llama") == 0 && experts) type = "mixtral";
    static const struct {
        const char *gguf, *type;
    } others[] = {{"qwen2moe", "qwen2_moe"}, {"qwen3moe", "qwen3_moe"}, {"gpt-oss", "gpt_oss"}};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strcmp(type, others[i].gguf) == 0) type = others[i].type;
    if (r->family) pl_json_set(&r->config, "architectures", json_pack("[s]", r->family->class));
    pl_json_set(&r->config, "model_type", json_string(type));
}

/* Weights are values of any type, which fp32 alone holds without loss. */
static pl_err read_all(struct reader *r) {
    name_family(r);
    pl_json_set(&r->config, "torch_dtype", json_string("float32"));
    if (!r->family) return PL_ERR_OK;
    PL_TRY(read_sizes(r));
    PL_TRY(read_heads(r));
    PL_TRY(read_vocabulary(r));
    PL_TRY(read_norms(r));
    PL_TRY(read_windows(r));
    read_biases(r);
    read_tokens(r);
    return read_positions(r);
}

/* The name of an architecture has the letters of keys (ggml, docs/gguf.md). */
static bool is_name(const struct pl_gguf_string *s) {
    size_t i = 0;
    while (i < s->n && (isalnum((unsigned char)s->s[i]) || s->s[i] == '-' || s->s[i] == '_'))
        i++;
    return s->n && i == s->n;
}

static pl_err read_architecture(struct reader *r) {
    struct pl_gguf_string name, type;
    if (pl_gguf_string(pl_gguf_find(r->g, "general.type"), &type) &&
        !pl_gguf_string_is(pl_gguf_find(r->g, "general.type"), "model")) {
        pl_diag_at(r->d, PL_ERR_MODEL_FILE, r->path, 0, 0,
                   "a GGUF file of another kind than a model: %.*s", (int)pl_u64_min(type.n, 40),
                   type.s);
        pl_diag_hint(r->d, "name the GGUF file of the model itself");
        return PL_ERR_MODEL_FILE;
    }
    if (!pl_gguf_string(pl_gguf_find(r->g, "general.architecture"), &name) || !is_name(&name) ||
        name.n >= sizeof r->architecture)
        return pl_diag_at(r->d, PL_ERR_MODEL_FIELD, r->path, 0, 0,
                          "there is no `general.architecture`");
    snprintf(r->architecture, sizeof r->architecture, "%.*s", (int)name.n, name.s);
    return PL_ERR_OK;
}

pl_err pl_gguf_config_text(const struct pl_gguf *g, const char *path, char **text, uint64_t *bytes,
                           struct pl_diag *d) {
    struct reader r = {.g = g, .path = path, .d = d};
    *text = NULL;
    PL_TRY(read_architecture(&r));
    r.config = json_object();
    pl_err err = read_all(&r);
    if (err == PL_ERR_OK) {
        *text = r.config ? pl_json_dump(r.config, JSON_INDENT(2) | JSON_REAL_PRECISION(17)) : NULL;
        if (*text)
            *bytes = strlen(*text);
        else
            err = pl_host_oom(d, "config.json");
    }
    json_decref(r.config);
    return err;
}
