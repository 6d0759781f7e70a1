/* batch.h - the samples of one step, and its micro-batches.
 *
 * In: a data set, the walk over its rows, a position.  Out: host images of micro-batch inputs.
 * Needs: packing.h.
 *   B1  the samples of a step are a function of (walk, position, slots), whichever thread loads
 *       them, and at any time
 *   B2  a sample has the number it was drawn by, whatever slot or micro-batch it lands in: dropout
 *       is keyed by it
 *   B3  a micro-batch never takes more tokens or samples than it was made for, whatever the data
 *   B4  padding has no part in a loss, and no token of a sample sees it
 * Use: pl_step_batch_load(&b, &source, position, slots, &d);
 *      pl_micro_batch_fill(&mb, &b, first, n); ... position += b.n; */
#ifndef PL_RUNTIME_DATA_BATCH_H
#define PL_RUNTIME_DATA_BATCH_H

#include "runtime/data/packing.h"

/* The source of the samples of a run. */
struct pl_batch_source {
    struct pl_data *data; /* borrowed */
    const struct pl_walk *walk;
    uint64_t pack_tokens; /* tokens of a slot; 0 = one row a slot */
    struct pl_grouping {
        uint32_t samples;     /* of a row; 0 is 1 */
        uint32_t exchange;    /* a row has one part, and its other sample is its prompt with the
                                * answer of the row before it, in a circle of so many; 0: it has
                                * its samples itself */
        bool trains_prompts;  /* the targets of the first sample of a row are all its tokens */
        uint64_t most_tokens; /* of a sample that was put together here */
    } grouping;
};

/* A sample of a group, as far as the loss of a step knows it. */
struct pl_member {
    uint64_t answer;    /* its first token */
    uint64_t scored;    /* tokens of the answer, one at the very beginning included */
    uint64_t predicted; /* tokens of the answer that are targets */
    uint64_t targets;
    bool undesired, is_partner; /* is_partner: it is scored, and not learned from */
};

/* The weights of the targets of a sample. */
struct pl_target_weights {
    double all;         /* of every target */
    double answer;      /* more, of a target of the answer */
    uint64_t tail;      /* the answer's tokens from this one on, counted from its begin, have ... */
    double tail_factor; /* ... this part of it */
};

/* The samples of a step; its memory is used again by the next step. */
struct pl_step_batch {
    struct pl_sample *samples; /* [n], in the order of the walk; a row without targets has n = 0 */
    uint64_t n, cap;
    uint64_t rows;             /* of the data: the step advances by so many positions */
    uint64_t slots;            /* slots that hold a row: the first ones of those asked for */
    uint64_t targets;          /* supervised tokens of the whole step */
    uint64_t tokens;           /* tokens of samples that are computed */
    struct pl_member *members; /* [n] of groups of several samples */
    struct pl_target_weights *weights; /* [n] those of the rows, or of groups of several samples
                                        * what the loss of the step fills in */
    struct pl_sample row;              /* scratch: a row with all its parts */
    uint64_t *slot;                    /* [n] slot that holds the sample */
    uint64_t *by_slot;                 /* [n] samples, slot by slot */
    uint64_t *slot_start;              /* [slots + 1] index in by_slot */
    uint64_t cap_slots;
    struct pl_packer packer;
};
void pl_step_batch_finish(struct pl_step_batch *b);
/* Loads the rows at `position` and after it into at most `slots` slots, or as many for each sample
 * of a row, up to the end of the epoch (W4 of walk.h). */
pl_err pl_step_batch_load(struct pl_step_batch *b, const struct pl_batch_source *from,
                          uint64_t position, uint64_t slots, struct pl_diag *d);
/* pl_step_batch_load with rows from `rows`, which is read in a circle. */
pl_err pl_step_batch_load_rows(struct pl_step_batch *b, const struct pl_batch_source *from,
                               uint64_t slots, const uint64_t *rows, uint64_t n_rows,
                               struct pl_diag *d);

/* The samples of groups that are in a micro-batch: all of them, those that are learned from, or
 * those that are scored alone. */
enum pl_members { PL_MEMBERS_ALL, PL_MEMBERS_LEARNED, PL_MEMBERS_PARTNERS };

/* The host image of a micro-batch's inputs; arrays have the capacity of the plan. */
struct pl_micro_batch {
    int32_t *ids, *positions, *offsets, *target_rows, *targets;
    float *weights;         /* of targets */
    int32_t *order, *spare; /* used by pl_micro_batch_sort() */
    uint64_t *samples;      /* number of the sample within the step */
    uint64_t n_tokens, n_seqs, n_targets, max_len;
    struct {
        uint64_t tokens, seqs, targets; /* after those that there are: pl_micro_batch_pad() */
    } padding;
    uint64_t cap_tokens, cap_seqs;
    enum pl_members members; /* that are filled in */
    /* Positions of a sample count from 0; positions of a sample longer than long_from count from
     * long_base. */
    uint64_t long_from, long_base;
};
pl_err pl_micro_batch_init(struct pl_micro_batch *mb, uint64_t tokens, uint64_t seqs,
                           struct pl_diag *d);
void pl_micro_batch_finish(struct pl_micro_batch *mb);
/* Empties it; the arrays keep what they hold. */
void pl_micro_batch_clear(struct pl_micro_batch *mb);
/* Fills *mb with slots [first, first+n) of the step, without padding; samples without targets are
 * left out. Position t predicts label t+1: target row t with target labels[t+1], if that is not
 * masked. PL_ERR_PLAN_BROKEN: the samples are more than was planned for; nothing is written beyond
 * the capacity. */
pl_err pl_micro_batch_fill(struct pl_micro_batch *mb, const struct pl_step_batch *b, uint64_t first,
                           uint64_t n, struct pl_diag *d);
/* Pads a filled micro-batch, so that micro-batches of many sizes have few: tokens to one of 8
 * numbers of each octave, targets to one of 4, samples to a power of two, but never to more than
 * most_tokens, most_seqs and what it was made for (B3). Tokens of padding follow the last sample,
 * samples of padding are empty, and targets of padding, PL_TARGET_NONE, are of rows that have no
 * target. */
void pl_micro_batch_pad(struct pl_micro_batch *mb, uint64_t most_tokens, uint64_t most_seqs);
/* Fills `weights` again, of the same targets, after those of b have changed. */
void pl_micro_batch_weigh(struct pl_micro_batch *mb, const struct pl_step_batch *b);
/* Fills `order` with the tokens, padding included, by ascending id, tokens of one id in their
 * order. Linear in the tokens; nothing is allocated. */
void pl_micro_batch_sort(struct pl_micro_batch *mb);

#endif
