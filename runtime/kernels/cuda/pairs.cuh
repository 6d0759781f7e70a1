/* pairs.cuh - row kernels that read one storage type and write another.
 *
 * The forms of common.cuh want one storage for all operands; conversions, embeddings and gradients
 * have one for what they read and one for what they write, in any mix. A kernel here is
 * `template <typename S, typename D, int V> __global__`, S read, D written, V elements a pack.
 * Use: static void (*const kernels[PL_PAIRS])(args) = PL_PAIR_TABLE(kernel);
 *      int pair = pl_pair_of(&src, NULL, &dst);
 *      struct pl_rows_shape s = pl_rows_shape_of(rows, cols, pair);
 *      PL_LAUNCH(kernels[pair], s.grid, s.block, 0, stream, ...); */
#ifndef PL_RUNTIME_KERNELS_CUDA_PAIRS_CUH
#define PL_RUNTIME_KERNELS_CUDA_PAIRS_CUH

#include "runtime/kernels/cuda/common.cuh"

/* The pairs that go in packs: types that are read and written, of which one is fp32 or both are the
 * same; three for each narrow type. */
enum {
    PL_PAIR_F32_F32, /* read, written */
#define PL_PAIRS_OF(T) PL_PAIR_F32_##T, PL_PAIR_##T##_F32, PL_PAIR_##T##_##T,
    PL_NARROW_MAP(PL_PAIRS_OF) PL_PAIR_EITHER, /* mixed sources, or off 16 bytes */
#undef PL_PAIRS_OF
    PL_PAIRS
};

#define PL_PAIR_INSTANCES(T, kernel)                                                               \
    kernel<float, pl_stored_##T, 8>, kernel<pl_stored_##T, float, 8>,                              \
        kernel<pl_stored_##T, pl_stored_##T, 8>,
#define PL_PAIR_TABLE(kernel)                                                                      \
    {                                                                                              \
        kernel<float, float, 4>,                                                                   \
            PL_NARROW_LIST(PL_PAIR_INSTANCES, kernel) kernel<pl_either, pl_either, 1>              \
    }
#define PL_PAIR_KERNELS_OF(T, kernel)                                                              \
    PL_CUDA_KERNEL(kernel<float, pl_stored_##T, 8>),                                               \
        PL_CUDA_KERNEL(kernel<pl_stored_##T, float, 8>),                                           \
        PL_CUDA_KERNEL(kernel<pl_stored_##T, pl_stored_##T, 8>),
#define PL_PAIR_KERNELS(kernel)                                                                    \
    PL_CUDA_KERNEL(kernel<float, float, 4>),                                                       \
        PL_NARROW_LIST(PL_PAIR_KERNELS_OF, kernel) PL_CUDA_KERNEL(kernel<pl_either, pl_either, 1>)

/* other: one more source, NULL or absent if there is none. */
static inline int pl_pair_of(const struct pl_view *src, const struct pl_view *other,
                             const struct pl_view *dst) {
    if (other && other->p && (other->dtype != src->dtype || !pl_is_aligned(other)))
        return PL_PAIR_EITHER;
    if (!pl_is_aligned(src) || !pl_is_aligned(dst)) return PL_PAIR_EITHER;
    const enum pl_dtype s = src->dtype, d = dst->dtype;
    if (s == PL_DTYPE_F32 && d == PL_DTYPE_F32) return PL_PAIR_F32_F32;
#define PL_PAIR_IF(T)                                                                              \
    if (s == PL_DTYPE_F32 && d == PL_DTYPE_##T) return PL_PAIR_F32_##T;                            \
    if (s == PL_DTYPE_##T && d == PL_DTYPE_F32) return PL_PAIR_##T##_F32;                          \
    if (s == PL_DTYPE_##T && d == PL_DTYPE_##T) return PL_PAIR_##T##_##T;
    PL_NARROW_MAP(PL_PAIR_IF)
#undef PL_PAIR_IF
    return PL_PAIR_EITHER;
}

static inline unsigned pl_pair_lanes(int pair) {
    return pair == PL_PAIR_F32_F32 ? 4 : pair == PL_PAIR_EITHER ? 1 : 8;
}

/* A team of threads for each row, about a pack for each thread, several teams in a block: enough
 * loads are under way without a loop in the kernel. Row: blockIdx.x * blockDim.y + threadIdx.y. */
struct pl_rows_shape {
    dim3 grid, block;
};

#define PL_ROWS_BLOCK 256

static inline struct pl_rows_shape pl_rows_shape_of(uint64_t rows, uint64_t cols, int pair) {
    const unsigned lanes = pl_pair_lanes(pair);
    const unsigned team = pl_team_threads((cols + lanes - 1) / lanes, 1, PL_ROWS_BLOCK);
    const unsigned teams = pl_teams_of_block(team, PL_ROWS_BLOCK);
    struct pl_rows_shape s;
    s.grid = dim3((unsigned)((rows + teams - 1) / teams));
    s.block = dim3(team, teams);
    return s;
}

/* Rows a launch can have. */
static inline bool pl_rows_fit(uint64_t rows) {
    return rows <= PL_GRID_MAX;
}

#endif
