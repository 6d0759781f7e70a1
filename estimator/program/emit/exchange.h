/* exchange.h - the part of a trainable tensor that a rank holds, the sum of gradients over
 * micro-batches, and the ops between ranks.
 *
 * In: the builder, whose shape says how many ranks there are and which one this is.  Out: the ops.
 * Needs: emit.h, shard.h. */
#ifndef PL_ESTIMATOR_PROGRAM_EMIT_EXCHANGE_H
#define PL_ESTIMATOR_PROGRAM_EMIT_EXCHANGE_H

#include "estimator/program/emit/emit.h"
#include "estimator/program/shard.h"

/* Lists the rows that this rank holds; returns the number of parts. */
uint32_t pl_build_shards(const struct pl_builder *b, uint32_t id,
                         struct pl_owned out[PL_MAX_PARTS]);
uint64_t pl_build_owned_rows(const struct pl_builder *b, uint32_t id); /* sum over all parts */
uint64_t pl_build_blocks(const struct pl_builder *b, uint32_t id);     /* sum over all parts */

/* True if the gradient of a micro-batch is a tensor of its own, which is added when it is
 * complete. */
bool pl_build_is_folded(const struct pl_builder *b, uint32_t tensor);
/* Adds it to the gradient of the step, if a rank sums its own. */
void pl_build_fold_gradient(struct pl_builder *b, uint32_t tensor);

/* Returns the gradient of a trainable tensor as an operand, and how the op that writes it
 * accumulates. */
struct pl_operand pl_build_grad(struct pl_builder *b, uint32_t tensor, struct pl_attr *attr);
/* Called after each step of a tape if gradients are exchanged after every micro-batch: gradients of
 * the micro-batch that are complete are sent to the ranks that hold their rows, and those that were
 * sent long enough before are added to the step's. last: the pass ends, so the embedding's gradient
 * is complete too, and nothing remains in transit. */
void pl_build_exchange(struct pl_builder *b, bool last);
/* Called before the norm of a step if gradients are exchanged once a step: exchanges the sums of
 * each rank, and its loss. */
void pl_build_exchange_step(struct pl_builder *b);

/* The loss of a phase is summed between begin and end, into the window of pl_build_loss. */
void pl_build_begin_loss(struct pl_builder *b);
struct pl_operand pl_build_loss(const struct pl_builder *b);
void pl_build_end_loss(struct pl_builder *b);

/* x: all rows of a matrix, in blocks. */
void pl_build_share(struct pl_builder *b, struct pl_operand x, uint64_t block);
/* Shares all trainable tensors that are held whole: their gradients, or themselves. */
void pl_build_share_all(struct pl_builder *b, bool gradients);
/* Appends the squares of all gradients, block by block, into the builder's partials. */
void pl_build_norm_of_ranks(struct pl_builder *b);

/* Gathers the whole of a tensor, of which this rank has a part, into a tensor of the step. */
void pl_build_fetch(struct pl_builder *b, uint32_t id, uint32_t copy);
/* Called at the end: tensors that are split keep only the rows of this rank. */
void pl_build_cut_weights(struct pl_builder *b);

#endif
