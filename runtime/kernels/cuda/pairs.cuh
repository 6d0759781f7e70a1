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

enum {
    PL_PAIR_F32_F32, /* read, written */
    PL_PAIR_F32_BF16,
    PL_PAIR_BF16_F32,
    PL_PAIR_BF16_BF16,
    PL_PAIR_EITHER, /* mixed sources, or off 16 bytes */
    PL_PAIRS
};

#define PL_PAIR_INSTANCES(X, kernel)                                                               \
    X(kernel<float, float, 4>), X(kernel<float, __nv_bfloat16, 8>),                                \
        X(kernel<__nv_bfloat16, float, 8>), X(kernel<__nv_bfloat16, __nv_bfloat16, 8>),            \
        X(kernel<pl_either, pl_either, 1>)
#define PL_PAIR_ITSELF(...) __VA_ARGS__
#define PL_PAIR_TABLE(kernel)                                                                      \
    { PL_PAIR_INSTANCES(PL_PAIR_ITSELF, kernel) }
#define PL_PAIR_KERNELS(kernel) PL_PAIR_INSTANCES(PL_CUDA_KERNEL, kernel)

/* other: one more source, NULL or absent if there is none. */
static inline int pl_pair_of(const struct pl_view *src, const struct pl_view *other,
                             const struct pl_view *dst) {
    if (other && other->p && (other->dtype != src->dtype || !pl_is_aligned(other)))
        return PL_PAIR_EITHER;
    if (!pl_is_aligned(src) || !pl_is_aligned(dst)) return PL_PAIR_EITHER;
    return (src->dtype == PL_DTYPE_BF16) << 1 | (dst->dtype == PL_DTYPE_BF16);
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
