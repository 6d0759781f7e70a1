/* nvml.h - what a GPU is and what it has left, asked of the driver's management library.
 *
 * NVML makes no CUDA context, so a job can be judged before anything of CUDA runs. The library
 * belongs to the driver and is loaded for each question; its absence is an answer, not a fault.
 * Out: struct pl_gpu. Needs: estimator/base. No CUDA toolkit.
 *   N1  every call loads, asks and unloads: nothing is kept, no thread is made
 *   N2  GPUs are counted as CUDA counts them under CUDA_DEVICE_ORDER=PCI_BUS_ID: in the order of
 *       the bus, and only those that CUDA_VISIBLE_DEVICES names; of a GPU that is cut into slices
 *       (MIG) it is the slice that is described
 * Environment: PLIMSOLL_NVML names the library.
 * Use: struct pl_gpu gpu; pl_nvml_query(0, &gpu, &d); */
#ifndef PL_RUNTIME_DEVICE_CUDA_NVML_H
#define PL_RUNTIME_DEVICE_CUDA_NVML_H

#include "estimator/base/diag.h"

#include <stdbool.h>
#include <stdint.h>

struct pl_gpu {
    char name[96];                    /* "NVIDIA H100 80GB HBM3" */
    char uuid[96];                    /* "GPU-..." */
    char driver[80];                  /* "580.65.06"; "CUDA 13.0" where NVML is not there to ask */
    uint64_t total_bytes, free_bytes; /* free: at the time of the question */
    uint64_t process_bytes; /* held by this process; 0 = nothing, or the driver cannot tell */
    uint32_t sm;            /* compute capability times ten */
};

/* NO_DEVICE: no driver, no GPU, or none with this ordinal; d says which. */
bool pl_nvml_is_there(void); /* the library can be loaded */
pl_err pl_nvml_query(uint32_t ordinal, struct pl_gpu *out, struct pl_diag *d);

#endif
