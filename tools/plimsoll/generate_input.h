/* generate_input.h - prompts that come from standard input.
 *
 * In: a pipe, a file or a terminal.  Out: the whole of it, or line by line.  Needs: base.
 *   I1  a terminal is read a line at a time, as it is entered; a signal ends the waiting
 * Use: pl_input_read_all(&text, &d);
 *      while (pl_input_line(&in, stop, &line) == PL_INPUT_LINE) ... */
#ifndef PL_TOOLS_PLIMSOLL_GENERATE_INPUT_H
#define PL_TOOLS_PLIMSOLL_GENERATE_INPUT_H

#include "estimator/base/diag.h"
#include "estimator/base/text.h"

#include <signal.h>

/* Appends all of standard input, less one line feed at its end. */
pl_err pl_input_read_all(struct pl_text *out, struct pl_diag *d);

struct pl_input {
    struct pl_text ahead; /* owned: what was read after the last line */
    size_t taken;         /* bytes of it that were given out */
    bool ended;
};
enum pl_input_what { PL_INPUT_LINE, PL_INPUT_END, PL_INPUT_SIGNAL, PL_INPUT_FAILED };
/* Replaces *line by the next one, without its line feed. PL_INPUT_SIGNAL: *stop was set meanwhile;
 * PL_INPUT_FAILED: it cannot be read (errno), or there is no memory for it (line->failed). */
enum pl_input_what pl_input_line(struct pl_input *in, const volatile sig_atomic_t *stop,
                                 struct pl_text *line);
void pl_input_finish(struct pl_input *in); /* leaves {0} */

#endif
