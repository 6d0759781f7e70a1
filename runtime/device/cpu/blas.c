/* blas.c - OpenBLAS, loaded when a device opens rather than linked.
 *
 * Planning a job must not pay for loading BLAS, and the program must start where it is missing.
 * One thread inside the library: the pool splits products itself, so that a product of a given
 * shape is always cut the same way. */
#include "runtime/device/cpu/cpu.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { CBLAS_ROW_MAJOR = 101, CBLAS_NO_TRANS = 111, CBLAS_TRANS = 112 }; /* cblas.h */

typedef void (*cblas_sgemm_fn)(int order, int trans_a, int trans_b, int m, int n, int k,
                               float alpha, const float *a, int lda, const float *b, int ldb,
                               float beta, float *c, int ldc);
typedef void (*set_threads_fn)(int n);

/* pl_sgemm_fn carries no context. Every load finds the same library, so one pointer does. */
static _Atomic(cblas_sgemm_fn) cblas_sgemm;

static void sgemm(int trans_a, int trans_b, int m, int n, int k, float alpha, const float *a,
                  int lda, const float *b, int ldb, float beta, float *c, int ldc) {
    atomic_load_explicit(&cblas_sgemm, memory_order_relaxed)(
        CBLAS_ROW_MAJOR, trans_a ? CBLAS_TRANS : CBLAS_NO_TRANS,
        trans_b ? CBLAS_TRANS : CBLAS_NO_TRANS, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}

/* OpenBLAS knows processors by model number and takes the oldest kernels for one it has not heard
 * of: 0.3.21 runs an Emerald Rapids as a Prescott, at an eighth of its rate. Instruction sets do
 * not age, so they decide; a user's own OPENBLAS_CORETYPE stands. */
static const struct {
    const char *level, *core;
} cores[] = {{"x86-64-v4", "SkylakeX"}, {"x86-64-v3", "Haswell"}};

static int set_environment(const char *level) {
    int failed = 0;
    for (size_t i = 0; i < sizeof cores / sizeof *cores; i++)
        if (strcmp(level, cores[i].level) == 0)
            failed |= setenv("OPENBLAS_CORETYPE", cores[i].core, 0);
    /* Read by the library's constructor; without it a team of idle threads would be made. */
    return failed | setenv("OPENBLAS_NUM_THREADS", "1", 1);
}

pl_err pl_blas_load(struct pl_cpu *cpu, struct pl_diag *d) {
    cblas_sgemm_fn product = NULL;
    set_threads_fn set_threads = NULL;
    if (set_environment(cpu->level))
        return pl_diag_set(d, PL_ERR_HOST_OOM, "out of memory for the environment");
    void *handle = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL);
    void *symbol = handle ? dlsym(handle, "cblas_sgemm") : NULL;
    if (!symbol) {
        const char *why = dlerror();
        pl_err err = pl_diag_set(d, PL_ERR_NO_DEVICE, "the CPU device needs OpenBLAS: %s",
                                 why ? why : "cblas_sgemm is missing");
        pl_diag_hint(d, "install it, for example: apt-get install libopenblas0");
        if (handle) dlclose(handle);
        return err;
    }
    /* ISO C has no cast from object to function pointer; POSIX says the bits are the same. */
    memcpy(&product, &symbol, sizeof product);
    /* Where someone else had loaded the library before the variable was set. */
    symbol = dlsym(handle, "openblas_set_num_threads");
    memcpy(&set_threads, &symbol, sizeof set_threads);
    if (set_threads) set_threads(1);
    atomic_store(&cblas_sgemm, product);
    cpu->blas_handle = handle;
    cpu->sgemm = sgemm;
    return PL_ERR_OK;
}

void pl_blas_unload(struct pl_cpu *cpu) {
    if (cpu->blas_handle) dlclose(cpu->blas_handle);
    cpu->blas_handle = NULL;
    cpu->sgemm = NULL;
}
