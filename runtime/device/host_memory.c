/* host_memory.c - pages of the process, as arenas want them. */
#include "runtime/device/device.h"

#include "estimator/base/checked.h"

#include <errno.h>
#include <sys/mman.h>

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
