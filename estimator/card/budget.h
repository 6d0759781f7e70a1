/* budget.h - how much memory a plan may use. Plain numbers, filled by whoever knows them. */
#ifndef PL_ESTIMATOR_CARD_BUDGET_H
#define PL_ESTIMATOR_CARD_BUDGET_H

#include <stdbool.h>
#include <stdint.h>

struct pl_budget {
    bool known;             /* false: nothing to compare with */
    uint64_t total_bytes;   /* of the card, or of vram_budget */
    uint64_t margin_bytes;  /* kept free */
    uint64_t context_bytes; /* taken by driver and libraries before the first arena; 0 on the CPU */
    const char *source;     /* "vram_budget", "--vram-gb", "available memory"; static */
};

/* What arenas may take: total - margin - context, 0 when that is negative. */
static inline uint64_t pl_budget_usable(const struct pl_budget *b) {
    uint64_t used = b->margin_bytes + b->context_bytes;
    return used < b->margin_bytes || used > b->total_bytes ? 0 : b->total_bytes - used;
}

#endif
