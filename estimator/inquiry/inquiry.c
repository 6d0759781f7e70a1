/* inquiry.c - what to plan for, and against which memory. */
#include "estimator/inquiry/inquiry.h"

#include "estimator/autobatch/sharding.h"
#include "estimator/config/job_text.h"
#include "estimator/config/job_values.h"
#include "estimator/find/find.h"

/* --- the target ------------------------------------------------------------------------------- */

static pl_err aim_at_card(struct pl_inquiry *i, const char *gpu, struct pl_diag *d) {
    bool ambiguous;
    const struct pl_card *c;
    PL_TRY(pl_card_require(gpu, &c, &ambiguous, d));
    if (ambiguous)
        pl_text_addf(&i->notes, "`%s` has several sizes: taken as %s, the smallest\n", gpu,
                     c->name);
    if (c->sm < PL_CARD_OLDEST_SM)
        pl_text_addf(&i->notes,
                     "the kernels need compute capability %d.%d, %s has %u.%u: the bytes are those "
                     "of the smallest GPU that they run on\n",
                     PL_CARD_OLDEST_SM / 10, PL_CARD_OLDEST_SM % 10, c->name, c->sm / 10,
                     c->sm % 10);
    i->q.card = c->name;
    i->q.traits = pl_traits_cuda(c->sm);
    i->q.budget = pl_card_budget(c);
    return PL_ERR_OK;
}

static void aim_at_any_gpu(struct pl_inquiry *i) {
    i->q.traits = pl_traits_cuda(PL_CARD_DEFAULT_SM);
    i->q.budget = (struct pl_budget){.context_bytes = PL_CARD_CONTEXT_DEFAULT,
                                     .doubt_bytes = PL_CARD_CONTEXT_DEFAULT / 2};
    pl_text_addf(&i->notes, "no GPU is named: planned for compute capability %d.%d\n",
                 PL_CARD_DEFAULT_SM / 10, PL_CARD_DEFAULT_SM % 10);
}

bool pl_inquiry_means_gpu(const struct pl_job *job) {
    const bool outside = job->given[PL_KEY_vram_budget] && !job->place[PL_KEY_vram_budget].line;
    return pl_device_is_cuda(job->device) || (outside && job->device == PL_DEVICE_AUTO);
}

pl_err pl_inquiry_aim(struct pl_inquiry *i, const char *gpu, struct pl_diag *d) {
    const struct pl_job *job = &i->job;
    pl_spec_init(&i->spec, job);
    if (gpu)
        PL_TRY(aim_at_card(i, gpu, d));
    else if (pl_inquiry_means_gpu(job))
        aim_at_any_gpu(i);
    else
        i->q.traits = pl_traits_cpu(job->threads ? job->threads : pl_cpu_count());
    pl_inquiry_open(i);
    return PL_ERR_OK;
}

void pl_inquiry_open(struct pl_inquiry *i) {
    const struct pl_job *job = &i->spec.job;
    struct pl_budget *b = &i->q.budget;
    pl_question_open(&i->q, job, &i->model);
    i->q = pl_question_of_last(&i->q);
    if (i->q.traits.backend == PL_BACKEND_CUDA && !job->inference)
        pl_budget_predict_comm(b, pl_job_ranks(job));
    if (job->vram_budget != PL_AUTO_BYTES) {
        b->known = true;
        b->total_bytes = job->vram_budget;
        b->source = "vram_budget";
        b->margin_bytes = 0;
    }
    if (job->vram_margin != PL_AUTO_BYTES) b->margin_bytes = job->vram_margin;
    i->spec.facts.names_budget = b->known;
    pl_resolve(&i->spec);
}

/* --- the model -------------------------------------------------------------------------------- */

pl_err pl_inquiry_read_model(struct pl_inquiry *i, struct pl_diag *d) {
    struct pl_model_ref ref;
    PL_TRY(pl_find_config(&i->job, &i->notes, &ref, d));
    pl_err err = pl_model_read(ref.config, &i->model, d);
    pl_model_ref_finish(&ref);
    return err;
}

/* --- the answer ------------------------------------------------------------------------------- */

pl_err pl_inquiry_decide(struct pl_inquiry *i, struct pl_diag *d) {
    PL_TRY(pl_sharding_decide(&i->q, &i->spec.facts.sharding, &i->notes, d));
    pl_resolve(&i->spec);
    pl_question_note_dtype(&i->q, &i->notes);
    PL_TRY(pl_decide(&i->q, PL_BATCH_LIMIT, &i->search, &i->notes, d));
    if (!pl_question_has_kernels(&i->q)) i->q.recommended = 0;
    if (i->job.batch_size == PL_AUTO && !i->q.budget.known)
        pl_text_add(&i->notes, "batch_size: auto without a budget plans for 1\n");
    return PL_ERR_OK;
}

pl_err pl_inquiry_answer(struct pl_inquiry *i, struct pl_estimate *e, struct pl_diag *d) {
    return pl_estimate_init(e, &i->q, &i->search.planned, d);
}

int pl_inquiry_exit_status(pl_err err) {
    return pl_err_exit_status(err == PL_ERR_MODEL_UNSUPPORTED ? PL_ERR_DOES_NOT_FIT : err);
}

void pl_inquiry_finish(struct pl_inquiry *i) {
    pl_autobatch_finish(&i->search);
    pl_text_finish(&i->notes);
    pl_job_finish(&i->job);
    *i = (struct pl_inquiry){0};
}
