/* anew.h - the decisions of a job that begins again with a smaller micro-batch.
 *
 * In: an admitted job of which no step was made yet.  Out: the same as if it had been started with
 * that micro-batch and as many samples a step.  Needs: autobatch, gate.
 *   N1  every key that the job left open is decided by the functions that decided it first; what
 *       was written, and what a checkpoint that is resumed has kept, stays
 *   N2  what is decided takes no more than the device was seen to have, where anything does
 * Use: pl_anew_decide(&pf, 4, have, NULL, &a, &d); pl_anew_take(&pf, &a, &d);
 *      pl_anew_finish(&a); */
#ifndef PL_RUNTIME_ADMIT_ANEW_H
#define PL_RUNTIME_ADMIT_ANEW_H

#include "runtime/admit/admission.h"

struct pl_anew {
    struct pl_spec spec; /* with the smaller micro-batch */
    struct pl_question q;
    struct pl_planned planned; /* {0}: `same` */
    bool same;                 /* the plan is `known` */
    struct pl_text notes;      /* a line for each key that was decided */
};

/* Decides, and changes nothing of the job or of its plan: that is for pl_anew_take().
 * have_bytes: what arenas may take, as the device was seen. known (nullable): a plan that is there
 * already. Every rank calls it (agreed.h): pf->comm is where they agree. Finish *a in every case,
 * and do not copy it. */
pl_err pl_anew_decide(struct pl_preflight *pf, uint32_t batch_size, uint64_t have_bytes,
                      const struct pl_planned *known, struct pl_anew *a, struct pl_diag *d);
/* Takes the decisions into job, plan, verdict and record of *pf. Nothing may use the plan of before
 * any more. */
pl_err pl_anew_take(struct pl_preflight *pf, struct pl_anew *a, struct pl_diag *d);
void pl_anew_finish(struct pl_anew *a); /* leaves {0} */

#endif
