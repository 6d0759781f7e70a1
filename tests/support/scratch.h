/* scratch.h - directories and files that a test makes for itself. Failures end the test.
 *
 * Use: char dir[SCRATCH_PATH]; scratch_make(dir); ... scratch_remove(dir); */
#ifndef PL_TESTS_SUPPORT_SCRATCH_H
#define PL_TESTS_SUPPORT_SCRATCH_H

#include <stdbool.h>
#include <stddef.h>

#define SCRATCH_PATH 256

void scratch_make(char dir[SCRATCH_PATH]);           /* a fresh directory under TMPDIR or /tmp */
void scratch_remove(const char *dir);                /* with everything in it; absent is fine */
void scratch_copy(const char *from, const char *to); /* a tree; `to` must not exist */

/* Returns "dir/name", valid for the next seven calls. */
const char *in_dir(const char *dir, const char *name);
/* Prints into the same ring of texts. */
const char *textf(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

bool path_exists(const char *path);
char *file_read(const char *path, size_t *bytes); /* malloc'd, with a NUL at the end; bytes
                                                     nullable */
void file_write(const char *path, const char *text);
bool file_same(const char *a, const char *b);
/* Calls visit for every entry of the directory, in the order of their names; returns how many. */
size_t dir_each(const char *dir, void (*visit)(const char *name, void *ctx), void *ctx);

#endif
