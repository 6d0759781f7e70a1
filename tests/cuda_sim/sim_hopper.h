/* sim_hopper.h - what the emulation of sm_90a shares between its files.
 *
 * sim_hopper.c: products. sim_load.c: barriers, and boxes that are loaded. sim_tensor_map.c: maps.
 * sim_unit.c: who brought each unit of 16 bytes of shared memory, and who reads it. The rules that
 * they hold a kernel to are W1 to W7 of runtime/kernels/cuda/hopper.cuh. */
#ifndef PL_TESTS_CUDA_SIM_SIM_HOPPER_H
#define PL_TESTS_CUDA_SIM_SIM_HOPPER_H

#include <cudaTypedefs.h>

#include <stdbool.h>
#include <stdint.h>

enum {
    PLSIM_UNIT = 16,        /* bytes that are swizzled together */
    PLSIM_ROW = 128,        /* bytes of a row of a swizzled tile */
    PLSIM_MOST_BARRIERS = 8 /* of a block */
};

/* ---- sim_unit.c ---- */

/* Returns the address of a byte of shared memory. Addresses begin at the least alignment that is
 * promised: at no multiple of 1024. */
uint32_t plsim_address(const void *p);
/* Returns the byte at an address, which `what` wants. */
unsigned char *plsim_at(uint32_t address, const char *what);

/* Returns the number of this interval between two barriers of a block, which never comes again. */
uint64_t plsim_interval(void);
/* Returns the pl_ptx_proxy_fence of a thread so far. */
uint32_t plsim_fences(uint32_t thread);

/* A block of so many threads begins. */
void plsim_units_forget(uint32_t threads);

/* A product of a warp reads a unit. It began after `loads` loads, and its threads have seen so many
 * phases of each barrier end. */
void plsim_unit_read(const unsigned char *p, uint32_t warp, uint64_t loads,
                     const uint32_t seen[PLSIM_MOST_BARRIERS]);
/* The running thread starts load number `load` to a unit; later the unit has come, in a phase of a
 * barrier. */
void plsim_unit_load(const unsigned char *p, uint64_t load);
void plsim_unit_loaded(const unsigned char *p, uint32_t barrier, uint32_t phase);

/* ---- sim_load.c ---- */

/* Returns the number of loads that were started so far. */
uint64_t plsim_loads(void);
/* Returns the number of phases of a barrier whose end a thread has seen. */
uint32_t plsim_phases_seen(uint32_t thread, uint32_t barrier);
/* Forgets the barriers of the block before; so many threads begin. */
void plsim_barriers_forget(uint32_t threads);
/* All threads of the block have met. */
void plsim_barriers_meet(uint32_t threads);

/* ---- sim_tensor_map.c ---- */

/* A tensor of 16-bit elements, and the box that is loaded of it. */
struct plsim_tensor {
    uint64_t mark; /* of a map that was made here */
    const unsigned char *p;
    uint64_t sizes[3], strides[2]; /* strides: of dimensions 1 and 2, in bytes */
    uint32_t box[3];
    uint32_t swizzled; /* bytes that units are exchanged within; 0 = none */
};
/* The function of the driver, for tests; kernels find it by cudaGetDriverEntryPointByVersion. */
CUresult cuTensorMapEncodeTiled(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank,
                                void *address, const cuuint64_t *sizes, const cuuint64_t *strides,
                                const cuuint32_t *box, const cuuint32_t *steps,
                                CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                                CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill);
/* Returns what a map holds; the process ends if nobody made it. */
struct plsim_tensor plsim_tensor_of(const CUtensorMap *map);

#endif
