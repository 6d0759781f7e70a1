#include "runtime/session/explain.h"

#include "oom_recovery/checklist.h"

/* The plan to explain: of the micro-batch that could not be held. */
void pl_session_explain_oom(struct pl_session *s) {
    if (s->n_rungs == 0 || !s->device) return;
    struct pl_text text = {0};
    struct pl_estimate e = {0};
    struct pl_rung *rung = pl_session_rung(s);
    struct pl_question q = s->pf->q;
    q.batch_size = rung->batch_size;
    q.recommended = 0;
    if (pl_estimate_init_of(&e, &q, &rung->planned, NULL) == PL_ERR_OK) {
        pl_estimate_text(&e, s->colour, 80, &text);
        pl_oom_checklist(rung->planned.plan, &s->facts, s->device->budget_bytes,
                         s->job_arena.bytes + s->batch_arena.bytes, &text);
    }
    pl_estimate_finish(&e);
    fputs(pl_text_str(&text), s->messages);
    pl_text_finish(&text);
}
