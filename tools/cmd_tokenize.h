/* cmd_tokenize.h - the forms of `plimsoll tokenize` that stand in files of their own. */
#ifndef PL_TOOLS_CMD_TOKENIZE_H
#define PL_TOOLS_CMD_TOKENIZE_H

#include "tools/cli.h"

/* CONFIG --show N: the first samples of a run, token by token. */
pl_err pl_tokenize_show(const struct pl_cli *cli, struct pl_diag *d);

#endif
