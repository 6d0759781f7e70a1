/* sim_load.c - twins of mbarriers and of the loads of boxes in runtime/kernels/cuda/hopper.cuh, by
 * the PTX manual (ISA 8.0, "mbarrier", "cp.async.bulk.tensor", "Tensors").
 *
 * Boxes come as late as is legal: when a thread waits for the phase of their barrier and all have
 * arrived there. Until then their place is NaN. */
#include "tests/cuda_sim/plsim_watch.h"
#include "tests/cuda_sim/sim.h"
#include "tests/cuda_sim/sim_hopper.h"

#include <string.h>

enum {
    ELEMENT = 2,
    UNIT_ELEMENTS = PLSIM_UNIT / ELEMENT,
    ROW_UNITS = PLSIM_ROW / PLSIM_UNIT,
    MOST_BYTES = (1 << 20) - 1, /* that a phase may expect */
    MOST_LOADS = 64,
    POISON_BYTE = 0xFF
};
#define MADE UINT64_C(0x7265697272616221) /* what lies in a barrier */

struct pl_barrier;
void pl_sim_barrier_make(struct pl_barrier *b, uint32_t arrivals);
void pl_sim_barrier_expect(struct pl_barrier *b, uint32_t bytes);
void pl_sim_barrier_wait(struct pl_barrier *b, uint32_t parity);
void pl_sim_load_box(void *dst, const CUtensorMap *map, uint32_t col, uint32_t head, uint32_t row,
                     struct pl_barrier *b);

/* Barriers of the block that runs, and the phases of each whose end a thread has seen. */
static struct barrier {
    const struct pl_barrier *at;
    uint32_t arrivals, pending; /* of a phase, and those still to come */
    uint32_t phase;             /* number of the current one */
    int64_t expected;           /* bytes of it that have not come */
    uint32_t maker, fences;     /* thread that made it, and its fences until then */
    uint64_t made;              /* interval */
} barriers[PLSIM_MOST_BARRIERS];
static uint32_t n_barriers;
static uint32_t seen[PLSIM_MAX_THREADS][PLSIM_MOST_BARRIERS];

/* Loads that have not come. */
static struct load {
    struct plsim_tensor of;
    uint32_t address, from[3], barrier;
} loads[MOST_LOADS];
static uint32_t n_loads;
static uint64_t n_started;

uint64_t plsim_loads(void) {
    return n_started;
}

uint32_t plsim_phases_seen(uint32_t thread, uint32_t barrier) {
    return seen[thread][barrier];
}

void plsim_barriers_forget(uint32_t threads) {
    if (n_barriers) memset(seen, 0, threads * sizeof *seen);
    n_barriers = n_loads = 0;
}

/* All threads have seen after a barrier of the block what one of them has seen before it. */
void plsim_barriers_meet(uint32_t threads) {
    for (uint32_t i = 0; i < n_barriers; i++) {
        uint32_t most = 0;
        for (uint32_t t = 0; t < threads; t++)
            if (most < seen[t][i]) most = seen[t][i];
        for (uint32_t t = 0; t < threads; t++)
            seen[t][i] = most;
    }
}

void plsim_hopper_finish(void) {
    if (n_loads) plsim_die("a block ends while a load is on its way");
}

/* ---- barriers ---- */

void pl_sim_barrier_make(struct pl_barrier *b, uint32_t arrivals) {
    const uint64_t made = MADE;
    if (plsim_settings()->sm < 90)
        plsim_die("mbarrier.init for loads on sm_%d", plsim_settings()->sm);
    if (plsim_address(b) % sizeof made) plsim_die("an mbarrier that is not aligned to 8 bytes");
    (void)plsim_at(plsim_address(b), "mbarrier.init");
    if (n_barriers == PLSIM_MOST_BARRIERS)
        plsim_die("more than %d mbarriers of a block", PLSIM_MOST_BARRIERS);
    for (uint32_t i = 0; i < n_barriers; i++)
        if (barriers[i].at == b) plsim_die("an mbarrier is made twice");
    const uint32_t me = plsim_thread();
    barriers[n_barriers++] = (struct barrier){.at = b,
                                              .arrivals = arrivals,
                                              .pending = arrivals,
                                              .maker = me,
                                              .fences = plsim_fences(me),
                                              .made = plsim_interval()};
    if (plsim_watching) plsim_watch_access(b, sizeof made, true);
    memcpy(b, &made, sizeof made);
}

/* W5. */
static struct barrier *find(const struct pl_barrier *at, const char *what) {
    uint64_t made;
    for (uint32_t i = 0; i < n_barriers; i++) {
        struct barrier *b = &barriers[i];
        if (b->at != at) continue;
        if (b->maker != plsim_thread() && b->made == plsim_interval())
            plsim_die("%s by thread %u: thread %u made the mbarrier, and no __syncthreads lies "
                      "between",
                      what, plsim_thread(), b->maker);
        memcpy(&made, at, sizeof made);
        if (made != MADE) plsim_die("%s: the mbarrier was overwritten", what);
        return b;
    }
    plsim_die("%s: there is no mbarrier", what);
}

static void end_phase(struct barrier *b) {
    b->phase++;
    b->pending = b->arrivals;
    plsim_resume_paused();
}

static uint32_t bytes_of(const struct load *l) {
    return l->of.box[0] * l->of.box[1] * l->of.box[2] * ELEMENT;
}

/* Returns the bytes that are on their way to a barrier. */
static int64_t bytes_coming(const struct barrier *b) {
    int64_t bytes = 0;
    for (uint32_t i = 0; i < n_loads; i++)
        if (&barriers[loads[i].barrier] == b) bytes += bytes_of(&loads[i]);
    return bytes;
}

void pl_sim_barrier_expect(struct pl_barrier *at, uint32_t bytes) {
    struct barrier *b = find(at, "mbarrier.arrive.expect_tx");
    if (!b->pending) plsim_die("more arrivals at an mbarrier than its %u", b->arrivals);
    b->expected += bytes;
    if (b->expected > MOST_BYTES) plsim_die("an mbarrier that expects %u bytes", bytes);
    b->pending--;
    if (!b->pending && !b->expected && !bytes_coming(b)) end_phase(b);
    plsim_resume_paused();
}

/* ---- boxes ---- */

/* Reads the elements of a unit of a box, or zeros for those outside the tensor. */
static void read_unit(const struct load *l, uint32_t row, uint32_t unit,
                      uint16_t out[UNIT_ELEMENTS]) {
    const struct plsim_tensor *t = &l->of;
    const uint64_t col = (uint64_t)l->from[0] + unit * UNIT_ELEMENTS,
                   at = (uint64_t)l->from[2] + row;
    memset(out, 0, PLSIM_UNIT);
    if (col >= t->sizes[0] || l->from[1] >= t->sizes[1] || at >= t->sizes[2]) return;
    const uint64_t left = t->sizes[0] - col, n = left < UNIT_ELEMENTS ? left : UNIT_ELEMENTS;
    const unsigned char *p = t->p + l->from[1] * t->strides[0] + at * t->strides[1] + col * ELEMENT;
    if (plsim_watching) plsim_watch_access(p, n * ELEMENT, false);
    memcpy(out, p, n * ELEMENT);
}

/* Returns where a unit of a row of a box is stored: those of 128 bytes are exchanged by the number
 * of the row among eight, which are bits of the address, those of a narrower span by fewer bits. */
static unsigned char *place(const struct load *l, uint32_t row, uint32_t unit) {
    uint32_t at = l->address + row * PLSIM_ROW + unit * PLSIM_UNIT;
    if (l->of.swizzled) at ^= at / PLSIM_ROW % (l->of.swizzled / PLSIM_UNIT) * PLSIM_UNIT;
    return plsim_at(at, "cp.async.bulk.tensor");
}

static void land(const struct load *l, uint32_t phase) {
    for (uint32_t row = 0; row < l->of.box[2]; row++)
        for (uint32_t unit = 0; unit < ROW_UNITS; unit++) {
            uint16_t elements[UNIT_ELEMENTS];
            unsigned char *dst = place(l, row, unit);
            read_unit(l, row, unit, elements);
            memcpy(dst, elements, sizeof elements);
            plsim_unit_loaded(dst, l->barrier, phase);
        }
}

/* Ends the phase of a barrier if all have arrived and all that it expects is on its way. */
static void land_all(struct barrier *b) {
    const int64_t bytes = bytes_coming(b);
    uint32_t kept = 0;
    if (b->pending || bytes < b->expected) return;
    if (bytes > b->expected)
        plsim_die("loads bring %lld bytes to an mbarrier that expects %lld", (long long)bytes,
                  (long long)b->expected);
    for (uint32_t i = 0; i < n_loads; i++)
        if (&barriers[loads[i].barrier] == b)
            land(&loads[i], b->phase);
        else
            loads[kept++] = loads[i];
    n_loads = kept;
    b->expected = 0;
    end_phase(b);
}

void pl_sim_barrier_wait(struct pl_barrier *at, uint32_t parity) {
    struct barrier *b = find(at, "mbarrier.try_wait.parity");
    if (b->phase % 2 == parity) land_all(b);
    while (b->phase % 2 == parity) {
        plsim_pause();
        if (b->phase % 2 == parity) land_all(b);
    }
    seen[plsim_thread()][b - barriers] = b->phase;
}

static void need_readable(const struct load *l) {
    const struct plsim_tensor *t = &l->of;
    const uint64_t row = l->from[2], rows = t->box[2], col = l->from[0];
    if (col >= t->sizes[0] || l->from[1] >= t->sizes[1] || row >= t->sizes[2]) return;
    const uint64_t last = (row + rows < t->sizes[2] ? row + rows : t->sizes[2]) - 1;
    const uint64_t end = col + t->box[0] < t->sizes[0] ? col + t->box[0] : t->sizes[0];
    const unsigned char *head = t->p + l->from[1] * t->strides[0];
    plsim_check_device_range("cp.async.bulk.tensor", head + row * t->strides[1] + col * ELEMENT,
                             (last - row) * t->strides[1] + (end - col) * ELEMENT);
}

void pl_sim_load_box(void *dst, const CUtensorMap *map, uint32_t col, uint32_t head, uint32_t row,
                     struct pl_barrier *at) {
    const struct barrier *b = find(at, "cp.async.bulk.tensor");
    if (plsim_fences(b->maker) == b->fences)
        plsim_die("cp.async.bulk.tensor: thread %u made the mbarrier and has not fenced it",
                  b->maker);
    if (n_loads == MOST_LOADS) plsim_die("more than %d loads on their way", MOST_LOADS);
    struct load *l = &loads[n_loads++];
    *l = (struct load){
        plsim_tensor_of(map), plsim_address(dst), {col, head, row}, (uint32_t)(b - barriers)};
    if (l->address % PLSIM_ROW) plsim_die("a box is loaded to no multiple of 128 bytes");
    if (l->of.box[0] * ELEMENT != PLSIM_ROW || l->of.box[1] != 1)
        plsim_die("a box of other rows than of 128 bytes is not emulated");
    need_readable(l);
    n_started++;
    for (uint32_t r = 0; r < l->of.box[2]; r++)
        for (uint32_t unit = 0; unit < ROW_UNITS; unit++) {
            unsigned char *p = place(l, r, unit);
            plsim_unit_load(p, n_started);
            if (plsim_watching) plsim_watch_access(p, PLSIM_UNIT, true);
            memset(p, POISON_BYTE, PLSIM_UNIT);
        }
    plsim_resume_paused();
}
