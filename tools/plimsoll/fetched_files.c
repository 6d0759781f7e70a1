#include "tools/plimsoll/fetched_files.h"

#include "estimator/base/text.h"

#include <dirent.h>
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#define DEEPEST 8

static pl_err count(const char *dir, unsigned depth, struct pl_fetched_files *out,
                    struct pl_diag *d);

static pl_err count_entry(const char *dir, const char *name, unsigned depth,
                          struct pl_fetched_files *out, struct pl_diag *d) {
    struct pl_text path = {0};
    struct stat st;
    pl_err err = PL_ERR_OK;
    pl_text_addf(&path, "%s/%s", dir, name);
    if (path.failed) {
        err = pl_host_oom(d, "a path");
    } else if (stat(path.data, &st) != 0) {
        errno = 0; /* a link whose file is gone is none of the files */
    } else if (S_ISDIR(st.st_mode)) {
        if (depth < DEEPEST) err = count(path.data, depth + 1, out, d);
    } else if (S_ISREG(st.st_mode)) {
        out->n++;
        out->bytes += (uint64_t)st.st_size;
        out->has_config |= depth == 0 && strcmp(name, "config.json") == 0;
    }
    pl_text_finish(&path);
    return err;
}

static pl_err count(const char *dir, unsigned depth, struct pl_fetched_files *out,
                    struct pl_diag *d) {
    const struct dirent *e;
    pl_err err = PL_ERR_OK;
    DIR *list = opendir(dir);
    if (!list)
        return pl_diag_at(d, pl_err_of_errno(PL_ERR_IO), dir, 0, 0, "cannot list: %s",
                          strerror(errno));
    while (err == PL_ERR_OK && (e = readdir(list)))
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
            err = count_entry(dir, e->d_name, depth, out, d);
    closedir(list);
    return err;
}

pl_err pl_fetched_files_count(const char *dir, struct pl_fetched_files *out, struct pl_diag *d) {
    *out = (struct pl_fetched_files){0};
    return count(dir, 0, out, d);
}
