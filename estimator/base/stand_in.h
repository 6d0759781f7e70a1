/* stand_in.h - recognises files that are not what their name says.
 *
 * In:  the first bytes of a file that could not be read.
 * Out: what they are, and how to get the file.
 * Use: const struct pl_stand_in *s = pl_stand_in_find(bytes, n);
 *      if (s) { pl_diag_at(d, err, path, 0, 0, "%s: %s", path, s->what);
 *               pl_diag_hint(d, "%s", s->hint); } */
#ifndef PL_ESTIMATOR_BASE_STAND_IN_H
#define PL_ESTIMATOR_BASE_STAND_IN_H

#include "estimator/base/diag.h"

#include <stddef.h>

#define PL_STAND_IN_BYTES 64 /* bytes from the start of a file that suffice to decide */

struct pl_stand_in {
    const char *what, *hint;
};

/* Returns NULL if the bytes are of no known kind. Two bytes of one format may begin a sound file of
 * another, so a reader asks only after it has found that it cannot read the file. */
const struct pl_stand_in *pl_stand_in_find(const void *bytes, size_t n);
/* Looks for a file in `dir` that stands in place of STEM.safetensors or its shards (`model` or
 * `adapter_model`): *name is malloc'd and *is describes it, or both are NULL. */
pl_err pl_stand_in_list(const char *dir, const char *stem, char **name,
                        const struct pl_stand_in **is, struct pl_diag *d);
/* Replaces the hint of a recorded failure by that of *is, with `dir` for the word DIR in it. */
void pl_stand_in_hint(const struct pl_stand_in *is, const char *dir, struct pl_diag *d);

#endif
