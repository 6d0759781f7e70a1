/* figures.h - the advice as data: what fits, where it ends, what each knob costs. */
#ifndef PL_ESTIMATOR_ADVICE_FIGURES_H
#define PL_ESTIMATOR_ADVICE_FIGURES_H

#include "estimator/advice/lengths.h"
#include "estimator/card/cards.h"
#include "estimator/gate/estimate.h"
#include "estimator/search/change.h"

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
    enum pl_verdict_kind next_verdict; /* of it */
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
#define PL_MAX_KNOBS 80

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
#define PL_CARD_COUNTED(...) +1
enum { PL_MAX_CARDS = PL_CARD_MAP(PL_CARD_COUNTED) };

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
    struct pl_trials trials; /* what one row leaves to the next */
};

#endif
