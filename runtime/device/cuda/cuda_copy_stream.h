/* cuda_copy_stream.h - the copy stream of struct pl_device_ops (device.h), for CUDA.
 *
 * Needs: cuda.h. */
#ifndef PL_RUNTIME_DEVICE_CUDA_CUDA_COPY_STREAM_H
#define PL_RUNTIME_DEVICE_CUDA_CUDA_COPY_STREAM_H

#include "runtime/device/device.h"

/* Opened once, with the device; close takes what was opened in part. */
pl_err pl_cuda_copy_stream_open(struct pl_device *dev);
pl_err pl_cuda_copy_stream_begin(struct pl_device *dev);
pl_err pl_cuda_copy_stream_end(struct pl_device *dev, uint32_t number);
pl_err pl_cuda_copy_stream_await(struct pl_device *dev, uint32_t number);
void pl_cuda_copy_stream_close(struct pl_device *dev);

#endif
