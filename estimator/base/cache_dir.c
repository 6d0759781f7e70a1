#include "estimator/base/cache_dir.h"

#include <elf.h>
#include <errno.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* The note's name is padded to four bytes: "GNU\0" fills them. */
static void search_notes(const char *at, size_t left, struct pl_build_id *out) {
    while (left >= sizeof(ElfW(Nhdr))) {
        ElfW(Nhdr) h;
        memcpy(&h, at, sizeof h);
        size_t name = (h.n_namesz + 3u) & ~(size_t)3, desc = (h.n_descsz + 3u) & ~(size_t)3;
        if (left < sizeof h + name + desc) return;
        if (h.n_type == NT_GNU_BUILD_ID && h.n_namesz == 4 &&
            memcmp(at + sizeof h, "GNU", 4) == 0) {
            const unsigned char *id = (const unsigned char *)at + sizeof h + name;
            for (size_t i = 0; i < h.n_descsz && i < PL_BUILD_ID_BYTES; i++)
                snprintf(out->hex + 2 * i, 3, "%02x", id[i]);
            return;
        }
        at += sizeof h + name + desc;
        left -= sizeof h + name + desc;
    }
}

/* Called first with the program itself, whose notes are what was asked for. */
static int visit_program(struct dl_phdr_info *info, size_t size, void *arg) {
    (void)size;
    for (int i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_NOTE)
            search_notes((const char *)info->dlpi_addr + info->dlpi_phdr[i].p_vaddr,
                         info->dlpi_phdr[i].p_memsz, arg);
    return 1;
}

struct pl_build_id pl_build_id(void) {
    struct pl_build_id id = {{0}};
    (void)dl_iterate_phdr(visit_program, &id);
    return id;
}

bool pl_cache_dir(struct pl_text *path, bool make) {
    const char *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    bool given = xdg && xdg[0] == '/';
    if (!given && !(home && *home)) return false;
    if (given)
        pl_text_add(path, xdg);
    else
        pl_text_addf(path, "%s/.cache", home);
    if (make && mkdir(pl_text_str(path), 0700) != 0 && errno != EEXIST) return false;
    pl_text_add(path, "/plimsoll");
    if (make && mkdir(pl_text_str(path), 0700) != 0 && errno != EEXIST) return false;
    return !path->failed;
}
