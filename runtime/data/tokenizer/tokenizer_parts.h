/* tokenizer_parts.h - what an open tokenizer is made of; only this room sees it.
 *
 * In: the parts of a tokenizer.json.  Out: struct pl_tokenizer.  Needs: every module of the room.
 *   O1  `model` has the pieces as the file spells them, `bytes` those of a byte-level model as the
 *       bytes they stand for; both by the same ids
 *   O2  an added token's id is the one the library gives it: that of the piece with its content,
 *       else the next free one; a tokenizer.json that says another is refused
 *   O3  tokens that only tokenizer_config.json names are added after those of tokenizer.json, in
 *       the order of transformers
 * Use: pl_tokenizer_parse(t, &doc, &d), then encode. */
#ifndef PL_RUNTIME_DATA_TOKENIZER_TOKENIZER_PARTS_H
#define PL_RUNTIME_DATA_TOKENIZER_TOKENIZER_PARTS_H

#include "runtime/data/tokenizer/added_tokens.h"
#include "runtime/data/tokenizer/bpe.h"
#include "runtime/data/tokenizer/json_fields.h"
#include "runtime/data/tokenizer/normalizer.h"
#include "runtime/data/tokenizer/packed_file.h"
#include "runtime/data/tokenizer/piece_decoder.h"
#include "runtime/data/tokenizer/pretokenizer.h"
#include "runtime/data/tokenizer/template_text.h"
#include "runtime/data/tokenizer/tokenizer_document.h"
#include "runtime/data/tokenizer/unigram.h"
#include "runtime/data/tokenizer/vocab.h"

#define PL_TOKENIZER_MOST_TEMPLATE 32 /* tokens on one side */

/* The tokens that the post-processor puts around those of a text. */
struct pl_token_template {
    int32_t before[PL_TOKENIZER_MOST_TEMPLATE], after[PL_TOKENIZER_MOST_TEMPLATE];
    uint32_t n_before, n_after;
};

enum { PL_TOKEN_ADDED = 1, PL_TOKEN_SPECIAL = 2, PL_TOKEN_SKIPPED = 4 };

/* An added token as a file spells it. */
struct pl_added_said {
    const char *s; /* [n], of a JSON tree that outlives it */
    size_t n;
    uint32_t id;
    bool has_id; /* the configuration gives it one; the vocabulary decides */
    bool single_word, lstrip, rstrip, normalized, special;
    bool unless_known; /* it counts only where no other has its content */
};

struct pl_added_list {
    struct pl_added_said *all; /* [n], owned */
    uint32_t n, cap;
};
/* False: out of memory. */
bool pl_added_list_put(struct pl_added_list *list, const struct pl_added_said *token);
/* Content and flags; a flag that is not there keeps what *a holds, and `normalized` is the opposite
 * of `special`. */
pl_err pl_added_read(const struct pl_fields *f, struct pl_added_said *a);

struct pl_tokenizer {
    struct pl_vocab model, bytes;
    struct pl_vocab added; /* contents of added tokens */
    struct pl_vocab shown; /* what decoding sees of those that the normalizer changes */
    uint8_t *flags;        /* [n_flags], by id: PL_TOKEN_* */
    uint32_t n_flags;
    struct pl_bpe bpe;
    struct pl_unigram unigram; /* instead of `bpe` where it has pieces */
    struct pl_added_set raw, normalized;
    struct pl_normalizer normalizer;
    struct pl_pretokenizer pretokenizer;
    struct pl_piece_decoder decoder;
    struct pl_token_template around;
    int64_t bos, eos;
    uint32_t n_of_file;                      /* one more than the largest id of tokenizer.json */
    struct pl_text notes;                    /* lines about what the files say */
    struct pl_tokenizer_template *templates; /* [n_templates], owned */
    size_t n_templates;
};

/* The error of a directory without tokenizer.json: what else is there, and what converts it. */
pl_err pl_tokenizer_refuse_directory(const char *directory, struct pl_diag *d);
/* chat_template.jinja and chat_templates/ of a directory. */
pl_err pl_tokenizer_read_templates(struct pl_tokenizer *t, const char *directory,
                                   struct pl_diag *d);
/* `chat_template` of a tokenizer_config.json: a string, or a list of named ones. */
pl_err pl_tokenizer_take_templates(struct pl_tokenizer *t, const json_t *config, const char *path,
                                   struct pl_diag *d);
void pl_tokenizer_free_templates(struct pl_tokenizer *t);

/* Fills *t, zeroed before, from a tokenizer.json and the tokens of its configuration. What was made
 * is freed by pl_tokenizer_close in any case. */
pl_err pl_tokenizer_parse(struct pl_tokenizer *t, const struct pl_tokenizer_document *doc,
                          const struct pl_added_list *config, struct pl_diag *d);
/* The parts, in the order in which they need each other. */
pl_err pl_tokenizer_parse_steps(struct pl_tokenizer *t, const json_t *root, struct pl_diag *d);
pl_err pl_tokenizer_parse_model(struct pl_tokenizer *t, const struct pl_tokenizer_document *doc,
                                struct pl_diag *d);
pl_err pl_tokenizer_parse_added(struct pl_tokenizer *t, const json_t *root,
                                const struct pl_added_list *config, struct pl_diag *d);
pl_err pl_tokenizer_parse_template(struct pl_tokenizer *t, const json_t *root, struct pl_diag *d);
/* The model of `f`, after the steps. */
pl_err pl_tokenizer_parse_unigram(struct pl_tokenizer *t, const struct pl_fields *f,
                                  const struct pl_tokenizer_document *doc);
/* The tokenizer of the word `byte`. */
pl_err pl_tokenizer_make_byte(struct pl_tokenizer *t, struct pl_diag *d);

#endif
