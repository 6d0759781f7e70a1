/* lt.c - cuBLASLt, loaded when a device opens rather than linked:
 * estimates must not pay for it, and the program must start where it is missing. */
#include "runtime/device/cuda/lt.h"
#include "estimator/base/alloc.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

/* The loader searches for these; the last rows say where NVIDIA's installer puts the toolkit, which
 * few add to its search. */
static const char *const names[] = {
    "libcublasLt.so.13",
    "libcublasLt.so.12",
    "/usr/local/cuda/lib64/libcublasLt.so.13",
    "/usr/local/cuda/lib64/libcublasLt.so.12",
};

/* The context of the GPU lives until the process ends, with kernels in it that this library put
 * there: its code must not go before, so dlclose() only gives the reference back. */
#define FLAGS (RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE)

static void *open_library(void) {
    const char *given = getenv("PLIMSOLL_CUBLASLT");
    void *library = NULL;
    if (given && *given) return dlopen(given, FLAGS);
    for (size_t i = 0; i < sizeof names / sizeof *names && !library; i++)
        library = dlopen(names[i], FLAGS);
    return library;
}

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

pl_err pl_lt_load(const struct pl_lt **out, struct pl_diag *d) {
    const char *lacks = NULL;
    *out = NULL;
    struct pl_lt *lt = pl_calloc(1, sizeof *lt);
    if (!lt) return pl_host_oom(d, "cuBLASLt");
    lt->library = open_library();
    if (lt->library) lacks = find_functions(lt);
    if (lt->library && !lacks) {
        *out = lt;
        return PL_ERR_OK;
    }
    const char *why = lacks ? lacks : dlerror();
    pl_err err = pl_diag_set(d, PL_ERR_NO_DEVICE, "training on a GPU needs cuBLASLt 12 or 13: %s%s",
                             lacks ? "the library lacks " : "", why ? why : "it was not found");
    pl_diag_hint(d, "install libcublas of the CUDA toolkit, or name the library in "
                    "PLIMSOLL_CUBLASLT");
    if (lt->library) dlclose(lt->library);
    free(lt);
    return err;
}

void pl_lt_unload(const struct pl_lt **lt) {
    if (!*lt) return;
    dlclose((*lt)->library);
    free((void *)(uintptr_t)*lt);
    *lt = NULL;
}
