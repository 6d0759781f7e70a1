/* attr.h - the attributes of an operation: its parameters besides operands.
 *
 * Plain numbers: the same for the planner, which sizes scratch by them, and for the kernels of
 * every back-end.  Needs: quant_layout.h. */
#ifndef PL_ESTIMATOR_OPS_ATTR_H
#define PL_ESTIMATOR_OPS_ATTR_H

#include "estimator/ops/quant_layout.h"

#include <stdbool.h>
#include <stdint.h>

/* The most pairs of a head that a rope can turn. */
#define PL_ROPE_MAX_PAIRS 256

/* The most experts that a router can choose from. */
#define PL_ROUTE_MAX_EXPERTS 1024

/* The most taps of a convolution, and the most columns of a key of the delta rule. */
#define PL_CONV_MAX_TAPS 8
#define PL_DELTA_MAX_KEY 256

/* The size of struct pl_facts (call.h) in words of 8 bytes. */
#define PL_FACTS_WORDS 7

/* How a gradient is written. FIRST_WRITES: the op is the first of its micro-batch to write it, so
 * it overwrites in the first micro-batch of a step and adds in later ones. */
enum pl_accumulate { PL_ACC_WRITE, PL_ACC_ADD, PL_ACC_FIRST_WRITES };

/* The kind of starting values. */
enum pl_start { PL_START_CONSTANT, PL_START_NORMAL, PL_START_UNIFORM };

struct pl_attr {
    float alpha; /* products, ADD_SCALE; SWIGLU_CLAMPED*: factor in the sigmoid */
    enum pl_accumulate accumulate : 8; /* how the output is written */
    bool add_dx : 1;                   /* RMSNORM_BWD */
    bool inverse : 1;                  /* ROPE */
    bool unit_offset : 1;              /* norms: weights are 1 + w */
    bool gradient : 1;                 /* CROSS_ENTROPY */
    bool decay : 1;                    /* updates */
    bool not_first : 1;                /* COPY_*: not in the first micro-batch of a step */
    bool joins : 1;                    /* may run as one with the op before it, of the same kind */
    bool all_ranks : 1;                /* FOLD */
    bool softmax_first : 1;            /* ROUTE*: weights are of the softmax over all experts, */
    bool normalise : 1;                /* and are divided by their sum */
    enum pl_quant quant : 8;           /* DEQUANT4, QUANT4 */
    enum pl_start start : 8;           /* START, QUANT4 */
    uint32_t heads, kv_heads, head_dim, rot_dim;
    uint32_t key_parts; /* ATTENTION_BWD on a GPU: parts of the heads that share a kv head, which
                           each have sums of their own; 0: they are not divided */
    uint32_t taps;                     /* CONV_SILU*: columns of w */
    uint32_t key_dim;                  /* GATED_DELTA*: size of a head of keys */
    uint32_t window;                   /* attention; 0 = all */
    uint32_t aux_layers;               /* ROUTE_BWD, AUX_LOSS: layers whose routers share stats */
    uint32_t long_from;                /* ROPE: sequences longer than this use table2 */
    uint32_t context;                  /* KV_APPEND, ATTENTION_CACHED: cache rows of a sequence */
    uint32_t columns; /* DEQUANT4: columns of the whole matrix if w is a window of them; 0: w has
                         all columns */
    float eps;                         /* norms */
    float scale;                       /* attention: factor of scores; EMBED*: factor of rows, 0 =
                                          none */
    float dropout;                     /* probability */
    uint32_t site;  /* dropout site, stochastic-rounding stream: unique per use; START: its kind */
    float max_norm; /* CLIP_SCALE */
    float limit;    /* SWIGLU_CLAMPED*: bound of gate and up; SOFTCAP, CROSS_ENTROPY: of logits */
    float aux_coef; /* ROUTE*, AUX_LOSS: of the auxiliary loss; 0 = there are no stats */
    uint64_t first_element; /* updates of windows, FOLD, DROPOUT*: the element at which the window
                             * begins; DEQUANT4: the element of the codes at which w begins;
                             * NARROW: the column of y at which x begins */
    uint64_t stream; /* START, QUANT4: stream of random values, with the seed and site */
    double spread;   /* START, QUANT4: the constant, the standard deviation, or half the width */
    float offset;    /* NEST4 */
    uint32_t ranks, block_rows; /* SPREAD, SHARE, FETCH, SQUARE_SUM: shard.h; rows 0: one block */
    uint32_t piece_row0, piece_rows; /* SPREAD; rows 0: all */
    uint32_t rank;                   /* FOLD: the rank whose part is a tensor of its own */
    int64_t padding_idx; /* EMBED_BWD: the id whose row gets no gradient; -1 = none */
    uint32_t first_expert, expert_rows; /* GROUPED_*: the expert that W begins with, and rows of W
                                         * (elements of db) that each has */
    uint32_t matrices;                  /* DEQUANT4: matrices that lie one after another; 0 = 1 */
    uint64_t matrix_elements; /* DEQUANT4 of several: elements of each, whatever the window, */
    uint64_t matrix_stride;   /* and rows of w from the first of one to the first of the next */
};

#endif
