#include "estimator/find/find.h"

#include "estimator/base/alloc.h"
#include "estimator/config/job_values.h"
#include "estimator/gguf/gguf_file.h"

#include <stdlib.h>
#include <string.h>

static pl_err find_path(const struct pl_job *job, const char *given, char **out,
                        struct pl_diag *d) {
    *out = job ? pl_job_input_path(job, given) : pl_strdup(given);
    return *out ? PL_ERR_OK : pl_host_oom(d, "a path");
}

pl_err pl_find_model(const struct pl_job *job, const char *given, struct pl_text *notes,
                     struct pl_model_ref *out, struct pl_diag *d) {
    char *path;
    *out = (struct pl_model_ref){0};
    PL_TRY(find_path(job, given, &path, d));
    pl_err err = pl_model_resolve(path, out, notes, d);
    free(path);
    return err;
}

pl_err pl_find_config(const struct pl_job *job, struct pl_text *notes, struct pl_model_ref *out,
                      struct pl_diag *d) {
    const char *given = job->model ? job->model : job->model_config;
    *out = (struct pl_model_ref){0};
    if (given) return pl_find_model(job, given, notes, out, d);
    pl_diag_set(d, PL_ERR_USAGE, "no model: give a MODEL or a CONFIG.yaml");
    pl_diag_hint(d, "plimsoll estimate-vram Qwen/Qwen2.5-7B --gpu \"RTX 4090\"");
    return PL_ERR_USAGE;
}

static pl_err no_tokenizer(const struct pl_job *job, struct pl_diag *d) {
    struct pl_text fetch = {0};
    if (job->model) pl_model_add_fetching(job->model, &fetch);
    if (job->model)
        pl_diag_set(d, PL_ERR_TOKENIZER_FILE,
                    "data of this format needs a tokenizer, and `%s` is not on this machine",
                    job->model);
    else
        pl_diag_set(d, PL_ERR_TOKENIZER_FILE, "data of this format needs a tokenizer");
    pl_diag_hint(d, "%s%sset `tokenizer:` to a tokenizer.json, or to `byte`", pl_text_str(&fetch),
                 fetch.len ? "; or " : "");
    pl_text_finish(&fetch);
    return PL_ERR_TOKENIZER_FILE;
}

pl_err pl_find_tokenizer(const struct pl_job *job, char **out, struct pl_diag *d) {
    const char *model = job->model ? job->model : job->model_config, *own = job->tokenizer;
    struct pl_model_ref ref;
    *out = NULL;
    if (own && own[0]) return find_path(strcmp(own, "byte") ? job : NULL, own, out, d);
    if (!model) return no_tokenizer(job, d);
    PL_TRY(pl_find_model(job, model, NULL, &ref, d));
    if (ref.origin == PL_ORIGIN_CATALOGUE) {
        pl_model_ref_finish(&ref);
        return no_tokenizer(job, d);
    }
    *out = ref.config;
    ref.config = NULL;
    if (!pl_gguf_is(*out)) { /* its directory, in place: there is room for the shortest of them */
        char *slash = strrchr(*out, '/');
        if (slash)
            slash[1] = 0;
        else
            memcpy(*out, ".", 2);
    }
    pl_model_ref_finish(&ref);
    return PL_ERR_OK;
}

pl_err pl_find_adapter(const struct pl_job *job, char **out, struct pl_diag *d) {
    *out = NULL;
    return job->adapter_path ? find_path(job, job->adapter_path, out, d) : PL_ERR_OK;
}
