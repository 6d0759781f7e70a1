#include "tools/plimsoll/report_runs.h"

#include "estimator/base/digest.h"
#include "estimator/base/json_tree.h"
#include "estimator/base/open_file.h"
#include "estimator/inquiry/receipt.h"
#include "runtime/checkpoint/durable.h"
#include "runtime/checkpoint/read_file.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define LOG                 "train_log.jsonl"
#define RECEIPT             "receipt.json"
#define TIMELINE            "timeline.json"
#define TIMELINE_BYTES_MOST (UINT64_C(8) << 20)
#define YOUNG_SECONDS       60

/* --- what is no run -------------------------------------------------------------------------- */

static bool has_log(const char *dir, const char *name) {
    struct pl_text path = {0};
    struct stat st;
    pl_text_addf(&path, "%s/%s/" LOG, dir, name);
    const bool found = !path.failed && stat(pl_text_str(&path), &st) == 0 && S_ISREG(st.st_mode);
    pl_text_finish(&path);
    return found;
}

/* A directory of runs, or a checkpoint, stands next to what was meant. */
static void hint_near(const char *dir, struct pl_diag *d) {
    DIR *open = opendir(dir);
    const struct dirent *entry;
    pl_diag_hint(d, "name the `output_dir` of a run: `train` writes " LOG " into it");
    while (open && (entry = readdir(open)) != NULL) {
        if (entry->d_name[0] == '.' && strcmp(entry->d_name, "..") != 0) continue;
        if (!has_log(dir, entry->d_name)) continue;
        pl_diag_hint(d, "did you mean %s/%s?", dir, entry->d_name);
        break;
    }
    if (open) closedir(open);
}

static pl_err no_run(const char *dir, struct pl_diag *d) {
    struct stat st;
    const bool is_dir = stat(dir, &st) == 0 && S_ISDIR(st.st_mode);
    if (!is_dir && errno != ENOENT && errno != ENOTDIR)
        return pl_diag_at(d, pl_err_of_errno(PL_ERR_DATA_FILE), dir, 0, 0, "cannot open: %s",
                          strerror(errno));
    pl_diag_at(d, PL_ERR_DATA_FILE, dir, 0, 0, "%s",
               is_dir ? "no run has written here: there is no " LOG : "no directory of this name");
    if (is_dir)
        hint_near(dir, d);
    else
        pl_diag_hint(d, "name the `output_dir` of a run");
    return PL_ERR_DATA_FILE;
}

/* --- files ----------------------------------------------------------------------------------- */

static pl_err read_log(const char *dir, struct pl_run_log *log, struct pl_diag *d) {
    const char *why;
    pl_err err = PL_ERR_OK;
    char *path = pl_path_join(dir, LOG);
    if (!path) return pl_host_oom(d, "a path");
    const int fd = pl_open_file(path, NULL, &why);
    if (fd >= 0)
        close(fd);
    else if (errno == ENOENT || errno == ENOTDIR)
        err = no_run(dir, d);
    else
        err = pl_diag_at(d, pl_err_of_errno(PL_ERR_DATA_FILE), path, 0, 0, "cannot open: %s", why);
    if (err == PL_ERR_OK) err = pl_run_log_read(path, log, d);
    free(path);
    return err;
}

static void note(struct pl_text *notes, const char *path, const char *why) {
    pl_text_addf(notes, "%s is left out: %s\n", path, why);
}

/* Reads a file of a run that may be missing: *text is NULL then, and where a note says why. */
static pl_err read_text(const char *path, uint64_t most, char **text, uint64_t *n,
                        struct pl_text *notes, struct pl_diag *d) {
    struct pl_diag why = {0};
    *text = NULL;
    if (pl_look_for(path) == PL_NOT_THERE) return PL_ERR_OK;
    pl_err err = pl_file_read(path, most, text, n, &why);
    if (err == PL_ERR_HOST_OOM) return pl_diag_set(d, err, "%s", why.message);
    if (err != PL_ERR_OK) note(notes, path, why.message);
    return PL_ERR_OK;
}

static pl_err parse_receipt(const char *text, uint64_t n, const char *path, json_t **out,
                            struct pl_diag *why) {
    return pl_receipt_parse(text, (size_t)n, path, out, why);
}

static pl_err parse_timeline(const char *text, uint64_t n, const char *path, json_t **out,
                             struct pl_diag *why) {
    struct pl_json_error e;
    /* A tree of numbers alone takes a multiple of their text. */
    if (pl_json_weight(text, n) > TIMELINE_BYTES_MOST)
        return pl_diag_at(why, PL_ERR_DATA_FIELD, path, 0, 0, "too large for a timeline");
    *out = pl_json_load(text, (size_t)n, PL_JSON_ONCE, &e);
    return *out ? PL_ERR_OK : pl_json_refuse(&e, PL_ERR_DATA_SYNTAX, path, why);
}

/* Reads and parses a file of a run; *out is NULL where that is not possible. */
static pl_err read_json(const char *dir, const char *name, uint64_t most,
                        pl_err (*parse)(const char *text, uint64_t n, const char *path,
                                        json_t **out, struct pl_diag *why),
                        json_t **out, struct pl_text *notes, struct pl_diag *d) {
    struct pl_diag why = {0};
    char *text = NULL, *path = pl_path_join(dir, name);
    uint64_t n = 0;
    *out = NULL;
    pl_err err = path ? read_text(path, most, &text, &n, notes, d) : pl_host_oom(d, "a path");
    if (err == PL_ERR_OK && text) {
        err = parse(text, n, path, out, &why);
        if (err == PL_ERR_HOST_OOM) {
            pl_diag_set(d, err, "%s", why.message);
        } else if (err != PL_ERR_OK) {
            note(notes, path, why.message);
            err = PL_ERR_OK;
        }
    }
    free(text);
    free(path);
    return err;
}

static bool is_young(const char *dir) {
    struct stat st;
    char *path = pl_path_join(dir, LOG);
    const bool young =
        path && stat(path, &st) == 0 && time(NULL) - st.st_mtime < (time_t)YOUNG_SECONDS;
    free(path);
    return young;
}

static bool lives(const char *dir) {
    return pl_dir_is_locked(dir) || is_young(dir);
}

static pl_err read_run(const char *dir, struct pl_page *p, struct pl_text *notes,
                       struct pl_diag *d) {
    struct pl_run_log log = {0};
    json_t *receipt = NULL, *timeline = NULL;
    pl_err err = read_log(dir, &log, d);
    if (err == PL_ERR_OK)
        err = read_json(dir, RECEIPT, PL_RECEIPT_BYTES_MOST, parse_receipt, &receipt, notes, d);
    if (err == PL_ERR_OK)
        err = read_json(dir, TIMELINE, TIMELINE_BYTES_MOST, parse_timeline, &timeline, notes, d);
    if (err == PL_ERR_OK) {
        const bool has_timeline = timeline != NULL;
        PL_TRY(pl_page_take(p, dir, &log, receipt, timeline, d));
        struct pl_page_run *run = &p->runs[p->n - 1];
        run->lives = !run->log.ended && lives(dir);
        if (has_timeline && !run->timeline) note(notes, dir, TIMELINE " is of another form");
        return PL_ERR_OK;
    }
    pl_run_log_finish(&log);
    json_decref(receipt);
    json_decref(timeline);
    return err;
}

pl_err pl_report_read(const char *const *dirs, uint32_t n, struct pl_page *p, struct pl_text *notes,
                      struct pl_diag *d) {
    pl_err err = PL_ERR_OK;
    for (uint32_t i = 0; i < n && err == PL_ERR_OK; i++)
        err = read_run(dirs[i], p, notes, d);
    if (err == PL_ERR_OK && notes->failed) err = pl_host_oom(d, "the notes");
    if (err != PL_ERR_OK) pl_page_finish(p);
    return err;
}

bool pl_report_any_lives(const struct pl_page *p) {
    bool any = false;
    for (uint32_t i = 0; i < p->n; i++)
        any |= p->runs[i].lives;
    return any;
}

uint64_t pl_report_mark(const char *const *dirs, uint32_t n) {
    static const char *const names[] = {LOG, RECEIPT, TIMELINE};
    struct pl_digest h;
    pl_digest_init(&h, 0);
    for (uint32_t i = 0; i < n; i++) {
        const bool alive = lives(dirs[i]);
        pl_digest_add(&h, &alive, sizeof alive);
        for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
            struct stat st;
            char *path = pl_path_join(dirs[i], names[k]);
            const bool there = path && stat(path, &st) == 0;
            if (there) {
                pl_digest_add(&h, &st.st_size, sizeof st.st_size);
                pl_digest_add(&h, &st.st_mtim, sizeof st.st_mtim);
                pl_digest_add(&h, &st.st_ino, sizeof st.st_ino);
            }
            free(path);
        }
    }
    return pl_digest_value(&h);
}
