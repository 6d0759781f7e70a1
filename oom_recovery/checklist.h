/* checklist.h - the questions one asks after an out-of-memory, answered with this run's facts.
 *
 * In: the plan that was in use, what the device said, what it was allowed.  Out: text, one line for
 * each question. Needs: estimator.
 *   C1  a line starts with "[!]" where there is something to change, "[ok]" where there is not,
 *       and "[i]" where it only informs
 *   C2  every figure is of the plan or the device, none is estimated here
 *   C3  questions about training are not asked of inference
 * Use: pl_oom_checklist(plan, &machine.last, budget, held, &text); */
#ifndef PL_OOM_RECOVERY_CHECKLIST_H
#define PL_OOM_RECOVERY_CHECKLIST_H

#include "estimator/base/text.h"
#include "estimator/card/budget.h"
#include "estimator/plan/plan.h"
#include "oom_recovery/recovery.h"

/* budget_bytes: what arenas may take on the device (PL_AUTO_BYTES = no limit was set).
 * held_bytes: arenas this process held when the allocation failed; what the budget lacks beyond
 * held and free bytes belongs to other processes. Appends to *out (out->failed: no memory). */
void pl_oom_checklist(const struct pl_plan *plan, const struct pl_oom_facts *f,
                      uint64_t budget_bytes, uint64_t held_bytes, struct pl_text *out);
/* The same questions of a job that has not run: nothing failed, and no other process was seen. */
void pl_job_checklist(const struct pl_plan *plan, const struct pl_budget *budget,
                      struct pl_text *out);

#endif
