/* context.h - what driver and kernels take of a GPU before the first arena: predicted before CUDA
 * is touched, measured once its context exists, remembered for the next prediction.
 *
 * In: facts of a GPU.  Out: bytes and where they come from.
 * Needs: estimator/card, nvml.h, history.h.
 * They are remembered in context.json; an entry belongs to one GPU model, driver and build of this
 * program.
 * Use: pl_context_predict(&gpu, &c); ... pl_context_remember(&gpu, &seen); */
#ifndef PL_RUNTIME_ADMIT_CONTEXT_H
#define PL_RUNTIME_ADMIT_CONTEXT_H

#include "runtime/device/cuda/nvml.h"

#include <stdint.h>

struct pl_context {
    uint64_t bytes;        /* at the end of a run */
    uint64_t growth_bytes; /* of them, what came after the context was opened: library kernels;
                            * counts where doubt_bytes is 0 */
    uint64_t doubt_bytes;  /* `bytes` may be off by so much; 0 where an earlier run measured it */
    uint64_t graph_node_bytes; /* of a node of a CUDA graph; graphs are not in `bytes` */
    const char *source;        /* "earlier runs", "card table", "default"; static */
};

void pl_context_predict(const struct pl_gpu *gpu, struct pl_context *out);
/* The bytes by which a context still grows after it was opened. */
struct pl_growth {
    uint64_t bytes;
    uint64_t doubt_bytes; /* `bytes` may be off by so much */
};
/* Returns the growth of a context that was opened with `opened` bytes. Where no earlier run
 * measured it, the kernels of a library are certain to take their room, and with doubt the context
 * becomes at least what is predicted in all. */
struct pl_growth pl_context_growth(const struct pl_context *c, uint64_t opened);
struct pl_context_seen {
    uint64_t opened_bytes, final_bytes; /* of this process without arenas and graphs, after the
                                         * opening and at the end of it; opened <= final */
    uint64_t graph_bytes, graph_nodes;  /* of the graphs there were; 0 nodes = there were none */
};
void pl_context_remember(const struct pl_gpu *gpu, const struct pl_context_seen *seen);

#endif
