/* trainer_words.h - what recipes of other trainers say, and the line that says it here.
 *
 * In: a key that is not one of keys.h, or a value that its row does not allow.  Out: a hint, or
 * NULL where nothing is known.  Needs: base, the numbers of the keys.
 * Use: const char *hint = pl_trainer_key_hint("bf16"); */
#ifndef PL_ESTIMATOR_CONFIG_TRAINER_WORDS_H
#define PL_ESTIMATOR_CONFIG_TRAINER_WORDS_H

#include "estimator/config/job.h"

#include <stdbool.h>

const char *pl_trainer_key_hint(const char *name);
/* For a number that the row of `key` does not allow. */
const char *pl_trainer_number_hint(enum pl_key_id key, double v);
/* -1 steps, as transformers writes "by epochs": the key is as good as not given. */
bool pl_trainer_means_unset(enum pl_key_id key, double v);
/* For `key: null`, which other trainers read as no limit, where here it is the default. */
const char *pl_trainer_null_note(enum pl_key_id key);

#endif
