/* estimate.h - the answer to "does it fit", as data, as text, as JSON. Never a second arithmetic:
 * every byte here is read off a plan. */
#ifndef PL_ESTIMATOR_GATE_ESTIMATE_H
#define PL_ESTIMATOR_GATE_ESTIMATE_H

#include "estimator/base/report_rows.h"
#include "estimator/gate/remedies.h"

#include <jansson.h>

struct pl_rank_bill {      /* of a rank's plan */
    uint64_t needed_bytes; /* arenas and context, with what connects ranks */
    uint64_t arena_bytes, ledger[PL_CATEGORY_COUNT];
};

struct pl_estimate {
    const struct pl_question *q; /* borrowed */
    struct pl_planned planned;
    bool borrows_plan; /* of pl_estimate_init_of: it is not freed here */
    struct pl_verdict verdict;
    struct pl_remedy remedies[PL_MAX_REMEDIES]; /* when it does not fit */
    uint32_t n_remedies;
    uint64_t gradient_accumulation;
    uint64_t merged_export_bytes; /* of the host, once the arenas are gone; 0: save_merged is off */
    uint64_t param_count, trainable_param_count;
    struct pl_rank_bill *ranks; /* owned; [n_ranks]; NULL: the job has one rank */
    uint32_t n_ranks;
};

/* Plans and judges what was decided, and plans what would help where that does not fit.
 * made: as for pl_question_plan. */
pl_err pl_estimate_init(struct pl_estimate *e, const struct pl_question *q, struct pl_planned *made,
                        struct pl_diag *d);
/* The same of a plan that the caller keeps, which outlives *e. */
pl_err pl_estimate_init_of(struct pl_estimate *e, const struct pl_question *q,
                           const struct pl_planned *planned, struct pl_diag *d);
/* pl_estimate_init() in two: the second plans what would help, which takes longer than the rest. */
pl_err pl_estimate_judge(struct pl_estimate *e, const struct pl_question *q,
                         struct pl_planned *made, struct pl_diag *d);
pl_err pl_estimate_find_remedies(struct pl_estimate *e, struct pl_diag *d);
/* The verdict for the budget that e->q has now: that of the rank whose plan is the largest. */
void pl_estimate_judge_again(struct pl_estimate *e);
void pl_estimate_finish(struct pl_estimate *e); /* leaves {0} */

struct pl_line { /* of a ledger, or the peak of a phase */
    const char *name;
    uint64_t bytes;
};
/* The categories, the alignment and the fragmentation: they add up to the arenas exactly. */
#define PL_LEDGER_LINES (PL_CATEGORY_COUNT + 2)
void pl_estimate_ledger(const struct pl_plan *plan, struct pl_line out[PL_LEDGER_LINES]);
/* The peak of every phase that the program has, then that of the merged export, which is of the
 * host, where there is one. Returns their number. */
#define PL_PHASE_LINES (PL_PHASE_COUNT + 1)
uint32_t pl_estimate_phases(const struct pl_estimate *e, struct pl_line out[PL_PHASE_LINES]);

/* "full", "lora", "qlora", "inference" */
const char *pl_estimate_mode(const struct pl_estimate *e);

/* "VRAM estimate (full, 7.6B params, batch=2, seq=2048): total=13.4GB" */
void pl_estimate_add_summary(const struct pl_estimate *e, struct pl_text *out);
/* Summary, ledger with bars, arenas, phases, verdict, remedies. columns: width to stay in. */
void pl_estimate_text(const struct pl_estimate *e, bool colour, unsigned columns,
                      struct pl_text *out);
/* The rows of an answer, "schema": 1 first; notes: one a line. */
void pl_estimate_report(const struct pl_estimate *e, const char *notes, struct pl_report *r);
/* The report as one object. NULL when out of memory. */
json_t *pl_estimate_json(const struct pl_estimate *e, const char *notes);
/* estimate_ranks.c: the bill of every rank, each read off a plan of its own; nothing where the job
 * has one. The estimate itself is that of q->rank. */
pl_err pl_estimate_bill_ranks(struct pl_estimate *e, struct pl_diag *d);
void pl_estimate_ranks_text(const struct pl_estimate *e, struct pl_text *out);
/* [{rank, needed_bytes, arena_bytes, comm_bytes, ledger}]; NULL: out of memory. */
json_t *pl_estimate_ranks_json(const struct pl_estimate *e);
/* [{category, bytes, provenance}] of pl_estimate_ledger(). */
json_t *pl_estimate_ledger_json(const struct pl_plan *plan);

#endif
