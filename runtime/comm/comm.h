/* comm.h - several processes that train one job: their identities, and the transfers between them.
 *
 * A rank is a process with one device. Ranks have two ways to each other. The control channel is a
 * star of TCP connections to rank 0; a thread of its own serves it in every rank, so that it
 * answers while the rank computes. Over it go small agreements, and the news that a rank is lost.
 * The data engine moves tensors: MPI between CPUs, NCCL between GPUs.
 *   C1  every rank makes the same calls in the same order; only exchange() touches tensors
 *   C2  nothing waits without a limit: a rank that ended, or whose control thread was not heard of
 *       for timeout_seconds, is lost for all, and whatever they wait in returns COMM_PEER_LOST,
 *       which names rank and host
 *   C3  agreements never pass through a device, so that ranks can agree on the failure of one
 *   C4  a peer that does not send the token of the job is ignored
 *   C5  all ranks have registered the memory that exchanges touch, or none has: NCCL leaves it
 *       undefined what comes of a mixture ("User Buffer Registration" in its User Guide)
 * Needs: estimator/base.
 * Use: pl_world_init(&w, &d); pl_comm_open(&comm, &w, &(struct pl_comm_request){...}, &d);
 *      pl_comm_compare(comm, "the plan", digest, &d); comm->ops->exchange(comm, moves, n, NULL);
 *      pl_comm_agree(comm, &mine, sizeof mine, all, &d); pl_comm_close(&comm); */
#ifndef PL_RUNTIME_COMM_COMM_H
#define PL_RUNTIME_COMM_COMM_H

#include "estimator/base/diag.h"

#include <stdbool.h>
#include <stdint.h>

#define PL_RANKS_MAX  64
#define PL_HOST_NAME  64
#define PL_AGREE_MOST 256 /* most bytes of one rank in an agreement */

/* The identity of this process, from the environment that a launcher sets: RANK, WORLD_SIZE,
 * LOCAL_RANK and LOCAL_WORLD_SIZE (torchrun, and `plimsoll train --devices`), OMPI_COMM_WORLD_*
 * (Open MPI), PMI_RANK and PMI_SIZE (MPICH), SLURM_PROCID, SLURM_STEP_NUM_TASKS and SLURM_LOCALID
 * (srun). */
struct pl_world {
    uint32_t rank, size;             /* 0 and 1: started alone */
    uint32_t local_rank, local_size; /* on this machine */
    const char *launcher;            /* static: "torchrun", "Open MPI", ...; NULL = none */
    bool by_srun;                    /* one of several tasks of srun, whatever names the ranks */
    char address[PL_HOST_NAME];      /* address of rank 0; MASTER_ADDR, "" = not given */
    uint16_t port;                   /* MASTER_PORT; 0 = not given */
};
/* Reads the identity. COMM_INIT: variables contradict each other, or are not numbers. */
pl_err pl_world_init(struct pl_world *out, struct pl_diag *d);

/* Bytes to be sent to or received from another rank. Moves between two ranks are matched in
 * order. */
struct pl_move {
    uint32_t peer;
    bool receive;
    void *p; /* in the device's memory */
    uint64_t bytes;
};

struct pl_comm;
struct pl_comm_ops {
    const char *name; /* "mpi", "nccl" */
    pl_err (*open)(struct pl_comm *c, struct pl_diag *d);
    void (*close)(struct pl_comm *c);
    /* Makes all n moves as one, in any order among themselves; none is to the rank itself. With a
     * stream (cudaStream_t) they are queued there and done in its order; without one they are
     * complete on return. Counts sent_bytes. PL_ERR_COMM_PEER_LOST. */
    pl_err (*exchange)(struct pl_comm *c, const struct pl_move *moves, uint32_t n, void *stream);
    /* Allocates memory of the device that other devices can map, so that it can be copied from and
     * to directly once it is registered. It is not zeroed. NULL: there is none, and ordinary memory
     * of the device serves as well. give_memory is called before close and after unregister_memory,
     * also after an abort, and waits for everything that was queued; false: p is not from
     * take_memory. Both functions are NULL if the engine has no memory of its own. */
    void *(*take_memory)(struct pl_comm *c, uint64_t bytes);
    bool (*give_memory)(struct pl_comm *c, void *p);
    /* Registers memory of the device that exchanges read and write: the engine may then copy from
     * and to it directly, without a buffer of its own. Waits for no other rank; C5 is the caller's
     * duty. Returns the argument of unregister_memory; NULL: not registered, which changes nothing
     * for exchange(). Both functions are NULL if the engine has no use for it. */
    void *(*register_memory)(struct pl_comm *c, void *p, uint64_t bytes);
    /* Called before the memory is released, and before close, when the device has done everything
     * that was queued. After an abort nothing is registered any more; the call then waits for the
     * abort's end. */
    void (*unregister_memory)(struct pl_comm *c, void *registered);
    /* Callable from any thread: exchanges that wait, on the host or on the device, end soon.
     * Registered memory is no longer registered. */
    void (*abort)(struct pl_comm *c);
    /* Returns the bytes of the device that the engine holds; 0 = none. */
    uint64_t (*device_bytes)(struct pl_comm *c);
};

enum pl_comm_kind { PL_COMM_AUTO, PL_COMM_NCCL, PL_COMM_MPI };
struct pl_comm_request {
    enum pl_comm_kind kind; /* AUTO: nccl on a GPU, mpi on the CPU */
    bool gpu;
    const struct pl_comm_ops *nccl; /* the engine of GPUs, which their back-end has; NULL = none */
    uint32_t timeout_seconds;       /* the limit of C2; >= 1 */
};

struct pl_control; /* control.h */
struct pl_mpi;     /* mpi_engine.h */
struct pl_comm {
    const struct pl_comm_ops *ops;
    struct pl_world world;
    struct pl_comm_request request;
    struct pl_control *control;
    struct pl_mpi *mpi; /* NULL = not started; MPI may also have been used only to tell the ranks
                           the address */
    uint64_t sent_bytes, exchanges;
    double wait_seconds; /* time of the host in exchanges and agreements */
    void *state;         /* owned by the engine */
};

/* Receives messages for a waiting user, one line at a time without its end. */
struct pl_teller {
    void (*tell)(void *ctx, const char *line);
    void *ctx;
};
/* Connects to the other ranks, which can agree from then on. COMM_INIT: there is no address, or not
 * all ranks came within two and a half times timeout_seconds (the message names those that are
 * missing). teller (nullable) is told of them after timeout_seconds. */
pl_err pl_comm_meet(struct pl_comm **out, const struct pl_world *world, uint32_t timeout_seconds,
                    const struct pl_teller *teller, struct pl_diag *d);
/* Starts the engine of ranks that met, when all of them are here. COMM_INIT: no engine; the others
 * are told. */
pl_err pl_comm_start(struct pl_comm *c, const struct pl_comm_request *request, struct pl_diag *d);
/* Calls pl_comm_meet and pl_comm_start. */
pl_err pl_comm_open(struct pl_comm **out, const struct pl_world *world,
                    const struct pl_comm_request *request, struct pl_diag *d);
void pl_comm_close(struct pl_comm **c); /* NULL-safe; sets *c to NULL; waits no longer than C2
                                           allows */

/* Sets all[rank] to the `mine` of every rank; all give equal `bytes` <= PL_AGREE_MOST.
 * COMM_PEER_LOST. */
pl_err pl_comm_agree(struct pl_comm *c, const void *mine, uint32_t bytes, void *all,
                     struct pl_diag *d);
/* Sends the bytes of rank 0, of any length, to all ranks. */
pl_err pl_comm_broadcast(struct pl_comm *c, void *p, uint64_t bytes, struct pl_diag *d);
pl_err pl_comm_barrier(struct pl_comm *c, struct pl_diag *d);
/* Refuses ranks that were started differently: COMM_MISMATCH names the ranks whose `what` ("the
 * version", "the job", "the plan", "the data") differs from that of rank 0. */
pl_err pl_comm_compare(struct pl_comm *c, const char *what, const char *digest, struct pl_diag *d);
/* Returns PL_ERR_OK, or COMM_PEER_LOST if a rank is lost; never waits. */
pl_err pl_comm_check(struct pl_comm *c, struct pl_diag *d);
/* Tells the others why this rank ends, so that they do not count it as lost: their error names the
 * rank and `why`, and has the cause. Only close may follow. */
void pl_comm_fail(struct pl_comm *c, pl_err cause, const char *why);
/* Does what pl_comm_fail does, for a refusal that other ranks may report as well, of which a reader
 * needs one: it waits a moment for the ranks before this one. If another rank ended by `cause`,
 * which then reports it, d->cause is set to `cause`. d (nullable): the refusal. */
void pl_comm_refuse(struct pl_comm *c, pl_err cause, struct pl_diag *d);

#endif
