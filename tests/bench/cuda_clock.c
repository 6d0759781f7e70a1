/* cuda_clock.c - events and copies. */
#include "tests/bench/cuda_clock.h"

#include <stdio.h>
#include <stdlib.h>

enum { COPIES = 12, ROUNDS = 5 };

#ifdef PLSIM_EMULATION
#define COPY_BYTES (UINT64_C(1) << 16)
#else
/* Large compared with any cache of a GPU, small compared with its memory. */
#define COPY_BYTES (UINT64_C(256) << 20)
#endif

void cuda_must(cudaError_t e, const char *what) {
    if (e == cudaSuccess) return;
    fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(e));
    exit(1);
}

void cuda_clock_open(struct cuda_clock *c, struct pl_device *dev, uint32_t n_events) {
    *c = (struct cuda_clock){
        .stream = pl_cuda_of(dev)->stream, .bytes = COPY_BYTES, .n_events = n_events};
    c->events = calloc(n_events, sizeof(cudaEvent_t));
    if (!c->events) cuda_must(cudaErrorMemoryAllocation, "events");
    for (uint32_t i = 0; i < n_events; i++)
        cuda_must(cudaEventCreate(&c->events[i]), "an event");
    cuda_must(cudaMalloc(&c->from, c->bytes), "memory for copies");
    cuda_must(cudaMalloc(&c->to, c->bytes), "memory for copies");
    cuda_must(cudaMemsetAsync(c->from, 1, c->bytes, c->stream), "filling");
}

void cuda_clock_head_start(struct cuda_clock *c) {
    for (int i = 0; i < COPIES; i++)
        cuda_must(cudaMemcpyAsync(c->to, c->from, c->bytes, cudaMemcpyDeviceToDevice, c->stream),
                  "a copy");
}

void cuda_clock_mark(struct cuda_clock *c, uint32_t event) {
    cuda_must(cudaEventRecord(c->events[event], c->stream), "an event");
}

double cuda_clock_seconds(const struct cuda_clock *c, uint32_t from, uint32_t to) {
    float ms = 0;
    cuda_must(cudaEventElapsedTime(&ms, c->events[from], c->events[to]), "the time between events");
    return 1e-3 * (double)ms;
}

double cuda_clock_copy_rate(struct cuda_clock *c) {
    double best = 0;
    for (int round = 0; round < ROUNDS; round++) {
        cuda_clock_head_start(c); /* clocks of the GPU rise */
        cuda_clock_mark(c, 0);
        cuda_clock_head_start(c);
        cuda_clock_mark(c, 1);
        cuda_must(cudaStreamSynchronize(c->stream), "copies");
        const double seconds = cuda_clock_seconds(c, 0, 1);
        const double rate = seconds > 0 ? 2.0 * COPIES * (double)c->bytes / seconds : 0;
        best = rate > best ? rate : best;
    }
    return best;
}

void cuda_clock_close(struct cuda_clock *c) {
    for (uint32_t i = 0; i < c->n_events; i++)
        cuda_must(cudaEventDestroy(c->events[i]), "an event");
    cuda_must(cudaFree(c->from), "memory of copies");
    cuda_must(cudaFree(c->to), "memory of copies");
    free(c->events);
    *c = (struct cuda_clock){0};
}
