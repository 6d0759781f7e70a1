/* trainer_words.h - keys and values of other trainers' recipes, and what becomes of them here.
 *
 * In: a key that is not one of keys.h, or a value that its row does not allow.  Out: what is known
 * of it, or nothing.  Needs: base, the numbers of the keys.
 * A job with one such key gets a hint; `plimsoll import` reads whole files of others, and says the
 * same of the keys that its tables do not map.
 * Use: pl_trainer_key_hint("bf16", &hint); */
#ifndef PL_ESTIMATOR_CONFIG_TRAINER_WORDS_H
#define PL_ESTIMATOR_CONFIG_TRAINER_WORDS_H

#include "estimator/config/job.h"

#include "estimator/base/text.h"

#include <stdbool.h>

enum pl_trainer_fate {
    PL_TRAINER_WRITE,  /* keys of ours say the same: the text is what to write */
    PL_TRAINER_INERT,  /* it changes nothing that is learned: the text is why */
    PL_TRAINER_MISSES, /* it changes what is learned, and is not supported: the text names it */
};
struct pl_trainer_key {
    enum pl_trainer_fate fate;
    const char *text;
};
/* Returns what is known of a key; NULL: nothing. */
const struct pl_trainer_key *pl_trainer_key(const char *name);
/* Appends the hint for a key that stands in a job; false: nothing is known of it. */
bool pl_trainer_key_hint(const char *name, struct pl_text *out);
/* Returns the hint for a number that the row of `key` does not allow, or NULL. */
const char *pl_trainer_number_hint(enum pl_key_id key, double v);
/* True for -1 steps, which transformers writes for "by epochs": the key counts as not given. */
bool pl_trainer_means_unset(enum pl_key_id key, double v);
/* Returns the note for `key: null`, which other trainers read as no limit and which means the
 * default here. */
const char *pl_trainer_null_note(enum pl_key_id key);

#endif
