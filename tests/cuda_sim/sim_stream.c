/* sim_stream.c - what streams have taken and not done yet.
 *
 * Where PLSIM_STREAMS is `late`, nothing happens when it is asked for: kernels, copies, fills and
 * products happen when the host waits for them, which is the last moment that is legal. A host
 * buffer that is used again too early then shows, and so does a stream that should have waited for
 * another. What may be late, and what the host always waits for: CUDA Runtime API, "API
 * synchronization behavior". */
#include "tests/cuda_sim/sim.h"

#include <stdlib.h>
#include <string.h>

struct work {
    cudaStream_t stream;
    uint64_t number;
    void (*run)(void *data);
    void *data; /* a copy */
    struct work *next;
};

static struct work *first, **end = &first;
static uint64_t submitted;

uint64_t plsim_submitted(void) {
    return submitted;
}

bool plsim_has_work(void) {
    return first != NULL;
}

void plsim_submit(cudaStream_t stream, void (*run)(void *data), void *data, size_t bytes) {
    if (!plsim_settings()->late) {
        run(data);
        return;
    }
    struct work *w = malloc(sizeof *w);
    void *copy = malloc(bytes);
    if (!w || !copy) plsim_die("no memory for work that waits");
    memcpy(copy, data, bytes);
    *w = (struct work){stream, ++submitted, run, copy, NULL};
    *end = w;
    end = &w->next;
}

static void finish(struct work **link) {
    struct work *w = *link;
    *link = w->next;
    if (end == &w->next) end = link;
    w->run(w->data);
    free(w->data);
    free(w);
}

void plsim_drain(cudaStream_t stream, uint64_t number) {
    for (struct work **link = &first; *link && (*link)->number <= number;)
        if ((*link)->stream == stream)
            finish(link);
        else
            link = &(*link)->next;
}

/* The host's own stream comes last: streams that do not block may not count on it. */
void plsim_drain_all(void) {
    const struct work *w = first;
    while (w) {
        if (!w->stream) {
            w = w->next;
            continue;
        }
        plsim_drain(w->stream, UINT64_MAX);
        w = first;
    }
    plsim_drain(NULL, UINT64_MAX);
}
