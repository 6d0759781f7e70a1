/* encode.h - encodes a row as tokens and labels.
 *
 * In: text, or a conversation.  Out: struct pl_sample.  Needs: tokenizer, chat.
 *   E1  a text is encoded once and as a whole; labels follow from where its tokens begin: a token
 *       is trained if it begins in a trained span; where a program marks answers, also if it holds
 *       the first character of one
 *   E2  a rendered conversation is encoded without the tokens of the post-processor, since
 *       templates write them; plain text gets them, and ends with the model's end of sequence
 *   E3  no part of a row is lost in silence: a template that drops a message or a part of the last
 *       answer refuses the row, and what it drops of earlier answers is counted
 * Use: struct pl_encoder e = {0};
 *      pl_encoder_open(&e, job, model, &d); pl_encoder_choose_chat(&e, job, notes, &d);
 *      pl_encode_text(&e, text, n, 0, &sample, &d); ... pl_encoder_finish(&e); */
#ifndef PL_RUNTIME_DATA_ENCODE_H
#define PL_RUNTIME_DATA_ENCODE_H

#include "estimator/config/job.h"
#include "estimator/model/model.h"
#include "runtime/data/encode_row.h"

/* Opens the tokenizer of `tokenizer:`, else the model's own. Does nothing if called again.
 * PL_ERR_TOKENIZER_FILE: none is named or found, or it has more tokens than the model. */
pl_err pl_encoder_open(struct pl_encoder *e, const struct pl_job *job, const struct pl_model *m,
                       struct pl_diag *d);
/* Notes remarks on the files of the tokenizer, once. */
void pl_encoder_note_tokenizer(const struct pl_encoder *e, const struct pl_job *job,
                               struct pl_text *notes);
/* Chooses the template of `chat_template:`; auto: the tokenizer's own. Needs an open encoder.
 * PL_ERR_DATA_TEMPLATE: there is none; the hint lists the names. notes (nullable) gets warnings
 * about the choice. */
pl_err pl_encoder_choose_chat(struct pl_encoder *e, const struct pl_job *job, struct pl_text *notes,
                              struct pl_diag *d);
/* Makes the chosen template a program, by which parts of a conversation can be rendered. Does
 * nothing for `tokenizer: byte`, which has no marks that a program could write. */
pl_err pl_encoder_take_program(struct pl_encoder *e, struct pl_diag *d);
/* Appends the Jinja program of the chosen template; nothing if none was chosen, or if it is the
 * tokenizer's own. */
void pl_encoder_write_program(const struct pl_encoder *e, struct pl_text *out);
/* True if there is a template whose text depends on the day on which it is rendered. */
bool pl_encoder_shows_date(const struct pl_encoder *e);
/* Writes the day that chats show, as `chat_date` takes it; "" = they show none. Returns buf. */
const char *pl_encoder_write_day(const struct pl_encoder *e, char buf[PL_DAY_TEXT]);
/* Appends everything that samples depend on besides the text: two encoders with equal facts make
 * the same samples of it. */
void pl_encoder_add_facts(const struct pl_encoder *e, struct pl_text *out);
void pl_encoder_finish(struct pl_encoder *e); /* leaves {0} */

/* Encodes text[0, n), of which the first prompt_bytes are masked under `train_on: responses` and
 * `last`. An empty text gives an empty sample. */
pl_err pl_encode_text(struct pl_encoder *e, const char *text, size_t n, size_t prompt_bytes,
                      struct pl_sample *out, struct pl_diag *d);
/* Encodes the messages of c, of which the first n_prompt are trained only if they say so. Needs a
 * template. PL_ERR_DATA_TEMPLATE: it refuses the conversation. */
pl_err pl_encode_conversation(struct pl_encoder *e, struct pl_conversation *c, size_t n_prompt,
                              struct pl_sample *out, struct pl_diag *d);

#endif
