/* utf8.c - UTF-8 in and out, and classes of characters. */
#include "runtime/data/tokenizer/utf8.h"

#include <string.h>
#include <utf8proc.h>

size_t pl_utf8_put(uint32_t c, char out[4]) {
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    size_t n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (size_t i = n; i-- > 1; c >>= 6)
        out[i] = (char)(0x80 | (c & 0x3F));
    static const unsigned char lead[] = {0, 0, 0xC0, 0xE0, 0xF0};
    out[0] = (char)(lead[n] | c);
    return n;
}

/* The well-formed character at s[0, n), or the longest beginning of one: its bytes, and in *ok
 * whether it is complete. Ranges of the second byte keep out overlong forms, surrogates and what
 * lies above U+10FFFF (Unicode 15, table 3-7). */
static size_t scan_character(const unsigned char *s, size_t n, bool *ok) {
    unsigned char b = s[0];
    *ok = b < 0x80;
    if (b < 0x80 || b < 0xC2 || b > 0xF4) return 1;
    size_t length = pl_utf8_length((char)b);
    unsigned char low = b == 0xE0 ? 0xA0 : b == 0xF0 ? 0x90 : 0x80;
    unsigned char high = b == 0xED ? 0x9F : b == 0xF4 ? 0x8F : 0xBF;
    for (size_t i = 1; i < length; i++) {
        if (i == n || s[i] < low || s[i] > high) return i;
        low = 0x80;
        high = 0xBF;
    }
    *ok = true;
    return length;
}

size_t pl_utf8_valid_bytes(const char *s, size_t n) {
    size_t i = 0;
    uint64_t eight;
    while (i < n) {
        if (n - i >= 8 && (memcpy(&eight, s + i, 8), !(eight & UINT64_C(0x8080808080808080)))) {
            i += 8;
            continue;
        }
        bool ok;
        size_t length = scan_character((const unsigned char *)s + i, n - i, &ok);
        if (!ok) return i;
        i += length;
    }
    return n;
}

void pl_utf8_repair(struct pl_text *out, const char *s, size_t n) {
    while (n) {
        size_t good = pl_utf8_valid_bytes(s, n);
        pl_text_addn(out, s, good);
        if (good == n) return;
        bool ok;
        size_t bad = scan_character((const unsigned char *)s + good, n - good, &ok);
        pl_text_addn(out, "\xEF\xBF\xBD", 3);
        s += good + bad;
        n -= good + bad;
    }
}

bool pl_utf8_is_space(uint32_t c) {
    if (c < 0x80) return c == ' ' || (c >= 0x09 && c <= 0x0D);
    return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 ||
           c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool pl_utf8_is_numeric(uint32_t c) {
    if (c < 0x80) return c >= '0' && c <= '9';
    utf8proc_category_t k = utf8proc_category((utf8proc_int32_t)c);
    return k == UTF8PROC_CATEGORY_ND || k == UTF8PROC_CATEGORY_NL || k == UTF8PROC_CATEGORY_NO;
}

/* Alphabetic beyond letters, marks and letter-numbers: the circled and squared letters (So). */
static bool is_alphabetic_symbol(uint32_t c) {
    return (c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) ||
           (c >= 0x1F150 && c <= 0x1F169) || (c >= 0x1F170 && c <= 0x1F189);
}

bool pl_utf8_is_word(uint32_t c) {
    switch (utf8proc_category((utf8proc_int32_t)c)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
        return true;
    default:
        return c == 0x200C || c == 0x200D || is_alphabetic_symbol(c);
    }
}
