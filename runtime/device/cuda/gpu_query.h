/* gpu_query.h - what a GPU is and what it has left, by NVML or, where a container was given CUDA
 * without NVML ("NVIDIA_DRIVER_CAPABILITIES=compute"), by CUDA.
 *
 * The context of the child that asks CUDA is not among the free_bytes that it gives, so that a job
 * is judged by less than there is, not by more.
 * In: a back-end.  Out: struct pl_gpu.  Needs: nvml.h, device.h.
 *   Q1  this process makes no CUDA context: CUDA is asked in a child, which ends then
 * Use: struct pl_gpu gpu; pl_gpu_query(&pl_device_cuda, 0, &gpu, &d); */
#ifndef PL_RUNTIME_DEVICE_CUDA_GPU_QUERY_H
#define PL_RUNTIME_DEVICE_CUDA_GPU_QUERY_H

#include "runtime/device/cuda/nvml.h"
#include "runtime/device/device.h"

/* To be called before this process uses CUDA. NO_DEVICE as pl_nvml_query(). */
pl_err pl_gpu_query(const struct pl_device_ops *ops, uint32_t ordinal, struct pl_gpu *out,
                    struct pl_diag *d);

#endif
