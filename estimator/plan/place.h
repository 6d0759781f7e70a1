/* place.h - when a tensor of a plan is alive, and where. */
#ifndef PL_ESTIMATOR_PLAN_PLACE_H
#define PL_ESTIMATOR_PLAN_PLACE_H

#include <stdint.h>

struct pl_place_row {           /* of one tensor */
    uint64_t offset;            /* in its arena */
    uint32_t first_op, last_op; /* STEP: within the whole op list; JOB: 0 and n_ops-1 */
};

#endif
