/* decode.c - runs of the GENERATE phase until every sequence has ended.
 *
 * A run takes, sequence by sequence, what has no place in the cache yet: a piece of the prompt, or
 * the token that was chosen last. When the piece reaches the end of its sequence, the logits of its
 * last row choose the next token. */
#include "runtime/generate/decode.h"

#include "estimator/base/alloc.h"
#include "estimator/base/checked.h"
#include "runtime/session/agree.h"
#include "runtime/session/inputs.h"
#include "runtime/session/load.h"
#include "runtime/session/measure.h"
#include "runtime/session/rope_table.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct sequence {
    struct pl_generated_sequence *out;
    int32_t *held; /* [context], owned: the tokens in the cache between two answers */
    uint64_t n_held;
    uint64_t most;        /* ids it may hold */
    uint64_t cached;      /* number of its tokens that are in the cache */
    uint64_t rope_length; /* the length by whose frequencies its positions in the cache are
                             turned */
    bool ended;
};

struct pl_decoder {
    struct pl_session *session;
    const struct pl_generate_options *opt;
    struct sequence *sequences;
    uint32_t n;
    uint32_t *wanted;                   /* [n] sequence of each target row of the run */
    float *logits;                      /* [n, vocab] */
    uint32_t ids_tensor, logits_tensor; /* of the plan in use */
    struct pl_sampler sampler;
    struct pl_generated *out;
};

const char *pl_generate_end_name(enum pl_generate_end end) {
    static const char *const names[] = {"length", "eos", "signal"};
    return names[end];
}

/* ---- what the caller gets ---- */

static pl_err copy_prompts(const struct pl_generate_options *opt, const struct pl_prompt *prompts,
                           uint32_t n, struct pl_generated *out, struct pl_diag *d) {
    const uint64_t most = opt->max_new_tokens;
    out->sequences = pl_calloc(n, sizeof *out->sequences);
    if (!out->sequences) return pl_host_oom(d, "the prompts");
    out->n = n;
    for (uint32_t i = 0; i < n; i++) {
        struct pl_generated_sequence *s = &out->sequences[i];
        s->ids = pl_malloc((size_t)(prompts[i].n + most) * sizeof *s->ids);
        if (!s->ids) return pl_host_oom(d, "the answers");
        memcpy(s->ids, prompts[i].ids, (size_t)prompts[i].n * sizeof *s->ids);
        s->n = s->prompt = prompts[i].n;
    }
    return PL_ERR_OK;
}

void pl_generated_finish(struct pl_generated *g) {
    for (uint32_t i = 0; i < g->n; i++)
        free(g->sequences[i].ids);
    free(g->sequences);
    *g = (struct pl_generated){0};
}

/* ---- one run ---- */

/* Sequences beyond the length that a model was trained on can have other frequencies, for all of
 * their positions: such a sequence is computed again from its start, under longrope once, under
 * dynamic for every token. */
static void refresh(struct pl_decoder *g, struct sequence *s) {
    const uint64_t length = pl_rope_length(&g->session->pf->model.rope[0], s->out->n);
    if (length != s->rope_length) s->cached = 0;
    s->rope_length = length;
}

static void add_piece(struct pl_decoder *g, uint32_t index, uint64_t room) {
    struct pl_micro_batch *mb = &g->session->micro;
    struct sequence *s = &g->sequences[index];
    const uint64_t take = pl_u64_min(s->out->n - s->cached, room);
    for (uint64_t i = 0; i < take; i++, s->cached++) {
        mb->ids[mb->n_tokens] = s->out->ids[s->cached];
        mb->positions[mb->n_tokens++] = (int32_t)s->cached;
    }
    mb->max_len = pl_u64_max(mb->max_len, s->out->n);
    if (take == 0 || s->cached < s->out->n) return;
    mb->target_rows[mb->n_targets] = (int32_t)mb->n_tokens - 1;
    g->wanted[mb->n_targets++] = index;
}

/* Fills the run's inputs; false when every sequence has ended. All sequences of a run use one table
 * of frequencies. */
static bool fill_run(struct pl_decoder *g) {
    struct pl_micro_batch *mb = &g->session->micro;
    const uint64_t capacity =
        pl_session_rung(g->session)->planned.program->tensors[g->ids_tensor].dims[0];
    const struct sequence *leader = NULL;
    pl_micro_batch_clear(mb);
    mb->n_seqs = g->n;
    for (uint32_t i = 0; i < g->n; i++) {
        struct sequence *s = &g->sequences[i];
        mb->offsets[i] = (int32_t)mb->n_tokens;
        if (s->ended) continue;
        refresh(g, s);
        if (!leader) leader = s;
        if (s->rope_length == leader->rope_length) add_piece(g, i, capacity - mb->n_tokens);
    }
    mb->offsets[g->n] = (int32_t)mb->n_tokens;
    return leader != NULL;
}

static pl_err compute(struct pl_decoder *g, struct pl_diag *d) {
    struct pl_session *s = g->session;
    struct pl_rung *rung = pl_session_rung(s);
    const struct pl_micro_batch *mb = &s->micro;
    struct pl_batch batch = pl_session_counts(s);
    batch.first = true;
    PL_TRY(pl_exec_describe(&rung->exec, &batch, d));
    PL_TRY(pl_session_follow_length(s, d));
    PL_TRY(pl_session_upload_inputs(s, PL_PHASE_GENERATE));
    PL_TRY(g->opt->run ? g->opt->run(g->opt->ctx, d)
                       : pl_exec_run_phase(&rung->exec, PL_PHASE_GENERATE, d));
    const uint64_t bytes = mb->n_targets * s->pf->model.vocab * sizeof(float);
    pl_err err = PL_ERR_OK;
    if (bytes)
        err = s->device->ops->download(s->device, g->logits,
                                       pl_exec_address(&rung->exec, g->logits_tensor), bytes);
    /* D1, N2 of generate.h */
    if (err == PL_ERR_OK && pl_session_allocations(s) == s->steady_allocations) return PL_ERR_OK;
    if (err != PL_ERR_OK) return pl_diag_set(d, err, "the logits could not be copied");
    return pl_diag_set(d, PL_ERR_PLAN_BROKEN, "generating allocated device memory");
}

/* ---- tokens ---- */

static bool ends_answer(const struct pl_decoder *g, int32_t id) {
    const struct pl_model *m = &g->session->pf->model;
    if (g->opt->ignore_eos) return false;
    for (uint32_t i = 0; i < m->n_eos; i++)
        if (m->eos[i] == id) return true;
    return g->opt->turn_end && *g->opt->turn_end == id;
}

/* A choice among such logits would look like an answer. One that is -Infinity is a token that the
 * model excludes. */
static pl_err check_logits(const struct pl_decoder *g, const float *row, struct pl_diag *d) {
    const struct pl_preflight *pf = g->session->pf;
    bool wrong = false, any = false;
    for (uint64_t i = 0; i < pf->model.vocab; i++) {
        wrong |= !(row[i] < INFINITY);
        any |= isfinite(row[i]);
    }
    if (!wrong && any) return PL_ERR_OK;
    PL_TRY(pl_session_check_base(g->session, d));
    pl_diag_set(d, PL_ERR_NOT_FINITE, "the logits of the model are not finite");
    pl_diag_hint(d,
                 "`plimsoll verify %s` names what is damaged; where it is whole, the arithmetic "
                 "overflows: give --dtype fp32",
                 pf->files.model_dir ? pf->files.model_dir : "MODEL");
    return PL_ERR_NOT_FINITE;
}

static pl_err add_token(struct pl_decoder *g, uint32_t index, float *row, struct pl_diag *d) {
    struct sequence *s = &g->sequences[index];
    struct pl_generated_sequence *out = s->out;
    const struct pl_sampler_position at = {index, out->n, out->ids, out->n};
    if (g->opt->logits) g->opt->logits(g->opt->ctx, index, out->n, row);
    int32_t id = pl_sampler_choose(&g->sampler, row, &at);
    PL_TRY(pl_session_follow_leader(g->session, &id, d));
    out->ids[out->n++] = id;
    if (ends_answer(g, id)) {
        out->end = PL_END_EOS;
        s->ended = true;
    } else {
        s->ended = out->n == s->most;
    }
    if (g->opt->token) g->opt->token(g->opt->ctx, index, id);
    return PL_ERR_OK;
}

static pl_err add_tokens(struct pl_decoder *g, struct pl_diag *d) {
    for (uint64_t t = 0; t < g->session->micro.n_targets; t++) {
        float *row = g->logits + t * g->session->pf->model.vocab;
        PL_TRY(check_logits(g, row, d));
        PL_TRY(add_token(g, g->wanted[t], row, d));
    }
    return PL_ERR_OK;
}

static bool is_stopped(struct pl_decoder *g) {
    if (!g->opt->stop || !*g->opt->stop) return false;
    for (uint32_t i = 0; i < g->n; i++)
        if (!g->sequences[i].ended) g->sequences[i].out->end = PL_END_SIGNAL;
    return true;
}

static void count_tokens(struct pl_decoder *g, double seconds) {
    const struct pl_micro_batch *mb = &g->session->micro;
    bool single = mb->n_tokens == mb->n_targets;
    *(single ? &g->out->new_tokens : &g->out->prompt_tokens) += mb->n_tokens;
    *(single ? &g->out->new_seconds : &g->out->prompt_seconds) += seconds;
}

static pl_err run_to_the_end(struct pl_decoder *g, struct pl_diag *d) {
    double before = pl_session_clock();
    while (fill_run(g)) {
        if (is_stopped(g)) return pl_diag_set(d, PL_ERR_INTERRUPTED, "stopped by a signal");
        PL_TRY(compute(g, d));
        PL_TRY(add_tokens(g, d));
        double now = pl_session_clock();
        count_tokens(g, now - before);
        before = now;
    }
    return PL_ERR_OK;
}

/* ---- one answer ---- */

/* The last token of a prompt is computed in any case: its logits choose the next one. */
static void begin_sequence(struct pl_decoder *g, uint32_t index) {
    struct sequence *s = &g->sequences[index];
    uint64_t same = 0;
    s->out = &g->out->sequences[index];
    while (same < s->n_held && same + 1 < s->out->prompt && s->held[same] == s->out->ids[same])
        same++;
    s->cached = same;
    s->most = s->out->prompt + g->opt->max_new_tokens;
    s->ended = g->opt->max_new_tokens == 0;
}

/* The plan in use may be another one than that of the answer before. At the end a sequence holds
 * what was computed: the token that was chosen last was not. */
pl_err pl_decoder_answer(struct pl_decoder *g, const struct pl_prompt *prompts,
                         struct pl_generated *out, struct pl_diag *d) {
    const struct pl_rung *rung = pl_session_rung(g->session);
    *out = (struct pl_generated){0};
    PL_TRY(copy_prompts(g->opt, prompts, g->n, out, d));
    g->out = out;
    g->ids_tensor = rung->inputs[PL_PHASE_GENERATE][0];
    g->logits_tensor = pl_program_find(rung->planned.program, PL_ROLE_LOGITS, 0, PL_NONE);
    for (uint32_t i = 0; i < g->n; i++)
        begin_sequence(g, i);
    const pl_err err = run_to_the_end(g, d);
    for (uint32_t i = 0; i < g->n; i++) {
        struct sequence *s = &g->sequences[i];
        s->n_held = s->cached;
        memcpy(s->held, s->out->ids, (size_t)s->cached * sizeof *s->held);
        s->out = NULL;
    }
    g->out = NULL;
    return err;
}

void pl_decoder_forget(struct pl_decoder *g) {
    for (uint32_t i = 0; i < g->n; i++)
        g->sequences[i].n_held = 0;
}

/* ---- from the start to the end ---- */

static pl_err make_sequences(struct pl_decoder *g, struct pl_diag *d) {
    const struct pl_preflight *pf = g->session->pf;
    g->sequences = pl_calloc(g->n, sizeof *g->sequences);
    g->wanted = pl_calloc(g->n, sizeof *g->wanted);
    g->logits = pl_malloc((size_t)(g->n * pf->model.vocab) * sizeof *g->logits);
    if (!g->sequences || !g->wanted || !g->logits) return pl_host_oom(d, "the logits");
    for (uint32_t i = 0; i < g->n; i++) {
        g->sequences[i].held = pl_calloc(pf->job->max_seq_length, sizeof *g->sequences[i].held);
        if (!g->sequences[i].held) return pl_host_oom(d, "the tokens in the cache");
    }
    return PL_ERR_OK;
}

pl_err pl_decoder_create(struct pl_session *s, const struct pl_generate_options *opt, uint32_t n,
                         struct pl_decoder **out, struct pl_diag *d) {
    struct pl_decoder *g = *out = pl_calloc(1, sizeof *g);
    if (!g) return pl_host_oom(d, "generating");
    g->session = s;
    g->opt = opt;
    g->n = n;
    pl_err err = make_sequences(g, d);
    if (err == PL_ERR_OK) err = pl_sampler_init(&g->sampler, &opt->sampling, s->pf->model.vocab, d);
    if (err != PL_ERR_OK) pl_decoder_destroy(out);
    return err;
}

void pl_decoder_destroy(struct pl_decoder **decoder) {
    struct pl_decoder *g = *decoder;
    *decoder = NULL;
    if (!g) return;
    pl_sampler_finish(&g->sampler);
    for (uint32_t i = 0; g->sequences && i < g->n; i++)
        free(g->sequences[i].held);
    free(g->sequences);
    free(g->wanted);
    free(g->logits);
    free(g);
}
