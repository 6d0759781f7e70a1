/* gemm.c - products: cut into parts, which gemm_blocks.c or gemm_amx.c computes.
 *
 * A task owns a part of C and walks k in blocks. Where C is fp32 and its rows are whole vectors,
 * terms are added to C itself; else to fp32 sums in the scratch, which are rounded once.
 *   G1  an element is one chain of additions along k in blocks of a depth that k and the left
 *       matrix's type decide, so its bits depend neither on the cut into parts nor on threads */
#include "runtime/kernels/cpu/gemm.h"
#include "runtime/kernels/cpu/gemm_pack.h"

_Static_assert(PL_GEMM_UNIT % PL_TILE_COLS == 0 && PL_GEMM_UNIT % PL_TILE_MAX_ROWS == 0,
               "parts are whole tiles");
_Static_assert(PL_GEMM_ROWS % PL_GEMM_UNIT == 0 && PL_GEMM_DEEP_ROWS % PL_GEMM_UNIT == 0 &&
                   PL_GEMM_COLS % PL_GEMM_UNIT == 0,
               "the largest part is whole tiles");

static struct pl_part part_of(const struct pl_product *p, uint32_t task) {
    struct pl_part t = {.m0 = task / p->parts_n * p->part_m, .n0 = task % p->parts_n * p->part_n};
    t.rows = pl_u64_min(p->part_m, p->m - t.m0);
    t.cols = pl_u64_min(p->part_n, p->n - t.n0);
    return t;
}

/* ---- the cut into parts ---- */

/* Columns of a part are whole tiles, and whole lines of bf16 where lines are written or panels have
 * 32 columns. */
enum { LINES_UNIT = 2 * PL_GEMM_UNIT };

/* Below this many multiply-adds waking a thread costs more than it brings. */
#define SERIAL_PRODUCT (UINT64_C(1) << 17)
#define PARTS_A_THREAD 8

/* Costs of an element in multiply-adds, by vectors and by AMX: of a row of the left matrix, which
 * every part reads anew, copied or not, and of a column of the right one that is copied or turned.
 */
static const struct costs {
    uint64_t row, copied, turned;
} costs[] = {{4 * PL_LANES, PL_LANES, 2 * PL_LANES}, {40, 20, 40}};

struct limits {
    uint64_t rows, cols;            /* of a part */
    uint64_t left_cost, right_cost; /* per row and per column of it */
};

/* Rows of a part are whole tiles. */
static uint64_t rows_unit(const struct pl_product *p) {
    return p->amx ? PL_AMX_ROWS : PL_TILE_MAX_ROWS;
}

/* The time of the busiest thread plus a sixteenth of the time of a part: with smaller parts the
 * other threads can take over from one that is held up. */
static double time_of(const struct pl_product *p, const struct limits *l, uint32_t threads) {
    const uint64_t parts = pl_u64_div_up(p->m, p->part_m) * pl_u64_div_up(p->n, p->part_n);
    const uint64_t rows = pl_u64_min(p->part_m, p->m), cols = pl_u64_min(p->part_n, p->n);
    const double part = (double)(rows * cols + rows * l->left_cost + cols * l->right_cost);
    return part * ((double)pl_u64_div_up(parts, threads) + 0.0625);
}

static void split(struct pl_product *p, const struct limits *l, uint32_t threads) {
    const uint64_t most = threads == 1 ? 1 : (uint64_t)threads * PARTS_A_THREAD;
    const uint64_t least_m = pl_u64_div_up(p->m, l->rows), least_n = pl_u64_div_up(p->n, l->cols);
    const uint64_t unit = p->streams || p->amx ? LINES_UNIT : PL_GEMM_UNIT;
    const uint64_t all = pl_u64_round_up(p->n, PL_GEMM_UNIT); /* sums have room for so many */
    struct pl_product best = *p;
    double best_time = INFINITY;
    for (uint64_t parts_m = least_m; parts_m <= most || parts_m == least_m; parts_m *= 2) {
        p->part_m = pl_u64_round_up(pl_u64_div_up(p->m, parts_m), rows_unit(p));
        for (uint64_t parts_n = least_n; parts_m * parts_n <= most || parts_n == least_n;
             parts_n++) {
            const uint64_t cols = pl_u64_round_up(pl_u64_div_up(p->n, parts_n), unit);
            p->part_n = pl_u64_min(cols, all);
            const double time = time_of(p, l, threads);
            if (time >= best_time) continue;
            best_time = time;
            best = *p;
        }
    }
    *p = best;
}

/* ---- one part ---- */

static struct pl_gemm_scratch scratch_of(const struct pl_product *p, uint32_t worker) {
    struct pl_gemm_scratch s;
    s.left = (float *)((char *)p->g->ws.p + worker * pl_gemm_worker_bytes(&p->room));
    s.right = s.left + p->room.left;
    s.sums = s.right + p->room.right;
    return s;
}

/* C = bias, or C += bias: the product then adds to it. */
static void begin_with_bias(const struct pl_gemm *g, const struct pl_part *t) {
    float bias[PL_GEMM_COLS];
    for (uint64_t col = 0, n; col < t->cols; col += n) {
        n = pl_u64_min(PL_GEMM_COLS, t->cols - col);
        pl_widen(bias, pl_vector_at(&g->bias, t->n0 + col), g->bias.dtype, n);
        for (uint64_t i = 0; i < t->rows; i++) {
            float *restrict c = pl_at(&g->c, t->m0 + i, t->n0 + col);
            for (uint64_t j = 0; j < n; j++)
                c[j] = g->adds ? c[j] + bias[j] : bias[j];
        }
    }
}

/* The sums are those of C^T: a column of them is a piece of a row of C. */
static void finish_turned(const struct pl_product *p, const struct pl_part *t, const float *sums) {
    float row[PL_GEMM_COLS];
    for (uint64_t j = 0; j < t->cols; j++) {
        for (uint64_t i = 0; i < t->rows; i++)
            row[i] = sums[i * p->part_n + j];
        PL_LEVEL_NAME(pl_gemm_finish_row)(p->g, t->n0 + j, t->m0, t->rows, row);
    }
}

static void run_part(void *arg, uint32_t task, uint32_t worker) {
    const struct pl_product *p = arg;
    const struct pl_part t = part_of(p, task);
    const struct pl_gemm_scratch s = scratch_of(p, worker);
    if (p->direct && p->g->bias.p) begin_with_bias(p->g, &t);
#if PL_HAS_AMX
    if (p->amx)
        PL_LEVEL_NAME(pl_gemm_amx)(p, &t, &s);
    else
#endif
        PL_LEVEL_NAME(pl_gemm_blocks)(p, &t, &s);
    if (p->turned) finish_turned(p, &t, s.sums);
    if (p->streams) pl_tile_drain();
}

/* ---- the whole ---- */

/* No terms to sum: C = bias, or C stays. */
static void no_depth(const struct pl_gemm *g) {
    float sums[PL_GEMM_COLS];
    if (!g->adds && !g->bias.p) {
        for (uint64_t i = 0; i < g->c.rows; i++)
            memset(pl_at(&g->c, i, 0), 0, g->c.cols * pl_float_bytes(g->c.dtype));
        return;
    }
    for (uint64_t col = 0; col < g->c.cols; col += PL_GEMM_COLS) {
        const uint64_t n = pl_u64_min(PL_GEMM_COLS, g->c.cols - col);
        for (uint64_t i = 0; i < g->c.rows; i++) {
            memset(sums, 0, sizeof sums);
            PL_LEVEL_NAME(pl_gemm_finish_row)(g, i, col, n, sums);
        }
    }
}

/* A narrow C is computed as its transpose where its rows would be the columns that tiles want, or
 * where the other operand is the smaller one to turn. */
static bool is_turned(const struct pl_gemm *g) {
    if (g->trans_a) return g->c.cols <= PL_GEMM_NARROW_COLS && g->c.rows > g->c.cols;
    return g->trans_b && g->c.rows <= PL_GEMM_FEW_ROWS && g->c.cols > g->c.rows;
}

/* C^T = op(B)^T op(A)^T. */
static struct pl_gemm turn(const struct pl_gemm *g) {
    struct pl_gemm t = *g;
    t.a = g->b;
    t.b = g->a;
    t.trans_a = !g->trans_b;
    t.trans_b = !g->trans_a;
    return t;
}

/* The whole product decides, so that parts have no say in how an element is rounded. */
static bool goes_to_c(const struct pl_product *p) {
    return p->g->c.dtype == PL_DTYPE_F32 && !p->turned && p->n % PL_GEMM_LINE == 0;
}

/* True if tiles write whole lines of C, once and for all. */
static bool writes_lines(const struct pl_product *p) {
    const struct pl_view *c = &p->g->c;
    const uint64_t line = PL_CACHE_LINE / sizeof(uint16_t);
    return PL_TILE_LINE && p->g->streams && (p->pairs || p->amx) && p->rounds && !p->g->adds &&
           p->g->alpha == 1 && p->depth >= p->k && p->n % line == 0 && c->ld % line == 0 &&
           (uintptr_t)c->p % PL_CACHE_LINE == 0;
}

static struct limits limits_of(const struct pl_product *p, const struct pl_gemm_shape *s) {
    const struct pl_gemm *g = p->g;
    const struct costs *cost = &costs[p->amx];
    const bool has_sums = !p->direct && (!p->rounds || p->depth < p->k);
    const bool copied =
        p->amx ? pl_amx_copies(p) : p->copied || pl_left_is_copied(&g->a, g->trans_a, p->pairs);
    struct limits l = {.rows = UINT64_MAX / 2,
                       .cols = has_sums ? PL_GEMM_COLS : UINT64_MAX / 2,
                       .left_cost = cost->row,
                       .right_cost = g->trans_b ? cost->turned : cost->copied};
    if (copied || (p->amx ? has_sums : !p->direct))
        l.rows = (copied ? pl_gemm_rows(s) : PL_GEMM_ROWS) / rows_unit(p) * rows_unit(p);
    if (p->amx && copied) l.rows = pl_u64_min(l.rows, pl_amx_rows(p));
    return l;
}

/* The depth of even blocks: multiples of 16 numbers or pairs keep all but the last on whole
 * vectors. */
static uint64_t depth_of(const struct pl_product *p, const struct pl_gemm_shape *s) {
    const uint64_t most = p->amx ? PL_AMX_DEPTH : p->pairs ? 2 * PL_GEMM_DEPTH : pl_gemm_depth(s);
    const uint64_t line = p->pairs || p->amx ? 2 * PL_GEMM_LINE : PL_GEMM_LINE;
    return pl_u64_round_up(pl_u64_div_up(p->k, pl_u64_div_up(p->k, most)), line);
}

/* True if rows that could be used in place are copied since many of them lie in one set of the
 * first cache: where a tile of one vector takes the most rows, and where they lie whole pages apart
 * and are used for enough columns. */
static bool copies_rows(const struct pl_product *p, const struct pl_gemm_shape *s) {
    enum { ENOUGH_COLUMNS = 128 };
    if (!p->room.left) return false;
    return p->turned ? p->n <= PL_LANES : pl_gemm_collides(s) && p->n >= ENOUGH_COLUMNS;
}

/* C has elements and there are terms to sum. *transpose: place for the product of the transpose. */
static struct pl_product plan(const struct pl_gemm *g, uint32_t threads,
                              struct pl_gemm *transpose) {
    const struct pl_gemm_shape shape = pl_gemm_shape_of(g);
    struct pl_product p = {.g = g, .turned = is_turned(g), .k = shape.k};
    *transpose = turn(g);
    if (p.turned) p.g = transpose;
    p.m = p.turned ? g->c.cols : g->c.rows;
    p.n = p.turned ? g->c.rows : g->c.cols;
    p.room = pl_gemm_room(&shape);
    p.direct = goes_to_c(&p);
    p.rounds = g->c.dtype == PL_DTYPE_BF16 && !g->bias.p && !p.turned && p.n % PL_GEMM_LINE == 0;
    const bool both_bf16 = g->a.dtype == PL_DTYPE_BF16 && g->b.dtype == PL_DTYPE_BF16;
    p.amx = PL_HAS_AMX && both_bf16;
    p.pairs = PL_HAS_PAIRS && both_bf16;
    p.copied = copies_rows(&p, &shape);
    p.depth = depth_of(&p, &shape);
    p.streams = writes_lines(&p);
    const struct limits limits = limits_of(&p, &shape);
    split(&p, &limits, p.m * p.n < SERIAL_PRODUCT / (p.k + 1) ? 1 : threads);
    p.parts_n = pl_u64_div_up(p.n, p.part_n);
    return p;
}

static uint32_t parts_of(const struct pl_product *p) {
    return (uint32_t)(pl_u64_div_up(p->m, p->part_m) * p->parts_n);
}

static bool is_empty(const struct pl_gemm *g) {
    return g->c.rows == 0 || g->c.cols == 0;
}

static bool has_no_depth(const struct pl_gemm *g) {
    return (g->trans_a ? g->a.rows : g->a.cols) == 0;
}

pl_err PL_LEVEL_NAME(pl_cpu_gemm)(struct pl_device *dev, const struct pl_gemm *g) {
    struct pl_pool *pool = pl_cpu_of(dev)->pool;
    const uint32_t threads = pl_pool_threads(pool);
    struct pl_gemm transpose;
    if (is_empty(g)) return PL_ERR_OK;
    if (has_no_depth(g)) {
        no_depth(g);
        return PL_ERR_OK;
    }
    if (PL_LEVEL_NAME(pl_cpu_has_few_rows)(g)) {
        PL_LEVEL_NAME(pl_cpu_few_rows)(dev, g);
        return PL_ERR_OK;
    }
    struct pl_product p = plan(g, threads, &transpose);
    if (!pl_ws_holds(&g->ws, threads * pl_gemm_worker_bytes(&p.room))) return PL_ERR_PLAN_BROKEN;
    pl_pool_run(pool, parts_of(&p), run_part, &p);
    return PL_ERR_OK;
}

/* ---- parts of a product that is not alone ---- */

/* Columns of a part of a few rows. */
static uint64_t few_columns(const struct pl_gemm *g, uint32_t threads) {
    return pl_u64_round_up(pl_u64_div_up(g->c.cols, threads), PL_GEMM_LINE);
}

uint32_t PL_LEVEL_NAME(pl_cpu_gemm_parts)(const struct pl_gemm *g, uint32_t threads) {
    struct pl_gemm transpose;
    if (is_empty(g)) return 0;
    if (has_no_depth(g)) return 1;
    if (PL_LEVEL_NAME(pl_cpu_has_few_rows)(g))
        return (uint32_t)pl_u64_div_up(g->c.cols, few_columns(g, threads));
    const struct pl_product p = plan(g, threads, &transpose);
    return parts_of(&p);
}

void PL_LEVEL_NAME(pl_cpu_gemm_part)(const struct pl_gemm *g, uint32_t threads, uint32_t part) {
    struct pl_gemm transpose;
    if (has_no_depth(g)) {
        no_depth(g);
        return;
    }
    if (PL_LEVEL_NAME(pl_cpu_has_few_rows)(g)) {
        const uint64_t wide = few_columns(g, threads), col = part * wide;
        PL_LEVEL_NAME(pl_cpu_few_rows_part)(g, col, pl_u64_min(col + wide, g->c.cols));
        return;
    }
    struct pl_product p = plan(g, threads, &transpose);
    run_part(&p, part, 0);
}
