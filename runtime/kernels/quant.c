/* quant.c - quantising and dequantising on the host. */
#include "runtime/kernels/quant.h"

#include "estimator/base/checked.h"
#include "runtime/kernels/quant_block.h"

#include <math.h>
#include <string.h>

/* ---- blocks of 64 ---- */

static uint64_t block_size(uint64_t n, uint64_t first) {
    return pl_u64_min(n - first, PL_QUANT_BLOCK);
}

/* A whole block: x itself, or a copy of its last values followed by zeros. */
static const float *whole_block(const float *x, uint64_t n, float padded[PL_QUANT_BLOCK]) {
    if (n == PL_QUANT_BLOCK) return x;
    memset(padded, 0, PL_QUANT_BLOCK * sizeof *padded);
    memcpy(padded, x, n * sizeof *x);
    return padded;
}

void pl_quant_absmax(const float *x, uint64_t n, float *absmax) {
    float padded[PL_QUANT_BLOCK];
    for (uint64_t i = 0; i < n; i += PL_QUANT_BLOCK)
        absmax[i / PL_QUANT_BLOCK] =
            pl_quant_block_absmax(whole_block(x + i, block_size(n, i), padded));
}

double pl_quant_sum(const float *absmax, uint64_t blocks) {
    double sum = 0;
    for (uint64_t b = 0; b < blocks; b++)
        sum += absmax[b];
    return sum;
}

/* ---- to 4 bits ---- */

void pl_quant_codes(enum pl_quant t, const float *x, uint64_t n, const float *absmax,
                    uint8_t *codes) {
    float padded[PL_QUANT_BLOCK];
    uint8_t whole[PL_QUANT_BLOCK / 2];
    struct pl_quant_coder c;
    pl_quant_coder_init(&c, t);
    for (uint64_t i = 0; i < n; i += PL_QUANT_BLOCK) {
        const uint64_t size = block_size(n, i);
        pl_quant_block_codes(&c, whole_block(x + i, size, padded),
                             pl_quant_scale(absmax[i / PL_QUANT_BLOCK]), whole);
        memcpy(codes + i / 2, whole, pl_quant_codes_bytes(size));
    }
}

/* ---- and back ---- */

void pl_quant_values(enum pl_quant t, const uint8_t *codes, uint64_t n, const float *absmax,
                     float *x) {
    const float *value = pl_quant_table(t);
    for (uint64_t i = 0; i < n; i++) {
        const unsigned code = i % 2 ? codes[i / 2] & 15u : codes[i / 2] >> 4;
        x[i] = value[code] * absmax[i / PL_QUANT_BLOCK];
    }
}

/* ---- dynamic maps ---- */

#define DECADES   7
#define POSITIVES 127 /* values of the signed map between 0 and 1 */

/* Boundary i of n steps from 0.1 to 1 as torch.linspace() has it: from the nearer end, one fused
 * multiply-add in fp32, which a double holds exactly before it is rounded. */
static float boundary(int i, int n) {
    const float first = 0.1f, last = 1.0f, step = (last - first) / (float)n;
    const bool lower = i < (n + 1) / 2;
    const double from = lower ? (double)first : (double)last;
    const double way = (double)step * (lower ? i : i - n);
    return (float)(from + way);
}

/* The values between 0 and 1, ascending: the lowest decade has `steps`, each next twice as many. */
static void fill_decades(int steps, float *out) {
    static const float power[DECADES] = {1e-6f, 1e-5f, 1e-4f, 1e-3f, 1e-2f, 1e-1f, 1.0f};
    for (int d = 0; d < DECADES; d++, steps *= 2)
        for (int i = 0; i < steps; i++)
            *out++ = power[d] * pl_quant_midpoint(boundary(i, steps), boundary(i + 1, steps));
}

void pl_quant_map_values(bool is_signed, float value[PL_QUANT_MAP_SIZE]) {
    const int zero = is_signed ? PL_QUANT_SIGNED_ZERO : PL_QUANT_UNSIGNED_ZERO;
    fill_decades(is_signed ? 1 : 2, value + zero + 1);
    value[zero] = 0.0f;
    value[PL_QUANT_MAP_SIZE - 1] = 1.0f;
    for (int k = 1; is_signed && k <= POSITIVES; k++)
        value[zero - k] = -value[zero + k];
}

void pl_quant_map_init(struct pl_quant_map *m, bool is_signed) {
    pl_quant_map_values(is_signed, m->value);
    m->midpoint[PL_QUANT_MAP_SIZE - 1] = INFINITY;
    for (int i = 0; i < PL_QUANT_MAP_SIZE - 1; i++)
        m->midpoint[i] = pl_quant_midpoint(m->value[i], m->value[i + 1]);
}

/* ---- absmax to 8 bits ---- */

static float largest_distance(const float *x, uint64_t n, float from) {
    float most = 0;
    for (uint64_t i = 0; i < n; i++)
        most = fabsf(x[i] - from) > most ? fabsf(x[i] - from) : most;
    return most;
}

void pl_quant_nest(const float *absmax, uint64_t blocks, float offset, uint8_t *absmax8,
                   float *absmax2) {
    float value[PL_QUANT_MAP_SIZE];
    pl_quant_map_values(true, value);
    for (uint64_t b = 0; b < blocks; b += PL_QUANT_NEST) {
        const uint64_t n = pl_u64_min(blocks - b, PL_QUANT_NEST);
        const float most = largest_distance(absmax + b, n, offset), scale = pl_quant_scale(most);
        absmax2[b / PL_QUANT_NEST] = most;
        for (uint64_t i = b; i < b + n; i++)
            absmax8[i] = pl_quant_nearest(value, (absmax[i] - offset) * scale);
    }
}

void pl_quant_unnest_by(const float map[PL_QUANT_MAP_SIZE], const uint8_t *absmax8,
                        const float *absmax2, float offset, uint64_t blocks, float *absmax) {
    for (uint64_t b = 0; b < blocks; b++) {
        const float own = map[absmax8[b]] * absmax2[b / PL_QUANT_NEST];
        absmax[b] = own + offset;
    }
}

void pl_quant_unnest(const uint8_t *absmax8, const float *absmax2, float offset, uint64_t blocks,
                     float *absmax) {
    float value[PL_QUANT_MAP_SIZE];
    pl_quant_map_values(true, value);
    pl_quant_unnest_by(value, absmax8, absmax2, offset, blocks, absmax);
}
