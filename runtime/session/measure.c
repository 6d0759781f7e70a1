/* measure.c - see measure.h. */
#include "runtime/session/measure.h"

#include "estimator/base/checked.h"
#include "estimator/base/units.h"
#include "runtime/admit/graphs.h"

#include <sys/resource.h>
#include <time.h>

double pl_session_clock(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* GPU bytes of this process: as the driver counts them, or, where it does not count by process or
 * not by our number (containers), what has gone of the free memory since the pre-flight. A
 * neighbour falsifies the second figure, so it is only the second choice. 0 = not known. */
static uint64_t process_bytes(struct pl_session *s) {
    struct pl_gpu now;
    uint64_t before = s->pf->gpu.free_bytes, left = 0;
    if (pl_nvml_query(pl_device_ordinal(s->job->device), &now, NULL) == PL_ERR_OK &&
        now.process_bytes)
        return now.process_bytes;
    if (s->device->ops->free_bytes(s->device, &left, NULL) != PL_ERR_OK) return 0;
    return before > left ? before - left : 0;
}

/* The line that moved, and by how much, in front of the refusal. */
static pl_err refuse(struct pl_session *s, const struct pl_diag *refusal, struct pl_diag *d) {
    char predicted[PL_BYTES_TEXT], measured[PL_BYTES_TEXT];
    return pl_diag_set(
        d, refusal->err,
        "the line `context` changed from %s (predicted: %s) to %s (measured, %llu bytes): %s",
        pl_bytes_text(s->pf->context.bytes, predicted), s->pf->context.source,
        pl_bytes_text(s->pf->q.budget.context_bytes, measured),
        (unsigned long long)s->pf->q.budget.context_bytes, refusal->message);
}

pl_err pl_session_check_context(struct pl_session *s, struct pl_diag *d) {
    struct pl_preflight *pf = s->pf;
    if (!pl_device_is_cuda(s->job->device)) return PL_ERR_OK;
    s->opened_bytes = process_bytes(s);
    if (s->opened_bytes) {
        pf->q.budget.context_bytes = s->opened_bytes + pf->context.growth_bytes;
        pf->q.budget.doubt_bytes = 0;
        pf->graph_bytes = 0;
    }
    pl_graphs_grant(pf);
    s->device->graphs.limit_bytes = pf->graph_bytes;
    s->device->graphs.node_bytes = pf->context.graph_node_bytes;
    s->device->budget_bytes =
        pf->q.budget.total_bytes - pl_u64_min(pf->q.budget.total_bytes, pf->q.budget.context_bytes);
    struct pl_diag refusal = {0};
    pl_err err = pl_gate_error(&pf->estimate.verdict, &pf->q, &refusal);
    if (err == PL_ERR_OK || s->job->preflight == PL_PREFLIGHT_OFF) return PL_ERR_OK;
    if (s->job->preflight == PL_PREFLIGHT_ENFORCE) return refuse(s, &refusal, d);
    fprintf(s->messages, "preflight: warn - with the measured context %s\n", refusal.message);
    return PL_ERR_OK;
}

static uint64_t resident_bytes(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (uint64_t)usage.ru_maxrss * 1024;
}

static void measure(struct pl_session *s, struct pl_books *out) {
    out->predicted_bytes =
        pl_session_rung(s)->planned.plan->arena_bytes + s->pf->context.bytes + s->pf->graph_bytes;
    if (!pl_device_is_cuda(s->job->device)) {
        out->measured_bytes = resident_bytes();
        return;
    }
    out->measured_bytes = process_bytes(s);
    if (out->measured_bytes <= s->device->used_bytes) return;
    out->context_bytes = out->measured_bytes - s->device->used_bytes;
    const struct pl_graph_books *g = &s->device->graphs;
    const uint64_t final = out->context_bytes - pl_u64_min(out->context_bytes, g->bytes);
    pl_context_remember(&s->pf->gpu,
                        &(struct pl_context_seen){.opened_bytes = s->opened_bytes,
                                                  .final_bytes = pl_u64_max(s->opened_bytes, final),
                                                  .graph_bytes = g->peak_bytes,
                                                  .graph_nodes = g->peak_nodes});
}

static pl_err check_host_books(struct pl_session *s, struct pl_books *out, struct pl_diag *d) {
    const struct pl_plan *plan = pl_session_rung(s)->planned.plan;
    out->planned_host_bytes = out->allocated_host_bytes = 0;
    for (int place = PL_PLACE_PINNED; place < PL_PLACE_COUNT; place++) {
        uint64_t planned = pl_plan_host_bytes(plan, place), taken = s->device->host_bytes[place];
        out->planned_host_bytes += planned;
        out->allocated_host_bytes += taken;
        if (planned != taken)
            return pl_diag_set(
                d, PL_ERR_PLAN_BROKEN, "planned %llu bytes of %s memory, allocated %llu",
                (unsigned long long)planned, pl_place_name(place), (unsigned long long)taken);
    }
    return PL_ERR_OK;
}

/* S1: what the plan promised is what the device counted. */
pl_err pl_session_check_books(struct pl_session *s, struct pl_books *out, struct pl_diag *d) {
    out->planned_bytes = pl_session_rung(s)->planned.plan->arena_bytes;
    out->allocated_bytes = s->device->used_bytes;
    PL_TRY(check_host_books(s, out, d));
    measure(s, out);
    if (out->planned_bytes == out->allocated_bytes) return PL_ERR_OK;
    return pl_diag_set(d, PL_ERR_PLAN_BROKEN, "planned %llu bytes, allocated %llu",
                       (unsigned long long)out->planned_bytes,
                       (unsigned long long)out->allocated_bytes);
}
