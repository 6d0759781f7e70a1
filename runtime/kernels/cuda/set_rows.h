/* set_rows.h - the part of a matrix product that no library does: a bias, and sums of no terms. */
#ifndef PL_RUNTIME_KERNELS_CUDA_SET_ROWS_H
#define PL_RUNTIME_KERNELS_CUDA_SET_ROWS_H

#include "runtime/device/cuda/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

/* c[rows,cols] = (adds ? c : 0) + bias[cols], all in fp32 or bf16; bias NULL = none. */
pl_err pl_cuda_set_rows(struct pl_device *dev, const struct pl_view *c, const struct pl_view *bias,
                        bool adds);

#ifdef __cplusplus
}
#endif

#endif
