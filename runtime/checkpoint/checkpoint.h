/* checkpoint.h - checkpoint-<step> directories; nothing that is saved can be half there.
 *
 * Models are read and written by model_io.h, adapters by adapter_io.h. The invariants are those of
 * all three.
 * Needs: estimator, device. All traffic goes through one staging buffer that the plan placed.
 *   C1  a directory appears under its final name only when every file in it is complete and synced
 *       by all who wrote a part of it (share.h): written as NAME.tmp, files fsynced, directory
 *       fsynced, renamed, parent fsynced
 *   C2  a failed write, fsync or rename leaves what was there before and no temporary; only a save
 *       into a directory that keeps its name may leave the rest of its work to who comes next
 *       (save_set.h)
 *   C3  files are read header first; no weight byte is read before every name, shape and dtype of
 *       the model was found right, nor one of a checkpoint before all of it had its digest
 *   C4  a checkpoint that cannot be read is an error and never "no checkpoint", and so is a link
 *       to what is not there; only a directory without trainer_state.json is passed over, and a
 *       note names it: saving ends with that file before the directory has its name
 *   C5  what has the name of a checkpoint and was not written here as a directory (a link, a file,
 *       a checkpoint of another trainer) is never removed: one that is in the way of a checkpoint
 *       moves to NAME.replaced. A removal renames to NAME.old.tmp first, so that one which is cut
 *       short leaves nothing that looks like a checkpoint */
#ifndef PL_RUNTIME_CHECKPOINT_CHECKPOINT_H
#define PL_RUNTIME_CHECKPOINT_CHECKPOINT_H

#include "estimator/base/text.h"
#include "runtime/checkpoint/durable.h"
#include "runtime/checkpoint/run_state.h"
#include "runtime/checkpoint/tensor_io.h"

struct json_t; /* jansson's */

/* A checkpoint directory under construction. */
struct pl_checkpoint {
    char *final_path, *tmp_path; /* owned */
    uint64_t step;
    struct pl_outbox outbox; /* of tmp_path: weights go in first */
    struct json_t *files;    /* owned; its manifest */
};
/* Returns the path of the checkpoint of a step, malloc'd; NULL: no memory. */
char *pl_checkpoint_path(const char *output_dir, uint64_t step);
pl_err pl_checkpoint_begin(struct pl_checkpoint *c, const char *output_dir, uint64_t step,
                           struct pl_diag *d);
/* Counts the bytes of the tensors of a save, without the headers of files: of the model or the
 * adapter, and of the states that a checkpoint holds with it. p: the job as files know it
 * (cut.h). */
struct pl_save_bytes {
    uint64_t weights, states;
};
pl_err pl_checkpoint_bytes(const struct pl_program *p, struct pl_save_bytes *out,
                           struct pl_diag *d);
/* Counts the checkpoints of output_dir, by their names; a directory that is not there has none. */
pl_err pl_checkpoint_count(const char *output_dir, uint64_t *out, struct pl_diag *d);
/* Writes, after the weights, optimizer states (optimizer.safetensors), then counters, `job`
 * (nullable: what the run is, for whoever compares) and the list of files (trainer_state.json). */
pl_err pl_checkpoint_write_state(struct pl_checkpoint *c, const struct pl_tensor_io *io,
                                 const struct pl_run_state *s, struct json_t *job,
                                 struct pl_diag *d);
/* The other ranks call this while rank 0 fills a checkpoint of which all ranks write a part
 * (share.h); the io of every rank says so. shard_bytes: as rank 0 gives it to pl_model_put. */
pl_err pl_checkpoint_join(const struct pl_tensor_io *io, const char *output_dir, uint64_t step,
                          uint64_t shard_bytes, struct pl_diag *d);
/* The other ranks call this while rank 0 writes all bytes alone: it puts the weights, and writes
 * the states of a checkpoint, of which each rank holds a part. */
pl_err pl_checkpoint_feed(const struct pl_tensor_io *io, bool with_states, struct pl_diag *d);
/* The checkpoints that stay when another one is written. */
struct pl_rotation {
    uint32_t keep; /* how many, above 0 */
    uint64_t best; /* the step of one that stays whatever its age and counts as one of them, unless
                      `keep` is 1; 0: none */
};
/* Gives the directory its name (C1). Then it removes the checkpoints of output_dir but this one and
 * the newest of earlier steps, as many as `stay` says (C5): later ones belong to what this run has
 * started over. It also removes what saves that were killed have left there, so no other process
 * may be saving into output_dir. A checkpoint of the same step is replaced. On success
 * c->final_path stays valid until pl_checkpoint_abort, which is how *c is always finished; on
 * failure *c is already finished. */
pl_err pl_checkpoint_commit(struct pl_checkpoint *c, const char *output_dir,
                            struct pl_rotation stay, struct pl_diag *d);
/* Removes what saves and removals that were cut short have left in output_dir. Every commit does; a
 * run that ends without another save (killed while it removed, after its last checkpoint) calls it
 * at its end. No other process may be saving there. */
pl_err pl_checkpoint_clear(const char *output_dir, struct pl_diag *d);
void pl_checkpoint_abort(struct pl_checkpoint *c); /* removes the temporary; safe after commit and
                                                    * on {0}; frees both paths */

/* Finds the newest checkpoint-<step> in output_dir (C4): of the run of the largest number, the
 * latest step. *out: its path, malloc'd, or NULL when there is none. notes (nullable): what was
 * passed over. */
pl_err pl_checkpoint_find(const char *output_dir, char **out, struct pl_text *notes,
                          struct pl_diag *d);
/* Does the same. Checkpoints of other trainers are passed over with a note; where there are no
 * others, PL_CHECKPOINT_ANY refuses them: CHECKPOINT_MISMATCH. PL_CHECKPOINT_OWN is for a run that
 * resumes nothing. */
enum pl_checkpoint_want { PL_CHECKPOINT_ANY, PL_CHECKPOINT_OWN };
pl_err pl_checkpoint_search(const char *output_dir, enum pl_checkpoint_want want, char **out,
                            struct pl_text *notes, struct pl_diag *d);
/* Reads trainable weights (mode full: every weight) and optimizer states back into the job arena,
 * bit for bit. What the checkpoint holds must be exactly what the program trains:
 * PL_ERR_CHECKPOINT_MISMATCH names the first tensor that is missing, too much, or of another shape
 * or type. */
pl_err pl_checkpoint_load(const struct pl_tensor_io *io, const char *path, struct pl_diag *d);

#endif
