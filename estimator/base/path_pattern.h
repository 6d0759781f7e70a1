/* path_pattern.h - regular expressions over short names, as Python's re.fullmatch() reads them.
 *
 * In: a pattern, and a name of at most PL_PATH_PATTERN_TEXT bytes.
 * Out: true if all of the name matches.
 *   Known: literals, `.`, classes, \d \w \s \b and their opposites, \A \Z ^ $, groups with or
 *   without a name, `|`, greedy and lazy repeats, lookahead and lookbehind. Anything else of
 *   Python's is refused by name.
 *   T1  there is no backtracking: a set of positions passes through the pattern, so the time is
 *       polynomial; what repeats too deeply all the same is refused after a bounded number of steps
 *   T2  the answer is Python's: without back references the whole-match question has one answer,
 *       whichever order matches are tried in
 * Use: pl_path_pattern_match(".*\\.[qv]_proj", name, &yes, &wrong) or say why not. */
#ifndef PL_ESTIMATOR_BASE_PATH_PATTERN_H
#define PL_ESTIMATOR_BASE_PATH_PATTERN_H

#include <stdbool.h>
#include <stddef.h>

#define PL_PATH_PATTERN_TEXT 63

struct pl_path_pattern_wrong {
    size_t at; /* byte of the pattern */
    const char *why;
};

/* Returns false if the pattern is not understood; *wrong (nullable) then says where and why. */
bool pl_path_pattern_match(const char *pattern, const char *text, bool *matches,
                           struct pl_path_pattern_wrong *wrong);

#endif
