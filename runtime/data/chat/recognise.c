/* recognise.c - from the Jinja text of a model to the template it is. */
#include "runtime/data/chat/render.h"

#include <string.h>

static bool is_space(char c) {
    return c == ' ' || (c >= '\t' && c <= '\r');
}

uint64_t pl_chat_hash(const char *jinja) {
    uint64_t h = UINT64_C(0xCBF29CE484222325);
    size_t n = strlen(jinja), i = 0;
    while (n && is_space(jinja[n - 1]))
        n--;
    while (i < n && is_space(jinja[i]))
        i++;
    for (; i < n; i++) {
        if (jinja[i] == '\r' && jinja[i + 1] == '\n') continue;
        h = (h ^ (unsigned char)jinja[i]) * UINT64_C(0x100000001B3);
    }
    return h;
}

static const struct {
    uint64_t hash;
    const char *name;
} known[] = {
    {UINT64_C(0x7E590815EE259E6E), "alpaca"},
    {UINT64_C(0x773D13E188AFC917), "chatml"},
    {UINT64_C(0xF344EECF1BD3A427), "llama2"},
    {UINT64_C(0x0E60067A5537498E), "llama3"},
    {UINT64_C(0xCC0368E1FFB6B958), "llama31"},
    {UINT64_C(0x368F4C34B8554414), "llama32"},
    {UINT64_C(0x2487E6E79D6345CF), "mistral"},
    {UINT64_C(0x6C80E109D6684772), "mistral_small3"},
    {UINT64_C(0xD1B216BCA15950AD), "mistral_sysfirst"},
    {UINT64_C(0xD6A2D985B28CA308), "phi4_mini"},
    {UINT64_C(0xE642CE246D7F2E3D), "qwen25"},
    {UINT64_C(0x16BC91FC7006A16D), "qwen25_base"},
    {UINT64_C(0x959A4551391A6549), "qwen3"},
    {UINT64_C(0x45EC583D4D25BC3A), "smollm2"},
    {UINT64_C(0x922AED61146E1BFE), "smollm3"},
    {UINT64_C(0xCD8B49000DB02C2C), "zephyr"},
};

const struct pl_chat_template *pl_chat_recognise(const char *jinja) {
    uint64_t h = pl_chat_hash(jinja);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i].hash == h) return pl_chat_find(known[i].name);
    return NULL;
}
