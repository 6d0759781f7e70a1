/* output_dir.c - the directory of a run: made, and taken for this run alone. */
#include "estimator/base/alloc.h"
#include "runtime/checkpoint/durable.h"
#include "runtime/train/run.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static pl_err make(const char *path, struct pl_diag *d) {
    if (mkdir(path, 0777) == 0) return pl_dir_sync_parent(path, d);
    if (errno == EEXIST) return PL_ERR_OK;
    return pl_diag_at(d, PL_ERR_IO, path, 0, 0, "output_dir cannot be made: %s", strerror(errno));
}

static pl_err make_all(const char *path, struct pl_diag *d) {
    struct stat st;
    char *copy = pl_strdup(path);
    pl_err err = copy ? PL_ERR_OK : pl_host_oom(d, "a path");
    for (char *p = copy ? strchr(copy + (*copy == '/'), '/') : NULL; p && err == PL_ERR_OK;
         p = strchr(p + 1, '/')) {
        *p = 0;
        if (stat(copy, &st) != 0) err = make(copy, d);
        *p = '/';
    }
    free(copy);
    return err == PL_ERR_OK ? make(path, d) : err;
}

/* The lock ends with the process, whatever ends that. Some network file systems lock no
 * directories: there a run is as safe as its user makes it. */
static pl_err lock_dir(const char *path, int *lock, struct pl_diag *d) {
    *lock = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (*lock < 0)
        return pl_diag_at(d, PL_ERR_IO, path, 0, 0, "output_dir cannot be opened: %s",
                          strerror(errno));
    if (flock(*lock, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return PL_ERR_OK;
    pl_diag_at(d, PL_ERR_IO, path, 0, 0, "another run writes into this output_dir");
    pl_diag_hint(d, "wait until it has ended, or set another `output_dir`");
    return PL_ERR_IO;
}

/* The pre-flight looked for checkpoints before the directory was locked. */
static pl_err check_resume(const struct pl_preflight *pf, struct pl_diag *d) {
    char *newest = NULL;
    if (strcmp(pf->job->resume, "auto") != 0) return PL_ERR_OK;
    PL_TRY(pl_checkpoint_find(pf->job->output_dir, &newest, NULL, d));
    bool same = newest && pf->resume_path ? strcmp(newest, pf->resume_path) == 0
                                          : !newest && !pf->resume_path;
    free(newest);
    if (same) return PL_ERR_OK;
    pl_diag_at(d, PL_ERR_IO, pf->job->output_dir, 0, 0,
               "another run has changed the checkpoints while this one was starting");
    pl_diag_hint(d, "start the same command again");
    return PL_ERR_IO;
}

pl_err pl_run_take_output_dir(const struct pl_preflight *pf, int *lock, struct pl_diag *d) {
    PL_TRY(make_all(pf->job->output_dir, d));
    PL_TRY(lock_dir(pf->job->output_dir, lock, d));
    return check_resume(pf, d);
}
