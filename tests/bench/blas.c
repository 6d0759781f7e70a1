/* blas.c - OpenBLAS, loaded where it is installed. */
#include "tests/bench/blas.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

enum { CBLAS_ROW_MAJOR = 101, CBLAS_NO_TRANS = 111, CBLAS_TRANS = 112 }; /* cblas.h */

typedef void (*cblas_sgemm_fn)(int order, int trans_a, int trans_b, int m, int n, int k,
                               float alpha, const float *a, int lda, const float *b, int ldb,
                               float beta, float *c, int ldc);
typedef void (*set_threads_fn)(int n);

static cblas_sgemm_fn cblas_sgemm;

void blas_sgemm(bool trans_a, bool trans_b, const struct pl_view *a, const struct pl_view *b,
                const struct pl_view *c) {
    cblas_sgemm(CBLAS_ROW_MAJOR, trans_a ? CBLAS_TRANS : CBLAS_NO_TRANS,
                trans_b ? CBLAS_TRANS : CBLAS_NO_TRANS, (int)c->rows, (int)c->cols,
                (int)(trans_a ? a->rows : a->cols), 1.0f, a->p, (int)a->ld, b->p, (int)b->ld, 0.0f,
                c->p, (int)c->ld);
}

/* OpenBLAS knows processors by model number and takes the oldest kernels for one it has not heard
 * of: 0.3.21 runs an Emerald Rapids as a Prescott, at an eighth of its rate. Instruction sets do
 * not age, so they decide; a user's own OPENBLAS_CORETYPE stands. */
static const struct {
    const char *level, *core;
} cores[] = {{"x86-64-v4+bf16", "SkylakeX"}, {"x86-64-v4", "SkylakeX"}, {"x86-64-v3", "Haswell"}};

static int set_environment(const char *level) {
    int failed = 0;
    for (size_t i = 0; i < sizeof cores / sizeof *cores; i++)
        if (strcmp(level, cores[i].level) == 0)
            failed |= setenv("OPENBLAS_CORETYPE", cores[i].core, 0);
    /* Read by the library's constructor; without it a team of idle threads would be made. */
    return failed | setenv("OPENBLAS_NUM_THREADS", "1", 1);
}

bool blas_load(const char *level) {
    set_threads_fn set_threads = NULL;
    if (cblas_sgemm) return true;
    if (set_environment(level)) return false;
    void *handle = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL);
    if (!handle) return false;
    /* ISO C has no cast from object to function pointer; POSIX says the bits are the same. */
    void *symbol = dlsym(handle, "cblas_sgemm");
    memcpy(&cblas_sgemm, &symbol, sizeof symbol);
    symbol = dlsym(handle, "openblas_set_num_threads");
    memcpy(&set_threads, &symbol, sizeof symbol);
    if (set_threads) set_threads(1);
    return cblas_sgemm != NULL;
}
