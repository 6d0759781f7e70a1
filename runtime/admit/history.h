/* history.h - what earlier runs measured, in files of the cache directory: $XDG_CACHE_HOME/plimsoll
 * (~/.cache/plimsoll without the variable).
 *
 * In: the name of a file and whom an entry belongs to.  Out: its figures.  Needs: base, checkpoint.
 *   X1  a missing, broken or foreign file is the same as none: it never fails a run
 *   X2  the file is replaced whole or not at all
 * Use: figures = pl_memory_find(&m, NULL); ... pl_memory_put(&m, figures); */
#ifndef PL_RUNTIME_ADMIT_HISTORY_H
#define PL_RUNTIME_ADMIT_HISTORY_H

#include <jansson.h>
#include <stdbool.h>

#define PL_MEMORY_OWNERS 6
struct pl_memory {    /* all borrowed */
    const char *file; /* name in the directory */
    struct {
        const char *key, *value;
    } of[PL_MEMORY_OWNERS]; /* whom an entry belongs to, besides this build; a NULL key ends it */
};
/* Returns the entry, a new reference; NULL: there is none. *broken (nullable): there is a file that
 * is no memory. */
json_t *pl_memory_find(const struct pl_memory *m, bool *broken);
/* Puts an entry in place of the one that was there; steals `figures`, NULL included. */
void pl_memory_put(const struct pl_memory *m, json_t *figures);

#endif
