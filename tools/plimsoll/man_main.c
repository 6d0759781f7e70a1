/* man_main.c - writes manual pages while the program is built: man_pages DIRECTORY PAGE... */
#include "tools/plimsoll/man.h"

#include <string.h>

static bool write_page(const char *dir, const char *name) {
    struct pl_text page = {0}, path = {0};
    bool known = pl_man_page(name, &page), written = false;
    pl_text_addf(&path, "%s/%s", dir, name);
    FILE *f = known && !page.failed && !path.failed ? fopen(path.data, "wb") : NULL;
    if (f) {
        written = fwrite(page.data, 1, page.len, f) == page.len;
        written = fclose(f) == 0 && written;
    }
    if (!written)
        fprintf(stderr, "man_pages: %s: %s\n", name, known ? "cannot be written" : "no such page");
    pl_text_finish(&page);
    pl_text_finish(&path);
    return written;
}

int main(int argc, char *argv[]) {
    bool ok = argc > 2;
    for (int i = 2; i < argc; i++)
        ok = write_page(argv[1], argv[i]) && ok;
    return ok ? 0 : 1;
}
