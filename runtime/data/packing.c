/* First fit by a tree of maxima: a row costs the logarithm of the slots (Johnson, "Near-optimal bin
 * packing algorithms", 1973). */
#include "runtime/data/packing.h"

#include "estimator/base/alloc.h"
#include "estimator/base/checked.h"

#include <stdlib.h>

static pl_err reserve_tree(struct pl_packer *p, struct pl_diag *d) {
    uint64_t bytes, *room = NULL;
    p->leaves = 1;
    while (p->leaves < p->slots)
        p->leaves *= 2;
    if (2 * p->leaves <= p->cap) return PL_ERR_OK;
    if (pl_u64_mul(2 * p->leaves, sizeof *room, &bytes) && bytes <= SIZE_MAX)
        room = pl_realloc(p->room, (size_t)bytes);
    if (!room)
        return pl_diag_set(d, PL_ERR_HOST_OOM, "no memory for %llu slots of packed samples",
                           (unsigned long long)p->slots);
    p->room = room;
    p->cap = 2 * p->leaves;
    return PL_ERR_OK;
}

pl_err pl_packer_begin(struct pl_packer *p, uint64_t slots, uint64_t slot_tokens,
                       struct pl_diag *d) {
    p->slots = slots;
    p->slot_tokens = slot_tokens;
    p->rows = 0;
    p->max_rows = slots;
    if (!slot_tokens) return PL_ERR_OK;
    /* bounds the walk over data that trains nothing for a long stretch */
    if (!pl_u64_mul(slots, slot_tokens / 2, &p->max_rows)) p->max_rows = UINT64_MAX;
    PL_TRY(reserve_tree(p, d));
    for (uint64_t i = 0; i < p->leaves; i++)
        p->room[p->leaves + i] = i < slots ? slot_tokens : 0;
    for (uint64_t i = p->leaves; --i > 0;)
        p->room[i] = pl_u64_max(p->room[2 * i], p->room[2 * i + 1]);
    return PL_ERR_OK;
}

bool pl_packer_put(struct pl_packer *p, uint64_t tokens, uint64_t *slot) {
    if (p->rows == p->max_rows) return false;
    *slot = p->rows;
    if (p->slot_tokens) {
        if (p->room[1] < tokens) return false;
        uint64_t i = tokens ? 1 : p->leaves;
        while (i < p->leaves) /* down to the first leaf with that much room; there is one */
            i = p->room[2 * i] >= tokens ? 2 * i : 2 * i + 1;
        *slot = i - p->leaves;
        p->room[i] -= tokens;
        while (i /= 2)
            p->room[i] = pl_u64_max(p->room[2 * i], p->room[2 * i + 1]);
    }
    p->rows++;
    return true;
}

void pl_packer_finish(struct pl_packer *p) {
    free(p->room);
    *p = (struct pl_packer){0};
}
