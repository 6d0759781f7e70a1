/* watch_kernels.h - launches of the kernels in watch_kernels.cpp, for check_watch.c and
 * check_sim.c.
 */
#ifndef PL_TESTS_CUDA_SIM_WATCH_KERNELS_H
#define PL_TESTS_CUDA_SIM_WATCH_KERNELS_H

#include <cuda_runtime.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { WATCH_KERNELS = 14, WATCH_WORDS = 64 };
enum { WATCH_WINDOW = 7 }; /* the kernel that leaves the window */
/* out[WATCH_WORDS], zeros; right 0: with the mistake that the kernel of this number is made for. */
void watch_run(int what, int right, int *out);
/* out[1 + i]: the block, or the warp, that came as number i; out[0] counts. 33 zeros. */
void watch_order(int of_threads, int *out);

#ifdef __cplusplus
}
#endif
#endif
