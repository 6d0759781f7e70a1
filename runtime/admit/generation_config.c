#include "runtime/admit/generation_config.h"

#include "estimator/base/alloc.h"
#include "estimator/base/open_file.h"
#include "runtime/checkpoint/json_io.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define NAME "generation_config.json"

/* --- end tokens ------------------------------------------------------------------------------- */

static void take_ends(const json_t *v, struct pl_model *m, struct pl_text *notes) {
    const size_t n = json_is_array(v) ? json_array_size(v) : 1;
    int64_t ends[PL_MODEL_MAX_EOS];
    uint32_t taken = 0, passed = 0;
    for (size_t i = 0; i < n; i++) {
        const json_t *one = json_is_array(v) ? json_array_get(v, i) : v;
        const json_int_t id = json_is_integer(one) ? json_integer_value(one) : -1;
        if (id < 0 || (uint64_t)id >= m->vocab || taken == PL_MODEL_MAX_EOS)
            passed++;
        else
            ends[taken++] = id;
    }
    if (passed)
        pl_text_addf(notes,
                     "warning: " NAME ": %u of `eos_token_id` %s no id below vocab_size %llu%s\n",
                     passed, passed == 1 ? "is" : "are", (unsigned long long)m->vocab,
                     taken ? "" : "; the ids of config.json end an answer");
    if (!taken) return;
    memcpy(m->eos, ends, taken * sizeof *ends);
    m->n_eos = taken;
}

/* --- sampling --------------------------------------------------------------------------------- */

/* The values that transformers samples by, as flags of `generate`. */
static const struct {
    const char *key, *flag;
    double neutral; /* a value that changes nothing */
    double absent;  /* what transformers takes where the file says nothing */
    bool sampled;   /* only where `do_sample` is true */
} samplings[] = {
    {"temperature", "--temperature", -1, 1, true},
    {"top_k", "--top-k", 0, 50, true},
    {"top_p", "--top-p", 1, 1, true},
    {"min_p", "--min-p", 0, 0, true},
    {"repetition_penalty", "--repetition-penalty", 1, 1, false},
};

static void tell_sampling(const json_t *config, struct pl_text *notes) {
    struct pl_text flags = {0};
    const bool samples = json_is_true(json_object_get(config, "do_sample"));
    for (size_t i = 0; i < sizeof samplings / sizeof *samplings; i++) {
        const json_t *v = json_object_get(config, samplings[i].key);
        const double x = json_is_number(v) ? json_number_value(v) : samplings[i].absent;
        if (!isfinite(x) || x == samplings[i].neutral || (samplings[i].sampled && !samples))
            continue;
        pl_text_addf(&flags, " %s %g", samplings[i].flag, x);
    }
    if (flags.len)
        pl_text_addf(notes, NAME " recommends%s; only the flags of this command are used\n",
                     pl_text_str(&flags));
    notes->failed |= flags.failed;
    pl_text_finish(&flags);
}

/* --- file ------------------------------------------------------------------------------------- */

static char *path_beside(const char *config_path) {
    const char *slash = strrchr(config_path, '/');
    char *path = NULL;
    const int n = slash ? (int)(slash - config_path) + 1 : 0;
    return pl_asprintf(&path, "%.*s" NAME, n, config_path) < 0 ? NULL : path;
}

pl_err pl_generation_config_take(const char *config_path, struct pl_model *m, struct pl_text *notes,
                                 struct pl_diag *d) {
    struct pl_diag why = {0};
    json_t *config = NULL;
    char *path = path_beside(config_path);
    if (!path) return pl_host_oom(d, "a path");
    pl_err err = PL_ERR_OK;
    if (pl_look_for(path) != PL_NOT_THERE) err = pl_json_read(path, &config, &why);
    const json_t *ends = json_object_get(config, "eos_token_id");
    if (ends && !json_is_null(ends)) take_ends(ends, m, notes);
    if (config) tell_sampling(config, notes);
    if (err != PL_ERR_OK && err != PL_ERR_HOST_OOM) {
        pl_text_addf(notes, "warning: " NAME " is not used: %s\n", why.message);
        err = PL_ERR_OK;
    } else if (err == PL_ERR_HOST_OOM) {
        err = pl_host_oom(d, NAME);
    }
    json_decref(config);
    free(path);
    return err;
}
