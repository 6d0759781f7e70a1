/* sim_unit.c - what products and loads of sm_90a may find in shared memory, unit by unit.
 *
 * A unit remembers who brought it last and which warps read it since the last barrier of the block,
 * so that W3 and W6 of runtime/kernels/cuda/hopper.cuh are held to in every order of the threads,
 * not in the one that runs alone. */
#include "tests/cuda_sim/plsim_watch.h"
#include "tests/cuda_sim/sim.h"
#include "tests/cuda_sim/sim_hopper.h"

#include <string.h>

enum { WARP = 32, ADDRESSES = 1 << 18 };

uint32_t pl_sim_shared_address(const void *p);
void pl_sim_proxy_fence(void);
void pl_sim_clear(void *p);

static uint32_t fences[PLSIM_MAX_THREADS]; /* of each thread */
static uint64_t interval = 1;
static uint64_t block_first; /* interval of the block that runs */

struct unit {
    enum { UNKNOWN, WRITTEN, LOADING, LOADED } state;
    uint64_t since;          /* interval it came to this state in */
    uint32_t thread, fences; /* WRITTEN: by whom, and its fences until then */
    uint64_t load;           /* LOADING, LOADED: the number of the load */
    uint32_t barrier, phase; /* LOADED: that it came in */
    uint64_t read;           /* last interval in which products read it */
    uint32_t readers;        /* their warps */
};

static struct unit *unit_at(const unsigned char *p) {
    static struct unit units[PLSIM_SHARED_LIMIT / PLSIM_UNIT];
    struct unit *u = &units[(size_t)(p - plsim_here.shared) / PLSIM_UNIT];
    if (u->since < block_first) *u = (struct unit){.since = block_first};
    return u;
}

uint64_t plsim_interval(void) {
    return interval;
}

uint32_t plsim_fences(uint32_t thread) {
    return fences[thread];
}

void plsim_units_forget(uint32_t threads) {
    block_first = ++interval;
    plsim_barriers_forget(threads);
}

void plsim_units_meet(uint32_t threads) {
    interval++;
    plsim_barriers_meet(threads);
}

/* ---- addresses ---- */

uint32_t plsim_address(const void *p) {
    return (uint32_t)((const unsigned char *)p - plsim_here.shared) + PLSIM_UNIT;
}

uint32_t pl_sim_shared_address(const void *p) {
    return plsim_address(p);
}

unsigned char *plsim_at(uint32_t address, const char *what) {
    if (address < PLSIM_UNIT || address >= ADDRESSES || address - PLSIM_UNIT >= PLSIM_SHARED_LIMIT)
        plsim_die("%s: a tile that is not in shared memory", what);
    return plsim_here.shared + (address - PLSIM_UNIT);
}

/* ---- the rules ---- */

void pl_sim_proxy_fence(void) {
    fences[plsim_thread()]++;
}

/* The running thread is about to change a unit. */
static void need_free(const struct unit *u, const char *what) {
    const uint32_t others = u->readers & ~(UINT32_C(1) << plsim_thread() / WARP);
    if (u->state == LOADING) plsim_die("%s to where a load is on its way", what);
    if (u->read == interval && others)
        plsim_die("%s to what warp %d reads, and no __syncthreads lies between", what,
                  __builtin_ctz(others));
}

static void write(const unsigned char *p) {
    struct unit *u = unit_at(p);
    const uint32_t thread = plsim_thread();
    *u = (struct unit){
        .state = WRITTEN, .since = interval, .thread = thread, .fences = fences[thread]};
}

void plsim_hopper_landed(const void *dst) {
    const unsigned char *p = dst;
    if (p >= plsim_here.shared && p < plsim_here.shared + PLSIM_SHARED_LIMIT) write(p);
}

void pl_sim_clear(void *p) {
    const struct unit *u = unit_at(p);
    if ((uintptr_t)p % PLSIM_UNIT) plsim_die("16 bytes are cleared at no multiple of them");
    need_free(u, "zeros are written");
    if (u->state == LOADED && plsim_phases_seen(plsim_thread(), u->barrier) <= u->phase)
        plsim_die("thread %u clears a tile that it has not waited for", plsim_thread());
    if (plsim_watching) plsim_watch_access(p, PLSIM_UNIT, true);
    memset(p, 0, PLSIM_UNIT);
    write(p);
}

static void need_fenced(const struct unit *u, const char *what) {
    if (u->state != WRITTEN) return;
    if (u->fences == fences[u->thread])
        plsim_die("%s what thread %u wrote and has not fenced", what, u->thread);
    if (u->since == interval)
        plsim_die("%s what thread %u wrote, and no __syncthreads lies between", what, u->thread);
}

void plsim_unit_read(const unsigned char *p, uint32_t warp, uint64_t loads,
                     const uint32_t seen[PLSIM_MOST_BARRIERS]) {
    struct unit *u = unit_at(p);
    need_fenced(u, "wgmma reads");
    if (u->state == LOADING) plsim_die("wgmma reads a tile that a load has not brought yet");
    if (u->state == LOADED && u->load > loads)
        plsim_die("a load was started to a tile that wgmma was reading");
    if (u->state == LOADED && seen[u->barrier] <= u->phase)
        plsim_die("wgmma of warp %u reads a tile that the warp has not waited for", warp);
    if (u->read != interval) u->readers = 0;
    u->read = interval;
    u->readers |= UINT32_C(1) << warp;
}

void plsim_unit_load(const unsigned char *p, uint64_t load) {
    struct unit *u = unit_at(p);
    need_free(u, "a load is started");
    need_fenced(u, "a load is started over");
    *u = (struct unit){.state = LOADING, .since = interval, .load = load};
}

void plsim_unit_loaded(const unsigned char *p, uint32_t barrier, uint32_t phase) {
    struct unit *u = unit_at(p);
    u->state = LOADED;
    u->since = interval;
    u->barrier = barrier;
    u->phase = phase;
}
