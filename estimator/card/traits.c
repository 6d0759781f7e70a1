/* traits.c - the back-ends as far as bytes are concerned. */
#include "estimator/card/traits.h"

#include "estimator/card/cards.h"

#include <sched.h>

/* 256 bytes: four cache lines, the alignment cudaMalloc gives, and enough for any vector load. */
#define ALIGN_BYTES 256

struct pl_traits pl_traits_cpu(uint32_t threads) {
    return (struct pl_traits){.backend = PL_BACKEND_CPU,
                              .align_bytes = ALIGN_BYTES,
                              .threads = threads ? threads : 1};
}

struct pl_traits pl_traits_cuda(uint32_t sm) {
    return (struct pl_traits){.backend = PL_BACKEND_CUDA,
                              .align_bytes = ALIGN_BYTES,
                              .threads = 1,
                              .sm = sm,
                              .pinned_bytes = PL_CUDA_STAGING_BYTES + PL_CUDA_RING_BYTES};
}

/* The kernel's mask may be wider than cpu_set_t. On the stack: a count that fell to 1 when memory
 * is short would be another plan. */
uint32_t pl_cpu_count(void) {
    enum { MOST_CPUS = 1 << 16 };
    cpu_set_t set[MOST_CPUS / CPU_SETSIZE];
    int count = sched_getaffinity(0, sizeof set, set) == 0 ? CPU_COUNT_S(sizeof set, set) : 0;
    return count > 0 ? (uint32_t)count : 1;
}

bool pl_traits_run(const struct pl_traits *t) {
    return t->backend != PL_BACKEND_CUDA || t->sm >= PL_CARD_OLDEST_SM;
}
