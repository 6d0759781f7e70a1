/* dropout.c - DROPOUT and DROPOUT_BWD: a mask that is a function, never stored.
 *
 * Element (position, column) of a sample is kept when its counter-based number, of the stream
 * (seed, step, sample, site), is at least p; so the mask is the same in whatever micro-batch, order
 * or thread the sample is computed, and the backward pass computes it again. */
#include "runtime/kernels/cpu/chunk.h"
#include "runtime/kernels/cpu/random.h"

struct dropout {
    struct pl_view x, y; /* [N,K]; y = mask(x), or y += mask(x) */
    const int32_t *offsets;
    const uint64_t *samples;
    const struct pl_batch *batch;
    uint32_t site;
    uint64_t first;     /* token of the micro-batch that row 0 is */
    uint32_t threshold; /* p * 2^32 */
    float scale;        /* 1 / (1 - p) */
    bool adds;
};

/* Numbers of columns [col, col+n) of one position: four columns share a block, and the position is
 * the upper half of the block's index. col is a multiple of 4, and numbers has room for whole
 * draws. */
#define BLOCK_COLUMNS 4
_Static_assert(PL_CHUNK % (BLOCK_COLUMNS * PL_RANDOM_BLOCKS) == 0, "a chunk is whole draws");

static void draw(const struct pl_random *stream, uint64_t position, uint64_t col, uint64_t n,
                 uint32_t *numbers) {
    const uint64_t base = position << 32 | col / BLOCK_COLUMNS;
    for (uint64_t i = 0; i < pl_u64_div_up(n, BLOCK_COLUMNS); i += PL_RANDOM_BLOCKS)
        pl_random_blocks(stream, base + i, numbers + BLOCK_COLUMNS * i);
}

static void drop_row(const struct dropout *t, const struct pl_random *stream, uint64_t position,
                     uint64_t row) {
    uint32_t numbers[PL_CHUNK];
    float bx[PL_CHUNK], by[PL_CHUNK], bo[PL_CHUNK];
    const uint32_t threshold = t->threshold;
    const float scale = t->scale;
    for (uint64_t c = 0, n; c < t->y.cols; c += n) {
        n = pl_chunk_size(t->y.cols, c);
        draw(stream, position, c, n, numbers);
        const float *x = pl_chunk(&t->x, row, c, n, bx);
        const float *old = t->adds ? pl_chunk(&t->y, row, c, n, bo) : NULL;
        float *y = pl_chunk_out(&t->y, row, c, by);
        for (uint64_t i = 0; i < n; i++) {
            const float kept = numbers[i] >= threshold ? x[i] * scale : 0.0f;
            y[i] = old ? old[i] + kept : kept;
        }
        pl_chunk_store(&t->y, row, c, n, y);
    }
}

static void drop_rows(void *arg, uint64_t row0, uint64_t row1, uint32_t worker) {
    const struct dropout *t = arg;
    uint64_t s = 0;
    (void)worker;
    for (uint64_t row = row0; row < row1;) {
        while ((uint64_t)t->offsets[s + 1] <= t->first + row)
            s++;
        const uint64_t start = (uint64_t)t->offsets[s];
        const struct pl_rng sample = pl_rng_init(t->batch->seed, t->batch->step, t->samples[s]);
        const struct pl_rng own = pl_rng_fork(sample, t->site);
        struct pl_random stream;
        pl_random_init(&stream, &own);
        for (; row < row1 && t->first + row < (uint64_t)t->offsets[s + 1]; row++)
            drop_row(t, &stream, t->first + row - start, row);
    }
}

static pl_err run(struct pl_device *dev, const struct pl_call *c, struct dropout *t) {
    const double p = (double)c->attr->dropout;
    t->batch = c->batch;
    t->site = c->attr->site;
    t->first = c->attr->first_element / pl_u64_max(t->y.cols, 1);
    t->threshold = (uint32_t)(p * 4294967296.0);
    t->scale = (float)(1.0 / (1.0 - p));
    if (t->y.rows && (uint64_t)t->offsets[c->batch->n_seqs] < t->first + t->y.rows)
        return PL_ERR_PLAN_BROKEN;
    pl_cpu_rows(dev, t->y.rows, pl_cpu_grain(t->y.cols), drop_rows, t);
    return PL_ERR_OK;
}

/* in: x[N,K] offsets[B+1]i32 sample[B]u64; out: y[N,K]. */
pl_err PL_CPU(dropout)(struct pl_device *dev, const struct pl_call *c) {
    struct dropout t = {.x = c->in[PL_DROPOUT_X],
                        .y = c->out[PL_DROPOUT_OUT_Y],
                        .offsets = c->in[PL_DROPOUT_OFFSETS].p,
                        .samples = c->in[PL_DROPOUT_SAMPLE].p};
    return run(dev, c, &t);
}

/* in: dx[N,K]! d[N,K] offsets[B+1]i32 sample[B]u64; out: dx[N,K]!. */
pl_err PL_CPU(dropout_bwd)(struct pl_device *dev, const struct pl_call *c) {
    struct dropout t = {.x = c->in[PL_DROPOUT_BWD_D],
                        .y = c->out[PL_DROPOUT_BWD_OUT_DX],
                        .offsets = c->in[PL_DROPOUT_BWD_OFFSETS].p,
                        .samples = c->in[PL_DROPOUT_BWD_SAMPLE].p,
                        .adds = true};
    return run(dev, c, &t);
}
