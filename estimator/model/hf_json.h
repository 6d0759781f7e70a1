/* hf_json.h - typed reads of config.json fields; every refusal names key, value and expectation.
 *
 * In: a parsed JSON object.  Out: numbers in range, or PL_ERR_MODEL_FIELD.  Needs: base, jansson.
 *   H1  a reader either sets *out to a value in [low, high] or reports and returns an error
 *   H2  `null` is not the same as absent: only the keys asked about with pl_hf_given() may be null
 * Use: PL_TRY(pl_hf_uint(&h, "hidden_size", 1, 1048576, &m->hidden)); */
#ifndef PL_ESTIMATOR_MODEL_HF_JSON_H
#define PL_ESTIMATOR_MODEL_HF_JSON_H

#include "estimator/base/diag.h"
#include "estimator/base/json_tree.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct pl_hf {
    const json_t *object;
    const char *file;   /* name of the file in messages */
    const char *prefix; /* "" or "rope_scaling." */
    struct pl_diag *d;
};

/* True if the key has a value that is not null. */
bool pl_hf_given(const struct pl_hf *h, const char *key);
bool pl_hf_absent(const struct pl_hf *h, const char *key);

/* Reads of required fields. */
pl_err pl_hf_uint(const struct pl_hf *h, const char *key, uint64_t low, uint64_t high,
                  uint64_t *out);
pl_err pl_hf_real(const struct pl_hf *h, const char *key, double low, double high, double *out);
/* Reads of optional fields: if the key is absent, *out is unchanged. */
pl_err pl_hf_uint_or(const struct pl_hf *h, const char *key, uint64_t low, uint64_t high,
                     uint64_t *out);
pl_err pl_hf_real_or(const struct pl_hf *h, const char *key, double low, double high, double *out);
pl_err pl_hf_bool_or(const struct pl_hf *h, const char *key, bool *out);
/* Reads a required list of exactly n numbers in [low, high]. */
pl_err pl_hf_reals(const struct pl_hf *h, const char *key, uint64_t n, double low, double high,
                   double *out);

/* Records "`key` is VALUE: <what was expected>", VALUE cut to a readable length; returns `err`. */
pl_err pl_hf_refuse(const struct pl_hf *h, const char *key, pl_err err, const char *fmt, ...)
    PL_PRINTF(4, 5);
/* Refuses a setting that asks for more than is computed here: absent, null and false are fine. */
pl_err pl_hf_refuse_setting(const struct pl_hf *h, const char *key, const char *why);

#endif
