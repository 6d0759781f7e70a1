/* utf8.h - characters of UTF-8 text and the three classes of them that tokenizers ask for.
 *
 * In: bytes.  Out: code points, classes, repaired text.  Needs: base, utf8proc (categories).
 *   U1  classes are those of Unicode's properties, not of the C locale
 * pl_utf8_next reads text that pl_utf8_valid_bytes accepted; nothing else is safe to give it.
 * Use: for (size_t i = 0; i < n; i += pl_utf8_next(s + i, &c)) ... */
#ifndef PL_RUNTIME_DATA_TOKENIZER_UTF8_H
#define PL_RUNTIME_DATA_TOKENIZER_UTF8_H

#include "estimator/base/text.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes of the character that begins with `lead`, in valid text. */
static inline size_t pl_utf8_length(char lead) {
    unsigned char b = (unsigned char)lead;
    return b < 0x80 ? 1 : b < 0xE0 ? 2 : b < 0xF0 ? 3 : 4;
}

/* The character at s into *c; returns its bytes. */
static inline size_t pl_utf8_next(const char *s, uint32_t *c) {
    const unsigned char *b = (const unsigned char *)s;
    switch (pl_utf8_length(*s)) {
    case 1:
        *c = b[0];
        return 1;
    case 2:
        *c = (uint32_t)(b[0] & 0x1F) << 6 | (b[1] & 0x3F);
        return 2;
    case 3:
        *c = (uint32_t)(b[0] & 0x0F) << 12 | (uint32_t)(b[1] & 0x3F) << 6 | (b[2] & 0x3F);
        return 3;
    default:
        *c = (uint32_t)(b[0] & 0x07) << 18 | (uint32_t)(b[1] & 0x3F) << 12 |
             (uint32_t)(b[2] & 0x3F) << 6 | (b[3] & 0x3F);
        return 4;
    }
}

/* The first byte of the character before byte `at` (at > 0). */
static inline size_t pl_utf8_before(const char *s, size_t at) {
    do
        at--;
    while (at && ((unsigned char)s[at] & 0xC0) == 0x80);
    return at;
}

size_t pl_utf8_put(uint32_t c, char out[4]); /* returns the bytes written */
/* Bytes of s[0, n) up to the first that is not UTF-8: n when all of it is. */
size_t pl_utf8_valid_bytes(const char *s, size_t n);
/* Appends s[0, n) with U+FFFD for every maximal ill-formed part (Unicode 15, table 3-8). */
void pl_utf8_repair(struct pl_text *out, const char *s, size_t n);

bool pl_utf8_is_space(uint32_t c);   /* White_Space */
bool pl_utf8_is_numeric(uint32_t c); /* general category N */
bool pl_utf8_is_word(uint32_t c);    /* UTS 18, annex C: Alphabetic, M, Nd, Pc, Join_Control */

#endif
