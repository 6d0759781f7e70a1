/* estimate_args.c - arguments of `estimate-vram` -> job. */
#include "tools/plimsoll/estimate_args.h"

#include "estimator/base/alloc.h"
#include "estimator/config/job_text.h"
#include "estimator/config/job_values.h"
#include "estimator/config/validate.h"
#include "estimator/find/find.h"

#include <stdlib.h>
#include <string.h>

static bool is_yaml(const char *path) {
    const char *dot = strrchr(path, '.');
    return dot && (strcmp(dot, ".yaml") == 0 || strcmp(dot, ".yml") == 0);
}

/* True for a question about inference: `mode` has this value only in a question. */
static bool asks_inference(const char *override) {
    return strcmp(override, "mode=inference") == 0;
}

static pl_err job_from_flags(const struct pl_cli *cli, struct pl_job *job, bool inference,
                             struct pl_text *notes, struct pl_diag *d) {
    PL_TRY(pl_job_defaults(job, d));
    if (cli->n_args) PL_TRY(pl_job_set(job, "model", cli->args[0], d));
    for (uint32_t i = 0; i < cli->n_overrides; i++)
        if (!asks_inference(cli->overrides[i]))
            PL_TRY(pl_job_assign(job, cli->overrides[i], notes, d));
    if (!inference && job->mode == PL_UNSET_U32) {
        PL_TRY(pl_job_set(job, "mode", "lora", d));
        pl_text_add(notes, "`mode` is not given: planned for lora; `--mode qlora` and `--mode "
                           "full` are the others\n");
    }
    PL_TRY(pl_job_drop_useless(job, notes, d));
    return pl_job_validate(job, d);
}

static pl_err job_from_file(const struct pl_cli *cli, struct pl_job *job, bool inference,
                            struct pl_text *notes, struct pl_diag *d) {
    pl_err (*read)(struct pl_job *, const char *, const char *const *, uint32_t, struct pl_text *,
                   struct pl_diag *) = inference ? pl_job_read_to_generate : pl_job_read;
    uint32_t n = 0;
    const char **keys = pl_calloc(cli->n_overrides + 1, sizeof *keys);
    if (!keys) return pl_host_oom(d, "the command line");
    for (uint32_t i = 0; i < cli->n_overrides; i++)
        if (!asks_inference(cli->overrides[i])) keys[n++] = cli->overrides[i];
    pl_err err = read(job, cli->args[0], keys, n, notes, d);
    free(keys);
    return err;
}

/* A name on the command line that leads nowhere is a slip of the command line. */
static pl_err find_config(const struct pl_job *job, bool typed, char **config_json,
                          struct pl_text *notes, struct pl_diag *d) {
    struct pl_model_ref ref;
    pl_err err = pl_find_config(job, notes, &ref, d);
    if (err == PL_ERR_MODEL_FILE && typed) err = d->err = PL_ERR_USAGE;
    *config_json = ref.config;
    ref.config = NULL;
    pl_model_ref_finish(&ref);
    return err;
}

pl_err pl_estimate_read_args(const struct pl_cli *cli, struct pl_job *job, char **config_json,
                             struct pl_text *notes, struct pl_diag *d) {
    bool from_file = cli->n_args && is_yaml(cli->args[0]);
    bool inference = false;
    for (uint32_t i = 0; i < cli->n_overrides; i++)
        inference |= asks_inference(cli->overrides[i]);
    *config_json = NULL;
    pl_err err = from_file ? job_from_file(cli, job, inference, notes, d)
                           : job_from_flags(cli, job, inference, notes, d);
    if (err == PL_ERR_OK && inference) pl_job_set_inference(job);
    if (err == PL_ERR_OK) err = find_config(job, cli->n_args && !from_file, config_json, notes, d);
    if (err != PL_ERR_OK) pl_job_finish(job);
    return err;
}
