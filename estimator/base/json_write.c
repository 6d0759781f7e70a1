#include "estimator/base/json_write.h"

void pl_json_write_escaped(struct pl_text *out, const char *s, size_t n) {
    size_t begin = 0;
    for (size_t i = 0; i < n; i++) {
        const unsigned char c = (unsigned char)s[i];
        if (c >= 0x20 && c != '"' && c != '\\') continue;
        pl_text_addn(out, s + begin, i - begin);
        pl_text_addf(out, c >= 0x20 ? "\\%c" : c == '\n' ? "\\n" : "\\u%04x", c);
        begin = i + 1;
    }
    pl_text_addn(out, s + begin, n - begin);
}
