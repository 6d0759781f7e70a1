#include "runtime/admit/graphs.h"

#include "estimator/base/checked.h"
#include "runtime/admit/admission.h"

#include <stdlib.h>
#include <string.h>

/* Kernels of an operation, at most but for a few: products of mixed types and sums in two launches
 * have two, most have one. */
#define NODES_PER_OP 2

static bool are_wanted(const struct pl_preflight *pf) {
    const char *given = getenv("PLIMSOLL_GRAPHS");
    return pl_device_is_cuda(pf->job->device) && !(given && strcmp(given, "0") == 0);
}

/* The micro-batch that opens a step overwrites gradients and the others add, so they are two. */
static uint64_t expected_nodes(const struct pl_preflight *pf) {
    const struct pl_phase_range *phases = pf->estimate.planned.program->phases;
    uint64_t micro = phases[PL_PHASE_MICRO].n_ops;
    if (pf->global_batch > pf->job->batch_size) micro *= 2;
    return NODES_PER_OP * (micro + phases[PL_PHASE_OPTIMIZER].n_ops + phases[PL_PHASE_EVAL].n_ops +
                           phases[PL_PHASE_SCORE].n_ops + phases[PL_PHASE_REFERENCE].n_ops +
                           phases[PL_PHASE_GENERATE].n_ops);
}

void pl_graphs_grant(struct pl_preflight *pf) {
    struct pl_budget *b = &pf->q.budget;
    b->context_bytes -= pf->graph_bytes;
    pf->graph_bytes = 0;
    pl_estimate_judge_again(&pf->estimate);
    if (!are_wanted(pf) || pf->estimate.verdict.kind != PL_VERDICT_FITS) return;
    const uint64_t left = pl_budget_usable(b) - pf->estimate.planned.plan->arena_bytes;
    pf->graph_bytes = pl_u64_min(expected_nodes(pf) * pf->context.graph_node_bytes, left);
    b->context_bytes += pf->graph_bytes;
    pl_estimate_judge_again(&pf->estimate);
}
