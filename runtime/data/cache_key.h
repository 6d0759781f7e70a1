/* cache_key.h - the directory and the name under which the tokens of a file are kept.
 *
 * In: a job, the content of a file, the other facts that its tokens depend on, as text.  Out:
 * directory and key.  Needs: cache.h. The key covers the content of the file, the facts and the
 * build of the program: another build may tokenise differently, and then its files have other
 * names. */
#ifndef PL_RUNTIME_DATA_CACHE_KEY_H
#define PL_RUNTIME_DATA_CACHE_KEY_H

#include "estimator/config/job.h"
#include "runtime/data/cache.h"
#include "runtime/data/content.h"

/* Chooses the directory for the tokens of a job's files, and makes it if it is missing. Empty: they
 * are not kept; *why holds the reason if they were to be kept, or if the directory is not private
 * (H5 of cache.h). `dataset_cache: auto` keeps only tokens that are `costly` to make. */
void pl_cache_choose_dir(const struct pl_job *job, bool costly, struct pl_text *dir,
                         struct pl_text *why);
/* False if the file cannot be read, or the program has no build id. */
bool pl_cache_make_key(struct pl_cache_key *key, const struct pl_content *content,
                       const struct pl_text *facts);

#endif
