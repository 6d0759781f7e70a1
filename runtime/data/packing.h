/* packing.h - assigns samples to the slots of a step: first fit, in the order of the walk.
 *
 * A slot is the room of one sample of max_seq_length tokens. Without packing it takes one row; with
 * packing as many whole rows as fit. The step ends before the first row that fits into no slot, and
 * with its epoch, so that its rows are a stretch of the walk and its end follows from its beginning
 * alone.
 *   G1  a slot never holds more tokens than max_seq_length, nor more than max_seq_length / 2 rows
 *       that train: each of those has two tokens at least (one to read, one to predict)
 *   G2  rows that train nothing take no room
 * Needs: base, walk.h.
 * Use: pl_packer_begin(&p, slots, tokens, &d); while (pl_packer_put(&p, n, &slot)) ... */
#ifndef PL_RUNTIME_DATA_PACKING_H
#define PL_RUNTIME_DATA_PACKING_H

#include "runtime/data/walk.h"

struct pl_packer {
    uint64_t slot_tokens; /* 0 = one row per slot, whatever its length */
    uint64_t slots, rows, max_rows;
    uint64_t *room; /* [2 leaves], owned: a tree of maxima over the room of the slots */
    uint64_t leaves, cap;
};

/* Begins with empty slots. slot_tokens 0: no packing. Memory is used again from step to step. */
pl_err pl_packer_begin(struct pl_packer *p, uint64_t slots, uint64_t slot_tokens,
                       struct pl_diag *d);
/* Adds the next row of `tokens` computed tokens; false if the step is full. */
bool pl_packer_put(struct pl_packer *p, uint64_t tokens, uint64_t *slot);
void pl_packer_finish(struct pl_packer *p);

#endif
