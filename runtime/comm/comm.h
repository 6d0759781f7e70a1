/* comm.h - several processes that train one job: who they are, and how bytes go between them.
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
 *   C4  who does not show the token of the job is not listened to
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
#define PL_AGREE_MOST 256 /* bytes of one rank in an agreement */

/* Who this process is, from the environment that a launcher makes: RANK, WORLD_SIZE, LOCAL_RANK and
 * LOCAL_WORLD_SIZE (torchrun, and `plimsoll train --devices`), OMPI_COMM_WORLD_* (Open MPI),
 * PMI_RANK and PMI_SIZE (MPICH), SLURM_PROCID, SLURM_STEP_NUM_TASKS and SLURM_LOCALID (srun). */
struct pl_world {
    uint32_t rank, size;             /* 0 and 1: started alone */
    uint32_t local_rank, local_size; /* on this machine */
    const char *launcher;            /* static: "torchrun", "Open MPI", ...; NULL = none */
    char address[PL_HOST_NAME];      /* where rank 0 listens; MASTER_ADDR, "" = not said */
    uint16_t port;                   /* MASTER_PORT; 0 = not said */
};
/* COMM_INIT: variables that contradict each other, or are no numbers. */
pl_err pl_world_init(struct pl_world *out, struct pl_diag *d);

/* Bytes from or to another rank. Between two ranks moves are matched in order. */
struct pl_move {
    uint32_t peer;
    bool receive;
    void *p; /* of the device's memory */
    uint64_t bytes;
};

struct pl_comm;
struct pl_comm_ops {
    const char *name; /* "mpi", "nccl" */
    pl_err (*open)(struct pl_comm *c, struct pl_diag *d);
    void (*close)(struct pl_comm *c);
    /* All n moves as one, in any order among themselves; none to the rank itself. With a stream
     * (cudaStream_t) they are queued there and done in its order; without one they are complete on
     * return. Counts sent_bytes. PL_ERR_COMM_PEER_LOST. */
    pl_err (*exchange)(struct pl_comm *c, const struct pl_move *moves, uint32_t n, void *stream);
    /* Memory of the device that other devices can map, so that it may be copied from and to
     * directly once it is registered. It is not zeroed. NULL: there is none to be had, and that
     * of the device serves as well. give_memory is called before close and after
     * unregister_memory, also after an abort, and waits for all that was queued; false: p is not
     * of take_memory. Both functions are NULL where the engine has no memory of its own. */
    void *(*take_memory)(struct pl_comm *c, uint64_t bytes);
    bool (*give_memory)(struct pl_comm *c, void *p);
    /* Memory of the device that exchanges read and write: the engine may then copy from and to it
     * directly, without a buffer of its own. Waits for no other rank; C5 is the caller's. Returns
     * what unregister_memory takes; NULL: not registered, which changes nothing for exchange().
     * Both functions are NULL where the engine has no use for it. */
    void *(*register_memory)(struct pl_comm *c, void *p, uint64_t bytes);
    /* Before the memory is released, and before close: once the device has done all that was
     * queued. After an abort nothing is registered any more; then it waits for the abort's end. */
    void (*unregister_memory)(struct pl_comm *c, void *registered);
    /* From any thread: whatever waits in exchange, on the host or on the device, ends soon. What
     * was registered is so no more. */
    void (*abort)(struct pl_comm *c);
    /* Bytes of the device that the engine holds; 0 = none. */
    uint64_t (*device_bytes)(struct pl_comm *c);
};

enum pl_comm_kind { PL_COMM_AUTO, PL_COMM_NCCL, PL_COMM_MPI };
struct pl_comm_request {
    enum pl_comm_kind kind; /* AUTO: nccl on a GPU, mpi on the CPU */
    bool gpu;
    const struct pl_comm_ops *nccl; /* the engine of GPUs, which their back-end has; NULL: it has
                                     * none */
    uint32_t timeout_seconds;       /* of C2; >= 1 */
};

struct pl_control; /* control.h */
struct pl_mpi;     /* mpi_engine.h */
struct pl_comm {
    const struct pl_comm_ops *ops;
    struct pl_world world;
    struct pl_comm_request request;
    struct pl_control *control;
    struct pl_mpi *mpi; /* NULL = not started; also where it only told the ranks where to meet */
    uint64_t sent_bytes, exchanges;
    double wait_seconds; /* of the host, in exchanges and agreements */
    void *state;         /* of the engine */
};

/* Hears what a person who waits should know, a line without its end. */
struct pl_teller {
    void (*tell)(void *ctx, const char *line);
    void *ctx;
};
/* Connects to the other ranks, which can agree from then on. COMM_INIT: no address, or not all
 * ranks came within two and a half times timeout_seconds (it names those that are missing).
 * teller (nullable) hears of them after timeout_seconds. */
pl_err pl_comm_meet(struct pl_comm **out, const struct pl_world *world, uint32_t timeout_seconds,
                    const struct pl_teller *teller, struct pl_diag *d);
/* Starts the engine of ranks that met, once all of them are here. COMM_INIT: no engine; the others
 * are told. */
pl_err pl_comm_start(struct pl_comm *c, const struct pl_comm_request *request, struct pl_diag *d);
/* Both. */
pl_err pl_comm_open(struct pl_comm **out, const struct pl_world *world,
                    const struct pl_comm_request *request, struct pl_diag *d);
void pl_comm_close(struct pl_comm **c); /* NULL-safe; sets *c to NULL; bounded as all else */

/* all[rank] of every rank = its `mine`, of equal `bytes` <= PL_AGREE_MOST. COMM_PEER_LOST. */
pl_err pl_comm_agree(struct pl_comm *c, const void *mine, uint32_t bytes, void *all,
                     struct pl_diag *d);
/* The bytes of rank 0 to all, of any length. */
pl_err pl_comm_broadcast(struct pl_comm *c, void *p, uint64_t bytes, struct pl_diag *d);
pl_err pl_comm_barrier(struct pl_comm *c, struct pl_diag *d);
/* Refuses ranks that were started differently: COMM_MISMATCH says which of them has another `what`
 * ("the version", "the job", "the plan", "the data") than rank 0. */
pl_err pl_comm_compare(struct pl_comm *c, const char *what, const char *digest, struct pl_diag *d);
/* PL_ERR_OK, or COMM_PEER_LOST once a rank is lost; never waits. */
pl_err pl_comm_check(struct pl_comm *c, struct pl_diag *d);
/* Tells the others why this rank ends, so that they do not take it for lost: their error names the
 * rank and `why`, and has the cause. The last call but close. */
void pl_comm_fail(struct pl_comm *c, pl_err cause, const char *why);
/* The same for a refusal that other ranks may come to as well, of which a reader needs one: it
 * waits a moment for the ranks before this one. If another rank ended by `cause`, which then says
 * why, d->cause is `cause`. d: what it was refused for; nullable. */
void pl_comm_refuse(struct pl_comm *c, pl_err cause, struct pl_diag *d);

#endif
