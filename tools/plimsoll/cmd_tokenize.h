/* cmd_tokenize.h - the forms of `plimsoll tokenize` in other files. */
#ifndef PL_TOOLS_PLIMSOLL_CMD_TOKENIZE_H
#define PL_TOOLS_PLIMSOLL_CMD_TOKENIZE_H

#include "tools/plimsoll/cli.h"

/* Calls `answer` for every line of stdin, its line feed left out, until one fails; the failure then
 * names the line. */
pl_err pl_tokenize_lines(pl_err (*answer)(void *session, const char *line, size_t n,
                                          struct pl_diag *d),
                         void *session, struct pl_diag *d);
/* Appends a piece of a listing by lines: a newline in a token is shown as an escape. */
void pl_tokenize_add_visible(struct pl_text *out, const char *word);
/* CONFIG --show N: shows the first samples of a run, token by token. */
pl_err pl_tokenize_show(const struct pl_cli *cli, struct pl_diag *d);
/* --chat-template NAME: shows conversations as text. */
pl_err pl_tokenize_chat(const struct pl_cli *cli, struct pl_diag *d);

#endif
