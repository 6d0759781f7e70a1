/* units.h - bytes and counts as people write and read them.
 *
 * GB is 10^9 bytes, GiB is 2^30; a bare number is bytes. Output is binary (KiB, MiB, GiB). */
#ifndef PL_ESTIMATOR_BASE_UNITS_H
#define PL_ESTIMATOR_BASE_UNITS_H

#include <stdbool.h>
#include <stdint.h>

#define PL_BARE_BYTES_LEAST (UINT64_C(1) << 20) /* a smaller size of a person needs its unit */

#define PL_BYTES_TEXT 32
#define PL_COUNT_TEXT 32

static inline double pl_gb(uint64_t bytes) {
    return (double)bytes / 1e9;
}

/* Reads "22GiB", "1.5 GB" or "4096" as bytes. False for anything else, negative and non-finite
 * included. */
bool pl_bytes_parse(const char *text, uint64_t *out);
char *pl_bytes_text(uint64_t bytes, char buf[PL_BYTES_TEXT]); /* "1.21 GiB" */
char *pl_count_text(uint64_t n, char buf[PL_COUNT_TEXT]);     /* "7,615,616,512" */

#endif
