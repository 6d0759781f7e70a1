/* workspace_cuda_rows.h - partial sums of CUDA kernels of rows and updates.
 *
 * The planner sizes scratch by these numbers and the kernels lay it out by them. They do not depend
 * on the GPU: the same job sums in the same order on any of them. */
#ifndef PL_ESTIMATOR_OPS_SCRATCH_WORKSPACE_CUDA_ROWS_H
#define PL_ESTIMATOR_OPS_SCRATCH_WORKSPACE_CUDA_ROWS_H

#include <stdint.h>

/* Blocks that share the rows of a norm's weight gradient; each leaves one partial sum [D]. There
 * are two for each multiprocessor of the largest GPUs; more would only enlarge the scratch. */
#define PL_CUDA_NORM_BLOCKS UINT64_C(256)

/* The number of elements of a gradient that justify another block, and the most blocks; each leaves
 * one double. */
#define PL_CUDA_SQUARE_ELEMENTS UINT64_C(8192)
#define PL_CUDA_SQUARE_BLOCKS   UINT64_C(1024)

#endif
