/* key_table.h - the rows of keys.h as data: by number, by name, by what is nearly a name. */
#ifndef PL_ESTIMATOR_CONFIG_KEY_TABLE_H
#define PL_ESTIMATOR_CONFIG_KEY_TABLE_H

#include "estimator/base/text.h"
#include "estimator/config/job.h"

struct pl_key_info {
    const char *key, *type, *def, *choices, *help;
    double lo, hi;
};
/* What another value of the key means for a run that is resumed. */
enum pl_key_class pl_key_class(enum pl_key_id key);
const struct pl_key_info *pl_key_table(uint32_t *n); /* n = PL_KEY_COUNT */
/* By its name or a synonym; PL_KEY_COUNT: nothing is called so. */
enum pl_key_id pl_key_find(const char *name);
/* The i-th word of the choices "a|b|c" into buf; false past the last. */
#define PL_CHOICE_BYTES 32
bool pl_key_choice(const char *choices, uint32_t i, char buf[PL_CHOICE_BYTES]);
void pl_key_write_synonyms(enum pl_key_id key, struct pl_text *out);
/* The key that is called nearly so, under whichever of its names; NULL: nothing is near. */
const char *pl_key_nearest(const char *name);

#endif
