/* machine.h - what this machine can do, and plain arithmetic of measurements. Benchmarks only. */
#ifndef PL_TESTS_BENCH_MACHINE_H
#define PL_TESTS_BENCH_MACHINE_H

#include "runtime/device/device.h"

#include <check.h>
#include <stdint.h>
#include <time.h>

double seconds_of(clockid_t clock);
/* The CPU, and an arena of `bytes` unless that is 0. The program `name` ends with status 1 and the
 * reason on stderr where there is none. */
struct pl_device *bench_cpu_open(const char *name, uint32_t threads, uint64_t bytes,
                                 struct pl_arena *arena);
double median(double *values, int n); /* sorts them */
/* GFLOP/s of an fp32 product 2048 x 2048 x 2048 by OpenBLAS, a part of it on each thread. Median
 * of 7. Negative where OpenBLAS is not installed. */
double machine_sgemm_gflops(uint32_t threads);

/* Runs measurements that are written as tests, so that the helpers can report what goes wrong: in
 * this process, silent but for failures on stderr, each after `name`. Returns how many failed. */
int run_measurements(Suite *s, const char *name);

#endif
