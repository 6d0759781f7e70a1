/* join.c - see join.h. */
#include "runtime/admit/join.h"

#include "estimator/config/job_values.h"

static pl_err refuse_count(const struct pl_job *job, const struct pl_world *world,
                           struct pl_diag *d) {
    pl_err err = pl_job_error(job, PL_KEY_devices, PL_ERR_COMM_INIT, d,
                              "`devices` is %u, and %s started %u ranks", job->devices,
                              world->launcher ? world->launcher : "the launcher", world->size);
    pl_diag_hint(d, "remove `devices`, or start as many ranks");
    return err;
}

/* A rank takes the GPU of its number on the machine; one that the job names is for one rank. */
static void choose_device(struct pl_job *job, const struct pl_world *world) {
    if (job->device == PL_DEVICE_CUDA || job->device == PL_DEVICE_AUTO)
        job->device = PL_DEVICE_CUDA_AT + world->local_rank;
}

pl_err pl_ranks_join(struct pl_job *job, const struct pl_world *world, struct pl_diag *d) {
    if (world->size == 1) return PL_ERR_OK;
    if (job->given[PL_KEY_devices] && job->devices != PL_AUTO && job->devices != world->size)
        return refuse_count(job, world, d);
    job->devices = world->size;
    job->rank = world->rank;
    if (job->device != PL_DEVICE_AUTO) choose_device(job, world);
    return PL_ERR_OK;
}
