/* said.h - whether a rendered text has what a message says.
 *
 * In: a part of a rendered text, the content of a message.  Out: where it stands, or that words of
 * it are missing.  Needs: render.h for white space.
 *   W1  a template may trim a text, write its white space anew or escape it; what it may not do
 *       unnoticed is to leave out words. Words are runs of letters, digits and bytes beyond ASCII
 *   W2  marks that stand for a mode, such as `/no_think` and an empty `<think></think>`, are no
 *       words
 * Use: if (!pl_chat_is_said(turn, n, content, m)) ... */
#ifndef PL_RUNTIME_DATA_CHAT_SAID_H
#define PL_RUNTIME_DATA_CHAT_SAID_H

#include <stdbool.h>
#include <stddef.h>

/* Where `said` without the white space around it stands in text[0, n); SIZE_MAX: nowhere. *length
 * is its length. */
size_t pl_chat_find_said(const char *text, size_t n, const char *said, size_t m, size_t *length);
/* The words of `said` stand in text[*from, n) in their order; *from becomes the end of the last. */
bool pl_chat_has_words(const char *text, size_t n, const char *said, size_t m, size_t *from);
/* All of `said` stands in text[0, n), as it is or word by word. */
bool pl_chat_is_said(const char *text, size_t n, const char *said, size_t m);

#endif
