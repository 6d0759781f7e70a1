/* gemm.h - one product for LINEAR, LINEAR_DX, LINEAR_DW and their grouped namesakes. */
#ifndef PL_RUNTIME_KERNELS_CPU_GEMM_H
#define PL_RUNTIME_KERNELS_CPU_GEMM_H

#include "runtime/kernels/cpu/gemm_part.h"

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
