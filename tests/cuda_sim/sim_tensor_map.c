/* sim_tensor_map.c - tensor maps, by the rules that the driver's header gives for
 * cuTensorMapEncodeTiled. Other types, ranks, steps and interleaving, which no kernel here uses,
 * end the process. */
#include "tests/cuda_sim/sim.h"
#include "tests/cuda_sim/sim_hopper.h"

#include <stdlib.h>
#include <string.h>

enum { RANK = 3, ELEMENT = 2, MOST_BOX = 256, MAP_ALIGN = 64 };
#define MARK       UINT64_C(0x70616d726f736e74)
#define MOST_SIZE  (UINT64_C(1) << 32)
#define STRIDE_END (UINT64_C(1) << 40)
_Static_assert(sizeof(struct plsim_tensor) <= sizeof(CUtensorMap), "a map holds a tensor");

static bool are_sizes(const cuuint64_t *sizes, const cuuint32_t *box) {
    for (int i = 0; i < RANK; i++)
        if (!sizes[i] || sizes[i] > MOST_SIZE || !box[i] || box[i] > MOST_BOX) return false;
    return box[0] * ELEMENT % 16 == 0;
}

static bool are_strides(const cuuint64_t *strides) {
    for (int i = 0; i < RANK - 1; i++)
        if (strides[i] % 16 || strides[i] >= STRIDE_END) return false;
    return true;
}

static void need_emulated(CUtensorMapDataType type, cuuint32_t rank, const cuuint32_t *steps,
                          CUtensorMapInterleave interleave, CUtensorMapFloatOOBfill fill) {
    if (type != CU_TENSOR_MAP_DATA_TYPE_FLOAT16 && type != CU_TENSOR_MAP_DATA_TYPE_BFLOAT16)
        plsim_die("a tensor map of type %d is not emulated", (int)type);
    if (rank != RANK) plsim_die("a tensor map of %u dimensions is not emulated", rank);
    for (int i = 0; i < RANK; i++)
        if (steps[i] != 1) plsim_die("a tensor map with steps of %u is not emulated", steps[i]);
    if (interleave != CU_TENSOR_MAP_INTERLEAVE_NONE || fill != CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE)
        plsim_die("an interleaved tensor map, or one filled with NaN, is not emulated");
}

CUresult cuTensorMapEncodeTiled(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank,
                                void *address, const cuuint64_t *sizes, const cuuint64_t *strides,
                                const cuuint32_t *box, const cuuint32_t *steps,
                                CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                                CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill) {
    static const uint32_t spans[] = {0, 32, 64, 128}; /* by swizzle */
    need_emulated(type, rank, steps, interleave, fill);
    if ((uintptr_t)map % MAP_ALIGN || (uintptr_t)address % 16 || !are_sizes(sizes, box) ||
        !are_strides(strides) || swizzle > CU_TENSOR_MAP_SWIZZLE_128B ||
        promotion > CU_TENSOR_MAP_L2_PROMOTION_L2_256B ||
        (spans[swizzle] && box[0] * ELEMENT > spans[swizzle]) || plsim_settings()->sm < 90)
        return CUDA_ERROR_INVALID_VALUE;
    struct plsim_tensor t = {.mark = MARK, .p = address, .swizzled = spans[swizzle]};
    memcpy(t.sizes, sizes, sizeof t.sizes);
    memcpy(t.strides, strides, sizeof t.strides);
    memcpy(t.box, box, sizeof t.box);
    memset(map, 0, sizeof *map);
    memcpy(map, &t, sizeof t);
    return CUDA_SUCCESS;
}

struct plsim_tensor plsim_tensor_of(const CUtensorMap *map) {
    struct plsim_tensor t;
    if ((uintptr_t)map % MAP_ALIGN) plsim_die("a tensor map that is not aligned to 64 bytes");
    memcpy(&t, map, sizeof t);
    if (t.mark != MARK) plsim_die("a load by a tensor map that was not made");
    return t;
}

/* The driver has the function since CUDA 12.0. */
cudaError_t cudaGetDriverEntryPointByVersion(const char *symbol, void **function, unsigned version,
                                             unsigned long long flags,
                                             enum cudaDriverEntryPointQueryResult *found) {
    const bool is_known = strcmp(symbol, "cuTensorMapEncodeTiled") == 0;
    *function = NULL;
    if (flags != cudaEnableDefault || (int)version > plsim_settings()->driver)
        return plsim_fail(cudaErrorInvalidValue);
    *found = is_known ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
    if (is_known && version < 12000) *found = cudaDriverEntryPointVersionNotSufficent;
    if (*found == cudaDriverEntryPointSuccess)
        *function = (void *)(uintptr_t)cuTensorMapEncodeTiled;
    return cudaSuccess;
}
