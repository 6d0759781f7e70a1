/* tile_run.c - one function per size of a tile, so that its sums are registers. */
#include "runtime/kernels/cpu/tile_store.h"

/* sum += x column. */
static inline __attribute__((always_inline)) pl_vec add_product(pl_vec sum, float x, pl_vec column,
                                                                const int elements) {
#if PL_HAS_PAIRS
    if (elements == PL_TILE_PAIRS) return pl_vec_add_pairs(sum, (pl_vec)_mm512_set1_ps(x), column);
#endif
    (void)elements;
    return sum + x * column;
}

/* Half a vector, where a vector has 512 bits. */
#if PL_LANES == 16
enum { HAS_HALVES = 1 };
typedef __m256 half_vec;

static inline __attribute__((always_inline)) half_vec load_half(const float *p) {
    return _mm256_loadu_ps(p);
}

/* sum += x column. */
static inline __attribute__((always_inline)) half_vec
add_half_product(half_vec sum, float x, half_vec column, const int elements) {
#if PL_HAS_PAIRS
    if (elements == PL_TILE_PAIRS)
        return _mm256_dpbf16_ps(sum, (__m256bh)_mm256_set1_ps(x), (__m256bh)column);
#endif
    (void)elements;
    return sum + x * column;
}

/* Returns a vector whose second half is zeros. */
static inline __attribute__((always_inline)) pl_vec whole_of(half_vec x) {
    return (pl_vec)_mm512_zextps256_ps512(x);
}
#else
enum { HAS_HALVES = 0 };
typedef pl_vec half_vec;
#define load_half(p)                        pl_vec_load(p)
#define add_half_product(sum, x, column, e) add_product(sum, x, column, e)
#define whole_of(x)                         (x)
#endif

/* Lines of each kind that are prefetched together: processors drop prefetches that come in a burst.
 */
enum { LINES = 2 };

static inline __attribute__((always_inline)) void ask(struct pl_ahead *a) {
    for (int i = 0; i < LINES && a->rows > 0; i++) {
        __builtin_prefetch(a->p + a->at, 0, 2);
        a->at += PL_CACHE_LINE;
        if (a->at < a->bytes) continue;
        a->at = 0;
        a->p += a->row_bytes;
        a->rows--;
    }
}

/* The source of a row of a panel is prefetched so many rows before. */
enum { SOON = 2 };

static inline __attribute__((always_inline)) void carry(struct pl_carry *c) {
#if PL_HAS_PAIRS
    const size_t vector_bytes = PL_LANES * sizeof(uint16_t);
    for (uint32_t i = 0; i < c->each && c->rows > 0; i++) {
        const char *second = c->from + c->second;
        *(pl_vec_unaligned *)c->to = pl_vec_join(_mm256_loadu_si256((const void *)c->from),
                                                 _mm256_loadu_si256((const void *)second));
        __builtin_prefetch(c->from + SOON * c->row_bytes, 0, 3);
        __builtin_prefetch(second + SOON * c->row_bytes, 0, 3);
        c->to += PL_LANES;
        c->from += vector_bytes;
        if (++c->at < c->vectors) continue;
        c->at = 0;
        c->rows--;
        c->from += c->row_bytes - c->vectors * vector_bytes;
        c->to += c->pitch - c->vectors * PL_LANES;
    }
#else
    (void)c;
#endif
}

/* The loop over k. carries and half are constants: a loop without a carry has registers to spare,
 * and one with a half computes the first half of the last vector. */
static inline __attribute__((always_inline)) void
sum_up(const struct pl_tile *t, pl_vec (*sum)[PL_TILE_VECTORS], const int elements, const int rows,
       const int vectors, const bool carries, const bool half) {
    const int whole = vectors - half;
    half_vec halves[PL_TILE_MAX_ROWS];
    if (half) PL_UNROLLED for (int r = 0; r < rows; r++) halves[r] = (half_vec){0};
    const float *a = t->a, *b = t->b;
    const size_t rs = t->rs, ks = t->ks, ldb = t->ldb;
    struct pl_ahead left = t->ahead[0], right = t->ahead[1];
    struct pl_carry carried = t->carry;
    for (size_t k = 0; k < t->k; k += PL_TILE_STEPS) {
        ask(&left);
        ask(&right);
        if (carries) carry(&carried);
        for (size_t n = pl_u64_min(PL_TILE_STEPS, t->k - k); n > 0; n--, a += ks, b += ldb) {
            pl_vec column[PL_TILE_VECTORS];
            half_vec last = {0};
            PL_UNROLLED for (int v = 0; v < whole; v++) column[v] = pl_vec_load(b + v * PL_LANES);
            if (half) last = load_half(b + whole * PL_LANES);
            PL_UNROLLED for (int r = 0; r < rows; r++) {
                const float x = a[(size_t)r * rs];
                PL_UNROLLED for (int v = 0; v < whole; v++) sum[r][v] =
                    add_product(sum[r][v], x, column[v], elements);
                if (half) halves[r] = add_half_product(halves[r], x, last, elements);
            }
        }
    }
    if (half) PL_UNROLLED for (int r = 0; r < rows; r++) sum[r][whole] = whole_of(halves[r]);
}

/* The tile below is the next one: its part of C is prefetched while this one is computed. A
 * prefetch after the last row does no harm. */
static inline __attribute__((always_inline)) void
multiply(const struct pl_tile *t, const int elements, const int rows, const int vectors) {
    pl_vec sum[PL_TILE_MAX_ROWS][PL_TILE_VECTORS];
    const char *below = t->end ? (const char *)t->end : (const char *)t->c;
    const size_t below_ld = t->end ? t->ldend * sizeof(uint16_t) : t->ldc * sizeof(float);
    const int row_bytes = vectors * PL_LANES * (int)sizeof(float);
    PL_UNROLLED for (int r = 0; r < rows; r++) {
        PL_UNROLLED for (int v = 0; v < vectors; v++) sum[r][v] = (pl_vec){0};
        if (elements != PL_TILE_PAIRS || vectors != PL_TILE_LINE || !t->streams)
            PL_UNROLLED for (int at = 0; at < row_bytes; at += PL_CACHE_LINE)
                __builtin_prefetch(below + (size_t)(r + rows) * below_ld + at, 1);
    }
    /* Tiles of fewer rows are at edges alone. */
    const bool has_half = HAS_HALVES && rows == (vectors == 1 ? PL_TILE_MAX_ROWS : PL_TILE_ROWS);
    const bool carries = elements == PL_TILE_PAIRS && t->carry.rows > 0;
    if (carries && has_half && t->half)
        sum_up(t, sum, elements, rows, vectors, true, true);
    else if (carries)
        sum_up(t, sum, elements, rows, vectors, true, false);
    else if (has_half && t->half)
        sum_up(t, sum, elements, rows, vectors, false, true);
    else
        sum_up(t, sum, elements, rows, vectors, false, false);
    if (t->end)
        pl_tile_round_off(t, sum, elements, rows, vectors);
    else
        pl_tile_store(t, sum, rows, vectors);
}

#define TILE_NAME(elements, rows, vectors) multiply_##elements##_##rows##x##vectors
#define TILE(elements, rows, vectors)                                                              \
    static void TILE_NAME(elements, rows, vectors)(const struct pl_tile *t) {                      \
        multiply(t, elements, rows, vectors);                                                      \
    }
#define NARROW(elements, rows) TILE(elements, rows, 1)
#define NARROW_ENTRY(elements, rows)                                                               \
    { TILE_NAME(elements, rows, 1) }
#if PL_TILE_VECTORS == 3
#define WIDE(elements, rows) TILE(elements, rows, 1) TILE(elements, rows, 2) TILE(elements, rows, 3)
#define WIDE_ENTRY(elements, rows)                                                                 \
    { TILE_NAME(elements, rows, 1), TILE_NAME(elements, rows, 2), TILE_NAME(elements, rows, 3) }
#else
#define WIDE(elements, rows) TILE(elements, rows, 1) TILE(elements, rows, 2)
#define WIDE_ENTRY(elements, rows)                                                                 \
    { TILE_NAME(elements, rows, 1), TILE_NAME(elements, rows, 2) }
#endif

/* W(elements, rows) or N(elements, rows) for every number of rows: W where tiles of any width have
 * so many, N where those of one vector do. */
#define ROWS_TO_6(W, e)    W(e, 1) W(e, 2) W(e, 3) W(e, 4) W(e, 5) W(e, 6)
#define ROWS_9_TO_12(N, e) N(e, 9) N(e, 10) N(e, 11) N(e, 12)
#if PL_TILE_ROWS == 8
#define ALL_ROWS(W, N, e)                                                                          \
    ROWS_TO_6(W, e) W(e, 7) W(e, 8) ROWS_9_TO_12(N, e) N(e, 13) N(e, 14) N(e, 15) N(e, 16)
#else
#define ALL_ROWS(W, N, e) ROWS_TO_6(W, e) N(e, 7) N(e, 8) ROWS_9_TO_12(N, e)
#endif
#define WIDE_ROW(e, rows)   WIDE_ENTRY(e, rows),
#define NARROW_ROW(e, rows) NARROW_ENTRY(e, rows),

ALL_ROWS(WIDE, NARROW, PL_TILE_NUMBERS)
#if PL_HAS_PAIRS
ALL_ROWS(WIDE, NARROW, PL_TILE_PAIRS)
#endif

static void (*const tiles[][PL_TILE_MAX_ROWS][PL_TILE_VECTORS])(const struct pl_tile *t) = {
    [PL_TILE_NUMBERS] = {ALL_ROWS(WIDE_ROW, NARROW_ROW, PL_TILE_NUMBERS)},
#if PL_HAS_PAIRS
    [PL_TILE_PAIRS] = {ALL_ROWS(WIDE_ROW, NARROW_ROW, PL_TILE_PAIRS)},
#endif
};

void PL_LEVEL_NAME(pl_tile_run)(const struct pl_tile *t, uint32_t rows, uint32_t vectors) {
    tiles[PL_HAS_PAIRS && t->pairs][rows - 1][vectors - 1](t);
}
