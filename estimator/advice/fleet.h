/* fleet.h - how many GPUs hold a job, which sharding does, and how long a step takes over a link.
 *
 * In: an advice that was begun, a link, the samples of a step.  Out: a row for 1, 2, 4, ... 64
 * devices and every sharding.
 * Needs: autobatch, gate, plan. No I/O.
 *   F1  bytes of a row are those of the plan of the rank that needs the most; every rank of a row
 *       that fits was planned
 *   F2  micro-batches of a row divide the samples of the step; of those that fit, with the level
 *       and the chunk decided for each, a row has the one of the shortest step in order
 *   F3  seconds are those of plan/step_time.h: nominal, good for comparing rows
 *   F4  the recommended row is one with the fewest devices that hold the job, of these the fastest
 *   F5  the row of one device has the bytes and the seconds that the job has without `devices`
 * Use: struct pl_fleet f; pl_advice_fleet(&a, &(struct pl_fleet_request){.link = link}, &f, &d);
 *      pl_fleet_text(&a, &f, false, &text); */
#ifndef PL_ESTIMATOR_ADVICE_FLEET_H
#define PL_ESTIMATOR_ADVICE_FLEET_H

#include "estimator/advice/figures.h"
#include "estimator/plan/step_time.h"

#define PL_FLEET_MOST    64 /* devices */
#define PL_FLEET_SAMPLES 64 /* of a step, where the job leaves them open */
#define PL_MAX_FLEET     24

struct pl_fleet_request {
    const struct pl_link *link;
    uint32_t devices;  /* 0: as many as are needed */
    bool fewest_alone; /* no row of more devices than hold the job */
};

struct pl_fleet_row {
    uint32_t devices, sharding; /* PL_SHARDING_* */
    uint32_t batch_size, steps; /* a micro-batch of one device; micro-batches of a step of it */
    struct pl_price price;      /* with the bytes of F1 */
    struct pl_job job;          /* as it is planned; shallow, never finished */
    struct pl_step_time time;   /* 0 where it does not fit, as all below */
    double one_seconds;         /* of the same micro-batches on one device with room for them */
    double relative;            /* to the recommended row, in order */
};

struct pl_fleet { /* not to be copied: two members point at rows */
    struct pl_fleet_request request;
    uint32_t samples;  /* of a step */
    bool samples_open; /* PL_FLEET_SAMPLES, since nothing says how many */
    struct pl_fleet_row rows[PL_MAX_FLEET];
    uint32_t n_rows;
    const struct pl_fleet_row *best;  /* of rows; NULL: none holds the job */
    const struct pl_fleet_row *least; /* of rows: the one that needs the fewest bytes */
};

/* The budget is known, and the job trains on GPUs. */
pl_err pl_advice_fleet(struct pl_advice *a, const struct pl_fleet_request *request,
                       struct pl_fleet *out, struct pl_diag *d);
/* Seconds of one device over those of all devices together. */
double pl_fleet_efficiency(const struct pl_fleet_row *row);

/* The recommendation in a line, the table below it, and the job of several devices; with
 * fewest_alone a comment of YAML. */
void pl_fleet_text(const struct pl_advice *a, const struct pl_fleet *f, bool colour,
                   struct pl_text *out);
/* NULL when out of memory. */
json_t *pl_fleet_json(const struct pl_advice *a, const struct pl_fleet *f);

#endif
