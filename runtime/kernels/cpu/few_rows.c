/* few_rows.c - y = x W^T for a few rows of x: every weight is read once, where it lies.
 *
 * A general product copies both operands into a layout of its own, and widens bf16 on the way. With
 * one token per sequence that is more work than the product. Here a worker walks over rows of W
 * together with the rows of x, a vector of each at a time, and the speed is that of memory.
 * Where both operands are bf16, the weights are taken apart two numbers at a time, into even and
 * odd elements of a stretch, and the rows of x are laid out in the same way. Where x is fp32,
 * narrow weights are widened in order, which costs a little more, and so are those of other types.
 *   F1  an element is one chain of vector additions along K and one tree over the lanes, so its
 *       bits do not depend on the other rows of x, on the threads, or on where its column stands
 *   F2  with fp32 rows of x a weight gives the same bits from either type that holds it */
#include "runtime/kernels/cpu/gemm.h"
#include "runtime/kernels/cpu/vec.h"

/* Registers: X_ROWS x W_ROWS sums, and a vector of each row. */
#define X_ROWS 4
#if defined(__AVX512F__)
#define W_ROWS 4
#else
#define W_ROWS 2
#endif
#define TASK_BYTES 65536 /* of W: worth a task, and few enough to balance threads */

/* Elements of a row that one step takes, the even ones and the odd ones. */
#define APART_STEP (2 * PL_LANES)

struct few_rows {
    const struct pl_gemm *g;
    const float *x; /* [m, k]; taken apart in stretches of APART_STEP, zeros after the last */
    uint64_t ldx, m, n, k;
};

struct corner { /* of y: some rows of x by some rows of W */
    const struct few_rows *f;
    uint64_t row, col;
};

static inline __attribute__((always_inline)) void store(const struct corner *c, int r, int w,
                                                        float sum) {
    const struct pl_gemm *g = c->f->g;
    const uint64_t row = c->row + (uint64_t)r, col = c->col + (uint64_t)w;
    void *y = pl_at(&g->c, row, col);
    float old = 0, bias = 0;
    if (g->adds) pl_widen(&old, y, g->c.dtype, 1);
    if (g->bias.p) pl_widen(&bias, pl_vector_at(&g->bias, col), g->bias.dtype, 1);
    sum = g->alpha * sum + old + bias;
    pl_narrow(y, g->c.dtype, &sum, 1);
}

/* A processor reads ahead within a page and has to learn the pattern again in the next one, and
 * rows of W are too short for that. So while a corner is read, the same place of the next one,
 * `ahead` bytes further, is prefetched into the second-level cache, since long rows would fill the
 * first. After the last row nothing is read: a prefetch of any address does no harm. */
static inline void ask_for(const void *w, uint64_t ahead) {
    __builtin_prefetch((const void *)((uintptr_t)w + ahead), 0, 2);
}

/* A vector of a row of W from element k on. */
static inline __attribute__((always_inline)) pl_vec load_w(const char *w, uint64_t k,
                                                           const enum pl_dtype dtype) {
    const char *at = w + k * pl_float_bytes(dtype);
#define GET(T)                                                                                     \
    case PL_DTYPE_##T:                                                                             \
        return pl_vec_get_##T(at);
    switch (dtype) {
        PL_FLOAT_MAP(GET)
    default:
        return (pl_vec){0};
    }
#undef GET
}

/* rows, cols and dtype are constants wherever this is expanded, so `sum` lives in registers. x: at
 * the rows of the corner; w: at its rows of W. F2 requires one step per iteration: the terms of two
 * steps could be added to each other first, for one type and not for the other. */
static inline __attribute__((always_inline)) void
step_in_order(pl_vec (*sum)[W_ROWS], const float *x, uint64_t ldx, const char *const *w, uint64_t k,
              uint64_t ahead, const int rows, const int cols, const enum pl_dtype dtype) {
    pl_vec v[W_ROWS];
    for (int j = 0; j < cols; j++) {
        ask_for(w[j] + k * pl_float_bytes(dtype), ahead);
        v[j] = load_w(w[j], k, dtype);
    }
    for (int i = 0; i < rows; i++) {
        const pl_vec a = pl_vec_load(x + (uint64_t)i * ldx + k);
        for (int j = 0; j < cols; j++)
            sum[i][j] += a * v[j];
    }
}

static inline __attribute__((always_inline)) void step_apart(pl_vec (*sum)[W_ROWS], const float *x,
                                                             uint64_t ldx, const uint16_t *const *w,
                                                             uint64_t k, uint64_t ahead,
                                                             const int rows, const int cols) {
    pl_vec even[W_ROWS], odd[W_ROWS];
    for (int j = 0; j < cols; j++) {
        ask_for(w[j] + k, ahead);
        pl_vec_load_bf16(w[j] + k, &even[j], &odd[j]);
    }
    for (int i = 0; i < rows; i++) {
        const float *at = x + (uint64_t)i * ldx + k;
        const pl_vec a = pl_vec_load(at), b = pl_vec_load(at + PL_LANES);
        for (int j = 0; j < cols; j++) {
            sum[i][j] += a * even[j];
            sum[i][j] += b * odd[j];
        }
    }
}

static inline __attribute__((always_inline)) void
store_all(const struct corner *c, pl_vec (*sum)[W_ROWS], const int rows, const int cols) {
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < cols; j++)
            store(c, i, j, pl_vec_sum(sum[i][j]));
}

/* The elements after the last whole vector are copied among zeros: reading past a row would leave
 * the matrix at its end. */
static inline __attribute__((always_inline)) void multiply_in_order(const struct corner *c,
                                                                    const int rows, const int cols,
                                                                    const enum pl_dtype dtype) {
    const struct few_rows *f = c->f;
    const uint64_t size = pl_float_bytes(dtype);
    const uint64_t whole = f->k / PL_LANES * PL_LANES, rest = f->k - whole;
    const uint64_t ahead = (uint64_t)cols * f->g->b.ld * size;
    const float *x = f->x + c->row * f->ldx;
    const char *w[W_ROWS];
    pl_vec sum[X_ROWS][W_ROWS] = {0};
    for (int j = 0; j < cols; j++)
        w[j] = pl_at(&f->g->b, c->col + (uint64_t)j, 0);
    for (uint64_t k = 0; k < whole; k += PL_LANES)
        step_in_order(sum, x, f->ldx, w, k, ahead, rows, cols, dtype);
    if (rest) {
        float x_end[X_ROWS][PL_LANES] = {{0}}, w_end[W_ROWS][PL_LANES] = {{0}};
        for (int i = 0; i < rows; i++)
            memcpy(x_end[i], x + (uint64_t)i * f->ldx + whole, rest * sizeof(float));
        for (int j = 0; j < cols; j++) {
            memcpy(w_end[j], w[j] + whole * size, rest * size);
            w[j] = (const char *)w_end[j];
        }
        step_in_order(sum, x_end[0], PL_LANES, w, 0, 0, rows, cols, dtype);
    }
    store_all(c, sum, rows, cols);
}

static inline __attribute__((always_inline)) void multiply_apart(const struct corner *c,
                                                                 const int rows, const int cols) {
    const struct few_rows *f = c->f;
    const uint64_t whole = f->k / APART_STEP * APART_STEP, rest = f->k - whole;
    const uint64_t ahead = (uint64_t)cols * f->g->b.ld * sizeof(uint16_t);
    const float *x = f->x + c->row * f->ldx;
    const uint16_t *w[W_ROWS];
    pl_vec sum[X_ROWS][W_ROWS] = {0};
    for (int j = 0; j < cols; j++)
        w[j] = pl_at(&f->g->b, c->col + (uint64_t)j, 0);
    for (uint64_t k = 0; k < whole; k += APART_STEP)
        step_apart(sum, x, f->ldx, w, k, ahead, rows, cols);
    if (rest) {
        uint16_t w_end[W_ROWS][APART_STEP] = {{0}};
        for (int j = 0; j < cols; j++) {
            memcpy(w_end[j], w[j] + whole, rest * sizeof(uint16_t));
            w[j] = w_end[j];
        }
        step_apart(sum, x + whole, f->ldx, w, 0, 0, rows, cols);
    }
    store_all(c, sum, rows, cols);
}

/* The storage of operands, as far as the loops differ: the type of W, in order, or APART. */
enum storage { APART = PL_DTYPE_COUNT, STORAGES };
#define STORAGE(X, arg) PL_FLOAT_LIST(X, arg) X(APART, arg)
enum {
#define X(T, arg) STORAGE_##T = PL_DTYPE_##T,
    PL_FLOAT_LIST(X, ) STORAGE_APART = APART
#undef X
};

static inline __attribute__((always_inline)) void multiply(const struct corner *c, const int rows,
                                                           const int cols, const int storage) {
    if (storage == APART)
        multiply_apart(c, rows, cols);
    else
        multiply_in_order(c, rows, cols, (enum pl_dtype)storage);
}

#define CORNER(rows, width, cols, storage)                                                         \
    static void multiply_##rows##_##width##_##storage(const struct corner *c) {                    \
        multiply(c, rows, cols, STORAGE_##storage);                                                \
    }
#define CORNERS(width, cols, storage)                                                              \
    CORNER(1, width, cols, storage)                                                                \
    CORNER(2, width, cols, storage)                                                                \
    CORNER(3, width, cols, storage)                                                                \
    CORNER(4, width, cols, storage)
#define BOTH_WIDTHS(storage, arg)                                                                  \
    CORNERS(whole, W_ROWS, storage)                                                                \
    CORNERS(single, 1, storage)
STORAGE(BOTH_WIDTHS, )

typedef void (*corner_fn)(const struct corner *c);
#define ENTRIES(width, storage)                                                                    \
    {                                                                                              \
        multiply_1_##width##_##storage, multiply_2_##width##_##storage,                            \
            multiply_3_##width##_##storage, multiply_4_##width##_##storage                         \
    }
/* [storage][is a single row of W][rows of x - 1] */
#define ROW(storage, arg) [STORAGE_##storage] = {ENTRIES(whole, storage), ENTRIES(single, storage)},
static const corner_fn corners[STORAGES][2][X_ROWS] = {STORAGE(ROW, )};

/* Rows of x in a narrow type are copied as fp32, for bf16 weights in the order that takes them
 * apart. */
static int storage_of(const struct pl_gemm *g) {
    const bool apart = pl_dtype_is_upper_half(g->a.dtype) && pl_dtype_is_upper_half(g->b.dtype);
    return apart ? (int)APART : (int)g->b.dtype;
}

static void multiply_columns(void *arg, uint64_t col0, uint64_t col1, uint32_t worker) {
    const struct few_rows *f = arg;
    const int storage = storage_of(f->g);
    (void)worker;
    for (uint64_t col = col0; col < col1;) {
        const bool single = col1 - col < W_ROWS;
        for (uint64_t row = 0; row < f->m; row += X_ROWS) {
            const uint64_t rows = pl_u64_min(X_ROWS, f->m - row);
            corners[storage][single][rows - 1](&(struct corner){f, row, col});
        }
        col += single ? 1 : W_ROWS;
    }
}

/* Elements of a row of x as the weights want it. */
static uint64_t laid_out(const struct pl_gemm *g) {
    return storage_of(g) == APART ? pl_u64_round_up(g->a.cols, APART_STEP) : g->a.cols;
}

static bool is_laid_out(const struct pl_gemm *g) {
    return g->a.dtype == PL_DTYPE_F32;
}

bool PL_LEVEL_NAME(pl_cpu_has_few_rows)(const struct pl_gemm *g) {
    if (g->trans_a || !g->trans_b || g->c.rows > PL_FEW_ROWS) return false;
    return is_laid_out(g) || pl_ws_holds(&g->ws, g->c.rows * laid_out(g) * sizeof(float));
}

/* dst[n] = row of x, element by element: a few rows, once for the whole product. */
static void lay_out(const struct pl_gemm *g, uint64_t row, uint64_t n, float *dst) {
    const void *src = pl_at(&g->a, row, 0);
    const bool apart = storage_of(g) == APART;
    for (uint64_t k = 0; k < n; k++) {
        const uint64_t in = k % APART_STEP;
        const uint64_t to = apart ? k - in + in / 2 + in % 2 * PL_LANES : k;
        dst[to] = 0;
        if (k < g->a.cols)
            pl_widen(&dst[to], (const char *)src + k * pl_float_bytes(g->a.dtype), g->a.dtype, 1);
    }
}

static struct few_rows begin(const struct pl_gemm *g) {
    struct few_rows f = {
        .g = g, .x = g->a.p, .ldx = g->a.ld, .m = g->c.rows, .n = g->c.cols, .k = g->a.cols};
    if (!is_laid_out(g)) {
        f.x = g->ws.p;
        f.ldx = laid_out(g);
        for (uint64_t i = 0; i < f.m; i++)
            lay_out(g, i, f.ldx, (float *)g->ws.p + i * f.ldx);
    }
    return f;
}

void PL_LEVEL_NAME(pl_cpu_few_rows_part)(const struct pl_gemm *g, uint64_t col0, uint64_t col1) {
    struct few_rows f = begin(g);
    multiply_columns(&f, col0, col1, 0);
}

void PL_LEVEL_NAME(pl_cpu_few_rows)(struct pl_device *dev, const struct pl_gemm *g) {
    struct few_rows f = begin(g);
    const uint64_t wide = TASK_BYTES / (f.k * pl_float_bytes(g->b.dtype)) / W_ROWS * W_ROWS;
    pl_cpu_rows(dev, f.n, pl_u64_max(wide, W_ROWS), multiply_columns, &f);
}
