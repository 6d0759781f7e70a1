/* mpi_module.h - MPI through a table of functions, in a library that is loaded when it is needed.
 *
 * The program does not link MPI, since starting MPI's libraries takes longer than an estimate.
 * MPI's types occur in the module alone, so only the module depends on the implementation of MPI.
 *   Y1  all functions are called by one thread, the one that calls start (MPI_THREAD_FUNNELED)
 *   Y2  the module allocates nothing; errors are 0, an error class of MPI, or those below
 * Needs: comm.h for struct pl_move. */
#ifndef PL_RUNTIME_COMM_MPI_MODULE_H
#define PL_RUNTIME_COMM_MPI_MODULE_H

#include "runtime/comm/comm.h"

#include <stdatomic.h>

#define PL_MPI_VERSION    1 /* version of this table */
#define PL_MPI_SYMBOL     "pl_mpi_module"
#define PL_MPI_MOVE_MOST  (UINT64_C(1) << 30) /* most bytes of one move */
#define PL_MPI_ERROR_TEXT 256
enum { PL_MPI_STOPPED = -1, PL_MPI_OTHER_SIZE = -2, PL_MPI_UNREADABLE = -3 };

struct pl_mpi_module {
    uint32_t version;
    uint32_t move_bytes; /* bytes of memory that exchange needs for each move */
    bool speaks_pmi;     /* PMI_RANK, PMI_SIZE and PMI_FD start its processes (MPICH) */
    const char *mpiexec; /* path of the program that else starts them; NULL = it was not found at
                            build time */
    int (*start)(uint32_t *rank, uint32_t *size);
    int (*share)(void *p, uint64_t bytes); /* sends from rank 0 to all */
    /* Makes moves of at most PL_MPI_MOVE_MOST bytes. Between two ranks they are matched in order.
     * PL_MPI_STOPPED: *stop became true; PL_MPI_OTHER_SIZE: fewer or more bytes came than a move
     * has; PL_MPI_UNREADABLE: this rank could not read the memory of another (mpi_near.h), most
     * often because that one ended. */
    int (*exchange)(const struct pl_move *moves, uint32_t n, void *memory, const atomic_bool *stop);
    int (*finish)(void);
    void (*text)(int error, char out[PL_MPI_ERROR_TEXT]);
};
extern const struct pl_mpi_module pl_mpi_module;

#endif
