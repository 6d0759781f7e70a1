/* model_io.h - the parts of saving a model that merging and tests turn by hand. */
#ifndef PL_RUNTIME_CHECKPOINT_MODEL_IO_H
#define PL_RUNTIME_CHECKPOINT_MODEL_IO_H

#include "runtime/checkpoint/windows.h"

/* Largest shard that transformers writes by default; one tensor may exceed it. */
#define PL_SHARD_BYTES UINT64_C(5000000000)

/* NAME.tmp of a file that saving a model writes: what is left of a save that was killed. */
bool pl_model_is_temporary(const char *name);
/* pl_model_put of any windows, whose tensors come from `source`, into an existing directory: all
 * files or none (save_set.h). */
pl_err pl_model_write(const struct pl_windows *w, const struct pl_window_source *source,
                      const char *dir, const char *config_json, const char *source_dir,
                      uint64_t shard_bytes, struct pl_diag *d);

#endif
