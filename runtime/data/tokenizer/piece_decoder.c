/* piece_decoder.c - the steps of a decoder. */
#include "runtime/data/tokenizer/piece_decoder.h"
#include "estimator/base/alloc.h"
#include "runtime/data/tokenizer/byte_chars.h"
#include "runtime/data/tokenizer/utf8.h"

#include <stdlib.h>
#include <string.h>

void pl_piece_decoder_finish(struct pl_piece_decoder *p) {
    for (uint32_t i = 0; i < p->n; i++) {
        pl_pattern_destroy(&p->steps[i].pattern);
        free(p->steps[i].content);
    }
    *p = (struct pl_piece_decoder){0};
}

void pl_piece_list_finish(struct pl_piece_list *list) {
    pl_text_finish(&list->text);
    free(list->ends);
    *list = (struct pl_piece_list){0};
}

/* The text that was appended to list->text since the last piece becomes one. */
static void close_piece(struct pl_piece_list *list) {
    if (list->n == list->cap) {
        size_t cap = list->cap ? 2 * list->cap : 256;
        size_t *ends = pl_realloc(list->ends, cap * sizeof *ends);
        if (!ends) {
            list->failed = true;
            return;
        }
        list->ends = ends;
        list->cap = cap;
    }
    list->ends[list->n++] = list->text.len;
}

void pl_piece_list_add(struct pl_piece_list *list, const char *s, size_t n) {
    pl_text_addn(&list->text, s, n);
    close_piece(list);
}

static const char *piece_at(const struct pl_piece_list *list, size_t i, size_t *n) {
    size_t from = i ? list->ends[i - 1] : 0;
    *n = list->ends[i] - from;
    return pl_text_str(&list->text) + from;
}

/* All pieces as bytes in one piece; one that is not in the alphabet of bytes stands for itself. */
static void decode_bytes(const struct pl_piece_list *from, struct pl_piece_list *to) {
    struct pl_text bytes = {0};
    for (size_t i = 0; i < from->n; i++) {
        size_t n, n_bytes, len = bytes.len;
        const char *s = piece_at(from, i, &n);
        pl_text_addn(&bytes, s, n);
        if (bytes.failed) break;
        if (pl_byte_chars_decode(s, n, bytes.data + len, &n_bytes))
            bytes.len = len + n_bytes;
        else
            memcpy(bytes.data + len, s, n);
    }
    pl_utf8_repair(&to->text, pl_text_str(&bytes), bytes.len);
    to->failed |= bytes.failed;
    pl_text_finish(&bytes);
    close_piece(to);
}

static pl_err replace(const struct pl_decoder_step *step, struct pl_pattern_scratch *ps,
                      const struct pl_piece_list *from, struct pl_piece_list *to,
                      struct pl_diag *d) {
    for (size_t i = 0; i < from->n; i++) {
        size_t n, done = 0;
        const char *s = piece_at(from, i, &n);
        struct pl_pattern_walk w = {0};
        for (;;) {
            if (n) PL_TRY(pl_pattern_next(step->pattern, ps, s, n, &w, d));
            pl_text_addn(&to->text, s + done, (w.found ? w.begin : n) - done);
            if (!w.found) break;
            pl_text_addn(&to->text, step->content, step->n_content);
            done = w.end;
        }
        close_piece(to);
    }
    return PL_ERR_OK;
}

static int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* "<0x41>" -> 0x41, else -1. The number may be signed, as in the library: "<0x+A>". */
static int byte_of_piece(const char *s, size_t n) {
    if (n != 6 || memcmp(s, "<0x", 3) != 0 || s[5] != '>') return -1;
    int high = s[3] == '+' ? 0 : hex_digit(s[3]), low = hex_digit(s[4]);
    return high < 0 || low < 0 ? -1 : high << 4 | low;
}

/* A run of bytes that is not UTF-8 as a whole gives U+FFFD for every byte of it. */
static void flush_bytes(struct pl_text *run, struct pl_piece_list *to) {
    if (!run->len) return;
    if (pl_utf8_valid_bytes(run->data, run->len) == run->len)
        pl_piece_list_add(to, run->data, run->len);
    else
        for (size_t i = 0; i < run->len; i++)
            pl_piece_list_add(to, "\xEF\xBF\xBD", 3);
    run->len = 0;
}

static void fall_back(const struct pl_piece_list *from, struct pl_piece_list *to) {
    struct pl_text run = {0};
    for (size_t i = 0; i < from->n; i++) {
        size_t n;
        const char *s = piece_at(from, i, &n);
        int byte = byte_of_piece(s, n);
        if (byte >= 0) {
            pl_text_addn(&run, &(char){(char)byte}, 1);
            continue;
        }
        flush_bytes(&run, to);
        pl_piece_list_add(to, s, n);
    }
    flush_bytes(&run, to);
    to->failed |= run.failed;
    pl_text_finish(&run);
}

static bool is_character(const struct pl_decoder_step *step, const char *s, size_t n) {
    return n >= step->n_character && memcmp(s, step->character, step->n_character) == 0;
}

/* Strips up to `start` of the character at the beginning, up to `stop` at the end. */
static void strip(const struct pl_decoder_step *step, const struct pl_piece_list *from,
                  struct pl_piece_list *to) {
    for (size_t i = 0; i < from->n; i++) {
        size_t n, k = step->n_character;
        const char *s = piece_at(from, i, &n);
        for (uint32_t j = 0; j < step->start && is_character(step, s, n); j++) {
            s += k;
            n -= k;
        }
        for (uint32_t j = 0; j < step->stop && n >= k && is_character(step, s + n - k, k); j++)
            n -= k;
        pl_piece_list_add(to, s, n);
    }
}

static void unspace(const struct pl_decoder_step *step, const struct pl_piece_list *from,
                    struct pl_piece_list *to) {
    for (size_t i = 0; i < from->n; i++) {
        size_t n;
        const char *s = piece_at(from, i, &n);
        while (n) {
            size_t k = pl_utf8_length(*s);
            if (!is_character(step, s, n))
                pl_text_addn(&to->text, s, k);
            else if (i || !step->drops_first)
                pl_text_addn(&to->text, " ", 1);
            s += k;
            n -= k;
        }
        close_piece(to);
    }
}

static pl_err run_step(const struct pl_decoder_step *step, struct pl_pattern_scratch *ps,
                       const struct pl_piece_list *from, struct pl_piece_list *to,
                       struct pl_diag *d) {
    switch (step->kind) {
    case PL_DECODER_BYTE_LEVEL:
        decode_bytes(from, to);
        break;
    case PL_DECODER_REPLACE:
        return replace(step, ps, from, to, d);
    case PL_DECODER_BYTE_FALLBACK:
        fall_back(from, to);
        break;
    case PL_DECODER_FUSE:
        pl_piece_list_add(to, pl_text_str(&from->text), from->text.len);
        break;
    case PL_DECODER_STRIP:
        strip(step, from, to);
        break;
    case PL_DECODER_METASPACE:
        unspace(step, from, to);
        break;
    }
    return PL_ERR_OK;
}

static pl_err no_memory(struct pl_diag *d) {
    return pl_host_oom(d, "decoded tokens");
}

static pl_err run_steps(const struct pl_piece_decoder *p, struct pl_pattern_scratch *ps,
                        struct pl_piece_list *list, struct pl_diag *d) {
    for (uint32_t i = 0; i < p->n; i++) {
        struct pl_piece_list next = {0};
        pl_err err = run_step(&p->steps[i], ps, list, &next, d);
        pl_piece_list_finish(list);
        *list = next;
        if (err != PL_ERR_OK) return err;
        if (next.failed || next.text.failed) return no_memory(d);
    }
    return PL_ERR_OK;
}

static void join(const struct pl_piece_list *list, const char *between, struct pl_text *out) {
    for (size_t i = 0; i < list->n; i++) {
        size_t n;
        const char *s = piece_at(list, i, &n);
        if (i) pl_text_add(out, between);
        pl_text_addn(out, s, n);
    }
}

pl_err pl_piece_decoder_run(const struct pl_piece_decoder *p, struct pl_piece_list *list,
                            struct pl_text *out, struct pl_diag *d) {
    struct pl_pattern_scratch *ps = NULL;
    pl_err err;
    if (list->failed || list->text.failed) return no_memory(d);
    PL_TRY_GOTO(pl_pattern_scratch_create(&ps, d), out);
    pl_pattern_begin_text(ps, list->text.len);
    PL_TRY_GOTO(run_steps(p, ps, list, d), out);
    join(list, p->n ? "" : " ", out);
    if (out->failed) err = no_memory(d);
out:
    pl_pattern_scratch_destroy(&ps);
    return err;
}
