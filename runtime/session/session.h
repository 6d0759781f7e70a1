/* session.h - an admitted job on its device: what training and generating have in common.
 *
 * In: what admission has decided (admission.h).  Out: the types of the room.  Needs: admit, exec.
 * session_open.h opens and closes one, arenas.h takes its memory, load.h its weights, inputs.h a
 * micro-batch; measure.h says what it took, explain.h what it lacked.
 *   S1  planned == bound == allocated, byte for byte (pl_session_check_books)
 *   S2  the ladder holds a plan and an executor for the starting micro-batch and for every halving
 *       that recovery may need, made before the first step, so that recovery allocates nothing on
 *       the host. Before the first step it may: a job that begins again with a smaller micro-batch
 *       has its open keys decided, and its ladder made, for that one (pl_session_begin_anew)
 *   S3  the first plan of the ladder is the one that admission judged
 *   S4  on a GPU the context, and what connects ranks, are measured before the arenas are taken; a
 *       verdict that they turn ends the session there, with the exit status that a refusal has.
 *       What NCCL takes later, for arenas that are registered, counts as context in the books
 *   S5  an arena is registered after it is reserved, by all ranks or by none (C5 of comm.h), and is
 *       no more when it is released
 * Use: pl_session_open(&s, pf, stderr, false, &d); pl_session_reserve_job(&s, &d);
 *      pl_session_reserve_batch(&s, &d); pl_session_load(&s, &d); ... pl_session_close(&s); */
#ifndef PL_RUNTIME_SESSION_SESSION_H
#define PL_RUNTIME_SESSION_SESSION_H

#include "oom_recovery/recovery.h"
#include "runtime/admit/admission.h"
#include "runtime/checkpoint/cut.h"
#include "runtime/exec/exec.h"

#include <stdio.h>

#define PL_MAX_RUNGS 18 /* halvings from 65536 to 1, and the start */

struct pl_rung {
    uint32_t batch_size;
    struct pl_planned planned; /* of rung 0 that of the pre-flight, borrowed */
    struct pl_exec exec;
    uint32_t inputs[PL_PHASE_COUNT][PL_ROLE_INPUTS]; /* ids of batch inputs of each phase */
    uint32_t logp[PL_PHASE_COUNT];                   /* ids of the log-probabilities, or PL_NONE */
    struct pl_step_ops ops;
    bool pads; /* micro-batches are padded: graphs.h */
};

struct pl_session {
    struct pl_preflight *pf;
    const struct pl_job *job;
    FILE *messages; /* what a person should read; never NULL */
    bool colour;    /* of messages */
    struct pl_device *device;
    struct pl_comm *comm;          /* NULL: this rank is alone */
    struct pl_cut cut;             /* where ranks hold parts of tensors; else {0} */
    uint64_t staging_bytes;        /* with `cut`: what every rank has at least */
    bool shares_files;             /* all ranks, on one machine, write to the same output_dir */
    struct pl_device *host_device; /* runs the host's ops of a GPU's plan; NULL = none, or device */
    struct pl_arena job_arena, batch_arena;
    void *job_registered, *batch_registered; /* the same, with the engine of comm; NULL = not */
    struct pl_host_arenas host_arenas;
    struct pl_rung rungs[PL_MAX_RUNGS];
    uint32_t n_rungs, rung; /* in use */
    struct pl_micro_batch micro;
    uint64_t rope_length;        /* whose frequencies the table of long sequences has; 0 = none */
    struct pl_oom_facts facts;   /* of the last device failure */
    char what_of_rank[80];       /* facts.what, where it was that of a rank */
    uint64_t opened_bytes;       /* of a GPU's context, as measured after the opening */
    uint64_t comm_bytes;         /* of a GPU, which connect this rank to others; as measured */
    uint64_t steady_allocations; /* pl_session_allocations when it must stand still */
};

static inline struct pl_rung *pl_session_rung(struct pl_session *s) {
    return &s->rungs[s->rung];
}
/* False: the null device, which holds no weight. */
static inline bool pl_session_has_memory(const struct pl_session *s) {
    return s->device->ops != &pl_device_null;
}
/* The first of several ranks makes and names all files, and tells what happens. */
static inline bool pl_session_leads(const struct pl_session *s) {
    return s->pf->world.rank == 0;
}
/* The part of the arenas that the engine between ranks may copy from and to without staging. */
static inline uint64_t pl_session_registered_bytes(const struct pl_session *s) {
    return (s->job_registered ? s->job_arena.bytes : 0) +
           (s->batch_registered ? s->batch_arena.bytes : 0);
}
/* Counts what must stand still between steps. */
static inline uint64_t pl_session_allocations(const struct pl_session *s) {
    return s->device->allocations + s->device->host_allocations;
}

#endif
