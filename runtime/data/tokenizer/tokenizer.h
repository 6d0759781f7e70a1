/* tokenizer.h - text to token ids and back, exactly as the model's own tokenizer.json says.
 *
 * In: tokenizer.json of Hugging Face's tokenizers library (plain or gzip), or the directory that
 * holds it (with its tokenizer_config.json, where there is one), or a GGUF file, or the word
 * `byte`: an id is a byte of the UTF-8 text.  Out: ids.
 * Needs: base, gguf, PCRE2, utf8proc, zlib, jansson.
 *   K1  everything a tokenizer.json asks for is done exactly, or the file is refused by name on
 *       opening; nothing is approximated
 *   K2  a tokenizer is immutable once open: threads may share it, each with its own scratch
 *   K3  encoding is linear in the text, whatever the text; lengths, not NULs, end it
 *   K4  decoding any list of ids of the vocabulary gives valid UTF-8 (U+FFFD for what is not)
 * Use: pl_tokenizer_open("model/", &t, &d);
 *      struct pl_token_list out = {0};
 *      pl_tokenizer_encode(t, scratch, text, n, true, &out, &d); ... */
#ifndef PL_RUNTIME_DATA_TOKENIZER_TOKENIZER_H
#define PL_RUNTIME_DATA_TOKENIZER_TOKENIZER_H

#include "estimator/base/diag.h"
#include "estimator/base/text.h"
#include "runtime/data/tokenizer/template_text.h"
#include "runtime/data/tokenizer/token_list.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pl_tokenizer;
struct pl_tokenizer_scratch; /* caches and buffers of one thread */

pl_err pl_tokenizer_open(const char *path, struct pl_tokenizer **out, struct pl_diag *d);
void pl_tokenizer_close(struct pl_tokenizer **t); /* NULL-safe; sets *t to NULL */
pl_err pl_tokenizer_scratch_create(const struct pl_tokenizer *t, struct pl_tokenizer_scratch **out,
                                   struct pl_diag *d);
void pl_tokenizer_scratch_destroy(struct pl_tokenizer_scratch **s);

/* Replaces *out by the ids of text[0, n), which must be UTF-8. special: the post-processor adds
 * what it adds (BOS, EOS). Added tokens inside the text are recognised either way. */
pl_err pl_tokenizer_encode(const struct pl_tokenizer *t, struct pl_tokenizer_scratch *s,
                           const char *text, size_t n, bool special, struct pl_token_list *out,
                           struct pl_diag *d);
/* Appends the text of ids[0, n). skip_special: tokens flagged special leave no text.
 * PL_ERR_TOKENIZER_*: an id that is no token. */
pl_err pl_tokenizer_decode(const struct pl_tokenizer *t, const int32_t *ids, uint64_t n,
                           bool skip_special, struct pl_text *out, struct pl_diag *d);

/* One more than the largest id. */
uint64_t pl_tokenizer_size(const struct pl_tokenizer *t);
/* The same without the tokens that only tokenizer_config.json names. */
uint64_t pl_tokenizer_file_size(const struct pl_tokenizer *t);
/* Lines that its user should read about the files; "" = there are none. */
const char *pl_tokenizer_notes(const struct pl_tokenizer *t);
/* Id of a token by its exact content ("<|im_end|>"), -1 = there is none. */
int64_t pl_tokenizer_id(const struct pl_tokenizer *t, const char *content);
/* Content as the file spells it; NULL = no such id. */
const char *pl_tokenizer_piece(const struct pl_tokenizer *t, int32_t id);
bool pl_tokenizer_is_special(const struct pl_tokenizer *t, int32_t id);
/* bos_token and eos_token of tokenizer_config.json (strings or objects); -1 = not said. */
int64_t pl_tokenizer_bos(const struct pl_tokenizer *t);
int64_t pl_tokenizer_eos(const struct pl_tokenizer *t);
/* NULL: there are no more. */
const struct pl_tokenizer_template *pl_tokenizer_template(const struct pl_tokenizer *t, size_t i);

#endif
