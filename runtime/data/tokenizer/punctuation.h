/* punctuation.h - whether the tokenizers library takes a character for punctuation.
 *
 * In: a code point.  Out: yes or no.  Needs: nothing.
 *   N1  the answer is the library's fixed table, not the category of the Unicode version at hand
 * Use: if (pl_is_punctuation(c)) ... */
#ifndef PL_RUNTIME_DATA_TOKENIZER_PUNCTUATION_H
#define PL_RUNTIME_DATA_TOKENIZER_PUNCTUATION_H

#include <stdbool.h>
#include <stdint.h>

bool pl_is_punctuation(uint32_t c);

#endif
