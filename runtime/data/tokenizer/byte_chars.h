/* byte_chars.h - the 256 printable characters that stand for bytes in byte-level vocabularies.
 *
 * In: bytes, or text in those characters.  Out: the other.  Needs: utf8.h.
 *   B1  bytes that are printable in Latin-1 stand for themselves; the others, in order, are the
 *       characters from U+0100 on (openai/gpt-2, src/encoder.py, bytes_to_unicode)
 * Use: pl_byte_char(' ') is U+0120; pl_byte_chars_decode(&out, piece, n) */
#ifndef PL_RUNTIME_DATA_TOKENIZER_BYTE_CHARS_H
#define PL_RUNTIME_DATA_TOKENIZER_BYTE_CHARS_H

#include "estimator/base/text.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

uint32_t pl_byte_char(uint8_t byte);
/* The bytes that s[0, n) stands for into out[n]; *n_out of them. False: some character stands for
 * none. */
bool pl_byte_chars_decode(const char *s, size_t n, char *out, size_t *n_out);

#endif
