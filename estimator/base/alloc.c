/* alloc.c - memory of the host, and its injected lack. */
#include "estimator/base/alloc.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* Process-wide, as memory is. Request numbers from `fail_from` up to but not including `fail_to`
 * fail. */
static _Atomic uint64_t requests, fail_from, fail_to;

void pl_alloc_fail(uint64_t at, uint64_t count) {
    atomic_store(&fail_to, 0);
    atomic_store(&requests, 0);
    atomic_store(&fail_from, at);
    if (at) atomic_store(&fail_to, count < UINT64_MAX - at ? at + count : UINT64_MAX);
}

uint64_t pl_alloc_requests(void) {
    return atomic_load(&requests);
}

static bool refused(void) {
    uint64_t n = atomic_fetch_add_explicit(&requests, 1, memory_order_relaxed) + 1;
    if (n >= atomic_load_explicit(&fail_to, memory_order_relaxed)) return false;
    if (n < atomic_load_explicit(&fail_from, memory_order_relaxed)) return false;
    errno = ENOMEM;
    return true;
}

void *pl_malloc(size_t bytes) {
    return refused() ? NULL : malloc(bytes);
}
void *pl_calloc(size_t n, size_t bytes) {
    return refused() ? NULL : calloc(n, bytes);
}
void *pl_realloc(void *old, size_t bytes) {
    return refused() ? NULL : realloc(old, bytes);
}

void *pl_grow(void *old, uint32_t n, size_t each) {
    const bool full = (n & (n - 1)) == 0; /* 0 and the powers of two */
    if (!full) return old;
    if (n > SIZE_MAX / 2 / each) return NULL;
    return pl_realloc(old, (n ? 2 * (size_t)n : 1) * each);
}

char *pl_strndup(const char *s, size_t most) {
    size_t n = strnlen(s, most);
    char *copy = pl_malloc(n + 1);
    if (!copy) return NULL;
    memcpy(copy, s, n);
    copy[n] = 0;
    return copy;
}

char *pl_strdup(const char *s) {
    return pl_strndup(s, SIZE_MAX - 1);
}

int pl_vasprintf(char **out, const char *fmt, va_list ap) {
    va_list again;
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, again);
    va_end(again);
    *out = n < 0 ? NULL : pl_malloc((size_t)n + 1);
    if (*out) vsnprintf(*out, (size_t)n + 1, fmt, ap);
    return *out ? n : -1;
}

int pl_asprintf(char **out, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    int n = pl_vasprintf(out, fmt, ap);
    va_end(ap);
    return n;
}
