#include "runtime/admit/graphs.h"

#include "estimator/base/checked.h"
#include "runtime/admit/admission.h"
#include "runtime/device/device.h"

#include <stdlib.h>
#include <string.h>

/* Kernels of an operation, at most but for a few: products of mixed types and sums in two launches
 * have two, most have one. */
#define NODES_PER_OP 2

/* Parameters of a layer times tokens of a micro-batch up to which starting kernels takes as long as
 * their work. A layer has about 60 kernels in both passes, which take 4 microseconds each to start,
 * and 6 FLOPs for each parameter and token, of which a data-centre GPU does 2e14 in a second with
 * matrices that are this small. */
#define LAYER_WORK 8e9

bool pl_graphs_pad(const struct pl_job *job, const struct pl_program *p) {
    const double params = (double)pl_model_param_count(p->model);
    return pl_device_is_cuda(job->device) && !job->inference &&
           params / (double)p->model->layers * (double)p->tokens <= LAYER_WORK;
}

/* The micro-batch that opens a step overwrites gradients and the others add, so they are two; of
 * those that are padded there may be any number of sizes. */
static uint64_t expected_nodes(const struct pl_preflight *pf) {
    const struct pl_phase_range *phases = pf->estimate.planned.program->phases;
    uint64_t micro = phases[PL_PHASE_MICRO].n_ops;
    if (pl_graphs_pad(pf->job, pf->estimate.planned.program))
        micro *= PL_GRAPHS_MOST;
    else if (pf->global_batch > pf->job->batch_size)
        micro *= 2;
    return NODES_PER_OP * (micro + phases[PL_PHASE_OPTIMIZER].n_ops + phases[PL_PHASE_EVAL].n_ops +
                           phases[PL_PHASE_SCORE].n_ops + phases[PL_PHASE_REFERENCE].n_ops +
                           phases[PL_PHASE_GENERATE].n_ops);
}

void pl_graphs_grant(struct pl_preflight *pf) {
    struct pl_budget *b = &pf->q.budget;
    b->context_bytes -= pf->graph_bytes;
    pf->graph_bytes = 0;
    pl_estimate_judge_again(&pf->estimate);
    const char *given = getenv("PLIMSOLL_GRAPHS");
    if (!pl_device_is_cuda(pf->job->device) || (given && strcmp(given, "0") == 0) ||
        pf->estimate.verdict.kind != PL_VERDICT_FITS)
        return;
    const uint64_t left = pl_budget_usable(b) - pf->estimate.planned.plan->arena_bytes;
    pf->graph_bytes = pl_u64_min(expected_nodes(pf) * pf->context.graph_node_bytes, left);
    b->context_bytes += pf->graph_bytes;
    pl_estimate_judge_again(&pf->estimate);
}
