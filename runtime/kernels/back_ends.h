/* back_ends.h - the back-ends of this build: devices together with their kernels.
 *
 * Needs: runtime/device. The executable links the CUDA back-end, or the stub that refuses to open.
 * Use: pl_device_open(&pl_back_end_cpu, threads, PL_NO_BUDGET, &dev, d) */
#ifndef PL_RUNTIME_KERNELS_BACK_ENDS_H
#define PL_RUNTIME_KERNELS_BACK_ENDS_H

#include "runtime/device/device.h"

extern const struct pl_back_end pl_back_end_cpu, pl_back_end_cuda, pl_back_end_null;
/* The CPU as it multiplies where `compute_dtype` is fp32: numbers in bf16 are widened first. */
extern const struct pl_back_end pl_back_end_cpu_fp32;

#endif
