/* context.h - what driver and kernels take of a GPU before the first arena: predicted before CUDA
 * is touched, measured once its context exists, remembered for the next prediction.
 *
 * In: facts of a GPU.  Out: bytes and where they come from.  Needs: estimator/card, nvml.h.
 * The memory of earlier runs is $XDG_CACHE_HOME/plimsoll/context.json (~/.cache without the
 * variable). An entry belongs to one GPU model, driver and build of this program. Speeds are
 * remembered in the same way (speed.h).
 *   X1  a missing, broken or foreign file is the same as none: it never fails a run
 *   X2  the file is replaced whole or not at all
 * Use: pl_context_predict(&gpu, &c); ... pl_context_remember(&gpu, &seen); */
#ifndef PL_RUNTIME_TRAIN_CONTEXT_H
#define PL_RUNTIME_TRAIN_CONTEXT_H

#include "estimator/card/budget.h"
#include "estimator/card/traits.h"
#include "estimator/config/job.h"
#include "runtime/device/cuda/nvml.h"

#include <jansson.h>
#include <stdbool.h>

struct pl_context {
    uint64_t bytes;        /* at the end of a run */
    uint64_t growth_bytes; /* of them, what comes after the context was opened: library kernels */
    uint64_t doubt_bytes;  /* `bytes` may be off by so much; 0 where an earlier run measured it */
    uint64_t graph_node_bytes; /* of a node of a CUDA graph; graphs are not in `bytes` */
    const char *source;        /* "earlier runs", "card table", "default"; static */
};

void pl_context_predict(const struct pl_gpu *gpu, struct pl_context *out);
struct pl_context_seen {
    uint64_t opened_bytes, final_bytes; /* of this process without arenas and graphs, behind the
                                         * opening and at the end; opened <= final */
    uint64_t graph_bytes, graph_nodes;  /* of the graphs there were; 0 nodes = there were none */
};
void pl_context_remember(const struct pl_gpu *gpu, const struct pl_context_seen *seen);

/* --- what runs remember: files in the cache directory, X1, X2 --- */

#define PL_MEMORY_OWNERS 6
struct pl_memory {    /* all borrowed */
    const char *file; /* name in the directory */
    struct {
        const char *key, *value;
    } of[PL_MEMORY_OWNERS]; /* whom an entry belongs to, besides this build; a NULL key ends it */
};
/* The entry, a new reference; NULL: none. *broken (nullable): there is a file that is no memory. */
json_t *pl_memory_find(const struct pl_memory *m, bool *broken);
/* In place of the entry that was there; steals `figures`, NULL included. */
void pl_memory_put(const struct pl_memory *m, json_t *figures);

/* --- which device, and what it has ------------------------------------------------------------ */

/* Decides `device: auto` in *job and asks NVML about a GPU; *gpu stays {0} on the CPU. No CUDA call
 * is made. NO_DEVICE: the GPU the job names cannot be used. */
pl_err pl_device_decide(struct pl_job *job, struct pl_gpu *gpu, struct pl_diag *d);
/* Traits and budget of the device that was decided. The budget of a GPU is what is free on it, or
 * less where vram_budget asks for less; on the CPU it is what the process may still take.
 * job->vram_budget and vram_margin are decided in place. */
void pl_device_budget(struct pl_job *job, const struct pl_gpu *gpu, struct pl_traits *traits,
                      struct pl_budget *budget, struct pl_context *context);

#endif
