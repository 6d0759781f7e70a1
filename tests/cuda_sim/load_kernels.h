/* load_kernels.h - a kernel that loads one box and multiplies it by itself, and the mistakes it can
 * be told to make. */
#ifndef PL_TESTS_CUDA_SIM_LOAD_KERNELS_H
#define PL_TESTS_CUDA_SIM_LOAD_KERNELS_H

#include <cudaTypedefs.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { LOAD_ROWS = 64, LOAD_COLS = 64 };

/* X(name) */
#define LOAD_MISTAKES(X)                                                                           \
    X(BARRIER_NOT_FENCED)     /* the barrier is not shown to loads */                              \
    X(BARRIER_NOT_SHOWN)      /* nor to other threads */                                           \
    X(BYTES_NOT_EXPECTED)     /* the phase ends before the box comes */                            \
    X(TOO_FEW_BYTES)          /* fewer are expected than come */                                   \
    X(TOO_MANY_BYTES)         /* more are expected than come */                                    \
    X(NOT_WAITED)             /* nobody waits */                                                   \
    X(ONE_WARP_DOES_NOT_WAIT) /* the others do */                                                  \
    X(WAITS_FOR_PARITY_1)     /* for the phase before the first, which has ended */                \
    X(LOADS_TWICE)            /* to one place */                                                   \
    X(LOADS_WHILE_READ)       /* before the product has ended */                                   \
    X(LOADS_BEFORE_OTHERS)    /* after its own product, before a barrier */                        \
    X(CLEARS_UNFENCED)        /* zeros that products have not been shown */                        \
    X(CLEARS_UNSHOWN)         /* and no barrier */                                                 \
    X(CLEARS_UNWAITED)        /* before the box came */                                            \
    X(IS_LEFT_BEHIND)         /* the block ends before the box comes */                            \
    X(OVERWRITES_BARRIER)     /* by a box */                                                       \
    X(LOADS_OFF_ROWS)         /* to no multiple of 128 bytes */
enum load_mistake {
    NO_MISTAKE,
#define X(name) name,
    LOAD_MISTAKES(X)
#undef X
        LOAD_MISTAKES_END
};

/* The box at (col, head, row), by rows as they lie in the tensor; and its product with itself. */
void load_box(const CUtensorMap *map, const uint32_t at[3], enum load_mistake mistake,
              uint16_t *box, float *product);

#ifdef __cplusplus
}
#endif

#endif
