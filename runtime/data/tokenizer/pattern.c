/* pattern.c - matching by PCRE2, and by plain search where the pattern is a plain string. */
#include "runtime/data/tokenizer/pattern.h"
#include "estimator/base/alloc.h"
#include "runtime/data/tokenizer/regex_translate.h"
#include "runtime/data/tokenizer/utf8.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

/* A repeated group keeps a frame per repetition; a megabyte of text may be one match. */
#define JIT_STACK_LEAST ((size_t)64 << 10)
#define JIT_STACK_MOST  ((size_t)64 << 20)
#define HEAP_MOST_KIB   (512u << 10)

/* The quick code sees so many bytes at a time and takes so many steps: nearly all words are found
 * within both, and work within both is in proportion to the text. */
#define QUICK_BYTES 256u
#define QUICK_STEPS 256u

struct code {
    pcre2_code *code;
    bool jit;
};

struct pl_pattern {
    struct code quick;   /* no code: a plain string */
    struct code counted; /* the same, reports every item of the pattern that it comes to */
    size_t n;
    char s[]; /* [n], the plain string */
};

struct pl_pattern_scratch {
    pcre2_match_data *data;
    pcre2_match_context *quick, *counted;
    pcre2_jit_stack *stack;
    uint64_t work_left; /* of the text at hand */
    size_t at;          /* where the counted code was last */
};

static pl_err no_memory(struct pl_diag *d) {
    return pl_host_oom(d, "a pattern");
}

pl_err pl_pattern_literal(struct pl_pattern **out, const char *s, size_t n, struct pl_diag *d) {
    struct pl_pattern *p = pl_malloc(sizeof *p + n);
    *out = p;
    if (!p) return no_memory(d);
    *p = (struct pl_pattern){.n = n};
    memcpy(p->s, s, n);
    return PL_ERR_OK;
}

static pl_err compile(struct code *to, const struct pl_text *regex, uint32_t options,
                      struct pl_diag *d) {
    int code = 0;
    PCRE2_SIZE where = 0;
    PCRE2_UCHAR message[160];
    pcre2_compile_context *context = pcre2_compile_context_create(NULL);
    if (!context) return no_memory(d);
    pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    options |= PCRE2_UTF | PCRE2_UCP | PCRE2_NO_AUTO_CAPTURE;
    to->code =
        pcre2_compile((PCRE2_SPTR)pl_text_str(regex), regex->len, options, &code, &where, context);
    pcre2_compile_context_free(context);
    if (!to->code && code == PCRE2_ERROR_HEAP_FAILED) return no_memory(d);
    if (!to->code) {
        pcre2_get_error_message(code, message, sizeof message);
        return pl_diag_set(d, PL_ERR_TOKENIZER_FIELD, "a regular expression does not compile: %s",
                           (const char *)message);
    }
    /* without a JIT the interpreter does the same, slower */
    to->jit = pcre2_jit_compile(to->code, PCRE2_JIT_COMPLETE | PCRE2_JIT_PARTIAL_HARD) == 0;
    return PL_ERR_OK;
}

pl_err pl_pattern_compile(struct pl_pattern **out, const char *regex, size_t n, struct pl_diag *d) {
    struct pl_text translated = {0};
    pl_err err;
    *out = NULL;
    if (n > PL_PATTERN_MOST_BYTES)
        return pl_diag_set(d, PL_ERR_TOKENIZER_FIELD, "a regular expression of %zu bytes", n);
    PL_TRY_GOTO(pl_regex_translate(regex, n, &translated, d), out);
    *out = pl_calloc(1, sizeof **out);
    err = *out ? compile(&(*out)->quick, &translated, 0, d) : no_memory(d);
    if (err == PL_ERR_OK) err = compile(&(*out)->counted, &translated, PCRE2_AUTO_CALLOUT, d);
    if (err != PL_ERR_OK) pl_pattern_destroy(out);
out:
    pl_text_finish(&translated);
    return err;
}

void pl_pattern_destroy(struct pl_pattern **p) {
    if (*p) {
        pcre2_code_free((*p)->quick.code);
        pcre2_code_free((*p)->counted.code);
    }
    free(*p);
    *p = NULL;
}

pl_err pl_pattern_scratch_create(struct pl_pattern_scratch **out, struct pl_diag *d) {
    *out = pl_calloc(1, sizeof **out);
    if (!*out) return no_memory(d);
    pl_pattern_begin_text(*out, 0);
    return PL_ERR_OK;
}

void pl_pattern_begin_text(struct pl_pattern_scratch *s, size_t n) {
    s->work_left = PL_PATTERN_MOST_WORK + (uint64_t)n * PL_PATTERN_BYTE_WORK;
}

/* Counts the step to an item of the pattern, and the bytes that lie between it and the last. */
static int count_work(pcre2_callout_block *block, void *ctx) {
    struct pl_pattern_scratch *s = ctx;
    const size_t at = block->current_position;
    const uint64_t work = 1 + (at > s->at ? at - s->at : s->at - at);
    s->at = at;
    if (work > s->work_left) return PCRE2_ERROR_MATCHLIMIT;
    s->work_left -= work;
    return 0;
}

static pcre2_match_context *make_context(const struct pl_pattern_scratch *s, uint32_t steps) {
    pcre2_match_context *context = pcre2_match_context_create(NULL);
    if (!context) return NULL;
    if (s->stack) pcre2_jit_stack_assign(context, NULL, s->stack);
    pcre2_set_match_limit(context, steps);
    pcre2_set_heap_limit(context, HEAP_MOST_KIB);
    return context;
}

/* Left to the first regular expression: plain strings, all that most decoders know, need none. */
static pl_err prepare(struct pl_pattern_scratch *s, struct pl_diag *d) {
    if (s->counted) return PL_ERR_OK;
    if (!s->data) s->data = pcre2_match_data_create(1, NULL);
    if (!s->data) return no_memory(d);
    /* no stack: a build of PCRE2 without JIT */
    if (!s->stack) s->stack = pcre2_jit_stack_create(JIT_STACK_LEAST, JIT_STACK_MOST, NULL);
    if (!s->quick) s->quick = make_context(s, QUICK_STEPS);
    s->counted = s->quick ? make_context(s, UINT32_MAX) : NULL;
    if (!s->counted) return no_memory(d);
    pcre2_set_callout(s->counted, count_work, s);
    return PL_ERR_OK;
}

void pl_pattern_scratch_destroy(struct pl_pattern_scratch **s) {
    if (*s) {
        pcre2_match_data_free((*s)->data);
        pcre2_match_context_free((*s)->quick);
        pcre2_match_context_free((*s)->counted);
        pcre2_jit_stack_free((*s)->stack);
    }
    free(*s);
    *s = NULL;
}

/* >= 0 with a match in the scratch, PCRE2_ERROR_NOMATCH, or another error. */
static int run(const struct code *c, struct pl_pattern_scratch *s, pcre2_match_context *context,
               const char *text, size_t n, size_t from, uint32_t options) {
    if (c->jit)
        return pcre2_jit_match(c->code, (PCRE2_SPTR)text, n, from, options, s->data, context);
    return pcre2_match(c->code, (PCRE2_SPTR)text, n, from, options | PCRE2_NO_UTF_CHECK, s->data,
                       context);
}

/* Tries a few bytes, where a match counts that needs to see no more; then all, counting. */
static int run_both(const struct pl_pattern *p, struct pl_pattern_scratch *s, const char *text,
                    size_t n, size_t from) {
    size_t until = n;
    if (n - from > QUICK_BYTES)
        for (until = from + QUICK_BYTES; ((unsigned char)text[until] & 0xC0) == 0x80;)
            until--;
    int rc = run(&p->quick, s, s->quick, text, until, from, until < n ? PCRE2_PARTIAL_HARD : 0);
    if (rc >= 0 || (rc == PCRE2_ERROR_NOMATCH && until == n)) return rc;
    s->at = from;
    return run(&p->counted, s, s->counted, text, n, from, 0);
}

static pl_err search_regex(const struct pl_pattern *p, struct pl_pattern_scratch *s,
                           const char *text, size_t n, struct pl_pattern_walk *w,
                           struct pl_diag *d) {
    PL_TRY(prepare(s, d));
    int rc = run_both(p, s, text, n, w->from);
    w->found = rc >= 0;
    if (rc == PCRE2_ERROR_NOMATCH) return PL_ERR_OK;
    if (rc < 0) {
        PCRE2_UCHAR message[160];
        pcre2_get_error_message(rc, message, sizeof message);
        return pl_diag_set(d, PL_ERR_TOKENIZER_INPUT,
                           "the tokenizer's regular expression gave up on this text: %s",
                           (const char *)message);
    }
    const PCRE2_SIZE *at = pcre2_get_ovector_pointer(s->data);
    w->begin = at[0];
    w->end = at[1];
    return PL_ERR_OK;
}

static void search_literal(const struct pl_pattern *p, const char *text, size_t n,
                           struct pl_pattern_walk *w) {
    const char *hit = p->n == 1 ? memchr(text + w->from, p->s[0], n - w->from)
                                : memmem(text + w->from, n - w->from, p->s, p->n);
    w->found = hit != NULL;
    if (!hit) return;
    w->begin = (size_t)(hit - text);
    w->end = w->begin + p->n;
}

pl_err pl_pattern_next(const struct pl_pattern *p, struct pl_pattern_scratch *s, const char *text,
                       size_t n, struct pl_pattern_walk *w, struct pl_diag *d) {
    size_t last = w->end;
    for (;;) {
        w->found = false;
        if (w->from > n) return PL_ERR_OK;
        if (!p->quick.code)
            search_literal(p, text, n, w);
        else
            PL_TRY(search_regex(p, s, text, n, w, d));
        if (!w->found) {
            w->from = n + 1;
            return PL_ERR_OK;
        }
        if (w->begin < w->end || !w->any || w->end != last) break;
        w->from += w->from < n ? pl_utf8_length(text[w->from]) : 1;
    }
    w->any = true;
    w->from = w->end;
    return PL_ERR_OK;
}
