/* products.h - matrix products through cuBLASLt.
 *
 * In: matrices of one storage type in device memory.  Out: their product, in the device's stream.
 * Needs: runtime/device/cuda.
 *   M1  sums run in fp32; fp32 inputs are never rounded to TF32
 *   M2  a call of the same shapes gives the same bits whatever ran before it, as long as no product
 *       failed: a shape whose product failed has another algorithm from then on
 *   M3  after pl_products_create() no host memory is allocated and no descriptor is made
 *   M4  an algorithm that was chosen for another shape runs only where the library says it may, and
 *       a product that fails is tried once more with another algorithm before the device is lost
 *   M5  products that run as one take the algorithm of one of them alone wherever the library says
 *       they may, so that their bits are those of one by one */
#ifndef PL_RUNTIME_KERNELS_CUDA_PRODUCTS_H
#define PL_RUNTIME_KERNELS_CUDA_PRODUCTS_H

#include "runtime/device/cuda/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

/* C[m,n] = alpha * op(A)[m,k] op(B)[k,n] + (adds ? C : 0) + bias[n], row-major, where op transposes
 * when trans_* is set. a and b have one float type; c is fp32 or as they are; bias, absent
 * when its p is NULL, is as c. No dimension is 0. ws: aligned to 256 bytes. Further products of the
 * same shape, without a bias, run as one with it: the operands of each lie as many elements after
 * those of the one before as `apart` says of a, b and c. */
struct pl_product {
    bool trans_a, trans_b, adds;
    float alpha;
    uint32_t further; /* products */
    uint64_t apart[3];
    struct pl_view a, b, c, bias;
    void *ws;
    uint64_t ws_bytes;
};
struct pl_lt; /* runtime/device/cuda/lt.h */
/* The handle, descriptors and algorithms, for as long as the device is open. RUNTIME_HOST_OOM;
 * RUNTIME_NO_DEVICE where cuBLASLt refuses to start. lt must outlive *out. The caller keeps the
 * result in pl_cuda.products. */
pl_err pl_products_create(const struct pl_lt *lt, struct pl_products **out, struct pl_diag *d);
void pl_products_destroy(struct pl_products **products); /* NULL-safe; sets it to NULL */
/* RUNTIME_DEVICE_OOM only where the library says so, or where too little is free for a kernel. */
pl_err pl_products_run(struct pl_cuda *cuda, const struct pl_product *p);
/* Returns the library's name of why the last product that failed did. */
const char *pl_products_failure(const struct pl_products *p);

#ifdef __cplusplus
}
#endif

#endif
