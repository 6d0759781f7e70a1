/* saved.h - checkpoints that two runs have left. Failures end the test.
 *
 * Use: checkpoint_assert_same(in_dir(dir, "a/checkpoint-4"), in_dir(dir, "b/checkpoint-4")); */
#ifndef PL_TESTS_SUPPORT_SAVED_H
#define PL_TESTS_SUPPORT_SAVED_H

#include <jansson.h>

/* Read dir/trainer_state.json, and the object "plimsoll" of it, borrowed. */
json_t *saved_state(const char *dir, json_t **plimsoll);
/* Compares weights, states and everything else in `a`, byte for byte, and every counter. The
 * identity of the run, the settings that it was started with, and whether the digests of a file are
 * those of its pieces, may differ. Each file has its digests. */
void checkpoint_assert_same(const char *a, const char *b);

#endif
