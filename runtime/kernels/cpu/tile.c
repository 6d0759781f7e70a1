/* tile.c - one function per size of a tile, so that its sums are registers. */
#include "runtime/kernels/cpu/simd.h"
#include "runtime/kernels/cpu/tile.h"

#if PL_HAS_AMX
#include "runtime/kernels/cpu/amx.h"
#endif

/* Sums are registers only if every loop over them is unrolled. */
#define UNROLLED _Pragma("GCC unroll 16")

/* The kinds of elements that A and B may have. */
enum { NUMBERS, PAIRS };

#define VECTOR_CASE(T)                                                                             \
    case PL_DTYPE_##T:                                                                             \
        return pl_vec_get_##T(c->from);

#if PL_HAS_PAIRS
/* Rounds sums of pairs as they are. The instruction takes denormals for zeros, and no such sum is
 * a denormal. */
static inline __attribute__((always_inline)) void round_pairs(const struct pl_tile *t,
                                                              pl_vec (*sum)[PL_TILE_VECTORS],
                                                              const int rows, const int vectors) {
    uint16_t *row = t->end;
    UNROLLED for (int r = 0; r < rows; r++, row += t->ldend) {
        UNROLLED for (int v = 0; v < vectors; v++) {
            const __m256i x = (__m256i)_mm512_cvtneps_pbh((__m512)sum[r][v]);
            _mm256_storeu_si256((void *)(row + v * PL_LANES), x);
        }
    }
}

/* Does the same for rows of whole lines, which go past the caches. */
static inline __attribute__((always_inline)) void
stream_pairs(const struct pl_tile *t, pl_vec (*sum)[PL_TILE_VECTORS], const int rows) {
    uint16_t *row = t->end;
    UNROLLED for (int r = 0; r < rows; r++, row += t->ldend) {
        const __m512bh line = _mm512_cvtne2ps_pbh((__m512)sum[r][1], (__m512)sum[r][0]);
        _mm512_stream_si512((void *)row, (__m512i)line);
    }
}
#endif

/* Does what store() does, and rounds to bf16 at once: the sums are not written and read again. */
static inline __attribute__((always_inline)) void round_off(const struct pl_tile *t,
                                                            pl_vec (*sum)[PL_TILE_VECTORS],
                                                            const int elements, const int rows,
                                                            const int vectors) {
    const pl_vec alpha = t->alpha - (pl_vec){0};
#if PL_HAS_PAIRS
    if (elements == PAIRS && vectors == PL_TILE_LINE && t->streams) {
        stream_pairs(t, sum, rows);
        return;
    }
    if (elements == PAIRS && t->alpha == 1 && !t->add && !t->end_adds) {
        round_pairs(t, sum, rows, vectors);
        return;
    }
#endif
    (void)elements;
    uint16_t *row = t->end;
    UNROLLED for (int r = 0; r < rows; r++, row += t->ldend) {
        UNROLLED for (int v = 0; v < vectors; v++) {
            pl_vec x = pl_vec_rounded(alpha * sum[r][v]);
            if (t->add) x += pl_vec_load(t->c + (size_t)r * t->ldc + v * PL_LANES);
            if (t->end_adds) x += pl_vec_get_BF16(row + v * PL_LANES);
            pl_vec_put_BF16(row + v * PL_LANES, x);
        }
    }
}

/* rows and vectors are constants wherever this is expanded. The product is rounded before it is
 * added: a compiler that fused the two in some tiles only would let the cut into tiles show. */
static inline __attribute__((always_inline)) void
store(const struct pl_tile *t, pl_vec (*sum)[PL_TILE_VECTORS], const int rows, const int vectors) {
    const pl_vec alpha = t->alpha - (pl_vec){0};
    const bool add = t->add;
    float *row = t->c;
    UNROLLED for (int r = 0; r < rows; r++, row += t->ldc) {
        pl_vec_unaligned *c = (pl_vec_unaligned *)row;
        if (add)
            UNROLLED for (int v = 0; v < vectors; v++) c[v] += pl_vec_rounded(alpha * sum[r][v]);
        else
            UNROLLED for (int v = 0; v < vectors; v++) c[v] = alpha * sum[r][v];
    }
}

/* sum += x column. */
static inline __attribute__((always_inline)) pl_vec add_product(pl_vec sum, float x, pl_vec column,
                                                                const int elements) {
#if PL_HAS_PAIRS
    if (elements == PAIRS) return pl_vec_add_pairs(sum, (pl_vec)_mm512_set1_ps(x), column);
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
    if (elements == PAIRS)
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

/* Returns a vector of a panel. */
static inline __attribute__((always_inline)) pl_vec laid_out(const struct pl_carry *c,
                                                             const int elements) {
#if PL_HAS_PAIRS
    if (elements == PAIRS)
        return pl_vec_join(_mm256_loadu_si256((const void *)c->from),
                           _mm256_loadu_si256((const void *)(c->from + c->second)));
#endif
    (void)elements;
    switch (c->dtype) {
        PL_FLOAT_MAP(VECTOR_CASE)
    default:
        return (pl_vec){0};
    }
}

/* The source of a row of a panel is prefetched so many rows before. */
enum { SOON = 2 };

static inline __attribute__((always_inline)) void carry(struct pl_carry *c, const int elements) {
    const size_t vector_bytes =
        PL_LANES * (elements == PAIRS ? sizeof(uint16_t) : pl_float_bytes(c->dtype));
    for (uint32_t i = 0; i < c->each && c->rows > 0; i++) {
        *(pl_vec_unaligned *)c->to = laid_out(c, elements);
        __builtin_prefetch(c->from + SOON * c->row_bytes, 0, 3);
        if (elements == PAIRS) __builtin_prefetch(c->from + SOON * c->row_bytes + c->second, 0, 3);
        c->to += PL_LANES;
        c->from += vector_bytes;
        if (++c->at < c->vectors) continue;
        c->at = 0;
        c->rows--;
        c->from += c->row_bytes - c->vectors * vector_bytes;
        c->to += c->pitch - c->vectors * PL_LANES;
    }
}

/* The loop over k. carries and half are constants: a loop without a carry has registers to spare,
 * and one with a half computes the first half of the last vector. */
static inline __attribute__((always_inline)) void
sum_up(const struct pl_tile *t, pl_vec (*sum)[PL_TILE_VECTORS], const int elements, const int rows,
       const int vectors, const bool carries, const bool half) {
    const int whole = vectors - half;
    half_vec halves[PL_TILE_MAX_ROWS];
    if (half) UNROLLED for (int r = 0; r < rows; r++) halves[r] = (half_vec){0};
    const float *a = t->a, *b = t->b;
    const size_t rs = t->rs, ks = t->ks, ldb = t->ldb;
    struct pl_ahead left = t->ahead[0], right = t->ahead[1];
    struct pl_carry carried = t->carry;
    for (size_t k = 0; k < t->k; k += PL_TILE_STEPS) {
        ask(&left);
        ask(&right);
        if (carries) carry(&carried, elements);
        for (size_t n = pl_u64_min(PL_TILE_STEPS, t->k - k); n > 0; n--, a += ks, b += ldb) {
            pl_vec column[PL_TILE_VECTORS];
            half_vec last = {0};
            UNROLLED for (int v = 0; v < whole; v++) column[v] = pl_vec_load(b + v * PL_LANES);
            if (half) last = load_half(b + whole * PL_LANES);
            UNROLLED for (int r = 0; r < rows; r++) {
                const float x = a[(size_t)r * rs];
                UNROLLED for (int v = 0; v < whole; v++) sum[r][v] =
                    add_product(sum[r][v], x, column[v], elements);
                if (half) halves[r] = add_half_product(halves[r], x, last, elements);
            }
        }
    }
    if (half) UNROLLED for (int r = 0; r < rows; r++) sum[r][whole] = whole_of(halves[r]);
}

/* The tile below is the next one: its part of C is prefetched while this one is computed. A
 * prefetch after the last row does no harm. */
static inline __attribute__((always_inline)) void
multiply(const struct pl_tile *t, const int elements, const int rows, const int vectors) {
    pl_vec sum[PL_TILE_MAX_ROWS][PL_TILE_VECTORS];
    const char *below = t->end ? (const char *)t->end : (const char *)t->c;
    const size_t below_ld = t->end ? t->ldend * sizeof(uint16_t) : t->ldc * sizeof(float);
    UNROLLED for (int r = 0; r < rows; r++) {
        UNROLLED for (int v = 0; v < vectors; v++) {
            sum[r][v] = (pl_vec){0};
            if (elements != PAIRS || vectors != PL_TILE_LINE || !t->streams)
                __builtin_prefetch(below + (size_t)(r + rows) * below_ld + v * PL_CACHE_LINE, 1);
        }
    }
    /* Tiles of fewer rows are at edges alone. */
    const bool has_half = HAS_HALVES && rows == (vectors == 1 ? PL_TILE_MAX_ROWS : PL_TILE_ROWS);
    if (t->carry.rows > 0 && has_half && t->half)
        sum_up(t, sum, elements, rows, vectors, true, true);
    else if (t->carry.rows > 0)
        sum_up(t, sum, elements, rows, vectors, true, false);
    else if (has_half && t->half)
        sum_up(t, sum, elements, rows, vectors, false, true);
    else
        sum_up(t, sum, elements, rows, vectors, false, false);
    if (t->end)
        round_off(t, sum, elements, rows, vectors);
    else
        store(t, sum, rows, vectors);
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

ALL_ROWS(WIDE, NARROW, NUMBERS)
#if PL_HAS_PAIRS
ALL_ROWS(WIDE, NARROW, PAIRS)
#endif

static void (*const tiles[][PL_TILE_MAX_ROWS][PL_TILE_VECTORS])(const struct pl_tile *t) = {
    [NUMBERS] = {ALL_ROWS(WIDE_ROW, NARROW_ROW, NUMBERS)},
#if PL_HAS_PAIRS
    [PAIRS] = {ALL_ROWS(WIDE_ROW, NARROW_ROW, PAIRS)},
#endif
};

void PL_LEVEL_NAME(pl_tile_run)(const struct pl_tile *t, uint32_t rows, uint32_t vectors) {
    tiles[PL_HAS_PAIRS && t->pairs][rows - 1][vectors - 1](t);
}

/* ---- AMX ---- */

#if PL_HAS_AMX
_Static_assert(PL_LANES == PL_AMX_SIDE && PL_TILE_MAX_ROWS == PL_AMX_SIDE, "a tile is a register");
_Static_assert(PL_TILE_VECTORS == 3, "three registers of sums");

enum { HALF_ROWS = PL_AMX_SIDE / 2 };

struct sums {
    _Alignas(PL_CACHE_LINE) float row[PL_AMX_SIDE][PL_TILE_COLS];
};

/* The sums of all whole steps of 16 pairs; returns the pairs that they have. vectors is a constant.
 * Other work is done on the way as sum_up() does it. */
static inline __attribute__((always_inline)) size_t
sum_up_tiles(const struct pl_tile *t, struct sums *s, struct pl_carry *carried, const int vectors) {
    const size_t a_bytes = t->rs * sizeof *t->a, b_bytes = t->ldb * sizeof *t->b;
    const size_t whole = t->k / PL_AMX_SIDE * PL_AMX_SIDE;
    struct pl_ahead left = t->ahead[0], right = t->ahead[1];
    PL_AMX_ZERO(0);
    if (vectors > 1) PL_AMX_ZERO(1);
    if (vectors > 2) PL_AMX_ZERO(2);
    for (size_t k = 0; k < whole; k += PL_AMX_SIDE) {
        const float *b = t->b + k * t->ldb;
        PL_AMX_LOAD(3, t->a + k, a_bytes);
        PL_AMX_LOAD(4, b, b_bytes);
        PL_AMX_ADD(0, 3, 4);
        if (vectors > 1) {
            PL_AMX_LOAD(5, b + PL_LANES, b_bytes);
            PL_AMX_ADD(1, 3, 5);
        }
        if (vectors > 2) {
            PL_AMX_LOAD(6, b + 2 * PL_LANES, b_bytes);
            PL_AMX_ADD(2, 3, 6);
        }
        for (int step = 0; step < PL_AMX_SIDE; step += PL_TILE_STEPS) {
            ask(&left);
            ask(&right);
            carry(carried, PAIRS);
        }
    }
    PL_AMX_STORE(0, s->row[0], sizeof s->row[0]);
    if (vectors > 1) PL_AMX_STORE(1, s->row[0] + PL_LANES, sizeof s->row[0]);
    if (vectors > 2) PL_AMX_STORE(2, s->row[0] + 2 * PL_LANES, sizeof s->row[0]);
    return whole;
}

/* Adds the pairs of a last step that is not whole, and stores the sums of some rows. */
static inline __attribute__((always_inline)) void
finish_tiles(const struct pl_tile *rest, const struct sums *s, const int first, const int vectors) {
    pl_vec sum[PL_TILE_MAX_ROWS][PL_TILE_VECTORS];
    struct pl_tile t = *rest;
    t.a += first * t.rs;
    t.c += first * t.ldc;
    if (t.end) t.end += first * t.ldend;
    UNROLLED for (int r = 0; r < HALF_ROWS; r++) {
        UNROLLED for (int v = 0; v < vectors; v++) sum[r][v] =
            pl_vec_load(s->row[first + r] + v * PL_LANES);
    }
    if (t.k > 0 && t.carry.rows > 0)
        sum_up(&t, sum, PAIRS, HALF_ROWS, vectors, true, false);
    else if (t.k > 0)
        sum_up(&t, sum, PAIRS, HALF_ROWS, vectors, false, false);
    if (t.end)
        round_off(&t, sum, PAIRS, HALF_ROWS, vectors);
    else
        store(&t, sum, HALF_ROWS, vectors);
}

static inline __attribute__((always_inline)) void multiply_tiles(const struct pl_tile *t,
                                                                 const int vectors) {
    struct sums s;
    struct pl_tile rest = *t;
    const size_t done = sum_up_tiles(t, &s, &rest.carry, vectors);
    rest.a += done;
    rest.b += done * t->ldb;
    rest.k -= done;
    rest.ahead[0].rows = rest.ahead[1].rows = 0;
    finish_tiles(&rest, &s, 0, vectors);
    rest.carry.rows = 0;
    finish_tiles(&rest, &s, HALF_ROWS, vectors);
}

void PL_LEVEL_NAME(pl_tile_run_amx)(const struct pl_tile *t, uint32_t vectors) {
    if (vectors == 3)
        multiply_tiles(t, 3);
    else if (vectors == 2)
        multiply_tiles(t, 2);
    else
        multiply_tiles(t, 1);
}

void PL_LEVEL_NAME(pl_tiles_begin)(void) {
    PL_AMX_BEGIN();
}

void PL_LEVEL_NAME(pl_tiles_end)(void) {
    PL_AMX_END();
}
#endif
