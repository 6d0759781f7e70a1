#include "runtime/admit/prompts.h"

#include "estimator/base/alloc.h"
#include "estimator/config/job_values.h"
#include "estimator/find/find.h"
#include "runtime/data/chat/chat.h"

#include <stdlib.h>
#include <string.h>

static pl_err refuse_prompt(const struct pl_preflight *pf, uint32_t i, const char *why,
                            const char *hint, struct pl_diag *d) {
    pl_job_error(pf->job, PL_KEY_sample_prompts, PL_ERR_CONFIG_RANGE, d,
                 "prompt %u of `sample_prompts` %s", i + 1, why);
    pl_diag_hint(d, "%s", hint);
    return PL_ERR_CONFIG_RANGE;
}

static pl_err check_prompt(const struct pl_preflight *pf, uint32_t i,
                           const struct pl_token_list *tokens, struct pl_diag *d) {
    char why[120];
    if (tokens->n == 0) return refuse_prompt(pf, i, "has no token", "remove it", d);
    for (uint64_t t = 0; t < tokens->n; t++)
        if (tokens->ids[t] < 0 || (uint64_t)tokens->ids[t] >= pf->model.vocab)
            return refuse_prompt(pf, i, "has a token that the model does not know",
                                 "name the model's own `tokenizer`", d);
    if (tokens->n < pf->job->max_seq_length) return PL_ERR_OK;
    snprintf(why, sizeof why, "has %llu tokens, and `max_seq_length` is %u",
             (unsigned long long)tokens->n, pf->job->max_seq_length);
    return refuse_prompt(pf, i, why, "shorten it, or raise `max_seq_length`", d);
}

static pl_err add_prompt(struct pl_preflight *pf, uint32_t i, enum pl_prompt_form form,
                         const struct pl_template_choice *choice, struct pl_diag *d) {
    struct pl_run_prompts *p = &pf->prompts;
    const struct pl_token_list *tokens = &p->text.prompt;
    PL_TRY(pl_prompt_text_encode_as(&p->text, form, pf->job->sample_prompts.items[i], choice, d));
    PL_TRY(check_prompt(pf, i, tokens, d));
    struct pl_run_prompt *prompt = &p->list[p->n];
    prompt->ids = pl_malloc((size_t)tokens->n * sizeof *prompt->ids);
    if (!prompt->ids) return pl_host_oom(d, "the prompts");
    memcpy(prompt->ids, tokens->ids, (size_t)tokens->n * sizeof *prompt->ids);
    prompt->n = tokens->n;
    p->n++;
    return PL_ERR_OK;
}

static pl_err open_text(struct pl_preflight *pf, struct pl_diag *d) {
    char *path;
    PL_TRY(pl_find_tokenizer(pf->job, &path, d));
    const pl_err err = pl_prompt_text_open(&pf->prompts.text, path, d);
    free(path);
    if (err == PL_ERR_OK && pf->job->chat_date)
        (void)pl_chat_date_parse(pf->job->chat_date, &pf->prompts.text.date);
    return err;
}

static pl_err add_prompts(struct pl_preflight *pf, const struct pl_template_choice *choice,
                          struct pl_diag *d) {
    const uint32_t n = pf->job->sample_prompts.n;
    const enum pl_prompt_form form = pl_data_prompt_form(pf->data.rows);
    pf->prompts.list = pl_calloc(n, sizeof *pf->prompts.list);
    if (!pf->prompts.list) return pl_host_oom(d, "the prompts");
    for (uint32_t i = 0; i < n; i++)
        PL_TRY(add_prompt(pf, i, form, choice, d));
    return PL_ERR_OK;
}

/* The file of a template is named from the directory of the job. */
pl_err pl_preflight_prompts(struct pl_preflight *pf, struct pl_diag *d) {
    struct pl_template_choice choice = pf->job->chat_template;
    if (!pl_job_samples(pf->job)) return PL_ERR_OK;
    PL_TRY(open_text(pf, d));
    if (choice.path && !(choice.path = pl_job_input_path(pf->job, choice.path)))
        return pl_host_oom(d, "a path");
    const pl_err err = add_prompts(pf, &choice, d);
    free(choice.path);
    return err;
}

void pl_run_prompts_finish(struct pl_run_prompts *p) {
    for (uint32_t i = 0; i < p->n; i++)
        free(p->list[i].ids);
    free(p->list);
    pl_prompt_text_close(&p->text);
    *p = (struct pl_run_prompts){0};
}
