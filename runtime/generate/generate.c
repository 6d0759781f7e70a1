/* generate.c - a session of its own for answers: opened, loaded, its books, closed. */
#include "runtime/generate/generate.h"

#include "estimator/base/alloc.h"
#include "oom_recovery/recovery.h"
#include "runtime/session/arenas.h"
#include "runtime/session/explain.h"
#include "runtime/session/load.h"
#include "runtime/session/measure.h"
#include "runtime/session/session_open.h"

#include <stdlib.h>

struct pl_generator {
    struct pl_session session;
    const struct pl_generate_options *opt;
    struct pl_decoder *decoder;
    uint32_t n;
};

pl_err pl_generate_check_prompt(const struct pl_preflight *pf, const struct pl_prompt *p,
                                uint64_t most, struct pl_diag *d) {
    const uint64_t vocab = pf->model.vocab, context = pf->job->max_seq_length;
    if (p->n == 0 || p->n > context || most > context - p->n)
        return pl_diag_set(
            d, PL_ERR_USAGE, "a prompt of %llu tokens and %llu more do not fit %llu positions",
            (unsigned long long)p->n, (unsigned long long)most, (unsigned long long)context);
    for (uint64_t i = 0; i < p->n; i++)
        if (p->ids[i] < 0 || (uint64_t)p->ids[i] >= vocab)
            return pl_diag_set(d, PL_ERR_USAGE,
                               "token %d at position %llu of a prompt: the model knows 0 to %llu",
                               p->ids[i], (unsigned long long)i + 1, (unsigned long long)vocab - 1);
    return PL_ERR_OK;
}

/* N1, also when a signal ended it. */
static pl_err close_books(struct pl_generator *g, struct pl_generated *out, struct pl_diag *d) {
    struct pl_books books = {0};
    pl_err err = pl_session_check_books(&g->session, &books, d);
    out->planned_bytes = books.planned_bytes;
    out->allocated_bytes = books.allocated_bytes;
    out->measured_bytes = books.measured_bytes;
    return err;
}

static pl_err check_prompts(const struct pl_preflight *pf, const struct pl_generate_options *opt,
                            const struct pl_prompt *prompts, uint32_t n, struct pl_diag *d) {
    for (uint32_t i = 0; i < n; i++)
        PL_TRY(pl_generate_check_prompt(pf, &prompts[i], opt->max_new_tokens, d));
    return PL_ERR_OK;
}

pl_err pl_generator_answer(struct pl_generator *g, const struct pl_prompt *prompts,
                           struct pl_generated *out, struct pl_diag *d) {
    *out = (struct pl_generated){0};
    PL_TRY(check_prompts(g->session.pf, g->opt, prompts, g->n, d));
    pl_err err = pl_decoder_answer(g->decoder, prompts, out, d);
    if (err != PL_ERR_OK && err != PL_ERR_INTERRUPTED) return err;
    const pl_err books = close_books(g, out, d);
    return books == PL_ERR_OK ? err : books;
}

/* The same prompts cannot run in a smaller batch. */
static pl_err reserve(struct pl_session *s, struct pl_diag *d) {
    struct pl_oom oom;
    struct pl_diag failure = {0};
    pl_err err = pl_session_reserve_batch(s, &failure);
    if (err != PL_ERR_DEVICE_OOM && d && d->err == PL_ERR_OK) *d = failure;
    if (err != PL_ERR_DEVICE_OOM) return err;
    pl_oom_init(&oom, false, s->job->oom_max_retries, s->job->batch_size, s->pf->global_batch);
    return pl_oom_refuse(&oom, 1, &s->facts, d);
}

static pl_err open_generator(struct pl_generator *g, struct pl_preflight *pf, struct pl_diag *d) {
    PL_TRY(pl_session_open(&g->session, pf, g->opt->messages, g->opt->colour, d));
    PL_TRY(pl_session_reserve_job(&g->session, d));
    PL_TRY(pl_decoder_create(&g->session, g->opt, g->n, &g->decoder, d));
    PL_TRY(reserve(&g->session, d));
    return pl_session_load(&g->session, d);
}

void pl_generator_close(struct pl_generator **generator) {
    struct pl_generator *g = *generator;
    *generator = NULL;
    if (!g) return;
    pl_decoder_destroy(&g->decoder);
    pl_session_close(&g->session);
    free(g);
}

pl_err pl_generator_open(struct pl_preflight *pf, const struct pl_generate_options *opt, uint32_t n,
                         struct pl_generator **out, struct pl_diag *d) {
    struct pl_generator *g = *out = pl_calloc(1, sizeof *g);
    if (!g) return pl_host_oom(d, "generating");
    g->opt = opt;
    g->n = n;
    pl_err err = open_generator(g, pf, d);
    if (err == PL_ERR_GPU_OOM) pl_session_explain_oom(&g->session);
    if (err != PL_ERR_OK) pl_generator_close(out);
    return err;
}

/* Prompts are judged before anything is loaded. */
pl_err pl_generate(struct pl_preflight *pf, const struct pl_generate_options *opt,
                   const struct pl_prompt *prompts, uint32_t n, struct pl_generated *out,
                   struct pl_diag *d) {
    struct pl_generator *g;
    *out = (struct pl_generated){0};
    PL_TRY(check_prompts(pf, opt, prompts, n, d));
    PL_TRY(pl_generator_open(pf, opt, n, &g, d));
    pl_err err = pl_generator_answer(g, prompts, out, d);
    pl_generator_close(&g);
    return err;
}
