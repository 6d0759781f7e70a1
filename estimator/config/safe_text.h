/* safe_text.h - words of others on a terminal.
 *
 * In: bytes of any kind, such as names of files, words of the command line, tokens.  Out: text that
 * does not control the terminal.  Needs: text.
 * Use: pl_text_add_safe(&line, name, strlen(name)); */
#ifndef PL_ESTIMATOR_CONFIG_SAFE_TEXT_H
#define PL_ESTIMATOR_CONFIG_SAFE_TEXT_H

#include "estimator/base/text.h"

/* Appends s[0, n) with control characters except newline and tab, bytes that are not UTF-8, and
 * characters that turn the direction of text, as \\xNN and \\uNNNN. */
void pl_text_add_safe(struct pl_text *t, const char *s, size_t n);

#endif
