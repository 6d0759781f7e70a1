/* gemm_pack.c - copying blocks of the operands of a product, widened and turned as tiles want them.
 */
#include "runtime/kernels/cpu/gemm_pack.h"

#define GROUP PL_TILE_MAX_ROWS

typedef float vec4 __attribute__((vector_size(16)));
typedef float vec4_unaligned __attribute__((vector_size(16), aligned(sizeof(float)), may_alias));

/* ---- left ---- */

/* Groups whose pieces of a row are read together, so that memory is read in stretches. */
#define GROUPS 8

/* Columns [first, first + rows) of A as groups of [depth][GROUP], zeros behind the last column. */
static inline __attribute__((always_inline)) void
pack_groups(const struct pl_view *a, const struct pl_block *at, uint64_t first, uint64_t rows,
            const enum pl_dtype dtype, float *dst) {
    const uint64_t whole = rows / GROUP, rest = rows % GROUP;
    for (uint64_t k = 0; k < at->depth; k++) {
        const char *src = pl_at(a, at->k0 + k, at->side0 + first);
        float *to = dst + k * GROUP;
        for (uint64_t i = 0; i < whole;
             i++, to += GROUP * at->depth, src += GROUP * pl_float_bytes(dtype))
            pl_widen(to, src, dtype, GROUP);
        if (!rest) continue;
        pl_widen(to, src, dtype, rest);
        for (uint64_t i = rest; i < GROUP; i++)
            to[i] = 0.0f;
    }
}

static struct pl_left pack_columns(const struct pl_view *a, const struct pl_block *at,
                                   float *panel) {
    const size_t group = GROUP * at->depth;
    for (uint64_t i = 0; i < at->side; i += GROUPS * GROUP) {
        const uint64_t rows = pl_u64_min(at->side - i, GROUPS * GROUP);
        if (a->dtype == PL_DTYPE_F32)
            pack_groups(a, at, i, rows, PL_DTYPE_F32, panel + i * at->depth);
        else
            pack_groups(a, at, i, rows, PL_DTYPE_BF16, panel + i * at->depth);
    }
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
    if (k_first) return pack_columns(a, at, panel);
    if (pl_left_is_copied(a, k_first)) return widen_rows(a, at, panel);
    return (struct pl_left){
        .p = pl_at(a, at->side0, at->k0), .rs = a->ld, .ks = 1, .group = GROUP * a->ld};
}

/* ---- right ---- */

static void copy_rows(const struct pl_view *b, const struct pl_block *at, uint32_t width,
                      float *panel) {
    for (uint64_t k = 0; k < at->depth; k++, panel += width) {
        const void *src = pl_at(b, at->k0 + k, at->side0);
        if (at->side == PL_TILE_COLS) {
            pl_widen(panel, src, b->dtype, PL_TILE_COLS);
            continue;
        }
        pl_widen(panel, src, b->dtype, at->side);
        for (uint64_t j = at->side; j < width; j++)
            panel[j] = 0.0f;
    }
}

/* Rows of B that are turned together before k goes on: their part of the panel stays in the first
 * cache. */
#define TURNED_DEPTH 128

static inline __attribute__((always_inline)) vec4 load_4(const char *src,
                                                         const enum pl_dtype dtype) {
    vec4 x;
    if (dtype == PL_DTYPE_F32) return *(const vec4_unaligned *)src;
    pl_widen((float *)&x, src, dtype, 4);
    return x;
}

/* Four rows of `depth` elements, a multiple of 4, become four columns: the shuffles of every level
 * turn 4 x 4 in registers. */
static inline __attribute__((always_inline)) void turn_4(const char *src, uint64_t row_bytes,
                                                         uint64_t depth, uint32_t width,
                                                         const enum pl_dtype dtype, float *dst) {
    for (uint64_t k = 0; k < depth; k += 4, src += 4 * pl_float_bytes(dtype), dst += 4 * width) {
        const vec4 r0 = load_4(src, dtype), r1 = load_4(src + row_bytes, dtype);
        const vec4 r2 = load_4(src + 2 * row_bytes, dtype), r3 = load_4(src + 3 * row_bytes, dtype);
        const vec4 p = __builtin_shufflevector(r0, r1, 0, 4, 1, 5);
        const vec4 q = __builtin_shufflevector(r2, r3, 0, 4, 1, 5);
        const vec4 s = __builtin_shufflevector(r0, r1, 2, 6, 3, 7);
        const vec4 t = __builtin_shufflevector(r2, r3, 2, 6, 3, 7);
        *(vec4_unaligned *)dst = __builtin_shufflevector(p, q, 0, 1, 4, 5);
        *(vec4_unaligned *)(dst + width) = __builtin_shufflevector(p, q, 2, 3, 6, 7);
        *(vec4_unaligned *)(dst + 2 * width) = __builtin_shufflevector(s, t, 0, 1, 4, 5);
        *(vec4_unaligned *)(dst + 3 * width) = __builtin_shufflevector(s, t, 2, 3, 6, 7);
    }
}

static float element(const struct pl_view *b, uint64_t row, uint64_t col) {
    float x;
    pl_widen(&x, pl_at(b, row, col), b->dtype, 1);
    return x;
}

static void turn_rows(const struct pl_view *b, const struct pl_block *at, uint32_t width,
                      float *panel) {
    const uint64_t rows = at->side / 4 * 4, whole = at->depth / 4 * 4;
    const uint64_t row_bytes = b->ld * pl_float_bytes(b->dtype);
    for (uint64_t k = 0, depth; k < whole; k += depth) {
        depth = pl_u64_min(TURNED_DEPTH, whole - k);
        for (uint64_t j = 0; j < rows; j += 4) {
            const char *src = pl_at(b, at->side0 + j, at->k0 + k);
            float *dst = panel + k * width + j;
            if (b->dtype == PL_DTYPE_F32)
                turn_4(src, row_bytes, depth, width, PL_DTYPE_F32, dst);
            else
                turn_4(src, row_bytes, depth, width, PL_DTYPE_BF16, dst);
        }
    }
    for (uint64_t j = 0; j < width; j++) {
        const uint64_t from = j < rows ? whole : 0;
        for (uint64_t k = from; k < at->depth; k++)
            panel[k * width + j] = j < at->side ? element(b, at->side0 + j, at->k0 + k) : 0.0f;
    }
}

void PL_LEVEL_NAME(pl_gemm_right)(const struct pl_view *b, bool k_first, const struct pl_block *at,
                                  uint32_t width, float *panel) {
    if (k_first)
        copy_rows(b, at, width, panel);
    else
        turn_rows(b, at, width, panel);
}
