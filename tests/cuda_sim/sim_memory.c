/* sim_memory.c - device and pinned memory, copies between them.
 *
 * Device memory is host memory with an entry in a list, so that a copy or a fill can be held to the
 * bounds of one allocation. It starts as 0xFF bytes: what the real one holds is anybody's guess. */
#include "tests/cuda_sim/sim.h"

#include <stdlib.h>
#include <string.h>

enum { ALIGN_BYTES = 256, POISON_BYTE = 0xFF, UNIT_BYTES = 2 << 20 };

static struct plsim_allocation *allocations;
static uint64_t neighbour_bytes, library_bytes, calls;
static bool has_context, has_started, is_eager;

uint64_t plsim_own_bytes(void) {
    return plsim_counters.used_bytes + plsim_graph_bytes() + library_bytes +
           (has_context ? plsim_settings()->context_bytes << is_eager : 0);
}

/* CUDA before 12.2 behaves so, and loads lazily only if it is told to. */
void plsim_start(void) {
    const char *loading = getenv("CUDA_MODULE_LOADING");
    if (has_started) return;
    has_started = true;
    is_eager = !loading || strcmp(loading, "LAZY") != 0;
}

uint64_t plsim_free_bytes(void) {
    uint64_t taken = plsim_own_bytes() + neighbour_bytes;
    uint64_t all = plsim_settings()->memory_bytes;
    return all > taken ? all - taken : 0;
}

void plsim_need_context(void) {
    plsim_start();
    has_context = true;
}

bool plsim_load_kernels(void) {
    const uint64_t wanted = plsim_settings()->library_bytes;
    if (library_bytes < wanted && plsim_free_bytes() >= wanted) library_bytes = wanted;
    return library_bytes >= wanted;
}

/* Another process comes between two questions of ours. */
static void let_neighbour_in(void) {
    const struct plsim_settings *s = plsim_settings();
    if (s->neighbour_bytes == 0 || neighbour_bytes > 0 || calls++ < s->neighbour_after) return;
    uint64_t left = plsim_free_bytes();
    neighbour_bytes = s->neighbour_bytes < left ? s->neighbour_bytes : left;
}

static struct plsim_allocation *add_allocation(size_t bytes, bool device) {
    struct plsim_allocation *a = malloc(sizeof *a);
    size_t whole = (bytes + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
    if (!a) return NULL;
    *a = (struct plsim_allocation){.p = aligned_alloc(ALIGN_BYTES, whole),
                                   .bytes = bytes,
                                   .device = device,
                                   .next = allocations};
    if (!a->p) {
        free(a);
        return NULL;
    }
    memset(a->p, POISON_BYTE, bytes);
    return allocations = a;
}

/* Unlinks the allocation that starts at p. */
static struct plsim_allocation *take_allocation(const void *p, bool device) {
    for (struct plsim_allocation **link = &allocations; *link; link = &(*link)->next)
        if ((*link)->p == p && (*link)->device == device) {
            struct plsim_allocation *a = *link;
            *link = a->next;
            return a;
        }
    return NULL;
}

/* Takes `taken` bytes of the device, of which the caller may use the first. */
static struct plsim_allocation *add_device(size_t bytes, size_t taken) {
    struct plsim_allocation *a = taken <= plsim_free_bytes() ? add_allocation(bytes, true) : NULL;
    if (!a) return NULL;
    a->taken = taken;
    plsim_counters.used_bytes += taken;
    if (plsim_counters.peak_bytes < plsim_counters.used_bytes)
        plsim_counters.peak_bytes = plsim_counters.used_bytes;
    return a;
}

static void give_device(struct plsim_allocation *a) {
    if (a->registered) plsim_die("device memory is freed that is registered with NCCL");
    plsim_counters.frees++;
    plsim_counters.used_bytes -= a->taken;
    plsim_watch_forget(a);
    free(a->p);
    free(a);
}

void *plsim_shared_take(size_t bytes) {
    plsim_need_context();
    let_neighbour_in();
    struct plsim_allocation *a =
        add_device(bytes, (bytes + UNIT_BYTES - 1) / UNIT_BYTES * UNIT_BYTES);
    if (!a) return NULL;
    a->shared = true;
    return a->p;
}

void plsim_shared_give(void *p) {
    struct plsim_allocation *a = take_allocation(p, true);
    if (!a || !a->shared) plsim_die("ncclMemFree: %p is not of ncclMemAlloc", p);
    if (plsim_has_work()) plsim_die("ncclMemFree: a stream may still use the memory");
    give_device(a);
}

cudaError_t cudaMalloc(void **out, size_t bytes) {
    int injected = plsim_injected(PLSIM_MALLOC);
    cudaError_t e = plsim_sticky();
    plsim_counters.mallocs++;
    if (e != cudaSuccess) return e;
    if (!out) return plsim_fail(cudaErrorInvalidValue);
    *out = NULL;
    if (plsim_forbidden() != cudaSuccess) return cudaErrorStreamCaptureUnsupported;
    plsim_need_context();
    let_neighbour_in();
    if (bytes == 0) return cudaSuccess;
    struct plsim_allocation *a = injected ? NULL : add_device(bytes, bytes);
    if (!a) {
        plsim_counters.failed_mallocs++;
        return plsim_fail(injected ? (cudaError_t)injected : cudaErrorMemoryAllocation);
    }
    *out = a->p;
    return cudaSuccess;
}

cudaError_t cudaFree(void *p) {
    cudaError_t e = plsim_sticky();
    if (!p) return e;
    if (plsim_forbidden() != cudaSuccess) return cudaErrorStreamCaptureUnsupported;
    plsim_drain_all(); /* cudaFree waits for the device */
    struct plsim_allocation *a = take_allocation(p, true);
    if (!a) return plsim_fail(cudaErrorInvalidValue);
    if (a->shared) plsim_die("cudaFree: %p is of ncclMemAlloc", p);
    give_device(a);
    return e;
}

cudaError_t cudaHostAlloc(void **out, size_t bytes, unsigned flags) {
    int injected = plsim_injected(PLSIM_HOSTALLOC);
    cudaError_t e = plsim_sticky();
    (void)flags;
    plsim_counters.host_mallocs++;
    if (e != cudaSuccess) return e;
    if (!out) return plsim_fail(cudaErrorInvalidValue);
    *out = NULL;
    if (plsim_forbidden() != cudaSuccess) return cudaErrorStreamCaptureUnsupported;
    if (bytes == 0) return cudaSuccess;
    struct plsim_allocation *a = injected ? NULL : add_allocation(bytes, false);
    if (!a) {
        plsim_counters.failed_host_mallocs++;
        return plsim_fail(injected ? (cudaError_t)injected : cudaErrorMemoryAllocation);
    }
    *out = a->p;
    return cudaSuccess;
}

cudaError_t cudaMallocHost(void **out, size_t bytes) {
    return cudaHostAlloc(out, bytes, 0);
}

cudaError_t cudaFreeHost(void *p) {
    cudaError_t e = plsim_sticky();
    if (!p) return e;
    if (plsim_forbidden() != cudaSuccess) return cudaErrorStreamCaptureUnsupported;
    /* Nothing that is documented makes it wait. */
    if (plsim_has_work()) plsim_die("pinned memory is freed while a stream may use it");
    struct plsim_allocation *a = take_allocation(p, false);
    if (!a) return plsim_fail(cudaErrorInvalidValue);
    free(a->p);
    free(a);
    return e;
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total) {
    cudaError_t e = plsim_sticky();
    if (e != cudaSuccess) return e;
    if (!free_bytes || !total) return plsim_fail(cudaErrorInvalidValue);
    plsim_need_context();
    let_neighbour_in();
    *free_bytes = plsim_free_bytes();
    *total = plsim_settings()->memory_bytes;
    return cudaSuccess;
}

/* ---- copies ---- */

struct plsim_allocation *plsim_holder(const void *p) {
    for (struct plsim_allocation *a = allocations; a; a = a->next)
        if ((const char *)p >= a->p && (const char *)p < a->p + a->bytes) return a;
    return NULL;
}

void plsim_check_device_range(const char *what, const void *p, size_t bytes) {
    const struct plsim_allocation *a = plsim_holder(p);
    if (!a || !a->device) plsim_die("%s: %p is not device memory", what, p);
    if (bytes > (size_t)(a->p + a->bytes - (const char *)p))
        plsim_die("%s: %zu bytes at offset %zu of an allocation of %zu bytes", what, bytes,
                  (size_t)((const char *)p - a->p), a->bytes);
}

/* A host range is anything, but if it is pinned memory it must be inside it. */
static void check_host_range(const char *what, const void *p, size_t bytes) {
    const struct plsim_allocation *a = plsim_holder(p);
    if (!a) return;
    if (a->device) plsim_die("%s: %p is device memory", what, p);
    if (bytes > (size_t)(a->p + a->bytes - (const char *)p))
        plsim_die("%s: %zu bytes at offset %zu of %zu pinned bytes", what, bytes,
                  (size_t)((const char *)p - a->p), a->bytes);
}

struct transfer {
    void *dst;
    const void *src;
    size_t bytes;
    enum cudaMemcpyKind kind;
};

static void check_transfer(const struct transfer *t) {
    static const struct {
        bool dst_is_device, src_is_device;
    } sides[] = {[cudaMemcpyHostToHost] = {false, false},
                 [cudaMemcpyHostToDevice] = {true, false},
                 [cudaMemcpyDeviceToHost] = {false, true},
                 [cudaMemcpyDeviceToDevice] = {true, true}};
    if (t->kind == cudaMemcpyDefault) return;
    (sides[t->kind].dst_is_device ? plsim_check_device_range : check_host_range)("copy to", t->dst,
                                                                                 t->bytes);
    (sides[t->kind].src_is_device ? plsim_check_device_range : check_host_range)("copy from",
                                                                                 t->src, t->bytes);
}

static void run_transfer(void *data) {
    const struct transfer *t = data;
    check_transfer(t);
    memmove(t->dst, t->src, t->bytes);
}

/* Runs a transfer; its bytes follow the structure. */
static void run_staged(void *data) {
    struct transfer t;
    memcpy(&t, data, sizeof t);
    memcpy(t.dst, (char *)data + sizeof t, t.bytes);
}

/* The driver takes bytes from memory that is not pinned at once, and writes them when the stream
 * reaches the copy. */
static void submit_staged(const struct transfer *t, cudaStream_t stream) {
    char *staged = malloc(sizeof *t + t->bytes);
    if (!staged) plsim_die("no memory to stage a copy");
    check_transfer(t);
    memcpy(staged, t, sizeof *t);
    memcpy(staged + sizeof *t, t->src, t->bytes);
    plsim_submit(stream, run_staged, staged, sizeof *t + t->bytes);
    free(staged);
}

static cudaError_t copy(const struct transfer *t, cudaStream_t stream) {
    int injected = plsim_injected(PLSIM_COPY);
    cudaError_t e = plsim_sticky();
    plsim_counters.copies++;
    if (e != cudaSuccess) return e;
    if (injected) return plsim_fail((cudaError_t)injected);
    if (t->bytes == 0) return cudaSuccess;
    if (t->kind < cudaMemcpyHostToHost || t->kind > cudaMemcpyDefault)
        return plsim_fail(cudaErrorInvalidMemcpyDirection);
    if (plsim_captures(stream)) {
        /* memory that is not pinned is read when the call is made, which a replay would not do */
        if (!plsim_holder(t->dst) || !plsim_holder(t->src)) return plsim_forbidden();
        check_transfer(t);
        return plsim_record(stream, run_transfer, t, sizeof *t, false);
    }
    if (!plsim_holder(t->dst)) { /* the host waits for copies to memory that is not pinned */
        plsim_drain(stream, UINT64_MAX);
        run_transfer((void *)(uintptr_t)t);
    } else if (!plsim_holder(t->src)) {
        submit_staged(t, stream);
    } else {
        check_transfer(t);
        plsim_submit(stream, run_transfer, (void *)(uintptr_t)t, sizeof *t);
    }
    return cudaSuccess;
}

cudaError_t cudaMemcpy(void *dst, const void *src, size_t bytes, enum cudaMemcpyKind kind) {
    const struct transfer t = {dst, src, bytes, kind};
    plsim_counters.syncs++;
    if (plsim_forbidden() != cudaSuccess) return cudaErrorStreamCaptureUnsupported;
    cudaError_t e = copy(&t, NULL);
    if (plsim_holder(src)) plsim_drain(NULL, UINT64_MAX);
    return e;
}

cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream) {
    const struct transfer t = {dst, src, bytes, kind};
    return copy(&t, stream);
}

cudaError_t cudaMemcpy2DAsync(void *dst, size_t dst_pitch, const void *src, size_t src_pitch,
                              size_t width, size_t height, enum cudaMemcpyKind kind,
                              cudaStream_t stream) {
    cudaError_t e = cudaSuccess;
    if (dst_pitch < width || src_pitch < width) return plsim_fail(cudaErrorInvalidPitchValue);
    for (size_t i = 0; i < height && e == cudaSuccess; i++) {
        const struct transfer t = {(char *)dst + i * dst_pitch, (const char *)src + i * src_pitch,
                                   width, kind};
        e = copy(&t, stream);
    }
    return e;
}

struct fill {
    void *p;
    int byte;
    size_t bytes;
};

static void run_fill(void *data) {
    const struct fill *f = data;
    plsim_check_device_range("fill", f->p, f->bytes);
    memset(f->p, f->byte, f->bytes);
}

cudaError_t cudaMemsetAsync(void *p, int byte, size_t bytes, cudaStream_t stream) {
    struct fill f = {p, byte, bytes};
    cudaError_t e = plsim_sticky();
    plsim_counters.memsets++;
    if (e != cudaSuccess || bytes == 0) return e;
    if (plsim_captures(stream)) return plsim_record(stream, run_fill, &f, sizeof f, false);
    plsim_check_device_range("fill", p, bytes);
    plsim_submit(stream, run_fill, &f, sizeof f);
    return cudaSuccess;
}

cudaError_t cudaMemset(void *p, int byte, size_t bytes) {
    cudaError_t e = plsim_forbidden();
    return e == cudaSuccess ? cudaMemsetAsync(p, byte, bytes, NULL) : e;
}

void plsim_memory_restart(void) {
    neighbour_bytes = library_bytes = 0;
    calls = 0;
    has_context = has_started = false;
}
