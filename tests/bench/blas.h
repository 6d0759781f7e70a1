/* blas.h - products of OpenBLAS, to measure ours against. Benchmarks only. */
#ifndef PL_TESTS_BENCH_BLAS_H
#define PL_TESTS_BENCH_BLAS_H

#include "estimator/ops/call.h"

#include <stdbool.h>

/* Loads the library with its kernels for an instruction set ("x86-64-v4"); false if there is none.
 * It stays loaded. Called before other threads exist, since it sets environment variables. */
bool blas_load(const char *level);
/* C = op(A) op(B), all fp32, on the calling thread. After blas_load(). */
void blas_sgemm(bool trans_a, bool trans_b, const struct pl_view *a, const struct pl_view *b,
                const struct pl_view *c);

#endif
