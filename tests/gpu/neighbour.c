/* neighbour.c - another process that takes the memory of a GPU.
 *
 * Usage: neighbour LEAVE DROP      (bytes)
 * Says "ready" once its own context stands, waits until free memory has fallen by DROP, then takes
 * all but LEAVE of what was free before, says "taken", and keeps it until it is killed. Who comes
 * in the meantime finds LEAVE bytes, its context included. */
#include <cuda_runtime.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static void need(cudaError_t e, const char *what) {
    if (e == cudaSuccess) return;
    fprintf(stderr, "neighbour: %s: %s\n", what, cudaGetErrorString(e));
    exit(1);
}

static uint64_t free_bytes(void) {
    size_t left = 0, total = 0;
    need(cudaMemGetInfo(&left, &total), "asking for free memory");
    return left;
}

static void say(const char *word) {
    puts(word);
    fflush(stdout);
}

int main(int argc, char **argv) {
    const struct timespec tick = {.tv_nsec = 1000000};
    void *taken = NULL;
    if (argc != 3) {
        fprintf(stderr, "usage: neighbour LEAVE DROP\n");
        return 2;
    }
    const uint64_t leave = strtoull(argv[1], NULL, 10), drop = strtoull(argv[2], NULL, 10);
    need(cudaFree(NULL), "a context");
    const uint64_t before = free_bytes();
    if (before <= leave) {
        fprintf(stderr, "neighbour: only %" PRIu64 " bytes are free\n", before);
        return 1;
    }
    say("ready");
    for (uint64_t now = before; drop > 0 && (now > before || before - now < drop);
         now = free_bytes())
        nanosleep(&tick, NULL);
    need(cudaMalloc(&taken, before - leave), "taking memory");
    say("taken");
    pause();
    return 0;
}
