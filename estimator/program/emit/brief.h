/* brief.h - loops over equal pieces of work; a brief program has only the first and the last ones.
 *
 * Chunks of the loss, and windows of an update that comes from host memory, are the same ops on
 * buffers that an earlier piece has given back. The planner, which takes the smallest gap that
 * holds a tensor, places a chunk where it placed the one before. Windows overlap, since the next
 * one arrives while one is at work, so they alternate between two sets of buffers. So pieces in the
 * middle, an even number of them where they are windows, change no byte of a plan.
 *
 * Layers are pieces, too, or periods of layers where every sixth, say, differs from the others.
 * What a layer keeps for a later pass over the layers adds up, so the layer that stands for those
 * that are left out keeps it for all of them (pl_tensor_left_out). */
#ifndef PL_ESTIMATOR_PROGRAM_EMIT_BRIEF_H
#define PL_ESTIMATOR_PROGRAM_EMIT_BRIEF_H

#include "estimator/program/emit/emit.h"

/* The number of pieces at either end that a brief program has. */
#define PL_BRIEF_ENDS 2

/* Returns how many of n pieces are left out after piece i: a multiple of `set`. */
static inline uint64_t pl_brief_left_out(const struct pl_program *p, uint64_t i, uint64_t n,
                                         uint64_t set) {
    if (!p->brief || i + 1 != PL_BRIEF_ENDS || n <= 2 * PL_BRIEF_ENDS) return 0;
    return (n - 2 * PL_BRIEF_ENDS) / set * set;
}

/* Decides p->layers_equal, and which layers a brief program leaves out; called before the first
 * tensor. */
void pl_brief_choose_layers(struct pl_builder *b);

/* Returns the number of a loop, or of a piece, that begins. */
static inline uint32_t pl_brief_number(struct pl_builder *b) {
    return ++b->n_loops;
}

/* Called around a loop over n pieces, and before piece i of it: what is appended next belongs to
 * it. */
static inline void pl_brief_begin_loop(struct pl_builder *b) {
    b->loop = pl_brief_number(b);
}
static inline void pl_brief_begin_piece(struct pl_builder *b, uint64_t i, uint64_t n) {
    b->piece = pl_brief_number(b);
    b->left_out = (uint32_t)pl_brief_left_out(b->p, i, n, 1);
}
static inline void pl_brief_end_loop(struct pl_builder *b) {
    b->loop = b->piece = b->left_out = 0;
}

/* Returns the piece after i. */
static inline uint64_t pl_brief_next(struct pl_program *p, uint64_t i, uint64_t n, uint64_t set) {
    const uint64_t left_out = pl_brief_left_out(p, i, n, set);
    p->shortened |= left_out > 0;
    return i + 1 + left_out;
}

#endif
