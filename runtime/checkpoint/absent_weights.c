/* absent_weights.c - a directory without the weight files that are looked for: what it has instead,
 * and what to do with that. */
#include "runtime/checkpoint/absent_weights.h"

#include "estimator/base/alloc.h"
#include "estimator/base/stand_in.h"
#include "runtime/checkpoint/read_file.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DOWNLOAD "`plimsoll fetch OWNER/NAME` downloads all of it"

pl_err pl_weight_files_absent(const char *dir, const char *stem, pl_err absent, struct pl_diag *d) {
    char *name;
    const struct pl_stand_in *is;
    PL_TRY(pl_stand_in_list(dir, stem, &name, &is, d));
    pl_diag_at(d, absent, dir, 0, 0,
               "%s has neither %s.safetensors nor %s.safetensors.index.json%s%s%s%s", dir, stem,
               stem, is ? "; it has " : "", is ? name : "", is ? ": " : "", is ? is->what : "");
    if (is) pl_stand_in_hint(is, dir, d);
    free(name);
    return absent;
}

/* The number of shards that the name of one ends with: model-00001-of-00003.safetensors. */
static unsigned shards_of(const char *name) {
    unsigned n = 0;
    const char *of = strstr(name, "-of-");
    return of && sscanf(of, "-of-%5u.safetensors", &n) == 1 ? n : 0;
}

/* A name in the directory that is a shard of another set, malloc'd; NULL: there is none. */
static char *find_other_set(const char *dir, const char *name) {
    const struct dirent *e;
    const unsigned n = shards_of(name);
    char *found = NULL;
    DIR *list = opendir(dir);
    while (list && n && !found && (e = readdir(list)))
        if (shards_of(e->d_name) && shards_of(e->d_name) != n) found = pl_strdup(e->d_name);
    if (list) closedir(list);
    return found;
}

pl_err pl_weight_files_missing(const struct pl_weight_files *f, const char *dir, const char *first,
                               uint64_t missing, pl_err absent, struct pl_diag *d) {
    const uint64_t n = json_object_size(f->shards);
    const char *slash = strrchr(f->path, '/');
    char *path = pl_path_join(dir, first), *other = find_other_set(dir, first), more[48];
    snprintf(more, sizeof more, missing > 1 ? "and %llu more are missing" : "is missing",
             (unsigned long long)missing - 1);
    pl_err err = path ? pl_diag_at(d, absent, path, 0, 0,
                                   "shard %s, named by %s, %s: %llu of %llu shards are there", path,
                                   slash ? slash + 1 : f->path, more,
                                   (unsigned long long)(n - missing), (unsigned long long)n)
                      : pl_host_oom(d, "a path");
    if (path && other)
        pl_diag_hint(d, "%s is of another revision of the model: " DOWNLOAD, other);
    else if (path)
        pl_diag_hint(
            d, "the same download again fetches what is missing: `plimsoll fetch OWNER/NAME`");
    free(other);
    free(path);
    return err;
}
