/* traits.c - the back-ends as far as bytes are concerned. */
#include "estimator/card/traits.h"

/* 256 bytes: four cache lines, the alignment cudaMalloc gives, and enough for any vector load. */
#define CPU_ALIGN_BYTES 256

struct pl_traits pl_traits_cpu(uint32_t threads) {
    return (struct pl_traits){.backend = PL_BACKEND_CPU,
                              .align_bytes = CPU_ALIGN_BYTES,
                              .threads = threads ? threads : 1};
}
