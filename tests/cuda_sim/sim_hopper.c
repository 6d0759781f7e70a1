/* sim_hopper.c - twins of the instructions in runtime/kernels/cuda/hopper.cuh, by the layouts that
 * the PTX manual (ISA 8.0, "Asynchronous Warpgroup Level Matrix Instructions") gives for fragments,
 * descriptors and swizzled tiles.
 *
 * A product is computed when its registers are waited for, and not before: until then they are NaN,
 * and what it reads from shared memory is what lies there at that time. */
#include "tests/cuda_sim/sim.h"
#include "tests/cuda_sim/sim_hopper.h"

#include "estimator/ops/half.h"

#include <string.h>

enum {
    WARP = 32,
    WARPS = 4, /* of a warpgroup */
    ROWS = 16, /* of a warp */
    K = 16,
    MOST_COLUMNS = 128,
    MOST_PRODUCTS = 32,
    MOST_SUMS = 2
};

void pl_sim_wgmma(float *c, uint32_t columns, const uint32_t *a, uint64_t a_tile, uint64_t b_tile,
                  bool adds, bool is_bf16);
void pl_sim_wgmma_fence(void);
void pl_sim_wgmma_commit(void);
void pl_sim_wgmma_wait(void);

/* ---- tiles ---- */

struct tile {
    uint32_t address, leading, stride;
};

static struct tile describe(uint64_t t) {
    const struct tile out = {(uint32_t)(t & 0x3FFF) * 16, (uint32_t)(t >> 16 & 0x3FFF) * 16,
                             (uint32_t)(t >> 32 & 0x3FFF) * 16};
    if (t >> 62 != 1) plsim_die("wgmma: a tile that is not swizzled by 128 bytes");
    if (t >> 49 & 7) plsim_die("wgmma: a tile with a base offset");
    return out;
}

/* The warp whose products are computed, and what it knows of loads. */
static struct {
    uint32_t warp, seen[PLSIM_MOST_BARRIERS]; /* by all its lanes */
    uint64_t loads;                           /* before the product began */
} reader;

/* The element at `offset` from the start of a tile: units of a row of 128 bytes are exchanged by
 * the number of the row among eight, which are bits of the address. A product that reads an element
 * of a unit reads all. */
static uint16_t element(const struct tile *t, uint32_t offset) {
    uint32_t at = t->address + offset;
    uint16_t h;
    at ^= at / PLSIM_ROW % 8 * PLSIM_UNIT;
    const unsigned char *p = plsim_at(at, "wgmma");
    if (at % PLSIM_UNIT == 0) plsim_unit_read(p, reader.warp, reader.loads, reader.seen);
    memcpy(&h, p, sizeof h);
    return h;
}

/* Element (row, k) of a tile whose rows have the k of a product. */
static uint16_t of_rows(const struct tile *t, uint32_t row, uint32_t k) {
    return element(t, row / 8 * t->stride + row % 8 * PLSIM_ROW + k * 2);
}

/* Element (column, k) of one whose rows are the k, 64 columns in each. */
static uint16_t of_columns(const struct tile *t, uint32_t column, uint32_t k) {
    return element(t, column / 64 * t->leading + column % 64 * 2 + k / 8 * t->stride +
                          k % 8 * PLSIM_ROW);
}

/* ---- products ---- */

struct product {
    float *c;
    uint32_t columns, a[4];
    bool has_a, adds, is_bf16;
    uint64_t a_tile, b_tile;
    uint64_t loads; /* before it began */
};

/* The products of a thread that were not waited for. */
static struct queue {
    struct product products[MOST_PRODUCTS];
    struct sums {
        float *c, held[MOST_COLUMNS / 2]; /* registers, and their content, while they are NaN */
        uint32_t n;
    } sums[MOST_SUMS];
    uint32_t n_sums;
    uint32_t n, committed;
    bool fenced;
} queues[PLSIM_MAX_THREADS];

void plsim_hopper_forget(uint32_t threads) {
    plsim_units_forget(threads);
    for (uint32_t i = 0; i < threads; i++) {
        queues[i].n = queues[i].committed = queues[i].n_sums = 0;
        queues[i].fenced = false;
    }
}

static float of_bits(uint32_t bits, bool is_bf16) {
    const uint32_t u = bits << 16;
    float f;
    if (!is_bf16) return pl_half_widen((uint16_t)bits);
    memcpy(&f, &u, sizeof f);
    return f;
}

static void read_a(void *const queue_of[WARP], uint32_t i, uint32_t warp, float a[ROWS][K]) {
    const struct product *first = &((const struct queue *)queue_of[0])->products[i];
    for (uint32_t row = 0; row < ROWS && !first->has_a; row++) {
        const struct tile t = describe(first->a_tile);
        for (uint32_t k = 0; k < K; k++)
            a[row][k] = of_bits(of_rows(&t, warp % WARPS * ROWS + row, k), first->is_bf16);
    }
    for (uint32_t lane = 0; lane < WARP && first->has_a; lane++)
        for (uint32_t r = 0; r < 4; r++) {
            const uint32_t word = ((const struct queue *)queue_of[lane])->products[i].a[r];
            const uint32_t row = lane / 4 + r % 2 * 8, k = lane % 4 * 2 + r / 2 * 8;
            a[row][k] = of_bits(word & 0xFFFF, first->is_bf16);
            a[row][k + 1] = of_bits(word >> 16, first->is_bf16);
        }
}

static void read_b(const struct product *x, float b[K][MOST_COLUMNS]) {
    const struct tile t = describe(x->b_tile);
    for (uint32_t k = 0; k < K; k++)
        for (uint32_t j = 0; j < x->columns; j++)
            b[k][j] = of_bits(x->has_a ? of_columns(&t, j, k) : of_rows(&t, j, k), x->is_bf16);
}

/* c += a b with fp32 sums in the order of k, as sim_ptx.c has it. */
static void multiply(void *const queue_of[WARP], uint32_t i, uint32_t warp) {
    static float a[ROWS][K], b[K][MOST_COLUMNS], c[ROWS][MOST_COLUMNS];
    const struct product *first = &((const struct queue *)queue_of[0])->products[i];
    reader.loads = first->loads;
    read_a(queue_of, i, warp, a);
    read_b(first, b);
    for (int store = 0; store < 2; store++) {
        for (uint32_t lane = 0; lane < WARP; lane++) {
            const struct product *x = &((const struct queue *)queue_of[lane])->products[i];
            for (uint32_t r = 0; r < x->columns / 2; r++) {
                float *sum = &c[lane / 4 + r / 2 % 2 * 8][r / 4 * 8 + lane % 4 * 2 + r % 2];
                if (store)
                    x->c[r] = *sum;
                else
                    *sum = x->adds ? x->c[r] : 0.0f;
            }
        }
        for (uint32_t row = 0; row < ROWS && !store; row++)
            for (uint32_t k = 0; k < K; k++)
                for (uint32_t j = 0; j < first->columns; j++)
                    c[row][j] += a[row][k] * b[k][j];
    }
}

static void begin_reading(uint32_t warp) {
    reader.warp = warp;
    for (uint32_t b = 0; b < PLSIM_MOST_BARRIERS; b++) {
        reader.seen[b] = UINT32_MAX;
        for (uint32_t lane = 0; lane < WARP; lane++) {
            const uint32_t seen = plsim_phases_seen(warp * WARP + lane, b);
            if (reader.seen[b] > seen) reader.seen[b] = seen;
        }
    }
}

/* Registers that are waited for have their sums again. */
static void run_all(void *const queue_of[WARP], uint32_t lanes) {
    if (lanes != UINT32_MAX) plsim_die("wgmma with lanes %08x only", lanes);
    const uint32_t warp = plsim_thread() / WARP;
    struct queue *first = queue_of[0];
    for (uint32_t lane = 0; lane < WARP; lane++) {
        struct queue *q = queue_of[lane];
        if (q->n != first->n) plsim_die("wgmma: lanes of a warp have other numbers of products");
        if (q->committed != q->n) plsim_die("wgmma: a wait for products that were not committed");
        for (uint32_t i = 0; i < q->n_sums; i++)
            memcpy(q->sums[i].c, q->sums[i].held, q->sums[i].n * sizeof(float));
    }
    begin_reading(warp);
    for (uint32_t i = 0; i < first->n; i++)
        multiply(queue_of, i, warp);
    for (uint32_t lane = 0; lane < WARP; lane++) {
        struct queue *q = queue_of[lane];
        q->n = q->committed = q->n_sums = 0;
        q->fenced = false;
    }
}

/* Registers of a product belong to it from its beginning on. */
static void hold(struct queue *q, float *c, uint32_t n) {
    for (uint32_t i = 0; i < q->n_sums; i++)
        if (q->sums[i].c == c) return;
    if (q->n_sums == MOST_SUMS) plsim_die("products under way into more than %d sums", MOST_SUMS);
    struct sums *x = &q->sums[q->n_sums++];
    x->c = c;
    x->n = n;
    memcpy(x->held, c, n * sizeof *c);
    memset(c, 0xFF, n * sizeof *c);
}

static const struct plsim_collective wait = {"wgmma.wait_group", run_all};

void pl_sim_wgmma(float *c, uint32_t columns, const uint32_t *a, uint64_t a_tile, uint64_t b_tile,
                  bool adds, bool is_bf16) {
    struct queue *q = &queues[plsim_thread()];
    if (plsim_settings()->sm != 90) plsim_die("wgmma on sm_%d", plsim_settings()->sm);
    if (!q->fenced) plsim_die("wgmma without wgmma.fence before it");
    if (q->n == MOST_PRODUCTS) plsim_die("more than %d products under way", MOST_PRODUCTS);
    hold(q, c, columns / 2);
    plsim_counters.wgmmas++;
    struct product *x = &q->products[q->n++];
    *x = (struct product){.c = c,
                          .columns = columns,
                          .has_a = a != NULL,
                          .adds = adds,
                          .is_bf16 = is_bf16,
                          .a_tile = a_tile,
                          .b_tile = b_tile,
                          .loads = plsim_loads()};
    if (a) memcpy(x->a, a, sizeof x->a);
}

void pl_sim_wgmma_fence(void) {
    queues[plsim_thread()].fenced = true;
}

void pl_sim_wgmma_commit(void) {
    queues[plsim_thread()].committed = queues[plsim_thread()].n;
}

void pl_sim_wgmma_wait(void) {
    plsim_meet_warp(&wait, UINT32_MAX, &queues[plsim_thread()]);
}
