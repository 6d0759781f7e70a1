/* device_null.c - a device of addresses without memory.
 *
 * For the gate, auto-batch and recovery: everything that reserves and counts runs as on a real
 * device, arithmetic does nothing. Its memory reads as zeros. */
#include "estimator/base/alloc.h"
#include "runtime/device/null/null.h"

#include "estimator/base/checked.h"

#include <stdlib.h>
#include <string.h>

#define FIRST_ADDRESS UINT64_C(0x10000) /* never NULL, and below anything Linux maps */

static pl_err kernel_null(struct pl_device *dev, const struct pl_call *c) {
    (void)dev;
    (void)c;
    return PL_ERR_OK;
}

static const pl_kernel_fn kernels[PL_OP_COUNT] = {
#define PL_OP(KIND, name, COST, RUNS, what, INPUTS, OUTPUTS) [PL_OP_##KIND] = kernel_null,
#include "estimator/ops/op_rows.h"
};

static pl_err null_open(struct pl_device *dev, struct pl_diag *d) {
    struct pl_null *null = pl_calloc(1, sizeof *null);
    if (!null) return pl_host_oom(d, "the null device");
    null->next_address = FIRST_ADDRESS;
    dev->kernels = kernels;
    dev->traits.backend = PL_BACKEND_NULL;
    dev->state = null;
    return PL_ERR_OK;
}

static void null_close(struct pl_device *dev) {
    free(dev->state);
    dev->state = NULL;
}

static pl_err null_alloc(struct pl_device *dev, uint64_t bytes, void **out, struct pl_diag *d) {
    struct pl_null *null = pl_null_of(dev);
    uint64_t end;
    *out = NULL;
    if (!pl_u64_add(null->next_address, bytes, &end) ||
        !pl_u64_align(end, dev->traits.align_bytes, &end) || end > UINTPTR_MAX)
        return pl_diag_set(d, PL_ERR_DEVICE_OOM, "the null device ran out of addresses");
    *out = (void *)(uintptr_t)null->next_address;
    null->next_address = end;
    return PL_ERR_OK;
}

static void null_release(struct pl_device *dev, void *p, uint64_t bytes) {
    (void)dev;
    (void)p;
    (void)bytes;
}

static pl_err null_host_alloc(struct pl_device *dev, uint64_t bytes, bool pinned, void **out,
                              struct pl_diag *d) {
    (void)pinned;
    return null_alloc(dev, bytes, out, d);
}

static void null_host_release(struct pl_device *dev, void *p, uint64_t bytes, bool pinned) {
    (void)pinned;
    null_release(dev, p, bytes);
}

static pl_err null_upload(struct pl_device *dev, void *dst, const void *src, uint64_t bytes) {
    (void)dst;
    (void)src;
    pl_null_of(dev)->uploads++;
    pl_null_of(dev)->upload_bytes += bytes;
    return PL_ERR_OK;
}

static pl_err null_download(struct pl_device *dev, void *dst, const void *src, uint64_t bytes) {
    (void)src;
    if (bytes) memset(dst, 0, bytes);
    pl_null_of(dev)->downloads++;
    pl_null_of(dev)->download_bytes += bytes;
    return PL_ERR_OK;
}

/* No memory, hence no end of it: the budget is the only limit. */
static pl_err null_free_bytes(struct pl_device *dev, uint64_t *out, struct pl_diag *d) {
    (void)d;
    *out = UINTPTR_MAX - pl_null_of(dev)->next_address;
    return PL_ERR_OK;
}

const struct pl_device_ops pl_device_null = {
    .name = "null",
    .open = null_open,
    .close = null_close,
    .alloc = null_alloc,
    .release = null_release,
    .host_alloc = null_host_alloc,
    .host_release = null_host_release,
    .upload = null_upload,
    .download = null_download,
    .sync = NULL,
    .free_bytes = null_free_bytes,
};
