/* recompute.c - words, numbers and levels of gradient_checkpointing. */
#include "estimator/config/recompute.h"

#include "estimator/config/scalar.h"

#include <string.h>

static const char *const names[PL_RECOMPUTE_PLAIN] = {"none",      "light", "mlp",
                                                      "attention", "full",  "offload"};

static uint32_t mix_first(uint32_t v) {
    return v >> 20 & 15;
}
static uint32_t mix_rest(uint32_t v) {
    return v >> 16 & 15;
}
static uint32_t mix_layers(uint32_t v) {
    return v & 0xffff;
}

uint32_t pl_recompute_of_layer(uint32_t value, uint64_t layer) {
    if (value >= PL_RECOMPUTE_MIXED)
        return layer < mix_layers(value) ? mix_first(value) : mix_rest(value);
    if (value < PL_RECOMPUTE_AUTO) return value;
    return layer % (value - PL_RECOMPUTE_EVERY) == 0 ? PL_RECOMPUTE_FULL : PL_RECOMPUTE_NONE;
}

bool pl_recompute_offloads(uint32_t value) {
    return value != PL_RECOMPUTE_AUTO && pl_recompute_of_layer(value, 0) == PL_RECOMPUTE_OFFLOAD;
}

/* The level that the first n bytes name, PL_RECOMPUTE_PLAIN for none. */
static uint32_t plain_level(const char *word, size_t n) {
    uint32_t i = 0;
    while (i < PL_RECOMPUTE_PLAIN && (strncmp(word, names[i], n) != 0 || names[i][n]))
        i++;
    return i;
}

/* n digits as a number of layers. */
static enum pl_recompute_word layers(const char *text, size_t n, uint32_t *out) {
    char digits[32];
    uint64_t v = 0;
    if (n == 0 || n >= sizeof digits || strspn(text, "0123456789") < n) return PL_RECOMPUTE_UNKNOWN;
    memcpy(digits, text, n);
    digits[n] = 0;
    enum pl_int r = pl_scalar_int(digits, &v);
    if (r != PL_INT_OK || v < 1 || v > PL_RECOMPUTE_LAYERS_MAX) return PL_RECOMPUTE_OUTSIDE;
    *out = (uint32_t)v;
    return PL_RECOMPUTE_READ;
}

static enum pl_recompute_word parse_mix(const char *word, uint32_t *value) {
    const char *colon = strchr(word, ':');
    if (!colon) return PL_RECOMPUTE_UNKNOWN;
    size_t digits = strcspn(colon + 1, "+");
    const char *plus = colon + 1 + digits;
    uint32_t k = 0, first = plain_level(word, (size_t)(colon - word));
    uint32_t rest = *plus ? plain_level(plus + 1, strlen(plus + 1)) : PL_RECOMPUTE_NONE;
    if (first >= PL_RECOMPUTE_PLAIN || rest >= PL_RECOMPUTE_PLAIN) return PL_RECOMPUTE_UNKNOWN;
    const enum pl_recompute_word read = layers(colon + 1, digits, &k);
    if (read != PL_RECOMPUTE_READ) return read;
    if (rest == PL_RECOMPUTE_OFFLOAD && first != rest) return PL_RECOMPUTE_OFFLOAD_LAST;
    *value = first == rest ? first : PL_RECOMPUTE_MIX(first, k, rest);
    return PL_RECOMPUTE_READ;
}

enum pl_recompute_word pl_recompute_parse(const char *word, uint32_t *value) {
    static const char every[] = "every_";
    uint32_t n = 0, level = plain_level(word, strlen(word));
    if (level < PL_RECOMPUTE_PLAIN || strcmp(word, "auto") == 0) {
        *value = level < PL_RECOMPUTE_PLAIN ? level : PL_RECOMPUTE_AUTO;
        return PL_RECOMPUTE_READ;
    }
    if (strncmp(word, every, sizeof every - 1) != 0) return parse_mix(word, value);
    word += sizeof every - 1;
    const enum pl_recompute_word read = layers(word, strlen(word), &n);
    if (read == PL_RECOMPUTE_READ) *value = PL_RECOMPUTE_EVERY_N(n);
    return read;
}

void pl_recompute_print(uint32_t value, struct pl_text *out) {
    if (value >= PL_RECOMPUTE_MIXED) {
        pl_text_addf(out, "%s:%u", names[mix_first(value)], mix_layers(value));
        if (mix_rest(value) != PL_RECOMPUTE_NONE) pl_text_addf(out, "+%s", names[mix_rest(value)]);
    } else if (value > PL_RECOMPUTE_EVERY) {
        pl_text_addf(out, "every_%u", value - PL_RECOMPUTE_EVERY);
    } else {
        pl_text_add(out, value == PL_RECOMPUTE_AUTO ? "auto" : names[value]);
    }
}
