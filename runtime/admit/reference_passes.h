/* reference_passes.h - `precompute_reference: auto`: whether the base is compared with once for
 * every row, before the first step, or with each step.
 *
 * In: rows, steps and evaluations of an admitted job.  Out: precompute_reference, decided.
 *   W1  what takes fewer forward passes of a row is taken; where both take as many, those of the
 *       steps, which a run that ends early never makes
 *   W2  a run that is resumed keeps what it began with
 * Use: pl_preflight_decide_reference(pf); */
#ifndef PL_RUNTIME_ADMIT_REFERENCE_PASSES_H
#define PL_RUNTIME_ADMIT_REFERENCE_PASSES_H

#include "runtime/admit/admission.h"

/* Decides the key where the job leaves it open, once the steps are counted. */
void pl_preflight_decide_reference(struct pl_preflight *pf);

#endif
