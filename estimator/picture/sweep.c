#include "estimator/picture/sweep.h"

#include "estimator/base/alloc.h"
#include "estimator/base/checked.h"

#include <stdlib.h>

/* Differences first, prefix sums after: linear in tensors and ops. Unsigned wrap-around cancels. */
bool pl_sweep_init(struct pl_sweep *s, const struct pl_plan *plan, enum pl_phase phase) {
    const struct pl_program *p = plan->program;
    *s = (struct pl_sweep){.plan = plan, .ops = &p->phases[phase]};
    uint32_t n = s->ops->n_ops, first = s->ops->first_op;
    s->live = pl_calloc((size_t)n + 1, PL_CATEGORY_COUNT * sizeof *s->live);
    if (!s->live) return false;
    for (uint32_t id = 0; id < p->n_tensors; id++) {
        const struct pl_tensor *t = &p->tensors[id];
        const struct pl_place_row *at = &plan->places[id];
        if (t->scope != PL_SCOPE_STEP || t->place != PL_PLACE_DEVICE || at->first_op < first ||
            at->last_op >= first + n || at->first_op > at->last_op)
            continue; /* a tensor of the host or of another phase, or one that is never used */
        s->live[(size_t)(at->first_op - first) * PL_CATEGORY_COUNT + t->category] += t->bytes;
        s->live[(size_t)(at->last_op + 1 - first) * PL_CATEGORY_COUNT + t->category] -= t->bytes;
    }
    for (size_t i = PL_CATEGORY_COUNT; i < (size_t)n * PL_CATEGORY_COUNT; i++)
        s->live[i] += s->live[i - PL_CATEGORY_COUNT];
    return true;
}

void pl_sweep_finish(struct pl_sweep *s) {
    free(s->live);
    *s = (struct pl_sweep){0};
}

static uint64_t all_bytes(const struct pl_sweep *s, uint32_t op) {
    uint64_t sum = 0;
    for (uint32_t c = 0; c < PL_CATEGORY_COUNT; c++)
        sum += pl_sweep_bytes(s, op, c);
    return sum;
}

uint32_t pl_sweep_columns(const struct pl_sweep *s, uint32_t peak_op, uint32_t most,
                          uint32_t *op_of, uint32_t *peak_column) {
    const uint64_t n = s->ops->n_ops;
    const uint32_t n_columns = (uint32_t)pl_u64_min(n, most);
    for (uint32_t c = 0; c < n_columns; c++) {
        uint32_t from = (uint32_t)(c * n / n_columns);
        uint32_t to = (uint32_t)((c + 1) * n / n_columns);
        op_of[c] = from;
        for (uint32_t op = from + 1; op < to; op++) {
            if (all_bytes(s, op) > all_bytes(s, op_of[c])) op_of[c] = op;
        }
        if (from <= peak_op && peak_op < to) {
            op_of[c] = peak_op;
            if (peak_column) *peak_column = c;
        }
    }
    return n_columns;
}

uint32_t pl_sweep_turn(const struct pl_sweep *s) {
    const struct pl_op *ops = s->plan->program->ops + s->ops->first_op;
    uint32_t turn = 0;
    while (turn < s->ops->n_ops && !ops[turn].backward)
        turn++;
    return turn;
}
