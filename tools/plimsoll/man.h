/* man.h - the manual pages, from the tables that help and the parser read.
 *
 * In: the tables of cli.h and keys.h.  Out: roff for the man macros (groff_man(7)), without a date,
 * so that the same source gives the same page.  Needs: cli.h.
 *   M1  every word of a page is a word of a table, or of this module: a flag, key or command is in
 *       the manual as soon as it has its row
 *   M2  a text in `backquotes` is set bold; an example is set as it is typed
 * Use: struct pl_text page = {0}; pl_man_page("plimsoll-train.1", &page); ... pl_text_finish(); */
#ifndef PL_TOOLS_PLIMSOLL_MAN_H
#define PL_TOOLS_PLIMSOLL_MAN_H

#include "tools/plimsoll/cli.h"

/* Appends "plimsoll.1", "plimsoll-COMMAND.1" or "plimsoll.yaml.5"; false for another name. */
bool pl_man_page(const char *name, struct pl_text *out);

#endif
