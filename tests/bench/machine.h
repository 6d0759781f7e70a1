/* machine.h - the speed of this machine, and statistics of measurements. Benchmarks only. */
#ifndef PL_TESTS_BENCH_MACHINE_H
#define PL_TESTS_BENCH_MACHINE_H

#include "runtime/device/device.h"

#include <check.h>
#include <stdint.h>
#include <time.h>

double seconds_of(clockid_t clock);
/* Opens the CPU, and an arena of `bytes` unless that is 0. On failure the program `name` ends with
 * status 1 and the reason on stderr. */
struct pl_device *bench_cpu_open(const char *name, uint32_t threads, uint64_t bytes,
                                 struct pl_arena *arena);
double median(double *values, int n); /* sorts them */
/* Returns the GFLOP/s of an fp32 product 2048 x 2048 x 2048 by OpenBLAS, a part of it on each
 * thread. Median of 7. Negative if OpenBLAS is not installed. */
double machine_sgemm_gflops(uint32_t threads);

/* Runs measurements that are written as tests, so that the helpers can report errors: in this
 * process, silent except for failures on stderr, each after `name`. Returns how many failed. */
int run_measurements(Suite *s, const char *name);

#endif
