/* sim_ptx.c - twins of the instructions in runtime/kernels/cuda/ptx.cuh, by the fragment layouts
 * that the PTX manual draws for mma.m16n8k16 and ldmatrix. */
#include "tests/cuda_sim/plsim_watch.h"
#include "tests/cuda_sim/sim.h"

#include "estimator/ops/half.h"

#include <stdlib.h>
#include <string.h>

enum { WARP = 32, M = 16, N = 8, K = 16, POISON_BYTE = 0xFF };

void pl_sim_mma(float c[4], const uint32_t a[4], const uint32_t b[2], bool is_bf16);
void pl_sim_ldmatrix_x4(uint32_t r[4], const void *row, bool trans);
void pl_sim_copy(void *dst, const void *src, int bytes, bool valid);
void pl_sim_copy_commit(void);
void pl_sim_copy_wait(int pending);

static void need_all(const char *what, uint32_t lanes) {
    if (lanes != UINT32_MAX) plsim_die("%s with lanes %08x only", what, lanes);
}

static float of_bits(uint32_t bits, bool is_bf16) {
    float f;
    const uint32_t u = bits << 16;
    if (!is_bf16) return pl_half_widen((uint16_t)bits);
    memcpy(&f, &u, sizeof f);
    return f;
}

/* The two elements of a register, the first in the low half. */
static void unpack(uint32_t word, bool is_bf16, float *first, float *second) {
    *first = of_bits(word & 0xFFFF, is_bf16);
    *second = of_bits(word >> 16, is_bf16);
}

struct mma {
    float *c;
    const uint32_t *a, *b;
    bool is_bf16;
};

/* c += a b with fp32 sums in the order of k. The tensor core's own order is not documented. */
static void run_mma(void *const arguments[WARP], uint32_t lanes) {
    float a[M][K], b[K][N], c[M][N];
    need_all("mma", lanes);
    for (uint32_t lane = 0; lane < WARP; lane++) {
        const struct mma *m = arguments[lane];
        uint32_t g = lane / 4, t = lane % 4 * 2;
        for (uint32_t i = 0; i < 4; i++) {
            uint32_t row = g + i % 2 * 8, col = t + i / 2 * 8;
            unpack(m->a[i], m->is_bf16, &a[row][col], &a[row][col + 1]);
            c[g + i / 2 * 8][t + i % 2] = m->c[i];
        }
        for (uint32_t i = 0; i < 2; i++)
            unpack(m->b[i], m->is_bf16, &b[t + i * 8][g], &b[t + i * 8 + 1][g]);
    }
    for (uint32_t i = 0; i < M; i++)
        for (uint32_t k = 0; k < K; k++)
            for (uint32_t j = 0; j < N; j++)
                c[i][j] += a[i][k] * b[k][j];
    for (uint32_t lane = 0; lane < WARP; lane++)
        for (uint32_t i = 0; i < 4; i++)
            ((const struct mma *)arguments[lane])->c[i] =
                c[lane / 4 + i / 2 * 8][lane % 4 * 2 + i % 2];
}

static const struct plsim_collective mma = {"mma", run_mma};

/* Turing's two m16n8k8 add in the same order. */
void pl_sim_mma(float c[4], const uint32_t a[4], const uint32_t b[2], bool is_bf16) {
    struct mma m = {c, a, b, is_bf16};
    if (is_bf16 && plsim_settings()->sm < 80) plsim_die("mma of bf16 on sm_75");
    plsim_meet_warp(&mma, UINT32_MAX, &m);
}

struct ldmatrix {
    uint32_t *r;
    const void *row;
};

static uint32_t element(void *const arguments[WARP], uint32_t matrix, uint32_t row, uint32_t col) {
    uint16_t h;
    const char *p = ((const struct ldmatrix *)arguments[matrix * 8 + row])->row;
    memcpy(&h, p + col * sizeof h, sizeof h);
    return h;
}

static void load(void *const arguments[WARP], uint32_t lanes, bool trans) {
    need_all("ldmatrix", lanes);
    for (uint32_t lane = 0; lane < WARP; lane++) {
        const struct ldmatrix *l = arguments[lane];
        uint32_t g = lane / 4, t = lane % 4 * 2;
        if ((uintptr_t)l->row % 16 != 0) plsim_die("ldmatrix: lane %u is not aligned to 16", lane);
        for (uint32_t i = 0; i < 4; i++)
            l->r[i] = trans ? element(arguments, i, t, g) | element(arguments, i, t + 1, g) << 16
                            : element(arguments, i, g, t) | element(arguments, i, g, t + 1) << 16;
    }
}

static void run_ldmatrix(void *const a[WARP], uint32_t lanes) {
    load(a, lanes, false);
}
static void run_ldmatrix_trans(void *const a[WARP], uint32_t lanes) {
    load(a, lanes, true);
}

static const struct plsim_collective ldmatrix[2] = {{"ldmatrix", run_ldmatrix},
                                                    {"ldmatrix.trans", run_ldmatrix_trans}};

void pl_sim_ldmatrix_x4(uint32_t r[4], const void *row, bool trans) {
    struct ldmatrix l = {r, row};
    if (plsim_watching) plsim_watch_access(row, 16, false);
    plsim_meet_warp(&ldmatrix[trans], UINT32_MAX, &l);
}

/* ---- cp.async: a copy lands when a wait needs it, and not before; until then its destination is
 * NaN in every float type ---- */

struct copy {
    void *dst;
    const void *src; /* NULL = zeros */
    size_t bytes;
    uint32_t group;
};

/* Copies of a thread that have not landed, oldest first. */
static struct queue {
    struct copy *copies;
    uint32_t n, room;
    uint32_t group; /* number of the open one */
} queues[PLSIM_MAX_THREADS];

void plsim_copies_forget(uint32_t threads) {
    for (uint32_t i = 0; i < threads; i++)
        queues[i].n = queues[i].group = 0;
    plsim_hopper_forget(threads);
}

static void land(const struct copy *c) {
    if (plsim_watching) plsim_watch_access(c->dst, c->bytes, true);
    if (c->src)
        memcpy(c->dst, c->src, c->bytes);
    else
        memset(c->dst, 0, c->bytes);
    plsim_hopper_landed(c->dst);
}

/* Before Ampere a copy goes through registers, and has landed when it returns. */
void pl_sim_copy(void *dst, const void *src, int bytes, bool valid) {
    struct queue *q = &queues[plsim_thread()];
    if ((uintptr_t)dst % (unsigned)bytes != 0 || (valid && (uintptr_t)src % (unsigned)bytes != 0))
        plsim_die("cp.async of %d bytes is not aligned to them", bytes);
    if (q->n == q->room) {
        q->room = q->room ? 2 * q->room : 16;
        q->copies = realloc(q->copies, q->room * sizeof *q->copies);
        if (!q->copies) plsim_die("no memory for copies under way");
    }
    q->copies[q->n++] = (struct copy){dst, valid ? src : NULL, (size_t)bytes, q->group};
    if (plsim_watching) {
        if (valid) plsim_watch_access(src, (size_t)bytes, false);
        plsim_watch_access(dst, (size_t)bytes, true);
    }
    memset(dst, POISON_BYTE, (size_t)bytes);
    if (plsim_settings()->sm < 80) land(&q->copies[--q->n]);
}

void pl_sim_copy_commit(void) {
    queues[plsim_thread()].group++;
}

/* A copy that no commit has closed is in no group, and no wait covers it. */
void pl_sim_copy_wait(int pending) {
    struct queue *q = &queues[plsim_thread()];
    uint32_t done = 0;
    for (; done < q->n && q->copies[done].group + (uint32_t)pending < q->group; done++)
        land(&q->copies[done]);
    q->n -= done;
    if (done) memmove(q->copies, q->copies + done, q->n * sizeof *q->copies);
}
