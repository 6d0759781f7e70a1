/* speed.h - how long a step takes here: the nominal seconds of each class of ops (cost.h) times
 * what an earlier run measured for the class.
 *
 * In: a judged job; seconds of finished steps.  Out: a forecast, and ratios for the next one.
 * Needs: estimator/program/cost.h, history.h. Remembered in $XDG_CACHE_HOME/plimsoll/speed.json by
 * processor or GPU, back-end, threads, dtype and build of this program.
 *   V1  no decision is made by it: with and without the file a run is the same to the bit
 *   V2  a missing, broken or foreign file is the same as none; a broken one is noted
 *   V3  a ratio stands for one class of ops in all models, modes and batches of its owner. A run
 *       that spends less than PL_PACE_SHARE of its time in a class says nothing of it: what an
 *       earlier run found stays, else the ratio of all classes together stands for it
 *   V4  the ratios of a run give, summed over its own steps, the median of its steps: what passes
 *       between the ops is shared out
 *   V5  a forecast comes with how far the latest ones of its owner were off
 * Use: pl_forecast_init(&f, pf, &notes); ... pl_pace_add(&pace, &step); ...
 *      if (pl_pace_median(&pace, &m)) pl_speed_remember(pf, &m); */
#ifndef PL_RUNTIME_ADMIT_SPEED_H
#define PL_RUNTIME_ADMIT_SPEED_H

#include "estimator/base/text.h"
#include "estimator/program/cost.h"

#include <stdbool.h>
#include <stdint.h>

struct pl_forecast;
struct pl_preflight;

/* Makes a forecast from the plan and the data of *pf. notes gets a line where the file is
 * broken. */
void pl_forecast_init(struct pl_forecast *f, const struct pl_preflight *pf, struct pl_text *notes);

#define PL_PACE_STEPS 256 /* the latest ones count */
#define PL_PACE_LEAST 3   /* fewer say nothing */
#define PL_PACE_SHARE 0.02
struct pl_pace_step {
    double seconds;
    double nominal[PL_COST_COUNT];
    bool timed;
    double measured[PL_COST_COUNT]; /* where it was timed */
};
struct pl_pace {
    double seconds[PL_PACE_STEPS], ratios[PL_PACE_STEPS]; /* rings */
    double classes[PL_COST_COUNT][PL_PACE_STEPS];         /* rings: measured over nominal */
    double nominal[PL_COST_COUNT];                        /* of all steps that count, together */
    uint64_t steps, timed; /* seen, the first included: it warms up and is left out; in classes */
};
struct pl_pace_medians {
    double seconds, ratio;         /* of a step; measured over nominal */
    double classes[PL_COST_COUNT]; /* V4; 0: V3, or none of it ran */
    uint64_t steps;                /* that they are of */
};
void pl_pace_add(struct pl_pace *p, const struct pl_pace_step *step);
/* False, and *out NaN: too few steps. */
bool pl_pace_median(const struct pl_pace *p, struct pl_pace_medians *out);
void pl_speed_remember(const struct pl_preflight *pf, const struct pl_pace_medians *m);

#endif
