/* cache_key.h - whether the tokens of a file are kept, where, and under which name.
 *
 * In: a job, the content of a file, whatever else its tokens depend on, as text.  Out: directory
 * and key.  Needs: cache.h. The key covers the content of the file, the facts and the build of the
 * program: another build may tokenise differently, and then its files have other names. */
#ifndef PL_RUNTIME_DATA_CACHE_KEY_H
#define PL_RUNTIME_DATA_CACHE_KEY_H

#include "estimator/config/job.h"
#include "runtime/data/cache.h"
#include "runtime/data/content.h"

/* The directory for the tokens of a job's files, made where it is missing; empty: they are not
 * kept, and *why says so where they were to be, or where the directory is not private (H5 of
 * cache.h). `dataset_cache: auto` keeps only what is `costly` to make. */
void pl_cache_choose_dir(const struct pl_job *job, bool costly, struct pl_text *dir,
                         struct pl_text *why);
/* False when the file cannot be read, or the program has no build id. */
bool pl_cache_make_key(struct pl_cache_key *key, const struct pl_content *content,
                       const struct pl_text *facts);

#endif
