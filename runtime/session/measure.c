#include "runtime/session/measure.h"

#include "estimator/base/checked.h"
#include "estimator/base/nccl_bytes.h"
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

/* A line of the ledger that is measured. */
struct moved {
    const char *line, *source;
    uint64_t predicted, measured;
};

static uint64_t excess(const struct moved *m) {
    return m->measured > m->predicted ? m->measured - m->predicted : 0;
}

/* The line that moved the most, and by how much, in front of the refusal. */
static pl_err refuse_context(struct pl_session *s, const struct pl_diag *refusal,
                             struct pl_diag *d) {
    const struct pl_budget *b = &s->pf->q.budget;
    const struct moved context = {"context", s->pf->context.source, s->pf->context.bytes,
                                  pl_budget_own_context(b)};
    const struct moved comm = {"comm", "how NCCL is configured", pl_nccl_bytes(s->pf->world.size),
                               b->comm_bytes};
    const struct moved *m = excess(&comm) > excess(&context) ? &comm : &context;
    char predicted[PL_BYTES_TEXT], measured[PL_BYTES_TEXT], grown[PL_BYTES_TEXT];
    char later[PL_BYTES_TEXT + 64] = "";
    if (m == &context && s->opened_bytes && context.measured > s->opened_bytes)
        snprintf(later, sizeof later, " and %s for kernels that are loaded later",
                 pl_bytes_text(context.measured - s->opened_bytes, grown));
    return pl_diag_set(
        d, refusal->err,
        "the line `%s` changed from %s (predicted: %s) to %s (measured%s, %llu bytes): %s", m->line,
        pl_bytes_text(m->predicted, predicted), m->source, pl_bytes_text(m->measured, measured),
        later, (unsigned long long)m->measured, refusal->message);
}

pl_err pl_session_check_context(struct pl_session *s, struct pl_diag *d) {
    struct pl_preflight *pf = s->pf;
    if (!pl_device_is_cuda(s->job->device)) return PL_ERR_OK;
    struct pl_budget *b = &pf->q.budget;
    /* The bytes that NCCL counts, or what went of the free memory while it connected. */
    s->comm_bytes = s->comm ? s->comm->ops->device_bytes(s->comm) : 0;
    if (s->comm_bytes) pl_budget_set_comm(b, s->comm_bytes, 0);
    s->opened_bytes = process_bytes(s);
    s->opened_bytes -= pl_u64_min(s->opened_bytes, s->comm_bytes);
    if (s->opened_bytes) {
        const struct pl_growth growth = pl_context_growth(&pf->context, s->opened_bytes);
        b->context_bytes = s->opened_bytes + growth.bytes + b->comm_bytes;
        b->doubt_bytes = growth.doubt_bytes + b->comm_doubt_bytes;
        pf->graph_bytes = 0;
    }
    pl_graphs_grant(pf);
    s->device->graphs.limit_bytes = pf->graph_bytes;
    s->device->graphs.node_bytes = pf->context.graph_node_bytes;
    const uint64_t least = b->context_bytes - pl_u64_min(b->context_bytes, b->doubt_bytes);
    s->device->budget_bytes = b->total_bytes - pl_u64_min(b->total_bytes, least);
    struct pl_diag refusal = {0};
    pl_err err = pl_gate_error(&pf->estimate.verdict, &pf->q, &refusal);
    if (err == PL_ERR_OK || s->job->preflight == PL_PREFLIGHT_OFF) return PL_ERR_OK;
    if (s->job->preflight == PL_PREFLIGHT_ENFORCE) return refuse_context(s, &refusal, d);
    fprintf(s->messages, "preflight: warn - with the measured context %s\n", refusal.message);
    return PL_ERR_OK;
}

static void measure_bytes(struct pl_session *s, struct pl_books *out) {
    out->predicted_bytes =
        pl_session_rung(s)->planned.plan->arena_bytes + s->pf->context.bytes + s->pf->graph_bytes;
    out->comm_bytes = s->comm_bytes;
    if (!pl_device_is_cuda(s->job->device)) {
        struct rusage usage;
        getrusage(RUSAGE_SELF, &usage);
        out->measured_bytes = (uint64_t)usage.ru_maxrss * 1024;
        return;
    }
    if (s->pf->world.size > 1) out->predicted_bytes += pl_nccl_bytes(s->pf->world.size);
    out->measured_bytes = process_bytes(s);
    const uint64_t others = s->device->used_bytes + s->device->rounding_bytes + s->comm_bytes;
    if (out->measured_bytes <= others) return;
    out->context_bytes = out->measured_bytes - others;
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
    measure_bytes(s, out);
    if (out->planned_bytes == out->allocated_bytes) return PL_ERR_OK;
    return pl_diag_set(d, PL_ERR_PLAN_BROKEN, "planned %llu bytes, allocated %llu",
                       (unsigned long long)out->planned_bytes,
                       (unsigned long long)out->allocated_bytes);
}
