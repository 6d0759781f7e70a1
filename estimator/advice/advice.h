/* advice.h - the answer to "what should I set": what fits, where it ends, what each knob costs.
 *
 * In: a question whose level and chunk are decided, and what is known of the data.
 * Out: struct pl_advice, and its text, JSON, CSV, YAML and pictures.
 * Needs: gate, autobatch, picture, plan. No I/O, no device.
 *   A1  every byte was read off a plan that was made for it; nothing is extrapolated
 *   A2  a wall is exact: its value was planned and fits, the next was planned and does not
 *   A3  work is the planned FLOPs of a micro-batch per token; time is its roofline on a nominal
 *       machine, only ever shown as a ratio: neither is a statement about seconds
 *   A4  nothing of the user's settings is changed; what the YAML changes is listed beside it
 * Use: struct pl_advice a; pl_advice_init(&a, &q, &lengths, 0, &d); pl_advice_text(&a, ...);
 *      pl_advice_finish(&a); */
#ifndef PL_ESTIMATOR_ADVICE_ADVICE_H
#define PL_ESTIMATOR_ADVICE_ADVICE_H

#include "estimator/advice/lengths.h"
#include "estimator/gate/estimate.h"

struct pl_price {             /* of one setting */
    uint64_t needed_bytes;    /* arenas + context */
    double flops_per_token;   /* planned for a micro-batch, over its capacity in tokens */
    double seconds_per_token; /* the same, of the nominal machine (cost.h) */
    enum pl_verdict_kind verdict;
};

#define PL_GRID_SIDE 8
struct pl_fit_grid {
    uint32_t n_batches, n_lengths;
    uint32_t batches[PL_GRID_SIDE], lengths[PL_GRID_SIDE];
    struct pl_price cells[PL_GRID_SIDE][PL_GRID_SIDE]; /* [batch][length] */
};

struct pl_wall { /* along one axis, all else as in the job */
    enum pl_key_id key;
    uint32_t now, wall;     /* wall 0: not even the smallest value fits */
    uint32_t limit;         /* largest value that was tried for */
    uint64_t wall_bytes;    /* needed at the wall */
    uint64_t next_bytes;    /* needed one beyond; 0: the limit ended the search, not memory */
    int64_t doubling_bytes; /* 2 x now, less now */
    bool doubling_known, doubling_fits;
};
#define PL_MAX_WALLS 3

struct pl_knob {               /* one changed key */
    char from[64], change[64]; /* "gradient_checkpointing: full" -> "...: none" */
    int64_t saves_bytes;
    double time_percent; /* more (or less) planned work per token */
    struct pl_price price;
};
#define PL_MAX_KNOBS 56

struct pl_frontier_point { /* of a level of recomputation and a micro-batch */
    uint32_t batch_size;   /* 0: there is none that fits */
    struct pl_price price;
    double relative_time; /* of a token; the fastest point of the table is 1 */
    bool dominated;       /* another point needs no more bytes and no more time, less of one */
};

/* The two micro-batches a level is shown with: the largest that fits, and the largest of those that
 * divide the step's samples, 1 where they are not known. Without a budget the first is absent and
 * the second the job's own. */
enum pl_frontier_end { PL_FRONTIER_LARGEST, PL_FRONTIER_MICRO, PL_FRONTIER_ENDS };

struct pl_tradeoff {    /* recomputation against batch size */
    uint32_t recompute; /* PL_RECOMPUTE_* */
    uint32_t largest_batch;
    struct pl_price price; /* at the job's batch */
    double time_percent;   /* work, against keeping everything */
    struct pl_frontier_point points[PL_FRONTIER_ENDS];
    bool mixed;     /* of two levels: only there when not dominated, or one of these two: */
    bool now;       /* the job's own */
    bool automatic; /* what `gradient_checkpointing: auto` is under this budget */
};
#define PL_MAX_TRADEOFFS 14

struct pl_card_row {
    const char *name;
    uint32_t nameplate_gb;
    uint64_t usable_bytes, needed_bytes;
    enum pl_verdict_kind verdict;
    bool runs; /* the kernels run on it */
};
#define PL_MAX_CARDS 96

struct pl_length_choice {
    uint32_t length, largest_batch;
    uint64_t over, lost_tokens; /* samples that would be cut, and by how much */
    struct pl_price price;      /* at batch 1 */
};
#define PL_MAX_CHOICES 10

struct pl_accumulation_row { /* one way to see the effective batch */
    uint32_t batch_size, steps;
    struct pl_price price;
};
#define PL_MAX_ACCUMULATION 16

struct pl_advice {                    /* not to be copied: the estimate borrows q */
    struct pl_question q;             /* its batch decided as well */
    const struct pl_lengths *lengths; /* borrowed; NULL = nothing is known of the data */
    struct pl_estimate estimate; /* of the job as it stands; remedies are what would degrade it */
    struct pl_price now;
    uint32_t length;                           /* advised max_seq_length */
    uint32_t largest_batch, recommended_batch; /* at that length; 0: none fits, or no budget */
    struct pl_price recommended;               /* at the two */
    uint32_t effective_batch, accumulation;    /* 0: not asked */
    struct pl_fit_grid grid;
    struct pl_wall walls[PL_MAX_WALLS];
    struct pl_knob knobs[PL_MAX_KNOBS];
    struct pl_tradeoff tradeoffs[PL_MAX_TRADEOFFS];
    struct pl_card_row cards[PL_MAX_CARDS];
    struct pl_length_choice choices[PL_MAX_CHOICES];
    struct pl_accumulation_row accumulations[PL_MAX_ACCUMULATION];
    uint32_t n_walls, n_knobs, n_tradeoffs, n_cards, n_choices, n_accumulations;
};

/* effective_batch: samples that a step should see; 0: what global_batch_size says, if anything. */
pl_err pl_advice_init(struct pl_advice *a, const struct pl_question *q,
                      const struct pl_lengths *lengths, uint32_t effective_batch,
                      struct pl_diag *d);
void pl_advice_finish(struct pl_advice *a); /* leaves {0} */

/* The level as the key takes it. */
#define PL_LEVEL_TEXT 32
void pl_tradeoff_name(const struct pl_tradeoff *t, char out[PL_LEVEL_TEXT]);
/* All of its points are dominated; false when it has none. */
bool pl_tradeoff_dominated(const struct pl_tradeoff *t);
/* Samples of a step that micro-batches have to make up; 0 = whatever fits. */
uint32_t pl_advice_step_samples(const struct pl_advice *a);

/* The grid alone: powers of two around the question's own batch and length, which are in it. */
pl_err pl_advice_grid(const struct pl_question *q, struct pl_fit_grid *out, struct pl_diag *d);
/* Along batch_size, max_seq_length or lora_r; the budget must be known. */
pl_err pl_advice_wall(const struct pl_question *q, enum pl_key_id key, struct pl_wall *out,
                      struct pl_diag *d);

/* For people; columns: the width to stay in. */
void pl_advice_text(const struct pl_advice *a, bool colour, unsigned columns, struct pl_text *out);
/* One object; notes as in pl_estimate_json. NULL when out of memory. */
json_t *pl_advice_json(const struct pl_advice *a, const char *notes);
/* batch_size,max_seq_length,needed_bytes,verdict: one line per cell (RFC 4180). */
void pl_advice_csv(const struct pl_fit_grid *g, struct pl_text *out);
/* Heat map: the colour is the share of the budget. */
void pl_advice_grid_svg(const struct pl_fit_grid *g, const struct pl_budget *budget,
                        const char *title, struct pl_text *out);
/* The job with the advised batch, length and accumulation; every key that was given stays. */
void pl_advice_yaml(const struct pl_advice *a, struct pl_text *out);
/* A command line for a POSIX shell that uses the advice. */
void pl_advice_command(const struct pl_advice *a, struct pl_text *out);

#endif
