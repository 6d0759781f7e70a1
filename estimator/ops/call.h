/* call.h - the one signature of every kernel of every back-end.
 *
 * A call is the op's operands as views, in the order of ops.h, with rows cut to the micro-batch at
 * hand, plus the attributes and the batch's facts. Kernels allocate nothing, keep no state between
 * calls, and give the same bits for the same call and thread count whatever the timing. */
#ifndef PL_ESTIMATOR_OPS_CALL_H
#define PL_ESTIMATOR_OPS_CALL_H

#include "estimator/base/errors.h"
#include "estimator/ops/attr.h"
#include "estimator/ops/dtype.h"
#include "estimator/ops/ops.h"

#include <stdbool.h>
#include <stdint.h>

struct pl_view {
    void *p;             /* NULL = absent operand */
    uint64_t rows, cols; /* of the window, cut to the batch; vectors: rows = length, cols = 1 */
    uint64_t ld;         /* elements between rows */
    enum pl_dtype dtype;
};

/* The facts that may change between two micro-batches of one shape, as kernels of a GPU read it
 * from its memory (the program's tensor `facts`): nothing of it decides a grid or a product. */
struct pl_facts {
    uint64_t step;
    uint32_t max_len, micro_batch;
    float loss_scale, unscale;       /* as in struct pl_batch; 2^-loss_exponent */
    float rate, kept;                /* learning rate; 1 - rate * weight decay */
    float adam_step, adam_root;      /* ADAMW: rate / (1 - beta1^t), 1 / sqrt(1 - beta2^t) */
    float adam8_step, adam8_epsilon; /* ADAMW_8BIT, which scales both by sqrt(1 - beta2^t) */
    uint32_t contributors;
    float aux_scale; /* as in struct pl_batch */
};

/* Facts of the micro-batch and the step; filled by the trainer, read by kernels. */
struct pl_batch {
    uint64_t n_tokens, n_seqs, n_targets;
    uint64_t max_len;      /* longest sequence */
    bool first;            /* first micro-batch of the step: PL_ACC_FIRST_WRITES overwrites */
    uint32_t contributors; /* ranks that have a micro-batch at the same time, this one included */
    uint32_t micro_batch;  /* of the first of these ranks: its number in the step, from 0 */
    float loss_scale;      /* 2^loss_exponent / supervised tokens of the whole step */
    int loss_exponent;     /* of the scale of the loss, and of all gradients by it; CLIP_SCALE takes
                            * it out again */
    float aux_scale;       /* 2^loss_exponent / micro-batches of the whole step */
    uint64_t seed, step;   /* step counts from 1 */
    uint64_t skipped;      /* steps before it that were no updates */
    double learning_rate, weight_decay, beta1, beta2, epsilon; /* optimizer phase */
    const struct pl_facts
        *facts; /* the same in the device's memory; NULL = kernels need none there */
};

/* How moments move: m = beta1 m + rest1 g, v = beta2 v + rest2 g^2; rest = 1 - beta, rounded from
 * double. */
struct pl_moment_rates {
    float beta1, rest1, beta2, rest2;
};
static inline struct pl_moment_rates pl_moment_rates_of(const struct pl_batch *b) {
    struct pl_moment_rates r;
    r.beta1 = (float)b->beta1;
    r.rest1 = (float)(1.0 - b->beta1);
    r.beta2 = (float)b->beta2;
    r.rest2 = (float)(1.0 - b->beta2);
    return r;
}

struct pl_call {
    struct pl_view in[PL_OP_MAX_IN], out[PL_OP_MAX_OUT];
    const struct pl_attr *attr;
    const struct pl_batch *batch;
};

struct pl_device;
typedef pl_err (*pl_kernel_fn)(struct pl_device *dev, const struct pl_call *c);
/* n calls of one kind that run as one (pl_program_together): the bits are those of one by one. */
typedef pl_err (*pl_group_fn)(struct pl_device *dev, const struct pl_call *calls, uint32_t n);

/* The factor that rows of an embedding are multiplied by. */
static inline float pl_embed_scale(const struct pl_attr *attr) {
    return attr->scale != 0 ? attr->scale : 1.0f;
}

/* True if this call adds to its output rather than overwriting it. */
static inline bool pl_call_adds(const struct pl_call *c) {
    return c->attr->accumulate == PL_ACC_ADD ||
           (c->attr->accumulate == PL_ACC_FIRST_WRITES && !c->batch->first);
}

#endif
