/* plan.h - where every byte of a run will live, decided before a device is opened.
 *
 * In: struct pl_program.  Out: immutable struct pl_plan.  Needs: base, program. No I/O, no globals.
 *   P1  tensors whose lifetimes overlap in a phase never share a byte
 *   P2  offsets are multiples of the traits' alignment
 *   P3  arena bytes = sum of the ledger; the part no tensor needs at the peak is `fragmentation`
 *   P4  job tensors live in the job arena at fixed offsets, whatever the batch: re-planning for
 *       another batch size never moves them
 *   P5  every memory (enum pl_tensor_place) has its own two arenas; figures that name no memory are
 *       the device's, and host memory is in none of them
 * Use: pl_plan_create(prog, &plan, &diag); ... pl_plan_destroy(&plan); */
#ifndef PL_ESTIMATOR_PLAN_PLAN_H
#define PL_ESTIMATOR_PLAN_PLAN_H

#include "estimator/plan/place.h"
#include "estimator/program/program.h"

struct pl_phase_plan {
    uint64_t bytes;      /* packed transients of the phase */
    uint64_t live_bytes; /* largest sum of live tensors: the lower bound of any packing */
    uint32_t peak_op;    /* where that sum is reached */
    uint64_t live[PL_CATEGORY_COUNT]; /* at peak_op */
};

struct pl_host_plan { /* the two arenas of one host memory, and what they hold */
    uint64_t job_bytes, batch_bytes;
    uint64_t ledger[PL_CATEGORY_COUNT]; /* job tensors, and the largest phase's at its peak */
    uint64_t padding_bytes;             /* alignment and packing: the rest of the arenas */
};

struct pl_plan {
    const struct pl_program *program; /* borrowed */
    struct pl_place_row *places;      /* [n_tensors] */
    uint64_t job_bytes, batch_bytes;  /* the two arenas */
    uint64_t arena_bytes;             /* their sum */
    uint64_t job_by_category[PL_CATEGORY_COUNT]; /* unpadded */
    struct pl_phase_plan phases[PL_PHASE_COUNT];
    enum pl_phase peak_phase;
    /* ledger: job + live at the peak, by category, then padding and fragmentation */
    uint64_t ledger[PL_CATEGORY_COUNT];
    uint64_t alignment_bytes, fragmentation_bytes;
    struct pl_host_plan host[PL_PLACE_COUNT]; /* by memory; the row of the device stays 0 */
    /* The only question was whether so many bytes are enough; 0: more was asked. The arenas may
     * then be larger than they have to be, where they are within it. */
    uint64_t limit;
    bool over; /* it is not enough: phases have the bytes that are alive, and no offsets */
};

/* Bytes of the tensors that are alive at one op, of all phases: no batch arena can be smaller. */
static inline uint64_t pl_plan_most_alive(const struct pl_phase_plan phases[PL_PHASE_COUNT]) {
    uint64_t most = 0;
    for (int phase = 0; phase < PL_PHASE_COUNT; phase++)
        if (phases[phase].live_bytes > most) most = phases[phase].live_bytes;
    return most;
}
/* Both arenas of a host memory. */
static inline uint64_t pl_plan_host_bytes(const struct pl_plan *plan, enum pl_tensor_place place) {
    return plan->host[place].job_bytes + plan->host[place].batch_bytes;
}
/* The sum over all host memories. */
static inline uint64_t pl_plan_host_placed(const struct pl_plan *plan) {
    return pl_plan_host_bytes(plan, PL_PLACE_PINNED) + pl_plan_host_bytes(plan, PL_PLACE_HOST);
}
/* All host memory of the run: what the plan places, and what copies pass through. */
uint64_t pl_plan_host_total(const struct pl_plan *plan);

pl_err pl_plan_create(const struct pl_program *p, struct pl_plan **out, struct pl_diag *d);
/* As far as it takes to know whether so many bytes of arenas are enough; 0: all of it. */
pl_err pl_plan_create_within(const struct pl_program *p, uint64_t limit, struct pl_plan **out,
                             struct pl_diag *d);
/* Plans the same program, whose tensors have other sizes now: lifetimes are what they were. */
pl_err pl_plan_again(struct pl_plan *plan, uint64_t limit, struct pl_diag *d);
void pl_plan_destroy(struct pl_plan **plan); /* NULL-safe; sets *plan to NULL */
/* Asserts P1-P4 and R1-R2, R4 of program.h, independently of how the plan was made. */
pl_err pl_plan_check(const struct pl_plan *plan, struct pl_diag *d);
/* Live bytes of the batch arena after each op of a phase; out has phases[p].n_ops entries. */
void pl_plan_timeline(const struct pl_plan *plan, enum pl_phase p, uint64_t *out);
/* One op a line, as `plimsoll inspect --program` prints it. */
void pl_plan_print(const struct pl_plan *plan, struct pl_text *out);

#endif
