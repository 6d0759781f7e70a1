/* recommend.h - the job to run on this card, the next best ones, and what would be needed.
 *
 * In: a question, the advised length, the samples of a step, a bound of host memory, and the
 * lengths of the samples where they are known, without which nothing is packed.
 * Out: the ways that fit, the best first.
 * Needs: autobatch, gate, price. No I/O.
 *   W1  every figure is read off a plan of the way, with level, chunk and batch decided for it
 *   W2  a way that holds something in host memory is first only where no other fits
 *   W3  among equals in this the fastest is first; one that changes rounding has to be faster by
 *       PL_WAY_GAIN than one that changes less, and a mode that fits is kept
 *   W4  micro-batches make up the samples of the step: it is never longer than was asked, where
 *       samples are packed by what slots hold of them on average
 *   W5  a micro-batch is faster by PL_WAY_GAIN than the one before it, of half its size or less
 * Use: struct pl_recommendation r = {0};
 *      pl_recommend(&a, host_limit, &r, &d); pl_recommendation_text(&a, &r, ...);
 *      pl_recommendation_finish(&r); */
#ifndef PL_ESTIMATOR_ADVICE_RECOMMEND_H
#define PL_ESTIMATOR_ADVICE_RECOMMEND_H

#include "estimator/advice/figures.h"
#include "estimator/advice/fleet.h"

#define PL_WAY_GAIN 0.02 /* of the time of a token */

struct pl_way {
    uint64_t changes;  /* rows of change_rows.h */
    uint32_t stage;    /* earlier ones are preferred whatever their time */
    struct pl_job job; /* as it is planned; shallow, never finished */
    struct pl_price price;
    uint32_t steps;           /* micro-batches of a step */
    struct pl_slot_load slot; /* {0}: nothing is known of the data */
    bool saturated;           /* a larger micro-batch fits and is not worth it */
    double seconds;       /* of a token of a step, its share of the update included; nominal. Of the
                           * data's tokens where their lengths are known, else at capacity */
    double relative_time; /* the recommended way is 1 */
};
#define PL_MAX_WAYS 64

struct pl_recommendation {
    struct pl_way *ways; /* owned, best first */
    uint32_t n_ways;     /* 0: nothing fits, no budget is known, or nothing runs there */
    uint32_t length;     /* of all ways */
    uint64_t host_limit; /* 0: not bounded */
    bool no_kernels;     /* the kernels do not run on this GPU */
    /* If nothing fits: */
    struct pl_way least; /* the way that needs the fewest bytes of the device within host_limit */
    struct pl_way other; /* adapters instead of full fine-tuning; batch_size 0: none fits either */
    struct pl_way host;  /* the way that fits with the least host memory, above host_limit;
                          * batch_size 0: none does */
    uint32_t longest;    /* max_seq_length at which it fits; 0: none */
    const char *card;    /* the smallest of the table that holds it; NULL: none */
    struct pl_job card_job; /* for that card; shallow */
};

/* host_limit: bytes of host memory that a way may take; 0: as many as it needs. */
pl_err pl_recommend(struct pl_advice *a, uint64_t host_limit, struct pl_recommendation *out,
                    struct pl_diag *d);
/* The row of several devices that holds the job, as the only way, so that all answers agree. */
pl_err pl_recommend_row(const struct pl_fleet_row *row, uint32_t length,
                        struct pl_recommendation *out, struct pl_diag *d);
void pl_recommendation_finish(struct pl_recommendation *r); /* leaves {0} */

/* Ten lines at most, and the job below them as YAML. */
void pl_recommendation_text(const struct pl_advice *a, const struct pl_recommendation *r,
                            bool colour, struct pl_text *out);
/* {"ways": all that fit, "commands": what would be needed}. NULL when out of memory. */
json_t *pl_recommendation_json(const struct pl_advice *a, const struct pl_recommendation *r);

#endif
