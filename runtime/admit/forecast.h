/* forecast.h - how long a step of a job will take, as far as earlier runs tell (speed.h). */
#ifndef PL_RUNTIME_ADMIT_FORECAST_H
#define PL_RUNTIME_ADMIT_FORECAST_H

#include <stdint.h>

#define PL_FORECASTS_JUDGED 8
struct pl_forecast {
    double nominal_step_seconds; /* of a mean step, on the nominal machine */
    double ratio;                /* step_seconds over nominal; 0: nothing was measured here */
    double step_seconds;         /* NaN without a ratio */
    uint64_t params;             /* of the model that the last run trained */
    uint32_t judged;             /* of the latest forecasts, PL_FORECASTS_JUDGED at most */
    double off, most_off; /* |predicted / measured - 1| of those, median and worst; NaN: none */
};

#endif
