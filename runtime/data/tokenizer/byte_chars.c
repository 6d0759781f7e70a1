/* byte_chars.c - bytes as printable characters. */
#include "runtime/data/tokenizer/byte_chars.h"
#include "runtime/data/tokenizer/utf8.h"

/* The three ranges that stand for others are 0x00-0x20, 0x7F-0xA0 and 0xAD. */
uint32_t pl_byte_char(uint8_t byte) {
    if (byte <= 0x20) return 0x100u + byte;
    if (byte >= 0x7F && byte <= 0xA0) return 0x121u + (byte - 0x7Fu);
    return byte == 0xAD ? 0x143u : byte;
}

/* -1: the character stands for no byte. */
static int byte_of(uint32_t c) {
    if (c >= 0x100 && c <= 0x120) return (int)(c - 0x100);
    if (c >= 0x121 && c <= 0x142) return (int)(c - 0x121 + 0x7F);
    if (c == 0x143) return 0xAD;
    return c <= 0xFF && pl_byte_char((uint8_t)c) == c ? (int)c : -1;
}

bool pl_byte_chars_decode(const char *s, size_t n, char *out, size_t *n_out) {
    uint32_t c;
    *n_out = 0;
    for (size_t i = 0; i < n;) {
        i += pl_utf8_next(s + i, &c);
        int byte = byte_of(c);
        if (byte < 0) return false;
        out[(*n_out)++] = (char)byte;
    }
    return true;
}
