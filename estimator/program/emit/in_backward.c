/* in_backward.c - updates in the backward pass, so that gradients share their memory.
 *
 * A gradient is a tensor of the step. Once the last op that adds to it has run, its tensor is
 * updated, and it dies; the planner sees the rest. Clipping needs the norm of all gradients before
 * the first update. There the backward pass is made twice: the first one lets every gradient die
 * in the norm, the second one makes it again for the update, with the same ops on the same values.
 * Without clipping, the squares of a gradient, and whether the norm so far is a number, are known
 * right before its update: no tensor is updated with a gradient that is not finite.
 *
 * Where micro-batches add up, gradients are tensors of the step, too, and live through all of it,
 * so that the job arena of a job does not depend on its micro-batch (P4 of plan.h). */
#include "estimator/program/emit/exchange.h"

void pl_build_step_gradients(struct pl_builder *b) {
    if (b->s->gradients == PL_GRADIENTS_OF_JOB) return;
    for (uint32_t i = 0; i < b->n_job_tensors && b->err == PL_ERR_OK; i++) {
        struct pl_tensor t = b->p->tensors[i];
        if (!t.trainable) continue;
        t.name = "grad";
        t.dtype = pl_build_gradient_dtype(b, i);
        t.category = PL_CATEGORY_GRADIENTS;
        t.scope = PL_SCOPE_STEP;
        t.phase = b->phase;
        t.role = PL_ROLE_GRAD;
        t.place = PL_PLACE_DEVICE;
        t.of = i;
        t.trainable = false;
        b->grad[i] = pl_build_tensor(b, t);
        b->grad_begun[i] = false;
    }
}

void pl_build_open_gradient(struct pl_builder *b, uint32_t tensor) {
    b->grad_begun[tensor] = true;
    if (b->settling == PL_SETTLE_LATER) return;
    if (b->settling == PL_SETTLE_FOLD && !pl_build_is_folded(b, tensor)) return;
    if (b->n_open == PL_MAX_OPEN)
        b->err = pl_diag_set(b->d, PL_ERR_PLAN_BROKEN, "too many gradients are begun at a time");
    else
        b->open[b->n_open++] = tensor;
}

static void settle(struct pl_builder *b, uint32_t tensor) {
    if (b->settling == PL_SETTLE_FOLD) {
        pl_build_fold_gradient(b, tensor);
        return;
    }
    if (b->settling != PL_SETTLE_UPDATE) pl_build_norm_of(b, tensor);
    if (b->settling == PL_SETTLE_BOTH) pl_build_clip(b);
    if (b->settling != PL_SETTLE_NORM) pl_build_update(b, tensor);
}

/* Square sums that follow each other may run as one kernel (`joins` of PL_OP_SQUARE_SUM), which
 * takes them in the order of the tensors; the chunks of an MLP open the gradient of its last matrix
 * first. */
static void sort_open(struct pl_builder *b) {
    for (uint32_t i = 1; i < b->n_open; i++)
        for (uint32_t k = i; k > 0 && b->open[k] < b->open[k - 1]; k--) {
            const uint32_t tensor = b->open[k];
            b->open[k] = b->open[k - 1];
            b->open[k - 1] = tensor;
        }
}

void pl_build_settle(struct pl_builder *b, bool embedding) {
    const uint32_t table = b->weight[pl_build_slot_index(PL_NONE, PL_SLOT_EMBED)];
    uint32_t open = 0;
    sort_open(b);
    for (uint32_t i = 0; i < b->n_open && b->err == PL_ERR_OK; i++) {
        if (b->open[i] == table && !embedding)
            b->open[open++] = table;
        else
            settle(b, b->open[i]);
    }
    b->n_open = open;
}
