/* names.h - numbers by names, for lists that somebody else's file fills.
 *
 * In: names, in any number.  Out: the number of each.  Needs: jansson, whose objects are hashed
 * with a seed of the process, so that no file can choose names that collide.
 * Adding and looking up take the time of the name's length, however many names there are.
 * Use: struct pl_names seen = {0};
 *      if (!pl_names_get(&seen, name, &i)) ok = pl_names_put(&seen, name, i = n++);
 *      pl_names_finish(&seen); */
#ifndef PL_ESTIMATOR_BASE_NAMES_H
#define PL_ESTIMATOR_BASE_NAMES_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct pl_names {
    json_t *numbers; /* owned; NULL = there is none */
};

/* Sets the number of a name, replacing an earlier one. False: no memory. */
bool pl_names_put(struct pl_names *n, const char *name, uint32_t number);
/* False if the name was not put; *out is then unchanged. */
bool pl_names_get(const struct pl_names *n, const char *name, uint32_t *out);
void pl_names_finish(struct pl_names *n); /* frees; leaves {0} */

#endif
