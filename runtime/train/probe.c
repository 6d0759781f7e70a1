/* probe.c - a few real steps on the longest samples, before a long run starts.
 *
 * A plan is exact about the arenas; the rest of the process, and the time of a step, only a run can
 * show. The probe loads, steps and measures, then gives both arenas back and takes them again, so
 * that the run starts from the same zeroed memory as it would have without a probe. */
#include "runtime/train/probe.h"

#include "estimator/base/units.h"
#include "runtime/session/arenas.h"
#include "runtime/session/measure.h"
#include "runtime/train/go_back.h"
#include "runtime/train/outcome.h"
#include "runtime/train/step.h"

static pl_err take_steps(struct pl_run *r, struct pl_probe *p, struct pl_diag *d) {
    for (uint32_t i = 0; i < p->steps; i++) {
        struct pl_step_result s;
        double before = pl_session_clock();
        PL_TRY(pl_run_longest_step(r, &s, d));
        while (r->lost) { /* the same samples in smaller micro-batches */
            PL_TRY(pl_run_go_back(r, d));
            before = pl_session_clock();
            PL_TRY(pl_run_longest_step(r, &s, d));
        }
        double seconds = pl_session_clock() - before;
        if (i == 0 || seconds < p->seconds) p->seconds = seconds;
        p->tokens = s.tokens;
        if (i == 0) p->first_loss = s.loss;
        p->last_loss = s.loss;
        p->grad_norm = s.grad_norm;
    }
    return PL_ERR_OK;
}

static pl_err tell(struct pl_run *r, const struct pl_train_result *t, struct pl_diag *d) {
    const struct pl_probe *p = &t->probe;
    char line[300], planned[PL_BYTES_TEXT], measured[PL_BYTES_TEXT];
    bool minutes = p->run_seconds >= 120;
    snprintf(line, sizeof line,
             "probe: %u steps of %llu tokens, longest sample %llu: planned %s, allocated the same, "
             "measured %s in the whole process; %.3g s a step, at most %.3g %s for the run",
             p->steps, (unsigned long long)p->tokens, (unsigned long long)p->longest,
             pl_bytes_text(t->books.planned_bytes, planned),
             pl_bytes_text(t->books.measured_bytes, measured), p->seconds,
             minutes ? p->run_seconds / 60 : p->run_seconds, minutes ? "min" : "s");
    pl_progress_note(&r->progress, line);
    return pl_log_event(
        r->log, "probe",
        json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:o, s:o, s:o}", "steps",
                  (json_int_t)p->steps, "batch_size", (json_int_t)p->batch_size, "tokens",
                  (json_int_t)p->tokens, "longest_sample_tokens", (json_int_t)p->longest,
                  "planned_peak_bytes", (json_int_t)t->books.planned_bytes, "allocated_peak_bytes",
                  (json_int_t)t->books.allocated_bytes, "measured_peak_bytes",
                  (json_int_t)t->books.measured_bytes, "predicted_process_bytes",
                  (json_int_t)t->books.predicted_bytes, "context_bytes",
                  (json_int_t)t->books.context_bytes, "seconds_per_step", p->seconds,
                  "run_seconds_at_most", p->run_seconds, "first_loss", pl_log_real(p->first_loss),
                  "last_loss", pl_log_real(p->last_loss), "grad_norm", pl_log_real(p->grad_norm)),
        d);
}

pl_err pl_run_probe(struct pl_run *r, struct pl_train_result *out, struct pl_diag *d) {
    struct pl_probe *p = &out->probe;
    const struct pl_longest *longest = pl_data_longest(r->s.pf->data.rows);
    *p = (struct pl_probe){.steps = r->s.job->probe_steps ? r->s.job->probe_steps : 2,
                           .longest = longest->n ? longest->tokens[0] : 0};
    PL_TRY(take_steps(r, p, d));
    p->batch_size = r->oom.batch_size;
    p->run_seconds = p->seconds * (double)(r->s.pf->total_steps - r->state.step);
    PL_TRY(pl_run_check_books(r, out, d));
    PL_TRY(tell(r, out, d));
    if (r->opt->probe_only) return PL_ERR_OK;
    /* Arenas are zeroed when they are taken: the moments that the steps left must be gone. */
    pl_session_release_arenas(&r->s);
    PL_TRY(pl_session_reserve_job(&r->s, d));
    return pl_run_reserve(r, d);
}
