/* key_table.h - the rows of keys.h as data: by number, by name, by the nearest name. */
#ifndef PL_ESTIMATOR_CONFIG_KEY_TABLE_H
#define PL_ESTIMATOR_CONFIG_KEY_TABLE_H

#include "estimator/base/text.h"
#include "estimator/config/job.h"

struct pl_key_info {
    const char *key, *type, *def, *choices, *help;
    double lo, hi;
};
/* Returns the effect of another value of the key on a run that is resumed. */
enum pl_key_class pl_key_class(enum pl_key_id key);
const struct pl_key_info *pl_key_table(uint32_t *n); /* n = PL_KEY_COUNT */
/* Finds a key by its name or a synonym; PL_KEY_COUNT = none. */
enum pl_key_id pl_key_find(const char *name);
/* Copies the i-th word of the choices "a|b|c" into buf; false after the last. */
#define PL_CHOICE_BYTES 32
bool pl_key_choice(const char *choices, uint32_t i, char buf[PL_CHOICE_BYTES]);
void pl_key_write_synonyms(enum pl_key_id key, struct pl_text *out);
/* Returns the nearest name or synonym of a key; NULL = none is near. */
const char *pl_key_nearest(const char *name);

#endif
