/* answer.h - the answer to "does it fit" as every surface gives it: command, library, the
 * pre-flight of a run.
 *
 * In: struct pl_estimate.  Out: its rows, with the closed formula (`quick`) and the error that a
 * run would be refused with (`refusal`) in addition to the plan, and their JSON object.
 * Needs: gate, rule_of_thumb.
 * Use: json_t *o = pl_answer_json(&estimate, notes); ... json_decref(o); */
#ifndef PL_ESTIMATOR_INQUIRY_ANSWER_H
#define PL_ESTIMATOR_INQUIRY_ANSWER_H

#include "estimator/gate/estimate.h"

/* The rows of pl_estimate_report(), completed. */
void pl_answer_report(const struct pl_estimate *e, const char *notes, struct pl_report *r);
/* The same as one object. NULL when out of memory. */
json_t *pl_answer_json(const struct pl_estimate *e, const char *notes);
/* Adds `quick` and `refusal` to an answer about *e, which may be NULL; steals it, and returns it,
 * or NULL when out of memory. */
json_t *pl_answer_complete(json_t *answer, const struct pl_estimate *e);

#endif
