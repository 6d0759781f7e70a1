/* rope.c - rotary position settings, in the spellings of transformers 4 (rope_theta and
 * rope_scaling, with `type` or `rope_type`) and 5 (rope_parameters). */
#include "estimator/model/families.h"

#include <math.h>
#include <string.h>

static const double factor_max = 1e6;

#define TWO_PI 6.28318530717958647692

static pl_err read_default(const struct pl_hf *r, const struct pl_hf *top, struct pl_model *m) {
    (void)r, (void)top, (void)m;
    return PL_ERR_OK;
}

static pl_err read_linear(const struct pl_hf *r, const struct pl_hf *top, struct pl_model *m) {
    (void)top;
    return pl_hf_real(r, "factor", 1, factor_max, &m->rope[0].factor);
}

/* The length a model was trained on before its positions were stretched. As in transformers, the
 * top level wins over the settings, and max_position_embeddings is it where neither says so. */
static pl_err read_original(const struct pl_hf *r, const struct pl_hf *top, struct pl_model *m) {
    static const char key[] = "original_max_position_embeddings";
    uint64_t original = m->max_positions;
    PL_TRY(
        pl_hf_uint_or(pl_hf_absent(top, key) ? r : top, key, 1, PL_MODEL_MAX_POSITIONS, &original));
    m->rope[0].original_max_positions = (uint32_t)original;
    return PL_ERR_OK;
}

static pl_err read_llama3(const struct pl_hf *r, const struct pl_hf *top, struct pl_model *m) {
    PL_TRY(pl_hf_real(r, "factor", 1, factor_max, &m->rope[0].factor));
    PL_TRY(pl_hf_real(r, "low_freq_factor", 1e-6, factor_max, &m->rope[0].low_freq_factor));
    PL_TRY(pl_hf_real(r, "high_freq_factor", 1e-6, factor_max, &m->rope[0].high_freq_factor));
    if (m->rope[0].high_freq_factor <= m->rope[0].low_freq_factor)
        return pl_hf_refuse(r, "high_freq_factor", PL_ERR_MODEL_FIELD,
                            "expected more than low_freq_factor, %g", m->rope[0].low_freq_factor);
    return read_original(r, top, m);
}

/* A number that the settings may also leave out by null or 0: *out keeps what it holds. */
static pl_err real_unless_zero(const struct pl_hf *r, const char *key, double *out) {
    double value = 0;
    if (!pl_hf_given(r, key)) return PL_ERR_OK;
    PL_TRY(pl_hf_real(r, key, 0, factor_max, &value));
    if (value != 0) *out = value;
    return PL_ERR_OK;
}

static double yarn_scale(double factor, double by) {
    return factor > 1 ? 1 + 0.1 * by * log(factor) : 1;
}

static pl_err read_yarn_scale(const struct pl_hf *r, struct pl_model *m) {
    double one = 0, all = 0;
    if (pl_hf_given(r, "attention_factor"))
        return pl_hf_real(r, "attention_factor", 1e-6, factor_max, &m->rope[0].attention_factor);
    PL_TRY(real_unless_zero(r, "mscale", &one));
    PL_TRY(real_unless_zero(r, "mscale_all_dim", &all));
    m->rope[0].attention_factor = yarn_scale(m->rope[0].factor, 1);
    if (one != 0 && all != 0)
        m->rope[0].attention_factor =
            yarn_scale(m->rope[0].factor, one) / yarn_scale(m->rope[0].factor, all);
    return PL_ERR_OK;
}

/* The pair that turns so many times within the original length. */
static double pair_of_turns(const struct pl_rope *rope, double turns) {
    return rope->dim * log(rope->original_max_positions / (turns * TWO_PI)) /
           (2 * log(rope->theta));
}

/* YaRN (arXiv 2309.00071, "NTK-by-parts" and section 3.4): pairs that turn more than beta_fast
 * times keep their waves, those below beta_slow turns are stretched, a ramp joins them. */
static pl_err read_yarn(const struct pl_hf *r, const struct pl_hf *top, struct pl_model *m) {
    struct pl_rope *rope = &m->rope[0];
    double fast = 32, slow = 1;
    bool truncate = pl_hf_absent(r, "truncate");
    PL_TRY(read_original(r, top, m));
    if (rope->theta <= 1)
        return pl_diag_at(top->d, PL_ERR_MODEL_FIELD, top->file, 0, 0,
                          "`rope_theta` is %g: yarn needs more than 1", rope->theta);
    rope->factor = (double)m->max_positions / rope->original_max_positions;
    if (pl_hf_absent(r, "factor") || pl_hf_given(r, "factor"))
        PL_TRY(pl_hf_real(r, "factor", 1, factor_max, &rope->factor));
    PL_TRY(read_yarn_scale(r, m));
    PL_TRY(real_unless_zero(r, "beta_fast", &fast));
    PL_TRY(real_unless_zero(r, "beta_slow", &slow));
    if (pl_hf_given(r, "truncate")) PL_TRY(pl_hf_bool_or(r, "truncate", &truncate));
    double low = pair_of_turns(rope, fast), high = pair_of_turns(rope, slow);
    rope->ramp_low = fmax(truncate ? floor(low) : low, 0);
    rope->ramp_high = fmin(truncate ? ceil(high) : high, rope->dim - 1.0);
    if (rope->ramp_low == rope->ramp_high) rope->ramp_high += 0.001;
    return PL_ERR_OK;
}

/* Beyond max_position_embeddings the base grows with the sequence; see rope_table.c. */
static pl_err read_dynamic(const struct pl_hf *r, const struct pl_hf *top, struct pl_model *m) {
    if (m->rope[0].dim <= 2)
        return pl_diag_at(top->d, PL_ERR_MODEL_FIELD, top->file, 0, 0,
                          "`head_dim` %llu: dynamic positions need more than 2 dimensions",
                          (unsigned long long)m->head_dim);
    m->rope[0].original_max_positions = (uint32_t)m->max_positions;
    return pl_hf_real(r, "factor", 1, factor_max, &m->rope[0].factor);
}

/* LongRoPE (arXiv 2402.13753) as Phi-3 uses it: one factor per pair, and cos and sin scaled by
 * sqrt(1 + ln(factor) / ln(original)) unless the file gives the scale; factor is max/original
 * unless it is given. The original length is the top level's alone, as Phi3Config has it. */
static pl_err read_longrope(const struct pl_hf *r, const struct pl_hf *top, struct pl_model *m) {
    uint64_t original = 4096, pairs = m->rope[0].dim / 2; /* 4096: Phi3Config's default */
    PL_TRY(pl_hf_uint_or(top, "original_max_position_embeddings", 2, PL_MODEL_MAX_POSITIONS,
                         &original));
    PL_TRY(pl_hf_reals(r, "short_factor", pairs, 1e-6, factor_max, m->rope[0].short_factor));
    PL_TRY(pl_hf_reals(r, "long_factor", pairs, 1e-6, factor_max, m->rope[0].long_factor));
    m->rope[0].original_max_positions = (uint32_t)original;
    m->rope[0].factor = (double)m->max_positions / (double)original;
    if (pl_hf_given(r, "factor"))
        PL_TRY(pl_hf_real(r, "factor", 1e-6, factor_max, &m->rope[0].factor));
    if (m->rope[0].factor > 1)
        m->rope[0].attention_factor = sqrt(1 + log(m->rope[0].factor) / log((double)original));
    if (pl_hf_given(r, "attention_factor"))
        PL_TRY(pl_hf_real(r, "attention_factor", 1e-6, factor_max, &m->rope[0].attention_factor));
    return PL_ERR_OK;
}

/* Only the first pairs of a head turn, at the frequencies that they have when all do. Whole heads
 * are turned, so that the share is none of a partial rotation. */
static pl_err read_proportional(const struct pl_hf *r, const struct pl_hf *top,
                                struct pl_model *m) {
    double share = 1, factor = 1;
    (void)top;
    PL_TRY(pl_hf_real_or(r, "partial_rotary_factor", 1e-3, 1, &share));
    PL_TRY(pl_hf_real_or(r, "factor", 1e-6, factor_max, &factor));
    if (factor != 1)
        return pl_hf_refuse(r, "factor", PL_ERR_MODEL_UNSUPPORTED,
                            "proportional positions are not stretched here");
    m->rope[0].turned = (uint32_t)(share * m->rope[0].dim / 2);
    return PL_ERR_OK;
}

static const struct rope_row {
    const char *name;
    enum pl_rope_type type;
    unsigned bit;
    pl_err (*read)(const struct pl_hf *r, const struct pl_hf *top, struct pl_model *m);
} rope_rows[] = {
    {"default", PL_ROPE_DEFAULT, PL_ROPE_BIT_DEFAULT, read_default},
    {"linear", PL_ROPE_LINEAR, PL_ROPE_BIT_LINEAR, read_linear},
    {"llama3", PL_ROPE_LLAMA3, PL_ROPE_BIT_LLAMA3, read_llama3},
    {"yarn", PL_ROPE_YARN, PL_ROPE_BIT_YARN, read_yarn},
    {"dynamic", PL_ROPE_DYNAMIC, PL_ROPE_BIT_DYNAMIC, read_dynamic},
    {"longrope", PL_ROPE_LONGROPE, PL_ROPE_BIT_LONGROPE, read_longrope},
    {"su", PL_ROPE_LONGROPE, PL_ROPE_BIT_LONGROPE, read_longrope},   /* early Phi-3 files */
    {"yarn", PL_ROPE_LONGROPE, PL_ROPE_BIT_LONGROPE, read_longrope}, /* Phi-3's word for it, too */
    {"proportional", PL_ROPE_PROPORTIONAL, PL_ROPE_BIT_PROPORTIONAL, read_proportional},
};

/* Settings for each kind of layer, in a family that has one for all. */
static pl_err refuse_nested(const struct pl_hf *r, json_t *settings) {
    const char *key;
    json_t *value;
    json_object_foreach(settings, key, value) {
        if (json_is_object(value))
            return pl_hf_refuse(r, key, PL_ERR_MODEL_UNSUPPORTED,
                                "positions that differ between layers are not computed here");
    }
    return PL_ERR_OK;
}

/* Into the settings of a kind of layer; false where they are those of all. */
static bool descend(struct pl_hf *r, const char *kind, const char *prefix) {
    json_t *o = json_object_get(r->object, kind);
    if (!json_is_object(o)) return false;
    r->object = o;
    r->prefix = prefix;
    return true;
}

/* The object that says how positions scale; the top level itself when nothing does. */
static pl_err find_settings(const struct pl_hf *h, const struct pl_family_row *f,
                            struct pl_hf *out) {
    static const char *const keys[] = {"rope_parameters", "rope_scaling"};
    static const char *const prefixes[] = {"rope_parameters.", "rope_scaling."};
    const json_t *found = NULL;
    *out = *h;
    for (int i = 0; i < 2; i++) {
        if (!pl_hf_given(h, keys[i])) continue;
        json_t *o = json_object_get(h->object, keys[i]);
        if (!json_is_object(o))
            return pl_hf_refuse(h, keys[i], PL_ERR_MODEL_FIELD, "expected an object or null");
        if (found && !json_equal(found, o))
            return pl_hf_refuse(h, keys[i], PL_ERR_MODEL_FIELD,
                                "`rope_parameters` says something else");
        found = o;
        out->object = o;
        out->prefix = prefixes[i];
        if (f->local_theta == 0) PL_TRY(refuse_nested(out, o));
    }
    if (f->local_theta != 0)
        (void)descend(out, "full_attention", "rope_parameters.full_attention.");
    return PL_ERR_OK;
}

/* *out keeps the default row when the settings name no type. */
static pl_err find_row(const struct pl_hf *r, const struct pl_family_row *f,
                       const struct rope_row **out) {
    const char *key = pl_hf_given(r, "rope_type") ? "rope_type" : "type";
    if (!pl_hf_given(r, key)) {
        if (pl_hf_given(r, "factor"))
            return pl_hf_refuse(r, "rope_type", PL_ERR_MODEL_FIELD,
                                "there is a factor, but no type that says how it is used");
        return PL_ERR_OK;
    }
    const char *name = json_string_value(json_object_get(r->object, key));
    for (size_t i = 0; name && i < sizeof rope_rows / sizeof *rope_rows; i++) {
        if (strcmp(rope_rows[i].name, name) != 0 || !(rope_rows[i].bit & f->rope_types)) continue;
        *out = &rope_rows[i];
        return PL_ERR_OK;
    }
    pl_err err = pl_hf_refuse(r, key, PL_ERR_MODEL_UNSUPPORTED,
                              "this rope type is not computed here for `%s`", f->name);
    pl_diag_hint(r->d,
                 "rope types: default, linear, dynamic, llama3 and yarn; for phi3 default and "
                 "longrope; for gemma4_text default and proportional");
    return err;
}

/* Values that transformers 5 moved into rope_parameters and that may still be at the top level. */
static pl_err moved_real(const struct pl_hf *r, const struct pl_hf *top, const char *key,
                         double low, double high, double *out) {
    return pl_hf_real_or(pl_hf_absent(r, key) ? top : r, key, low, high, out);
}

/* The size of heads that turn by a rope of the model; layers of one rope have heads of one size. */
static uint32_t head_dim_of(const struct pl_model *m, uint8_t rope) {
    for (uint64_t i = 0; i < m->layers; i++)
        if (m->layer[i].rope == rope) return m->layer[i].head_dim;
    return (uint32_t)m->head_dim;
}

/* Reads the rope of layers with a window, which are never stretched and have a base of their
 * own. */
static pl_err read_local(const struct pl_hf *h, const struct pl_family_row *f, struct pl_model *m) {
    struct pl_hf r = *h;
    double share = 1;
    struct pl_rope *local = &m->rope[m->n_ropes++];
    *local = (struct pl_rope){
        .theta = f->local_theta, .dim = head_dim_of(m, 1), .factor = 1, .attention_factor = 1};
    PL_TRY(pl_hf_real_or(h, "rope_local_base_freq", 1e-3, 1e15, &local->theta));
    r.object = json_object_get(h->object, "rope_parameters");
    if (!r.object || !descend(&r, "sliding_attention", "rope_parameters.sliding_attention."))
        return PL_ERR_OK;
    const char *type = json_string_value(json_object_get(r.object, "rope_type"));
    if (type && strcmp(type, "default") != 0)
        return pl_hf_refuse(&r, "rope_type", PL_ERR_MODEL_UNSUPPORTED,
                            "positions of layers with a window are not stretched here");
    PL_TRY(pl_hf_real_or(&r, "partial_rotary_factor", 1e-3, 1, &share));
    if (share != 1)
        return pl_hf_refuse(&r, "partial_rotary_factor", PL_ERR_MODEL_UNSUPPORTED,
                            "heads of layers with a window turn as a whole here");
    return pl_hf_real_or(&r, "rope_theta", 1e-3, 1e15, &local->theta);
}

/* The dimensions of a head that turn: all, or the first of them where the class reads a share. */
static pl_err read_dim(const struct pl_hf *r, const struct pl_hf *top,
                       const struct pl_family_row *f, struct pl_model *m) {
    const uint32_t head_dim = head_dim_of(m, 0);
    double share = f->rotary_share > 0 ? f->rotary_share : 1;
    if (m->rope[0].type != PL_ROPE_PROPORTIONAL)
        PL_TRY(moved_real(r, top, "partial_rotary_factor", 1e-3, 1, &share));
    if (share != 1 && !f->partial_rotary)
        return pl_hf_refuse(pl_hf_absent(r, "partial_rotary_factor") ? top : r,
                            "partial_rotary_factor", PL_ERR_MODEL_UNSUPPORTED,
                            "`%s` rotates whole heads", f->name);
    const double dim = floor(head_dim * share);
    if (dim < 2 || fmod(dim, 2) != 0 || dim > 2.0 * PL_ROPE_MAX_PAIRS)
        return pl_diag_at(top->d, PL_ERR_MODEL_FIELD, top->file, 0, 0,
                          "`head_dim` %u rotates %g dimensions: expected an even number from 2 "
                          "to %d",
                          head_dim, dim, 2 * PL_ROPE_MAX_PAIRS);
    m->rope[0].dim = (uint32_t)dim;
    return PL_ERR_OK;
}

pl_err pl_model_read_rope(const struct pl_hf *h, const struct pl_family_row *f,
                          struct pl_model *m) {
    struct pl_hf r;
    const struct rope_row *row = &rope_rows[0];
    PL_TRY(find_settings(h, f, &r));
    m->rope[0].theta = f->theta;
    m->rope[0].factor = 1;
    m->rope[0].attention_factor = 1;
    PL_TRY(moved_real(&r, h, "rope_theta", 1e-3, 1e15, &m->rope[0].theta));
    if (r.object != h->object) PL_TRY(find_row(&r, f, &row));
    m->rope[0].type = row->type;
    PL_TRY(read_dim(&r, h, f, m));
    m->n_ropes = 1;
    PL_TRY(row->read(&r, h, m));
    return f->local_theta != 0 ? read_local(h, f, m) : PL_ERR_OK;
}
