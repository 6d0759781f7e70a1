/* weight_files.h - the safetensors files of a model or an adapter, and windows by name in them. */
#ifndef PL_RUNTIME_CHECKPOINT_WEIGHT_FILES_H
#define PL_RUNTIME_CHECKPOINT_WEIGHT_FILES_H

#include "runtime/checkpoint/windows.h"

/* dir/STEM.safetensors if there is one, else the shards of dir/STEM.safetensors.index.json; or
 * `dir` itself where it is a GGUF file. A file that is not there is reported as `absent`. */
pl_err pl_weight_files_open(struct pl_weight_files *f, const char *dir, const char *stem,
                            pl_err absent, struct pl_diag *d);
void pl_weight_files_close(struct pl_weight_files *f);
/* Reports `absent` with what the directory has instead of the files that are looked for, and what
 * to do. */
pl_err pl_weight_files_absent(const char *dir, const char *stem, pl_err absent, struct pl_diag *d);
/* Fills file and entry, by the name of the window or else by its plain name; false when no file has
 * it. */
bool pl_window_find(const struct pl_weight_files *f, struct pl_window *w);

#endif
