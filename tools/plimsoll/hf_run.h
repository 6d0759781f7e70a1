/* hf_run.h - runs the command of huggingface_hub, `hf` or, before 0.34, `huggingface-cli`.
 *
 * In: the words after the program's name.  Out: how it ended, and the last of what it wrote.
 * Needs: base.
 *   HR1  no shell sees a word: the program is started with an argument vector
 *   HR2  what it writes appears on stderr at once, so that its progress is seen, and stdout holds
 *        the answer alone
 *   HR3  it runs in a process group of its own, and a signal that stops this process is passed on
 *        once: Ctrl-C would reach it twice otherwise, and end its cleaning up
 * Use: struct pl_hf_end end;
 *      pl_hf_run(words, stop, &end, &d) and end.status == 0 */
#ifndef PL_TOOLS_PLIMSOLL_HF_RUN_H
#define PL_TOOLS_PLIMSOLL_HF_RUN_H

#include "estimator/base/diag.h"

#include <signal.h>

#define PL_HF_TAIL 4096

struct pl_hf_end {
    const char *program; /* the name that it was found under */
    int status;          /* exit status */
    int signal;          /* that ended it; 0 = none */
    char tail[PL_HF_TAIL + 1];
};

/* words[] ends with NULL, and words[0] is left for the name of the program. RUNTIME_IO: it is not
 * installed, or cannot be run. A program that fails is no error here: end->status. */
pl_err pl_hf_run(const char *words[], const volatile sig_atomic_t *stop, struct pl_hf_end *end,
                 struct pl_diag *d);

#endif
