/* fuzz.c - checks and files for fuzz targets. */
#include "tests/fuzz/fuzz.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void fuzz_fail(const char *file, int line, const char *what) {
    fprintf(stderr, "%s:%d: does not hold: %s\n", file, line, what);
    abort();
}

bool fuzz_outcome(pl_err err, const struct pl_diag *d) {
    FUZZ_CHECK(d->err == err);
    if (err == PL_ERR_OK) return true;
    int status = pl_err_exit_status(err);
    if (err == PL_ERR_HOST_OOM || err == PL_ERR_PLAN_BROKEN) fprintf(stderr, "%s\n", d->message);
    FUZZ_CHECK(err != PL_ERR_HOST_OOM);
    FUZZ_CHECK(err != PL_ERR_PLAN_BROKEN);
    FUZZ_CHECK(status == 2 || status == 5);
    FUZZ_CHECK(d->message[0] && memchr(d->message, 0, sizeof d->message));
    FUZZ_CHECK(memchr(d->hint, 0, sizeof d->hint) && memchr(d->file, 0, sizeof d->file));
    return false;
}

/* --- files ----------------------------------------------------------------------------------- */

#define FILES_MAX 8

static char dir[64];
static char files[FILES_MAX][128]; /* to be removed with it */

static void remove_all(void) {
    for (int i = 0; i < FILES_MAX && files[i][0]; i++)
        unlink(files[i]);
    for (int i = 0; i < FILES_MAX && files[i][0]; i++) {
        *strrchr(files[i], '/') = 0;
        if (strcmp(files[i], dir) != 0) rmdir(files[i]);
    }
    rmdir(dir);
}

const char *fuzz_dir(void) {
    if (dir[0]) return dir;
    snprintf(dir, sizeof dir, "%s", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    strcat(dir, "/plimsoll-fuzz-XXXXXX");
    FUZZ_CHECK(mkdtemp(dir) != NULL);
    FUZZ_CHECK(atexit(remove_all) == 0);
    return dir;
}

/* Below that of the process, one deep. */
static void make_directory_of(const char *path) {
    char above[128];
    size_t n = (size_t)(strrchr(path, '/') - path);
    memcpy(above, path, n);
    above[n] = 0;
    FUZZ_CHECK(mkdir(above, 0700) == 0 || errno == EEXIST);
}

const char *fuzz_file(const char *name, const uint8_t *data, size_t size) {
    static char path[128];
    int i = 0;
    snprintf(path, sizeof path, "%s/%s", fuzz_dir(), name);
    while (i < FILES_MAX && files[i][0] && strcmp(files[i], path) != 0)
        i++;
    FUZZ_CHECK(i < FILES_MAX);
    memcpy(files[i], path, sizeof path);
    make_directory_of(path);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    FUZZ_CHECK(fd >= 0);
    while (size) {
        ssize_t n = write(fd, data, size);
        FUZZ_CHECK(n > 0);
        data += n;
        size -= (size_t)n;
    }
    FUZZ_CHECK(close(fd) == 0);
    return path;
}
