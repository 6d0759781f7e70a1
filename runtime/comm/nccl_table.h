/* nccl_table.h - the functions of NCCL that ranks use, as a table filled when they open.
 *
 * The library is found at run time, so that a build with CUDA starts on machines without it. Every
 * pointer has the type its function has in nccl.h, which nothing else includes. Functions of later
 * versions are NULL if the library is older.
 * Needs: nccl.h of NCCL 2.18 or later.
 * Use: nccl->ncclSend(p, bytes, ncclInt8, peer, comm, stream) */
#ifndef PL_RUNTIME_COMM_NCCL_TABLE_H
#define PL_RUNTIME_COMM_NCCL_TABLE_H

#include "estimator/base/diag.h"

#include <nccl.h>

#define PL_NCCL_LEAST 21800 /* 2.18: the number of CTAs can be set */

#define PL_NCCL_MAP(X)                                                                             \
    X(ncclGetVersion)                                                                              \
    X(ncclGetUniqueId)                                                                             \
    X(ncclCommInitRankConfig)                                                                      \
    X(ncclCommFinalize)                                                                            \
    X(ncclCommDestroy)                                                                             \
    X(ncclCommAbort)                                                                               \
    X(ncclCommGetAsyncError)                                                                       \
    X(ncclGetErrorString)                                                                          \
    X(ncclGetLastError)                                                                            \
    X(ncclGroupStart)                                                                              \
    X(ncclGroupEnd)                                                                                \
    X(ncclSend)                                                                                    \
    X(ncclRecv)

/* A function of NCCL 2.29.7 and later: ncclCommMemStats(comm, ncclStatGpuMemTotal, &bytes). NCCL
 * User Guide, "ncclCommMemStats" and "ncclCommMemStat_t"; older headers do not declare it. */
typedef ncclResult_t (*pl_nccl_mem_stats)(ncclComm_t comm, int stat, uint64_t *value);
enum { PL_NCCL_STAT_TOTAL = 3 };
/* Functions of 2.19 and later: ncclCommRegister(comm, p, bytes, &handle), ncclCommDeregister(comm,
 * handle). NCCL User Guide, "ncclCommRegister", and "User Buffer Registration", which says what
 * they require of memory; the header of 2.18 does not declare them. Success without a handle means
 * that NCCL did not register the memory (NCCL_LOCAL_REGISTER=0, or memory that it cannot use). */
typedef ncclResult_t (*pl_nccl_register)(const ncclComm_t comm, void *p, size_t bytes,
                                         void **handle);
typedef ncclResult_t (*pl_nccl_deregister)(const ncclComm_t comm, void *handle);

/* Functions of 2.19 and later: ncclMemAlloc(&p, bytes), ncclMemFree(p); neither takes a
 * communicator. They are used from 2.26 on, which rounds the bytes to the granularity of an
 * allocation. Up to 2.25 they are rounded to the granularity of a multicast object, which may be
 * hundreds of MiB (allocator.cc). */
#define PL_NCCL_GIVES_MEMORY 22602
typedef ncclResult_t (*pl_nccl_mem_alloc)(void **p, size_t bytes);
typedef ncclResult_t (*pl_nccl_mem_free)(void *p);

struct pl_nccl {
    void *library; /* handle of the loader */
    int version;   /* e.g. 22809 for 2.28.9 */
#define X(function) __typeof__(function) *function;
    PL_NCCL_MAP(X)
#undef X
    pl_nccl_mem_stats mem_stats;          /* nullable */
    pl_nccl_register register_memory;     /* nullable, together */
    pl_nccl_deregister deregister_memory; /* with this one */
    pl_nccl_mem_alloc mem_alloc;          /* nullable, both or none */
    pl_nccl_mem_free mem_free;
};

/* Finds the library: PLIMSOLL_NCCL names one, else libnccl.so.2 as the loader finds it, else in
 * NVIDIA's wheels next to the program, else in the directories of NVIDIA's installers. COMM_INIT
 * says what is missing, or which version was found. */
pl_err pl_nccl_load(const struct pl_nccl **out, struct pl_diag *d);
/* Frees the table; the library stays in the process. NULL-safe; sets *nccl to NULL. */
void pl_nccl_unload(const struct pl_nccl **nccl);

#endif
