/* graph.c - work of the stream written down once and started as one thing: CUDA graphs.
 *
 * A graph takes memory of the driver that is in no arena: what one will take is judged before it
 * is made, by its nodes, and measured when it was (struct pl_graph_books). Only this thread calls
 * CUDA, so the capture is of the mode that watches this thread: another's calls do not spoil it
 * (CUDA Runtime API, cudaThreadExchangeStreamCaptureMode). Nothing here waits for the stream, and
 * an executable graph may be destroyed while it runs: the driver keeps what a launch still needs.
 */
#include "estimator/base/alloc.h"
#include "runtime/device/cuda/cuda.h"

#include "estimator/base/checked.h"

#include <stdlib.h>

struct pl_graph {
    cudaGraphExec_t exec;
    uint64_t nodes, bytes;
};

pl_err pl_cuda_record_begin(struct pl_device *dev) {
    return pl_cuda_error(
        cudaStreamBeginCapture(pl_cuda_of(dev)->stream, cudaStreamCaptureModeThreadLocal));
}

static uint64_t free_bytes(void) {
    size_t available = 0, total = 0;
    return pl_cuda_error(cudaMemGetInfo(&available, &total)) == PL_ERR_OK ? available : 0;
}

/* The memory of a graph is taken when it is instantiated and when it is sent to the device, not
 * when it is first launched. */
static pl_err instantiate(struct pl_device *dev, cudaGraph_t recorded, struct pl_graph *g) {
    const uint64_t before = free_bytes();
    PL_TRY(pl_cuda_error(cudaGraphInstantiate(&g->exec, recorded, 0)));
    PL_TRY(pl_cuda_error(cudaGraphUpload(g->exec, pl_cuda_of(dev)->stream)));
    const uint64_t after = free_bytes();
    g->bytes = before > after ? before - after : 0;
    return PL_ERR_OK;
}

static void count(struct pl_graph_books *books, const struct pl_graph *g) {
    books->bytes += g->bytes;
    books->nodes += g->nodes;
    books->made++;
    if (books->peak_bytes > books->bytes) return;
    books->peak_bytes = books->bytes;
    books->peak_nodes = books->nodes;
}

static pl_err make(struct pl_device *dev, cudaGraph_t recorded, struct pl_graph **out) {
    struct pl_graph_books *books = &dev->graphs;
    size_t nodes = 0;
    pl_err err;
    PL_TRY(pl_cuda_error(cudaGraphGetNodes(recorded, NULL, &nodes)));
    if (!pl_graph_fits(books, nodes)) return PL_ERR_DEVICE_OOM;
    struct pl_graph *g = pl_calloc(1, sizeof *g);
    if (!g) return PL_ERR_HOST_OOM;
    g->nodes = nodes;
    PL_TRY_GOTO(instantiate(dev, recorded, g), fail);
    count(books, g);
    *out = g;
    if (books->bytes <= books->limit_bytes) return PL_ERR_OK;
    pl_cuda_forget(dev, out);
    return PL_ERR_DEVICE_OOM;
fail:
    if (g->exec) (void)cudaGraphExecDestroy(g->exec);
    free(g);
    return err;
}

pl_err pl_cuda_record_end(struct pl_device *dev, bool keep, struct pl_graph **out) {
    cudaGraph_t recorded = NULL;
    *out = NULL;
    pl_err err = pl_cuda_error(cudaStreamEndCapture(pl_cuda_of(dev)->stream, &recorded));
    if (err == PL_ERR_OK && keep) err = make(dev, recorded, out);
    if (recorded) (void)cudaGraphDestroy(recorded);
    return err;
}

pl_err pl_cuda_replay(struct pl_device *dev, const struct pl_graph *g) {
    return pl_cuda_error(cudaGraphLaunch(g->exec, pl_cuda_of(dev)->stream));
}

void pl_cuda_forget(struct pl_device *dev, struct pl_graph **g) {
    if (!*g) return;
    (void)pl_cuda_error(cudaGraphExecDestroy((*g)->exec));
    dev->graphs.bytes -= pl_u64_min(dev->graphs.bytes, (*g)->bytes);
    dev->graphs.nodes -= (*g)->nodes;
    free(*g);
    *g = NULL;
}
