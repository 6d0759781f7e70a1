#include "estimator/gguf/gguf_value.h"

#include <string.h>

static const struct {
    size_t bytes;
    bool number, negative, real;
} kinds[PL_GGUF_KINDS] = {
    [PL_GGUF_UINT8] = {1, true, false, false},   [PL_GGUF_INT8] = {1, true, true, false},
    [PL_GGUF_UINT16] = {2, true, false, false},  [PL_GGUF_INT16] = {2, true, true, false},
    [PL_GGUF_UINT32] = {4, true, false, false},  [PL_GGUF_INT32] = {4, true, true, false},
    [PL_GGUF_FLOAT32] = {4, false, false, true}, [PL_GGUF_BOOL] = {1, false, false, false},
    [PL_GGUF_UINT64] = {8, true, false, false},  [PL_GGUF_INT64] = {8, true, true, false},
    [PL_GGUF_FLOAT64] = {8, false, false, true},
};

size_t pl_gguf_kind_bytes(uint32_t kind) {
    return kind < PL_GGUF_KINDS ? kinds[kind].bytes : 0;
}

uint64_t pl_gguf_load(const unsigned char *at, size_t bytes) {
    uint64_t v = 0;
    for (size_t i = 0; i < bytes; i++)
        v |= (uint64_t)at[i] << 8 * i;
    return v;
}

bool pl_gguf_uint_at(const struct pl_gguf_value *v, uint64_t i, uint64_t *out) {
    if (!v || !kinds[v->kind].number || i >= v->n) return false;
    const size_t bytes = kinds[v->kind].bytes;
    const uint64_t bits = pl_gguf_load(v->at + i * bytes, bytes);
    if (kinds[v->kind].negative && bits >> (8 * bytes - 1)) return false;
    *out = bits;
    return true;
}

bool pl_gguf_real_at(const struct pl_gguf_value *v, uint64_t i, double *out) {
    if (!v || i >= v->n) return false;
    if (!kinds[v->kind].real) {
        uint64_t whole;
        if (!pl_gguf_uint_at(v, i, &whole)) return false;
        *out = (double)whole;
        return true;
    }
    if (v->kind == PL_GGUF_FLOAT64) {
        const uint64_t bits = pl_gguf_load(v->at + 8 * i, 8);
        memcpy(out, &bits, sizeof bits);
        return true;
    }
    const uint32_t bits = (uint32_t)pl_gguf_load(v->at + 4 * i, 4);
    float real;
    memcpy(&real, &bits, sizeof bits);
    *out = (double)real;
    return true;
}

bool pl_gguf_uint(const struct pl_gguf_value *v, uint64_t *out) {
    return v && !v->list && pl_gguf_uint_at(v, 0, out);
}

bool pl_gguf_real(const struct pl_gguf_value *v, double *out) {
    return v && !v->list && pl_gguf_real_at(v, 0, out);
}

bool pl_gguf_bool(const struct pl_gguf_value *v, bool *out) {
    if (!v || v->list || v->kind != PL_GGUF_BOOL) return false;
    *out = *v->at != 0;
    return true;
}

struct pl_gguf_strings pl_gguf_strings(const struct pl_gguf_value *v) {
    if (!v || v->kind != PL_GGUF_STRING) return (struct pl_gguf_strings){0};
    return (struct pl_gguf_strings){v->at, v->n};
}

bool pl_gguf_next_string(struct pl_gguf_strings *list, struct pl_gguf_string *out) {
    if (!list->left) return false;
    out->n = (size_t)pl_gguf_load(list->at, 8);
    out->s = (const char *)list->at + 8;
    list->at += 8 + out->n;
    list->left--;
    return true;
}

bool pl_gguf_string(const struct pl_gguf_value *v, struct pl_gguf_string *out) {
    if (!v || v->list) return false;
    struct pl_gguf_strings one = pl_gguf_strings(v);
    return pl_gguf_next_string(&one, out);
}

bool pl_gguf_string_is(const struct pl_gguf_value *v, const char *text) {
    struct pl_gguf_string s;
    return pl_gguf_string(v, &s) && s.n == strlen(text) && memcmp(s.s, text, s.n) == 0;
}
