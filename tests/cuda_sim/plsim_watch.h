/* plsim_watch.h - checks of every load and store of instrumented kernels.
 *
 * In: the accesses of kernels that gcc compiled with -fsanitize=thread,alignment, whose hooks
 * sim_hooks.c defines in place of the libraries of those sanitizers; barriers from sim_block.c; the
 * windows of the op's operands from watch_calls.c. Out: a message with kernel, block and threads,
 * and the end of the process. A fibre switches at barriers only, so the order of accesses here is
 * one of many; the rules are about all of them:
 *   W1  of two accesses of a byte by different threads of a block, one being a write, a barrier
 *       lies between: __syncthreads, or a __syncwarp of both. Shuffles, votes, mma and ldmatrix
 *       order no memory (CUDA C++ Programming Guide, "Warp Shuffle Functions")
 *   W2  a byte that a block of a launch writes is touched by no other block of it
 *   W3  an access is aligned to its type
 *   W4  a kernel touches the windows of its op's operands, and writes those of outputs and of the
 *       workspace only; of shared memory as much as it was launched with; of the host nothing but
 *       its own arguments, and operands in pinned memory
 *   W5  a block reads no shared memory that it has not written
 * A cell remembers three readers at most, so W1 may miss one of many; what it says is true. */
#ifndef PL_TESTS_CUDA_SIM_PLSIM_WATCH_H
#define PL_TESTS_CUDA_SIM_PLSIM_WATCH_H

#include <plsim_core.h>

#include <stdbool.h>

extern bool plsim_watching; /* set by the constructors of instrumented objects */

struct plsim_window { /* rows of an operand */
    const char *name; /* ends at a space or with the string */
    const char *p;
    uint64_t rows, row_bytes, stride_bytes;
    bool is_written;
};
/* Sets the operands of the op whose launches follow; n 0: they belong to no op, and W4 is not
 * checked. The windows stay the caller's. */
void plsim_watch_call(const struct plsim_window *windows, int n);

/* Writes the last message; returns how many there were. */
int plsim_watch_windows(const struct plsim_window **out);

/* sim_block.c: a launch and a block of it begin; all threads of a block, or these lanes of the warp
 * that starts with thread `first`, have met at a barrier. */
void plsim_watch_launch(const struct plsim_launch *launch);
void plsim_watch_block(void);
void plsim_watch_meet_block(void);
void plsim_watch_meet_warp(uint32_t first, uint32_t lanes);

/* The running thread is about to read or write. */
void plsim_watch_access(const void *p, size_t bytes, bool writes);

#endif
