#include "runtime/data/cache_key.h"

#include "estimator/base/alloc.h"
#include "estimator/base/cache_dir.h"
#include "runtime/data/cache_file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define CHUNK (1u << 18)

static bool make_dir(const struct pl_text *path) {
    return !path->failed && (mkdir(pl_text_str(path), 0700) == 0 || errno == EEXIST);
}

void pl_cache_choose_dir(const struct pl_job *job, bool costly, struct pl_text *dir,
                         struct pl_text *why) {
    const char *wish = job->dataset_cache ? job->dataset_cache : "auto";
    bool automatic = strcmp(wish, "auto") == 0, there;
    struct stat st;
    dir->len = 0;
    if (strcmp(wish, "off") == 0 || (automatic && !costly)) return;
    there = !automatic || pl_cache_dir(dir, true);
    pl_text_add(dir, automatic ? "/tokens" : wish);
    there = there && make_dir(dir);
    bool seen = there && stat(pl_text_str(dir), &st) == 0;
    const char *problem = seen ? pl_cache_distrust(&st) : strerror(errno);
    if (problem && (seen || !automatic))
        pl_text_addf(why, "tokens are not kept: dataset_cache %s: %s", pl_text_str(dir), problem);
    if (problem) dir->len = 0;
}

static void add_part(struct pl_digest h[2], const void *data, size_t n) {
    pl_digest_add(&h[0], data, n);
    pl_digest_add(&h[1], data, n);
}

static bool add_file(struct pl_digest h[2], const struct pl_content *content) {
    char *buf = pl_malloc(CHUNK);
    ssize_t got = -1;
    for (uint64_t at = 0; buf; at += (uint64_t)got) {
        got = pl_content_read(content, buf, CHUNK, at);
        if (got <= 0) break;
        add_part(h, buf, (size_t)got);
    }
    free(buf);
    return got == 0;
}

bool pl_cache_make_key(struct pl_cache_key *key, const struct pl_content *content,
                       const struct pl_text *facts) {
    const struct pl_build_id build = pl_build_id();
    struct pl_digest h[2];
    if (!build.hex[0] || facts->failed) return false;
    for (int i = 0; i < 2; i++)
        pl_digest_init(&h[i], (uint64_t)i + 1);
    add_part(h, build.hex,
             sizeof build.hex); /* fixed in length, so that it cannot run into the facts */
    add_part(h, &facts->len, sizeof facts->len);
    add_part(h, pl_text_str(facts), facts->len);
    if (!add_file(h, content)) return false;
    for (int i = 0; i < 2; i++)
        key->half[i] = pl_digest_value(&h[i]);
    return true;
}
