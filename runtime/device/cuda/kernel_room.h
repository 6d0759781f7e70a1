/* kernel_room.h - what the kernels of a GPU's libraries take when they are loaded, which is when
 * they first run.
 *
 * Out: bytes.  Needs: nothing. */
#ifndef PL_RUNTIME_DEVICE_CUDA_KERNEL_ROOM_H
#define PL_RUNTIME_DEVICE_CUDA_KERNEL_ROOM_H

#include <stdint.h>

/* A step loads ten to twenty of them, which take some tens of MiB: more than all of them. */
#define PL_KERNEL_ROOM (UINT64_C(128) << 20)

#endif
