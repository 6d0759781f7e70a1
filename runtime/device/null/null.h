/* null.h - the counters of the null device, which tests look at. */
#ifndef PL_RUNTIME_DEVICE_NULL_NULL_H
#define PL_RUNTIME_DEVICE_NULL_NULL_H

#include "runtime/device/device.h"

struct pl_null {
    uint64_t next_address; /* of the next arena; addresses are never reused */
    uint64_t uploads, upload_bytes, downloads, download_bytes;
};

static inline struct pl_null *pl_null_of(struct pl_device *dev) {
    return dev->state;
}

#endif
