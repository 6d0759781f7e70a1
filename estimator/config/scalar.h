/* scalar.h - the values of YAML scalars under the core schema of YAML 1.2 (section 10.3.2), and
 * their writers. Internal to config/.
 *
 * In: NUL-terminated UTF-8 text.  Out: plain values, YAML text.  Needs: base/text. No globals.
 * Numbers are read and written with a point whatever the locale of the process.
 *   S2  a string written by pl_scalar_write() reads back byte for byte, and as a string
 *   S3  a double written by pl_scalar_write_f64() reads back bit for bit
 * Use: if (pl_scalar_int(text, &v) == PL_INT_OK) ...; pl_scalar_write(out, job->model); */
#ifndef PL_ESTIMATOR_CONFIG_SCALAR_H
#define PL_ESTIMATOR_CONFIG_SCALAR_H

#include "estimator/base/text.h"

#include <stdbool.h>
#include <stdint.h>

enum pl_int { PL_INT_NONE, PL_INT_OK, PL_INT_NEGATIVE, PL_INT_TOO_LARGE };

bool pl_scalar_null(const char *text);            /* "", ~, null, Null, NULL */
bool pl_scalar_bool(const char *text, bool *out); /* true, True, TRUE and the three of false */
enum pl_int pl_scalar_int(const char *text, uint64_t *out); /* *out only with PL_INT_OK */
/* Reads integers too; .inf, .nan and values that overflow a double come out non-finite. */
bool pl_scalar_float(const char *text, double *out);
bool pl_scalar_bytes(const char *text, uint64_t *out); /* pl_bytes_parse in any locale */

bool pl_utf8_valid(const char *text);
/* Decodes the character at s, NUL-terminated, and returns its length, 0 for anything but
 * shortest-form UTF-8 of a Unicode scalar value (RFC 3629). */
unsigned pl_utf8_next(const char *s, uint32_t *out);
void pl_scalar_write(struct pl_text *out, const char *text); /* valid UTF-8; quoted where needed */
void pl_scalar_write_f64(struct pl_text *out, double v);     /* finite; the shortest form */

/* The size of a value in messages, which is cut between characters and has no control bytes. */
#define PL_EXCERPT_BYTES 72
const char *pl_scalar_excerpt(const char *text, char buf[PL_EXCERPT_BYTES]);

#endif
