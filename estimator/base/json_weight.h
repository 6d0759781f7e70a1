/* json_weight.h - how much a tree of a JSON text can take, before one is made.
 *
 * A value of two bytes becomes a node of up to 100, an empty object one of 230, so that a text of
 * some megabytes can ask for hundreds. Real files spend bytes on names and words.
 * Use: if (pl_json_weight(text, n) > FREE + n / 8) refuse; */
#ifndef PL_ESTIMATOR_BASE_JSON_WEIGHT_H
#define PL_ESTIMATOR_BASE_JSON_WEIGHT_H

#include <stdint.h>

/* One for every comma, PL_JSON_BRACKET_WEIGHT for every bracket that opens, those of strings
 * included: a node weighs at most 100 bytes for each. */
uint64_t pl_json_weight(const char *text, uint64_t n);
#define PL_JSON_BRACKET_WEIGHT 4

#endif
