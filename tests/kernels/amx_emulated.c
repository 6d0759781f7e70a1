/* amx_emulated.c - tiles as memory of each thread. */
#include "tests/kernels/amx_emulated.h"
#include "runtime/kernels/cpu/amx.h"

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct tile {
    uint8_t row[PL_AMX_SIDE][PL_AMX_BYTES];
};

static _Thread_local struct pl_amx_config current; /* palette 0: not set up */
static _Thread_local struct tile tiles[PL_AMX_TILES];

static _Noreturn void fault(const char *what, int tile) {
    fprintf(stderr, "AMX: %s, tile %d\n", what, tile);
    abort();
}

static struct tile *tile_at(int tile) {
    if (tile < 0 || tile >= PL_AMX_TILES) fault("no such tile", tile);
    if (current.palette != 1) fault("tiles are not set up", tile);
    return &tiles[tile];
}

void amx_configure(const void *config) {
    memcpy(&current, config, sizeof current);
    if (current.palette != 1 || current.start_row) fault("a palette other than 1", 0);
    for (int i = 0; i < PL_AMX_TILES; i++)
        if (current.rows[i] > PL_AMX_SIDE || current.row_bytes[i] > PL_AMX_BYTES)
            fault("a tile that is too large", i);
    memset(tiles, 0, sizeof tiles);
}

void amx_release(void) {
    memset(&current, 0, sizeof current);
}

void amx_zero(int tile) {
    memset(tile_at(tile), 0, sizeof(struct tile));
}

void amx_load(int tile, const void *from, size_t bytes) {
    struct tile *t = tile_at(tile);
    memset(t, 0, sizeof *t);
    for (int r = 0; r < current.rows[tile]; r++)
        memcpy(t->row[r], (const char *)from + (size_t)r * bytes, current.row_bytes[tile]);
}

void amx_store(int tile, void *to, size_t bytes) {
    const struct tile *t = tile_at(tile);
    for (int r = 0; r < current.rows[tile]; r++)
        memcpy((char *)to + (size_t)r * bytes, t->row[r], current.row_bytes[tile]);
}

/* Denormals are zeros, as operands and as results. */
static inline float flushed(float x) {
    return fabsf(x) < FLT_MIN ? copysignf(0.0f, x) : x;
}

static inline float number(uint32_t pair, bool is_second) {
    const uint32_t bits = is_second ? pair & 0xFFFF0000u : pair << 16;
    float x;
    memcpy(&x, &bits, sizeof x);
    return flushed(x);
}

/* TDPBF16PS: the first numbers of the pairs and the second ones are two chains of fused
 * multiply-adds that begin with zero. Both are added, and then their sum to what is there. */
void amx_add(int sum, int x, int y) {
    struct tile *c = tile_at(sum);
    const struct tile *a = tile_at(x), *b = tile_at(y);
    const int pairs = current.row_bytes[x] / 4, columns = current.row_bytes[sum] / 4;
    if (current.rows[y] != pairs || current.rows[sum] != current.rows[x] ||
        current.row_bytes[y] != current.row_bytes[sum])
        fault("tiles that do not fit together", sum);
    for (int m = 0; m < current.rows[sum]; m++) {
        float chains[2][PL_AMX_SIDE] = {{0}}, row[PL_AMX_SIDE];
        uint32_t left[PL_AMX_SIDE], right[PL_AMX_SIDE];
        memcpy(left, a->row[m], sizeof left);
        memcpy(row, c->row[m], sizeof row);
        for (int k = 0; k < pairs; k++) {
            memcpy(right, b->row[k], sizeof right);
            for (int odd = 0; odd < 2; odd++)
                for (int n = 0; n < columns; n++)
                    chains[odd][n] =
                        flushed(fmaf(number(left[k], odd), number(right[n], odd), chains[odd][n]));
        }
        for (int n = 0; n < columns; n++)
            row[n] = flushed(flushed(row[n]) + flushed(chains[0][n] + chains[1][n]));
        memcpy(c->row[m], row, sizeof row);
    }
}
