/* log.c - train_log.jsonl: one JSON object a line, whole lines only. */
#include "estimator/base/alloc.h"
#include "estimator/base/json_tree.h"
#include "runtime/report/report.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

/* 17 significant digits give back the same double. */
#define DUMP_FLAGS (JSON_COMPACT | JSON_REAL_PRECISION(17))

#define STOP_WAITS   20
#define STOP_WAIT_NS 10000000L

struct pl_log {
    int fd;
    off_t whole; /* bytes up to the end of the last whole line */
    FILE *echo;
    const volatile sig_atomic_t *stop; /* nullable */
    char *path;
    struct pl_text owed; /* lines that the disk has not taken: the next write begins with them */
};

static pl_err io_error(struct pl_diag *d, const char *path, const char *verb) {
    return pl_diag_at(d, pl_err_of_errno(PL_ERR_IO), path, 0, 0, "cannot %s '%s': %s", verb, path,
                      strerror(errno));
}

static pl_err no_memory(struct pl_diag *d) {
    return pl_host_oom(d, "the training log");
}

/* --- reading --------------------------------------------------------------------------------- */

pl_err pl_log_each(const char *path, pl_err (*each)(void *ctx, const char *line, json_t *o),
                   void *ctx, struct pl_diag *d) {
    pl_err err = PL_ERR_OK;
    char *line = NULL;
    size_t cap = 0;
    FILE *f = fopen(path, "r");
    if (!f) return io_error(d, path, "read");
    ssize_t len;
    while (err == PL_ERR_OK && (len = getline(&line, &cap, f)) >= 0) {
        struct pl_json_error e = {0};
        bool whole = line[len - 1] == '\n';
        json_t *o = whole ? pl_json_load(line, (size_t)len, 0, &e) : NULL;
        if (e.no_memory)
            err = no_memory(d);
        else if (json_is_object(o))
            err = each(ctx, line, o);
        json_decref(o);
    }
    if (err == PL_ERR_OK && !feof(f)) err = io_error(d, path, "read");
    free(line);
    fclose(f);
    return err;
}

/* --- opening --------------------------------------------------------------------------------- */

struct rewrite {
    FILE *to;
    const char *path;
    uint64_t keep_steps;
    bool keep_recoveries;
    struct pl_diag *d;
};

/* `step` stands in what belongs to one step, `steps` in the summary of a run that went further. */
static bool is_beyond(json_t *o, uint64_t keep_steps) {
    static const char *const keys[] = {"step", "steps"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        json_t *v = json_object_get(o, keys[i]);
        if (json_is_number(v) && json_number_value(v) > (double)keep_steps) return true;
    }
    return false;
}

static pl_err rewrite_line(void *ctx, const char *line, json_t *o) {
    struct rewrite *r = ctx;
    const char *event = json_string_value(json_object_get(o, "event"));
    const bool kept = r->keep_recoveries && event && strcmp(event, "oom_recovery") == 0;
    if (!kept && is_beyond(o, r->keep_steps)) return PL_ERR_OK;
    return fputs(line, r->to) < 0 ? io_error(r->d, r->path, "write") : PL_ERR_OK;
}

static pl_err sync_directory_of(const char *path, struct pl_diag *d) {
    const char *slash = strrchr(path, '/');
    size_t len = slash == path ? 1 : slash ? (size_t)(slash - path) : 1;
    char *dir = pl_strndup(slash ? path : ".", len);
    if (!dir) return no_memory(d);
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    pl_err err = fd >= 0 && fsync(fd) == 0 ? PL_ERR_OK : io_error(d, dir, "sync");
    if (fd >= 0) close(fd);
    free(dir);
    return err;
}

/* A link that somebody has put in the place of the file is not followed. */
static FILE *create_file(const char *path) {
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0666);
    FILE *f = fd >= 0 ? fdopen(fd, "w") : NULL;
    if (!f && fd >= 0) close(fd);
    return f;
}

/* Leaves the old log or the new one, never a mixture: writes a temporary, syncs, renames, syncs.
 * none: no line is kept. */
static pl_err drop_lines_beyond(const char *path, bool none, uint64_t keep_steps,
                                bool keep_recoveries, struct pl_diag *d) {
    pl_err err = PL_ERR_OK;
    struct pl_text beside = {0};
    pl_text_addf(&beside, "%s.tmp", path);
    if (beside.failed) {
        err = no_memory(d);
        goto out;
    }
    FILE *to = create_file(beside.data);
    if (!to) {
        err = io_error(d, beside.data, "write");
        goto out;
    }
    struct rewrite r = {to, beside.data, keep_steps, keep_recoveries, d};
    if (!none) err = pl_log_each(path, rewrite_line, &r, d);
    if (err == PL_ERR_OK && (fflush(to) != 0 || fsync(fileno(to)) != 0))
        err = io_error(d, beside.data, "write");
    if (fclose(to) != 0 && err == PL_ERR_OK) err = io_error(d, beside.data, "write");
    if (err == PL_ERR_OK && rename(beside.data, path) != 0) err = io_error(d, path, "replace");
    if (err == PL_ERR_OK)
        err = sync_directory_of(path, d);
    else
        unlink(beside.data);
out:
    pl_text_finish(&beside);
    return err;
}

static pl_err open_end(struct pl_log *log, struct pl_diag *d) {
    log->fd = open(log->path, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (log->fd < 0 || (log->whole = lseek(log->fd, 0, SEEK_END)) < 0)
        return io_error(d, log->path, "open");
    return PL_ERR_OK;
}

pl_err pl_log_open(const char *path, uint64_t keep_steps, FILE *echo, struct pl_log **out,
                   struct pl_diag *d) {
    *out = NULL;
    struct stat st;
    const bool fresh = lstat(path, &st) != 0;
    if (fresh && errno != ENOENT) return io_error(d, path, "open");
    if (!fresh) PL_TRY(drop_lines_beyond(path, keep_steps == 0, keep_steps, false, d));
    pl_err err;
    struct pl_log *log = pl_calloc(1, sizeof *log);
    if (!log) return no_memory(d);
    log->echo = echo;
    log->path = pl_strdup(path);
    log->fd = -1;
    err = log->path ? open_end(log, d) : no_memory(d);
    if (err == PL_ERR_OK && fresh) /* the name, too, must outlive a power cut */
        err = sync_directory_of(path, d);
    if (err == PL_ERR_OK)
        *out = log;
    else
        pl_log_close(&log);
    return err;
}

void pl_log_close(struct pl_log **log) {
    struct pl_log *l = *log;
    if (!l) return;
    if (l->fd >= 0) close(l->fd);
    free(l->path);
    pl_text_finish(&l->owed);
    free(l);
    *log = NULL;
}

/* --- writing --------------------------------------------------------------------------------- */

static bool write_all(int fd, const char *p, size_t n) {
    while (n) {
        ssize_t wrote = write(fd, p, n);
        if (wrote < 0 && errno == EINTR) continue;
        if (wrote < 0) return false;
        p += wrote;
        n -= (size_t)wrote;
    }
    return true;
}

void pl_log_set_stop(struct pl_log *log, const volatile sig_atomic_t *stop) {
    log->stop = stop;
}

/* The signal may still be on its way when the other end of the pipe has died of it. */
static bool told_to_stop(const struct pl_log *log) {
    const struct timespec wait = {0, STOP_WAIT_NS};
    for (int i = 0; log->stop && !*log->stop && i < STOP_WAITS; i++)
        nanosleep(&wait, NULL);
    return log->stop && *log->stop;
}

static pl_err echo_line(struct pl_log *log, const char *text, size_t n, struct pl_diag *d) {
    if (fwrite(text, 1, n, log->echo) == n && fflush(log->echo) == 0) return PL_ERR_OK;
    const int error = errno;
    if (error != EPIPE || !told_to_stop(log))
        return pl_diag_set(d, PL_ERR_IO, "cannot write to standard output: %s", strerror(error));
    log->echo = NULL;
    return PL_ERR_OK;
}

/* text ends in a newline. A line cut short by a full disk is taken back, so that the next one does
 * not grow from its stump. */
static pl_err append(struct pl_log *log, const char *text, size_t n, struct pl_diag *d) {
    if (!write_all(log->fd, text, n)) {
        pl_err err = io_error(d, log->path, "write");
        int taken_back = ftruncate(log->fd, log->whole);
        (void)taken_back; /* else the stump stays: readers pass over it */
        return err;
    }
    log->whole += (off_t)n;
    return PL_ERR_OK;
}

/* A run that cannot go on saves what it has, and the log has the steps before that. */
static pl_err pay(struct pl_log *log, struct pl_diag *d) {
    if (log->owed.failed) return no_memory(d);
    if (log->owed.len) PL_TRY(append(log, log->owed.data, log->owed.len, d));
    pl_text_finish(&log->owed);
    return PL_ERR_OK;
}

static pl_err write_line(struct pl_log *log, const char *text, size_t n, struct pl_diag *d) {
    pl_err err = pay(log, d);
    if (err == PL_ERR_OK) err = append(log, text, n, d);
    if (err != PL_ERR_OK) {
        pl_text_addn(&log->owed, text, n);
        return err;
    }
    return log->echo ? echo_line(log, text, n, d) : PL_ERR_OK;
}

pl_err pl_log_event(struct pl_log *log, const char *name, json_t *fields, struct pl_diag *d) {
    pl_err err = PL_ERR_OK;
    char *text = NULL;
    if (!log) {
        json_decref(fields);
        return PL_ERR_OK;
    }
    json_t *line = json_object();
    if (!line || !fields || json_object_set_new(line, "event", json_string(name)) != 0 ||
        json_object_update(line, fields) != 0 || !(text = pl_json_dump(line, DUMP_FLAGS))) {
        err = no_memory(d);
        goto out;
    }
    size_t n = strlen(text);
    text[n] = '\n'; /* pl_json_dump ended it with NUL; the length is what counts from here */
    err = write_line(log, text, n + 1, d);
out:
    free(text);
    json_decref(line);
    json_decref(fields);
    return err;
}

/* EINVAL, EROFS: not a file that has a disk, such as /dev/null. */
pl_err pl_log_sync(struct pl_log *log, struct pl_diag *d) {
    if (!log) return PL_ERR_OK;
    PL_TRY(pay(log, d));
    if (fsync(log->fd) == 0 || errno == EINVAL || errno == EROFS) return PL_ERR_OK;
    return io_error(d, log->path, "sync");
}

json_t *pl_log_real(double v) {
    return isfinite(v) ? json_real(v) : json_null();
}

static pl_err log_step(struct pl_log *log, const struct pl_step_report *r, struct pl_diag *d) {
    const struct {
        const char *key;
        json_t *value; /* stolen by the object, also when setting it fails */
    } rows[] = {
        {"step", json_integer((json_int_t)r->step)},
        {"epoch", pl_log_real(r->epoch)},
        {"loss", pl_log_real(r->loss)},
        {"grad_norm", pl_log_real(r->grad_norm)},
        {"learning_rate", pl_log_real(r->learning_rate)},
        {"tokens", json_integer((json_int_t)r->tokens)},
        {"computed_tokens", json_integer((json_int_t)r->computed_tokens)},
        {"samples", json_integer((json_int_t)r->samples)},
        {"tokens_per_second", pl_log_real(r->tokens_per_second)},
        {"batch_size", json_integer((json_int_t)r->batch_size)},
        {"device_bytes", json_integer((json_int_t)r->device_bytes)},
    };
    json_t *fields = json_object();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        pl_json_set(&fields, rows[i].key, rows[i].value);
    if (r->loss_scale) {
        pl_json_set(&fields, "loss_scale", json_integer((json_int_t)r->loss_scale));
        pl_json_set(&fields, "skipped", json_boolean(r->skipped));
    }
    for (uint32_t i = 0; i < r->n_more; i++)
        pl_json_set(&fields, r->more[i].name, pl_log_real(r->more[i].value));
    return pl_log_event(log, "step", fields, d);
}

/* The step is done, and what is saved of it must not lack its line: one that there was no memory to
 * make is made once more. One that the disk has refused is owed already. */
pl_err pl_log_step(struct pl_log *log, const struct pl_step_report *r, struct pl_diag *d) {
    struct pl_diag first = {0};
    if (!log) return PL_ERR_OK;
    const off_t before = log->whole;
    pl_err err = log_step(log, r, &first);
    const bool owed = log->owed.len || log->owed.failed;
    if (err == PL_ERR_HOST_OOM && log->whole == before && !owed) return log_step(log, r, d);
    if (err != PL_ERR_OK && d) *d = first;
    return err;
}

pl_err pl_log_go_back(struct pl_log *log, uint64_t keep_steps, struct pl_diag *d) {
    PL_TRY(pl_log_sync(log, d));
    PL_TRY(drop_lines_beyond(log->path, false, keep_steps, true, d));
    close(log->fd);
    return open_end(log, d);
}
