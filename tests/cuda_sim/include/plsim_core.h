/* plsim_core.h - the interface between device code and the emulation. C and C++.
 *
 *   E1  one fibre runs at a time: blocks one after the other, threads of a block until they meet
 *   E2  a barrier that some threads have left or can never reach ends the process with a message
 *       that names kernel, block and threads
 *   E3  dynamic shared memory starts as 0xFF in every block; a write beyond its end ends the
 *       process when the block does */
#ifndef PL_TESTS_CUDA_SIM_PLSIM_CORE_H
#define PL_TESTS_CUDA_SIM_PLSIM_CORE_H

#include <cuda_runtime.h>

#ifdef __cplusplus
extern "C" {
#endif

struct plsim_position { /* indices of the running fibre */
    unsigned thread[3], block[3], block_dim[3], grid_dim[3];
    unsigned char *shared; /* dynamic shared memory of the block, aligned to 16 and no more */
};
extern struct plsim_position plsim_here;

struct plsim_launch {
    const char *name;
    const void *kernel;
    unsigned grid[3], block[3];
    size_t shared_bytes;
    cudaStream_t stream;
    void (*body)(void *arguments); /* the kernel with its arguments bound */
    void *arguments;
    size_t argument_bytes;
};
/* Checks the launch as the runtime does (the error becomes the last one), then runs it. */
void plsim_run(const struct plsim_launch *launch);

/* Every lane of `mask` that has not ended passes its arguments; the last to come runs the operation
 * on all of them (NULL for lanes that take no part), then all continue. */
struct plsim_collective {
    const char *name;
    void (*run)(void *const arguments[32], uint32_t lanes);
};
void plsim_meet_warp(const struct plsim_collective *what, uint32_t mask, void *arguments);
void plsim_meet_block(void);
int plsim_meet_block_any(int vote); /* true if a thread of the block came with true */

struct plsim_exchange {
    uint64_t value; /* in: value of this lane; out: its result */
    uint32_t lane;  /* source lane, distance or xor mask */
    uint32_t width; /* lanes of a segment, a power of two */
};
extern const struct plsim_collective plsim_shfl_idx, plsim_shfl_up, plsim_shfl_down, plsim_shfl_xor,
    plsim_ballot, plsim_warp_barrier;

#ifdef __cplusplus
}
#endif
#endif
