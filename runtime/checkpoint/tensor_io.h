/* tensor_io.h - how the readers and writers of files reach the tensors of a running job. */
#ifndef PL_RUNTIME_CHECKPOINT_TENSOR_IO_H
#define PL_RUNTIME_CHECKPOINT_TENSOR_IO_H

#include "estimator/program/program.h"
#include "runtime/device/device.h"

struct pl_cut; /* cut.h */

struct pl_tensor_io {
    const struct pl_program *program;
    struct pl_device *device;
    struct pl_device *host; /* whose kernels reach tensors in host memory; NULL = none does */
    void *(*address)(void *ctx, uint32_t tensor); /* of a job tensor, in its memory */
    void *ctx;
    const struct pl_cut *cut; /* of tensors that ranks hold parts of; `program` is its `whole` then,
                               * and `address` takes a tensor of it; NULL: all is whole */
    struct pl_comm *comm;     /* with `cut` or `shares` */
    bool shares;              /* files are saved by all ranks, each what it has (share.h) */
    void
        *scratch; /* with `cut`: memory of the device that nothing else uses; NULL: the host reaches
                    * all of it */
    uint64_t scratch_bytes; /* that pass between ranks at a time */
    void *staging; /* host-writable staging buffer (CPU back-end: inside the batch arena) */
    uint64_t staging_bytes;
};

#endif
