/* cache_dir.h - where things are remembered between runs, and which build remembers them.
 *
 * $XDG_CACHE_HOME/plimsoll, ~/.cache/plimsoll without the variable (XDG Base Directory
 * Specification: relative paths in the variable are ignored). Everything in it may be deleted. */
#ifndef PL_ESTIMATOR_BASE_CACHE_DIR_H
#define PL_ESTIMATOR_BASE_CACHE_DIR_H

#include "estimator/base/text.h"

/* Appends the directory to *path, and makes it if asked. False: there is no home directory. */
bool pl_cache_dir(struct pl_text *path, bool make);

#define PL_BUILD_ID_BYTES 64
/* The GNU build id of the running program in hex; "" where the linker wrote none. */
struct pl_build_id {
    char hex[2 * PL_BUILD_ID_BYTES + 1];
};
struct pl_build_id pl_build_id(void);

#endif
