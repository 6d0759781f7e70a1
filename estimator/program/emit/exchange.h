/* exchange.h - what a rank holds of a trainable tensor, how gradients of micro-batches are added to
 * those of the step, and the ops between ranks; see exchange.c.
 *
 * In: the builder, whose shape says how many ranks there are and which one this is.  Out: the ops.
 * Needs: emit.h, shard.h. */
#ifndef PL_ESTIMATOR_PROGRAM_EMIT_EXCHANGE_H
#define PL_ESTIMATOR_PROGRAM_EMIT_EXCHANGE_H

#include "estimator/program/emit/emit.h"
#include "estimator/program/shard.h"

/* Of this rank. */
uint32_t pl_build_shards(const struct pl_builder *b, uint32_t id,
                         struct pl_owned out[PL_MAX_PARTS]);
uint64_t pl_build_owned_rows(const struct pl_builder *b, uint32_t id); /* of all parts */
uint64_t pl_build_blocks(const struct pl_builder *b, uint32_t id);     /* of all parts */

/* Whether the gradient of a micro-batch is a tensor of its own, which is added once it is whole. */
bool pl_build_is_folded(const struct pl_builder *b, uint32_t tensor);
/* Adds it to that of the step, where a rank adds up its own. */
void pl_build_fold_gradient(struct pl_builder *b, uint32_t tensor);

/* Gradient of a trainable tensor as an operand, and how the op that writes it accumulates. */
struct pl_operand pl_build_grad(struct pl_builder *b, uint32_t tensor, struct pl_attr *attr);
/* Where gradients are exchanged after every micro-batch, after each step of a tape: those of the
 * micro-batch that are whole leave for the ranks whose part they are, and what left long enough
 * before becomes part of the step's. last: of the pass, after which the embedding's is whole too,
 * and nothing is under way. */
void pl_build_exchange(struct pl_builder *b, bool last);
/* Where they are exchanged once a step, before its norm: those that each rank has added up, and
 * its loss. */
void pl_build_exchange_step(struct pl_builder *b);

/* Where the loss of a phase is summed, between its beginning and its end. */
void pl_build_begin_loss(struct pl_builder *b);
struct pl_operand pl_build_loss(const struct pl_builder *b);
void pl_build_end_loss(struct pl_builder *b);

/* x: all rows of a matrix, in blocks. */
void pl_build_share(struct pl_builder *b, struct pl_operand x, uint64_t block);
/* Of all trainable tensors that are held whole: their gradients, or themselves. */
void pl_build_share_all(struct pl_builder *b, bool gradients);
/* The squares of all gradients, block by block, into the builder's partials. */
void pl_build_norm_of_ranks(struct pl_builder *b);

/* The whole of a tensor of which this rank has a part, into a tensor of the step. */
void pl_build_fetch(struct pl_builder *b, uint32_t id, uint32_t copy);
/* At the end: what is cut has no more rows than are this rank's. */
void pl_build_cut_weights(struct pl_builder *b);

#endif
