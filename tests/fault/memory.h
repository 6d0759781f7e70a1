/* memory.h - memory of the host for a whole process, whose Nth request can fail: those of libc and
 * of every library included.
 *
 * Linked into a test, memory.c takes the place of libc's malloc, calloc, realloc and memalign.
 * Where that is not possible (a sanitizer has its own, or libc is not glibc) it hands on to
 * estimator/base/alloc.h, and sees what Plimsoll and jansson ask for.
 * New memory holds junk. fsync and fdatasync do nothing, since a test of many thousand runs waits
 * for no disk. */
#ifndef PL_TESTS_FAULT_MEMORY_H
#define PL_TESTS_FAULT_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

/* Whether a run is so slow here that not every request can be tried. */
bool memory_is_slow(void);
/* From now on request `at` (1 is the next one) and the count - 1 after it fail; at 0: none. */
void memory_fail(uint64_t at, uint64_t count);
/* Since the latest memory_fail(). */
uint64_t memory_requests(void);
/* What the requests since the latest memory_fail() are told apart by: callers[i] is a hash of the
 * calls that led to request i + 1. NULL: do not record. */
void memory_record(uint64_t *callers, uint64_t room);
/* The calls that lead to a request that fails are written to stderr. */
void memory_trace(void);

#endif
