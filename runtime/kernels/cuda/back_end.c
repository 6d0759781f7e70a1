/* back_end.c - the CUDA back-end: its device, its kernels, and what those keep on it. */
#include "runtime/device/cuda/cuda.h"
#include "runtime/kernels/back_ends.h"
#include "runtime/kernels/cuda/products.h"
#include "runtime/kernels/cuda/table.h"

static pl_err open_kernels(struct pl_device *dev, struct pl_diag *d) {
    struct pl_cuda *cuda = pl_cuda_of(dev);
    PL_TRY(pl_products_create(cuda->lt, &cuda->products, d));
    return pl_cuda_preload(cuda, d);
}

static void close_kernels(struct pl_device *dev) {
    pl_products_destroy(&pl_cuda_of(dev)->products);
}

static const pl_kernel_fn *const tables[] = {pl_cuda_kernels};
static const struct pl_kernel_set set = {
    .tables = tables, .groups = pl_cuda_groups, .open = open_kernels, .close = close_kernels};

const struct pl_back_end pl_back_end_cuda = {.ops = &pl_device_cuda, .kernels = &set};
