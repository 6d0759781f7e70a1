/* fetched_files.h - counts the files of a snapshot, through the links that it is made of. */
#ifndef PL_TOOLS_PLIMSOLL_FETCHED_FILES_H
#define PL_TOOLS_PLIMSOLL_FETCHED_FILES_H

#include "estimator/base/diag.h"

#include <stdbool.h>
#include <stdint.h>

struct pl_fetched_files {
    uint64_t n, bytes;
    bool has_config; /* config.json, in the directory itself */
};

/* Adds the files of a directory and of those in it, up to a depth of 8. */
pl_err pl_fetched_files_count(const char *dir, struct pl_fetched_files *out, struct pl_diag *d);

#endif
