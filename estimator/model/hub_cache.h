/* hub_cache.h - finds repositories in the cache of huggingface_hub.
 *
 * In: an id and a revision.  Out: paths.
 * Needs: base; the file system and the environment are only read.
 *   H1  the cache is $HF_HUB_CACHE, else $HF_HOME/hub, else huggingface/hub below $XDG_CACHE_HOME
 *       or ~/.cache; the file refs/REVISION of a repository names its snapshot, and so does the
 *       commit itself (huggingface_hub, "Understand caching")
 * Use: pl_hub_repository(PL_HUB_MODEL, "Qwen/Qwen2.5-7B", &repository, &d);
 *      pl_hub_snapshot(repository, "main", &dir, &why, &d); */
#ifndef PL_ESTIMATOR_MODEL_HUB_CACHE_H
#define PL_ESTIMATOR_MODEL_HUB_CACHE_H

#include "estimator/base/text.h"

enum pl_hub_kind { PL_HUB_MODEL, PL_HUB_DATASET };

/* Gives the directory of a repository, malloc'd, whether it is there or not; NULL where no variable
 * says where the cache is. */
pl_err pl_hub_repository(enum pl_hub_kind kind, const char *id, char **out, struct pl_diag *d);
/* Appends the directory of a snapshot to *dir, or the reason why there is none to *why. An error is
 * a lack of memory. */
pl_err pl_hub_snapshot(const char *repository, const char *revision, struct pl_text *dir,
                       struct pl_text *why, struct pl_diag *d);

#endif
