/* strips.cuh - the gradient of a vector from the partial sums of blocks, added in their order. */
#ifndef PL_RUNTIME_KERNELS_CUDA_STRIPS_CUH
#define PL_RUNTIME_KERNELS_CUDA_STRIPS_CUH

#include "runtime/kernels/cuda/common.cuh"

/* dw[D] (=|+=) the strips in double: a warp of columns by PL_STRIP_GROUPS threads, each a share of the
 * strips, then the shares in order. */
#define PL_STRIP_GROUPS 8

static __global__ void __launch_bounds__(PL_WARP *PL_STRIP_GROUPS)
    pl_sum_strips(const float *partial, uint32_t strips, uint32_t dim, pl_mat<pl_either> dw,
                  bool adds) {
    PL_SHARED(double, shared); /* [PL_STRIP_GROUPS, 32] */
    const uint32_t c = blockIdx.x * PL_WARP + threadIdx.x;
    double sum = 0;
#pragma unroll 8
    for (uint32_t s = threadIdx.y; s < strips; s += PL_STRIP_GROUPS)
        if (c < dim) sum += (double)partial[(uint64_t)s * dim + c];
    shared[threadIdx.y * PL_WARP + threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y || c >= dim) return;
    for (uint32_t g = 1; g < PL_STRIP_GROUPS; g++)
        sum += shared[g * PL_WARP + threadIdx.x];
    dw.put(0, c, (float)((adds ? (double)dw.get(0, c) : 0.0) + sum));
}

static inline void pl_launch_sum_strips(cudaStream_t stream, const float *partial, uint32_t strips,
                                        uint32_t dim, pl_mat<pl_either> dw, bool adds) {
    PL_LAUNCH(pl_sum_strips, dim3((dim + PL_WARP - 1) / PL_WARP), dim3(PL_WARP, PL_STRIP_GROUPS),
              PL_STRIP_GROUPS * PL_WARP * sizeof(double), stream, partial, strips, dim, dw, adds);
}

#endif
