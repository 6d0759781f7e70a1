/* watch_kernels.cpp - small kernels for the tests of plsim_watch.h: each right, and wrong in one
 * way. */
#include "tests/cuda_sim/watch_kernels.h"

#include "runtime/device/cuda/cuda.h"
#include "runtime/kernels/cuda/ptx.cuh"

#include <cuda_bf16.h>

/* Neighbours exchange a word; what orders the exchange differs. */
static __global__ void exchange_block(bool right, int *out) {
    PL_SHARED(int, words);
    words[threadIdx.x] = static_cast<int>(threadIdx.x);
    if (right) __syncthreads();
    out[threadIdx.x] = words[(threadIdx.x + 1) % blockDim.x];
}

static __global__ void exchange_warp(bool right, int *out) {
    PL_SHARED(int, words);
    words[threadIdx.x] = static_cast<int>(threadIdx.x);
    if (right)
        __syncwarp();
    else
        (void)__shfl_xor_sync(0xFFFFFFFFu, 0, 1);
    out[threadIdx.x] = words[threadIdx.x ^ 1];
}

/* The barrier of a warp orders nothing between warps. */
static __global__ void exchange_warps(bool right, int *out) {
    PL_SHARED(int, words);
    words[threadIdx.x] = 1;
    __syncwarp();
    if (right) __syncthreads();
    out[threadIdx.x] = words[threadIdx.x ^ 32];
}

/* The second write comes before the first has been read by all. */
static __global__ void reuse(bool right, int *out) {
    PL_SHARED(int, words);
    words[threadIdx.x] = 1;
    __syncthreads();
    out[threadIdx.x] = words[0];
    if (right) __syncthreads();
    if (threadIdx.x == 40) words[0] = 2;
}

static __global__ void blocks_meet(bool right, int *out) {
    out[right ? blockIdx.x : 0] = static_cast<int>(blockIdx.x);
}

static __global__ void block_reads_other(bool right, int *out) {
    if (threadIdx.x == 0) out[blockIdx.x] = out[right ? blockIdx.x : (blockIdx.x + 1) % 2];
}

static __global__ void pack(bool right, int *out) {
    if (threadIdx.x == 0)
        reinterpret_cast<int4 *>(out + (right ? 4 : 1))[0] = make_int4(1, 2, 3, 4);
}

/* The window ends after 64 words, the allocation does not. */
static __global__ void window(bool right, int *out) {
    out[right ? threadIdx.x : threadIdx.x + 1] = 1;
}

static __global__ void read_window(bool right, int *out) {
    if (threadIdx.x == 0) out[0] = out[right ? 63 : 64];
}

static int of_host = 7;
static __global__ void host_memory(const int *word, int *out) {
    if (threadIdx.x < 63) out[threadIdx.x] = *word;
}

static __global__ void unwritten(bool right, int *out) {
    PL_SHARED(int, words);
    if (right || threadIdx.x > 0) words[threadIdx.x] = 1;
    __syncthreads();
    out[threadIdx.x] = words[threadIdx.x];
}

static __global__ void behind(bool right, int *out) {
    PL_SHARED(int, words);
    words[threadIdx.x + (right ? 0 : 1)] = 1;
    out[threadIdx.x] = 1;
}

/* A thread looks at what its neighbour copied: after the neighbour's wait, and after a barrier. */
static __global__ void copy(bool waits, bool meets, int *out) {
    PL_SHARED(int, words);
    pl_ptx_copy_16(words + 4 * threadIdx.x, out + 4 * (threadIdx.x % 16), true);
    pl_ptx_copy_commit();
    if (waits) pl_ptx_copy_wait<0>();
    if (meets) __syncthreads();
    const int word = words[4 * ((threadIdx.x + 1) % blockDim.x)];
    if (threadIdx.x == 63) out[63] = word;
    pl_ptx_copy_wait<0>();
}

typedef void (*right_or_wrong)(bool right, int *out);

void watch_run(int what, int right, int *out) {
    static const right_or_wrong kernels[] = {
        exchange_block, exchange_warp, exchange_warps, reuse,     blocks_meet, block_reads_other,
        pack,           window,        read_window,    unwritten, behind};
    static const unsigned blocks[] = {1, 1, 1, 1, 2, 2, 1, 1, 1, 1, 1};
    const int n = sizeof kernels / sizeof *kernels;
    if (what < n)
        PL_LAUNCH(kernels[what], dim3(blocks[what]), dim3(what == 4 ? 1 : 64), 256, nullptr,
                  right != 0, out);
    else if (what == n)
        PL_LAUNCH(host_memory, dim3(1), dim3(64), 0, nullptr, right ? out + 63 : &of_host, out);
    else
        PL_LAUNCH(copy, dim3(1), dim3(64), 1024, nullptr, right || what > n + 1,
                  right || what == n + 1, out);
}

static __global__ void first_come(int *out, int *order) {
    if (threadIdx.x == 0) order[atomicAdd(out, 1)] = static_cast<int>(blockIdx.x);
}

static __global__ void in_turn(int *out) {
    PL_SHARED(int, words);
    words[threadIdx.x] = 1;
    __syncthreads();
    if (threadIdx.x % 32 == 0) out[1 + atomicAdd(out, 1)] = static_cast<int>(threadIdx.x / 32);
}

void watch_order(int of_threads, int *out) {
    if (of_threads)
        PL_LAUNCH(in_turn, dim3(1), dim3(1024), 4096, nullptr, out);
    else
        PL_LAUNCH(first_come, dim3(32), dim3(1), 0, nullptr, out, out + 1);
}
