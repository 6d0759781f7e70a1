/* sim_block.c - runs the blocks of a launch, the threads of a block as fibres.
 *
 * A fibre starts threads and runs each to its end; only a thread that must wait at a barrier keeps
 * its fibre, and another fibre goes on starting threads. So a kernel without barriers costs one
 * switch per block, and one with barriers as many as a thread waits. */
#include "tests/cuda_sim/plsim_watch.h"
#include "tests/cuda_sim/sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    WARP = 32,
    MAX_WARPS = PLSIM_MAX_THREADS / WARP,
    SHARED_ALIGN = 16,
    GUARD_BYTES = 4096,
    GUARD_BYTE = 0xA5,
    POISON_BYTE = 0xFF
};

enum state { READY, AT_WARP, AT_BLOCK, PAUSED, ENDED };

struct thread {
    enum state state;
    struct plsim_fibre *fibre; /* while it waits */
    const struct plsim_collective *what;
    uint32_t mask;
    void *arguments;
};

struct group { /* lanes that wait for each other with one mask */
    uint32_t mask, arrived;
    const struct plsim_collective *what;
};

struct warp {
    uint32_t alive; /* lanes that exist and have not ended */
    struct group groups[WARP];
};

static struct {
    const struct plsim_launch *launch; /* NULL = no kernel runs */
    uint32_t n, n_started, n_ended, n_at_block;
    int votes, last_votes; /* votes of the current barrier; votes of the one before it */
    uint32_t current;      /* thread that runs */
    struct thread threads[PLSIM_MAX_THREADS];
    struct warp warps[MAX_WARPS];
    uint32_t ready[PLSIM_MAX_THREADS], ready_head, n_ready; /* ring of threads that may go on */
    struct plsim_fibre *idle[PLSIM_MAX_THREADS + 1];
    uint32_t n_idle;
    enum plsim_order order;
    uint32_t turn[PLSIM_MAX_THREADS]; /* threads as they start */
} b;

struct plsim_position plsim_here;

bool plsim_in_kernel(void) {
    return b.launch != NULL;
}

uint32_t plsim_thread(void) {
    return b.current;
}

static _Alignas(256) unsigned char shared_memory[SHARED_ALIGN + PLSIM_SHARED_LIMIT + GUARD_BYTES];

static uint32_t ring(uint32_t i) {
    return i < PLSIM_MAX_THREADS ? i : i - PLSIM_MAX_THREADS;
}

static void set_ready(uint32_t thread) {
    b.threads[thread].state = READY;
    b.ready[ring(b.ready_head + b.n_ready++)] = thread;
}

static void enter_thread(uint32_t thread) {
    const unsigned *dim = plsim_here.block_dim;
    b.current = thread;
    plsim_here.thread[0] = thread % dim[0];
    plsim_here.thread[1] = thread / dim[0] % dim[1];
    plsim_here.thread[2] = thread / dim[0] / dim[1];
}

/* ---- messages ---- */

enum { TEXT_BYTES = 160 };

static const char *describe(uint32_t thread, char text[TEXT_BYTES]) {
    static const char *const doing[] = {
        "runs", "waits at %s with mask %08x", "waits at __syncthreads",
        "waits at an mbarrier whose phase does not end", "has ended"};
    const struct thread *t = &b.threads[thread];
    int n = snprintf(text, TEXT_BYTES, "thread %u (warp %u lane %u) ", thread, thread / WARP,
                     thread % WARP);
    if (t->state == AT_WARP)
        snprintf(text + n, TEXT_BYTES - (size_t)n, "waits at %s with mask %08x", t->what->name,
                 t->mask);
    else
        snprintf(text + n, TEXT_BYTES - (size_t)n, "%s", doing[t->state]);
    return text;
}

static _Noreturn void die_in_block(const char *what, uint32_t one, uint32_t other) {
    char text[2][TEXT_BYTES];
    plsim_die("kernel %s, block (%u,%u,%u): %s: %s; %s", b.launch->name, plsim_here.block[0],
              plsim_here.block[1], plsim_here.block[2], what, describe(one, text[0]),
              describe(other, text[1]));
}

static uint32_t some_thread_in(enum state state) {
    for (uint32_t i = 0; i < b.n; i++)
        if (b.threads[i].state == state) return i;
    return b.current;
}

/* ---- waiting ---- */

static struct plsim_fibre *fresh_fibre(void) {
    return b.n_idle > 0 ? b.idle[--b.n_idle] : plsim_fibre_create();
}

/* Any of the threads that may go on becomes the first of them. */
static void shuffle_ready(void) {
    if (b.n_ready < 2) return;
    uint32_t *first = &b.ready[b.ready_head];
    uint32_t *other = &b.ready[ring(b.ready_head + (uint32_t)plsim_random(b.n_ready))];
    const uint32_t thread = *first;
    *first = *other;
    *other = thread;
}

/* The running fibre has been noted where it will be found again. */
static void go_elsewhere(void) {
    if (b.order == PLSIM_RANDOM) shuffle_ready();
    if (b.n_ready > 0 && !(b.order == PLSIM_RANDOM && b.n_started < b.n && plsim_random(2))) {
        uint32_t next = b.ready[b.ready_head];
        b.ready_head = ring(b.ready_head + 1);
        b.n_ready--;
        enter_thread(next);
        plsim_fibre_switch(b.threads[next].fibre);
    } else if (b.n_started < b.n) {
        plsim_fibre_switch(fresh_fibre());
    } else {
        plsim_fibre_switch(NULL); /* all have ended, or none can go on: run_block() looks */
    }
}

static void wait_here(enum state state) {
    struct thread *t = &b.threads[b.current];
    t->state = state;
    t->fibre = plsim_fibre_running();
    go_elsewhere();
}

/* Lets the waiting lanes of a warp, or all threads, go on; the running one does so by itself. */
static void release(uint32_t first, uint32_t n, enum state from) {
    for (uint32_t i = 0; i < n; i++) {
        uint32_t thread = first + (b.order == PLSIM_REVERSE ? n - 1 - i : i);
        if (b.threads[thread].state == from) set_ready(thread);
    }
}

void plsim_meet_block(void) {
    if (!b.launch) plsim_die("__syncthreads outside a kernel");
    if (b.n_ended > 0) die_in_block("divergent __syncthreads", b.current, some_thread_in(ENDED));
    if (++b.n_at_block < b.n) {
        wait_here(AT_BLOCK);
        return;
    }
    b.n_at_block = 0;
    b.last_votes = b.votes;
    b.votes = 0;
    if (plsim_watching) plsim_watch_meet_block();
    plsim_units_meet(b.n);
    release(0, b.n, AT_BLOCK);
}

void plsim_pause(void) {
    wait_here(PAUSED);
}

void plsim_resume_paused(void) {
    release(0, b.n, PAUSED);
}

int plsim_meet_block_any(int vote) {
    b.votes |= vote;
    plsim_meet_block();
    return b.last_votes;
}

/* All lanes of the group that still run are here. */
static void complete(struct warp *w, struct group *g) {
    void *arguments[WARP] = {0};
    uint32_t first = (uint32_t)(w - b.warps) * WARP, lanes = g->arrived;
    for (uint32_t i = 0; i < WARP; i++)
        if (lanes >> i & 1) arguments[i] = b.threads[first + i].arguments;
    g->what->run(arguments, lanes);
    if (plsim_watching && g->what == &plsim_warp_barrier) plsim_watch_meet_warp(first, lanes);
    g->arrived = 0;
    for (uint32_t i = 0; i < WARP; i++) {
        uint32_t lane = b.order == PLSIM_REVERSE ? WARP - 1 - i : i;
        if (lanes >> lane & 1 && first + lane != b.current) set_ready(first + lane);
    }
}

static struct group *find_group(struct warp *w, uint32_t mask) {
    struct group *unused = NULL;
    for (uint32_t i = 0; i < WARP; i++) {
        if (w->groups[i].arrived == 0)
            unused = unused ? unused : &w->groups[i];
        else if (w->groups[i].mask == mask)
            return &w->groups[i];
    }
    return unused; /* there is one: lanes in groups are different, and this one is in none */
}

void plsim_meet_warp(const struct plsim_collective *what, uint32_t mask, void *arguments) {
    if (!b.launch) plsim_die("%s outside a kernel", what->name);
    uint32_t bit = UINT32_C(1) << b.current % WARP;
    struct thread *t = &b.threads[b.current];
    struct warp *w = &b.warps[b.current / WARP];
    struct group *g = find_group(w, mask);
    t->what = what;
    t->mask = mask;
    t->arguments = arguments;
    if (!(mask & bit)) {
        t->state = AT_WARP;
        die_in_block("a lane that its own mask leaves out", b.current, b.current);
    }
    if (g->arrived != 0 && g->what != what) {
        t->state = AT_WARP;
        uint32_t other = b.current / WARP * WARP + (uint32_t)__builtin_ctz(g->arrived);
        die_in_block("lanes of one warp meet at different operations", b.current, other);
    }
    g->mask = mask;
    g->what = what;
    g->arrived |= bit;
    if (g->arrived == (mask & w->alive))
        complete(w, g);
    else
        wait_here(AT_WARP);
}

/* ---- blocks ---- */

static void end_thread(void) {
    struct warp *w = &b.warps[b.current / WARP];
    b.threads[b.current].state = ENDED;
    b.n_ended++;
    if (b.n_at_block > 0)
        die_in_block("divergent __syncthreads", some_thread_in(AT_BLOCK), b.current);
    w->alive &= ~(UINT32_C(1) << b.current % WARP);
    for (uint32_t i = 0; i < WARP; i++) {
        struct group *g = &w->groups[i];
        if (g->arrived != 0 && g->arrived == (g->mask & w->alive)) complete(w, g);
    }
}

void plsim_fibre_main(void) {
    for (;;) {
        while (b.n_started < b.n) {
            enter_thread(b.turn[b.n_started++]);
            b.launch->body(b.launch->arguments);
            end_thread();
        }
        b.idle[b.n_idle++] = plsim_fibre_running();
        go_elsewhere();
    }
}

static void take_turns(void) {
    for (uint32_t i = 0; i < b.n; i++)
        b.turn[i] = b.order == PLSIM_REVERSE ? b.n - 1 - i : i;
    for (uint32_t i = b.n; b.order == PLSIM_RANDOM && i > 1; i--) { /* Fisher and Yates */
        const uint32_t k = (uint32_t)plsim_random(i), thread = b.turn[k];
        b.turn[k] = b.turn[i - 1];
        b.turn[i - 1] = thread;
    }
}

static void begin_block(size_t shared_bytes) {
    if (b.order == PLSIM_RANDOM) take_turns();
    memset(b.threads, 0, b.n * sizeof *b.threads);
    memset(b.warps, 0, (b.n + WARP - 1) / WARP * sizeof *b.warps);
    for (uint32_t i = 0; i < b.n; i += WARP)
        b.warps[i / WARP].alive = b.n - i >= WARP ? UINT32_MAX : (UINT32_C(1) << (b.n - i)) - 1;
    b.n_started = b.n_ended = b.n_at_block = b.n_ready = 0;
    b.votes = 0;
    plsim_copies_forget(b.n);
    if (plsim_watching) plsim_watch_block();
    memset(plsim_here.shared, POISON_BYTE, shared_bytes);
    memset(plsim_here.shared + shared_bytes, GUARD_BYTE, GUARD_BYTES);
}

static void finish_block(size_t shared_bytes) {
    if (b.n_ended < b.n) {
        uint32_t one = some_thread_in(AT_WARP), other = some_thread_in(AT_BLOCK);
        if (b.threads[one].state != AT_WARP) one = some_thread_in(PAUSED);
        die_in_block("no thread can go on", one, other);
    }
    plsim_hopper_finish();
    for (uint32_t i = 0; i < GUARD_BYTES; i++)
        if (plsim_here.shared[shared_bytes + i] != GUARD_BYTE)
            plsim_die(
                "kernel %s, block (%u,%u,%u): writes %u bytes behind its %zu of shared memory",
                b.launch->name, plsim_here.block[0], plsim_here.block[1], plsim_here.block[2], i,
                shared_bytes);
    plsim_counters.blocks++;
}

static uint64_t divisor(uint64_t x, uint64_t y) { /* greatest common; Euclid */
    return y ? divisor(y, x % y) : x;
}

/* A random step that comes by every one of n. */
static uint64_t stride_through(uint64_t n) {
    uint64_t step;
    do
        step = 1 + plsim_random(n);
    while (divisor(step, n) != 1);
    return step;
}

static void run_blocks(const struct plsim_launch *launch) {
    uint64_t n = (uint64_t)launch->grid[0] * launch->grid[1] * launch->grid[2];
    b.launch = launch;
    b.order = plsim_settings()->order;
    b.n = launch->block[0] * launch->block[1] * launch->block[2];
    memcpy(plsim_here.block_dim, launch->block, sizeof launch->block);
    memcpy(plsim_here.grid_dim, launch->grid, sizeof launch->grid);
    plsim_here.shared = shared_memory + SHARED_ALIGN; /* aligned to no more than promised */
    if (plsim_watching) plsim_watch_launch(launch);
    const uint64_t first = b.order == PLSIM_RANDOM ? plsim_random(n) : 0;
    const uint64_t step = b.order == PLSIM_RANDOM ? stride_through(n) : 1;
    take_turns();
    for (uint64_t i = 0; i < n; i++) {
        uint64_t block = b.order == PLSIM_REVERSE ? n - 1 - i : (first + i * step) % n;
        plsim_here.block[0] = (unsigned)(block % launch->grid[0]);
        plsim_here.block[1] = (unsigned)(block / launch->grid[0] % launch->grid[1]);
        plsim_here.block[2] = (unsigned)(block / launch->grid[0] / launch->grid[1]);
        begin_block(launch->shared_bytes);
        plsim_fibre_switch(fresh_fibre());
        finish_block(launch->shared_bytes);
    }
    b.launch = NULL;
}

/* Limits of every compute capability from 8.0 on: CUDA C++ Programming Guide, "Technical
 * Specifications per Compute Capability". */
static cudaError_t check_launch(const struct plsim_launch *l) {
    static const uint64_t grid_limit[3] = {INT32_MAX, 65535, 65535};
    static const uint64_t block_limit[3] = {PLSIM_MAX_THREADS, PLSIM_MAX_THREADS, 64};
    uint64_t threads = 1;
    for (int i = 0; i < 3; i++) {
        if (l->grid[i] == 0 || l->block[i] == 0 || l->grid[i] > grid_limit[i] ||
            l->block[i] > block_limit[i])
            return cudaErrorInvalidConfiguration;
        threads *= l->block[i];
    }
    if (threads > PLSIM_MAX_THREADS) return cudaErrorInvalidConfiguration;
    return l->shared_bytes > plsim_shared_limit(l->kernel) ? cudaErrorInvalidValue : cudaSuccess;
}

/* A launch that waits. After it come its arguments, and then the windows it may touch, all aligned
 * as malloc() aligns. */
struct waiting {
    struct plsim_launch launch;
    size_t windows_at;
    int n_windows;
};
enum {
    ARGUMENTS_AT = (sizeof(struct waiting) + 15) / 16 * 16,
    ARGUMENT_ALIGN = 128 /* of tensor maps, and that is most */
};

/* The host may wait for it in the middle of an op whose launches are still to come. */
static void run_waiting(void *data) {
    const struct plsim_window *windows = NULL;
    const int n = plsim_watch_windows(&windows);
    struct waiting w;
    memcpy(&w, data, sizeof w);
    const size_t bytes =
        (w.launch.argument_bytes + ARGUMENT_ALIGN) / ARGUMENT_ALIGN * ARGUMENT_ALIGN;
    w.launch.arguments = aligned_alloc(ARGUMENT_ALIGN, bytes);
    if (!w.launch.arguments) plsim_die("no memory for the arguments of a launch");
    memcpy(w.launch.arguments, (char *)data + ARGUMENTS_AT, w.launch.argument_bytes);
    plsim_watch_call((const struct plsim_window *)(void *)((char *)data + w.windows_at),
                     w.n_windows);
    run_blocks(&w.launch);
    free(w.launch.arguments);
    plsim_watch_call(windows, n);
}

/* Puts a launch down in the graph that is captured, or gives it to its stream. */
static void put_down(const struct plsim_launch *launch, bool is_recorded) {
    const struct plsim_window *windows = NULL;
    const int n = plsim_watch_windows(&windows);
    const size_t at = ARGUMENTS_AT + (launch->argument_bytes + 15) / 16 * 16;
    const size_t bytes = at + (size_t)n * sizeof *windows;
    const struct waiting w = {*launch, at, n};
    char *copy = calloc(1, bytes);
    if (!copy) plsim_die("no memory for a launch that waits");
    memcpy(copy, &w, sizeof w);
    memcpy(copy + ARGUMENTS_AT, launch->arguments, launch->argument_bytes);
    if (n > 0) memcpy(copy + at, windows, (size_t)n * sizeof *windows);
    if (is_recorded)
        (void)plsim_record(launch->stream, run_waiting, copy, bytes, true);
    else
        plsim_submit(launch->stream, run_waiting, copy, bytes);
    free(copy);
}

void plsim_run(const struct plsim_launch *launch) {
    if (b.launch) plsim_die("kernel %s launches %s", b.launch->name, launch->name);
    plsim_check_loaded(launch->name, launch->kernel);
    bool is_recorded = plsim_captures(launch->stream);
    plsim_counters.launches += !is_recorded;
    int injected = plsim_injected(PLSIM_LAUNCH);
    cudaError_t e = plsim_sticky();
    if (e == cudaSuccess) e = check_launch(launch);
    if (e == cudaSuccess) e = (cudaError_t)injected;
    if (e == cudaSuccess) plsim_note_launch(launch);
    if (e == cudaSuccess && (is_recorded || plsim_settings()->late))
        put_down(launch, is_recorded);
    else if (e == cudaSuccess)
        run_blocks(launch);
    else
        plsim_fail(e);
}
