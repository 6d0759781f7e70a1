/* prompt_text.h - prompts and answers as text, for `generate` and for the samples of a run.
 *
 * In: a tokenizer, text.  Out: ids of a prompt; text of an answer while its tokens come.
 * Needs: runtime/data/tokenizer, runtime/data/chat.
 *   X1  only whole characters are written: bytes of an incomplete one are held back
 * Use: pl_prompt_text_open(&t, "model/", &d); pl_prompt_text_encode(&t, prompt, n, &d);
 *      ... pl_prompt_text_put(&t, id, stdout); ... pl_prompt_text_flush(&t, stdout);
 *      pl_prompt_text_close(&t); */
#ifndef PL_RUNTIME_DATA_PROMPT_TEXT_H
#define PL_RUNTIME_DATA_PROMPT_TEXT_H

#include "estimator/config/job.h"
#include "runtime/data/chat/message.h"
#include "runtime/data/prompt_form.h"
#include "runtime/data/tokenizer/tokenizer.h"

#include <stdio.h>

struct pl_prompt_text {
    struct pl_tokenizer *tokenizer; /* NULL: ids only */
    struct pl_tokenizer_scratch *scratch;
    struct pl_chat_date date; /* that templates show; {0}: today */
    struct pl_token_list prompt;
    int32_t *ids; /* [n] of the answer, owned */
    uint64_t n, cap;
    int32_t turn_end; /* ends an answer of a conversation, if there is such a token */
    bool ends_turns;
    uint64_t settled, read; /* ids [0, read) are written; decoding begins at `settled` */
};

/* path: a model directory, a tokenizer.json, or `byte`. */
pl_err pl_prompt_text_open(struct pl_prompt_text *t, const char *path, struct pl_diag *d);
void pl_prompt_text_close(struct pl_prompt_text *t); /* leaves {0} */
/* t->prompt = ids of the text. */
pl_err pl_prompt_text_encode(struct pl_prompt_text *t, const char *prompt, size_t n,
                             struct pl_diag *d);
/* Encodes a conversation of n messages that an answer follows, by a choice of the key
 * `chat_template`; auto: the tokenizer's own. */
pl_err pl_prompt_text_encode_chat(struct pl_prompt_text *t, const struct pl_chat_message *messages,
                                  size_t n, const struct pl_template_choice *choice,
                                  struct pl_diag *d);
/* Encodes a prompt as rows of that form have it, for an answer to follow. */
pl_err pl_prompt_text_encode_as(struct pl_prompt_text *t, enum pl_prompt_form form,
                                const char *prompt, const struct pl_template_choice *choice,
                                struct pl_diag *d);
void pl_prompt_text_begin(struct pl_prompt_text *t); /* before the first token of an answer */
/* Writes the text that `id` completes. */
void pl_prompt_text_put(struct pl_prompt_text *t, int32_t id, FILE *out);
void pl_prompt_text_flush(struct pl_prompt_text *t, FILE *out); /* writes the bytes that were
                                                                       held back */
/* Appends the text of an answer without special tokens. */
pl_err pl_prompt_text_decode(const struct pl_prompt_text *t, const int32_t *ids, uint64_t n,
                             struct pl_text *out, struct pl_diag *d);

#endif
