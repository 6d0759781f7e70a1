/* run_state.h - trainer_state.json: what a run had done, which run it was, and what it was made of.
 *
 * In/out: a directory, of a checkpoint or of a finished run.  Needs: base, jansson.
 *   R1  the file is written last, and holds the size and digest of every other file
 *   R2  it holds a digest of its own text, so that no bit of it can change unseen
 *   R3  format 2 has all of this; a file without `format` is of a version that wrote counters alone
 *       and is read as such; a larger one is refused
 * Use: pl_run_record_read(&r, dir, &d); ... pl_run_record_finish(&r); */
#ifndef PL_RUNTIME_CHECKPOINT_RUN_STATE_H
#define PL_RUNTIME_CHECKPOINT_RUN_STATE_H

#include "runtime/checkpoint/checkpoint.h"
#include "runtime/checkpoint/durable.h"

#include <jansson.h>

#define PL_STATE_FILE   "trainer_state.json"
#define PL_STATE_FORMAT 2

struct pl_run_record {
    struct pl_run_state state;
    json_t *job;   /* owned; as pl_checkpoint_write_state got it; NULL: not recorded */
    json_t *files; /* owned; manifest.h; NULL: no digests were written */
};

/* Whether there is one at all. What cannot be found out is PL_ERR_CHECKPOINT_FILE: a directory that
 * does not answer is not one without a checkpoint. */
pl_err pl_run_record_exists(const char *dir, bool *out, struct pl_diag *d);
/* PL_ERR_CHECKPOINT_FILE: it cannot be read; PL_ERR_CHECKPOINT_FORMAT: it is damaged (R2), or of a
 * later version. *out is finished then. */
pl_err pl_run_record_read(struct pl_run_record *out, const char *dir, struct pl_diag *d);
void pl_run_record_finish(struct pl_run_record *r); /* safe on {0} and twice */
/* The last file of the outbox: it lists the others as their manifest does, and the outbox has none
 * afterwards. job is borrowed and may be NULL. */
pl_err pl_run_record_put(struct pl_outbox *o, const struct pl_run_state *s, json_t *job,
                         struct pl_diag *d);

#endif
