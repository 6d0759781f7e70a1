/* gemm.h - one product for LINEAR, LINEAR_DX, LINEAR_DW and their grouped namesakes. */
#ifndef PL_RUNTIME_KERNELS_CPU_GEMM_H
#define PL_RUNTIME_KERNELS_CPU_GEMM_H

#include "estimator/ops/scratch/workspace_gemm.h"
#include "runtime/kernels/cpu/simd.h"

/* C[m,n] = alpha * op(A)[m,k] op(B)[k,n] + (adds ? C : 0) + bias[n], where op transposes when
 * trans_* is set. m and n are C's rows and cols, k the other dimension of A. bias may be absent.
 * Operands are of any float types; sums are fp32 over the whole of k, rounded once. Products of two
 * bf16 numbers are exact in fp32, so a level that multiplies them as they are (PL_HAS_PAIRS) only
 * adds them in another order.
 * streams: C is much larger than the caches, so it is written past them where that can be done.
 * ws: pl_product_workspace_bytes().
 * The bits depend on the shape and the level only, never on threads. */
struct pl_gemm {
    bool trans_a, trans_b, adds, streams;
    float alpha;
    struct pl_view a, b, c, bias, ws;
};
pl_err PL_LEVEL_NAME(pl_cpu_gemm)(struct pl_device *dev, const struct pl_gemm *g);

/* The same product in parts, each computed by the thread that calls, at any time. ws is scratch of
 * that thread alone: pl_gemm_part_bytes(). The parts are as many as keep `threads` of them busy, 0
 * where there is nothing to compute; the bits are those of the whole. */
uint32_t PL_LEVEL_NAME(pl_cpu_gemm_parts)(const struct pl_gemm *g, uint32_t threads);
void PL_LEVEL_NAME(pl_cpu_gemm_part)(const struct pl_gemm *g, uint32_t threads, uint32_t part);

/* few_rows.c: the same for at most PL_FEW_ROWS rows of A, B transposed, k > 0.
 * ws: room for A in fp32 where it is not. */
bool PL_LEVEL_NAME(pl_cpu_has_few_rows)(const struct pl_gemm *g);
void PL_LEVEL_NAME(pl_cpu_few_rows)(struct pl_device *dev, const struct pl_gemm *g);
/* Columns [col0, col1) of C, by the thread that calls. */
void PL_LEVEL_NAME(pl_cpu_few_rows_part)(const struct pl_gemm *g, uint64_t col0, uint64_t col1);

#endif
