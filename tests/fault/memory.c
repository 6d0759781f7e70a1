/* memory.c - malloc of the process, or the entry of Plimsoll where that is taken. */
#include "tests/fault/memory.h"

#include <errno.h>
#include <execinfo.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int fsync(int fd) {
    (void)fd;
    return 0;
}

int fdatasync(int fd) {
    (void)fd;
    return 0;
}

#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

#define FRAMES     24 /* of callers that tell requests apart */
#define JUNK       0x5a
#define JUNK_BYTES 65536 /* larger blocks are pages of the kernel's, zero in any case */

/* What glibc's own are called when another library takes their names. */
void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t n, size_t bytes);
void *__libc_realloc(void *old, size_t bytes);
void *__libc_memalign(size_t align, size_t bytes);
void *memalign(size_t align, size_t bytes);

static _Atomic uint64_t requests, fail_from, fail_to;
static uint64_t *callers, callers_room;
static _Thread_local bool recording; /* backtrace() itself asks for memory */

bool memory_is_slow(void) {
    return false;
}

void memory_fail(uint64_t at, uint64_t count) {
    fail_to = 0;
    requests = 0;
    fail_from = at;
    if (at) fail_to = count < UINT64_MAX - at ? at + count : UINT64_MAX;
}

uint64_t memory_requests(void) {
    return requests;
}

void memory_record(uint64_t *to, uint64_t room) {
    void *frames[FRAMES];
    backtrace(frames, FRAMES); /* loads what it needs */
    callers_room = room;
    callers = to;
}

static bool tracing;

void memory_trace(void) {
    memory_record(NULL, 0);
    tracing = true;
}

static void trace(void) {
    void *frames[FRAMES];
    recording = true;
    backtrace_symbols_fd(frames, backtrace(frames, FRAMES), STDERR_FILENO);
    recording = false;
}

static void record(uint64_t n) {
    void *frames[FRAMES];
    uint64_t hash = UINT64_C(14695981039346656037); /* FNV-1a, of addresses */
    recording = true;
    int deep = backtrace(frames, FRAMES);
    for (int i = 0; i < deep; i++)
        hash = (hash ^ (uint64_t)(uintptr_t)frames[i]) * UINT64_C(1099511628211);
    callers[n - 1] = hash;
    recording = false;
}

static bool refused(void) {
    if (recording) return false;
    uint64_t n = ++requests;
    if (callers && n <= callers_room) record(n);
    if (n < fail_from || n >= fail_to) return false;
    if (tracing) trace();
    errno = ENOMEM;
    return true;
}

void *malloc(size_t bytes) {
    void *p = refused() ? NULL : __libc_malloc(bytes);
    return p && bytes <= JUNK_BYTES ? memset(p, JUNK, bytes) : p;
}

void *calloc(size_t n, size_t bytes) {
    return refused() ? NULL : __libc_calloc(n, bytes);
}

void *realloc(void *old, size_t bytes) {
    return refused() ? NULL : __libc_realloc(old, bytes);
}

void *memalign(size_t align, size_t bytes) {
    return refused() ? NULL : __libc_memalign(align, bytes);
}

void *aligned_alloc(size_t align, size_t bytes) {
    return memalign(align, bytes);
}

int posix_memalign(void **out, size_t align, size_t bytes) {
    void *p = memalign(align, bytes);
    if (!p) return ENOMEM;
    *out = p;
    return 0;
}

#else

#include "estimator/base/alloc.h"

bool memory_is_slow(void) {
    return true;
}

void memory_fail(uint64_t at, uint64_t count) {
    pl_alloc_fail(at, count);
}

uint64_t memory_requests(void) {
    return pl_alloc_requests();
}

void memory_record(uint64_t *to, uint64_t room) {
    (void)to;
    (void)room;
}

void memory_trace(void) {}

#endif
