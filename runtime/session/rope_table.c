/* rope_table.c - rotary frequencies and their table. */
#include "runtime/session/rope_table.h"

#include <math.h>

#define TWO_PI 6.28318530717958647692

/* Long waves are stretched by factor, short ones kept, the band between blended. */
static double llama3_scaled(const struct pl_rope *r, double freq) {
    double wave = TWO_PI / freq, original = r->original_max_positions;
    if (wave < original / r->high_freq_factor) return freq;
    if (wave > original / r->low_freq_factor) return freq / r->factor;
    double smooth =
        (original / wave - r->low_freq_factor) / (r->high_freq_factor - r->low_freq_factor);
    return (1 - smooth) * freq / r->factor + smooth * freq;
}

/* Short waves are kept, long ones stretched by factor, those on the ramp blended. */
static double yarn_scaled(const struct pl_rope *r, uint32_t pair, double freq) {
    double stretch = (pair - r->ramp_low) / (r->ramp_high - r->ramp_low);
    stretch = fmin(fmax(stretch, 0), 1);
    return stretch * freq / r->factor + (1 - stretch) * freq;
}

static double scaled(const struct pl_rope *r, bool is_long, uint32_t pair, double freq) {
    switch (r->type) {
    case PL_ROPE_LINEAR:
        return freq / r->factor;
    case PL_ROPE_LLAMA3:
        return llama3_scaled(r, freq);
    case PL_ROPE_YARN:
        return yarn_scaled(r, pair, freq);
    case PL_ROPE_LONGROPE:
        return freq / (is_long ? r->long_factor[pair] : r->short_factor[pair]);
    case PL_ROPE_PROPORTIONAL:
        return pair < r->turned ? freq : 0;
    case PL_ROPE_DEFAULT:
    case PL_ROPE_DYNAMIC:
        break;
    }
    return freq;
}

/* The base that lets the longest wave of so long a sequence turn as often as it did in training. */
static double base_of(const struct pl_rope *r, uint64_t length) {
    if (r->type != PL_ROPE_DYNAMIC || length == 0) return r->theta;
    double stretch = r->factor * (double)length / r->original_max_positions - (r->factor - 1);
    return r->theta * pow(stretch, r->dim / (r->dim - 2.0));
}

uint64_t pl_rope_length(const struct pl_rope *r, uint64_t longest) {
    const uint64_t original = r->original_max_positions;
    if (!pl_rope_follows_length(r) || longest <= original) return 0;
    return r->type == PL_ROPE_DYNAMIC ? longest : original + 1;
}

void pl_rope_frequencies(const struct pl_rope *r, uint64_t length, double *out) {
    const double base = base_of(r, length);
    for (uint32_t i = 0; i < r->dim / 2; i++)
        out[i] = scaled(r, length > 0, i, pow(base, -2.0 * i / r->dim));
}

static double scale_of(const struct pl_rope *r, bool of_queries, uint64_t position) {
    if (!of_queries) return r->attention_factor;
    const uint64_t lengths = position / r->original_max_positions;
    return r->attention_factor * (1 + r->query_growth * log1p((double)lengths));
}

void pl_rope_rows(const struct pl_rope *r, const double *freq, bool of_queries, uint64_t first,
                  uint64_t n, float *out) {
    for (uint64_t p = 0; p < n; p++) {
        const double scale = scale_of(r, of_queries, first + p);
        for (uint32_t i = 0; i < r->dim / 2; i++) {
            double angle = (double)(first + p) * freq[i];
            *out++ = (float)(cos(angle) * scale);
            *out++ = (float)(sin(angle) * scale);
        }
    }
}
