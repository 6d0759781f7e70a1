/* model_io.h - Hugging Face model directories, read and written.
 *
 * In/out: config.json, safetensors and what goes with them.  Needs: windows. */
#ifndef PL_RUNTIME_CHECKPOINT_MODEL_IO_H
#define PL_RUNTIME_CHECKPOINT_MODEL_IO_H

#include "estimator/base/text.h"
#include "runtime/checkpoint/companions.h"
#include "runtime/checkpoint/durable.h"
#include "runtime/checkpoint/tensor_io.h"
#include "runtime/checkpoint/window_write.h"
#include "runtime/checkpoint/windows.h"

/* True if `dir` has weight files at all: model.safetensors, or an index of shards. */
pl_err pl_model_has_weights(const char *dir, bool *out, struct pl_diag *d);
pl_err pl_model_check_files(const struct pl_program *p, const char *dir,
                            struct pl_diag *d); /* C3 */
/* Checks the same, and that no weight would be rounded on its way into the tensors. */
pl_err pl_model_check_exact(const struct pl_program *p, const char *dir, struct pl_diag *d);
/* Adds notes when tensors are found under other names, and when the files hold tensors that the
 * model has no place for. */
pl_err pl_model_note_surplus(const struct pl_program *p, const char *dir, struct pl_text *notes,
                             struct pl_diag *d);
/* Reads all of the weights: PL_ERR_CHECKPOINT_FORMAT names the first number that is not finite. */
pl_err pl_model_check_numbers(const char *dir, struct pl_diag *d);
/* Loads base weights of `dir` (model.safetensors or shards with index) into the WEIGHT tensors. */
pl_err pl_model_load(const struct pl_tensor_io *io, const char *dir, struct pl_diag *d);

/* Largest shard that transformers writes by default; one tensor may exceed it. */
#define PL_SHARD_BYTES UINT64_C(5000000000)

/* Writes the files of a model into an outbox, whose manifest counts, for the caller to commit.
 * config_json: text to write as config.json. The companions go with them. Weights are written in
 * their storage dtype, in shards of at most shard_bytes of tensor data. */
pl_err pl_model_put(const struct pl_tensor_io *io, struct pl_outbox *o, const char *config_json,
                    const struct pl_companions *companions, uint64_t shard_bytes,
                    struct pl_diag *d);
/* The other ranks call this meanwhile, where they share the files of weights (share.h). */
pl_err pl_model_join(const struct pl_tensor_io *io, struct pl_outbox *o, uint64_t shard_bytes,
                     struct pl_diag *d);
/* True, for pl_save_set_commit, if these are weights of an earlier save under another name than
 * those of the outbox. Readers prefer model.safetensors to an index, so a leftover would be loaded
 * in place of what was just written. A save that was killed may have left temporaries as large as
 * the model. */
bool pl_model_is_leftover(const char *name, const void *outbox);
/* Returns config.json of a saved model: the text as it was read, but for the type its weights now
 * have, the codes that they no longer are, and with `unties` a head of its own. malloc'd; NULL when
 * out of memory or when it is not a JSON object. */
char *pl_model_config_text(const char *config_json, enum pl_dtype dtype, bool unties);
/* True for NAME.tmp of a file that saving a model writes, which a save that was killed leaves. */
bool pl_model_is_temporary(const char *name);
/* Does what pl_model_put does for any windows, whose tensors come from `source`, in an existing
 * directory: all files are replaced, or none is (save_set.h). */
pl_err pl_model_write(const struct pl_windows *w, const struct pl_window_source *source,
                      const char *dir, const char *config_json,
                      const struct pl_companions *companions, uint64_t shard_bytes,
                      struct pl_diag *d);

#endif
