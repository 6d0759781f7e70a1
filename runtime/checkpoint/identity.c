#include "runtime/checkpoint/identity.h"
#include "estimator/base/checked.h"
#include "runtime/checkpoint/json_io.h"
#include "runtime/checkpoint/weight_files.h"
#include "runtime/checkpoint/windows.h"

#include <stdlib.h>
#include <string.h>

#define SAMPLE_BYTES 4096u

pl_err pl_config_identity(const char *json, uint64_t bytes, uint64_t *out, struct pl_diag *d) {
    struct pl_digest h;
    json_t *root = NULL;
    PL_TRY(pl_json_parse("config.json", json, bytes, &root, d));
    char *text = pl_json_text(root);
    json_decref(root);
    if (!text) return pl_host_oom(d, "config.json");
    pl_digest_init(&h, 0);
    pl_digest_add(&h, text, strlen(text));
    *out = pl_digest_value(&h);
    free(text);
    return PL_ERR_OK;
}

static pl_err add_tensor(const struct pl_st_file *f, const struct pl_st_entry *e, uint64_t *sum,
                         struct pl_diag *d) {
    struct pl_digest h;
    char sample[SAMPLE_BYTES];
    const uint64_t bytes = pl_u64_min(e->end - e->begin, sizeof sample);
    const uint32_t kept = e->rank < PL_ST_DIMS ? e->rank : PL_ST_DIMS;
    PL_TRY(pl_st_read(f, e, 0, sample, bytes, d));
    pl_digest_init(&h, 0);
    pl_digest_add(&h, e->name, strlen(e->name) + 1);
    pl_digest_add(&h, e->dtype_name, strlen(e->dtype_name) + 1);
    pl_digest_add(&h, e->dims, kept * sizeof *e->dims);
    pl_digest_add(&h, sample, (size_t)bytes);
    *sum += pl_digest_value(&h); /* in any order */
    return PL_ERR_OK;
}

pl_err pl_weights_identity(const char *dir, uint64_t *out, struct pl_diag *d) {
    struct pl_weight_files f = {0};
    uint64_t sum = 0;
    pl_err err = pl_weight_files_open(&f, dir, "model", PL_ERR_MODEL_FILE, d);
    for (uint32_t i = 0; i < f.n && err == PL_ERR_OK; i++)
        for (uint64_t k = 0; k < f.files[i].n && err == PL_ERR_OK; k++)
            err = add_tensor(&f.files[i], &f.files[i].entries[k], &sum, d);
    pl_weight_files_close(&f);
    *out = sum;
    return err;
}
