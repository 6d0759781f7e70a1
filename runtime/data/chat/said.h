/* said.h - checks that a rendered text has the words of a message.
 *
 * In: a part of a rendered text, the content of a message.  Out: its position, or that words of it
 * are missing.  Needs: render.h for white space.
 *   W1  a template may trim a text, write its white space anew or escape it; but leaving out words
 *       is noticed. Words are runs of letters, digits and bytes beyond ASCII
 *   W2  marks that stand for a mode, such as `/no_think` and an empty `<think></think>`, are no
 *       words
 * Use: if (!pl_chat_is_said(turn, n, content, m)) ... */
#ifndef PL_RUNTIME_DATA_CHAT_SAID_H
#define PL_RUNTIME_DATA_CHAT_SAID_H

#include <stdbool.h>
#include <stddef.h>

/* Returns the position in text[0, n) of `said` without the white space around it; SIZE_MAX: it is
 * absent. *length is its length. */
size_t pl_chat_find_said(const char *text, size_t n, const char *said, size_t m, size_t *length);
/* True if the words of `said` are in text[*from, n) in their order; *from becomes the end of the
 * last one. */
bool pl_chat_has_words(const char *text, size_t n, const char *said, size_t m, size_t *from);
/* True if all of `said` is in text[0, n), as it is or word by word. */
bool pl_chat_is_said(const char *text, size_t n, const char *said, size_t m);

#endif
