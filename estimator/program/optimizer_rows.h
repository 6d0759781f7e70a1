/* optimizer_rows.h - the rows of estimator/config/optimizers.h as data: the op of each optimizer,
 * and its states.
 *
 * In: PL_OPTIMIZER_*.  Out: its row.  Needs: ops.h, dtype.h.
 *   M1  the states of a tensor have its shape; those in blocks are flat runs of each of its parts
 *       (pl_tensor_parts), with an fp32 scale a block in a tensor of their own */
#ifndef PL_ESTIMATOR_PROGRAM_OPTIMIZER_ROWS_H
#define PL_ESTIMATOR_PROGRAM_OPTIMIZER_ROWS_H

#include "estimator/ops/dtype.h"
#include "estimator/ops/ops.h"

#include <stdbool.h>
#include <stdint.h>

/* The storage of a state. */
struct pl_state_form {
    enum pl_dtype dtype;
    uint32_t block; /* elements that share a scale; 0 = there are no scales */
    uint64_t least; /* the least elements of a part in this form; smaller parts keep floats */
    bool exact_vocabulary; /* the embedding and the head keep floats */
};

struct pl_state {
    const char *name, *scales; /* suffixes in files after the tensor's name, for the state and its
                                  scales */
    const struct pl_state_form *form;
};

/* The suffix of an fp32 master of bf16 weights in files, whatever the optimizer. */
#define PL_MASTER_NAME "master"

struct pl_optimizer {
    const char *name; /* name in configurations */
    enum pl_op_kind op;
    uint32_t lighter;                          /* PL_OPTIMIZER_* */
    struct pl_state states[PL_STATES_MAX + 1]; /* the list ends with a name NULL */
};

const struct pl_optimizer *pl_optimizer_table(uint32_t *n);
const struct pl_optimizer *pl_optimizer_row(uint32_t optimizer);

/* Returns the op that updates a tensor with states of this type. An op for states in blocks takes
 * those that are not in fp32 alone; where they are narrow, it is the op of the row whose lighter
 * form this one is: the same rule. */
enum pl_op_kind pl_optimizer_op(uint32_t optimizer, enum pl_dtype states);
/* True if a job with this optimizer may update a tensor by such an op. */
bool pl_optimizer_updates_by(uint32_t optimizer, enum pl_op_kind kind);

/* True if any state is in blocks: each part of a tensor then has states of its own. */
bool pl_optimizer_is_in_blocks(uint32_t optimizer);

#endif
