/* debug_fault.h - the faults that `debug_inject` names. */
#ifndef PL_ESTIMATOR_CONFIG_DEBUG_FAULT_H
#define PL_ESTIMATOR_CONFIG_DEBUG_FAULT_H

#include <stdbool.h>
#include <stdint.h>

/* The kind of an entry of debug_inject, `kind@unit=N[,count=K|,forever]`. */
enum pl_fault_kind {
    PL_FAULT_DEVICE_OOM_ALLOC, /* device_oom@alloc=N: device allocation N fails */
    PL_FAULT_DEVICE_OOM_STEP,  /* device_oom@step=N: the device runs out of memory in step N */
    PL_FAULT_OVERFLOW_STEP,    /* overflow@step=N: the gradients of step N are not finite, nor those
                                  of the count - 1 steps after it */
    PL_FAULT_DEVICE_OOM_OP,    /* device_oom@op=N: in place of operation N of the run's steps */
    PL_FAULT_PINNED_OOM_ALLOC, /* pinned_oom@alloc=N: request N for pinned host memory fails */
    PL_FAULT_DISK_FULL_WRITE,  /* disk_full@write=N: file write N fails */
    PL_FAULT_HOST_OOM_ALLOC,   /* host_oom@alloc=N: request N for host memory fails, counted from
                                  the pre-flight on */
};
struct pl_fault {
    enum pl_fault_kind kind;
    uint64_t at, count; /* 1-based; count UINT64_MAX = for ever, 1 when not given */
};
/* Parses one entry. Returns false for anything else and leaves *out unchanged. pl_job_validate has
 * checked every entry. */
bool pl_fault_parse(const char *text, struct pl_fault *out);

#endif
