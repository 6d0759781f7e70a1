/* absent_weights.h - what a directory has instead of the weights that are looked for. */
#ifndef PL_RUNTIME_CHECKPOINT_ABSENT_WEIGHTS_H
#define PL_RUNTIME_CHECKPOINT_ABSENT_WEIGHTS_H

#include "runtime/checkpoint/windows.h"

/* Reports `absent` with what the directory has instead of the files that are looked for,
 * and what to do. */
pl_err pl_weight_files_absent(const char *dir, const char *stem, pl_err absent, struct pl_diag *d);
/* `missing` of the shards that the index names, `first` among them, are not there. */
pl_err pl_weight_files_missing(const struct pl_weight_files *f, const char *dir, const char *first,
                               uint64_t missing, pl_err absent, struct pl_diag *d);

#endif
