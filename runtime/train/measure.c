/* measure.c - what a GPU's driver took, against what was predicted. */
#include "runtime/admit/graphs.h"
#include "runtime/train/run.h"

#include "estimator/base/checked.h"
#include "estimator/base/units.h"

#include <sys/resource.h>

/* GPU bytes of this process: as the driver counts them, or, where it does not count by process or
 * not by our number (containers), what has gone of the free memory since the pre-flight. A
 * neighbour falsifies the second figure, so it is only the second choice. 0 = not known. */
static uint64_t process_bytes(struct pl_run *r) {
    struct pl_gpu now;
    uint64_t before = r->pf->gpu.free_bytes, left = 0;
    if (pl_nvml_query(pl_device_ordinal(r->job->device), &now, NULL) == PL_ERR_OK &&
        now.process_bytes)
        return now.process_bytes;
    if (r->device->ops->free_bytes(r->device, &left, NULL) != PL_ERR_OK) return 0;
    return before > left ? before - left : 0;
}

/* The line that moved, and by how much, in front of the refusal. */
static pl_err refuse(struct pl_run *r, const struct pl_diag *refusal, struct pl_diag *d) {
    char predicted[PL_BYTES_TEXT], measured[PL_BYTES_TEXT];
    return pl_diag_set(
        d, refusal->err,
        "the line `context` changed from %s (predicted: %s) to %s (measured, %llu bytes): %s",
        pl_bytes_text(r->pf->context.bytes, predicted), r->pf->context.source,
        pl_bytes_text(r->pf->q.budget.context_bytes, measured),
        (unsigned long long)r->pf->q.budget.context_bytes, refusal->message);
}

pl_err pl_run_check_context(struct pl_run *r, struct pl_diag *d) {
    struct pl_preflight *pf = r->pf;
    if (!pl_device_is_cuda(r->job->device)) return PL_ERR_OK;
    r->opened_bytes = process_bytes(r);
    if (r->opened_bytes) {
        pf->q.budget.context_bytes = r->opened_bytes + pf->context.growth_bytes;
        pf->q.budget.doubt_bytes = 0;
        pf->graph_bytes = 0;
    }
    pl_graphs_grant(pf);
    r->device->graphs.limit_bytes = pf->graph_bytes;
    r->device->graphs.node_bytes = pf->context.graph_node_bytes;
    r->device->budget_bytes =
        pf->q.budget.total_bytes - pl_u64_min(pf->q.budget.total_bytes, pf->q.budget.context_bytes);
    struct pl_diag refusal = {0};
    pl_err err = pl_gate_error(&pf->estimate.verdict, &pf->q, &refusal);
    if (err == PL_ERR_OK || r->job->preflight == PL_PREFLIGHT_OFF) return PL_ERR_OK;
    if (r->job->preflight == PL_PREFLIGHT_ENFORCE) return refuse(r, &refusal, d);
    fprintf(r->opt->messages, "preflight: warn - with the measured context %s\n", refusal.message);
    return PL_ERR_OK;
}

static uint64_t resident_bytes(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (uint64_t)usage.ru_maxrss * 1024;
}

void pl_run_measure(struct pl_run *r, struct pl_train_result *out) {
    out->predicted_bytes =
        pl_run_rung(r)->planned.plan->arena_bytes + r->pf->context.bytes + r->pf->graph_bytes;
    if (!pl_device_is_cuda(r->job->device)) {
        out->measured_bytes = resident_bytes();
        return;
    }
    out->measured_bytes = process_bytes(r);
    if (out->measured_bytes <= r->device->used_bytes) return;
    out->context_bytes = out->measured_bytes - r->device->used_bytes;
    const struct pl_graph_books *g = &r->device->graphs;
    const uint64_t final = out->context_bytes - pl_u64_min(out->context_bytes, g->bytes);
    pl_context_remember(&r->pf->gpu,
                        &(struct pl_context_seen){.opened_bytes = r->opened_bytes,
                                                  .final_bytes = pl_u64_max(r->opened_bytes, final),
                                                  .graph_bytes = g->peak_bytes,
                                                  .graph_nodes = g->peak_nodes});
}
