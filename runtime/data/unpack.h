/* unpack.h - a compressed data file as one that is not.
 *
 * In: an open file.  Out: a descriptor of its content.  Needs: base, zlib, and libzstd where the
 * build found it.
 *   U1  what a file is follows from its first bytes, not from its name; members that follow each
 *       other are read as one file
 *   U2  the content goes to a file without a name in TMPDIR, else /tmp, whose end is that of its
 *       descriptor: rows are read from any place of it, and memory holds a block
 * Use: int fd; pl_unpack(packed, path, &fd, &d); if (fd != packed) close(fd); */
#ifndef PL_RUNTIME_DATA_UNPACK_H
#define PL_RUNTIME_DATA_UNPACK_H

#include "estimator/base/diag.h"

#include <stddef.h>

/* *out: `fd` itself when the file is not compressed, else a new one. PL_ERR_DATA_SYNTAX: the file
 * is damaged, or this build cannot unpack it; PL_ERR_DATA_FILE: there is no room for its content.
 */
pl_err pl_unpack(int fd, const char *path, int *out, struct pl_diag *d);
/* Bytes of the path without the ending of a compressed file. */
size_t pl_unpacked_length(const char *path);

#endif
