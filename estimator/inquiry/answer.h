/* answer.h - the JSON answer to "does it fit" as every surface gives it: command, library, the
 * pre-flight of a run.
 *
 * In: struct pl_estimate.  Out: its JSON object, with the closed formula (`quick`) and the error a
 * run would be refused with (`refusal`) in addition to the plan.  Needs: gate, rule_of_thumb.
 * Use: json_t *o = pl_answer_json(&estimate, notes); ... json_decref(o); */
#ifndef PL_ESTIMATOR_INQUIRY_ANSWER_H
#define PL_ESTIMATOR_INQUIRY_ANSWER_H

#include "estimator/gate/estimate.h"

/* pl_estimate_json, completed. NULL when out of memory. */
json_t *pl_answer_json(const struct pl_estimate *e, const char *notes);
/* Adds `quick` and `refusal` to an answer about *e, which may be NULL; steals it, and returns it,
 * or NULL when out of memory. */
json_t *pl_answer_complete(json_t *answer, const struct pl_estimate *e);

#endif
