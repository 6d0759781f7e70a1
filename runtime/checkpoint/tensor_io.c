/* tensor_io.c - copies between staging and the tensors of a job, and kernels on them. */
#include "runtime/checkpoint/tensor_io.h"

#include "estimator/base/checked.h"
#include "runtime/checkpoint/cut.h"
#include "runtime/comm/comm.h"

#include <string.h>

#define PIECE_ALIGN 64 /* elements: keeps the parts of staging aligned, and random blocks whole */

pl_err pl_io_divide_staging(const struct pl_tensor_io *io, uint64_t raw_bytes,
                            uint64_t values_bytes, uint64_t out_bytes, struct pl_io_piece *out,
                            struct pl_diag *d) {
    if (!io->staging || io->staging_bytes < PL_STAGING_MIN)
        return pl_diag_set(d, PL_ERR_PLAN_BROKEN, "a staging buffer of %llu bytes is too small",
                           (unsigned long long)io->staging_bytes);
    uint64_t n = io->staging_bytes / (raw_bytes + values_bytes + out_bytes);
    char *base = io->staging;
    n -= n % PIECE_ALIGN;
    out->elements = n;
    out->values = (void *)base;
    out->raw = base + n * values_bytes;
    out->out = base + n * (values_bytes + raw_bytes);
    return PL_ERR_OK;
}

static char *element_address(const struct pl_tensor_io *io, uint32_t tensor, uint64_t element) {
    char *base = io->address(io->ctx, tensor);
    return base + element * pl_dtype_bytes(io->program->tensors[tensor].dtype);
}

static pl_err device_error(const struct pl_tensor_io *io, uint32_t tensor, pl_err err,
                           struct pl_diag *d) {
    char name[96];
    pl_tensor_name(io->program, tensor, name);
    return pl_diag_set(d, err, "the device did not copy tensor %s", name);
}

static pl_err device_sync(const struct pl_tensor_io *io) {
    return io->device->ops->sync ? io->device->ops->sync(io->device) : PL_ERR_OK;
}

/* A tensor in host memory is copied by the processor, once nothing copies it for the device. */
static bool in_host_memory(const struct pl_tensor_io *io, uint32_t tensor) {
    return io->program->tensors[tensor].place != PL_PLACE_DEVICE;
}

static pl_err copy_on_host(const struct pl_tensor_io *io, void *dst, const void *src,
                           uint64_t bytes) {
    pl_err err = device_sync(io);
    if (err == PL_ERR_OK && bytes) memcpy(dst, src, bytes);
    return err;
}

static pl_err upload(const struct pl_tensor_io *io, uint32_t tensor, uint64_t element,
                     const void *src, uint64_t n, struct pl_diag *d) {
    uint64_t bytes = n * pl_dtype_bytes(io->program->tensors[tensor].dtype);
    char *dst = element_address(io, tensor, element);
    pl_err err = in_host_memory(io, tensor) ? copy_on_host(io, dst, src, bytes)
                                            : io->device->ops->upload(io->device, dst, src, bytes);
    if (err == PL_ERR_OK) err = device_sync(io);
    return err == PL_ERR_OK ? err : device_error(io, tensor, err, d);
}

/* Staging is used again as soon as this returns, so the copy must be over. */
pl_err pl_io_upload(const struct pl_tensor_io *io, uint32_t tensor, uint64_t element,
                    const void *src, uint64_t n, struct pl_diag *d) {
    struct pl_cut_range ranges[PL_MAX_PARTS], r;
    const uint64_t size = pl_dtype_bytes(io->program->tensors[tensor].dtype);
    if (!io->cut || !pl_cut_is_cut(io->cut, tensor)) return upload(io, tensor, element, src, n, d);
    const uint32_t count = pl_cut_ranges(io->cut, tensor, io->comm->world.rank, ranges);
    for (uint32_t i = 0; i < count; i++)
        if (pl_cut_meet(ranges[i], element, n, &r))
            PL_TRY(upload(io, tensor, r.at, (const char *)src + (r.from - element) * size, r.count,
                          d));
    return PL_ERR_OK;
}

static pl_err download_own(const struct pl_tensor_io *io, uint32_t tensor, uint64_t element,
                           void *dst, uint64_t n, struct pl_diag *d) {
    uint64_t bytes = n * pl_dtype_bytes(io->program->tensors[tensor].dtype);
    const char *src = element_address(io, tensor, element);
    pl_err err = in_host_memory(io, tensor)
                     ? copy_on_host(io, dst, src, bytes)
                     : io->device->ops->download(io->device, dst, src, bytes);
    if (err == PL_ERR_OK) err = device_sync(io);
    return err == PL_ERR_OK ? err : device_error(io, tensor, err, d);
}

static pl_err exchange(const struct pl_tensor_io *io, uint32_t peer, bool receive, void *p,
                       uint64_t bytes, struct pl_diag *d) {
    const struct pl_move move = {peer, receive, p, bytes};
    pl_err err = io->comm->ops->exchange(io->comm, &move, 1, NULL);
    if (err == PL_ERR_OK) return err;
    return pl_comm_check(io->comm, d) != PL_ERR_OK
               ? err
               : pl_diag_set(d, err, "rank %u sent no state", peer);
}

/* Elements of another rank, through scratch of a device that the host does not reach. */
static pl_err receive(const struct pl_tensor_io *io, uint32_t rank, char *dst, uint64_t bytes,
                      struct pl_diag *d) {
    for (uint64_t at = 0, n; at < bytes; at += n) {
        n = pl_u64_min(bytes - at, io->scratch_bytes);
        PL_TRY(exchange(io, rank, true, io->scratch ? io->scratch : dst + at, n, d));
        if (!io->scratch) continue;
        pl_err err = io->device->ops->download(io->device, dst + at, io->scratch, n);
        if (err != PL_ERR_OK) return pl_diag_set(d, err, "the device did not copy a state");
    }
    return PL_ERR_OK;
}

static pl_err send(const struct pl_tensor_io *io, uint32_t tensor, const struct pl_cut_range *r,
                   struct pl_diag *d) {
    const uint64_t bytes = r->count * pl_dtype_bytes(io->program->tensors[tensor].dtype);
    char *from = element_address(io, tensor, r->at);
    for (uint64_t at = 0, n; at < bytes; at += n) {
        n = pl_u64_min(bytes - at, io->scratch_bytes);
        PL_TRY(exchange(io, 0, false, from + at, n, d));
    }
    return PL_ERR_OK;
}

/* The elements that `rank` holds of [element, element+n): rank 0 gets them, or every rank its own
 * where files are shared. */
static pl_err download_of(const struct pl_tensor_io *io, uint32_t rank, uint32_t tensor,
                          uint64_t element, char *dst, uint64_t n, struct pl_diag *d) {
    struct pl_cut_range ranges[PL_MAX_PARTS], r;
    const uint64_t size = pl_dtype_bytes(io->program->tensors[tensor].dtype);
    const uint32_t me = io->comm->world.rank;
    const uint32_t count = pl_cut_ranges(io->cut, tensor, rank, ranges);
    for (uint32_t i = 0; i < count; i++) {
        if (!pl_cut_meet(ranges[i], element, n, &r)) continue;
        char *to = dst + (r.from - element) * size;
        if (rank == me && (me == 0 || io->shares))
            PL_TRY(download_own(io, tensor, r.at, to, r.count, d));
        else if (me == 0)
            PL_TRY(receive(io, rank, to, r.count * size, d));
        else if (rank == me)
            PL_TRY(send(io, tensor, &r, d));
    }
    return PL_ERR_OK;
}

pl_err pl_io_download(const struct pl_tensor_io *io, uint32_t tensor, uint64_t element, void *dst,
                      uint64_t n, struct pl_diag *d) {
    if (!io->cut || !pl_cut_is_cut(io->cut, tensor))
        return download_own(io, tensor, element, dst, n, d);
    if (io->shares) return download_of(io, io->comm->world.rank, tensor, element, dst, n, d);
    for (uint32_t rank = 0; rank < io->comm->world.size; rank++)
        PL_TRY(download_of(io, rank, tensor, element, dst, n, d));
    return PL_ERR_OK;
}

struct pl_view pl_io_view(const struct pl_tensor_io *io, uint32_t tensor, uint64_t element,
                          uint64_t n) {
    return (struct pl_view){.p = element_address(io, tensor, element),
                            .rows = n,
                            .cols = 1,
                            .ld = 1,
                            .dtype = io->program->tensors[tensor].dtype};
}

struct pl_device *pl_io_kernel_device(const struct pl_tensor_io *io, uint32_t tensor,
                                      enum pl_op_kind kind) {
    if (io->cut && pl_cut_is_cut(io->cut, tensor)) return NULL;
    struct pl_device *on = in_host_memory(io, tensor) ? io->host : io->device;
    return on && on->kernels && on->kernels[kind] ? on : NULL;
}

pl_err pl_io_run(const struct pl_tensor_io *io, struct pl_device *on, uint32_t tensor,
                 enum pl_op_kind kind, const struct pl_call *c, struct pl_diag *d) {
    char name[96];
    pl_err err = on == io->device ? PL_ERR_OK : device_sync(io);
    if (err == PL_ERR_OK) err = on->kernels[kind](on, c);
    if (err == PL_ERR_OK && on->ops->sync) err = on->ops->sync(on);
    if (err == PL_ERR_OK) return PL_ERR_OK;
    pl_tensor_name(io->program, tensor, name);
    return pl_diag_set(d, err, "the device did not make tensor %s (%s)", name, pl_op_name(kind));
}
