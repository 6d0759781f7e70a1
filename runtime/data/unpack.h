/* unpack.h - decompresses data files.
 *
 * In: an open file.  Out: a descriptor of its content.  Needs: base, zlib, and libzstd if the build
 * found it.
 *   U1  the kind of a file follows from its first bytes, not from its name; members that follow
 *       each other are read as one file, and zeros between and after them are passed over
 *   U2  the content goes to one file without a name in TMPDIR, else /tmp, for all packed files:
 *       rows are read from any position, and memory holds a block
 *   U3  a frame of zstd may look back PL_UNPACK_WINDOW_LOG bits; memory holds as much of that as
 *       the frame has content
 * Use: struct pl_unpacked all = PL_UNPACKED_NONE; struct pl_content c;
 *      pl_unpack(fd, path, &all, &c, &d); ... pl_unpacked_finish(&all); */
#ifndef PL_RUNTIME_DATA_UNPACK_H
#define PL_RUNTIME_DATA_UNPACK_H

#include "estimator/base/diag.h"
#include "runtime/data/content.h"

#include <stdbool.h>

#define PL_UNPACK_WINDOW_LOG 31

struct pl_unpacked {
    int fd; /* descriptor of the file without a name, -1 = none */
    uint64_t bytes;
};
#define PL_UNPACKED_NONE ((struct pl_unpacked){.fd = -1})

/* Sets *out to the content of the file, which is the file itself if it is not compressed.
 * PL_ERR_DATA_SYNTAX: the file is damaged, or this build cannot unpack it; PL_ERR_DATA_FILE: there
 * is no room for its content. */
pl_err pl_unpack(int fd, const char *path, struct pl_unpacked *all, struct pl_content *out,
                 struct pl_diag *d);
/* Makes the file without a name, unless it is there. PL_ERR_DATA_FILE: it cannot be made, for the
 * content of `path`. */
pl_err pl_unpacked_open(struct pl_unpacked *all, const char *path, struct pl_diag *d);
/* Reports, by errno, that the file without a name did not take the content of `path`. */
pl_err pl_unpacked_no_room(const char *path, struct pl_diag *d);
void pl_unpacked_finish(struct pl_unpacked *all); /* leaves PL_UNPACKED_NONE */
/* Returns the length of the path without the ending of a compressed file. */
size_t pl_unpacked_length(const char *path);

#endif
