/* fuzz.h - helpers of the fuzz targets. A target is one file with the entry point that libFuzzer
 * calls; tests/fuzz/replay.c calls the same one with the committed inputs and mutations of them.
 *
 *   Z1  a target says what must hold of any input by FUZZ_CHECK; the reader may refuse any input,
 *       but one that it takes has to keep the promises of its header
 *   Z2  no input is bigger than FUZZ_MAX_BYTES, so running out of memory means that a reader asked
 *       for more than its input is worth: fuzz_outcome() takes PL_ERR_HOST_OOM for a failure
 *   Z3  nothing is kept from one input to the next but files and models made once
 * Use: int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
 *          struct pl_diag d = {0};
 *          fuzz_outcome(pl_x_parse((const char *)data, size, &x, &d), &d); ... return 0; } */
#ifndef PL_TESTS_FUZZ_FUZZ_H
#define PL_TESTS_FUZZ_FUZZ_H

#include "estimator/base/diag.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FUZZ_MAX_BYTES 65536

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define FUZZ_CHECK(what)                                                                           \
    ((what) ? (void)0 : fuzz_fail(__FILE__, __LINE__, #what))
void fuzz_fail(const char *file, int line, const char *what) __attribute__((noreturn));

/* Checks that a reader's return value and its diagnostic agree, that the failure has words, and
 * that it is one that an input may cause. True if there was none. */
bool fuzz_outcome(pl_err err, const struct pl_diag *d);

/* Returns the path of a file `name` with these bytes, in a directory of the process that its end
 * removes; `name` may begin with a directory of its own. Valid until the next call. */
const char *fuzz_file(const char *name, const uint8_t *data, size_t size);
const char *fuzz_dir(void);

#endif
