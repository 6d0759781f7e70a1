/* alloc.h - the one entry through which memory of the host is asked for.
 *
 * In:    sizes in bytes, strings.
 * Out:   memory that free() takes, or NULL.
 * Needs: libc. Libraries that take an allocator (jansson) are handed these functions by the
 *        program; a host that embeds libplimsoll keeps its own.
 *
 * No other source of the rooms calls malloc, calloc, realloc, strdup, strndup or asprintf (a lint
 * holds it), so that a test can fail the Nth request of a whole run, for every N. Any thread may
 * call; which request is the Nth is then a matter of scheduling.
 *   AL2  an injected failure is a NULL like any other: errno is ENOMEM, and a pl_realloc that
 *        failed leaves the old memory as it was */
#ifndef PL_ESTIMATOR_BASE_ALLOC_H
#define PL_ESTIMATOR_BASE_ALLOC_H

#include "estimator/base/diag.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

void *pl_malloc(size_t bytes);
void *pl_calloc(size_t n, size_t bytes);
void *pl_realloc(void *old, size_t bytes);
char *pl_strdup(const char *s);
char *pl_strndup(const char *s, size_t most);
/* As asprintf over pl_realloc: returns the length, or -1 with *out NULL. */
int pl_asprintf(char **out, const char *fmt, ...) PL_PRINTF(2, 3);
int pl_vasprintf(char **out, const char *fmt, va_list ap) PL_PRINTF(2, 0);

/* Returns `old` (of `each` bytes an item) with room for at least one more after n items. The array
 * must have grown by this function alone: it has room for 1, 2, 4, ... items. NULL: no memory, and
 * `old` is as it was. */
void *pl_grow(void *old, uint32_t n, size_t each);

/* Makes request `at` (1 is the next one) and the count - 1 after it fail. A count of UINT64_MAX
 * fails all that follow; with `at` 0 none fails. */
void pl_alloc_fail(uint64_t at, uint64_t count);
/* Returns the number of requests since the program began, or since the latest pl_alloc_fail(). */
uint64_t pl_alloc_requests(void);

#endif
