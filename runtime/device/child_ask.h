/* child_ask.h - asks a process of its own, so that what the work leaves or breaks ends with it.
 *
 * In: a function and what it works on.  Out: its answer.  Needs: libc.
 *   CA1  an answer is whole: a child that died before it wrote all of it has given none
 *   CA2  the child has ended when the call returns, and no descriptor of it is left
 * Use: struct answer a = {0};
 *      if (pl_child_ask(fill, &work, &a, sizeof a, &status) == PL_CHILD_ANSWERED) ... */
#ifndef PL_RUNTIME_DEVICE_CHILD_ASK_H
#define PL_RUNTIME_DEVICE_CHILD_ASK_H

#include <stddef.h>

enum pl_child_end {
    PL_CHILD_ANSWERED,
    PL_CHILD_DIED, /* without an answer; *status says of what */
    PL_CHILD_NONE  /* there is no child; errno says why */
};

/* Fills the answer, in the child. */
typedef void pl_child_fn(const void *work, void *answer);

/* answer: `bytes` of it, PIPE_BUF at most, as the child finds them. status (nullable): as
 * waitpid() gives it. */
enum pl_child_end pl_child_ask(pl_child_fn *fn, const void *work, void *answer, size_t bytes,
                               int *status);

#endif
