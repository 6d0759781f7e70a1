/* question.c - what to plan for, and against which memory. */
#include "estimator/api/question.h"

#include "estimator/autobatch/autolevel.h"
#include "estimator/rule_of_thumb/rule.h"

#include <stdlib.h>

/* --- the target ------------------------------------------------------------------------------- */

/* A GPU that the kernels cannot run on still has a size to compare with. */
static uint32_t planned_sm(struct pl_question *q, const struct pl_card *c) {
    if (c->sm >= PL_CARD_OLDEST_SM) return c->sm;
    pl_text_addf(&q->notes,
                 "%s has compute capability %u.%u; the kernels need %d.%d: the answer is about its "
                 "memory alone\n",
                 c->name, c->sm / 10, c->sm % 10, PL_CARD_OLDEST_SM / 10, PL_CARD_OLDEST_SM % 10);
    return PL_CARD_OLDEST_SM;
}

static pl_err aim_at_card(struct pl_question *q, const char *gpu, struct pl_diag *d) {
    bool ambiguous;
    const struct pl_card *c;
    PL_TRY(pl_card_require(gpu, &c, &ambiguous, d));
    if (ambiguous)
        pl_text_addf(&q->notes, "`%s` has several sizes: taken as %s, the smallest\n", gpu,
                     c->name);
    q->card = c;
    q->traits = pl_traits_cuda(planned_sm(q, c));
    q->budget = (struct pl_budget){.known = true,
                                   .total_bytes = c->visible_bytes,
                                   .margin_bytes = PL_CARD_MARGIN,
                                   .context_bytes = c->context_bytes,
                                   .doubt_bytes = pl_card_context_doubt(c),
                                   .source = c->name};
    return PL_ERR_OK;
}

static void aim_at_any_gpu(struct pl_question *q) {
    q->traits = pl_traits_cuda(PL_CARD_DEFAULT_SM);
    q->budget = (struct pl_budget){.context_bytes = PL_CARD_CONTEXT_DEFAULT,
                                   .doubt_bytes = PL_CARD_CONTEXT_DEFAULT / 2};
    pl_text_addf(&q->notes, "no GPU is named: planned for compute capability %d.%d\n",
                 PL_CARD_DEFAULT_SM / 10, PL_CARD_DEFAULT_SM % 10);
}

pl_err pl_question_aim(struct pl_question *q, const char *gpu, struct pl_diag *d) {
    const struct pl_job *job = &q->job;
    if (gpu)
        PL_TRY(aim_at_card(q, gpu, d));
    else if (pl_device_is_cuda(job->device))
        aim_at_any_gpu(q);
    else
        q->traits = pl_traits_cpu(job->threads ? job->threads : pl_cpu_count());
    pl_question_limit(q);
    return PL_ERR_OK;
}

void pl_question_limit(struct pl_question *q) {
    const struct pl_job *job = &q->job;
    if (job->vram_budget != PL_AUTO_BYTES) {
        q->budget.known = true;
        q->budget.total_bytes = job->vram_budget;
        q->budget.source = "vram_budget";
        q->budget.margin_bytes = 0;
    }
    if (job->vram_margin != PL_AUTO_BYTES) q->budget.margin_bytes = job->vram_margin;
}

/* --- the model -------------------------------------------------------------------------------- */

pl_err pl_question_resolve(const struct pl_job *job, const char *given, struct pl_text *notes,
                           struct pl_model_ref *out, struct pl_diag *d) {
    *out = (struct pl_model_ref){0};
    char *path = pl_job_input_path(job, given);
    if (!path) return pl_host_oom(d, "a path");
    pl_err err = pl_model_resolve(path, out, notes, d);
    free(path);
    return err;
}

pl_err pl_question_find_model(const struct pl_job *job, struct pl_text *notes,
                              struct pl_model_ref *out, struct pl_diag *d) {
    const char *given = job->model ? job->model : job->model_config;
    *out = (struct pl_model_ref){0};
    if (!given) {
        pl_diag_set(d, PL_ERR_USAGE, "no model: give a MODEL or a CONFIG.yaml");
        pl_diag_hint(d, "plimsoll estimate-vram Qwen/Qwen2.5-7B --gpu \"RTX 4090\"");
        return PL_ERR_USAGE;
    }
    return pl_question_resolve(job, given, notes, out, d);
}

pl_err pl_question_read_model(struct pl_question *q, struct pl_diag *d) {
    struct pl_model_ref ref;
    PL_TRY(pl_question_find_model(&q->job, &q->notes, &ref, d));
    pl_err err = pl_model_read(ref.config, &q->model, d);
    pl_model_ref_finish(&ref);
    return err;
}

void pl_question_set_inference(struct pl_job *job) {
    bool quantised = job->given[PL_KEY_quant_type] || job->given[PL_KEY_double_quant] ||
                     job->given[PL_KEY_quantize_head];
    job->inference = true;
    if (job->mode == PL_UNSET_U32)
        job->mode = quantised                   ? PL_MODE_QLORA
                    : pl_job_names_adapter(job) ? PL_MODE_LORA
                                                : PL_MODE_FULL;
    else if (pl_mode_adapts(job->mode))
        job->given[PL_KEY_lora_r] = true; /* the adapter that the job of a file trains */
}

/* --- the answer ------------------------------------------------------------------------------- */

pl_err pl_question_choose_layout(struct pl_question *q, struct pl_diag *d) {
    return pl_autolevel_decide(&q->job, &q->model, &q->traits, &q->budget,
                               pl_autobatch_limit(&q->job), &q->notes, d);
}

pl_err pl_question_choose_batch(struct pl_question *q, struct pl_diag *d) {
    struct pl_autobatch search = {0};
    pl_err err = pl_question_choose_layout(q, d);
    if (err == PL_ERR_OK && q->budget.known)
        err = pl_autobatch_solve(&q->job, &q->model, &q->traits, &q->budget, PL_BATCH_LIMIT,
                                 &search, d);
    if (err != PL_ERR_OK) {
        pl_autobatch_finish(&search);
        return err;
    }
    q->made = search.planned;
    q->recommended = search.batch_size;
    q->batch_size = q->job.batch_size;
    if (q->batch_size != PL_AUTO) return PL_ERR_OK;
    q->batch_size = q->recommended ? q->recommended : 1;
    if (q->batch_size > pl_autobatch_limit(&q->job)) q->batch_size = pl_autobatch_limit(&q->job);
    if (!q->budget.known) pl_text_add(&q->notes, "batch_size: auto without a budget plans for 1\n");
    return PL_ERR_OK;
}

pl_err pl_question_plan(struct pl_question *q, struct pl_planned *out, struct pl_diag *d) {
    return pl_planned_init_from(out, &q->made, &q->job, &q->model, &q->traits, q->batch_size, d);
}

static void add_tier_note(struct pl_question *q) {
    double gb = (double)q->budget.total_bytes / 1e9;
    if (!q->budget.known || q->job.inference) return;
    pl_text_addf(&q->notes,
                 "the tier table, which knows no model, says batch size %u for a card of %.4g GB\n",
                 pl_rule_tier_batch(gb), gb);
}

pl_err pl_question_answer(struct pl_question *q, struct pl_estimate *e, struct pl_diag *d) {
    PL_TRY(pl_estimate_init(e, &q->job, &q->model, &q->traits, &q->budget, q->batch_size,
                            q->recommended, &q->made, d));
    add_tier_note(q);
    return PL_ERR_OK;
}

int pl_question_exit_status(pl_err err) {
    return pl_err_exit_status(err == PL_ERR_MODEL_UNSUPPORTED ? PL_ERR_DOES_NOT_FIT : err);
}

void pl_question_finish(struct pl_question *q) {
    pl_planned_finish(&q->made);
    pl_text_finish(&q->notes);
    pl_job_finish(&q->job);
    *q = (struct pl_question){0};
}
