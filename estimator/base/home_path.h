/* home_path.h - `~/` at the beginning of a path, which no shell has expanded.
 *
 * In: a path from a configuration or a flag.  Out: the path to open.  Needs: base.
 *   HP1  a path that begins otherwise is the path itself, byte for byte
 *   HP2  anything else that a shell would expand (`~user`, `$HOME`) is refused, not created
 * Use: PL_TRY(pl_home_path("output_dir", text, &path, d)); */
#ifndef PL_ESTIMATOR_BASE_HOME_PATH_H
#define PL_ESTIMATOR_BASE_HOME_PATH_H

#include "estimator/base/diag.h"

/* The problem with a path, and the path to write instead. */
struct pl_home_problem {
    char what[160], hint[160];
};

/* Sets *out to a malloc'd path. PL_ERR_CONFIG_RANGE with *problem filled, or PL_ERR_HOST_OOM. */
pl_err pl_home_path(const char *path, char **out, struct pl_home_problem *problem);

#endif
