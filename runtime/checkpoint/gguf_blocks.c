#include "runtime/checkpoint/gguf_blocks.h"

#include "estimator/ops/half.h"

#include <stddef.h>
#include <string.h>

static float half(const unsigned char *p) {
    return pl_half_widen((uint16_t)(p[0] | p[1] << 8));
}

static void decode_f32(const unsigned char *b, float *out) {
    memcpy(out, b, sizeof *out);
}

static void decode_f16(const unsigned char *b, float *out) {
    *out = half(b);
}

static void decode_bf16(const unsigned char *b, float *out) {
    const uint32_t bits = (uint32_t)(b[0] | b[1] << 8) << 16;
    memcpy(out, &bits, sizeof bits);
}

/* --- blocks of 32: a scale, and perhaps a least value; nibbles of the first half come first --- */

static void decode_q4_0(const unsigned char *b, float *out) {
    const float d = half(b);
    for (int i = 0; i < 16; i++) {
        out[i] = d * (float)((b[2 + i] & 15) - 8);
        out[i + 16] = d * (float)((b[2 + i] >> 4) - 8);
    }
}

static void decode_q4_1(const unsigned char *b, float *out) {
    const float d = half(b), least = half(b + 2);
    for (int i = 0; i < 16; i++) {
        out[i] = d * (float)(b[4 + i] & 15) + least;
        out[i + 16] = d * (float)(b[4 + i] >> 4) + least;
    }
}

/* The fifth bits stand in four bytes before the nibbles. */
static int five_bits(const unsigned char *high, const unsigned char *low, int i) {
    const int nibble = i < 16 ? low[i] & 15 : low[i - 16] >> 4;
    return nibble | (high[i / 8] >> i % 8 & 1) << 4;
}

static void decode_q5_0(const unsigned char *b, float *out) {
    const float d = half(b);
    for (int i = 0; i < 32; i++)
        out[i] = d * (float)(five_bits(b + 2, b + 6, i) - 16);
}

static void decode_q5_1(const unsigned char *b, float *out) {
    const float d = half(b), least = half(b + 2);
    for (int i = 0; i < 32; i++)
        out[i] = d * (float)five_bits(b + 4, b + 8, i) + least;
}

static void decode_q8_0(const unsigned char *b, float *out) {
    const float d = half(b);
    for (int i = 0; i < 32; i++)
        out[i] = (float)(signed char)b[2 + i] * d;
}

static const signed char values_iq4[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                           1,    13,   25,  38,  53,  69,  89,  113};

static void decode_iq4_nl(const unsigned char *b, float *out) {
    const float d = half(b);
    for (int i = 0; i < 16; i++) {
        out[i] = d * (float)values_iq4[b[2 + i] & 15];
        out[i + 16] = d * (float)values_iq4[b[2 + i] >> 4];
    }
}

/* OCP Microscaling Formats 1.0: a power of two, here half of it, and twice the values of e2m1. */
static void decode_mxfp4(const unsigned char *b, float *out) {
    static const signed char values[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
    const uint32_t bits = b[0] < 2 ? 0x00200000u << b[0] : (uint32_t)(b[0] - 1) << 23;
    float d;
    memcpy(&d, &bits, sizeof d);
    for (int i = 0; i < 16; i++) {
        out[i] = d * (float)values[b[1 + i] & 15];
        out[i + 16] = d * (float)values[b[1 + i] >> 4];
    }
}

/* --- blocks of 256: scales of sub-blocks, which a scale of the block multiplies --- */

/* Two bits a value: a byte has values 32 apart. */
static void decode_q2_k(const unsigned char *b, float *out) {
    const unsigned char *codes = b + 16;
    const float d = half(b + 80), least = half(b + 82);
    for (int i = 0; i < 256; i++) {
        const unsigned char scale = b[i / 16];
        const int code = codes[i / 128 * 32 + i % 32] >> i % 128 / 32 * 2 & 3;
        out[i] = d * (float)(scale & 15) * (float)code - least * (float)(scale >> 4);
    }
}

/* The sixteen scales of six bits: four low bits in eight bytes, two high ones in four. */
static int scale_q3_k(const unsigned char *s, int i) {
    const int low = s[i % 8] >> i / 8 * 4 & 15, high = s[8 + i % 4] >> i / 4 * 2 & 3;
    return (low | high << 4) - 32;
}

static void decode_q3_k(const unsigned char *b, float *out) {
    const unsigned char *high = b, *codes = b + 32, *scales = b + 96;
    const float d = half(b + 108);
    for (int i = 0; i < 256; i++) {
        const int low = codes[i / 128 * 32 + i % 32] >> i % 128 / 32 * 2 & 3;
        const int absent = high[i % 32] >> i / 32 & 1 ? 0 : 4; /* a set bit is no offset */
        out[i] = d * (float)scale_q3_k(scales, i / 16) * (float)(low - absent);
    }
}

/* The eight scales and the eight least values of six bits, in twelve bytes. */
static void scale_q4_k(const unsigned char *s, int i, int *scale, int *least) {
    if (i < 4) {
        *scale = s[i] & 63;
        *least = s[i + 4] & 63;
    } else {
        *scale = (s[i + 4] & 15) | s[i - 4] >> 6 << 4;
        *least = s[i + 4] >> 4 | s[i] >> 6 << 4;
    }
}

/* `high`: the fifth bits, one of each value in a byte of 32; NULL: there are none. */
static void decode_45_k(const unsigned char *b, const unsigned char *high,
                        const unsigned char *codes, float *out) {
    const float d = half(b), least = half(b + 2);
    for (int sub = 0; sub < 8; sub++) {
        int by, off;
        scale_q4_k(b + 4, sub, &by, &off);
        const float scale = d * (float)by, offset = least * (float)off;
        for (int i = 0; i < 32; i++) {
            int code = codes[sub / 2 * 32 + i] >> sub % 2 * 4 & 15;
            if (high) code |= (high[i] >> sub & 1) << 4;
            out[sub * 32 + i] = scale * (float)code - offset;
        }
    }
}

static void decode_q4_k(const unsigned char *b, float *out) {
    decode_45_k(b, NULL, b + 16, out);
}

static void decode_q5_k(const unsigned char *b, float *out) {
    decode_45_k(b, b + 16, b + 48, out);
}

static void decode_q6_k(const unsigned char *b, float *out) {
    const unsigned char *low = b, *high = b + 128, *scales = b + 192;
    const float d = half(b + 208);
    for (int i = 0; i < 256; i++) {
        const int in = i % 128, nibble = low[i / 128 * 64 + in % 64] >> in / 64 * 4 & 15;
        const int two = high[i / 128 * 32 + in % 32] >> in / 32 * 2 & 3;
        out[i] = d * (float)(signed char)scales[i / 16] * (float)((nibble | two << 4) - 32);
    }
}

static void decode_iq4_xs(const unsigned char *b, float *out) {
    const unsigned char *low = b + 4, *codes = b + 8;
    const float d = half(b);
    const int high = b[2] | b[3] << 8;
    for (int sub = 0; sub < 8; sub++) {
        const int scale = (low[sub / 2] >> sub % 2 * 4 & 15) | (high >> sub * 2 & 3) << 4;
        const float by = d * (float)(scale - 32);
        for (int i = 0; i < 16; i++) {
            out[sub * 32 + i] = by * (float)values_iq4[codes[sub * 16 + i] & 15];
            out[sub * 32 + i + 16] = by * (float)values_iq4[codes[sub * 16 + i] >> 4];
        }
    }
}

static const struct {
    uint32_t id;
    pl_gguf_decode_fn *decode;
} decoders[] = {
    {PL_GGUF_F32, decode_f32},     {PL_GGUF_F16, decode_f16},       {PL_GGUF_BF16, decode_bf16},
    {PL_GGUF_Q4_0, decode_q4_0},   {PL_GGUF_Q4_1, decode_q4_1},     {PL_GGUF_Q5_0, decode_q5_0},
    {PL_GGUF_Q5_1, decode_q5_1},   {PL_GGUF_Q8_0, decode_q8_0},     {PL_GGUF_Q2_K, decode_q2_k},
    {PL_GGUF_Q3_K, decode_q3_k},   {PL_GGUF_Q4_K, decode_q4_k},     {PL_GGUF_Q5_K, decode_q5_k},
    {PL_GGUF_Q6_K, decode_q6_k},   {PL_GGUF_IQ4_NL, decode_iq4_nl}, {PL_GGUF_IQ4_XS, decode_iq4_xs},
    {PL_GGUF_MXFP4, decode_mxfp4},
};

pl_gguf_decode_fn *pl_gguf_decoder(uint32_t type_id) {
    for (size_t i = 0; i < sizeof decoders / sizeof *decoders; i++)
        if (decoders[i].id == type_id) return decoders[i].decode;
    return NULL;
}
