/* update.h - what the optimizers share: matrices as one run of elements, and how weights are
 * stored.
 *
 * In: the operands of an update. Out: new weights, in fp32 masters too.
 *   U1  element e of a tensor gets the same random bits whatever the stretch it is stored in
 * Use: pl_widen(p, pl_element(from, i), ...); ... update p ...; pl_store_weight(&s, i, n, p); */
#ifndef PL_RUNTIME_KERNELS_CPU_UPDATE_H
#define PL_RUNTIME_KERNELS_CPU_UPDATE_H

#include "runtime/kernels/cpu/random.h"
#include "runtime/kernels/cpu/simd.h"
#include "runtime/kernels/facts.h"

/* Elements [i, *) of v that lie one after another, at most `limit`. */
static inline uint64_t pl_stretch(const struct pl_view *v, uint64_t i, uint64_t limit) {
    uint64_t row = v->ld == v->cols ? v->rows * v->cols : v->cols;
    return pl_u64_min(limit, row - i % row);
}

static inline void *pl_element(const struct pl_view *v, uint64_t i) {
    return pl_at(v, i / v->cols, i % v->cols);
}

/* The destination of new weights: w, in its own type, and an fp32 master where there is one. */
struct pl_weight_store {
    struct pl_view w, master;
    bool rounds_stochastically;
    struct pl_rng rng;
    uint64_t first; /* element of the tensor where w begins */
};

/* Kept by (seed, step, tensor): a bf16 weight without a master is rounded stochastically. */
static inline struct pl_weight_store pl_weight_store_of(const struct pl_call *c,
                                                        const struct pl_view *master) {
    struct pl_weight_store s = {.w = c->in[0], .master = *master, .first = c->attr->first_element};
    s.rounds_stochastically = !master->p && pl_dtype_is_upper_half(s.w.dtype);
    s.rng = pl_rng_init(c->batch->seed, c->batch->step, c->attr->site);
    return s;
}

/* The matrix that holds the weights at full precision. */
static inline const struct pl_view *pl_weight_source(const struct pl_weight_store *s) {
    return s->master.p ? &s->master : &s->w;
}

#define PL_UPDATE_STRETCH 1024 /* elements stored at a time, at most */

/* Random low bits added before truncation: E[stored] = x (Gupta et al., 2015, section 3). Eight
 * elements share a block of random numbers, the lower half of a number before its upper. */
#define PL_ELEMENTS_PER_BLOCK 8
#define PL_ELEMENTS_PER_DRAW  (PL_ELEMENTS_PER_BLOCK * PL_RANDOM_BLOCKS)

#define PL_DRAWN_ELEMENTS (PL_UPDATE_STRETCH + PL_ELEMENTS_PER_DRAW)

/* The numbers of elements [first, first + n), n <= PL_UPDATE_STRETCH; drawn: room for whole draws.
 */
static inline const uint16_t *pl_random_halves(const struct pl_rng *rng, uint64_t first, uint64_t n,
                                               uint16_t drawn[PL_DRAWN_ELEMENTS]) {
    struct pl_random r;
    const uint64_t block = first / PL_ELEMENTS_PER_BLOCK, skipped = first % PL_ELEMENTS_PER_BLOCK;
    pl_random_init(&r, rng);
    for (uint64_t i = 0; i < skipped + n; i += PL_ELEMENTS_PER_DRAW)
        pl_random_blocks(&r, block + i / PL_ELEMENTS_PER_BLOCK, drawn + i);
    return drawn + skipped;
}

/* Infinity and NaN have no neighbour to round to; a NaN is made quiet, as pl_put_BF16 does. */
static inline uint16_t pl_round_stochastically(float x, uint16_t random) {
    const uint32_t u = pl_f32_bits(x), infinity = 0x7F800000u;
    const int32_t above = (int32_t)(u & 0x7FFFFFFFu) - (int32_t)infinity;
    const uint32_t added = above < 0 ? random : 0, quiet = above > 0 ? 0x400000u : 0;
    return (uint16_t)(((u + added) | quiet) >> 16);
}

/* Elements [first, first + n) of a tensor, n <= PL_UPDATE_STRETCH, by the numbers of rng. */
static inline void pl_store_rounded(uint16_t *restrict place, const struct pl_rng *rng,
                                    uint64_t first, uint64_t n, const float *p) {
    uint16_t drawn[PL_DRAWN_ELEMENTS];
    const uint16_t *random = pl_random_halves(rng, first, n, drawn);
    for (uint64_t j = 0; j < n; j++)
        place[j] = pl_round_stochastically(p[j], random[j]);
}

/* Elements [i, i + n) of the weights become p[n], which may be where they are kept in fp32. */
static inline void pl_store_weight(const struct pl_weight_store *s, uint64_t i, uint64_t n,
                                   const float *p) {
    void *place = pl_element(&s->w, i);
    if (s->master.p && p != pl_element(&s->master, i))
        memcpy(pl_element(&s->master, i), p, n * sizeof *p);
    if (p == place) return;
    if (s->rounds_stochastically)
        pl_store_rounded(place, &s->rng, s->first + i, n, p);
    else
        pl_narrow(place, s->w.dtype, p, n);
}

#endif
