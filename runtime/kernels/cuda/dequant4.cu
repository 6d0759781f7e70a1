/* dequant4.cu - DEQUANT4: 4-bit codes to the matrix a product reads; EMBED4: to rows of an
 * embedding, by token id.
 *
 * In DEQUANT4 a thread turns four bytes of codes into eight elements, and PACKS of them far apart
 * are under way at once, from before the barrier of the block. The 16 values of the table lie in 16
 * banks of shared memory, so that a warp looks its codes up without a conflict. A warp needs four
 * entries of the map a pack, which it reads from the arguments. Windows off 4 or 16 bytes go byte
 * by byte. In MXFP4 a thread has four bytes of a row, and a scale for each of their elements.
 *
 * Modules that run as one share a launch, in which each has blocks of its own. */
#include "runtime/kernels/cuda/update.cuh"

#include "estimator/base/checked.h"
#include "runtime/kernels/quant.h"
#include "runtime/kernels/quant_call.h"

namespace {

#define BLOCK      256
#define PACKS      4 /* of a thread */
#define GRID_Y_MAX 65535
#define MODULES    8 /* of a launch */

struct tables {
    float value[PL_QUANT_LEVELS];
    float map[PL_QUANT_MAP_SIZE];
};

template <typename T> struct dequant {
    const uint8_t *codes;
    const float *absmax;    /* of blocks, or of nests */
    const uint8_t *absmax8; /* NULL = not nested */
    const float *offset;    /* of nested absmax */
    pl_mat<T> w;            /* one row of n elements */
    uint64_t n, bytes;      /* of w; bytes of its codes */
    uint64_t first, skip;   /* bytes of codes: before w, and after each row of it */
    uint64_t row;           /* bytes of codes that a row has */
    uint64_t end;           /* of all codes that w is among */
    uint64_t apart;         /* elements of w from one matrix to the next */
    struct pl_quant_stride stride;
};

template <typename T> __device__ __forceinline__ void move(pl_mat<T> *w, uint64_t elements) {
    w->p += elements;
}
__device__ __forceinline__ void move(pl_mat<pl_either> *w, uint64_t elements) {
    w->p = (char *)w->p + elements * pl_bytes_as(w->dtype);
}

/* The matrix of this number: t is the first. */
template <typename T>
__device__ __forceinline__ dequant<T> matrix_of(const dequant<T> &t, uint32_t number) {
    dequant<T> m = t;
    m.codes += number * t.stride.codes;
    m.absmax += number * t.stride.absmax;
    move(&m.w, number * t.apart);
    if (!t.absmax8) return m;
    m.absmax8 += number * t.stride.absmax8;
    m.offset += number * t.stride.absmax;
    return m;
}

/* BYTES bytes of codes from byte `at` on; those past the end count as 0. */
template <int BYTES>
__device__ __forceinline__ uint32_t load_codes(const uint8_t *codes, uint64_t at, uint64_t end) {
    if (BYTES == 4 && at + 4 <= end) return *reinterpret_cast<const uint32_t *>(codes + at);
    uint32_t word = 0;
#pragma unroll
    for (int k = 0; k < BYTES; k++)
        if (at + k < end) word |= (uint32_t)codes[at + k] << 8 * k;
    return word;
}

/* An absmax as it is stored; `code` counts where it is nested. */
struct stored_absmax {
    float absmax;
    uint32_t code;
};

template <typename Codes>
__device__ __forceinline__ struct stored_absmax load_absmax(const Codes &t, uint64_t b) {
    if (!t.absmax8) return {t.absmax[b], 0};
    return {t.absmax[b / PL_QUANT_NEST], t.absmax8[b]};
}

template <typename Codes> __device__ __forceinline__ float load_offset(const Codes &t) {
    return t.absmax8 ? *t.offset : 0.0f;
}

/* Each operation rounded by itself: the bits are those of the host. */
template <typename Codes>
__device__ __forceinline__ float absmax_of(const Codes &t, const tables &tables, float offset,
                                           const struct stored_absmax &s) {
    return t.absmax8 ? __fadd_rn(__fmul_rn(tables.map[s.code], s.absmax), offset) : s.absmax;
}

__device__ __forceinline__ void store(const pl_mat<pl_either> &w, uint64_t i, uint64_t n,
                                      const float (&f)[2]) {
    w.put(0, i, f[0]);
    if (i + 1 < n) w.put(0, i + 1, f[1]);
}

template <typename T>
__device__ __forceinline__ void store(const pl_mat<T> &w, uint64_t i, uint64_t n,
                                      const float (&f)[8]) {
    pl_store(w, 0, i, n, pl_packed(w, f));
}

/* The 16 values in shared memory, for all threads of a block. */
template <typename Tables>
__device__ __forceinline__ void share_values(const Tables &t, float *value) {
    if (threadIdx.x < PL_QUANT_LEVELS) value[threadIdx.x] = t.value[threadIdx.x];
    __syncthreads();
}

/* The place of byte `at` of the codes of w. */
template <typename T>
__device__ __forceinline__ uint64_t place_of(const dequant<T> &t, uint64_t at) {
    return t.first + at + (t.skip ? at / t.row * t.skip : 0);
}

template <typename T> using modules = pl_parts<dequant<T>, MODULES>;

template <typename T, int BYTES>
__global__ void __launch_bounds__(BLOCK) dequantise(const modules<T> all, const tables tables) {
    PL_SHARED(float, value);
    const uint32_t module = pl_part_of(all, blockIdx.x);
    const dequant<T> t = matrix_of(all.part[module], blockIdx.y);
    const uint64_t block = blockIdx.x - all.begin[module];
    const uint64_t first = (block * PACKS * BLOCK + threadIdx.x) * BYTES;
    uint32_t codes[PACKS];
    struct stored_absmax stored[PACKS];
    const float offset = load_offset(t);
#pragma unroll
    for (int k = 0; k < PACKS; k++) {
        const uint64_t at = first + k * BLOCK * BYTES;
        if (at >= t.bytes) break;
        const uint64_t from = place_of(t, at);
        codes[k] = load_codes<BYTES>(t.codes, from, t.end);
        stored[k] = load_absmax(t, from * 2 / PL_QUANT_BLOCK);
    }
    share_values(tables, value);
#pragma unroll
    for (int k = 0; k < PACKS; k++) {
        const uint64_t at = first + k * BLOCK * BYTES;
        float f[2 * BYTES];
        if (at >= t.bytes) break;
        const float absmax = absmax_of(t, tables, offset, stored[k]);
#pragma unroll
        for (int i = 0; i < 2 * BYTES; i++) /* the high half of a byte comes first */
            f[i] = __fmul_rn(value[codes[k] >> (i / 2 * 8 + (i % 2 ? 0 : 4)) & 15u], absmax);
        store(t.w, 2 * at, t.n, f);
    }
}

void fill_tables(enum pl_quant quant, tables *t) {
    memcpy(t->value, pl_quant_table(quant), sizeof t->value);
    pl_quant_map_values(true, t->map);
}

struct dequant_call {
    const struct pl_call *c;
    struct pl_view w; /* as one row */
    struct pl_quant_window at;
    uint64_t n;
};

template <typename T> dequant<T> module_of(const struct dequant_call *d) {
    return {(const uint8_t *)d->c->in[PL_DEQUANT4_CODES].p,
            (const float *)d->c->in[PL_DEQUANT4_ABSMAX].p,
            (const uint8_t *)d->c->in[PL_DEQUANT4_ABSMAX8].p,
            pl_quant_offset_of(d->c),
            pl_mat_of<T>(d->w),
            d->n,
            pl_quant_codes_bytes(d->n),
            d->at.first / 2,
            d->at.skip / 2,
            d->c->out[PL_DEQUANT4_OUT_W].cols / 2,
            pl_quant_codes_bytes(d->at.end),
            d->c->attr->matrix_stride * d->c->out[PL_DEQUANT4_OUT_W].cols,
            pl_quant_stride_of(d->c)};
}

/* Takes at most MODULES calls, of one type of codes and of as many matrices. */
template <typename T, int BYTES>
pl_err launch(const struct dequant_call *d, uint32_t n, cudaStream_t stream) {
    modules<T> all;
    const uint64_t matrices = pl_quant_matrices(d->c);
    tables values;
    pl_parts_clear(&all);
    for (uint32_t i = 0; i < n; i++) {
        const dequant<T> t = module_of<T>(&d[i]);
        if (!pl_parts_add(&all, t, pl_u64_div_up(t.bytes, BLOCK * PACKS * BYTES)))
            return PL_ERR_PLAN_BROKEN;
    }
    if (matrices > GRID_Y_MAX) return PL_ERR_PLAN_BROKEN;
    fill_tables(d->c->attr->quant, &values);
    if (pl_parts_units(&all))
        PL_LAUNCH((dequantise<T, BYTES>), dim3(pl_parts_units(&all), (unsigned)matrices),
                  dim3(BLOCK), sizeof values.value, stream, all, values);
    return pl_cuda_launched();
}

/* ---- MXFP4: a scale of 32 rows of a column ---- */

template <typename T> struct dequant_mx {
    const uint8_t *codes, *scales;
    pl_mat<T> w;       /* one row of n elements */
    uint64_t n, bytes; /* of w; bytes of its codes */
    uint64_t cols;     /* of a matrix */
    uint64_t apart;    /* elements of w from one matrix to the next */
    struct pl_quant_stride stride;
};

struct mx_values {
    float value[PL_QUANT_LEVELS];
};

/* A thread has BYTES bytes of the codes of a row, and their scales. */
template <typename T, int BYTES>
__global__ void __launch_bounds__(BLOCK)
    dequantise_mx(const dequant_mx<T> all, const mx_values values) {
    PL_SHARED(float, value);
    dequant_mx<T> t = all;
    const uint64_t at = ((uint64_t)blockIdx.x * BLOCK + threadIdx.x) * BYTES;
    const uint64_t row = 2 * at / t.cols, col = 2 * at % t.cols;
    share_values(values, value);
    if (at >= t.bytes) return;
    move(&t.w, blockIdx.y * t.apart);
    const uint32_t codes = load_codes<BYTES>(t.codes + blockIdx.y * t.stride.codes, at, t.bytes);
    const uint8_t *scales = t.scales + blockIdx.y * t.stride.absmax + row / PL_QUANT_MX * t.cols;
    float f[2 * BYTES];
#pragma unroll
    for (int i = 0; i < 2 * BYTES; i++) {
        const float scale = __uint_as_float(pl_quant_exponent_bits(scales[col + i]));
        f[i] = __fmul_rn(value[codes >> (i / 2 * 8 + (i % 2 ? 0 : 4)) & 15u], scale);
    }
    store(t.w, 2 * at, t.n, f);
}

/* Takes one call. */
template <typename T, int BYTES>
pl_err launch_mx(const struct dequant_call *d, uint32_t n, cudaStream_t stream) {
    (void)n;
    const uint64_t cols = d->c->out[PL_DEQUANT4_OUT_W].cols;
    dequant_mx<T> t = {(const uint8_t *)d->c->in[PL_DEQUANT4_CODES].p,
                       (const uint8_t *)d->c->in[PL_DEQUANT4_ABSMAX].p,
                       pl_mat_of<T>(d->w),
                       d->n,
                       pl_quant_codes_bytes(d->n),
                       cols,
                       d->c->attr->matrix_stride * cols,
                       pl_quant_stride_of(d->c)};
    const uint64_t blocks = pl_u64_div_up(t.bytes, BLOCK * BYTES);
    const uint64_t matrices = pl_quant_matrices(d->c);
    mx_values values;
    if (blocks > PL_GRID_MAX || matrices > GRID_Y_MAX) return PL_ERR_PLAN_BROKEN;
    memcpy(values.value, pl_quant_table(d->c->attr->quant), sizeof values.value);
    if (blocks)
        PL_LAUNCH((dequantise_mx<T, BYTES>), dim3((unsigned)blocks, (unsigned)matrices),
                  dim3(BLOCK), sizeof values.value, stream, t, values);
    return pl_cuda_launched();
}

/* A block has one row of x, a thread a byte of codes at a time. An id outside the vocabulary, which
 * the data room refuses, embeds as NaN: no wild access, and the loss shows it. */
struct embed4 {
    const uint8_t *codes;
    const float *absmax;
    const uint8_t *absmax8;
    const float *offset;
    const int32_t *ids;
    pl_mat<pl_either> x;
    uint64_t cols, vocab;
    float scale;
    struct tables tables;
};

/* Rounded first, as rows of a table in the type of x would be. */
__device__ __forceinline__ float scaled(const embed4 &e, float f) {
    return pl_round_as(e.x.dtype, f) * e.scale;
}

__global__ void __launch_bounds__(BLOCK) embed4_rows(const embed4 e) {
    PL_SHARED(float, value);
    share_values(e.tables, value);
    const float offset = load_offset(e);
    const int64_t id = e.ids[blockIdx.x];
    const bool is_real = id >= 0 && (uint64_t)id < e.vocab;
    const uint64_t first = is_real ? (uint64_t)id * e.cols : 0;
    for (uint64_t c = 2 * threadIdx.x; c < e.cols; c += 2 * BLOCK) {
        const uint32_t byte = e.codes[(first + c) / 2];
        const struct stored_absmax stored = load_absmax(e, (first + c) / PL_QUANT_BLOCK);
        const float absmax = absmax_of(e, e.tables, offset, stored);
        e.x.put(blockIdx.x, c, is_real ? scaled(e, __fmul_rn(value[byte >> 4], absmax)) : NAN);
        e.x.put(blockIdx.x, c + 1, is_real ? scaled(e, __fmul_rn(value[byte & 15u], absmax)) : NAN);
    }
}

} // namespace

#define INSTANCE(T, kernel) kernel<pl_stored_##T, 4>, /* four bytes of codes a thread */

/* A call as a launch has it, and the form of the kernel that takes it. */
static struct dequant_call prepare(const struct pl_call *c, int *form) {
    struct dequant_call d = {c, c->out[PL_DEQUANT4_OUT_W], pl_quant_window_of(c), 0};
    d.n = d.at.rows * d.w.cols;
    const uint64_t apart = c->attr->matrix_stride * d.w.cols * pl_dtype_bytes(d.w.dtype);
    d.w.rows = 1;
    d.w.cols = d.w.ld = d.n;
    const struct pl_view *const views[] = {&d.w};
    const bool each_alike =
        c->attr->matrices <= 1 || (apart % 16 == 0 && c->attr->matrix_elements % 8 == 0);
    const bool mx = !pl_quant_has_absmax(c->attr->quant);
    const bool in_words = (uintptr_t)c->in[PL_DEQUANT4_CODES].p % 4 == 0 && each_alike &&
                          (!mx || c->out[PL_DEQUANT4_OUT_W].cols % 8 == 0);
    *form = in_words ? pl_form_of(views, 1) : PL_FORM_EITHER;
    return d;
}

/* True if one launch can take both calls. */
static bool share_a_launch(const struct pl_call *c, const struct pl_call *other) {
    return pl_quant_has_absmax(c->attr->quant) && c->attr->quant == other->attr->quant &&
           pl_quant_matrices(c) == pl_quant_matrices(other);
}

/* in: codes[..]u8, absmax[..]f32|u8, absmax8?[..]u8, offset?[1]f32; out: w[O,K]. */
extern "C" pl_err pl_cuda_dequant4_group(struct pl_device *dev, const struct pl_call *calls,
                                         uint32_t n) {
    static pl_err (*const by_form[2][PL_FORMS])(const struct dequant_call *, uint32_t,
                                                cudaStream_t) = {
        {PL_FLOAT_LIST(INSTANCE, launch) launch<pl_either, 1>},
        {PL_FLOAT_LIST(INSTANCE, launch_mx) launch_mx<pl_either, 1>}};
    for (uint32_t i = 0; i < n; i++)
        if (!pl_dequant4_is_sound(&calls[i])) return PL_ERR_PLAN_BROKEN;
    for (uint32_t i = 0, k; i < n; i += k) {
        struct dequant_call some[MODULES];
        int form, next;
        some[0] = prepare(&calls[i], &form);
        for (k = 1; k < MODULES && i + k < n && share_a_launch(&calls[i], &calls[i + k]); k++) {
            some[k] = prepare(&calls[i + k], &next);
            if (next != form) break;
        }
        const bool mx = !pl_quant_has_absmax(calls[i].attr->quant);
        PL_TRY(by_form[mx][form](some, k, pl_cuda_of(dev)->stream));
    }
    return PL_ERR_OK;
}

extern "C" pl_err pl_cuda_dequant4(struct pl_device *dev, const struct pl_call *c) {
    return pl_cuda_dequant4_group(dev, c, 1);
}

/* in: ids[N]i32, codes[n/2]u8, absmax[..]f32, absmax8?[n/64]u8, offset?[1]f32; out: x[N,C]. */
extern "C" pl_err pl_cuda_embed4(struct pl_device *dev, const struct pl_call *c) {
    const struct pl_view *x = &c->out[PL_EMBED4_OUT_X];
    if (x->rows == 0) return PL_ERR_OK;
    if (!pl_embed4_is_sound(c) || x->rows > PL_GRID_MAX) return PL_ERR_PLAN_BROKEN;
    embed4 e = {(const uint8_t *)c->in[PL_EMBED4_CODES].p,
                (const float *)c->in[PL_EMBED4_ABSMAX].p,
                (const uint8_t *)c->in[PL_EMBED4_ABSMAX8].p,
                (const float *)c->in[PL_EMBED4_OFFSET].p,
                (const int32_t *)c->in[PL_EMBED4_IDS].p,
                pl_mat_of<pl_either>(*x),
                x->cols,
                pl_embed4_vocab(c),
                pl_embed_scale(c->attr),
                {}};
    fill_tables(c->attr->quant, &e.tables);
    PL_LAUNCH(embed4_rows, dim3((unsigned)x->rows), dim3(BLOCK), sizeof e.tables.value,
              pl_cuda_of(dev)->stream, e);
    return pl_cuda_launched();
}

#define KERNEL(T, kernel) PL_CUDA_KERNEL(kernel<pl_stored_##T, 4>),
PL_CUDA_PRELOAD(dequant4) = {
    PL_FLOAT_LIST(KERNEL, dequantise) PL_CUDA_KERNEL(dequantise<pl_either, 1>),
    PL_FLOAT_LIST(KERNEL, dequantise_mx) PL_CUDA_KERNEL(dequantise_mx<pl_either, 1>),
    PL_CUDA_KERNEL(embed4_rows), NULL};
