/* lt.c - cuBLASLt, loaded when a device opens rather than linked:
 * estimates must not pay for it, and the program must start where it is missing. */
#include "runtime/device/cuda/lt.h"
#include "estimator/base/alloc.h"
#include "runtime/comm/library.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* The loader searches for the first two; the next two come with NVIDIA's wheels; the last rows say
 * where NVIDIA's installer puts the toolkit, which few add to its search. `version`: the CUDA that
 * a driver must know for a library to start. */
static const struct {
    int version;
    const char *name;
} libraries[] = {
    {13000, "libcublasLt.so.13"},
    {12000, "libcublasLt.so.12"},
    {13000, "nvidia/cu13/lib/libcublasLt.so.13"},
    {12000, "nvidia/cublas/lib/libcublasLt.so.12"},
    {13000, "/usr/local/cuda/lib64/libcublasLt.so.13"},
    {12000, "/usr/local/cuda/lib64/libcublasLt.so.12"},
};

/* The context of the GPU lives until the process ends, with kernels in it that this library put
 * there: its code must not go before, so dlclose() only gives the reference back. */
#define FLAGS (RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE)

#define NEEDS "training on a GPU needs cuBLASLt 12 or 13: "

/* The name of the first function the library lacks, NULL when it has all. */
static const char *find_functions(struct pl_lt *lt) {
    void *symbol;
/* ISO C has no cast from object to function pointer; POSIX says the bits are the same. */
#define X(function)                                                                                \
    symbol = dlsym(lt->library, #function);                                                        \
    if (!symbol) return #function;                                                                 \
    memcpy(&lt->function, &symbol, sizeof symbol);
    PL_LT_MAP(X)
#undef X
    return NULL;
}

/* A library that was found may be newer than the driver: only a handle shows that it works. */
static pl_err start(const struct pl_lt *lt, const char *name, struct pl_diag *d) {
    cublasLtHandle_t handle = NULL;
    const cublasStatus_t s = lt->cublasLtCreate(&handle);
    if (s == CUBLAS_STATUS_ALLOC_FAILED)
        return pl_diag_set(d, PL_ERR_DEVICE_OOM, "cuBLASLt is out of memory starting");
    if (s != CUBLAS_STATUS_SUCCESS)
        return pl_diag_set(d, PL_ERR_NO_DEVICE, NEEDS "%s does not start (status %d)", name,
                           (int)s);
    (void)lt->cublasLtDestroy(handle);
    return PL_ERR_OK;
}

/* *found: true if there is such a library. */
static pl_err try_library(struct pl_lt *lt, const char *name, bool *found, struct pl_diag *d) {
    lt->library = pl_library_open(name, FLAGS);
    *found = lt->library != NULL;
    if (!*found) {
        const char *why = dlerror();
        return pl_diag_set(d, PL_ERR_NO_DEVICE, NEEDS "%s", why ? why : "it was not found");
    }
    const char *lacks = find_functions(lt);
    const pl_err err = lacks ? pl_diag_set(d, PL_ERR_NO_DEVICE, NEEDS "%s lacks %s", name, lacks)
                             : start(lt, name, d);
    if (err == PL_ERR_OK) return err;
    dlclose(lt->library);
    lt->library = NULL;
    return err;
}

/* The libraries that the driver knows come first: an older driver may share a machine with a
 * library that another program brought. A library that is there and does not work is worth more
 * words than one that is not there. */
static pl_err find_library(struct pl_lt *lt, struct pl_diag *d) {
    struct pl_diag worst = {0};
    int driver = 0;
    bool any_found = false;
    if (cudaDriverGetVersion(&driver) != cudaSuccess) (void)cudaGetLastError();
    for (int newer = 0; newer < 2; newer++)
        for (size_t i = 0; i < sizeof libraries / sizeof *libraries; i++) {
            struct pl_diag one = {0};
            bool found;
            if ((libraries[i].version > driver) != newer) continue;
            if (try_library(lt, libraries[i].name, &found, &one) == PL_ERR_OK) return PL_ERR_OK;
            if (worst.err == PL_ERR_OK || (found && !any_found)) worst = one;
            any_found |= found;
        }
    return pl_diag_set(d, worst.err, "%s", worst.message);
}

pl_err pl_lt_load(const struct pl_lt **out, struct pl_diag *d) {
    *out = NULL;
    struct pl_lt *lt = pl_calloc(1, sizeof *lt);
    if (!lt) return pl_host_oom(d, "cuBLASLt");
    const char *given = getenv("PLIMSOLL_CUBLASLT");
    bool found;
    const pl_err err = given && *given ? try_library(lt, given, &found, d) : find_library(lt, d);
    if (err == PL_ERR_OK) {
        *out = lt;
        return err;
    }
    if (err == PL_ERR_NO_DEVICE)
        pl_diag_hint(d, "install libcublas of the CUDA toolkit, or name the library in "
                        "PLIMSOLL_CUBLASLT");
    free(lt);
    return err;
}

void pl_lt_unload(const struct pl_lt **lt) {
    if (!*lt) return;
    dlclose((*lt)->library);
    free((void *)(uintptr_t)*lt);
    *lt = NULL;
}
