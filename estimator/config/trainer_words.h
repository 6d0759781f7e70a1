/* trainer_words.h - hints for keys and values of other trainers' recipes.
 *
 * In: a key that is not one of keys.h, or a value that its row does not allow.  Out: a hint, or
 * NULL where nothing is known.  Needs: base, the numbers of the keys.
 * Use: const char *hint = pl_trainer_key_hint("bf16"); */
#ifndef PL_ESTIMATOR_CONFIG_TRAINER_WORDS_H
#define PL_ESTIMATOR_CONFIG_TRAINER_WORDS_H

#include "estimator/config/job.h"

#include <stdbool.h>

const char *pl_trainer_key_hint(const char *name);
/* Returns the hint for a number that the row of `key` does not allow, or NULL. */
const char *pl_trainer_number_hint(enum pl_key_id key, double v);
/* True for -1 steps, which transformers writes for "by epochs": the key counts as not given. */
bool pl_trainer_means_unset(enum pl_key_id key, double v);
/* Returns the note for `key: null`, which other trainers read as no limit and which means the
 * default here. */
const char *pl_trainer_null_note(enum pl_key_id key);

#endif
