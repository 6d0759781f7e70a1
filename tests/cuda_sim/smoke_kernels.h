/* smoke_kernels.h - launches of the kernels in smoke_kernels.cpp, for check_sim.c. */
#ifndef PL_TESTS_CUDA_SIM_SMOKE_KERNELS_H
#define PL_TESTS_CUDA_SIM_SMOKE_KERNELS_H

#include <cuda_runtime.h>

#ifdef __cplusplus
extern "C" {
#endif

void smoke_number(int *out, int n, unsigned block); /* out[i] = i */
void smoke_number_on(cudaStream_t stream, int *out, int n, unsigned block);
void smoke_sum(const float *x, float *out, int n, unsigned block);
/* what: 0 idx, 1 up, 2 down, 3 xor of the lane numbers; 4 ballot of lane % 3 == 0 */
void smoke_exchange(int what, int operand, int width, int *out);
void smoke_halves(int *out); /* 32 in every lane */
void smoke_divergent(int *out);
void smoke_deadlock(int *out);
void smoke_outside_mask(int *out);
void smoke_mixed(int *out);
void smoke_overrun(int *out); /* writes one word beyond its shared memory */
void smoke_unset(float *out); /* two blocks read shared memory that nobody wrote */
void smoke_race(int *out);    /* 7 in every lane if thread 0 comes first */
/* c[16,8] = a[16,16] b: bf16, b stored [8,16] (trans 0) or [16,8] (trans 1) */
void smoke_product(const uint16_t *a, const uint16_t *b, int trans, float *c);
void smoke_half_mma(int *out); /* half of the warp has left */
void smoke_round(const float *x, uint16_t *out, int n);
void smoke_launch(const unsigned grid[3], const unsigned block[3], size_t shared_bytes, int *out);
cudaError_t smoke_opt_in(int bytes); /* attributes of the kernel that smoke_launch() launches */

#ifdef __cplusplus
}
#endif
#endif
