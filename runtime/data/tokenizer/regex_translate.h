/* regex_translate.h - a regular expression of Oniguruma's Ruby syntax as one of PCRE2.
 *
 * In: the pattern, UTF-8.  Out: a pattern that matches the same, or what stands in the way.
 * Needs: base.
 *   T1  known: characters, escapes of punctuation, \r \n \t \f \v \s \S \d \D \x{...} \uXXXX,
 *       general categories \p{..} \P{..}, classes of these with ranges, `.`, `|`, (..) (?:..)
 *       (?=..) (?!..), (?i:..) of ASCII letters, and ? * + {n} {n,} {n,m} with ? (lazy) and +
 *       (possessive)
 *   T2  everything else is refused: engines differ on it, or were not compared
 *   T3  in (?i:..) letters whose pairs fold together with one other character (ss and sharp s) do
 *       not stand side by side
 * Use: pl_regex_translate(regex, n, &out, &d) */
#ifndef PL_RUNTIME_DATA_TOKENIZER_REGEX_TRANSLATE_H
#define PL_RUNTIME_DATA_TOKENIZER_REGEX_TRANSLATE_H

#include "estimator/base/diag.h"
#include "estimator/base/text.h"

/* Appends to *out. The result wants PCRE2_UTF, PCRE2_UCP, PCRE2_NO_AUTO_CAPTURE, newline = LF. */
pl_err pl_regex_translate(const char *regex, size_t n, struct pl_text *out, struct pl_diag *d);

#endif
