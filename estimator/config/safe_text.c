#include "estimator/config/safe_text.h"

#include "estimator/config/scalar.h"

#include <stdbool.h>
#include <string.h>

/* True for controls of C0 and C1, line ends that are not \n, and characters that turn the direction
 * of text (UAX #9, the explicit formatting characters and the marks). */
static bool drives_terminal(uint32_t c) {
    static const struct {
        uint32_t first, last;
    } ranges[] = {{0x00, 0x08},     {0x0b, 0x1f},     {0x7f, 0x9f},     {0x61c, 0x61c},
                  {0x200e, 0x200f}, {0x2028, 0x202e}, {0x2066, 0x2069}, {0xfeff, 0xfeff}};
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
        if (c >= ranges[i].first && c <= ranges[i].last) return true;
    return false;
}

void pl_text_add_safe(struct pl_text *t, const char *s, size_t n) {
    for (unsigned length; n; s += length, n -= length) {
        char whole[5] = {0}; /* the character may be cut by n */
        uint32_t c = 0;
        memcpy(whole, s, n < 4 ? n : 4);
        length = *whole ? pl_utf8_next(whole, &c) : 1;
        if (!length)
            pl_text_addf(t, "\\x%02x", (unsigned char)*s);
        else if (drives_terminal(c))
            pl_text_addf(t, c < 0x100 ? "\\x%02x" : "\\u%04x", c);
        else
            pl_text_addn(t, s, length);
        length += !length;
    }
}
