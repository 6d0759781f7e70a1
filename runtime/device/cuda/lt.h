/* lt.h - the functions of cuBLASLt that the products use, as a table filled when the device opens.
 *
 * The library is found at run time, so that a build with CUDA starts on machines without it. Every
 * pointer has the type its function has in cublasLt.h, which nothing else includes.
 * Needs: cublasLt.h of CUDA 12 or later.
 * Use: lt->cublasLtMatmul(handle, ...) */
#ifndef PL_RUNTIME_DEVICE_CUDA_LT_H
#define PL_RUNTIME_DEVICE_CUDA_LT_H

#include <cublasLt.h>

#ifdef __cplusplus
extern "C" {
#endif

#include "estimator/base/diag.h"

#define PL_LT_MAP(X)                                                                               \
    X(cublasLtCreate)                                                                              \
    X(cublasLtDestroy)                                                                             \
    X(cublasLtMatmul)                                                                              \
    X(cublasLtMatmulAlgoCheck)                                                                     \
    X(cublasLtMatmulAlgoConfigGetAttribute)                                                        \
    X(cublasLtMatmulAlgoGetHeuristic)                                                              \
    X(cublasLtMatmulDescCreate)                                                                    \
    X(cublasLtMatmulDescDestroy)                                                                   \
    X(cublasLtMatmulDescSetAttribute)                                                              \
    X(cublasLtMatmulPreferenceCreate)                                                              \
    X(cublasLtMatmulPreferenceDestroy)                                                             \
    X(cublasLtMatmulPreferenceSetAttribute)                                                        \
    X(cublasLtMatrixLayoutCreate)                                                                  \
    X(cublasLtMatrixLayoutDestroy)                                                                 \
    X(cublasLtMatrixLayoutSetAttribute)

struct pl_lt {
    void *library; /* of the loader */
#define X(function) __typeof__(function) *function;
    PL_LT_MAP(X)
#undef X
};

/* Finds the library - the one that PLIMSOLL_CUBLASLT names, else the versions of cuBLASLt that are
 * known to have these functions: those that the driver knows first, newest first, and the first
 * that starts - and fills the table. RUNTIME_NO_DEVICE says what is missing; RUNTIME_DEVICE_OOM:
 * the device has no memory for it. */
pl_err pl_lt_load(const struct pl_lt **out, struct pl_diag *d);
/* The table goes, the library stays in the process. NULL-safe; sets it to NULL. */
void pl_lt_unload(const struct pl_lt **lt);

#ifdef __cplusplus
}
#endif

#endif
