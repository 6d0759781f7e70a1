/* checklist.h - the questions to ask after an out-of-memory, answered with this run's facts.
 *
 * In: the plan that was in use, the device's message, the budget.  Out: text, one line for each
 * question. Needs: estimator.
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

/* budget_bytes: the bytes that arenas may take on the device (PL_AUTO_BYTES = no limit was set).
 * held_bytes: the arenas of this process when the allocation failed; the part of the budget that is
 * neither held nor free belongs to other processes. Appends to *out (out->failed: no memory). */
void pl_oom_checklist(const struct pl_plan *plan, const struct pl_oom_facts *f,
                      uint64_t budget_bytes, uint64_t held_bytes, struct pl_text *out);
/* Asks the same about a job that has not run: nothing failed, and no other process was seen. */
void pl_job_checklist(const struct pl_plan *plan, const struct pl_budget *budget,
                      struct pl_text *out);

#endif
