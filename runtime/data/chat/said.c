#include "runtime/data/chat/said.h"
#include "runtime/data/jinja/chars.h"

#include <stdint.h>
#include <string.h>

static const char *const modes[] = {"<think>", "</think>", "/no_think", "/nothink", "/think"};

size_t pl_chat_find_said(const char *text, size_t n, const char *said, size_t m, size_t *length) {
    struct pl_jinja_value v = pl_jinja_string(said, m);
    pl_jinja_strip(&v, NULL, true, true);
    *length = v.n;
    const ptrdiff_t at = pl_jinja_find(text, n, v.s, v.n);
    return at < 0 ? SIZE_MAX : (size_t)at;
}

static bool is_of_word(char c) {
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
           (unsigned char)c >= 0x80;
}

/* The length of the mode that s[0, n) begins with, 0 = none. */
static size_t mode_at(const char *s, size_t n) {
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        const size_t length = strlen(modes[i]);
        if (length <= n && memcmp(s, modes[i], length) == 0) return length;
    }
    return 0;
}

/* The next word at s[*at, n) or later; 0 = there is none. */
static size_t next_word(const char *s, size_t n, size_t *at) {
    while (*at < n && !is_of_word(s[*at])) {
        const size_t mode = mode_at(s + *at, n - *at);
        *at += mode ? mode : 1;
    }
    size_t end = *at;
    while (end < n && is_of_word(s[end]))
        end++;
    return end - *at;
}

bool pl_chat_has_words(const char *text, size_t n, const char *said, size_t m, size_t *from) {
    size_t at = 0, length;
    while ((length = next_word(said, m, &at)) != 0) {
        const ptrdiff_t found = pl_jinja_find(text + *from, n - *from, said + at, length);
        if (found < 0) return false;
        *from += (size_t)found + length;
        at += length;
    }
    return true;
}

bool pl_chat_is_said(const char *text, size_t n, const char *said, size_t m) {
    size_t length, from = 0;
    return pl_chat_find_said(text, n, said, m, &length) != SIZE_MAX ||
           pl_chat_has_words(text, n, said, m, &from);
}
