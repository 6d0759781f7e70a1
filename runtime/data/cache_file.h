/* cache_file.h - functions that writer and reader of cached tokens share; private to cache_*.c. */
#ifndef PL_RUNTIME_DATA_CACHE_FILE_H
#define PL_RUNTIME_DATA_CACHE_FILE_H

#include "runtime/data/cache.h"

#include <sys/stat.h>

#define PL_CACHE_MAGIC                                                                             \
    { 'P', 'L', 'T', 'O', 'K', 'E', 'N', '3' }
#define PL_CACHE_MASK UINT32_C(0x80000000)

/* Returns "dir/KEY.suffix", malloc'd; NULL = no memory. */
char *pl_cache_path(const char *dir, const struct pl_cache_key *key, const char *suffix);
uint64_t pl_cache_head_digest(const struct pl_cache_header *h);
/* Returns why a file or directory is not trusted (H5); NULL: it is. */
const char *pl_cache_distrust(const struct stat *st);

#endif
