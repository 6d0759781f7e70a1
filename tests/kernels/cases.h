/* cases.h - the arrays of conformance cases, one row per file. Each array ends with a case whose
 * name is NULL. */
#ifndef PL_TESTS_KERNELS_CASES_H
#define PL_TESTS_KERNELS_CASES_H

#include "tests/kernels/harness.h"

#define KERNEL_CASE_FILES(X)                                                                       \
    X(cases_linear)                                                                                \
    X(cases_grouped)                                                                               \
    X(cases_copy)                                                                                  \
    X(cases_rows)                                                                                  \
    X(cases_optim)                                                                                 \
    X(cases_norm)                                                                                  \
    X(cases_attention)                                                                             \
    X(cases_cached)                                                                                \
    X(cases_experts)                                                                               \
    X(cases_conv)                                                                                  \
    X(cases_delta)                                                                                 \
    X(cases_gates)                                                                                 \
    X(cases_loss)                                                                                  \
    X(cases_quant)                                                                                 \
    X(cases_ranks)

#define X(name) extern const struct kernel_case name[];
KERNEL_CASE_FILES(X)
#undef X

#endif
