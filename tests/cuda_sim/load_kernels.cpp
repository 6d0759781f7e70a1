#include "tests/cuda_sim/load_kernels.h"

#include "runtime/device/cuda/cuda.h"
#include "runtime/kernels/cuda/hopper.cuh"

enum { BYTES = LOAD_ROWS * LOAD_COLS * sizeof(uint16_t), THREADS = PL_WARPGROUP };

struct place {
    uint32_t col, head, row;
};

static uint32_t bytes_expected(enum load_mistake mistake) {
    if (mistake == BYTES_NOT_EXPECTED) return 0;
    return mistake == TOO_FEW_BYTES ? BYTES - 16 : mistake == TOO_MANY_BYTES ? BYTES + 16 : BYTES;
}

static void load(const CUtensorMap *map, struct place at, enum load_mistake mistake, uint16_t *tile,
                 struct pl_barrier *b) {
    pl_ptx_barrier_expect(b, bytes_expected(mistake));
    pl_ptx_load_box(tile, map, at.col, at.head, at.row, b);
}

static void begin(const CUtensorMap *map, struct place at, enum load_mistake mistake,
                  uint16_t *tile, struct pl_barrier *b) {
    if (threadIdx.x != 0) return;
    pl_ptx_barrier_make(b, 1);
    if (mistake != BARRIER_NOT_FENCED) pl_ptx_proxy_fence();
    if (mistake == OVERWRITES_BARRIER) tile += LOAD_COLS;
    if (mistake == LOADS_OFF_ROWS) tile += 8;
    load(map, at, mistake, tile, b);
    if (mistake == LOADS_TWICE) pl_ptx_load_box(tile, map, at.col, at.head, at.row, b);
}

static void wait_for(enum load_mistake mistake, struct pl_barrier *b) {
    const bool waits = mistake != NOT_WAITED && mistake != IS_LEFT_BEHIND &&
                       (mistake != ONE_WARP_DOES_NOT_WAIT || threadIdx.x / 32 != 1);
    if (waits) pl_ptx_barrier_wait(b, mistake == WAITS_FOR_PARITY_1);
}

/* Clears what lies in the last row. */
static void clear(enum load_mistake mistake, uint16_t *tile) {
    if (threadIdx.x == 0) pl_ptx_clear_16(tile + (LOAD_ROWS - 1) * LOAD_COLS);
    if (mistake != CLEARS_UNFENCED) pl_ptx_proxy_fence();
    if (mistake != CLEARS_UNSHOWN) __syncthreads();
}

static void multiply(const CUtensorMap *map, struct place at, enum load_mistake mistake,
                     uint16_t *tile, struct pl_barrier *b, float *product) {
    float c[8][4];
    pl_ptx_wgmma_fence();
    for (int k = 0; k < LOAD_COLS / 16; k++)
        pl_ptx_wgmma_tiles<__nv_bfloat16>(c, pl_panel(tile + k * 16, 0), pl_panel(tile + k * 16, 0),
                                          k > 0);
    if (mistake == LOADS_WHILE_READ && threadIdx.x == 0) load(map, at, NO_MISTAKE, tile, b);
    if (mistake == LOADS_WHILE_READ) pl_ptx_barrier_wait(b, 1);
    pl_ptx_wgmma_commit();
    pl_ptx_wgmma_wait();
    if (mistake == LOADS_BEFORE_OTHERS && threadIdx.x == THREADS - 1)
        load(map, at, NO_MISTAKE, tile, b);
    const uint32_t lane = threadIdx.x % 32, row = threadIdx.x / 32 * 16 + lane / 4;
    for (uint32_t i = 0; i < 32; i++)
        product[(row + i / 2 % 2 * 8) * LOAD_ROWS + i / 4 * 8 + lane % 4 * 2 + i % 2] =
            c[i / 4][i % 4];
}

static __global__ void load_one(const __grid_constant__ CUtensorMap map, struct place at,
                                enum load_mistake mistake, uint16_t *box, float *product) {
    PL_SHARED(uint16_t, memory);
    uint16_t *tile = pl_panel_align(memory);
    struct pl_barrier *b = (struct pl_barrier *)(tile + LOAD_ROWS * LOAD_COLS);
    begin(&map, at, mistake, tile, b);
    if (mistake != BARRIER_NOT_SHOWN) __syncthreads();
    if (mistake == CLEARS_UNWAITED) clear(mistake, tile);
    wait_for(mistake, b);
    if (mistake == IS_LEFT_BEHIND) return;
    if (mistake == CLEARS_UNFENCED || mistake == CLEARS_UNSHOWN) clear(mistake, tile);
    multiply(&map, at, mistake, tile, b, product);
    for (uint32_t i = threadIdx.x; i < LOAD_ROWS * LOAD_COLS; i += THREADS) {
        const uint32_t row = i / LOAD_COLS, unit = i % LOAD_COLS / 8;
        box[i] = tile[row * LOAD_COLS + (unit ^ row % 8) * 8 + i % 8];
    }
}

extern "C" void load_box(const CUtensorMap *map, const uint32_t at[3], enum load_mistake mistake,
                         uint16_t *box, float *product) {
    const struct place place = {at[0], at[1], at[2]};
    PL_LAUNCH(load_one, dim3(1), dim3(THREADS), PL_PANEL_ALIGN + BYTES + 256, 0, *map, place,
              mistake, box, product);
}
