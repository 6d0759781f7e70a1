/* place.h - when a tensor of a plan is alive, and where. */
#ifndef PL_ESTIMATOR_PLAN_PLACE_H
#define PL_ESTIMATOR_PLAN_PLACE_H

#include "estimator/program/program.h"

#include <stdint.h>

struct pl_place_row {           /* of one tensor */
    uint64_t offset;            /* in its arena */
    uint32_t first_op, last_op; /* STEP: within the whole op list; JOB: 0 and n_ops-1 */
};

/* Tensors of a phase in one memory, all of which are used. */
struct pl_phase_tensors {
    const struct pl_program *p;
    const struct pl_place_row *places; /* of every tensor of the program */
    enum pl_phase phase;
    const uint32_t *ids; /* [n] ascending */
    uint32_t n;
};

#endif
