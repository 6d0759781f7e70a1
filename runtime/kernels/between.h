/* between.h - ops between ranks as moves of runtime/comm, the same on every back-end.
 *
 * In: a call, and the stream its moves are queued on (NULL = the CPU).  Needs: comm, shard.h.
 *   B1  what a rank has for itself is no move: the caller copies it */
#ifndef PL_RUNTIME_KERNELS_BETWEEN_H
#define PL_RUNTIME_KERNELS_BETWEEN_H

#include "estimator/base/checked.h"
#include "runtime/device/device.h"

#ifdef __cplusplus
extern "C" {
#endif

struct pl_own_copy {
    void *to;
    const void *from;
    uint64_t bytes;
};

pl_err pl_ranks_spread(struct pl_device *dev, const struct pl_call *c, void *stream);
/* The rank's own rows are left to the caller. */
pl_err pl_ranks_fetch(struct pl_device *dev, const struct pl_call *c, void *stream,
                      struct pl_own_copy *own);
pl_err pl_ranks_share(struct pl_device *dev, const struct pl_call *c, void *stream);

/* Parts that FOLD adds, of those that there are. */
static inline uint64_t pl_fold_parts(const struct pl_call *c) {
    const uint64_t rows = pl_u64_max(c->out[PL_FOLD_OUT_G].rows, 1);
    const uint64_t there = c->in[PL_FOLD_PARTS].rows / rows + (c->in[PL_FOLD_OWN].p != NULL);
    return c->attr->all_ranks ? there : pl_u64_min(there, c->batch->contributors);
}

/* True if sums are rounded stochastically. */
static inline bool pl_fold_rounds(const struct pl_call *c) {
    return c->in[PL_FOLD_PARTS].dtype == PL_DTYPE_F32 &&
           pl_dtype_is_upper_half(c->out[PL_FOLD_OUT_G].dtype);
}

static inline bool pl_fold_fits(const struct pl_call *c) {
    const struct pl_view *parts = &c->in[PL_FOLD_PARTS], *own = &c->in[PL_FOLD_OWN];
    const struct pl_view *g = &c->out[PL_FOLD_OUT_G];
    const bool fits = (parts->dtype == g->dtype || pl_fold_rounds(c)) && parts->cols == g->cols &&
                      parts->ld == parts->cols && g->ld == g->cols && g->rows &&
                      parts->rows % g->rows == 0;
    return fits && (!own->p || (own->dtype == parts->dtype && own->rows == g->rows &&
                                own->cols == g->cols && own->ld == own->cols));
}

/* Part k, of all. */
static inline const void *pl_fold_part(const struct pl_call *c, uint64_t k) {
    const struct pl_view *parts = &c->in[PL_FOLD_PARTS], *own = &c->in[PL_FOLD_OWN];
    const uint64_t rows = c->out[PL_FOLD_OUT_G].rows, rank = c->attr->rank;
    if (own->p && k == rank) return own->p;
    const uint64_t before = k - (own->p && k > rank);
    return (const char *)parts->p + before * rows * parts->cols * pl_dtype_bytes(parts->dtype);
}

#ifdef __cplusplus
}
#endif

#endif
