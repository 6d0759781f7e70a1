/* join.h - what a process that is one of several ranks changes in its job.
 *
 * In: a job as it was read, and who this process is.  Out: the same job for this rank.
 * Needs: comm, config. */
#ifndef PL_RUNTIME_ADMIT_JOIN_H
#define PL_RUNTIME_ADMIT_JOIN_H

#include "estimator/config/spec.h"
#include "runtime/comm/comm.h"

/* The job's devices become the ranks that were started, its device one that no other rank of this
 * machine has. COMM_INIT: another number of ranks was started than `devices` asks for.
 * CONFIG_CONFLICT: it asks for what several ranks cannot have. */
pl_err pl_ranks_join(struct pl_spec *spec, const struct pl_world *world, struct pl_diag *d);

#endif
