#include "runtime/checkpoint/read_file.h"

#include "estimator/base/alloc.h"
#include "estimator/base/open_file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

char *pl_path_join(const char *dir, const char *name) {
    char *path = NULL;
    return pl_asprintf(&path, "%s/%s", dir, name) < 0 ? NULL : path;
}

pl_err pl_file_read_error(struct pl_diag *d, const char *path) {
    return pl_diag_at(d, pl_err_of_errno(PL_ERR_CHECKPOINT_FILE), path, 0, 0, "cannot read %s: %s",
                      path, strerror(errno));
}

pl_err pl_dir_holds(const char *dir, const char *name, bool *out, struct pl_diag *d) {
    struct stat st;
    char *path = pl_path_join(dir, name);
    if (!path) return pl_host_oom(d, "a path");
    *out = lstat(path, &st) == 0;
    pl_err err = *out || errno == ENOENT ? PL_ERR_OK : pl_file_read_error(d, path);
    free(path);
    return err;
}

static pl_err read_whole(int fd, char *data, uint64_t bytes, const char *path, struct pl_diag *d) {
    while (bytes > 0) {
        ssize_t n = read(fd, data, (size_t)bytes);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return pl_file_read_error(d, path);
        if (n == 0)
            return pl_diag_at(d, PL_ERR_CHECKPOINT_FILE, path, 0, 0, "%s shrank while it was read",
                              path);
        data += n;
        bytes -= (uint64_t)n;
    }
    return PL_ERR_OK;
}

pl_err pl_file_read(const char *path, uint64_t limit_bytes, char **out, uint64_t *bytes,
                    struct pl_diag *d) {
    pl_err err = PL_ERR_OK;
    char *data = NULL;
    struct stat st;
    const char *why;
    int fd = pl_open_file(path, &st, &why);
    if (fd < 0) {
        err = pl_diag_at(d, PL_ERR_CHECKPOINT_FILE, path, 0, 0, "cannot read %s: %s", path, why);
        goto out;
    }
    if ((uint64_t)st.st_size > limit_bytes) {
        err = pl_diag_at(d, PL_ERR_CHECKPOINT_FILE, path, 0, 0,
                         "%s is not a file of at most %llu bytes", path,
                         (unsigned long long)limit_bytes);
        goto out;
    }
    data = pl_malloc((size_t)st.st_size + 1);
    if (!data) {
        err = pl_host_oom(d, path);
        goto out;
    }
    PL_TRY_GOTO(read_whole(fd, data, (uint64_t)st.st_size, path, d), out);
    data[st.st_size] = 0;
    *out = data;
    *bytes = (uint64_t)st.st_size;
    data = NULL;
out:
    if (fd >= 0) close(fd);
    free(data);
    return err;
}
