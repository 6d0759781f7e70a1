/* row_program.h - writes a template of the table as a Jinja program that renders the same text.
 *
 * In: a row.  Out: a program for other readers of a saved model: `generate --chat`, transformers,
 * llama.cpp.  Needs: render.h.
 *   W1  for every conversation that the row renders, the program renders the same bytes, with the
 *       tokenizer's marks in place of the row's own; it refuses roles that do not alternate as the
 *       row does, and leaves out the same parts
 * A row without code of its own is written out turn by turn; one that has code brings its program.
 * */
#ifndef PL_RUNTIME_DATA_CHAT_ROW_PROGRAM_H
#define PL_RUNTIME_DATA_CHAT_ROW_PROGRAM_H

#include "runtime/data/chat/chat.h"

/* Appends the program; out->failed is set if memory is missing. */
void pl_chat_write_program(const struct pl_chat_template *t, struct pl_text *out);

#endif
