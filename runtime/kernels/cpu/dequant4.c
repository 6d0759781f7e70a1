/* dequant4.c - DEQUANT4: 4-bit codes to the matrix a product reads.
 *
 * A block of 64 elements has one absmax, so its 16 possible values are made once, as stored, and
 * each code picks one of them. Where the machine shuffles bytes, a vector of codes picks the bytes
 * of 16 values at a time: one shuffle for each byte of an element.
 * In MXFP4 a block is 32 rows of a column, so a row has a scale for every element of it. */
#include "runtime/kernels/cpu/simd.h"

#include "runtime/kernels/quant.h"
#include "runtime/kernels/quant_call.h"

#if defined(__SSSE3__)
#include <tmmintrin.h>
#endif

#define BLOCK PL_QUANT_BLOCK

struct dequant {
    const uint8_t *codes;
    const float *absmax;      /* of blocks, or of nests where there is absmax8 */
    const uint8_t *absmax8;   /* NULL = not nested */
    const float *offset;      /* of nested absmax */
    const float *table, *map; /* map: of absmax8 */
    struct pl_view w;         /* [O,K], one run of elements; of several matrices, the first's */
    uint64_t first, skip;     /* blocks: before w, and after each row of it */
    struct pl_quant_stride stride;
};

/* ---- a block: 16 values as the matrix stores them, and 64 codes ---- */

#define BATCH 16 /* blocks whose values are made in one loop */

struct values {
    float f32[BATCH * PL_QUANT_LEVELS];
    uint16_t narrow[BATCH * PL_QUANT_LEVELS]; /* of matrices that are stored in 16 bits */
};

/* Fills the values of `blocks` (at most BATCH) blocks. */
static void scale_tables(const float *table, const float *absmax, uint64_t blocks, enum pl_dtype t,
                         struct values *v) {
    for (uint64_t b = 0; b < blocks; b++)
        for (int i = 0; i < PL_QUANT_LEVELS; i++)
            v->f32[b * PL_QUANT_LEVELS + i] = table[i] * absmax[b];
    if (pl_dtype_is_narrow(t)) pl_narrow(v->narrow, t, v->f32, blocks * PL_QUANT_LEVELS);
}

#if defined(__SSSE3__)
static __m128i load(const void *p) {
    return _mm_loadu_si128((const __m128i *)p);
}

static void store(void *w, int vector, __m128i x) {
    _mm_storeu_si128((__m128i *)w + vector, x);
}

/* The codes of 16 bytes: first ones, second ones. */
static void split(const uint8_t *codes, __m128i half[2]) {
    const __m128i both = load(codes), low = _mm_set1_epi8(15);
    half[0] = _mm_and_si128(_mm_srli_epi16(both, 4), low);
    half[1] = _mm_and_si128(both, low);
}

/* Byte k of the 16 values: of a narrow type two, of fp32 four. */
static __m128i plane_of_words(const uint16_t *x, int k) {
    const __m128i mask = _mm_set1_epi16(255);
    const __m128i a = _mm_and_si128(_mm_srli_epi16(load(x), 8 * k), mask);
    const __m128i b = _mm_and_si128(_mm_srli_epi16(load(x + 8), 8 * k), mask);
    return _mm_packus_epi16(a, b);
}

static __m128i plane_of_floats(const float *x, int k) {
    const __m128i mask = _mm_set1_epi32(255);
    __m128i part[4];
    for (int i = 0; i < 4; i++)
        part[i] = _mm_and_si128(_mm_srli_epi32(load(x + 4 * i), 8 * k), mask);
    return _mm_packus_epi16(_mm_packs_epi32(part[0], part[1]), _mm_packs_epi32(part[2], part[3]));
}

static void pick_narrow(const uint16_t *v, const uint8_t *codes, void *w) {
    const __m128i low = plane_of_words(v, 0), high = plane_of_words(v, 1);
    for (int i = 0; i < BLOCK / 32; i++) {
        __m128i half[2], element[2][2]; /* [first or second of a byte][which eight] */
        split(codes + 16 * i, half);
        for (int h = 0; h < 2; h++) {
            const __m128i a = _mm_shuffle_epi8(low, half[h]), b = _mm_shuffle_epi8(high, half[h]);
            element[h][0] = _mm_unpacklo_epi8(a, b);
            element[h][1] = _mm_unpackhi_epi8(a, b);
        }
        for (int e = 0; e < 2; e++) {
            store(w, 4 * i + 2 * e, _mm_unpacklo_epi16(element[0][e], element[1][e]));
            store(w, 4 * i + 2 * e + 1, _mm_unpackhi_epi16(element[0][e], element[1][e]));
        }
    }
}

static void pick_fp32(const float *v, const uint8_t *codes, void *w) {
    __m128i plane[4];
    for (int k = 0; k < 4; k++)
        plane[k] = plane_of_floats(v, k);
    for (int i = 0; i < BLOCK / 32; i++) {
        __m128i half[2], element[2][4]; /* [first or second of a byte][which four] */
        split(codes + 16 * i, half);
        for (int h = 0; h < 2; h++) {
            __m128i b[4];
            for (int k = 0; k < 4; k++)
                b[k] = _mm_shuffle_epi8(plane[k], half[h]);
            const __m128i low[2] = {_mm_unpacklo_epi8(b[0], b[1]), _mm_unpackhi_epi8(b[0], b[1])};
            const __m128i high[2] = {_mm_unpacklo_epi8(b[2], b[3]), _mm_unpackhi_epi8(b[2], b[3])};
            for (int e = 0; e < 2; e++) {
                element[h][2 * e] = _mm_unpacklo_epi16(low[e], high[e]);
                element[h][2 * e + 1] = _mm_unpackhi_epi16(low[e], high[e]);
            }
        }
        for (int e = 0; e < 4; e++) {
            store(w, 8 * i + 2 * e, _mm_unpacklo_epi32(element[0][e], element[1][e]));
            store(w, 8 * i + 2 * e + 1, _mm_unpackhi_epi32(element[0][e], element[1][e]));
        }
    }
}
#else
static unsigned code_of(const uint8_t *codes, int i) {
    return i % 2 ? codes[i / 2] & 15u : codes[i / 2] >> 4;
}

static void pick_narrow(const uint16_t *v, const uint8_t *codes, void *w) {
    for (int i = 0; i < BLOCK; i++)
        ((uint16_t *)w)[i] = v[code_of(codes, i)];
}

static void pick_fp32(const float *v, const uint8_t *codes, void *w) {
    for (int i = 0; i < BLOCK; i++)
        ((float *)w)[i] = v[code_of(codes, i)];
}
#endif

/* Looks codes up among the values of block k of a batch. */
static void pick(const struct values *v, uint64_t k, enum pl_dtype t, const uint8_t *codes,
                 void *w) {
    if (t == PL_DTYPE_F32)
        pick_fp32(v->f32 + k * PL_QUANT_LEVELS, codes, w);
    else
        pick_narrow(v->narrow + k * PL_QUANT_LEVELS, codes, w);
}

/* The last block of an odd window: through copies, so that nothing past its end is touched. */
static void pick_some(const struct values *v, uint64_t k, enum pl_dtype t, const uint8_t *codes,
                      void *w, uint64_t n) {
    uint8_t whole[BLOCK / 2] = {0};
    float out[BLOCK];
    memcpy(whole, codes, pl_quant_codes_bytes(n));
    pick(v, k, t, whole, out);
    memcpy(w, out, n * pl_float_bytes(t));
}

/* ---- all blocks ---- */

/* Blocks [first, end) of one nest. */
static const float *block_absmax(const struct dequant *d, uint64_t first, uint64_t end,
                                 float buf[PL_QUANT_NEST]) {
    if (!d->absmax8) return d->absmax + first;
    pl_quant_unnest_by(d->map, d->absmax8 + first, d->absmax + first / PL_QUANT_NEST, *d->offset,
                       end - first, buf);
    return buf;
}

/* Block `from` of the codes to block `to` of w. */
static void dequantise_block(const struct dequant *d, uint64_t from, uint64_t to,
                             const struct values *v, uint64_t k) {
    const uint64_t i = to * BLOCK, left = d->w.rows * d->w.cols - i;
    const uint8_t *codes = d->codes + from * BLOCK / 2;
    char *w = (char *)d->w.p + i * pl_float_bytes(d->w.dtype);
    if (left >= BLOCK)
        pick(v, k, d->w.dtype, codes, w);
    else
        pick_some(v, k, d->w.dtype, codes, w, left);
}

/* `n` blocks that follow each other in the codes, of one nest. */
static void dequantise_run(const struct dequant *d, uint64_t from, uint64_t to, uint64_t n) {
    float nested[PL_QUANT_NEST];
    const float *absmax = block_absmax(d, from, from + n, nested);
    struct values v;
    for (uint64_t b = 0; b < n; b += BATCH) {
        const uint64_t blocks = pl_u64_min(n - b, BATCH);
        scale_tables(d->table, absmax + b, blocks, d->w.dtype, &v);
        for (uint64_t k = 0; k < blocks; k++)
            dequantise_block(d, from + b + k, to + b + k, &v, k);
    }
}

static void dequantise_blocks(const struct dequant *d, uint64_t first, uint64_t end) {
    const uint64_t in_row = d->w.cols / BLOCK;
    for (uint64_t to = first, n; to < end; to += n) {
        const uint64_t row = d->skip ? to / in_row : 0;
        const uint64_t from = d->first + to + row * d->skip;
        n = pl_u64_min(end - to, PL_QUANT_NEST - from % PL_QUANT_NEST);
        if (d->skip) n = pl_u64_min(n, (row + 1) * in_row - to);
        dequantise_run(d, from, to, n);
    }
}

static struct dequant matrix_of(const struct dequant *first, uint64_t number) {
    struct dequant d = *first;
    d.codes += number * d.stride.codes;
    d.absmax += number * d.stride.absmax;
    d.w.p = pl_at(&first->w, number * d.stride.rows, 0);
    if (!d.absmax8) return d;
    d.absmax8 += number * d.stride.absmax8;
    d.offset += number * d.stride.absmax;
    return d;
}

/* Blocks [first, end) of all matrices, one after another. */
static void dequantise_matrices(void *arg, uint64_t first, uint64_t end, uint32_t worker) {
    const struct dequant *all = arg;
    const uint64_t each = pl_quant_blocks(pl_quant_elements(&all->w));
    (void)worker;
    for (uint64_t b = first, n; b < end; b += n) {
        const struct dequant d = matrix_of(all, b / each);
        n = pl_u64_min(end - b, each - b % each);
        dequantise_blocks(&d, b % each, b % each + n);
    }
}

/* ---- MXFP4: a scale of 32 rows of a column ---- */

struct dequant_mx {
    const uint8_t *codes, *scales;
    const float (*pairs)[2]; /* the values of both codes of a byte */
    struct pl_view w;        /* of the first matrix */
    uint64_t blocks;         /* rows of scales of a matrix */
    struct pl_quant_stride stride;
};

#define MX_COLS 256 /* of which the scales are made at a time */

/* Columns [col, col + n) of some rows of a matrix, all of one block. */
static void dequantise_columns(const struct dequant_mx *d, const struct pl_view *w,
                               const uint8_t *codes, const uint8_t *scales, uint64_t col,
                               uint64_t n) {
    float factor[MX_COLS], x[MX_COLS];
    for (uint64_t c = 0; c < n; c++) {
        const uint32_t bits = pl_quant_exponent_bits(scales[col + c]);
        memcpy(&factor[c], &bits, sizeof bits);
    }
    for (uint64_t r = 0; r < w->rows; r++) {
        const uint8_t *row = codes + (r * w->cols + col) / 2;
        for (uint64_t c = 0; c < n; c += 2)
            memcpy(x + c, d->pairs[row[c / 2]], sizeof *d->pairs);
        for (uint64_t c = 0; c < n; c++)
            x[c] *= factor[c];
        pl_narrow(pl_at(w, r, col), w->dtype, x, n);
    }
}

/* Blocks [first, end) of rows of all matrices, one after another. */
static void dequantise_mx_blocks(void *arg, uint64_t first, uint64_t end, uint32_t worker) {
    const struct dequant_mx *d = arg;
    const uint64_t cols = d->w.cols;
    (void)worker;
    for (uint64_t b = first; b < end; b++) {
        const uint64_t number = b / d->blocks, row = b % d->blocks * PL_QUANT_MX;
        const uint64_t rows = pl_u64_min(d->w.rows - row, PL_QUANT_MX);
        const uint8_t *codes = d->codes + number * d->stride.codes + row * cols / 2;
        const uint8_t *scales = d->scales + number * d->stride.absmax + b % d->blocks * cols;
        const struct pl_view w = pl_window(&d->w, number * d->stride.rows + row, rows, 0, cols);
        for (uint64_t col = 0; col < cols; col += MX_COLS)
            dequantise_columns(d, &w, codes, scales, col, pl_u64_min(cols - col, MX_COLS));
    }
}

static void dequantise_mx(struct pl_device *dev, const struct pl_call *c) {
    const float *table = pl_quant_table(c->attr->quant);
    float pairs[UINT8_MAX + 1][2];
    struct dequant_mx d = {.codes = c->in[PL_DEQUANT4_CODES].p,
                           .scales = c->in[PL_DEQUANT4_ABSMAX].p,
                           .pairs = (const float(*)[2])pairs,
                           .w = c->out[PL_DEQUANT4_OUT_W],
                           .stride = pl_quant_stride_of(c)};
    for (unsigned byte = 0; byte <= UINT8_MAX; byte++) {
        pairs[byte][0] = table[byte >> 4];
        pairs[byte][1] = table[byte & 15];
    }
    d.w.rows = pl_quant_window_of(c).rows;
    d.blocks = pl_u64_div_up(d.w.rows, PL_QUANT_MX);
    pl_cpu_rows(dev, pl_quant_matrices(c) * d.blocks, pl_cpu_grain(PL_QUANT_MX * d.w.cols),
                dequantise_mx_blocks, &d);
}

static void dequantise_by_absmax(struct pl_device *dev, const struct pl_call *c) {
    const struct pl_quant_window at = pl_quant_window_of(c);
    float map[PL_QUANT_MAP_SIZE];
    struct dequant d = {.codes = c->in[PL_DEQUANT4_CODES].p,
                        .absmax = c->in[PL_DEQUANT4_ABSMAX].p,
                        .absmax8 = c->in[PL_DEQUANT4_ABSMAX8].p,
                        .offset = pl_quant_offset_of(c),
                        .table = pl_quant_table(c->attr->quant),
                        .map = map,
                        .w = c->out[PL_DEQUANT4_OUT_W],
                        .first = at.first / BLOCK,
                        .skip = at.skip / BLOCK,
                        .stride = pl_quant_stride_of(c)};
    if (d.absmax8) pl_quant_map_values(true, map);
    d.w.rows = at.rows;
    pl_cpu_rows(dev, pl_quant_matrices(c) * pl_quant_blocks(pl_quant_elements(&d.w)), PL_QUANT_NEST,
                dequantise_matrices, &d);
}

/* in: codes[..]u8, absmax[..]f32|u8, absmax8?[..]u8, offset?[1]f32; out: w[O,K]. */
pl_err PL_CPU(dequant4)(struct pl_device *dev, const struct pl_call *c) {
    if (!pl_dequant4_is_sound(c)) return PL_ERR_PLAN_BROKEN;
    (pl_quant_has_absmax(c->attr->quant) ? dequantise_by_absmax : dequantise_mx)(dev, c);
    return PL_ERR_OK;
}
