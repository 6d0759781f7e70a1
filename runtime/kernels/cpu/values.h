/* values.h - the values of runtime/kernels/start.h, a vector at a time.
 *
 * In: a rule, and which values. Out: fp32, the bits of pl_start_values().
 * Needs: the flags that normal.h asks for, and the instruction set of the file's level.
 * Use: struct values v; values_init(&v, c->attr, c->batch->seed); values_fill(&v, first, n, out);
 */
#ifndef PL_RUNTIME_KERNELS_CPU_VALUES_H
#define PL_RUNTIME_KERNELS_CPU_VALUES_H

#include "runtime/kernels/cpu/random.h"
#include "runtime/kernels/cpu/vec.h"
#include "runtime/kernels/start.h"

typedef int32_t pl_vec_ints __attribute__((vector_size(PL_LANES * sizeof(int32_t))));

#define PL_NORMAL_VECTORS
typedef pl_vec pl_normal_float;
typedef pl_vec_bits pl_normal_bits;
typedef pl_vec_ints pl_normal_int;

static inline pl_vec pl_normal_of_int(pl_vec_ints i) {
    return __builtin_convertvector(i, pl_vec);
}

static inline pl_vec_bits pl_normal_bits_of(pl_vec x) {
    return (pl_vec_bits)x;
}

static inline pl_vec pl_normal_of_bits(pl_vec_bits u) {
    return (pl_vec)u;
}

static inline pl_vec pl_normal_root(pl_vec x) {
#if defined(__AVX512F__)
    return (pl_vec)_mm512_sqrt_ps((__m512)x);
#elif defined(__AVX__)
    return (pl_vec)_mm256_sqrt_ps((__m256)x);
#elif defined(__SSE2__)
    return (pl_vec)_mm_sqrt_ps((__m128)x);
#else
    for (int i = 0; i < PL_LANES; i++)
        x[i] = sqrtf(x[i]);
    return x;
#endif
}

#include "runtime/kernels/normal.h"

/* Values of one step: every block of random numbers makes four. */
#define PL_VALUES_STEP (PL_START_BLOCK * PL_RANDOM_BLOCKS)
_Static_assert(PL_LANES == 2 * PL_RANDOM_BLOCKS, "a vector has two words of each block");

#if PL_LANES == 16
#define PL_VALUES_LOW  0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23
#define PL_VALUES_HIGH 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31
#elif PL_LANES == 8
#define PL_VALUES_LOW  0, 8, 1, 9, 2, 10, 3, 11
#define PL_VALUES_HIGH 4, 12, 5, 13, 6, 14, 7, 15
#else
#define PL_VALUES_LOW  0, 4, 1, 5
#define PL_VALUES_HIGH 2, 6, 3, 7
#endif

struct values {
    struct pl_start_rule rule;
    struct pl_random random; /* of NORMAL */
};

static inline void values_init(struct values *v, const struct pl_attr *attr, uint64_t seed) {
    v->rule = pl_start_rule_of(attr, seed);
    pl_random_init(&v->random, &v->rule.rng);
}

/* out[PL_VALUES_STEP], from random block `index` on. */
static inline void values_normal(const struct values *v, uint64_t index, float *out) {
    const float deviation = (float)v->rule.spread;
    pl_words first, second;
    pl_vec x, y;
    pl_random_pairs(&v->random, index, &first, &second);
    pl_normal_pair((pl_vec_bits)first, (pl_vec_bits)second, &x, &y);
    const pl_vec scaled[2] = {__builtin_shufflevector(x, y, PL_VALUES_LOW) * deviation,
                              __builtin_shufflevector(x, y, PL_VALUES_HIGH) * deviation};
    memcpy(out, scaled, sizeof scaled);
}

/* out[n]: values [first, first + n); first is a multiple of PL_START_BLOCK. */
static inline void values_fill(const struct values *v, uint64_t first, uint64_t n, float *out) {
    uint64_t i = 0;
    if (v->rule.kind == PL_START_NORMAL)
        for (; i + PL_VALUES_STEP <= n; i += PL_VALUES_STEP)
            values_normal(v, (first + i) / PL_START_BLOCK, out + i);
    pl_start_values(&v->rule, first + i, n - i, out + i);
}

#endif
