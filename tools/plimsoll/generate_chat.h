/* generate_chat.h - a conversation on a terminal.
 *
 * In: a model that was planned, a tokenizer with a chat template, lines of the user.  Out: answers
 * as they are generated, on stdout; everything else on stderr.
 * Needs: runtime/generate, prompt_text, generate_input.
 *   V1  an answer that is stopped is one of the conversation, as far as it came, and does not end
 *       the program
 *   V2  a turn that does not fit the planned context is told with what to do, and is forgotten */
#ifndef PL_TOOLS_PLIMSOLL_GENERATE_CHAT_H
#define PL_TOOLS_PLIMSOLL_GENERATE_CHAT_H

#include "tools/plimsoll/generate_args.h"

/* Returns the exit status. */
int pl_generate_converse(const struct pl_cli *cli, struct pl_generate_question *q,
                         struct pl_preflight *pf);

#endif
