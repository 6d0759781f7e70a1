/* nccl_table.c - NCCL, loaded when ranks open rather than linked: a single GPU does not need it. */
#include "runtime/comm/nccl_table.h"
#include "estimator/base/alloc.h"
#include "runtime/comm/library.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

static const char *const names[] = {"libnccl.so.2", "nvidia/nccl/lib/libnccl.so.2",
                                    "/usr/local/cuda/lib64/libnccl.so.2"};

/* The context of the GPU lives until the process ends, with kernels in it that this library put
 * there: its code must not go before. */
#define FLAGS (RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE)

static void *open_library(void) {
    const char *given = getenv("PLIMSOLL_NCCL");
    void *library = NULL;
    if (given && *given) return dlopen(given, FLAGS);
    for (size_t i = 0; i < sizeof names / sizeof *names && !library; i++)
        library = pl_library_open(names[i], FLAGS);
    return library;
}

/* The name of the first function that the library lacks, NULL when it has all. */
static const char *find_functions(struct pl_nccl *nccl) {
    void *symbol;
/* ISO C has no cast from object to function pointer; POSIX says the bits are the same. */
#define X(function)                                                                                \
    symbol = dlsym(nccl->library, #function);                                                      \
    if (!symbol) return #function;                                                                 \
    memcpy(&nccl->function, &symbol, sizeof symbol);
    PL_NCCL_MAP(X)
#undef X
    return NULL;
}

/* Functions of later versions, which this library may lack. */
static void find_later_functions(struct pl_nccl *nccl) {
    void *symbol = dlsym(nccl->library, "ncclCommMemStats");
    memcpy(&nccl->mem_stats, &symbol, sizeof symbol);
    symbol = dlsym(nccl->library, "ncclCommDeregister");
    memcpy(&nccl->deregister_memory, &symbol, sizeof symbol);
    if (symbol) symbol = dlsym(nccl->library, "ncclCommRegister");
    memcpy(&nccl->register_memory, &symbol, sizeof symbol);
    if (nccl->version < PL_NCCL_GIVES_MEMORY) return;
    symbol = dlsym(nccl->library, "ncclMemFree");
    memcpy(&nccl->mem_free, &symbol, sizeof symbol);
    if (symbol) symbol = dlsym(nccl->library, "ncclMemAlloc");
    memcpy(&nccl->mem_alloc, &symbol, sizeof symbol);
}

static pl_err refuse_nccl(const char *what, const char *why, struct pl_diag *d) {
    pl_err err = pl_diag_set(d, PL_ERR_COMM_INIT, "ranks on GPUs need NCCL 2.18 or later: %s%s",
                             what, why ? why : "it was not found");
    pl_diag_hint(d, "install libnccl2, or name libnccl.so.2 in PLIMSOLL_NCCL");
    return err;
}

/* 2.9 and later count as 20900 and so on, older ones as 2804 (nccl.h, NCCL_VERSION). */
static pl_err check_version(const struct pl_nccl *nccl, struct pl_diag *d) {
    if (nccl->version >= PL_NCCL_LEAST) return PL_ERR_OK;
    int unit = nccl->version >= 10000 ? 10000 : 1000;
    pl_err err = pl_diag_set(d, PL_ERR_COMM_INIT,
                             "ranks on GPUs need NCCL 2.18 or later, and %d.%d.%d was found",
                             nccl->version / unit, nccl->version % unit / 100, nccl->version % 100);
    pl_diag_hint(d, "install libnccl2, or name libnccl.so.2 in PLIMSOLL_NCCL");
    return err;
}

pl_err pl_nccl_load(const struct pl_nccl **out, struct pl_diag *d) {
    const char *lacks = NULL;
    pl_err err;
    *out = NULL;
    struct pl_nccl *nccl = pl_calloc(1, sizeof *nccl);
    if (!nccl) return pl_host_oom(d, "NCCL");
    nccl->library = open_library();
    if (nccl->library) lacks = find_functions(nccl);
    if (!nccl->library)
        err = refuse_nccl("", dlerror(), d);
    else if (lacks)
        err = refuse_nccl("the library lacks ", lacks, d);
    else if (nccl->ncclGetVersion(&nccl->version) != ncclSuccess)
        err = refuse_nccl("", "the library does not tell its version", d);
    else
        err = check_version(nccl, d);
    if (err == PL_ERR_OK) find_later_functions(nccl);
    *out = nccl;
    if (err != PL_ERR_OK) pl_nccl_unload(out);
    return err;
}

void pl_nccl_unload(const struct pl_nccl **nccl) {
    if (!*nccl) return;
    if ((*nccl)->library) dlclose((*nccl)->library);
    free((void *)(uintptr_t)*nccl);
    *nccl = NULL;
}
