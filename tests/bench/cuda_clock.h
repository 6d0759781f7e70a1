/* cuda_clock.h - times of work on a GPU, as the GPU measures them. Benchmarks only; failures
 * exit(1).
 *
 * Events on the device's stream, and copies that keep the GPU busy until the host has queued the
 * work to be timed: without them the time of a short kernel would be that of its launch.
 * Use: cuda_clock_open(&c, dev, 2); cuda_clock_head_start(&c); cuda_clock_mark(&c, 0); ...
 *      cuda_clock_mark(&c, 1); rig_sync(&r); cuda_clock_seconds(&c, 0, 1); */
#ifndef PL_TESTS_BENCH_CUDA_CLOCK_H
#define PL_TESTS_BENCH_CUDA_CLOCK_H

#include "runtime/device/cuda/cuda.h"

struct cuda_clock {
    cudaStream_t stream;
    void *from, *to;
    uint64_t bytes; /* bytes of each of the two */
    cudaEvent_t *events;
    uint32_t n_events;
};

/* Ends the program unless e is cudaSuccess. */
void cuda_must(cudaError_t e, const char *what);

void cuda_clock_open(struct cuda_clock *c, struct pl_device *dev, uint32_t n_events);
/* Queues copies that take about two milliseconds on a large GPU. */
void cuda_clock_head_start(struct cuda_clock *c);
void cuda_clock_mark(struct cuda_clock *c, uint32_t event);
/* Returns the seconds between two marks, which both must have happened. */
double cuda_clock_seconds(const struct cuda_clock *c, uint32_t from, uint32_t to);
/* Returns the bytes read and written a second by a large copy within the device, the best of a
 * few. */
double cuda_clock_copy_rate(struct cuda_clock *c);
void cuda_clock_close(struct cuda_clock *c); /* leaves {0} */

#endif
