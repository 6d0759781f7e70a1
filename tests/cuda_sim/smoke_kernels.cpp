/* smoke_kernels.cpp - small kernels for the tests of the emulation itself, as a .cu file has them.
 */
#include "tests/cuda_sim/smoke_kernels.h"

#include "runtime/device/cuda/cuda.h"
#include "runtime/kernels/cuda/ptx.cuh"

#include <cuda_bf16.h>

static __global__ void number_kernel(int *out, int n) {
    int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < n) out[i] = i;
}

/* Sum over the block in a fixed order: shuffles inside warps, shared memory between them. */
static __global__ void __launch_bounds__(256) sum_kernel(const float *x, float *out, int n) {
    PL_SHARED(float, sums);
    float sum = 0;
    for (int i = static_cast<int>(threadIdx.x); i < n; i += static_cast<int>(blockDim.x))
        sum += __ldg(x + i);
    for (int step = 16; step > 0; step /= 2)
        sum += __shfl_xor_sync(0xFFFFFFFFu, sum, step);
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (unsigned i = 1; i < blockDim.x / 32; i++)
            sums[0] += sums[i];
        *out = sums[0];
    }
}

static __global__ void exchange_kernel(int what, int operand, int width, int *out) {
    int lane = static_cast<int>(threadIdx.x);
    unsigned bits = __ballot_sync(0xFFFFFFFFu, lane % 3 == 0);
    int got = what == 0   ? __shfl_sync(0xFFFFFFFFu, lane, operand, width)
              : what == 1 ? __shfl_up_sync(0xFFFFFFFFu, lane, static_cast<unsigned>(operand), width)
              : what == 2
                  ? __shfl_down_sync(0xFFFFFFFFu, lane, static_cast<unsigned>(operand), width)
              : what == 3 ? __shfl_xor_sync(0xFFFFFFFFu, lane, operand, width)
                          : static_cast<int>(bits);
    out[lane] = got;
}

/* The halves of a warp meet on their own, the upper one twice, then all. */
static __global__ void halves_kernel(int *out) {
    unsigned lane = threadIdx.x, half = lane < 16 ? 0x0000FFFFu : 0xFFFF0000u;
    int sum = 1;
    for (int step = 8; step > 0; step /= 2)
        sum += __shfl_xor_sync(half, sum, step);
    if (lane >= 16) __syncwarp(half);
    sum += __shfl_xor_sync(0xFFFFFFFFu, sum, 16);
    out[lane] = sum;
}

static __global__ void divergent_kernel(int *out) {
    if (threadIdx.x < 48) __syncthreads();
    out[threadIdx.x] = 1;
}

static __global__ void deadlock_kernel(int *out) {
    if (threadIdx.x < 16)
        __syncwarp();
    else
        __syncthreads();
    out[threadIdx.x] = 1;
}

static __global__ void outside_mask_kernel(int *out) {
    out[threadIdx.x] = __shfl_sync(1u, 1, 0);
}

static __global__ void mixed_kernel(int *out) {
    out[threadIdx.x] =
        threadIdx.x < 16 ? __shfl_xor_sync(0xFFFFFFFFu, 1, 1) : __shfl_sync(0xFFFFFFFFu, 1, 0);
}

static __global__ void overrun_kernel(int *out) {
    PL_SHARED(int, words);
    words[threadIdx.x] = 1;
    out[threadIdx.x] = words[threadIdx.x];
}

static __global__ void unset_kernel(float *out) {
    PL_SHARED(float, words);
    out[blockIdx.x] = words[blockIdx.x];
    words[0] = words[1] = 1;
}

/* What is wrong with it: the second read races with the write of thread 0. */
static __global__ void race_kernel(int *out) {
    PL_SHARED(int, words);
    if (threadIdx.x == 0) words[0] = 7;
    out[threadIdx.x] = words[0];
}

static __global__ void round_kernel(const float *x, uint16_t *out, int n) {
    int i = static_cast<int>(threadIdx.x);
    if (i < n) out[i] = __bfloat16_as_ushort(__float2bfloat16_rn(x[i]));
}

/* c[16,8] = a[16,16] b[16,8]^T, both as stored, through shared memory and ldmatrix; b is [8,16] and
 * read as it lies, or [16,8] and read transposed. */
static __global__ void product_kernel(const uint16_t *a, const uint16_t *b, bool trans, float *c) {
    PL_SHARED(uint16_t, tiles);
    unsigned lane = threadIdx.x, row = lane % 8, quarter = lane / 8;
    uint16_t *tile_a = tiles, *tile_b = tiles + 256;
    pl_ptx_copy_16(tile_a + 8 * lane, a + 8 * lane, true);
    pl_ptx_copy_16(tile_b + 8 * lane, b + 8 * (lane % 16), lane < 16);
    pl_ptx_copy_commit();
    pl_ptx_copy_wait<0>();
    __syncwarp();
    uint32_t fa[4], fb[4];
    float sums[4] = {0, 0, 0, 0};
    pl_ptx_ldmatrix_x4(fa, tile_a + (quarter % 2 * 8 + row) * 16 + quarter / 2 * 8);
    if (trans)
        pl_ptx_ldmatrix_x4_trans(fb, tile_b + (quarter % 2 * 8 + row) * 8);
    else
        pl_ptx_ldmatrix_x4(fb, tile_b + row * 16 + quarter % 2 * 8);
    pl_ptx_mma<__nv_bfloat16>(sums, fa, fb);
    for (unsigned i = 0; i < 4; i++)
        c[(lane / 4 + i / 2 * 8) * 8 + lane % 4 * 2 + i % 2] = sums[i];
}

static __global__ void half_mma_kernel(float *c) {
    uint32_t zero[4] = {0, 0, 0, 0};
    float sums[4] = {0, 0, 0, 0};
    if (threadIdx.x < 16) return;
    pl_ptx_mma<__nv_bfloat16>(sums, zero, zero);
    c[threadIdx.x] = sums[0];
}

void smoke_product(const uint16_t *a, const uint16_t *b, int trans, float *c) {
    PL_LAUNCH(product_kernel, dim3(1), dim3(32), 1024, nullptr, a, b, trans != 0, c);
}
void smoke_half_mma(int *out) {
    PL_LAUNCH(half_mma_kernel, dim3(1), dim3(32), 0, nullptr, reinterpret_cast<float *>(out));
}
void smoke_number_on(cudaStream_t stream, int *out, int n, unsigned block) {
    PL_LAUNCH(number_kernel, dim3((static_cast<unsigned>(n) + block - 1) / block), dim3(block), 0,
              stream, out, n);
}
void smoke_number(int *out, int n, unsigned block) {
    smoke_number_on(nullptr, out, n, block);
}
void smoke_sum(const float *x, float *out, int n, unsigned block) {
    PL_LAUNCH(sum_kernel, dim3(1), dim3(block), block / 32 * sizeof(float), nullptr, x, out, n);
}
void smoke_exchange(int what, int operand, int width, int *out) {
    PL_LAUNCH(exchange_kernel, dim3(1), dim3(32), 0, nullptr, what, operand, width, out);
}
void smoke_halves(int *out) {
    PL_LAUNCH(halves_kernel, dim3(1), dim3(32), 0, nullptr, out);
}
void smoke_divergent(int *out) {
    PL_LAUNCH(divergent_kernel, dim3(1), dim3(64), 0, nullptr, out);
}
void smoke_deadlock(int *out) {
    PL_LAUNCH(deadlock_kernel, dim3(1), dim3(32), 0, nullptr, out);
}
void smoke_outside_mask(int *out) {
    PL_LAUNCH(outside_mask_kernel, dim3(1), dim3(32), 0, nullptr, out);
}
void smoke_mixed(int *out) {
    PL_LAUNCH(mixed_kernel, dim3(1), dim3(32), 0, nullptr, out);
}
void smoke_overrun(int *out) {
    PL_LAUNCH(overrun_kernel, dim3(1), dim3(32), 31 * sizeof(int), nullptr, out);
}
void smoke_unset(float *out) {
    PL_LAUNCH(unset_kernel, dim3(2), dim3(1), 2 * sizeof(float), nullptr, out);
}
void smoke_race(int *out) {
    PL_LAUNCH(race_kernel, dim3(1), dim3(32), 4, nullptr, out);
}
void smoke_round(const float *x, uint16_t *out, int n) {
    PL_LAUNCH(round_kernel, dim3(1), dim3(static_cast<unsigned>(n)), 0, nullptr, x, out, n);
}
void smoke_launch(const unsigned grid[3], const unsigned block[3], size_t shared_bytes, int *out) {
    PL_LAUNCH(number_kernel, dim3(grid[0], grid[1], grid[2]), dim3(block[0], block[1], block[2]),
              shared_bytes, nullptr, out, 0);
}
cudaError_t smoke_opt_in(int bytes) {
    return cudaFuncSetAttribute(number_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
}
