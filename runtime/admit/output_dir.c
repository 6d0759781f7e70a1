#include "runtime/admit/output_dir.h"

#include "estimator/base/alloc.h"
#include "estimator/base/checked.h"
#include "estimator/config/job_values.h"
#include "runtime/admit/admission.h"
#include "runtime/admit/record.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/checkpoint/durable.h"
#include "runtime/checkpoint/read_file.h"
#include "runtime/checkpoint/run_state.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

static pl_err cannot(const char *path, const char *what, struct pl_diag *d) {
    return pl_diag_at(d, pl_err_of_errno(PL_ERR_IO), path, 0, 0, "output_dir cannot be %s: %s",
                      what, strerror(errno));
}

static pl_err make_part(struct pl_preflight *pf, const char *path, struct pl_diag *d) {
    if (mkdir(path, 0777) != 0) return errno == EEXIST ? PL_ERR_OK : cannot(path, "made", d);
    PL_TRY(pl_dir_sync_parent(path, d));
    if (!pf->files.made) pf->files.made = strlen(path);
    return PL_ERR_OK;
}

static pl_err make_all(struct pl_preflight *pf, const char *path, struct pl_diag *d) {
    struct stat st;
    char *copy = pl_strdup(path);
    pl_err err = copy ? PL_ERR_OK : pl_host_oom(d, "a path");
    for (char *p = copy ? strchr(copy + (*copy == '/'), '/') : NULL; p && err == PL_ERR_OK;
         p = strchr(p + 1, '/')) {
        *p = 0;
        if (stat(copy, &st) != 0) err = make_part(pf, copy, d);
        *p = '/';
    }
    free(copy);
    return err == PL_ERR_OK ? make_part(pf, path, d) : err;
}

/* Directories that hold a file by now stay. */
static void remove_made(const struct pl_preflight *pf) {
    char *path = pf->files.made ? pl_strdup(pf->job->output_dir) : NULL;
    for (size_t n = path ? strlen(path) : 0; n >= pf->files.made && n;) {
        path[n] = 0;
        if (rmdir(path) != 0 && errno != ENOENT) break;
        while (n && path[n] != '/')
            n--;
    }
    free(path);
}

static pl_err is_taken(const char *path, struct pl_diag *d) {
    pl_diag_at(d, PL_ERR_IO, path, 0, 0, "another run writes into this output_dir");
    pl_diag_hint(d, "wait until it has ended, or set another `output_dir`");
    return PL_ERR_IO;
}

/* The lock ends with the process, whatever ends that. Some network file systems lock no
 * directories: there a run is as safe as its user makes it. */
static pl_err lock_dir(const char *path, int how, int *lock, struct pl_diag *d) {
    *lock = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (*lock < 0) return cannot(path, "opened", d);
    const bool taken = flock(*lock, how | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    if (!taken && access(path, W_OK | X_OK) == 0) return PL_ERR_OK;
    pl_err err = taken ? is_taken(path, d) : cannot(path, "written", d);
    close(*lock);
    return err;
}

/* A run that is refused removes the directory that it made. */
static bool is_there_still(const char *path, int lock) {
    struct stat x, y;
    return stat(path, &x) == 0 && fstat(lock, &y) == 0 && x.st_dev == y.st_dev &&
           x.st_ino == y.st_ino;
}

static pl_err take_dir(struct pl_preflight *pf, struct pl_diag *d) {
    const char *path = pf->job->output_dir;
    for (int tries = 0; tries < 3; tries++) {
        PL_TRY(make_all(pf, path, d));
        PL_TRY(lock_dir(path, LOCK_EX, &pf->files.lock, d));
        pf->files.locks = is_there_still(path, pf->files.lock);
        if (pf->files.locks) return PL_ERR_OK;
        close(pf->files.lock);
    }
    return is_taken(path, d);
}

/* The nearest directory above that is there is the one to make it in. */
static pl_err look_above(const char *path, struct pl_diag *d) {
    struct stat st;
    char *above = pl_strdup(path);
    if (!above) return pl_host_oom(d, "a path");
    char *slash = strrchr(above, '/');
    for (; slash && slash != above; slash = strrchr(above, '/')) {
        *slash = 0;
        if (stat(above, &st) == 0) break;
    }
    const char *dir = !slash ? "." : slash == above ? "/" : above;
    const bool is_dir = stat(dir, &st) == 0 && S_ISDIR(st.st_mode);
    if (!is_dir) errno = ENOTDIR;
    pl_err err = is_dir && access(dir, W_OK | X_OK) == 0 ? PL_ERR_OK : cannot(path, "made", d);
    free(above);
    return err;
}

/* True if it could be taken; nothing is made, and what others look at stays free. */
static pl_err look_at_dir(const char *path, struct pl_diag *d) {
    struct stat st;
    int lock;
    if (stat(path, &st) != 0 && (errno == ENOENT || errno == ENOTDIR)) return look_above(path, d);
    PL_TRY(lock_dir(path, LOCK_SH, &lock, d));
    close(lock);
    return PL_ERR_OK;
}

void pl_output_dir_release(struct pl_preflight *pf) {
    remove_made(pf);
    if (pf->files.locks) close(pf->files.lock);
    pf->files.locks = false;
    pf->files.made = 0;
}

/* The pre-flight looked for checkpoints before the directory was locked. */
static pl_err check_resume(const struct pl_preflight *pf, struct pl_diag *d) {
    char *newest = NULL;
    if (strcmp(pf->job->resume, "auto") != 0 && strcmp(pf->job->resume, "force") != 0)
        return PL_ERR_OK;
    PL_TRY(pl_checkpoint_find(pf->job->output_dir, &newest, NULL, d));
    bool same = newest && pf->files.resume_path ? strcmp(newest, pf->files.resume_path) == 0
                                                : !newest && !pf->files.resume_path;
    free(newest);
    if (same) return PL_ERR_OK;
    pl_diag_at(d, PL_ERR_IO, pf->job->output_dir, 0, 0,
               "another run has changed the checkpoints while this one was starting");
    pl_diag_hint(d, "start the same command again");
    return PL_ERR_IO;
}

pl_err pl_output_dir_take(struct pl_preflight *pf, bool makes, struct pl_diag *d) {
    if (!makes) return look_at_dir(pf->job->output_dir, d);
    PL_TRY(take_dir(pf, d));
    return check_resume(pf, d);
}

/* --- what is there already ---------------------------------------------------------------------
 */

PL_PRINTF(3, 4)
static pl_err refuse_dir(const struct pl_preflight *pf, struct pl_diag *d, const char *fmt, ...) {
    char text[sizeof d->message];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    pl_err err = pl_job_error(pf->job, PL_KEY_output_dir, PL_ERR_CONFIG_CONFLICT, d, "%s", text);
    pl_diag_hint(d, "set another `output_dir`, or `overwrite_output_dir: true` to replace it");
    return err;
}

static bool is_same_directory(const char *a, const char *b) {
    struct stat x, y;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

/* Weights under the names that this run will take, from somebody who left no record of a run. A run
 * of an earlier version has left its configuration alone. */
static pl_err look_for_foreign_weights(const struct pl_job *job, bool *there, struct pl_diag *d) {
    static const char *const names[2][5] = {
        {"model.safetensors", "model.safetensors.index.json", "pytorch_model.bin",
         "pytorch_model.bin.index.json"},
        {"adapter_model.safetensors", "adapter_model.bin", "adapter_config.json"}};
    const char *const *name = names[pl_mode_adapts(job->mode)];
    bool ours;
    *there = false;
    PL_TRY(pl_dir_holds(job->output_dir, "config.resolved.yaml", &ours, d));
    for (; !ours && !*there && *name; name++)
        PL_TRY(pl_dir_holds(job->output_dir, *name, there, d));
    return PL_ERR_OK;
}

/* The checkpoint that `auto` found is of a run before the finished one, or of the same one, which
 * would now end earlier. From an earlier step of the same run to the same end, or a later one,
 * nothing is lost: it passes by what is there. */
static pl_err check_stale(const struct pl_preflight *pf, const struct pl_run_state *finished,
                          struct pl_diag *d) {
    const struct pl_run_state *from = &pf->files.resume_state;
    const bool named = strcmp(pf->job->resume, "auto") != 0;
    if (!pf->files.resume_path || named || from->run_number > finished->run_number)
        return PL_ERR_OK;
    if (from->run_number == finished->run_number &&
        pl_u64_max(from->step, pf->total_steps) >= finished->step)
        return PL_ERR_OK;
    return refuse_dir(pf, d,
                      "%s was saved before the run that is finished in %s, at step %llu of %llu",
                      pf->files.resume_path, pf->job->output_dir, (unsigned long long)from->step,
                      (unsigned long long)finished->step);
}

/* Training the same job again gives what is there, or goes on from it. */
static pl_err check_finished(const struct pl_preflight *pf, const json_t *record,
                             const struct pl_run_record *finished, struct pl_diag *d) {
    struct pl_record_differences x;
    pl_record_compare(finished->job, record, &x);
    pl_err err = PL_ERR_OK;
    if (x.meaning.failed)
        err = pl_host_oom(d, "the list of differences");
    else if (x.meaning.len && strcmp(pf->job->resume, "force") != 0)
        err = refuse_dir(pf, d, "%s holds the finished run of another job: %s", pf->job->output_dir,
                         pl_text_str(&x.meaning));
    pl_record_differences_finish(&x);
    return err == PL_ERR_OK && pf->settled ? check_stale(pf, &finished->state, d) : err;
}

pl_err pl_output_dir_judge(struct pl_preflight *pf, const json_t *record, struct pl_diag *d) {
    struct pl_run_record r = {0};
    const struct pl_job *job = pf->job;
    bool there = false, foreign = false;
    if (job->mode == PL_MODE_FULL && pf->files.model_dir && !job->overwrite_output_dir &&
        is_same_directory(pf->files.model_dir, job->output_dir))
        return refuse_dir(pf, d,
                          "output_dir is the directory of the model that is trained, whose "
                          "weights would be replaced");
    PL_TRY(pl_run_record_exists(job->output_dir, &there, d));
    if (!there && !job->overwrite_output_dir) PL_TRY(look_for_foreign_weights(job, &foreign, d));
    if (foreign)
        return refuse_dir(pf, d, "%s holds weights that no run here has recorded", job->output_dir);
    if (!there) return PL_ERR_OK;
    struct pl_diag why = {0};
    pl_err err = pl_run_record_read(&r, job->output_dir, &why);
    if (err == PL_ERR_OK) pf->files.finished = r.state;
    if (job->overwrite_output_dir)
        err = PL_ERR_OK;
    else if (err == PL_ERR_CHECKPOINT_MISMATCH)
        err = refuse_dir(pf, d, "%s holds what another trainer has written", job->output_dir);
    else if (err == PL_ERR_OK)
        err = check_finished(pf, record, &r, d);
    else {
        if (d && d->err == PL_ERR_OK) *d = why;
        pl_diag_hint(d, "move it away, set another `output_dir`, or `overwrite_output_dir: true`");
    }
    pl_run_record_finish(&r);
    return err;
}

/* --- which run this is -------------------------------------------------------------------------
 */

static pl_err make_id(char id[PL_RUN_ID_TEXT], struct pl_diag *d) {
    unsigned char bits[(PL_RUN_ID_TEXT - 1) / 2];
    if (getrandom(bits, sizeof bits, 0) != (ssize_t)sizeof bits)
        return pl_diag_set(d, pl_err_of_errno(PL_ERR_IO), "no random bits for the run's id: %s",
                           strerror(errno));
    for (size_t i = 0; i < sizeof bits; i++)
        snprintf(id + 2 * i, 3, "%02x", bits[i]);
    return PL_ERR_OK;
}

/* A run that goes on from the newest checkpoint is that run. Any other starts over, or goes back:
 * its number is the largest from its first checkpoint on, so that whatever the earlier run still
 * has there - at later steps, too - is not resumed, whenever this one is killed. */
pl_err pl_output_dir_identify(struct pl_preflight *pf, struct pl_diag *d) {
    struct pl_run_state newest = {0};
    char *path = NULL;
    const bool told = strcmp(pf->job->resume, "auto") == 0 || strcmp(pf->job->resume, "force") == 0;
    PL_TRY(pl_checkpoint_search(pf->job->output_dir, PL_CHECKPOINT_OWN, &path,
                                told ? NULL : &pf->notes, d));
    pl_err err = path ? pl_checkpoint_read_state(path, &newest, d) : PL_ERR_OK;
    const bool same =
        path && pf->files.resume_path && is_same_directory(path, pf->files.resume_path);
    free(path);
    if (err != PL_ERR_OK) return err;
    const uint64_t last = pl_u64_max(newest.run_number, pf->files.finished.run_number);
    if (same && newest.run_number && newest.run_number == last) {
        pf->files.run.run_number = newest.run_number;
        memcpy(pf->files.run.run_id, newest.run_id, sizeof pf->files.run.run_id);
        return PL_ERR_OK;
    }
    pf->files.run.run_number = last + 1;
    return make_id(pf->files.run.run_id, d);
}
