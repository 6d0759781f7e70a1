/* graphs.h - how much of a GPU graphs of a step may take: what the plan leaves, and no more.
 *
 * Graphs save launches and nothing else, so no verdict may turn on them: they are granted bytes of
 * the budget only where the job fits without. What they are granted is part of the line `context`,
 * as everything is that the driver takes; the device measures each and stops at the grant.
 *
 * A graph serves micro-batches of one size. Where starting kernels takes about as long as their
 * work, micro-batches are padded to a few sizes (runtime/data/batch.h). The job alone decides that:
 * a run has the same bits on every number of ranks, resumed, and with PLIMSOLL_GRAPHS=0.
 * Environment: PLIMSOLL_GRAPHS=0 grants nothing.
 * Use: pl_graphs_grant(pf); dev->graphs.limit_bytes = pf->graph_bytes; */
#ifndef PL_RUNTIME_ADMIT_GRAPHS_H
#define PL_RUNTIME_ADMIT_GRAPHS_H

#include <stdbool.h>

struct pl_job;
struct pl_preflight;
struct pl_program;

/* True if micro-batches of this program are padded. */
bool pl_graphs_pad(const struct pl_job *job, const struct pl_program *p);

/* Judges the plan against pf->q.budget, then grants pf->graph_bytes; again when the context has
 * moved, in which an earlier grant is contained. */
void pl_graphs_grant(struct pl_preflight *pf);

#endif
