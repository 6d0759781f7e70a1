/* rope.c - rotary position settings, in the spellings of transformers 4 (rope_theta and
 * rope_scaling, with `type` or `rope_type`) and 5 (rope_parameters). */
#include "estimator/model/families.h"

#include <math.h>
#include <string.h>

static const double factor_max = 1e6;

static pl_err read_default(const struct pl_hf *r, const struct pl_hf *top, struct pl_model *m) {
    (void)r, (void)top, (void)m;
    return PL_ERR_OK;
}

static pl_err read_linear(const struct pl_hf *r, const struct pl_hf *top, struct pl_model *m) {
    (void)top;
    return pl_hf_real(r, "factor", 1, factor_max, &m->rope.factor);
}

static pl_err read_llama3(const struct pl_hf *r, const struct pl_hf *top, struct pl_model *m) {
    (void)top;
    uint64_t original = 0;
    PL_TRY(pl_hf_real(r, "factor", 1, factor_max, &m->rope.factor));
    PL_TRY(pl_hf_real(r, "low_freq_factor", 1e-6, factor_max, &m->rope.low_freq_factor));
    PL_TRY(pl_hf_real(r, "high_freq_factor", 1e-6, factor_max, &m->rope.high_freq_factor));
    PL_TRY(pl_hf_uint(r, "original_max_position_embeddings", 1, PL_MODEL_MAX_POSITIONS, &original));
    if (m->rope.high_freq_factor <= m->rope.low_freq_factor)
        return pl_hf_refuse(r, "high_freq_factor", PL_ERR_MODEL_FIELD,
                            "expected more than low_freq_factor, %g", m->rope.low_freq_factor);
    m->rope.original_max_positions = (uint32_t)original;
    return PL_ERR_OK;
}

/* LongRoPE (arXiv 2402.13753) as Phi-3 uses it: one factor per pair, and cos and sin scaled by
 * sqrt(1 + ln(max/original) / ln(original)) unless the file gives the scale. */
static pl_err read_longrope(const struct pl_hf *r, const struct pl_hf *top, struct pl_model *m) {
    uint64_t original = 4096, pairs = m->rope.dim / 2; /* 4096: Phi3Config's default */
    PL_TRY(
        pl_hf_uint_or(r, "original_max_position_embeddings", 2, PL_MODEL_MAX_POSITIONS, &original));
    PL_TRY(pl_hf_uint_or(top, "original_max_position_embeddings", 2, PL_MODEL_MAX_POSITIONS,
                         &original));
    PL_TRY(pl_hf_reals(r, "short_factor", pairs, 1e-6, factor_max, m->rope.short_factor));
    PL_TRY(pl_hf_reals(r, "long_factor", pairs, 1e-6, factor_max, m->rope.long_factor));
    m->rope.original_max_positions = (uint32_t)original;
    m->rope.factor = (double)m->max_positions / (double)original;
    if (m->rope.factor > 1)
        m->rope.attention_factor = sqrt(1 + log(m->rope.factor) / log((double)original));
    if (pl_hf_given(r, "attention_factor"))
        PL_TRY(pl_hf_real(r, "attention_factor", 1e-6, factor_max, &m->rope.attention_factor));
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
    {"longrope", PL_ROPE_LONGROPE, PL_ROPE_BIT_LONGROPE, read_longrope},
    {"su", PL_ROPE_LONGROPE, PL_ROPE_BIT_LONGROPE, read_longrope}, /* early Phi-3 files */
};

/* The object that says how positions scale; the top level itself when nothing does. */
static pl_err find_settings(const struct pl_hf *h, struct pl_hf *out) {
    static const char *const keys[] = {"rope_parameters", "rope_scaling"};
    static const char *const prefixes[] = {"rope_parameters.", "rope_scaling."};
    const json_t *found = NULL;
    *out = *h;
    for (int i = 0; i < 2; i++) {
        if (!pl_hf_given(h, keys[i])) continue;
        const json_t *o = json_object_get(h->object, keys[i]);
        if (!json_is_object(o))
            return pl_hf_refuse(h, keys[i], PL_ERR_MODEL_FIELD, "expected an object or null");
        if (found && !json_equal(found, o))
            return pl_hf_refuse(h, keys[i], PL_ERR_MODEL_FIELD,
                                "`rope_parameters` says something else");
        found = o;
        out->object = o;
        out->prefix = prefixes[i];
    }
    return PL_ERR_OK;
}

/* *out keeps the default row when the settings name no type. */
static pl_err find_row(const struct pl_hf *r, const struct pl_family_row *f,
                       const struct rope_row **out) {
    const char *key = pl_hf_given(r, "rope_type") ? "rope_type" : "type";
    if (!pl_hf_given(r, key)) {
        if (pl_hf_given(r, "factor"))
            return pl_hf_refuse(r, "rope_type", PL_ERR_MODEL_FIELD,
                                "there is a factor but no type to say what it does");
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
    pl_diag_hint(r->d, "rope types: default, linear and llama3; for phi3 default and longrope");
    return err;
}

/* Values that transformers 5 moved into rope_parameters and that may still be at the top level. */
static pl_err moved_real(const struct pl_hf *r, const struct pl_hf *top, const char *key,
                         double low, double high, double *out) {
    return pl_hf_real_or(pl_hf_absent(r, key) ? top : r, key, low, high, out);
}

pl_err pl_model_read_rope(const struct pl_hf *h, const struct pl_family_row *f,
                          struct pl_model *m) {
    struct pl_hf r;
    const struct rope_row *row = &rope_rows[0];
    double share = 1;
    PL_TRY(find_settings(h, &r));
    m->rope.theta = f->theta;
    m->rope.factor = 1;
    m->rope.attention_factor = 1;
    PL_TRY(moved_real(&r, h, "rope_theta", 1e-3, 1e15, &m->rope.theta));
    PL_TRY(moved_real(&r, h, "partial_rotary_factor", 1e-3, 1, &share));
    if (share != 1 && !f->partial_rotary)
        return pl_hf_refuse(pl_hf_absent(&r, "partial_rotary_factor") ? h : &r,
                            "partial_rotary_factor", PL_ERR_MODEL_UNSUPPORTED,
                            "`%s` rotates whole heads", f->name);
    double dim = floor((double)m->head_dim * share);
    if (dim < 2 || fmod(dim, 2) != 0 || dim > 2.0 * PL_ROPE_MAX_PAIRS)
        return pl_diag_at(h->d, PL_ERR_MODEL_FIELD, h->file, 0, 0,
                          "`head_dim` %llu rotates %g dimensions: expected an even number from 2 "
                          "to %d",
                          (unsigned long long)m->head_dim, dim, 2 * PL_ROPE_MAX_PAIRS);
    m->rope.dim = (uint32_t)dim;
    if (r.object != h->object) PL_TRY(find_row(&r, f, &row));
    m->rope.type = row->type;
    return row->read(&r, h, m);
}
