/* bench_cuda.h - the measurements of bench_cuda. */
#ifndef PL_TESTS_BENCH_BENCH_CUDA_H
#define PL_TESTS_BENCH_BENCH_CUDA_H

#include "tests/bench/cuda_clock.h"
#include "tests/bench/step_rig.h"

/* Measures each kind of product of the job with every algorithm that cuBLASLt proposes for it, and
 * prints a line of JSON a product. The clock has two events. */
void bench_cuda_products(struct rig *r, struct cuda_clock *clock);
/* Looks for faults that others have reported, and prints a line of JSON for each kind. */
void bench_cuda_reported(void);

#endif
