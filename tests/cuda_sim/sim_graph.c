/* sim_graph.c - stream capture and graphs.
 *
 * What is put into a capturing stream is written down with its arguments as they are now, and runs
 * when the graph does: a value or an address that has changed since shows. What may not happen
 * meanwhile spoils the capture, as the real runtime does for the modes global and thread-local
 * (CUDA C++ Programming Guide, "Prohibited and Unhandled Operations"; CUDA Runtime API,
 * cudaThreadExchangeStreamCaptureMode). One stream captures at a time, with those that wait for an
 * event of the capture; each of these must be waited for before the end ("Cross-stream Dependencies
 * and Events"). A graph runs its work in the order in which it was written down. */
#include "tests/cuda_sim/sim.h"

#include <stdlib.h>
#include <string.h>

struct work {
    void (*run)(void *data);
    void *data; /* a copy */
    size_t bytes;
    bool is_kernel;
    struct work *next;
};

struct CUgraph_st {
    struct work *first, **end;
    uint64_t works, kernels;
};

struct CUgraphExec_st {
    struct CUgraph_st graph;
    uint64_t bytes; /* bytes of the device */
};

struct fork {
    cudaStream_t stream;
    uint64_t works, joined; /* works of the graph: at its last one, and at the point where it was
                               waited for */
};
enum { MAX_FORKS = 4 };

static struct {
    cudaStream_t stream; /* NULL = none captures */
    bool spoilt;
    cudaGraph_t graph;
    uint64_t number;
    struct fork forks[MAX_FORKS];
    int n_forks;
} capture;
static uint64_t all_bytes;

uint64_t plsim_graph_bytes(void) {
    return all_bytes;
}

static struct fork *fork_of(cudaStream_t stream) {
    for (int i = 0; i < capture.n_forks; i++)
        if (capture.forks[i].stream == stream) return &capture.forks[i];
    return NULL;
}

bool plsim_captures(cudaStream_t stream) {
    return capture.stream && (capture.stream == stream || fork_of(stream));
}

struct plsim_captured plsim_captured(cudaStream_t stream) {
    if (!plsim_captures(stream)) return (struct plsim_captured){.stream = stream};
    return (struct plsim_captured){stream, capture.number, capture.graph->works};
}

cudaError_t plsim_capture_wait(cudaStream_t stream, const struct plsim_captured *at) {
    if (!capture.stream) return plsim_fail(cudaErrorCapturedEvent);
    if (at->capture != capture.number) {
        capture.spoilt = true;
        return plsim_fail(cudaErrorStreamCaptureIsolation);
    }
    if (!plsim_captures(stream)) {
        if (capture.n_forks == MAX_FORKS) plsim_die("more than %d streams capture", MAX_FORKS);
        capture.forks[capture.n_forks++] = (struct fork){.stream = stream};
    }
    struct fork *from = fork_of(at->stream);
    if (from && stream == capture.stream) from->joined = at->works + 1;
    return cudaSuccess;
}

static bool is_joined(void) {
    for (int i = 0; i < capture.n_forks; i++)
        if (capture.forks[i].joined <= capture.forks[i].works) return false;
    return true;
}

cudaError_t plsim_forbidden(void) {
    if (!capture.stream) return cudaSuccess;
    capture.spoilt = true;
    return plsim_fail(cudaErrorStreamCaptureUnsupported);
}

static void clear(struct CUgraph_st *g) {
    for (struct work *w = g->first, *next; w; w = next) {
        next = w->next;
        free(w->data);
        free(w);
    }
    *g = (struct CUgraph_st){0};
}

static void append(struct CUgraph_st *g, void (*run)(void *data), const void *data, size_t bytes,
                   bool is_kernel) {
    struct work *w = malloc(sizeof *w);
    void *copy = malloc(bytes);
    if (!w || !copy) plsim_die("no memory to write a graph down");
    memcpy(copy, data, bytes);
    *w = (struct work){.run = run, .data = copy, .bytes = bytes, .is_kernel = is_kernel};
    *(g->first ? g->end : &g->first) = w;
    g->end = &w->next;
    g->works++;
    g->kernels += is_kernel;
}

cudaError_t plsim_record(cudaStream_t stream, void (*run)(void *data), const void *data,
                         size_t bytes, bool is_kernel) {
    struct fork *fork = fork_of(stream);
    if (capture.spoilt) return plsim_fail(cudaErrorStreamCaptureInvalidated);
    append(capture.graph, run, data, bytes, is_kernel);
    if (fork) fork->works = capture.graph->works;
    return cudaSuccess;
}

/* ---- capture ---- */

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode) {
    int injected = plsim_injected(PLSIM_CAPTURE);
    cudaError_t e = plsim_sticky();
    if (e != cudaSuccess) return e;
    if (injected) return plsim_fail((cudaError_t)injected);
    if (!stream) return plsim_fail(cudaErrorStreamCaptureUnsupported);
    if (capture.stream) return plsim_fail(cudaErrorIllegalState);
    if (mode == cudaStreamCaptureModeRelaxed) plsim_die("relaxed capture is not emulated");
    capture.graph = calloc(1, sizeof *capture.graph);
    if (!capture.graph) return plsim_fail(cudaErrorMemoryAllocation);
    capture.stream = stream;
    capture.spoilt = false;
    capture.number++;
    capture.n_forks = 0;
    return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *out) {
    if (!out) return plsim_fail(cudaErrorInvalidValue);
    *out = !plsim_captures(stream) ? cudaStreamCaptureStatusNone
           : capture.spoilt        ? cudaStreamCaptureStatusInvalidated
                                   : cudaStreamCaptureStatusActive;
    return plsim_sticky();
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *out) {
    int injected = plsim_injected(PLSIM_CAPTURED);
    cudaError_t e = plsim_sticky();
    if (!out) return plsim_fail(cudaErrorInvalidValue);
    *out = NULL;
    if (!capture.stream || stream != capture.stream) return plsim_fail(cudaErrorIllegalState);
    cudaGraph_t graph = capture.graph;
    capture.stream = NULL;
    capture.graph = NULL;
    if (e == cudaSuccess && capture.spoilt) e = plsim_fail(cudaErrorStreamCaptureInvalidated);
    if (e == cudaSuccess && !is_joined()) e = plsim_fail(cudaErrorStreamCaptureUnjoined);
    if (e == cudaSuccess && injected) e = plsim_fail((cudaError_t)injected);
    if (e != cudaSuccess) {
        cudaGraphDestroy(graph);
        return e;
    }
    plsim_counters.captures++;
    *out = graph;
    return cudaSuccess;
}

/* ---- graphs ---- */

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    if (!graph) return plsim_fail(cudaErrorInvalidValue);
    clear(graph);
    free(graph);
    return plsim_sticky();
}

/* nodes NULL: only counts. */
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *n) {
    if (!graph || !n) return plsim_fail(cudaErrorInvalidValue);
    if (nodes) plsim_die("cudaGraphGetNodes only counts in the emulation");
    *n = graph->works;
    return plsim_sticky();
}

/* A graph is instantiated once: what it holds moves. */
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *out, cudaGraph_t graph,
                                 unsigned long long flags) {
    int injected = plsim_injected(PLSIM_INSTANTIATE);
    cudaError_t e = plsim_sticky();
    if (e != cudaSuccess) return e;
    if (!out || !graph || flags) return plsim_fail(cudaErrorInvalidValue);
    *out = NULL;
    if (injected) return plsim_fail((cudaError_t)injected);
    uint64_t bytes = graph->kernels * plsim_settings()->graph_node_bytes;
    if (bytes > plsim_free_bytes()) return plsim_fail(cudaErrorMemoryAllocation);
    *out = calloc(1, sizeof **out);
    if (!*out) return plsim_fail(cudaErrorMemoryAllocation);
    (*out)->graph = *graph;
    *graph = (struct CUgraph_st){0};
    (*out)->bytes = bytes;
    all_bytes += bytes;
    plsim_counters.graphs++;
    return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
    if (!exec) return plsim_fail(cudaErrorInvalidValue);
    all_bytes -= exec->bytes;
    clear(&exec->graph);
    free(exec);
    return plsim_sticky();
}

cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t stream) {
    int injected = plsim_injected(PLSIM_UPLOAD);
    cudaError_t e = plsim_sticky();
    if (e != cudaSuccess) return e;
    if (!exec || !stream) return plsim_fail(cudaErrorInvalidValue);
    return injected ? plsim_fail((cudaError_t)injected) : cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
    int injected = plsim_injected(PLSIM_REPLAY);
    cudaError_t e = plsim_sticky();
    if (e != cudaSuccess) return e;
    if (!exec) return plsim_fail(cudaErrorInvalidValue);
    if (plsim_captures(stream)) plsim_die("a graph inside a graph is not emulated");
    plsim_counters.graph_launches++;
    if (injected) return plsim_fail((cudaError_t)injected);
    for (const struct work *w = exec->graph.first; w; w = w->next)
        plsim_submit(stream, w->run, w->data, w->bytes);
    return cudaSuccess;
}
