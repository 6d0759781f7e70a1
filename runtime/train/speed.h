/* speed.h - how long a step takes here: the nominal roofline of cost.h times a ratio that an
 * earlier run measured.
 *
 * In: a judged job; seconds of finished steps.  Out: a forecast, and the ratio for the next one.
 * Needs: estimator/program/cost.h, context.h. Remembered in $XDG_CACHE_HOME/plimsoll/speed.json by
 * processor or GPU, back-end, threads, dtype, mode and build of this program.
 *   V1  no decision is made by it: with and without the file a run is the same to the bit
 *   V2  a missing, broken or foreign file is the same as none; a broken one is noted
 *   V3  one ratio stands for all models and batches of its owner: it is measured best on the job
 *       that it predicts
 * Use: pl_forecast_init(&f, pf, &notes); ... pl_pace_add(&pace, seconds, nominal); ...
 *      if (pl_pace_median(&pace, &m)) pl_speed_remember(pf, &m); */
#ifndef PL_RUNTIME_TRAIN_SPEED_H
#define PL_RUNTIME_TRAIN_SPEED_H

#include "estimator/base/text.h"

#include <stdbool.h>
#include <stdint.h>

struct pl_preflight;

struct pl_forecast {
    double nominal_step_seconds; /* of a step of mean length, on the nominal machine */
    double ratio;                /* measured over nominal in an earlier run; 0: there was none */
    double step_seconds;         /* nominal x ratio; NaN without a ratio */
    uint64_t params;             /* of the model that run trained */
};
/* From the plan and the data of *pf. notes gets a line where the file is broken. */
void pl_forecast_init(struct pl_forecast *f, const struct pl_preflight *pf, struct pl_text *notes);

#define PL_PACE_STEPS 256 /* the latest ones count */
#define PL_PACE_LEAST 3   /* fewer say nothing */
struct pl_pace {
    double seconds[PL_PACE_STEPS], ratios[PL_PACE_STEPS]; /* rings */
    uint64_t steps; /* seen, the first included: it warms up and is left out */
};
struct pl_pace_medians {
    double seconds, ratio; /* of a step; measured over nominal */
    uint64_t steps;        /* that they are of */
};
void pl_pace_add(struct pl_pace *p, double seconds, double nominal_seconds);
/* False, and *out NaN: too few steps. */
bool pl_pace_median(const struct pl_pace *p, struct pl_pace_medians *out);
void pl_speed_remember(const struct pl_preflight *pf, const struct pl_pace_medians *m);

#endif
