/* run_state.h - trainer_state.json: what a run had done, which run it was, and what it was made of.
 *
 * In/out: a directory, of a checkpoint or of a finished run.  Needs: base, jansson.
 *   R1  the file is written last, and holds the size and digest of every other file
 *   R2  it holds a digest of its own text, so that no bit of it can change unseen
 *   R3  format 2 has all of this; format 3 is the same with files that have pieces (manifest.h), so
 *       that versions before them refuse it by its number. A file without `format` is of a version
 *       that wrote counters alone and is read as such; a larger format is refused
 * Use: pl_run_record_read(&r, dir, &d); ... pl_run_record_finish(&r); */
#ifndef PL_RUNTIME_CHECKPOINT_RUN_STATE_H
#define PL_RUNTIME_CHECKPOINT_RUN_STATE_H

#include "runtime/checkpoint/durable.h"

#include <jansson.h>

#define PL_STATE_FILE   "trainer_state.json"
#define PL_STATE_FORMAT 2
#define PL_STATE_PIECES 3 /* the format, where a file has pieces */

#define PL_RUN_ID_TEXT 33 /* 128 bits in hex and a NUL */

/* Counters of a run: everything but tensors that a bit-equal resume needs. */
struct pl_run_state {
    uint64_t step;         /* optimizer steps done */
    uint64_t position;     /* samples consumed */
    uint32_t batch_size;   /* micro-batch in use, found by auto or recovery */
    uint64_t global_batch; /* samples per step */
    uint64_t tokens;       /* supervised tokens seen */
    uint64_t oom_recoveries;
    uint64_t seed;
    uint32_t unit;                    /* micro-batch that the run began with; 0: not recorded */
    uint32_t loss_chunk_tokens;       /* in use; 0: not recorded */
    uint64_t epoch_rows, data_tokens; /* of the data it is trained on; 0: not recorded */
    /* Under fp16; 0 and 0 elsewhere. */
    uint64_t loss_scale;    /* of the next step */
    uint64_t good_updates;  /* in a row, with this scale */
    uint64_t skipped_steps; /* that were no updates, since their gradients overflowed */
    /* Counters of a run that compares evaluations; 0 elsewhere. */
    uint32_t best_of;             /* the figure, PL_METRIC_* + 1 */
    uint64_t best_seen;           /* the best one of all evaluations, the bits of a double */
    uint64_t best_saved;          /* the best one of those that have a checkpoint, likewise */
    uint64_t best_step;           /* the step of that; 0: none */
    uint64_t evaluations_in_vain; /* in a row, which were not better by enough */
    uint32_t chat_day; /* that its chats show, 2025-01-31 as 20250131; 0: none, or not recorded */
    /* Runs that start over, or go back, in one output_dir count up; a resumed run keeps both.
     * 0 and "": of a version that recorded neither. */
    uint64_t run_number;
    char run_id[PL_RUN_ID_TEXT]; /* at random: runs of equal number in one place are told apart */
};

struct pl_run_record {
    struct pl_run_state state;
    json_t *job;   /* owned; as pl_checkpoint_write_state got it; NULL: not recorded */
    json_t *files; /* owned; manifest.h; NULL: no digests were written */
};

/* True if there is one at all. A directory that cannot be read is PL_ERR_CHECKPOINT_FILE: a
 * directory that does not answer is not one without a checkpoint. */
pl_err pl_run_record_exists(const char *dir, bool *out, struct pl_diag *d);
/* PL_ERR_CHECKPOINT_FILE: it cannot be read; PL_ERR_CHECKPOINT_FORMAT: it is damaged (R2), or of a
 * later version. *out is finished then. */
pl_err pl_run_record_read(struct pl_run_record *out, const char *dir, struct pl_diag *d);
pl_err pl_checkpoint_read_state(const char *path, struct pl_run_state *out, struct pl_diag *d);
void pl_run_record_finish(struct pl_run_record *r); /* safe on {0} and twice */
/* The last file of the outbox: it lists the others as their manifest does, and the outbox has none
 * afterwards. job is borrowed and may be NULL. */
pl_err pl_run_record_put(struct pl_outbox *o, const struct pl_run_state *s, json_t *job,
                         struct pl_diag *d);

#endif
