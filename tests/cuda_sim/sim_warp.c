/* sim_warp.c - shuffles and votes: what a warp computes when all its lanes have met.
 *
 * Rules of the PTX manual, shfl.sync and vote.sync. A lane that reads from one that takes no part
 * gets undefined bits there; here it gets 0xFF bytes, NaN in every float type. */
#include "tests/cuda_sim/sim.h"

enum { WARP = 32 };

/* The lane that `lane` reads from, or itself where the segment ends. */
typedef uint32_t source_fn(uint32_t lane, const struct plsim_exchange *e);

static uint32_t source_idx(uint32_t lane, const struct plsim_exchange *e) {
    return (lane & ~(e->width - 1)) | (e->lane & (e->width - 1));
}

static uint32_t source_up(uint32_t lane, const struct plsim_exchange *e) {
    return (lane & (e->width - 1)) >= e->lane ? lane - e->lane : lane;
}

static uint32_t source_down(uint32_t lane, const struct plsim_exchange *e) {
    return (lane & (e->width - 1)) + e->lane < e->width ? lane + e->lane : lane;
}

static uint32_t source_xor(uint32_t lane, const struct plsim_exchange *e) {
    uint32_t from = lane ^ e->lane;
    return from <= (lane | (e->width - 1)) ? from : lane;
}

static void shuffle(void *const arguments[WARP], uint32_t lanes, source_fn *source) {
    uint64_t handed_in[WARP];
    for (uint32_t i = 0; i < WARP; i++)
        handed_in[i] = lanes >> i & 1 ? ((struct plsim_exchange *)arguments[i])->value : UINT64_MAX;
    for (uint32_t i = 0; i < WARP; i++) {
        struct plsim_exchange *e = arguments[i];
        if (!e) continue;
        if (e->width == 0 || e->width > WARP || (e->width & (e->width - 1)) != 0)
            plsim_die("a shuffle over %u lanes", e->width);
        uint32_t from = source(i, e);
        e->value = from < WARP ? handed_in[from] : UINT64_MAX;
    }
}

static void run_idx(void *const a[WARP], uint32_t lanes) {
    shuffle(a, lanes, source_idx);
}
static void run_up(void *const a[WARP], uint32_t lanes) {
    shuffle(a, lanes, source_up);
}
static void run_down(void *const a[WARP], uint32_t lanes) {
    shuffle(a, lanes, source_down);
}
static void run_xor(void *const a[WARP], uint32_t lanes) {
    shuffle(a, lanes, source_xor);
}

static void run_ballot(void *const arguments[WARP], uint32_t lanes) {
    uint32_t votes = 0;
    for (uint32_t i = 0; i < WARP; i++)
        if (lanes >> i & 1 && ((struct plsim_exchange *)arguments[i])->value)
            votes |= UINT32_C(1) << i;
    for (uint32_t i = 0; i < WARP; i++)
        if (arguments[i]) ((struct plsim_exchange *)arguments[i])->value = votes;
}

static void run_barrier(void *const arguments[WARP], uint32_t lanes) {
    (void)arguments, (void)lanes;
}

const struct plsim_collective plsim_shfl_idx = {"__shfl_sync", run_idx};
const struct plsim_collective plsim_shfl_up = {"__shfl_up_sync", run_up};
const struct plsim_collective plsim_shfl_down = {"__shfl_down_sync", run_down};
const struct plsim_collective plsim_shfl_xor = {"__shfl_xor_sync", run_xor};
const struct plsim_collective plsim_ballot = {"__ballot_sync", run_ballot};
const struct plsim_collective plsim_warp_barrier = {"__syncwarp", run_barrier};
