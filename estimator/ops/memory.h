/* memory.h - the memories of a job: that of the device, and two kinds of host memory. */
#ifndef PL_ESTIMATOR_OPS_MEMORY_H
#define PL_ESTIMATOR_OPS_MEMORY_H

/* The memory in which a tensor lies. Ops of the device reach DEVICE only, ops of the host the
 * others; copies go between DEVICE and PINNED. */
enum pl_tensor_place {
    PL_PLACE_DEVICE,
    PL_PLACE_PINNED, /* host memory that the device copies from and to by itself */
    PL_PLACE_HOST,   /* ordinary host memory */
    PL_PLACE_COUNT
};
const char *pl_place_name(enum pl_tensor_place p); /* "device", "pinned" or "host" */

#endif
