/* graphs.h - how much of a GPU graphs of a step may take: what the plan leaves, and no more.
 *
 * Graphs save launches and nothing else, so no verdict may turn on them: they are granted bytes of
 * the budget only where the job fits without. What they are granted is part of the line `context`,
 * as everything is that the driver takes; the device measures each and stops at the grant.
 * Environment: PLIMSOLL_GRAPHS=0 grants nothing.
 * Use: pl_graphs_grant(pf); dev->graphs.limit_bytes = pf->graph_bytes; */
#ifndef PL_RUNTIME_ADMIT_GRAPHS_H
#define PL_RUNTIME_ADMIT_GRAPHS_H

struct pl_preflight;

/* Judges the plan against pf->q.budget, then grants pf->graph_bytes; again when the context has
 * moved, in which an earlier grant is contained. */
void pl_graphs_grant(struct pl_preflight *pf);

#endif
