/* fault_shim.h - stands before libc in a program under test: counts its calls, makes the N-th one
 * fail, be short or be the last, and reports them.
 *
 * fault_shim.so is preloaded (LD_PRELOAD), or fault_shim.c is linked into the test itself. In both
 * cases the environment says what happens; a name that is not set has no effect:
 *
 *   FAULT_CALLS=KIND,...  the kinds that count, of PL_FAULT_KINDS below; `files`: all but memory,
 *                         which is also what counts when it is not set; `changes`: create, write,
 *                         sync, rename, link, unlink, mkdir, truncate
 *   FAULT_PATH=TEXT       only calls on a path that holds TEXT; with `$` at the end of TEXT, a path
 *                         that ends with it. Paths are absolute, those of descriptors too. Memory
 *                         has no path
 *   FAULT_FROM=END        counting starts with the creation of a file whose path ends with END
 *   FAULT_AT=N, N+        the N-th call that counts, from 1 on; with `+` all after it too
 *   FAULT_DO=WHAT         what happens to it: an errno by its number (EIO when nothing is said;
 *                         memory always gets ENOMEM), `short` (a read or a write moves half of its
 *                         bytes, other calls are let through) or `kill` (SIGKILL before the call)
 *   FAULT_COUNT=FILE      at the end: how many calls counted, in decimal
 *   FAULT_LOG=FILE        appended at every call that counts: `N KIND CALL PATH`
 *   FAULT_CALLERS=FILE    at the end: 8 bytes for every call that counted, a hash of the calls that
 *                         led to it, to be compared within the file
 *   FAULT_TRACE=1         the calls that led to one that fails are written to stderr
 *   FAULT_NO_SYNC=1       fsync and fdatasync do nothing: many thousand runs wait for no disk
 *
 * The N of one run is the N of the next one as long as the program asks for the same things in the
 * same order: one thread, or calls of one thread only. A stream of libc (fopen, fdopen) reads,
 * writes and closes through the calls that stand here, but for stdin, stdout and stderr. Not seen
 * are the calls that libc makes inside glob(). A close that fails has closed; a kill takes nothing
 * from the kernel, so it is no power cut. Memory counts with glibc and without a sanitizer; new
 * memory then holds junk. */
#ifndef PL_TESTS_FAULT_SHIM_H
#define PL_TESTS_FAULT_SHIM_H

#include "estimator/config/debug_fault.h"

#include <stdint.h>

/* kind: the calls that count as one */
#define PL_FAULT_KINDS(X)                                                                          \
    X(memory)   /* malloc, calloc, realloc, memalign, aligned_alloc, posix_memalign */             \
    X(open)     /* open, openat and fopen, without O_CREAT */                                      \
    X(create)   /* the same with O_CREAT */                                                        \
    X(read)     /* read, pread */                                                                  \
    X(write)    /* write, pwrite, to regular files */                                              \
    X(sync)     /* fsync, fdatasync */                                                             \
    X(rename)   /* rename, renameat */                                                             \
    X(link)     /* link, symlink */                                                                \
    X(unlink)   /* unlink, rmdir, remove */                                                        \
    X(mkdir)    /* mkdir */                                                                        \
    X(dir)      /* opendir, readdir */                                                             \
    X(lock)     /* flock, and fcntl with F_SETLK and its like */                                   \
    X(truncate) /* ftruncate */                                                                    \
    X(close)    /* close */                                                                        \
    X(stat)     /* stat, lstat, fstat, access */

/* Called by the program that fault_shim.c is linked into: reads the environment again and counts
 * from 0; stops, and writes the report of the end. */
void fault_shim_begin(void);
void fault_shim_end(void);

#endif
