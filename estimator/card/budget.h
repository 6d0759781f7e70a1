/* budget.h - how much memory a plan may use. Plain numbers, filled by whoever knows them. */
#ifndef PL_ESTIMATOR_CARD_BUDGET_H
#define PL_ESTIMATOR_CARD_BUDGET_H

#include "estimator/base/checked.h"

#include <stdbool.h>
#include <stdint.h>

struct pl_budget {
    bool known;             /* false: nothing to compare with */
    uint64_t total_bytes;   /* of the card, or of vram_budget */
    uint64_t margin_bytes;  /* kept free */
    uint64_t context_bytes; /* taken by driver and libraries before the first arena; 0 on the CPU */
    uint64_t doubt_bytes;   /* context_bytes may be off by so much; 0 where it was measured */
    const char *source;     /* "vram_budget", "--vram-gb", "available memory"; static */
};

/* What arenas may take for certain: total - margin - context - doubt, 0 when that is negative. */
static inline uint64_t pl_budget_usable(const struct pl_budget *b) {
    uint64_t left = b->total_bytes;
    left -= pl_u64_min(left, b->margin_bytes);
    left -= pl_u64_min(left, b->context_bytes);
    return left - pl_u64_min(left, b->doubt_bytes);
}

#endif
