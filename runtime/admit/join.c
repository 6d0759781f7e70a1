#include "runtime/admit/join.h"

#include "estimator/config/job_values.h"
#include "estimator/config/validate.h"

pl_err pl_ranks_join(struct pl_spec *spec, const struct pl_world *world, struct pl_diag *d) {
    const struct pl_job *job = &spec->job;
    if (world->size == 1) return PL_ERR_OK;
    if (job->given[PL_KEY_devices] && job->devices != PL_AUTO && job->devices != world->size) {
        pl_job_error(job, PL_KEY_devices, PL_ERR_COMM_INIT, d,
                     "`devices` is %u, and %s started %u ranks", job->devices,
                     world->launcher ? world->launcher : "the launcher", world->size);
        pl_diag_hint(d, "remove `devices`, or start as many ranks");
        return PL_ERR_COMM_INIT;
    }
    spec->facts.are_ranks = true;
    spec->facts.devices = world->size;
    spec->facts.local_rank = world->local_rank;
    pl_resolve(spec);
    return pl_job_validate(job, d);
}
