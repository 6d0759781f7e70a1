/* scratch_bytes.h - sizes of the scratch of kernels.
 *
 * In: traits of the back-end, the operation with its attributes, its rows and columns.  Out: bytes,
 * from the same function for the planner, which sizes a tensor, and the kernel, which lays it out.
 * Needs: ops.h, traits.h. */
#ifndef PL_ESTIMATOR_OPS_SCRATCH_SCRATCH_BYTES_H
#define PL_ESTIMATOR_OPS_SCRATCH_SCRATCH_BYTES_H

#include "estimator/card/traits.h"
#include "estimator/ops/attr.h"
#include "estimator/ops/dtype.h"
#include "estimator/ops/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Returns the bytes of scratch that the kernel of an op needs on this back-end; 0 = none (the ws
 * operand is then absent). rows, cols: dimensions of the op's first matrix operand at capacity; for
 * products use pl_product_workspace_bytes(). The kernels compute their layout from the same
 * function (workspace.c). */
uint64_t pl_op_workspace_bytes(const struct pl_traits *t, enum pl_op_kind kind,
                               const struct pl_attr *attr, uint64_t rows, uint64_t cols);

/* A matrix of a product: its window at capacity, and its type. */
struct pl_product_matrix {
    uint64_t rows, cols;
    enum pl_dtype dtype;
};
/* pl_op_workspace_bytes() for the ops of class PRODUCT: LINEAR, LINEAR_DX and LINEAR_DW, and the
 * grouped ones. Their scratch also depends on the types of the first two inputs and of the output
 * (m[0], m[1], m[2]): a matrix that a back-end cannot multiply as it is stored gets a converted
 * copy there. That of grouped products holds for any split of the rows among the experts. */
uint64_t pl_product_workspace_bytes(const struct pl_traits *t, enum pl_op_kind kind,
                                    const struct pl_attr *attr,
                                    const struct pl_product_matrix m[3]);

#ifdef __cplusplus
}
#endif

#endif
