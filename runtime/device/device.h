/* device.h - one struct of functions per back-end; the trainer knows nothing else of hardware.
 *
 * A device hands out whole arenas, counts what it hands out, and runs kernels (call.h).
 *   D1  used_bytes never exceeds budget_bytes: an allocation past it fails with PL_ERR_DEVICE_OOM
 *       and changes nothing
 *   D2  `allocations` counts successful and failed calls; nothing else allocates device memory
 *   D3  fault injection (pl_device_inject) fails allocations as the device itself would
 *   D4  host memory that a plan places (pl_host_reserve) is counted apart from used_bytes and is in
 *       no budget; it is refused with HOST_OOM where the machine has less available
 * Needs: estimator/base, estimator/ops, the traits of estimator/card. */
#ifndef PL_RUNTIME_DEVICE_DEVICE_H
#define PL_RUNTIME_DEVICE_DEVICE_H

#include "estimator/base/diag.h"
#include "estimator/card/traits.h"
#include "estimator/ops/call.h"
#include "estimator/ops/memory.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pl_comm; /* runtime/comm/comm.h */
struct pl_comm_ops;
struct pl_device;
struct pl_gpu;   /* runtime/device/cuda/nvml.h */
struct pl_graph; /* of the back-end */

struct pl_device_ops {
    const char *name;               /* "cpu", "cuda", "null" */
    const struct pl_comm_ops *nccl; /* what moves its memory between ranks; NULL = MPI does */
    const char *missing;            /* why this build has no such back-end; NULL = it has */
    uint32_t oldest_driver;         /* branch that the back-end starts with; 0 = it needs none */
    /* True if the build has no code for such a device, so that the driver compiles the kernels when
     * it opens. NULL = the back-end needs no code of a kind. */
    bool (*lacks_code)(uint32_t sm);
    /* Describes a device without NVML. It makes a context, which stays: only for a process that
     * ends then (gpu_query.h). NULL = there is no need. */
    pl_err (*describe)(uint32_t ordinal, struct pl_gpu *out, struct pl_diag *d);
    pl_err (*open)(struct pl_device *dev, struct pl_diag *d);
    void (*close)(struct pl_device *dev);
    /* Memory is zeroed and aligned to traits.align_bytes. Budget, injection and
     * free_bytes were checked. */
    pl_err (*alloc)(struct pl_device *dev, uint64_t bytes, void **out, struct pl_diag *d);
    void (*release)(struct pl_device *dev, void *p, uint64_t bytes);
    /* Pinned host memory of traits.pinned_bytes; NULL = the back-end needs none. Injection was
     * checked. Sets dev->staging. */
    pl_err (*pin)(struct pl_device *dev, struct pl_diag *d);
    /* Host memory, zeroed and aligned to traits.align_bytes; pinned: the device copies from and to
     * it by itself. Injection and what the machine has were checked. Refused: DEVICE_OOM. */
    pl_err (*host_alloc)(struct pl_device *dev, uint64_t bytes, bool pinned, void **out,
                         struct pl_diag *d);
    void (*host_release)(struct pl_device *dev, void *p, uint64_t bytes, bool pinned);
    /* Copies run in order with the kernels. upload: src may be reused at once. download: dst is
     * complete. */
    pl_err (*upload)(struct pl_device *dev, void *dst, const void *src, uint64_t bytes);
    pl_err (*download)(struct pl_device *dev, void *dst, const void *src, uint64_t bytes);
    pl_err (*sync)(struct pl_device *dev); /* NULL = nothing is ever pending */
    /* Small values of the device that the host wants later: post queues the copy of `bytes` to
     * byte `at` of a place of the mailbox after the kernels and does not wait; collect waits for
     * all that was posted to the place. NULL = download is as good. */
    pl_err (*post)(struct pl_device *dev, uint32_t place, uint64_t at, const void *src,
                   uint64_t bytes);
    pl_err (*collect)(struct pl_device *dev, uint32_t place, void *dst, uint64_t bytes);
    /* Work that is the same every time, written down once. Between begin and end kernels are not
     * run; end (keep) makes one thing of them, which replay starts in order with the kernels, with
     * operands and arguments as they were. Whatever end returns, nothing has run. DEVICE_OOM: it
     * would take more than dev->graphs grants. forget: sets *g to NULL. NULL = the device has
     * no such thing. */
    pl_err (*record_begin)(struct pl_device *dev);
    pl_err (*record_end)(struct pl_device *dev, bool keep, struct pl_graph **out);
    pl_err (*replay)(struct pl_device *dev, const struct pl_graph *g);
    void (*forget)(struct pl_device *dev, struct pl_graph **g);
    /* Kernels between begin and end start after all that was queued before, and run while those
     * after `end` do; what is told apart by begin and end runs one after another. Those after await
     * start when all up to `number`, as `end` numbered it, have run; numbers grow. NULL = the
     * device runs nothing on a copy stream. */
    pl_err (*copy_stream_begin)(struct pl_device *dev);
    pl_err (*copy_stream_end)(struct pl_device *dev, uint32_t number);
    pl_err (*copy_stream_await)(struct pl_device *dev, uint32_t number);
    /* Bytes free for arenas right now, before any budget. */
    pl_err (*free_bytes)(struct pl_device *dev, uint64_t *out, struct pl_diag *d);
};

#define PL_MAIL_PLACES 2
#define PL_MAIL_BYTES  64 /* of a place */

extern const struct pl_device_ops pl_device_cpu, pl_device_cuda, pl_device_null;

/* The kernels that a device is opened with. runtime/kernels, which stands on the devices, defines
 * them as data. */
struct pl_kernel_set {
    /* Tables [PL_OP_COUNT], in which NULL means that the op has no kernel: the CPU takes the one of
     * its instruction set (pl_cpu_level.number), a GPU the only one. */
    const pl_kernel_fn *const *tables;
    bool only_fp32;            /* the CPU takes none that multiplies in bf16 */
    const pl_group_fn *groups; /* [PL_OP_COUNT]; NULL, or a NULL entry = one by one */
    /* These make and free what the kernels keep on an open device; NULL = nothing. A device that
     * opened calls open last and close first; close may follow an open that failed or was never
     * reached. */
    pl_err (*open)(struct pl_device *dev, struct pl_diag *d);
    void (*close)(struct pl_device *dev);
};

/* A device together with its kernels: runtime/kernels/back_ends.h has those that there are. */
struct pl_back_end {
    const struct pl_device_ops *ops;
    const struct pl_kernel_set *kernels; /* NULL = the device brings its own */
};

/* The most graphs of a plan at one time: micro-batches of samples of many lengths have some dozens
 * of sizes after padding (runtime/data/batch.h). */
#define PL_GRAPHS_MOST 64

/* Memory for the kernels of a GPU's libraries, which are loaded when they first run: a step loads
 * ten to twenty of them, which take some tens of MiB. This is more than all of them. */
#define PL_KERNEL_ROOM (UINT64_C(128) << 20)

/* The budget without a limit but what the machine has. */
#define PL_NO_BUDGET UINT64_MAX

struct pl_inject {      /* fail allocation number `at` (1-based), `count` times in a row */
    uint64_t at, count; /* at 0 = off; count UINT64_MAX = for ever */
};

/* Graphs take memory of the driver: none is made unless limit_bytes grants it. */
struct pl_graph_books {
    uint64_t limit_bytes, node_bytes; /* of all; what one node is expected to take */
    uint64_t bytes, nodes;            /* of those there are; bytes as measured */
    uint64_t peak_bytes, peak_nodes;  /* at the time of the most bytes */
    uint64_t made, replays;
    const char *off; /* why none is made any more; static; NULL = they are */
};
static inline bool pl_graph_fits(const struct pl_graph_books *b, uint64_t nodes) {
    return b->bytes <= b->limit_bytes &&
           (b->node_bytes == 0 || nodes <= (b->limit_bytes - b->bytes) / b->node_bytes);
}

struct pl_device {
    const struct pl_device_ops *ops;
    const struct pl_kernel_set *set; /* of the back-end */
    const pl_kernel_fn *kernels;     /* the table of it that runs here */
    const pl_group_fn *groups;       /* as in the set */
    struct pl_traits traits;
    uint64_t budget_bytes;
    uint64_t used_bytes, peak_bytes;
    uint64_t rounding_bytes; /* taken with used_bytes, where a back-end knows of it */
    uint64_t allocations, failed_allocations;
    uint64_t pinned_allocations;         /* successful and failed */
    uint64_t host_bytes[PL_PLACE_COUNT]; /* reserved of each host memory; row DEVICE stays 0 */
    uint64_t host_allocations;           /* pl_host_reserve() of bytes, successful and failed */
    struct pl_inject inject, inject_pinned;
    struct pl_graph_books graphs;
    uint32_t ordinal;     /* which of several devices */
    struct pl_comm *comm; /* borrowed; of ops between ranks; NULL = there is one rank */
    void *staging; /* pinned host memory for files on their way; NULL = staging is in an arena */
    uint64_t staging_bytes;
    const char *failure; /* why the op failed that failed last, as its library names it; static;
                            NULL = the error says all */
    void *state;         /* of the back-end */
};

/* Opens a back-end. threads >= 1; budget_bytes: PL_NO_BUDGET for none. */
pl_err pl_device_open(const struct pl_back_end *back_end, uint32_t threads, uint64_t budget_bytes,
                      struct pl_device **out, struct pl_diag *d);
/* The same for one of several devices of a back-end. */
pl_err pl_device_open_at(const struct pl_back_end *back_end, uint32_t ordinal, uint32_t threads,
                         uint64_t budget_bytes, struct pl_device **out, struct pl_diag *d);
/* Takes the planned pinned memory, once; a second call does nothing. Refused: HOST_OOM, since no
 * smaller batch needs less of it. */
pl_err pl_staging_reserve(struct pl_device *dev, struct pl_diag *d);
void pl_device_close(struct pl_device **dev); /* NULL-safe; sets *dev to NULL */

struct pl_arena {
    void *base;
    uint64_t bytes;
};
/* bytes 0 gives base NULL. On failure *out is {0} and d names asked and free bytes. */
pl_err pl_arena_reserve(struct pl_device *dev, uint64_t bytes, const char *what,
                        struct pl_arena *out, struct pl_diag *d);
void pl_arena_release(struct pl_device *dev, struct pl_arena *a); /* leaves {0} */

/* The same in host memory: place is PINNED or HOST. HOST_OOM names asked and available bytes. */
pl_err pl_host_reserve(struct pl_device *dev, enum pl_tensor_place place, uint64_t bytes,
                       const char *what, struct pl_arena *out, struct pl_diag *d);
void pl_host_release(struct pl_device *dev, enum pl_tensor_place place, struct pl_arena *a);

/* Zeroed pages of the process; NULL, with errno set, when the system refuses. */
void *pl_host_map(uint64_t bytes);
void pl_host_unmap(void *p, uint64_t bytes);

/* The name that the processor gives itself; "CPU" where the kernel does not say. */
#define PL_CPU_NAME_TEXT 128
void pl_cpu_name(char out[PL_CPU_NAME_TEXT]);

#endif
