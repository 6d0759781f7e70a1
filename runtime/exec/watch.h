/* watch.h - finds the first value of a run that is not finite, and the op that wrote it.
 *
 * In: ops that have just run.  Out: struct pl_watch.  Needs: executor.h.
 *   W1  ops are looked at in the order of the program, so all that was written before the op that
 *       is found is finite; where an operand that it only reads is not, that operand was so before
 *       the run: it is a weight, and it is what is named
 * Each op is waited for and its results are copied to the host, which is for the last run of a job.
 * Use: e.watch = w; pl_exec_run(&e, first, n, &d); e.watch = NULL; if (w->found) ... */
#ifndef PL_RUNTIME_EXEC_WATCH_H
#define PL_RUNTIME_EXEC_WATCH_H

#include "runtime/exec/executor.h"

struct pl_watch {
    bool found;
    bool written;         /* by the op; false: it was read (W1) */
    uint32_t op, tensor;  /* ids of the program */
    uint64_t row, column; /* of the tensor */
    const char *value;    /* "nan", "inf" or "-inf" */
    unsigned char buffer[65536];
};

/* Looks at what ops [first, first + n) wrote, unless a value was found before. Errors of copies. */
pl_err pl_watch_ops(struct pl_exec *e, uint32_t first, uint32_t n);
/* Writes "layers.3.mlp.out[5, 17] is inf, written by op 45 (linear, layer 3)". */
void pl_watch_text(const struct pl_program *p, const struct pl_watch *w, char buf[256]);

#endif
