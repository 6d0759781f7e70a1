/* checkpoint.h - weights in and out of files; nothing that is saved can be half there.
 *
 * In/out: Hugging Face model directories, PEFT adapter directories, checkpoint-<step> directories.
 * Needs: estimator, device. All traffic goes through one staging buffer that the plan placed.
 *   C1  a directory appears under its final name only when every file in it is complete and synced:
 *       written as NAME.tmp, files fsynced, directory fsynced, renamed, parent fsynced
 *   C2  a failed write, fsync or rename leaves what was there before and no temporary; only a save
 *       into a directory that keeps its name may leave the rest of its work to who comes next
 *       (save_set.h)
 *   C3  files are read header first; no weight byte is read before every name, shape and dtype of
 *       the model was found right, nor one of a checkpoint before all of it had its digest
 *   C4  a checkpoint that cannot be read is an error and never "no checkpoint"; only a directory
 *       without trainer_state.json is passed over: removing begins with that file, and saving ends
 *       with it before the directory has its name */
#ifndef PL_RUNTIME_CHECKPOINT_CHECKPOINT_H
#define PL_RUNTIME_CHECKPOINT_CHECKPOINT_H

#include "estimator/base/diag.h"
#include "estimator/base/text.h"
#include "estimator/config/job.h"
#include "estimator/program/program.h"
#include "runtime/checkpoint/durable.h"
#include "runtime/device/device.h"

struct json_t; /* jansson's */

/* What the room needs to reach the tensors of a running job. */
struct pl_tensor_io {
    const struct pl_program *program;
    struct pl_device *device;
    struct pl_device *host; /* whose kernels reach tensors in host memory; NULL = none does */
    void *(*address)(void *ctx, uint32_t tensor); /* of a job tensor, in its memory */
    void *ctx;
    void *staging; /* host-writable staging buffer (CPU back-end: inside the batch arena) */
    uint64_t staging_bytes;
};

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
    uint32_t loss_chunk_tokens;       /* in use; 0: not recorded */
    uint64_t epoch_rows, data_tokens; /* of the data it is trained on; 0: not recorded */
    uint32_t chat_day; /* that its chats show, 2025-01-31 as 20250131; 0: none, or not recorded */
    /* Runs that start over, or go back, in one output_dir count up; a resumed run keeps both.
     * 0 and "": of a version that recorded neither. */
    uint64_t run_number;
    char run_id[PL_RUN_ID_TEXT]; /* at random: runs of equal number in one place are told apart */
};

/* Whether `dir` has weight files at all: model.safetensors, or an index of shards. */
pl_err pl_model_has_weights(const char *dir, bool *out, struct pl_diag *d);
pl_err pl_model_check_files(const struct pl_program *p, const char *dir,
                            struct pl_diag *d); /* C3 */
/* The same, and that no weight would be rounded on its way into the tensors. */
pl_err pl_model_check_exact(const struct pl_program *p, const char *dir, struct pl_diag *d);
/* Adds a note when the files hold tensors that the model has no place for. */
pl_err pl_model_note_surplus(const struct pl_program *p, const char *dir, struct pl_text *notes,
                             struct pl_diag *d);
/* Base weights of `dir` (model.safetensors or shards with index) into the WEIGHT tensors. */
pl_err pl_model_load(const struct pl_tensor_io *io, const char *dir, struct pl_diag *d);
/* Masters, where there are any, get the same values before rounding; so they do on loading.
 * normal(0, initializer_range); norms 1, biases 0; a function of (seed, tensor, element) alone, and
 * of the same bits on every back-end. A device with the kernels START, QUANT4 and NEST4 makes them
 * where they belong; for one without they pass through staging. */
pl_err pl_model_init_random(const struct pl_tensor_io *io, uint64_t seed, struct pl_diag *d);
/* A uniform in +-1/sqrt(in), B 0 (PEFT's default). */
pl_err pl_adapter_init(const struct pl_tensor_io *io, uint64_t seed, struct pl_diag *d);
/* r, target_modules, the scale and every name and shape must be those of the program:
 * PL_ERR_CHECKPOINT_MISMATCH names both sides. Names with and without `.default` are read. */
pl_err pl_adapter_load(const struct pl_tensor_io *io, const char *dir, struct pl_diag *d);
/* The same without reading a tensor. */
pl_err pl_adapter_check_files(const struct pl_program *p, const char *dir, struct pl_diag *d);

/* The files of a model into an outbox, whose manifest counts, for the caller to commit.
 * config_json: text to write as config.json. Files of `source_dir` (nullable) that belong to a
 * model directory - tokenizer, generation config, chat template - are copied unchanged. Weights are
 * written in their storage dtype, in shards of at most shard_bytes of tensor data (PL_SHARD_BYTES
 * of model_io.h). */
pl_err pl_model_put(const struct pl_tensor_io *io, struct pl_outbox *o, const char *config_json,
                    const char *source_dir, uint64_t shard_bytes, struct pl_diag *d);
/* The same of an adapter. */
pl_err pl_adapter_put(const struct pl_tensor_io *io, struct pl_outbox *o, const struct pl_job *job,
                      struct pl_diag *d);
/* For pl_save_set_commit: weights of an earlier save under other names than those of the outbox.
 * Readers prefer model.safetensors to an index, so a leftover would be loaded in place of what was
 * just written. A save that was killed may have left temporaries as large as the model. */
bool pl_model_is_leftover(const char *name, const void *outbox);
/* config.json of a saved model: the text as it was read, but for the type its weights now have,
 * and with `unties` for a head of its own. malloc'd; NULL when out of memory or when it is not a
 * JSON object. */
char *pl_model_config_text(const char *config_json, enum pl_dtype dtype, bool unties);

/* A checkpoint directory under construction. */
struct pl_checkpoint {
    char *final_path, *tmp_path; /* owned */
    struct pl_outbox outbox;     /* of tmp_path: weights go in first */
    struct json_t *files;        /* owned; its manifest */
};
pl_err pl_checkpoint_begin(struct pl_checkpoint *c, const char *output_dir, uint64_t step,
                           struct pl_diag *d);
/* Of the tensors of a save, without the headers of files: the model or the adapter, and what a
 * checkpoint holds beside it. */
struct pl_save_bytes {
    uint64_t weights, states;
};
pl_err pl_checkpoint_bytes(const struct pl_program *p, struct pl_save_bytes *out,
                           struct pl_diag *d);
/* Checkpoints of output_dir, by their names; none where there is no such directory. */
pl_err pl_checkpoint_count(const char *output_dir, uint64_t *out, struct pl_diag *d);
/* After the weights: optimizer states (optimizer.safetensors), then counters, `job` (nullable: what
 * the run is, for whoever compares) and the list of files (trainer_state.json). */
pl_err pl_checkpoint_write_state(struct pl_checkpoint *c, const struct pl_tensor_io *io,
                                 const struct pl_run_state *s, struct json_t *job,
                                 struct pl_diag *d);
/* C1; then removes the checkpoints of output_dir but this one and the newest keep - 1 of earlier
 * steps: later ones belong to what this run has started over; and what saves that were killed have
 * left there, so no other process may be saving into output_dir. A checkpoint of the same step is
 * replaced. On success c->final_path stays valid until pl_checkpoint_abort, which is how *c is
 * always finished; on failure *c is already finished. */
pl_err pl_checkpoint_commit(struct pl_checkpoint *c, const char *output_dir, uint32_t keep,
                            struct pl_diag *d);
void pl_checkpoint_abort(struct pl_checkpoint *c); /* removes the temporary; safe after commit and
                                                    * on {0}; frees both paths */

/* C4. The newest checkpoint-<step> in output_dir: of the run of the largest number, the latest
 * step. malloc'd path, or NULL in *out when there is none. notes (nullable): what was passed over.
 */
pl_err pl_checkpoint_find(const char *output_dir, char **out, struct pl_text *notes,
                          struct pl_diag *d);
pl_err pl_checkpoint_read_state(const char *path, struct pl_run_state *out, struct pl_diag *d);
/* Trainable weights (mode full: every weight) and optimizer states back into the job arena, bit for
 * bit. What the checkpoint holds must be exactly what the program trains:
 * PL_ERR_CHECKPOINT_MISMATCH names the first tensor that is missing, too much, or of another shape
 * or type. */
pl_err pl_checkpoint_load(const struct pl_tensor_io *io, const char *path, struct pl_diag *d);

/* Fault injection: the at-th call of open-for-writing, write, fsync, close, rename, mkdir and
 * unlink of a file together (1-based; 0 = none) fails with ENOSPC, count times, or the process is
 * killed before it. Process-wide counter owned by the caller. NULL = off. */
struct pl_io_fault {
    uint64_t at, count, calls;
    bool kills;
};
void pl_checkpoint_set_fault(struct pl_io_fault *f);

/* Whole small text file, crash-safe (temp, fsync, rename, fsync directory). */
pl_err pl_file_write(const char *path, const char *text, uint64_t bytes, struct pl_diag *d);

#endif
