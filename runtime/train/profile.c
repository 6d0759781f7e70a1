#include "runtime/train/profile.h"
#include "estimator/base/alloc.h"

#include <stdlib.h>
#include <string.h>

pl_err pl_profile_init(struct pl_profile *f, uint32_t n_ops, bool every, struct pl_diag *d) {
    *f = (struct pl_profile){.n_ops = n_ops, .every = every};
    f->times = pl_calloc((size_t)n_ops + 1, sizeof *f->times);
    f->rows = pl_calloc(PL_OP_COUNT, sizeof *f->rows);
    return f->times && f->rows ? PL_ERR_OK : pl_host_oom(d, "the times of operations");
}

void pl_profile_finish(struct pl_profile *f) {
    free(f->times);
    free(f->rows);
    *f = (struct pl_profile){0};
}

void pl_profile_begin(struct pl_profile *f, struct pl_exec *e, bool waits) {
    const bool timed = f->every || !waits || f->steps == 1;
    f->steps++;
    if (timed) memset(f->times, 0, f->n_ops * sizeof *f->times);
    e->times = timed ? f->times : NULL;
}

bool pl_profile_end(struct pl_profile *f, struct pl_exec *e, const struct pl_load *load,
                    double of[PL_COST_COUNT]) {
    const struct pl_program *p = e->plan->program;
    if (!e->times) return false;
    e->times = NULL;
    memset(of, 0, PL_COST_COUNT * sizeof *of);
    for (uint32_t i = 0; i < p->n_ops; i++) {
        const struct pl_op_time *t = &f->times[i];
        if (!t->runs) continue;
        of[pl_op_cost(&p->ops[i])] += t->seconds;
        if (!f->every) continue;
        const struct pl_work w = pl_op_work(p, &p->ops[i], load);
        struct pl_profile_row *row = &f->rows[p->ops[i].kind];
        row->runs += t->runs;
        row->seconds += t->seconds;
        row->flops += (double)t->runs * w.flops;
        row->bytes += (double)t->runs * w.bytes;
    }
    f->timed++;
    return true;
}

/* --- the table ------------------------------------------------------------------------------- */

/* Kinds that ran into order[], the slowest first; their count. */
static uint32_t sort_rows(const struct pl_profile *f, enum pl_op_kind order[PL_OP_COUNT]) {
    uint32_t n = 0;
    for (int k = 0; k < PL_OP_COUNT; k++) {
        if (!f->rows[k].runs) continue;
        uint32_t at = n++;
        for (; at && f->rows[order[at - 1]].seconds < f->rows[k].seconds; at--)
            order[at] = order[at - 1];
        order[at] = (enum pl_op_kind)k;
    }
    return n;
}

static double total_seconds(const struct pl_profile *f) {
    double sum = 0;
    for (int k = 0; k < PL_OP_COUNT; k++)
        sum += f->rows[k].seconds;
    return sum;
}

/* Billions a second; 0 where no clock saw a second. */
static double rate(double amount, const struct pl_profile_row *row) {
    return row->seconds > 0 ? 1e-9 * amount / row->seconds : 0;
}

static double share_of(const struct pl_profile_row *row, double total) {
    return total > 0 ? row->seconds / total : 0;
}

void pl_profile_text(const struct pl_profile *f, struct pl_text *out) {
    enum pl_op_kind order[PL_OP_COUNT];
    const uint32_t n = sort_rows(f, order);
    const double total = total_seconds(f);
    pl_text_addf(out, "profile: %.3f s in the operations of %llu steps\n", total,
                 (unsigned long long)f->timed);
    pl_text_addf(out, "  %-17s %9s %10s %7s %9s %8s\n", "operation", "calls", "seconds", "share",
                 "GFLOP/s", "GB/s");
    for (uint32_t i = 0; i < n; i++) {
        const struct pl_profile_row *row = &f->rows[order[i]];
        char flops[32] = "-";
        if (row->flops > 0) snprintf(flops, sizeof flops, "%.1f", rate(row->flops, row));
        pl_text_addf(out, "  %-17s %9llu %10.4f %6.1f%% %9s %8.1f\n", pl_op_name(order[i]),
                     (unsigned long long)row->runs, row->seconds, 100 * share_of(row, total), flops,
                     rate(row->bytes, row));
    }
}

json_t *pl_profile_json(const struct pl_profile *f) {
    enum pl_op_kind order[PL_OP_COUNT];
    const uint32_t n = sort_rows(f, order);
    const double total = total_seconds(f);
    json_t *rows = json_array();
    for (uint32_t i = 0; rows && i < n; i++) {
        const struct pl_profile_row *row = &f->rows[order[i]];
        json_t *o =
            json_pack("{s:s, s:I, s:f, s:f, s:f, s:f}", "op", pl_op_name(order[i]), "calls",
                      (json_int_t)row->runs, "seconds", row->seconds, "share", share_of(row, total),
                      "gflops", rate(row->flops, row), "gbytes_per_second", rate(row->bytes, row));
        if (json_array_append_new(rows, o) == 0) continue;
        json_decref(rows);
        rows = NULL;
    }
    return rows;
}
