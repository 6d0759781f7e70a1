/* estimate_ranks.c - what every rank of a job takes, before any of them exists. */
#include "estimator/gate/estimate.h"

#include "estimator/base/alloc.h"
#include "estimator/base/json_tree.h"
#include "estimator/base/units.h"
#include "estimator/config/key_table.h"

#include <string.h>

static void take_bill(const struct pl_estimate *e, const struct pl_plan *plan,
                      struct pl_rank_bill *out) {
    out->arena_bytes = plan->arena_bytes;
    out->needed_bytes = plan->arena_bytes + e->q->budget.context_bytes;
    memcpy(out->ledger, plan->ledger, sizeof out->ledger);
}

static pl_err bill_rank(struct pl_estimate *e, uint32_t rank, struct pl_planned *held,
                        struct pl_diag *d) {
    struct pl_variant v;
    if (rank == e->q->rank) {
        take_bill(e, e->planned.plan, &e->ranks[rank]);
        return PL_ERR_OK;
    }
    pl_variant_of(&v, e->q);
    v.q.rank = rank;
    PL_TRY(pl_question_measure(&v.q, held, d));
    take_bill(e, held->plan, &e->ranks[rank]);
    return PL_ERR_OK;
}

pl_err pl_estimate_bill_ranks(struct pl_estimate *e, struct pl_diag *d) {
    const uint32_t n = pl_shape_ranks(&e->planned.program->shape);
    struct pl_planned held = {0};
    pl_err err = PL_ERR_OK;
    if (n == 1) return PL_ERR_OK;
    e->ranks = pl_calloc(n, sizeof *e->ranks);
    if (!e->ranks) return pl_host_oom(d, "the bill of the ranks");
    e->n_ranks = n;
    for (uint32_t r = 0; r < n && err == PL_ERR_OK; r++)
        err = bill_rank(e, r, &held, d);
    pl_planned_finish(&held);
    return err;
}

/* --- text ------------------------------------------------------------------------------------ */

/* Ranks that take as much stand in one line. */
void pl_estimate_ranks_text(const struct pl_estimate *e, struct pl_text *out) {
    char bytes[PL_BYTES_TEXT], sharding[PL_CHOICE_BYTES];
    uint32_t n;
    if (!e->n_ranks) return;
    pl_key_choice(pl_key_table(&n)[PL_KEY_sharding].choices, e->planned.program->shape.sharding,
                  sharding);
    pl_text_addf(out, "  ranks: %u, sharding: %s; shown is rank %u\n", e->n_ranks, sharding,
                 e->q->rank);
    for (uint32_t r = 0, end; r < e->n_ranks; r = end) {
        const uint64_t needed = e->ranks[r].needed_bytes;
        for (end = r + 1; end < e->n_ranks && e->ranks[end].needed_bytes == needed; end++)
            continue;
        if (end == r + 1)
            pl_text_addf(out, "    rank %-10u", r);
        else
            pl_text_addf(out, "    ranks %u to %-4u", r, end - 1);
        pl_text_addf(out, " %11s  %16llu\n", pl_bytes_text(needed, bytes),
                     (unsigned long long)needed);
    }
}

/* --- JSON ------------------------------------------------------------------------------------ */

json_t *pl_estimate_ranks_json(const struct pl_estimate *e) {
    json_t *list = json_array();
    for (uint32_t r = 0; r < e->n_ranks; r++) {
        json_t *o = json_object();
        pl_json_set(&o, "rank", json_integer(r));
        pl_json_set(&o, "needed_bytes", json_integer((json_int_t)e->ranks[r].needed_bytes));
        pl_json_set(&o, "arena_bytes", json_integer((json_int_t)e->ranks[r].arena_bytes));
        pl_json_set(&o, "comm_bytes", json_integer((json_int_t)e->q->budget.comm_bytes));
        json_t *ledger = json_object();
        for (int c = 0; c < PL_CATEGORY_COUNT; c++)
            pl_json_set(&ledger, pl_category_name(c),
                        json_integer((json_int_t)e->ranks[r].ledger[c]));
        pl_json_set(&o, "ledger", ledger);
        pl_json_append(&list, o);
    }
    return list;
}
