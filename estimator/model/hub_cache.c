/* hub_cache.c - paths of the hub cache. */
#include "estimator/model/hub_cache.h"

#include "estimator/base/alloc.h"
#include "estimator/base/open_file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define REF_MAX 128 /* a ref holds the 40 digits of a commit */

static void add_cache_root(struct pl_text *out) {
    static const struct {
        const char *variable, *below;
    } roots[] = {{"HF_HUB_CACHE", ""},
                 {"HUGGINGFACE_HUB_CACHE", ""}, /* name of the variable before huggingface_hub
                                                   0.14 */
                 {"HF_HOME", "/hub"},
                 {"XDG_CACHE_HOME", "/huggingface/hub"},
                 {"HOME", "/.cache/huggingface/hub"}};
    for (size_t i = 0; i < sizeof roots / sizeof *roots; i++) {
        const char *value = getenv(roots[i].variable);
        if (!value || !*value) continue;
        pl_text_addf(out, "%s%s", value, roots[i].below);
        return;
    }
}

pl_err pl_hub_repository(enum pl_hub_kind kind, const char *id, char **out, struct pl_diag *d) {
    struct pl_text t = {0};
    *out = NULL;
    add_cache_root(&t);
    if (!t.len && !t.failed) return PL_ERR_OK;
    pl_text_add(&t, kind == PL_HUB_DATASET ? "/datasets--" : "/models--");
    for (; *id; id++)
        pl_text_addn(&t, *id == '/' ? "--" : id, *id == '/' ? 2 : 1);
    if (!t.failed) {
        *out = t.data;
        return PL_ERR_OK;
    }
    pl_text_finish(&t);
    return pl_host_oom(d, "a path");
}

/* False: errno may say why. */
static bool read_ref(const char *path, char ref[REF_MAX]) {
    errno = 0;
    FILE *f = pl_fopen_file(path, NULL);
    if (!f) return false;
    size_t n = fread(ref, 1, REF_MAX - 1, f);
    bool ok = !ferror(f);
    fclose(f);
    ref[n] = 0;
    n = strcspn(ref, " \t\r\n");
    ref[n] = 0;
    return ok && n > 0 && ref[0] != '.' && !strchr(ref, '/');
}

pl_err pl_hub_snapshot(const char *repository, const char *revision, struct pl_text *dir,
                       struct pl_text *why, struct pl_diag *d) {
    char ref[REF_MAX];
    struct pl_text path = {0};
    pl_err err = PL_ERR_OK;
    pl_text_addf(&path, "%s/refs/%s", repository, revision);
    if (path.failed)
        err = pl_host_oom(d, "a path");
    else if (read_ref(path.data, ref))
        pl_text_addf(dir, "%s/snapshots/%s", repository, ref);
    else if (errno == ENOMEM)
        err = pl_host_oom(d, path.data);
    else if (strlen(revision) == 40 && strspn(revision, "0123456789abcdef") == 40) /* a commit */
        pl_text_addf(dir, "%s/snapshots/%s", repository, revision);
    else
        pl_text_addf(why, "%s does not name a snapshot", path.data);
    pl_text_finish(&path);
    if (err == PL_ERR_OK && (dir->failed || why->failed)) err = pl_host_oom(d, "a path");
    return err;
}
