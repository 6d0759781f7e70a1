/* longest.h - the longest max_seq_length that fits, for every level of recomputation.
 *
 * In: a question on one device with a known budget.  Out: a row for each plain level and for
 * `auto`, as text and as JSON.
 * Needs: walls, price. No I/O.
 *   L1  a row is the wall of max_seq_length at its level: its length was planned and fits, one
 *       token more was planned and does not, unless the key allows no more
 *   L2  the bytes of a row are those of its job as the command writes it down; what that leaves
 *       open is decided for that length
 *   L3  the longest row comes first in the answer; of equally long ones the fastest
 * Use: struct pl_longest l; pl_advice_longest(&q, &l, &d);
 *      pl_longest_text(&q, &l, false, &text); */
#ifndef PL_ESTIMATOR_ADVICE_LONGEST_H
#define PL_ESTIMATOR_ADVICE_LONGEST_H

#include "estimator/advice/figures.h"

struct pl_longest_row {
    struct pl_job job; /* at its length; shallow, never finished */
    struct pl_wall wall;
    uint32_t decided;      /* PL_RECOMPUTE_*, which differs from that of the job under `auto` */
    uint32_t mlp_chunk;    /* tokens; 0: all at once */
    struct pl_price price; /* at the wall */
    double relative_time;  /* of a token at the wall; the fastest row is 1. 0: nothing fits */
};
#define PL_MAX_LONGEST (PL_RECOMPUTE_PLAIN + 1)

struct pl_longest { /* not to be copied: best points at a row */
    struct pl_longest_row rows[PL_MAX_LONGEST];
    uint32_t n_rows;
    const struct pl_longest_row *best;
    uint32_t batch_size;    /* the job's own, 1 where that is open */
    uint64_t budget_bytes;  /* for arenas and context */
    uint64_t max_positions; /* of the model */
};

/* DOES_NOT_FIT, or what else the gate says: not even the shortest samples fit at any level. */
pl_err pl_advice_longest(const struct pl_question *q, struct pl_longest *out, struct pl_diag *d);
/* True if the row is longer than the positions that the model was made for. */
bool pl_longest_is_beyond(const struct pl_longest *l, const struct pl_longest_row *row);

/* The proof, the rows, and the command that asks about the longest of them. */
void pl_longest_text(const struct pl_question *q, const struct pl_longest *l, bool colour,
                     struct pl_text *out);
/* NULL when out of memory. */
json_t *pl_longest_json(const struct pl_question *q, const struct pl_longest *l);

#endif
