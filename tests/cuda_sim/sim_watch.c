/* A cell per four bytes remembers who wrote them last and who read them since; a visit is compared
 * with those by barriers and, inside a warp, by vector clocks (Flanagan and Freund, "FastTrack",
 * PLDI 2009). */
#include "tests/cuda_sim/plsim_watch.h"

#include "tests/cuda_sim/sim.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

enum { WARP = 32, TEXT_BYTES = 200 };

struct visit {
    uint32_t epoch; /* interval between two barriers of a block; 0 = nobody */
    uint32_t thread : 10, clock : 18, bytes : 4; /* bytes: bit i is byte i of the cell */
};

struct cell {
    struct visit write, older; /* the last two writers of different bytes */
    struct visit read;         /* the latest since then */
    struct visit fellow;       /* another thread of its warp */
    struct visit stranger;     /* a thread of another warp or block */
};
enum { CELL_BYTES = 4 };

bool plsim_watching;

static struct {
    const struct plsim_launch *launch;
    const struct plsim_window *windows;
    int n_windows, last_window;
    uint32_t epoch, launch_first, block_first; /* epochs are never used again */
    uint32_t clock[PLSIM_MAX_THREADS];         /* counts the __syncwarp of a thread */
    uint32_t seen[PLSIM_MAX_THREADS][WARP];    /* clocks of its warp that a thread has met */
    struct plsim_allocation *last_holder;
} w = {.epoch = 1};

static struct cell shared_cells[PLSIM_SHARED_LIMIT / CELL_BYTES];

/* ---- barriers ---- */

void plsim_watch_call(const struct plsim_window *windows, int n) {
    w.windows = windows;
    w.n_windows = n;
    w.last_window = 0;
}

int plsim_watch_windows(const struct plsim_window **out) {
    *out = w.windows;
    return w.n_windows;
}

void plsim_watch_launch(const struct plsim_launch *launch) {
    w.launch = launch;
    w.launch_first = w.epoch + 1;
    w.last_holder = NULL;
}

void plsim_watch_block(void) {
    if (++w.epoch == UINT32_MAX) plsim_die("more barriers than can be told apart");
    w.block_first = w.epoch;
    const unsigned *dim = plsim_here.block_dim;
    for (uint32_t i = 0; i < dim[0] * dim[1] * dim[2]; i++)
        w.clock[i] = 1;
    memset(w.seen, 0, dim[0] * dim[1] * dim[2] * sizeof *w.seen);
}

void plsim_watch_meet_block(void) {
    w.epoch++;
}

void plsim_watch_meet_warp(uint32_t first, uint32_t lanes) {
    uint32_t joined[WARP] = {0};
    for (uint32_t i = 0; i < WARP; i++) {
        if (!(lanes >> i & 1)) continue;
        w.seen[first + i][i] = w.clock[first + i]++;
        for (uint32_t k = 0; k < WARP; k++)
            if (joined[k] < w.seen[first + i][k]) joined[k] = w.seen[first + i][k];
    }
    for (uint32_t i = 0; i < WARP; i++)
        if (lanes >> i & 1) memcpy(w.seen[first + i], joined, sizeof joined);
}

/* ---- messages ---- */

static _Noreturn void die(const char *format, const void *p, size_t bytes, bool writes,
                          const char *place) {
    char what[TEXT_BYTES];
    snprintf(what, sizeof what, "%s %zu bytes at %p%s", writes ? "writes" : "reads", bytes, p,
             place);
    plsim_die("kernel %s, block (%u,%u,%u), thread %u %s: %s", w.launch->name, plsim_here.block[0],
              plsim_here.block[1], plsim_here.block[2], plsim_thread(), what, format);
}

/* ---- cells ---- */

struct region {
    struct cell *cells;
    const char *base; /* byte of the first cell */
    const char *p;    /* begin of the object with the name */
    const char *name;
    uint32_t first; /* visits of earlier epochs do not matter */
    bool is_shared;
};

static bool is_ordered(struct visit v, struct visit me, uint32_t first) {
    if (v.epoch < first || !(v.bytes & me.bytes)) return true;
    if (v.epoch < w.block_first) return false;
    if (v.epoch < me.epoch || v.thread == me.thread) return true;
    return v.thread / WARP == me.thread / WARP && w.seen[me.thread][v.thread % WARP] >= v.clock;
}

/* W1 and W2. */
static _Noreturn void die_of_race(const struct region *r, struct visit other, bool other_writes,
                                  const char *p, bool writes) {
    char text[TEXT_BYTES], place[TEXT_BYTES];
    snprintf(place, sizeof place, ", byte %td of %.*s", p - r->p, (int)strcspn(r->name, " "),
             r->name);
    if (other.epoch < w.block_first)
        snprintf(text, sizeof text, "another block of the launch %s it",
                 other_writes ? "writes" : "reads");
    else
        snprintf(text, sizeof text, "thread %u %s it and no barrier lies between", other.thread,
                 other_writes ? "wrote" : "read");
    die(text, p, CELL_BYTES, writes, place);
}

/* Remembers the reader before this one where it says more than this one. */
static void note_reader(struct cell *c, struct visit me, uint32_t first) {
    const struct visit old = c->read;
    const bool is_same_interval = old.epoch == me.epoch;
    c->read = me;
    if (is_same_interval && old.thread == me.thread) {
        c->read.bytes |= old.bytes;
        return;
    }
    const bool has_other_block = c->stranger.epoch >= first && c->stranger.epoch < w.block_first;
    if (is_same_interval && old.thread / WARP == me.thread / WARP) {
        c->fellow = old;
        return;
    }
    c->fellow = (struct visit){0};
    if (has_other_block) return;
    const bool matters = old.epoch >= first && (old.epoch < w.block_first || is_same_interval);
    c->stranger = matters ? old : (struct visit){0};
}

static void visit_cell(const struct region *r, struct cell *c, struct visit me, const char *p,
                       bool writes) {
    if (!is_ordered(c->write, me, r->first)) die_of_race(r, c->write, true, p, writes);
    if (!is_ordered(c->older, me, r->first)) die_of_race(r, c->older, true, p, writes);
    if (!writes) {
        if (r->is_shared && c->write.epoch < r->first)
            die("this block never wrote it", p, CELL_BYTES, writes, ", shared memory");
        note_reader(c, me, r->first);
        return;
    }
    const struct visit *const readers[] = {&c->read, &c->fellow, &c->stranger};
    for (int i = 0; i < 3; i++)
        if (!is_ordered(*readers[i], me, r->first)) die_of_race(r, *readers[i], false, p, writes);
    if (c->write.bytes & ~me.bytes) c->older = c->write;
    c->write = me;
    if (me.bytes == 15) c->read = c->fellow = c->stranger = (struct visit){0};
}

static void visit(const struct region *r, const char *p, size_t bytes, bool writes) {
    const uint32_t thread = plsim_thread();
    const size_t begin = (size_t)(p - r->base), end = begin + bytes;
    for (size_t at = begin / CELL_BYTES * CELL_BYTES; at < end; at += CELL_BYTES) {
        const unsigned skip = begin > at ? (unsigned)(begin - at) : 0;
        const unsigned over = at + CELL_BYTES > end ? (unsigned)(at + CELL_BYTES - end) : 0;
        const struct visit me = {w.epoch, thread, w.clock[thread], 15u << skip & 15u >> over};
        visit_cell(r, &r->cells[at / CELL_BYTES], me, r->base + at, writes);
    }
}

/* ---- where an address lies ---- */

static bool is_in_window(const struct plsim_window *v, const char *p, size_t bytes) {
    const uint64_t at = (uint64_t)(p - v->p);
    if (p < v->p || v->rows == 0 || at >= (v->rows - 1) * v->stride_bytes + v->row_bytes)
        return false;
    if (v->row_bytes == v->stride_bytes) return at + bytes <= v->rows * v->row_bytes;
    return at % v->stride_bytes + bytes <= v->row_bytes;
}

/* The window that allows the access; NULL = none. */
static const struct plsim_window *find_window(const char *p, size_t bytes, bool writes) {
    for (int i = 0; i < w.n_windows; i++) {
        const int k = (w.last_window + i) % w.n_windows;
        const struct plsim_window *v = &w.windows[k];
        if ((writes && !v->is_written) || !is_in_window(v, p, bytes)) continue;
        w.last_window = k;
        return v;
    }
    return NULL;
}

static struct plsim_allocation *find_holder(const char *p) {
    struct plsim_allocation *a = w.last_holder;
    if (!a || p < a->p || p >= a->p + a->bytes) a = w.last_holder = plsim_holder(p);
    return a;
}

static size_t cells_bytes(const struct plsim_allocation *a) {
    return (a->bytes + CELL_BYTES - 1) / CELL_BYTES * sizeof(struct cell);
}

/* Pages of zeros, which are nobody's visits, until they are used. */
static struct cell *cells_of(struct plsim_allocation *a) {
    if (a->watched) return a->watched;
    void *p = mmap(NULL, cells_bytes(a), PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) plsim_die("no memory to watch an allocation of %zu bytes", a->bytes);
    return a->watched = p;
}

void plsim_watch_forget(struct plsim_allocation *a) {
    if (a->watched && munmap(a->watched, cells_bytes(a)) != 0)
        plsim_die("munmap of watched memory failed");
    a->watched = NULL;
    w.last_holder = NULL;
}

static void visit_device(const char *p, size_t bytes, bool writes) {
    struct plsim_allocation *a = find_holder(p);
    if (!a) die("that is not memory of the device", p, bytes, writes, "");
    if (bytes > (size_t)(a->p + a->bytes - p))
        die("that leaves its allocation", p, bytes, writes, "");
    const struct plsim_window *v = find_window(p, bytes, writes);
    if (!v && !a->device) die("that is pinned memory of the host", p, bytes, writes, "");
    if (!v && w.n_windows > 0)
        die(writes && find_window(p, bytes, false) ? "that is in no output of the op"
                                                   : "that is in no operand of the op",
            p, bytes, writes, "");
    const struct region r = {cells_of(a),    a->p, v ? v->p : a->p, v ? v->name : "an allocation",
                             w.launch_first, false};
    visit(&r, p, bytes, writes);
}

static void visit_shared(const char *p, size_t bytes, bool writes) {
    const char *start = (const char *)plsim_here.shared;
    if ((size_t)(p - start) + bytes > w.launch->shared_bytes)
        die("that lies behind the shared memory of the launch", p, bytes, writes, "");
    const struct region r = {shared_cells, start, start, "shared", w.block_first, true};
    visit(&r, p, bytes, writes);
}

static bool is_within(const char *p, const void *start, size_t bytes) {
    return p >= (const char *)start && (size_t)(p - (const char *)start) < bytes;
}

/* Locals, where a thread is, and the arguments of its kernel. */
static bool is_of_thread(const char *p) {
    return plsim_fibre_holds(p) || is_within(p, &plsim_here, sizeof plsim_here) ||
           is_within(p, w.launch->arguments, w.launch->argument_bytes);
}

void plsim_watch_access(const void *p, size_t bytes, bool writes) {
    if (!plsim_in_kernel() || is_of_thread(p)) return;
    if (is_within(p, plsim_here.shared, PLSIM_SHARED_LIMIT))
        visit_shared(p, bytes, writes);
    else
        visit_device(p, bytes, writes);
}
