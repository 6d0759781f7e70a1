/* machine_cuda.c - the CUDA back-end as runners, on a GPU or in the emulation of tests/cuda_sim.
 *
 * The emulation has more than one: with another number of multiprocessors the grid-stride loops
 * turn more often, and threads that run in reverse or random order show a missing barrier; the bits
 * must not change. An older GPU has less shared memory, for which kernels may choose other tiles,
 * so it is a family of its own. */
#include "tests/kernels/runners.h"
#include "runtime/device/cuda/cuda.h"
#include "runtime/kernels/back_ends.h"
#include "runtime/kernels/cuda/table.h"
#include "runtime/kernels/facts.h"

#include <check.h>
#include <cuda_runtime.h>
#include <stdio.h>
#include <stdlib.h>

#ifdef PLSIM_EMULATION
#include "tests/cuda_sim/plsim_watch.h"
#include "tests/cuda_sim/sim.h"

enum { WATCHED_ROUNDS = 4 };
enum { ROUNDS = 8 }; /* an emulated GPU is a thousand times slower than one core */

static const struct {
    const char *name, *sm, *sm_count, *order;
    bool is_first;
} gpus[] = {{"90, 132 SMs", "90", "132", "", true},
            {"90, 2 SMs in reverse", "90", "2", "reverse", false},
            {"86, 3 SMs at random", "86", "3", "random", true},
            {"75, 3 SMs at random", "75", "3", "random", true}};

void machine_turn_to(const struct runner *r) {
    uint32_t i = r->number;
    if (setenv("PLSIM_SM", gpus[i].sm, 1) || setenv("PLSIM_SMS", gpus[i].sm_count, 1) ||
        setenv("PLSIM_ORDER", gpus[i].order, 1))
        ck_abort_msg("out of memory for the environment");
    plsim_restart();
    /* The emulation remembers one limit of shared memory for a kernel, not one for each GPU. */
    if (r->dev) ck_assert_int_eq(pl_cuda_preload(pl_cuda_of(r->dev), NULL), PL_ERR_OK);
}

/* Watched accesses are ten times slower again; what they are held to is true of every order. */
static void limit(struct machine *m) {
    if (!plsim_watching) return;
    m->n = 1;
    m->most_rounds = WATCHED_ROUNDS;
}
#else
#define ROUNDS UINT32_MAX

static const struct {
    const char *name;
    bool is_first;
} gpus[] = {{"gpu", true}};

void machine_turn_to(const struct runner *r) {
    (void)r;
}

static void limit(struct machine *m) {
    (void)m;
}
#endif

/* No message where all is well: Check sends one to its parent, and these are called often. */
static void need(cudaError_t e, const struct runner *r) {
    if (e != cudaSuccess) ck_abort_msg("%s: %s", r->name, cudaGetErrorString(e));
}

void machine_open(struct machine *m) {
    struct pl_diag d = {0};
    m->n = sizeof gpus / sizeof *gpus;
    const char *rounds = getenv("KERNEL_ROUNDS"); /* for slow machines, such as compute-sanitizer */
    m->most_rounds = getenv("PLSIM_ALL_ROUNDS") ? UINT32_MAX : ROUNDS;
    limit(m);
    if (rounds) m->most_rounds = (uint32_t)strtoul(rounds, NULL, 10);
    for (uint32_t i = 0; i < m->n; i++) {
        struct runner *r = &m->runners[i];
        r->number = i;
        machine_turn_to(r);
        snprintf(r->name, sizeof r->name, "%s", gpus[i].name);
        r->is_first = gpus[i].is_first;
        if (pl_device_open(&pl_back_end_cuda, 1, PL_NO_BUDGET, &r->dev, &d) != PL_ERR_OK)
            ck_abort_msg("%s", d.message);
        r->kernels = r->dev->kernels;
        need(cudaMalloc((void **)&r->facts, sizeof *r->facts), r);
    }
}

void machine_close(struct machine *m) {
    for (uint32_t i = 0; i < m->n; i++) {
        need(cudaFree(m->runners[i].facts), &m->runners[i]);
        pl_device_close(&m->runners[i].dev);
    }
}

struct pl_batch machine_describe(const struct runner *r, const struct pl_batch *b) {
    struct pl_batch described = *b;
    struct pl_facts facts;
    pl_facts_fill(b, &facts);
    need(cudaMemcpy(r->facts, &facts, sizeof facts, cudaMemcpyHostToDevice), r);
    described.facts = r->facts;
    return described;
}

void *machine_put(const struct runner *r, const void *host, uint64_t bytes) {
    void *copy = NULL;
    need(cudaMalloc(&copy, bytes), r);
    need(cudaMemcpy(copy, host, bytes, cudaMemcpyHostToDevice), r);
    /* The driver may have only taken the bytes so far, and the stream of the kernels waits for no
     * other (CUDA Runtime API, "API synchronization behavior"). */
    need(cudaDeviceSynchronize(), r);
    return copy;
}

void machine_take(const struct runner *r, void *host, void *copy, uint64_t bytes) {
    need(cudaDeviceSynchronize(), r);
    need(cudaMemcpy(host, copy, bytes, cudaMemcpyDeviceToHost), r);
    need(cudaFree(copy), r);
}
