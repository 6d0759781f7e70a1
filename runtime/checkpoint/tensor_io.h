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

/* A piece is a group of elements that fits staging together with what it is converted to. */
struct pl_io_piece {
    uint64_t elements;
    void *raw;     /* as they were read */
    float *values; /* the same in fp32 */
    void *out;     /* the same in the type that they are written in */
};
/* Divides staging into these parts, of so many bytes an element each. */
pl_err pl_io_divide_staging(const struct pl_tensor_io *io, uint64_t raw_bytes,
                            uint64_t values_bytes, uint64_t out_bytes, struct pl_io_piece *out,
                            struct pl_diag *d);

/* Copies n elements of `src` to element `element` of a job tensor, and waits for the end. */
pl_err pl_io_upload(const struct pl_tensor_io *io, uint32_t tensor, uint64_t element,
                    const void *src, uint64_t n, struct pl_diag *d);
/* Copies n elements of a job tensor to `dst`. Where ranks hold parts of it, all ranks call this:
 * rank 0 gets the elements of all or, where files are shared, each rank its own. */
pl_err pl_io_download(const struct pl_tensor_io *io, uint32_t tensor, uint64_t element, void *dst,
                      uint64_t n, struct pl_diag *d);

/* Returns the device whose kernel of this kind reaches a tensor; NULL: there is none. */
struct pl_device *pl_io_kernel_device(const struct pl_tensor_io *io, uint32_t tensor,
                                      enum pl_op_kind kind);
/* Runs a kernel there, and waits: staging is free again. */
pl_err pl_io_run(const struct pl_tensor_io *io, struct pl_device *on, uint32_t tensor,
                 enum pl_op_kind kind, const struct pl_call *c, struct pl_diag *d);
/* Returns n elements of a job tensor from `element` on, as a kernel's operand. */
struct pl_view pl_io_view(const struct pl_tensor_io *io, uint32_t tensor, uint64_t element,
                          uint64_t n);

#endif
