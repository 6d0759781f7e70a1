/* fuzz_jinja.c - an input as a chat template, and as a few others made of its pieces: tags, names
 * and signs of it moved, doubled and left out, so that most of what is rendered is a program. */
#include "estimator/config/scalar.h"
#include "runtime/data/jinja/jinja.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/mutate.h"

#include <stdlib.h>
#include <string.h>

#define PIECES_MOST 512
#define VARIANTS    3

static const char row[] =
    "{\"messages\":[{\"role\":\"system\",\"content\":\" s\\n\"},{\"role\":\"user\",\"content\":"
    "\"\xC3\xA9 <|x|>\"},{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"function\":{"
    "\"name\":\"f\",\"arguments\":{\"a\":[1,2.5,true,null]}}}]}],\"tools\":[{\"type\":\"function\","
    "\"function\":{\"name\":\"f\",\"parameters\":{}}}],\"add_generation_prompt\":true,"
    "\"bos_token\":\"<s>\",\"eos_token\":\"</s>\"}";

struct piece {
    const char *s;
    size_t n;
};

static bool is_word(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

/* Words, marks of tags, and single characters; texts between tags are one piece each. */
static size_t cut(const char *text, size_t n, struct piece out[PIECES_MOST]) {
    size_t count = 0;
    bool inside = false;
    for (size_t i = 0, end; i < n && count < PIECES_MOST; i = end) {
        bool opens = i + 1 < n && text[i] == '{' && strchr("{%#", text[i + 1]);
        bool closes = i + 1 < n && text[i + 1] == '}' && strchr("}%#", text[i]);
        end = i + 1;
        if (opens || closes) {
            inside = opens;
            end = i + 2;
        } else if (inside && is_word(text[i])) {
            while (end < n && is_word(text[end]))
                end++;
        } else if (!inside) {
            while (end < n && text[end] != '{')
                end++;
        }
        out[count++] = (struct piece){text + i, end - i};
    }
    return count;
}

/* Some pieces in other places. */
static void rearrange(struct piece *p, size_t n, uint64_t *state) {
    for (int i = 0; n && i < 4; i++) {
        size_t a = fuzz_random(state) % n, b = fuzz_random(state) % n;
        struct piece other = p[b];
        switch (fuzz_random(state) % 3) {
        case 0:
            p[b] = p[a];
            p[a] = other;
            break;
        case 1:
            p[a] = other;
            break;
        default:
            p[a].n = 0;
            break;
        }
    }
}

/* G1 of parse.h and R1 of run.h: what is refused has a message. T1 of tree.h and L2 of lex.h: what
 * is read is whole, so that no render leaves its memory. */
static void render(const char *text, size_t n) {
    const struct pl_jinja_inputs day = {.year = 2025, .month = 1, .day = 2};
    struct pl_jinja_inputs in = day;
    struct pl_jinja_memory m = {.arena = {0}};
    struct pl_jinja *program = NULL;
    struct pl_jinja_spans spans = {0};
    struct pl_scan scan = {.text = row, .n = sizeof row - 1};
    struct pl_jinja_value v = {0};
    struct pl_text out = {0};
    struct pl_diag d = {0};
    if (!fuzz_outcome(pl_jinja_parse(text, n, "fuzz", &program, &d), &d)) return;
    pl_jinja_begin(&m);
    FUZZ_CHECK(pl_jinja_read_json(&m, &scan, &v));
    in.variables = v.map;
    bool ok = fuzz_outcome(pl_jinja_render(program, &m, &in, &out, &spans, &d), &d);
    FUZZ_CHECK(out.len <= (8u << 20) + 4 * sizeof row && m.arena.used_bytes <= m.arena.limit_bytes);
    for (size_t i = 0; ok && i < spans.n; i++)
        FUZZ_CHECK(spans.items[i].begin <= spans.items[i].end && spans.items[i].end <= out.len);
    if (ok)
        FUZZ_CHECK(out.len == 0 || pl_utf8_valid(pl_text_str(&out)) ||
                   memchr(out.data, 0, out.len));
    pl_jinja_spans_finish(&spans);
    pl_text_finish(&out);
    pl_jinja_memory_finish(&m);
    pl_jinja_close(&program);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct piece pieces[PIECES_MOST];
    uint64_t state = size;
    char *text = malloc(size + 1);
    FUZZ_CHECK(text != NULL);
    memcpy(text, data, size);
    text[size] = 0;
    for (size_t i = 0; i < size; i++)
        state = state * 31 + data[i];
    bool valid = strlen(text) == size && pl_utf8_valid(text); /* its readers guarantee it */
    if (valid) render(text, size);
    for (int i = 0; valid && i < VARIANTS; i++) {
        struct pl_text variant = {0};
        size_t n = cut(text, size, pieces);
        rearrange(pieces, n, &state);
        for (size_t k = 0; k < n; k++)
            pl_text_addn(&variant, pieces[k].s, pieces[k].n);
        FUZZ_CHECK(!variant.failed);
        if (pl_utf8_valid(pl_text_str(&variant))) render(pl_text_str(&variant), variant.len);
        pl_text_finish(&variant);
    }
    free(text);
    return 0;
}
