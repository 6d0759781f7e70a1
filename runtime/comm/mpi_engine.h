/* mpi_engine.h - MPI on a thread of its own, so that waiting for it has a limit.
 *
 * MPI_Init, MPI_Finalize and, where a peer was killed, any other call may never return. The thread
 * that makes all calls is then abandoned, together with its resources.
 * Needs: mpi_module.h, threads, the loader. Use: pl_mpi_start(&mpi, &world, NULL, 60000, &d); */
#ifndef PL_RUNTIME_COMM_MPI_ENGINE_H
#define PL_RUNTIME_COMM_MPI_ENGINE_H

#include "runtime/comm/control.h"
#include "runtime/comm/mpi_module.h"

/* Finds the module that belongs to this program: PLIMSOLL_MPI_MODULE, else the one in the directory
 * of the executable, else the installed one. COMM_INIT: there is none, or it has another version.
 * It is never unloaded. */
pl_err pl_mpi_find(const struct pl_mpi_module **out, struct pl_diag *d);

/* Returns the `--mpi` of srun by which the module's MPI learns of the other ranks; NULL = there is
 * no module. */
const char *pl_mpi_srun_type(void);

/* Loads the module and starts MPI. COMM_INIT: not within the limit, or MPI counts the ranks
 * otherwise than the world. COMM_PEER_LOST: the control channel, if there is one, reported it. */
pl_err pl_mpi_start(struct pl_mpi **out, const struct pl_world *world, struct pl_control *control,
                    uint32_t limit_ms, struct pl_diag *d);
/* Sends the bytes of rank 0 to all, before there is a control channel. */
pl_err pl_mpi_share(struct pl_mpi *m, void *p, uint32_t bytes, uint32_t limit_ms,
                    struct pl_diag *d);
/* NULL-safe; sets *m to NULL. orderly: all ranks call this now. Else MPI is left as it is. */
void pl_mpi_finish(struct pl_mpi **m, bool orderly, uint32_t limit_ms);

#endif
