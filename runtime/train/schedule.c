/* schedule.c - learning-rate schedules. */
#include "runtime/train/schedule.h"

#include "estimator/config/job.h"

#include <math.h>

#define PI 3.14159265358979323846

/* Returns the progress after the warm-up: 0 at its end, 1 at the end of the last step. */
static double progress(const struct pl_schedule *s, uint64_t done) {
    uint64_t span = s->total > s->warmup ? s->total - s->warmup : 1;
    double x = (double)(done - s->warmup) / (double)span;
    return x < 1 ? x : 1;
}

static double flat(const struct pl_schedule *s, uint64_t done) {
    (void)s;
    (void)done;
    return 1;
}

static double linear(const struct pl_schedule *s, uint64_t done) {
    return 1 - progress(s, done);
}

static double cosine(const struct pl_schedule *s, uint64_t done) {
    return 0.5 * (1 + cos(PI * progress(s, done)));
}

static double cosine_with_floor(const struct pl_schedule *s, uint64_t done) {
    return s->min_ratio + (1 - s->min_ratio) * cosine(s, done);
}

static double (*const shapes[])(const struct pl_schedule *, uint64_t) = {
    [PL_SCHEDULE_CONSTANT] = flat,
    [PL_SCHEDULE_CONSTANT_WITH_WARMUP] = flat,
    [PL_SCHEDULE_LINEAR] = linear,
    [PL_SCHEDULE_COSINE] = cosine,
    [PL_SCHEDULE_COSINE_WITH_MIN_LR] = cosine_with_floor,
};

double pl_schedule_rate(const struct pl_schedule *s, uint64_t step) {
    uint64_t done = step - 1;
    if (s->kind != PL_SCHEDULE_CONSTANT && done < s->warmup)
        return s->peak * (double)done / (double)s->warmup;
    return s->peak * shapes[s->kind](s, done);
}
