/* window_resolve.h - the tensors of files that windows are, with shape and type checked. */
#ifndef PL_RUNTIME_CHECKPOINT_WINDOW_RESOLVE_H
#define PL_RUNTIME_CHECKPOINT_WINDOW_RESOLVE_H

#include "runtime/checkpoint/weight_files.h"

enum pl_window_match {
    PL_MATCH_CONVERT,  /* any type weights are stored in; other tensors of the files are ignored */
    PL_MATCH_COMPLETE, /* as above, but no other tensor may be there */
    PL_MATCH_EXACT,    /* the tensor's own type, and no other tensor may be there */
};
/* W2. `err` is reported for what is missing, too much, or of the wrong shape or type. */
pl_err pl_windows_resolve(struct pl_windows *w, const struct pl_weight_files *f,
                          enum pl_window_match match, pl_err err, struct pl_diag *d);

#endif
