/* traits.c - the back-ends as far as bytes are concerned. */
#include "estimator/card/traits.h"

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

/* The kernel's mask may be wider than cpu_set_t: grow until it fits. */
uint32_t pl_cpu_count(void) {
    for (int cpus = 1024; cpus <= 1 << 20; cpus *= 2) {
        cpu_set_t *set = CPU_ALLOC(cpus);
        if (!set) return 1;
        size_t bytes = CPU_ALLOC_SIZE(cpus);
        int count = sched_getaffinity(0, bytes, set) == 0 ? CPU_COUNT_S(bytes, set) : 0;
        CPU_FREE(set);
        if (count > 0) return (uint32_t)count;
    }
    return 1;
}
