#include "runtime/report/page_text.h"

#include "estimator/picture/svg.h"

#include <string.h>

size_t pl_page_cut(const char *s, size_t most) {
    size_t n = strlen(s);
    if (n <= most) return n;
    for (n = most; n && ((unsigned char)s[n] & 0xc0) == 0x80;)
        n--;
    return n;
}

void pl_page_add_text(const char *s, size_t most, struct pl_text *out) {
    const size_t n = pl_page_cut(s, most);
    struct pl_text part = {0};
    pl_text_addn(&part, s, n);
    pl_svg_add_escaped(out, pl_text_str(&part));
    if (s[n]) pl_text_add(out, "…");
    out->failed |= part.failed;
    pl_text_finish(&part);
}
