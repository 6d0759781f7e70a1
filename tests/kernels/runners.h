/* runners.h - the runners of kernel tests: devices of one back-end.
 *
 * A runner is an open device and a table of kernels for it. machine_cpu.c has every instruction set
 * of this processor with 1, 2 and 3 threads; machine_cuda.c the CUDA back-end, on a GPU or in the
 * emulation of tests/cuda_sim. A test links one of them. */
#ifndef PL_TESTS_KERNELS_RUNNERS_H
#define PL_TESTS_KERNELS_RUNNERS_H

#include "estimator/ops/call.h"
#include "runtime/device/device.h"

#include <stdbool.h>
#include <stdint.h>

enum { MACHINE_RUNNERS = 16 };

struct runner {
    char name[48];
    struct pl_device *dev;
    const pl_kernel_fn *kernels;
    struct pl_facts
        *facts;      /* facts of the current batch, in the runner's memory; NULL = kernels read them
                        on the host */
    uint32_t number; /* number of runners of the machine */
    bool is_first;   /* runners of a family, whose members give the same bits */
};

struct machine {
    struct runner runners[MACHINE_RUNNERS];
    uint32_t n;
    uint32_t most_rounds; /* rounds of a case in each list; the rounds with edge shapes come
                             first */
};

/* Fail the running Check test. */
void machine_open(struct machine *m);
void machine_close(struct machine *m);

/* Makes the kernel calls that follow this runner's. */
void machine_turn_to(const struct runner *r);

/* Sets the batch with its facts for the runner's kernels, until the next call. */
struct pl_batch machine_describe(const struct runner *r, const struct pl_batch *b);

/* Copies host memory to memory that the runner's kernels can reach, aligned to 256 bytes; NULL if
 * they reach host memory. machine_take() waits for the kernels, copies it back and frees it. */
void *machine_put(const struct runner *r, const void *host, uint64_t bytes);
void machine_take(const struct runner *r, void *host, void *copy, uint64_t bytes);

#endif
