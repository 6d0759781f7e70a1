/* agreed.h - a job as one of several ranks: what this changes in it, and what the ranks decide
 * together before a device is opened.
 *
 * In: the budget and the decisions of this rank.  Out: those that all ranks have.
 * Needs: comm, config, plan.
 *   G1  every rank makes each of the calls on pf->comm once, in this order, whatever its settings
 *       are: ranks that were started differently are told so later, by name (session/agree.h)
 *   G2  all decide from the smallest budget, for the rank with the most blocks
 *       (preflight_size.c), so that all refuse a job or none. Where kernels or threads lead ranks
 *       to other decisions nevertheless, the one with the smallest micro-batch counts; of several
 *       of them the one that takes the fewest bytes
 *   G3  a rank that is alone changes nothing
 * Use: pl_ranks_join(&pf->spec, &world, &d);
 *      pl_agreed_meet(pf, how->teller, &d); ... pl_agreed_budget(pf, &b, &d); ...
 *      pl_agreed_sharding(pf, open, &sharding, &d); ... pl_agreed_decision(pf, &q, &d); ...
 *      pl_session_open takes pf->comm over. */
#ifndef PL_RUNTIME_ADMIT_AGREED_H
#define PL_RUNTIME_ADMIT_AGREED_H

#include "runtime/admit/admission.h"

/* Takes the identity into the job: its devices become the ranks that were started, its device one
 * that no other rank of this machine has. COMM_INIT: another number of ranks was started than
 * `devices` asks for. CONFIG_CONFLICT: it asks for what several ranks cannot have. */
pl_err pl_ranks_join(struct pl_spec *spec, const struct pl_world *world, struct pl_diag *d);
/* Connects to the other ranks; teller (nullable) hears which are late. COMM_INIT; of all of these
 * COMM_PEER_LOST. */
pl_err pl_agreed_meet(struct pl_preflight *pf, const struct pl_teller *teller, struct pl_diag *d);
/* Agrees on the budget: *b becomes as small as that of the rank that has the least; it is named
 * (spec.h) if that of any rank is. */
pl_err pl_agreed_budget(struct pl_preflight *pf, struct pl_budget *b, struct pl_diag *d);
/* Agrees on the sharding. open: *sharding was decided by this rank, and becomes that of all. */
pl_err pl_agreed_sharding(struct pl_preflight *pf, bool open, uint32_t *sharding,
                          struct pl_diag *d);
/* Agrees on micro-batch, level and chunks of *q, where its job leaves them open. */
pl_err pl_agreed_decision(struct pl_preflight *pf, struct pl_question *q, struct pl_diag *d);

#endif
