/* gemm_pack.c - copying blocks of the operands of a product, widened and turned as tiles want them.
 */
#include "runtime/kernels/cpu/gemm_pack.h"

#define GROUP PL_TILE_MAX_ROWS

/* Calls a function that takes a type as the constant that it is, for the type of a view. */
#define CASE(T, call)                                                                              \
    case PL_DTYPE_##T:                                                                             \
        call(PL_DTYPE_##T);                                                                        \
        break;
#define BY_TYPE(dtype, call)                                                                       \
    switch (dtype) {                                                                               \
        PL_FLOAT_LIST(CASE, call)                                                                  \
    default:                                                                                       \
        break;                                                                                     \
    }

typedef float vec4 __attribute__((vector_size(16)));
typedef float vec4_unaligned __attribute__((vector_size(16), aligned(sizeof(float)), may_alias));

/* ---- left ---- */

/* Columns of A as groups of [depth][GROUP], zeros after the last column. Whole rows of the block
 * are read, so that memory is read in stretches; the groups lie PL_GEMM_PAD rows apart. */
static inline __attribute__((always_inline)) void pack_columns(const struct pl_view *a,
                                                               const struct pl_block *at,
                                                               const enum pl_dtype dtype,
                                                               const size_t group, float *panel) {
    const uint64_t whole = at->side / GROUP, rest = at->side % GROUP;
    const uint64_t row_bytes = a->ld * pl_float_bytes(dtype);
    const char *row = pl_at(a, at->k0, at->side0);
    for (uint64_t k = at->depth; k > 0; k--, row += row_bytes, panel += GROUP) {
        const char *src = row;
        float *to = panel;
        for (uint64_t i = 0; i < whole; i++, to += group, src += GROUP * pl_float_bytes(dtype))
            pl_widen(to, src, dtype, GROUP);
        if (!rest) continue;
        pl_widen(to, src, dtype, rest);
        for (uint64_t i = rest; i < GROUP; i++)
            to[i] = 0.0f;
    }
}

static struct pl_left turn_left(const struct pl_view *a, const struct pl_block *at, float *panel) {
    const size_t group = GROUP * (at->depth + PL_GEMM_PAD);
#define PACK(dtype) pack_columns(a, at, dtype, group, panel)
    BY_TYPE(a->dtype, PACK)
#undef PACK
    return (struct pl_left){.p = panel, .rs = 1, .ks = GROUP, .group = group};
}

static struct pl_left widen_rows(const struct pl_view *a, const struct pl_block *at, float *panel) {
    const size_t ld = at->depth + PL_GEMM_PAD;
    for (uint64_t i = 0; i < at->side; i++)
        pl_widen(panel + i * ld, pl_at(a, at->side0 + i, at->k0), a->dtype, at->depth);
    return (struct pl_left){.p = panel, .rs = ld, .ks = 1, .group = GROUP * ld};
}

struct pl_left PL_LEVEL_NAME(pl_gemm_left)(const struct pl_view *a, bool k_first,
                                           const struct pl_block *at, float *panel) {
    if (k_first) return turn_left(a, at, panel);
    if (at->copied || pl_left_is_copied(a, k_first, false)) return widen_rows(a, at, panel);
    return (struct pl_left){
        .p = pl_at(a, at->side0, at->k0), .rs = a->ld, .ks = 1, .group = GROUP * a->ld};
}

/* ---- right ---- */

static inline __attribute__((always_inline)) void
copy_vectors(const struct pl_view *b, const struct pl_block *at, uint32_t width,
             const enum pl_dtype dtype, float *panel) {
    const uint64_t whole = at->side / PL_LANES * PL_LANES, side = at->side;
    const uint64_t element = pl_float_bytes(dtype), row_bytes = b->ld * element;
    const char *row = pl_at(b, at->k0, at->side0);
    for (uint64_t k = at->depth; k > 0; k--, row += row_bytes, panel += width) {
        for (uint64_t j = 0; j < whole; j += PL_LANES)
            pl_widen(panel + j, row + j * element, dtype, PL_LANES);
        if (whole == side) continue;
        pl_widen(panel + whole, row + whole * element, dtype, side - whole);
        for (uint64_t j = side; j < width; j++)
            panel[j] = 0.0f;
    }
}

static void copy_rows(const struct pl_view *b, const struct pl_block *at, uint32_t width,
                      float *panel) {
#define COPY(dtype) copy_vectors(b, at, width, dtype, panel)
    BY_TYPE(b->dtype, COPY)
#undef COPY
}

static inline __attribute__((always_inline)) vec4 load_4(const char *src,
                                                         const enum pl_dtype dtype) {
    vec4 x;
    if (dtype == PL_DTYPE_F32) return *(const vec4_unaligned *)src;
    pl_widen((float *)&x, src, dtype, 4);
    return x;
}

#define JOIN_4(a, b) __builtin_shufflevector(a, b, 0, 1, 2, 3, 4, 5, 6, 7)
#define JOIN_8(a, b)                                                                               \
    __builtin_shufflevector(a, b, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)

/* Four elements at the same place of rows 0, 4, 8, ... */
static inline __attribute__((always_inline)) pl_vec every_fourth(const char *src, uint64_t four,
                                                                 const enum pl_dtype dtype) {
    const vec4 row0 = load_4(src, dtype);
#if PL_LANES == 16
    const vec4 row4 = load_4(src + four, dtype), row8 = load_4(src + 2 * four, dtype);
    const vec4 row12 = load_4(src + 3 * four, dtype);
    return JOIN_8(JOIN_4(row0, row4), JOIN_4(row8, row12));
#elif PL_LANES == 8
    return JOIN_4(row0, load_4(src + four, dtype));
#else
    (void)four;
    return row0;
#endif
}

/* Every four lanes hold elements i, j of x, then k, l of y. */
#define QUAD(at, i, j, k, l) (at) + (i), (at) + (j), (at) + PL_LANES + (k), (at) + PL_LANES + (l)
#if PL_LANES == 16
#define QUADS(x, y, i, j, k, l)                                                                    \
    __builtin_shufflevector(x, y, QUAD(0, i, j, k, l), QUAD(4, i, j, k, l), QUAD(8, i, j, k, l),   \
                            QUAD(12, i, j, k, l))
#elif PL_LANES == 8
#define QUADS(x, y, i, j, k, l)                                                                    \
    __builtin_shufflevector(x, y, QUAD(0, i, j, k, l), QUAD(4, i, j, k, l))
#else
#define QUADS(x, y, i, j, k, l) __builtin_shufflevector(x, y, QUAD(0, i, j, k, l))
#endif

/* PL_LANES rows of `depth` elements, a multiple of 4, become as many columns: the shuffles of every
 * level turn 4 x 4 in each quarter of a register. */
static inline __attribute__((always_inline)) void turn(const char *src, uint64_t row_bytes,
                                                       uint64_t depth, uint32_t width,
                                                       const enum pl_dtype dtype, float *dst) {
    const uint64_t four = 4 * row_bytes;
    for (uint64_t k = 0; k < depth; k += 4, src += 4 * pl_float_bytes(dtype), dst += 4 * width) {
        const pl_vec r0 = every_fourth(src, four, dtype);
        const pl_vec r1 = every_fourth(src + row_bytes, four, dtype);
        const pl_vec r2 = every_fourth(src + 2 * row_bytes, four, dtype);
        const pl_vec r3 = every_fourth(src + 3 * row_bytes, four, dtype);
        const pl_vec p = QUADS(r0, r1, 0, 1, 0, 1), q = QUADS(r2, r3, 0, 1, 0, 1);
        const pl_vec s = QUADS(r0, r1, 2, 3, 2, 3), t = QUADS(r2, r3, 2, 3, 2, 3);
        *(pl_vec_unaligned *)dst = QUADS(p, q, 0, 2, 0, 2);
        *(pl_vec_unaligned *)(dst + width) = QUADS(p, q, 1, 3, 1, 3);
        *(pl_vec_unaligned *)(dst + 2 * width) = QUADS(s, t, 0, 2, 0, 2);
        *(pl_vec_unaligned *)(dst + 3 * width) = QUADS(s, t, 1, 3, 1, 3);
    }
}

/* Fewer rows than a vector has lanes, from copies next to rows of zeros. */
static void turn_few(const struct pl_view *b, const struct pl_block *at, uint64_t first,
                     uint64_t depth, uint32_t width, float *panel) {
    float rows[PL_LANES][PL_GEMM_DEPTH];
    for (uint64_t k = 0, n; k < depth; k += n) {
        n = pl_u64_min(PL_GEMM_DEPTH, depth - k);
        for (uint64_t i = 0; i < PL_LANES; i++)
            if (first + i < at->side)
                pl_widen(rows[i], pl_at(b, at->side0 + first + i, at->k0 + k), b->dtype, n);
            else
                memset(rows[i], 0, n * sizeof(float));
        turn((const char *)rows, sizeof rows[0], n, width, PL_DTYPE_F32, panel + k * width + first);
    }
}

static void turn_rows(const struct pl_view *b, const struct pl_block *at, uint32_t width,
                      float *panel) {
    const uint64_t rows = at->side / PL_LANES * PL_LANES, whole = at->depth / 4 * 4;
    const uint64_t row_bytes = b->ld * pl_float_bytes(b->dtype);
    for (uint64_t j = 0; j < rows; j += PL_LANES) {
        const char *src = pl_at(b, at->side0 + j, at->k0);
#define TURN(dtype) turn(src, row_bytes, whole, width, dtype, panel + j)
        BY_TYPE(b->dtype, TURN)
#undef TURN
    }
    if (rows < width) turn_few(b, at, rows, whole, width, panel);
    for (uint64_t k = whole; k < at->depth; k++)
        for (uint64_t j = 0; j < width; j++)
            if (j < at->side)
                pl_widen(panel + k * width + j, pl_at(b, at->side0 + j, at->k0 + k), b->dtype, 1);
            else
                panel[k * width + j] = 0.0f;
}

void PL_LEVEL_NAME(pl_gemm_right)(const struct pl_view *b, bool k_first, const struct pl_block *at,
                                  uint32_t width, float *panel) {
    if (k_first)
        copy_rows(b, at, width, panel);
    else
        turn_rows(b, at, width, panel);
}
