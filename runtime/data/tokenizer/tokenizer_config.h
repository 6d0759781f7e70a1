/* tokenizer_config.h - tokenizer_config.json, and what older versions wrote with it.
 *
 * In: tokenizer_config.json, special_tokens_map.json and added_tokens.json of a directory, each of
 * which may be missing.  Out: named tokens, and the tokens that are added to those of
 * tokenizer.json.  Needs: tokenizer_parts.h, jansson.
 *   C1  a token means what it means to transformers 5.23 with a tokenizer.json: first those of
 *       `added_tokens_decoder` by id, whose flags replace those of tokenizer.json, then named
 *       tokens, then the lists, each of these only where no added token has its content
 *   C2  special_tokens_map.json and added_tokens.json count only without `added_tokens_decoder`
 * Use: pl_tokenizer_config_read(&c, "model", &d); pl_tokenizer_config_tokens(&c, root, &list, &d);
 *      ... pl_tokenizer_config_finish(&c); */
#ifndef PL_RUNTIME_DATA_TOKENIZER_TOKENIZER_CONFIG_H
#define PL_RUNTIME_DATA_TOKENIZER_TOKENIZER_CONFIG_H

#include "runtime/data/tokenizer/tokenizer_parts.h"

struct pl_tokenizer_config {
    char *path;     /* of tokenizer_config.json, owned */
    json_t *merged; /* an object, owned: its keys, and those of special_tokens_map.json by C2 */
    json_t *added;  /* owned: added_tokens.json by C2; NULL = none */
};

pl_err pl_tokenizer_config_read(struct pl_tokenizer_config *c, const char *directory,
                                struct pl_diag *d);
void pl_tokenizer_config_finish(struct pl_tokenizer_config *c); /* safe on {0} */
/* The tokens to add, in order; `root` is the tokenizer.json. The strings are those of *c. */
pl_err pl_tokenizer_config_tokens(const struct pl_tokenizer_config *c, const json_t *root,
                                  struct pl_added_list *out, struct pl_diag *d);
/* Id of the token that `key` names; -1 = it names none. */
int64_t pl_tokenizer_config_token(const struct pl_tokenizer_config *c,
                                  const struct pl_tokenizer *t, const char *key);
/* A note where transformers makes another tokenizer of the vocabulary than tokenizer.json says. */
pl_err pl_tokenizer_config_note_class(const struct pl_tokenizer_config *c, struct pl_tokenizer *t,
                                      struct pl_diag *d);

#endif
