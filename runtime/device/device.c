/* device.c - what all back-ends share: opening, budgets, counters, injected failures. */
#include "runtime/device/device.h"

#include "estimator/base/alloc.h"
#include "estimator/base/checked.h"
#include "estimator/base/units.h"
#include "runtime/device/available.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/mman.h>

pl_err pl_device_open_at(const struct pl_back_end *back_end, uint32_t ordinal, uint32_t threads,
                         uint64_t budget_bytes, struct pl_device **out, struct pl_diag *d) {
    *out = NULL;
    struct pl_device *dev = pl_calloc(1, sizeof *dev);
    if (!dev) return pl_host_oom(d, back_end->ops->name);
    dev->ops = back_end->ops;
    dev->set = back_end->kernels;
    dev->ordinal = ordinal;
    dev->traits = pl_traits_cpu(threads);
    dev->budget_bytes = budget_bytes;
    pl_err err = dev->ops->open(dev, d);
    if (err != PL_ERR_OK) {
        free(dev);
        return err;
    }
    *out = dev;
    return PL_ERR_OK;
}

pl_err pl_device_open(const struct pl_back_end *back_end, uint32_t threads, uint64_t budget_bytes,
                      struct pl_device **out, struct pl_diag *d) {
    return pl_device_open_at(back_end, 0, threads, budget_bytes, out, d);
}

void pl_device_close(struct pl_device **dev) {
    if (!*dev) return;
    (*dev)->ops->close(*dev);
    free(*dev);
    *dev = NULL;
}

/* `calls` already counts the call at hand. The subtraction keeps count UINT64_MAX exact. */
static bool is_injected(const struct pl_inject *i, uint64_t calls) {
    return i->at && calls >= i->at && calls - i->at < i->count;
}

/* Linux lets a mapping succeed that it cannot back, and ends the process later: so what the machine
 * has is a limit like the budget. An injected failure reads like a real one: nothing is free. */
static pl_err check_limits(struct pl_device *dev, uint64_t bytes, const char *what,
                           struct pl_diag *d) {
    char asked[PL_BYTES_TEXT], left[PL_BYTES_TEXT];
    uint64_t free_bytes = 0;
    if (!is_injected(&dev->inject, dev->allocations)) {
        PL_TRY(dev->ops->free_bytes(dev, &free_bytes, d));
        free_bytes = pl_u64_min(free_bytes, dev->budget_bytes - dev->used_bytes);
        if (bytes <= free_bytes) return PL_ERR_OK;
    }
    return pl_diag_set(
        d, PL_ERR_DEVICE_OOM, "%s: asked for %s (%" PRIu64 " bytes), %s free (%" PRIu64 " bytes)",
        what, pl_bytes_text(bytes, asked), bytes, pl_bytes_text(free_bytes, left), free_bytes);
}

pl_err pl_arena_reserve(struct pl_device *dev, uint64_t bytes, const char *what,
                        struct pl_arena *out, struct pl_diag *d) {
    pl_err err;
    void *base = NULL;
    *out = (struct pl_arena){0};
    if (bytes == 0) return PL_ERR_OK;
    dev->allocations++;
    PL_TRY_GOTO(check_limits(dev, bytes, what, d), fail);
    PL_TRY_GOTO(dev->ops->alloc(dev, bytes, &base, d), fail);
    dev->used_bytes += bytes;
    dev->peak_bytes = pl_u64_max(dev->peak_bytes, dev->used_bytes);
    *out = (struct pl_arena){.base = base, .bytes = bytes};
    return PL_ERR_OK;
fail:
    dev->failed_allocations++;
    return err;
}

void pl_arena_release(struct pl_device *dev, struct pl_arena *a) {
    if (a->base) {
        dev->ops->release(dev, a->base, a->bytes);
        dev->used_bytes -= a->bytes;
    }
    *a = (struct pl_arena){0};
}

/* --- memory of the host ---------------------------------------------------------------------- */

/* Transparent huge pages save page faults and TLB misses of large arenas; they need alignment. */
#define HUGE_PAGE_BYTES (UINT64_C(2) << 20)

void *pl_host_map(uint64_t bytes) {
    uint64_t mapped;
    if (!pl_u64_add(bytes, HUGE_PAGE_BYTES, &mapped) || mapped > SIZE_MAX) {
        errno = ENOMEM;
        return NULL;
    }
    char *p = mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) return NULL;
    /* Give back what lies before the first huge page and after the arena's last page. */
    uint64_t head = -(uintptr_t)p & (HUGE_PAGE_BYTES - 1), keep = (bytes + 4095) & ~UINT64_C(4095);
    if (head) munmap(p, head);
    if (head + keep < mapped) munmap(p + head + keep, mapped - head - keep);
    p += head;
    if (bytes >= HUGE_PAGE_BYTES) (void)madvise(p, bytes, MADV_HUGEPAGE); /* advice only */
    return p;
}

void pl_host_unmap(void *p, uint64_t bytes) {
    munmap(p, bytes);
}

static pl_err check_host(struct pl_device *dev, enum pl_tensor_place place, uint64_t bytes,
                         const char *what, struct pl_diag *d) {
    char asked[PL_BYTES_TEXT], left[PL_BYTES_TEXT];
    uint64_t available = 0;
    bool injected = false;
    if (place == PL_PLACE_PINNED) {
        dev->pinned_allocations++;
        injected = is_injected(&dev->inject_pinned, dev->pinned_allocations);
    }
    if (!injected) {
        if (dev->ops == &pl_device_null) return PL_ERR_OK;
        available = pl_cpu_available().bytes;
        if (bytes <= available) return PL_ERR_OK;
    }
    return pl_diag_set(
        d, PL_ERR_HOST_OOM,
        "%s: asked for %s (%" PRIu64 " bytes) of %s memory, %s available (%" PRIu64 " bytes)", what,
        pl_bytes_text(bytes, asked), bytes, place == PL_PLACE_PINNED ? "pinned host" : "host",
        pl_bytes_text(available, left), available);
}

/* A back-end has one word for memory that it did not get; here it was the machine's. */
static pl_err refused_by_host(pl_err err, const char *what, const struct pl_diag *failure,
                              struct pl_diag *d) {
    return pl_diag_set(d, err == PL_ERR_DEVICE_OOM ? PL_ERR_HOST_OOM : err, "%s: %s", what,
                       failure->message);
}

pl_err pl_host_reserve(struct pl_device *dev, enum pl_tensor_place place, uint64_t bytes,
                       const char *what, struct pl_arena *out, struct pl_diag *d) {
    void *base = NULL;
    *out = (struct pl_arena){0};
    if (bytes == 0) return PL_ERR_OK;
    dev->host_allocations++;
    PL_TRY(check_host(dev, place, bytes, what, d));
    struct pl_diag failure = {0};
    pl_err err = dev->ops->host_alloc(dev, bytes, place == PL_PLACE_PINNED, &base, &failure);
    if (err != PL_ERR_OK) return refused_by_host(err, what, &failure, d);
    dev->host_bytes[place] += bytes;
    *out = (struct pl_arena){.base = base, .bytes = bytes};
    return PL_ERR_OK;
}

void pl_host_release(struct pl_device *dev, enum pl_tensor_place place, struct pl_arena *a) {
    if (a->base) {
        dev->ops->host_release(dev, a->base, a->bytes, place == PL_PLACE_PINNED);
        dev->host_bytes[place] -= a->bytes;
    }
    *a = (struct pl_arena){0};
}

pl_err pl_staging_reserve(struct pl_device *dev, struct pl_diag *d) {
    static const char what[] = "memory that copies pass through";
    struct pl_diag failure = {0};
    if (!dev->ops->pin || dev->staging) return PL_ERR_OK;
    PL_TRY(check_host(dev, PL_PLACE_PINNED, dev->traits.pinned_bytes, what, d));
    pl_err err = dev->ops->pin(dev, &failure);
    return err == PL_ERR_OK ? err : refused_by_host(err, what, &failure, d);
}
