#include "runtime/train/samples.h"

#include "estimator/base/checked.h"
#include "estimator/base/json_tree.h"
#include "estimator/config/job_values.h"
#include "estimator/config/safe_text.h"
#include "runtime/session/agree.h"
#include "runtime/train/run_ops.h"

#include <string.h>

#define SHOWN_BYTES 240 /* of an answer, in a note */

/* Ranks agree on every run of the phase: the token that follows it is chosen for all. */
static pl_err run_phase(void *ctx, struct pl_diag *d) {
    struct pl_run *r = ctx;
    struct pl_rung *rung = pl_run_rung(r);
    rung->exec.muted = false;
    const pl_err err =
        pl_run_ops(r, PL_ERR_OK, &rung->planned.program->phases[PL_PHASE_GENERATE], d);
    return pl_session_agree(&r->s, (struct pl_outcome){.err = err}, d).err;
}

/* A rank that a signal stops must not leave the others waiting. */
pl_err pl_run_init_samples(struct pl_run *r, struct pl_diag *d) {
    const struct pl_job *job = r->s.job;
    if (!pl_job_samples(job)) return PL_ERR_OK;
    const struct pl_prompt_text *text = &r->s.pf->prompts.text;
    r->sampling =
        (struct pl_generate_options){.messages = r->opt->messages,
                                     .quiet = true,
                                     .turn_end = text->ends_turns ? &text->turn_end : NULL,
                                     .sampling = {.temperature = job->sample_temperature,
                                                  .top_p = job->sample_top_p,
                                                  .repetition_penalty = 1,
                                                  .seed = job->seed},
                                     .stop = r->s.comm ? NULL : r->opt->stop,
                                     .run = run_phase,
                                     .ctx = r};
    return pl_decoder_create(&r->s, &r->sampling, 1, &r->decoder, d);
}

void pl_run_finish_samples(struct pl_run *r) {
    pl_decoder_destroy(&r->decoder);
}

/* Appends the beginning of an answer as one line. */
static void add_shown(const struct pl_text *answer, struct pl_text *out) {
    size_t n = (size_t)pl_u64_min(answer->len, SHOWN_BYTES);
    const char *s = pl_text_str(answer);
    while (n < answer->len && n && ((unsigned char)s[n] & 0xc0) == 0x80)
        n--;
    for (size_t at = 0, line; at < n; at += line + 1) {
        line = (size_t)pl_u64_min(strcspn(s + at, "\n"), n - at);
        pl_text_add_safe(out, s + at, line);
        if (at + line < n) pl_text_add(out, "\\n");
    }
    if (n < answer->len) pl_text_add(out, "...");
}

/* Readers of JSON stumble over NUL, which an untrained model may well say. */
static void replace_nul(const struct pl_text *said, struct pl_text *out) {
    const char *s = pl_text_str(said);
    for (size_t at = 0; at < said->len;) {
        const size_t n = strlen(s + at);
        pl_text_addn(out, s + at, n);
        at += n;
        if (at < said->len) pl_text_add(out, "\xEF\xBF\xBD"); /* U+FFFD */
        at++;
    }
    out->failed |= said->failed;
}

static pl_err tell_note(struct pl_run *r, uint32_t i, const struct pl_text *answer,
                        struct pl_diag *d) {
    struct pl_text line = {0};
    pl_text_addf(&line, "sample %u at step %llu: ", i + 1, (unsigned long long)r->state.step);
    add_shown(answer, &line);
    const bool whole = !line.failed;
    if (whole) pl_progress_note(&r->progress, pl_text_str(&line));
    pl_text_finish(&line);
    return whole ? PL_ERR_OK : pl_host_oom(d, "a sample");
}

/* Writes a page in Markdown, as which TensorBoard shows texts: a block of code keeps lines as they
 * are. */
static pl_err tell_board(struct pl_run *r, uint32_t i, const struct pl_text *answer,
                         struct pl_diag *d) {
    struct pl_text page = {0};
    char tag[32];
    if (!r->board) return PL_ERR_OK;
    snprintf(tag, sizeof tag, "samples/%u", i + 1);
    pl_text_add(&page, r->s.job->sample_prompts.items[i]);
    pl_text_add(&page, "\n\n");
    pl_text_addn(&page, pl_text_str(answer), answer->len);
    const pl_err err =
        page.failed ? pl_host_oom(d, "a sample")
                    : pl_tensorboard_text(r->board, tag, r->state.step, page.data, page.len, d);
    pl_text_finish(&page);
    return err;
}

static pl_err tell(struct pl_run *r, uint32_t i, const struct pl_generated_sequence *s,
                   const struct pl_text *answer, struct pl_diag *d) {
    if (!pl_session_leads(&r->s)) return PL_ERR_OK;
    PL_TRY(tell_note(r, i, answer, d));
    PL_TRY(tell_board(r, i, answer, d));
    return pl_log_event(
        r->log, "sample",
        json_pack(
            "{s:I, s:I, s:o, s:o, s:I, s:I, s:s}", "step", (json_int_t)r->state.step, "prompt",
            (json_int_t)i + 1, "text", pl_json_string(r->s.job->sample_prompts.items[i]), "answer",
            json_stringn(pl_text_str(answer), answer->len), "prompt_tokens", (json_int_t)s->prompt,
            "new_tokens", (json_int_t)(s->n - s->prompt), "end", pl_generate_end_name(s->end)),
        d);
}

static pl_err answer_one(struct pl_run *r, uint32_t i, struct pl_diag *d) {
    const struct pl_run_prompt *given = &r->s.pf->prompts.list[i];
    const struct pl_prompt prompt = {given->ids, given->n};
    struct pl_generated out;
    struct pl_text said = {0}, answer = {0};
    r->sampling.max_new_tokens =
        pl_u64_min(r->s.job->sample_max_new_tokens, r->s.job->max_seq_length - given->n);
    pl_err err = pl_decoder_answer(r->decoder, &prompt, &out, d);
    if (err == PL_ERR_OK) {
        const struct pl_generated_sequence *s = &out.sequences[0];
        err = pl_prompt_text_decode(&r->s.pf->prompts.text, s->ids + s->prompt, s->n - s->prompt,
                                    &said, d);
        replace_nul(&said, &answer);
        if (err == PL_ERR_OK && answer.failed) err = pl_host_oom(d, "a sample");
        if (err == PL_ERR_OK) err = tell(r, i, s, &answer, d);
    }
    pl_text_finish(&said);
    pl_text_finish(&answer);
    pl_generated_finish(&out);
    return err;
}

static pl_err tell_shortage(struct pl_run *r, uint32_t i, bool again, struct pl_diag *d) {
    const struct pl_oom_facts *facts = &r->s.facts;
    char line[240];
    if (!pl_session_leads(&r->s)) return PL_ERR_OK;
    snprintf(line, sizeof line, "%sout of memory (%s) in sample %u at step %llu: %s",
             again ? "" : "warning: ", facts->what, i + 1, (unsigned long long)r->state.step,
             again ? "it is tried once more" : "it and those after it are left out");
    pl_progress_note(&r->progress, line);
    return pl_log_event(r->log, "sample_oom",
                        json_pack("{s:I, s:I, s:s, s:s, s:I, s:b}", "step",
                                  (json_int_t)r->state.step, "prompt", (json_int_t)i + 1, "cause",
                                  facts->injected ? "injected" : "out of memory", "what",
                                  facts->what, "free_bytes", (json_int_t)facts->free_bytes,
                                  "left_out", !again),
                        d);
}

/* Answers a prompt; *left_out: memory ran out twice (A4). */
static pl_err answer(struct pl_run *r, uint32_t i, bool *left_out, struct pl_diag *d) {
    for (bool again = true;; again = false) {
        struct pl_diag why = {0};
        const pl_err err = answer_one(r, i, &why);
        const bool recovers = err == PL_ERR_DEVICE_OOM && r->oom.enabled;
        if (!recovers && err != PL_ERR_OK && d && d->err == PL_ERR_OK) *d = why;
        if (!recovers) return err;
        PL_TRY(pl_run_drain(r, d));
        pl_decoder_forget(r->decoder);
        PL_TRY(tell_shortage(r, i, again, d));
        *left_out = !again;
        if (*left_out) return PL_ERR_OK;
    }
}

pl_err pl_run_sample(struct pl_run *r, struct pl_diag *d) {
    bool left_out = false;
    if (!r->decoder || !pl_session_has_memory(&r->s)) return PL_ERR_OK;
    pl_decoder_forget(r->decoder);
    for (uint32_t i = 0; i < r->s.pf->prompts.n && !left_out; i++) {
        const pl_err err = answer(r, i, &left_out, d);
        if (err == PL_ERR_INTERRUPTED) return PL_ERR_OK; /* the loop ends with the next step */
        if (err != PL_ERR_OK) return err;
    }
    return PL_ERR_OK;
}
