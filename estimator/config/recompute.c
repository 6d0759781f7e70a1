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

/* The level that the first n bytes name, PL_RECOMPUTE_PLAIN for none. */
static uint32_t plain_level(const char *word, size_t n) {
    uint32_t i = 0;
    while (i < PL_RECOMPUTE_PLAIN && (strncmp(word, names[i], n) != 0 || names[i][n]))
        i++;
    return i;
}

/* n digits as a number of layers. */
static bool layers(const char *text, size_t n, uint32_t *out, bool *outside) {
    char digits[32];
    uint64_t v = 0;
    if (n == 0 || n >= sizeof digits || strspn(text, "0123456789") < n) return false;
    memcpy(digits, text, n);
    digits[n] = 0;
    enum pl_int r = pl_scalar_int(digits, &v);
    *outside = r != PL_INT_OK || v < 1 || v > PL_RECOMPUTE_LAYERS_MAX;
    *out = (uint32_t)v;
    return true;
}

static bool parse_mix(const char *word, uint32_t *value, bool *outside) {
    const char *colon = strchr(word, ':');
    if (!colon) return false;
    size_t digits = strcspn(colon + 1, "+");
    const char *plus = colon + 1 + digits;
    uint32_t k, first = plain_level(word, (size_t)(colon - word));
    uint32_t rest = *plus ? plain_level(plus + 1, strlen(plus + 1)) : PL_RECOMPUTE_NONE;
    if (first >= PL_RECOMPUTE_OFFLOAD || rest >= PL_RECOMPUTE_OFFLOAD ||
        !layers(colon + 1, digits, &k, outside))
        return false;
    *value = first == rest ? first : PL_RECOMPUTE_MIX(first, k, rest);
    return true;
}

bool pl_recompute_parse(const char *word, uint32_t *value, bool *outside) {
    static const char every[] = "every_";
    uint32_t n, level = plain_level(word, strlen(word));
    *outside = false;
    if (level < PL_RECOMPUTE_PLAIN || strcmp(word, "auto") == 0) {
        *value = level < PL_RECOMPUTE_PLAIN ? level : PL_RECOMPUTE_AUTO;
        return true;
    }
    if (strncmp(word, every, sizeof every - 1) != 0) return parse_mix(word, value, outside);
    word += sizeof every - 1;
    if (!layers(word, strlen(word), &n, outside)) return false;
    *value = PL_RECOMPUTE_EVERY_N(n);
    return true;
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
