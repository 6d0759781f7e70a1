/* budget.h - how much memory a plan may use. Plain numbers, filled by whoever knows them. */
#ifndef PL_ESTIMATOR_CARD_BUDGET_H
#define PL_ESTIMATOR_CARD_BUDGET_H

#include "estimator/base/checked.h"
#include "estimator/base/nccl_bytes.h"

#include <stdbool.h>
#include <stdint.h>

struct pl_budget {
    bool known;             /* false: nothing to compare with */
    uint64_t total_bytes;   /* total of the card, or vram_budget */
    uint64_t margin_bytes;  /* kept free */
    uint64_t context_bytes; /* taken by driver and libraries before the first arena; 0 on the CPU */
    uint64_t doubt_bytes;   /* context_bytes may be off by so much; 0 where it was measured */
    uint64_t comm_bytes; /* the part of context_bytes that connects this rank to others; 0 = it is
                            alone */
    uint64_t comm_doubt_bytes; /* the part of doubt_bytes that belongs to comm_bytes */
    const char *source;        /* "vram_budget", "--vram-gb", "available memory"; static */
};

/* Returns what driver and kernels take, without what connects ranks. */
static inline uint64_t pl_budget_own_context(const struct pl_budget *b) {
    return b->context_bytes - b->comm_bytes;
}

/* Returns the doubt about pl_budget_own_context. */
static inline uint64_t pl_budget_own_doubt(const struct pl_budget *b) {
    return b->doubt_bytes - b->comm_doubt_bytes;
}

/* Replaces the bytes that connect ranks, and their doubt. */
static inline void pl_budget_set_comm(struct pl_budget *b, uint64_t bytes, uint64_t doubt) {
    b->context_bytes = pl_budget_own_context(b) + bytes;
    b->doubt_bytes = pl_budget_own_doubt(b) + doubt;
    b->comm_bytes = bytes;
    b->comm_doubt_bytes = doubt;
}

/* Sets the bytes that connect ranks to the prediction for `ranks` ranks on GPUs. */
static inline void pl_budget_predict_comm(struct pl_budget *b, uint32_t ranks) {
    pl_budget_set_comm(b, pl_nccl_bytes(ranks), pl_nccl_doubt(ranks));
}

/* Returns the bytes that arenas may certainly take: total - margin - context - doubt, at least
 * 0. */
static inline uint64_t pl_budget_usable(const struct pl_budget *b) {
    uint64_t left = b->total_bytes;
    left -= pl_u64_min(left, b->margin_bytes);
    left -= pl_u64_min(left, b->context_bytes);
    return left - pl_u64_min(left, b->doubt_bytes);
}

/* Returns the bytes of arenas and context together up to which a job certainly fits. */
static inline uint64_t pl_budget_most_needed(const struct pl_budget *b) {
    return pl_budget_usable(b) + b->context_bytes;
}

#endif
