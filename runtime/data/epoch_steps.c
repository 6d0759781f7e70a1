/* epoch_steps.c - closed forms without packing; packed steps are counted by packing them. */
#include "runtime/data/epoch_steps.h"

#include "estimator/base/checked.h"

#include <math.h>

/* Rows of the packed step at `position`. */
static pl_err pack_step(const struct pl_batch_source *from, struct pl_packer *p, uint64_t slots,
                        uint64_t position, struct pl_diag *d) {
    const uint64_t left = pl_walk_left(from->walk, position);
    uint64_t slot;
    PL_TRY(pl_packer_begin(p, slots, from->pack_tokens, d));
    while (p->rows < left) {
        const uint64_t row = pl_walk_row(from->walk, position + p->rows);
        if (!pl_packer_put(p, pl_data_tokens(from->data, row), &slot)) break;
    }
    return PL_ERR_OK;
}

static pl_err packed_steps_of(const struct pl_batch_source *from, uint64_t slots, uint64_t epoch,
                              uint64_t *steps, struct pl_diag *d) {
    const uint64_t rows = from->walk->epoch_rows, end = (epoch + 1) * rows;
    struct pl_packer p = {0};
    pl_err err = PL_ERR_OK;
    *steps = 0;
    for (uint64_t at = epoch * rows; at < end && err == PL_ERR_OK; at += p.rows, ++*steps)
        err = pack_step(from, &p, slots, at, d);
    pl_packer_finish(&p);
    return err;
}

static pl_err steps_of(const struct pl_batch_source *from, uint64_t slots, uint64_t epoch,
                       uint64_t *steps, struct pl_diag *d) {
    if (from->pack_tokens) return packed_steps_of(from, slots, epoch, steps, d);
    *steps = pl_u64_div_up(from->walk->epoch_rows, slots);
    return PL_ERR_OK;
}

pl_err pl_steps_of_epochs(const struct pl_batch_source *from, uint64_t slots, double epochs,
                          uint64_t *steps, struct pl_diag *d) {
    const uint64_t whole = (uint64_t)epochs;
    uint64_t n = 0;
    *steps = 0;
    for (uint64_t e = 0; from->pack_tokens && e < whole; e++, *steps += n)
        PL_TRY(steps_of(from, slots, e, &n, d));
    PL_TRY(steps_of(from, slots, whole, &n, d));
    if (!from->pack_tokens) *steps = whole * n;
    *steps += (uint64_t)ceil(epochs * (double)n) - whole * n;
    *steps = pl_u64_max(*steps, 1);
    return PL_ERR_OK;
}

static pl_err packed_position(const struct pl_batch_source *from, uint64_t slots, uint64_t done,
                              uint64_t *position, struct pl_diag *d) {
    struct pl_packer p = {0};
    pl_err err = PL_ERR_OK;
    *position = 0;
    for (uint64_t i = 0; i < done && err == PL_ERR_OK; i++, *position += p.rows)
        err = pack_step(from, &p, slots, *position, d);
    pl_packer_finish(&p);
    return err;
}

pl_err pl_steps_position(const struct pl_batch_source *from, uint64_t slots, uint64_t done,
                         uint64_t *position, struct pl_diag *d) {
    const uint64_t rows = from->walk->epoch_rows;
    if (from->pack_tokens) return packed_position(from, slots, done, position, d);
    const uint64_t of_epoch = from->walk->circle ? 0 : pl_u64_div_up(rows, slots);
    *position = of_epoch ? done / of_epoch * rows + done % of_epoch * slots : done * slots;
    return PL_ERR_OK;
}
