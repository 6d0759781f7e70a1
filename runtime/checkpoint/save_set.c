#include "runtime/checkpoint/save_set.h"

#include "estimator/base/alloc.h"
#include "estimator/base/open_file.h"
#include "estimator/base/text.h"
#include "runtime/checkpoint/durable.h"
#include "runtime/checkpoint/manifest.h"
#include "runtime/checkpoint/read_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define HEAD         "plimsoll save 1"
#define MOST_BYTES   (UINT64_C(64) << 20) /* of a journal: 10^5 shards */
#define READ_CHUNK   (1u << 15)
#define LOCK_TRIES   100
#define LOCK_WAIT_NS 50000000L

/* --- what a journal says ---------------------------------------------------------------------- */

struct entry {
    const char *name;
    struct pl_file_digest mark;
    bool drop; /* the name goes */
};

struct journal {
    char *text;            /* owned; the names point into it */
    struct entry *entries; /* owned */
    uint32_t n;
};

static uint64_t digest_of(const char *text, size_t n) {
    struct pl_digest h;
    pl_digest_init(&h, 0);
    pl_digest_add(&h, text, n);
    return pl_digest_value(&h);
}

/* S5 */
static bool is_plain(const char *name) {
    return name[0] && name[0] != '.' && !strpbrk(name, "/\n");
}

/* "file BYTES DIGEST NAME" or "drop NAME", without its newline. */
static bool read_entry(char *line, struct entry *e) {
    int end = 0;
    *e = (struct entry){0};
    if (strncmp(line, "drop ", 5) == 0) {
        e->drop = true;
        e->name = line + 5;
    } else if (sscanf(line, "file %20" SCNu64 " %16" SCNx64 "%n", &e->mark.bytes, &e->mark.xxh64,
                      &end) == 2 &&
               line[end] == ' ') {
        e->name = line + end + 1;
    }
    return e->name && is_plain(e->name);
}

/* The last line holds the digest of everything before it. */
static bool take_end(struct journal *j, uint64_t bytes) {
    uint64_t digest;
    int end = 0;
    if (strlen(j->text) != bytes || !bytes || j->text[bytes - 1] != '\n') return false;
    j->text[bytes - 1] = 0;
    char *last = strrchr(j->text, '\n');
    if (!last || sscanf(last + 1, "end %16" SCNx64 "%n", &digest, &end) != 1 || last[1 + end])
        return false;
    last[1] = 0;
    return digest == digest_of(j->text, (size_t)(last + 1 - j->text));
}

/* There is an entry for every line. */
static bool parse(struct journal *j, uint64_t bytes) {
    if (!take_end(j, bytes) || strncmp(j->text, HEAD "\n", sizeof HEAD) != 0) return false;
    for (char *line = j->text + sizeof HEAD, *end; (end = strchr(line, '\n')); line = end + 1) {
        *end = 0;
        if (!read_entry(line, &j->entries[j->n++])) return false;
    }
    return true;
}

static pl_err journal_read(struct journal *j, const char *path, struct pl_diag *d) {
    uint64_t bytes, lines = 0;
    PL_TRY(pl_file_read(path, MOST_BYTES, &j->text, &bytes, d));
    for (const char *p = j->text; (p = strchr(p, '\n')); p++)
        lines++;
    j->entries = pl_calloc((size_t)lines + 1, sizeof *j->entries);
    if (!j->entries) return pl_host_oom(d, path);
    if (parse(j, bytes)) return PL_ERR_OK;
    return pl_diag_at(d, PL_ERR_CHECKPOINT_FORMAT, path, 0, 0, "%s is damaged", path);
}

/* --- what is there ---------------------------------------------------------------------------- */

enum found { ABSENT, OTHER, SAME };

static char *path_of(const char *dir, const char *name, const char *suffix) {
    char *path = NULL;
    return pl_asprintf(&path, "%s/%s%s", dir, name, suffix) < 0 ? NULL : path;
}

static bool digest_file(int fd, struct pl_digest *h) {
    char buf[READ_CHUNK];
    ssize_t n;
    pl_digest_init(h, 0);
    while ((n = read(fd, buf, sizeof buf)) > 0 || (n < 0 && errno == EINTR))
        if (n > 0) pl_digest_add(h, buf, (size_t)n);
    return n == 0;
}

/* A trusted file, which this process has just written, is not read again. */
static pl_err look_at_file(const char *path, const struct pl_file_digest *mark, bool trusted,
                           enum found *out, struct pl_diag *d) {
    struct pl_digest h;
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    pl_err err = PL_ERR_OK;
    *out = ABSENT;
    if (fd < 0 && errno == ENOENT) return PL_ERR_OK;
    *out = OTHER;
    if (fd < 0 && errno == ELOOP) return PL_ERR_OK;
    if (fd < 0 || fstat(fd, &st) != 0)
        err = PL_ERR_CHECKPOINT_FILE;
    else if (trusted)
        *out = SAME;
    else if (S_ISREG(st.st_mode) && (uint64_t)st.st_size == mark->bytes && !digest_file(fd, &h))
        err = PL_ERR_CHECKPOINT_FILE;
    else if (S_ISREG(st.st_mode) && (uint64_t)st.st_size == mark->bytes)
        *out = pl_digest_value(&h) == mark->xxh64 ? SAME : OTHER;
    if (err != PL_ERR_OK)
        pl_diag_at(d, err, path, 0, 0, "cannot read %s: %s", path, strerror(errno));
    if (fd >= 0) close(fd);
    return err;
}

/* The state of the new files. */
struct census {
    uint32_t named;   /* have their name */
    const char *lost; /* the first that is nowhere */
};

static pl_err take_census(const struct journal *j, const char *dir, bool trusted, struct census *c,
                          struct pl_diag *d) {
    *c = (struct census){0};
    for (uint32_t i = 0; i < j->n; i++) {
        const struct entry *e = &j->entries[i];
        enum found at = ABSENT;
        if (e->drop) continue;
        char *temporary = path_of(dir, e->name, ".tmp"), *path = path_of(dir, e->name, "");
        pl_err err = temporary && path ? look_at_file(temporary, &e->mark, trusted, &at, d)
                                       : pl_host_oom(d, "a path");
        bool waits = at == SAME;
        if (err == PL_ERR_OK && !waits) err = look_at_file(path, &e->mark, trusted, &at, d);
        free(temporary);
        free(path);
        if (err != PL_ERR_OK) return err;
        if (!waits && at == SAME) c->named++;
        if (at != SAME && !c->lost) c->lost = e->name;
    }
    return PL_ERR_OK;
}

/* --- doing what it says ----------------------------------------------------------------------- */

static pl_err cannot_look(const char *path, struct pl_diag *d) {
    return pl_diag_at(d, pl_err_of_errno(PL_ERR_CHECKPOINT_FILE), path, 0, 0,
                      "cannot look for %s: %s", path, strerror(errno));
}

static pl_err unlink_name(const char *dir, const char *name, struct pl_diag *d) {
    char *path = path_of(dir, name, "");
    pl_err err = path ? pl_path_unlink(path, d) : pl_host_oom(d, "a path");
    free(path);
    return err;
}

static pl_err name_file(const char *dir, const char *name, struct pl_diag *d) {
    char *temporary = path_of(dir, name, ".tmp"), *path = path_of(dir, name, "");
    enum pl_there there = temporary && path ? pl_look_for(temporary) : PL_NOT_THERE;
    pl_err err = PL_ERR_OK;
    if (!temporary || !path)
        err = pl_host_oom(d, "a path");
    else if (there == PL_THERE_UNKNOWN)
        err = cannot_look(temporary, d);
    else if (there == PL_THERE)
        err = pl_path_rename(temporary, path, d);
    free(temporary);
    free(path);
    return err;
}

/* This is step 3 of save_set.h. */
static pl_err do_entries(const struct journal *j, const char *dir, struct pl_diag *d) {
    for (uint32_t i = 0; i < j->n; i++) {
        const struct entry *e = &j->entries[i];
        PL_TRY(e->drop ? unlink_name(dir, e->name, d) : name_file(dir, e->name, d));
    }
    return pl_dir_sync(dir, d);
}

static pl_err lost_file(const char *dir, const char *name, struct pl_diag *d) {
    pl_diag_at(
        d, PL_ERR_CHECKPOINT_FORMAT, dir, 0, 0,
        "a save into %s was interrupted, and its %s exists neither under its name nor as %s.tmp",
        dir, name, name);
    pl_diag_hint(d, "some files are those of that save, others older: save into it again");
    return PL_ERR_CHECKPOINT_FORMAT;
}

/* The journal is locked. Its end is step 4 of save_set.h. */
static pl_err finish_save(const char *dir, const char *path, bool trusted, struct pl_diag *d) {
    struct journal j = {0};
    struct census c = {0};
    pl_err err = journal_read(&j, path, d);
    if (err == PL_ERR_OK) err = take_census(&j, dir, trusted, &c, d);
    if (err == PL_ERR_OK && c.lost && c.named) err = lost_file(dir, c.lost, d); /* S4 */
    if (err == PL_ERR_OK && !c.lost) err = do_entries(&j, dir, d);
    free(j.entries);
    free(j.text);
    if (err == PL_ERR_OK) err = pl_path_unlink(path, d);
    return err == PL_ERR_OK ? pl_dir_sync(dir, d) : err;
}

/* S3. Some file systems have no locks: there a save is as safe as its user makes it. */
static bool lock_file(int fd) {
    const struct timespec wait = {0, LOCK_WAIT_NS};
    for (int i = 0; i < LOCK_TRIES; i++) {
        if (flock(fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return true;
        nanosleep(&wait, NULL);
    }
    return false;
}

/* Whoever had the lock before may have finished the save. */
static pl_err look_again(int fd, const char *path, bool *still, struct pl_diag *d) {
    struct stat held, named;
    *still = false;
    if (fstat(fd, &held) != 0) return cannot_look(path, d);
    if (lstat(path, &named) != 0) return errno == ENOENT ? PL_ERR_OK : cannot_look(path, d);
    *still = held.st_ino == named.st_ino && held.st_dev == named.st_dev;
    return PL_ERR_OK;
}

static pl_err unfinished(const char *dir, const char *why, struct pl_diag *d) {
    pl_diag_at(d, PL_ERR_CHECKPOINT_FILE, dir, 0, 0, "a save into %s is not finished: %s", dir,
               why);
    pl_diag_hint(d, "run the same command again");
    return PL_ERR_CHECKPOINT_FILE;
}

static pl_err settle_locked(const char *dir, const char *path, int fd, bool trusted,
                            struct pl_diag *d) {
    bool still;
    if (!lock_file(fd)) return unfinished(dir, "another process is finishing it", d);
    PL_TRY(look_again(fd, path, &still, d));
    return still ? finish_save(dir, path, trusted, d) : PL_ERR_OK;
}

static pl_err settle_journal(const char *dir, bool trusted, struct pl_diag *d) {
    char *path = pl_path_join(dir, PL_SAVE_JOURNAL);
    if (!path) return pl_host_oom(d, "a path");
    pl_err err = PL_ERR_OK;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd >= 0)
        err = settle_locked(dir, path, fd, trusted, d);
    else if (errno != ENOENT && errno != ENOTDIR)
        err = pl_diag_at(d, pl_err_of_errno(PL_ERR_CHECKPOINT_FILE), path, 0, 0,
                         "cannot read %s: %s", path, strerror(errno));
    if (fd >= 0) close(fd);
    free(path);
    return err;
}

static void hint_at_the_rest(const char *dir, struct pl_diag *d) {
    pl_diag_hint(d,
                 "the new files are complete: the next command that reads or saves into %s "
                 "gives them their names",
                 dir);
}

pl_err pl_save_set_settle(const char *dir, struct pl_diag *d) {
    pl_err err = settle_journal(dir, false, d);
    if (err == PL_ERR_CHECKPOINT_WRITE) hint_at_the_rest(dir, d);
    return err;
}

/* A save that cannot be finished is what the new one repairs. */
pl_err pl_save_set_begin(const char *dir, struct pl_diag *d) {
    pl_err err = pl_save_set_settle(dir, d);
    if (err != PL_ERR_CHECKPOINT_FORMAT) return err;
    if (d) *d = (struct pl_diag){0};
    return PL_ERR_OK;
}

pl_err pl_save_set_check(const char *dir, struct pl_diag *d) {
    char *path = pl_path_join(dir, PL_SAVE_JOURNAL);
    if (!path) return pl_host_oom(d, "a path");
    struct stat st;
    pl_err err = PL_ERR_OK;
    if (lstat(path, &st) == 0)
        err = unfinished(dir, PL_SAVE_JOURNAL " is there", d);
    else if (errno != ENOENT && errno != ENOTDIR)
        err = cannot_look(path, d);
    free(path);
    return err;
}

/* --- committing ------------------------------------------------------------------------------- */

/* A directory in the place of a file would be found only when other files are renamed already. */
static pl_err check_target(const char *dir, const char *name, struct pl_diag *d) {
    struct stat st;
    char *path = path_of(dir, name, "");
    if (!path) return pl_host_oom(d, "a path");
    pl_err err = PL_ERR_OK;
    if (lstat(path, &st) == 0 && S_ISDIR(st.st_mode))
        err = pl_diag_at(d, PL_ERR_CHECKPOINT_WRITE, path, 0, 0, "cannot replace %s: %s", path,
                         strerror(EISDIR));
    free(path);
    return err;
}

static pl_err list_drops(const struct pl_outbox *o,
                         bool (*unwanted)(const char *name, const void *ctx), const void *ctx,
                         struct pl_text *out, struct pl_diag *d) {
    DIR *dir = opendir(o->dir);
    if (!dir)
        return pl_diag_at(d, pl_err_of_errno(PL_ERR_CHECKPOINT_WRITE), o->dir, 0, 0,
                          "cannot list %s: %s", o->dir, strerror(errno));
    errno = 0;
    for (const struct dirent *e; (e = readdir(dir)); errno = 0)
        if (unwanted(e->d_name, ctx) && is_plain(e->d_name) &&
            check_target(o->dir, e->d_name, NULL) == PL_ERR_OK)
            pl_text_addf(out, "drop %s\n", e->d_name);
    pl_err err = PL_ERR_OK;
    if (errno)
        err = pl_diag_at(d, pl_err_of_errno(PL_ERR_CHECKPOINT_WRITE), o->dir, 0, 0,
                         "cannot list %s: %s", o->dir, strerror(errno));
    closedir(dir);
    return err;
}

static pl_err write_journal(const struct pl_outbox *o,
                            bool (*unwanted)(const char *name, const void *ctx), const void *ctx,
                            struct pl_text *out, struct pl_diag *d) {
    pl_text_add(out, HEAD "\n");
    for (uint32_t i = 0; i < o->n; i++) {
        PL_TRY(check_target(o->dir, o->names[i], d));
        pl_text_addf(out, "file %" PRIu64 " %016" PRIx64 " %s\n", o->marks[i].bytes,
                     o->marks[i].xxh64, o->names[i]);
    }
    if (unwanted) PL_TRY(list_drops(o, unwanted, ctx, out, d));
    pl_text_addf(out, "end %016" PRIx64 "\n", digest_of(pl_text_str(out), out->len));
    return out->failed ? pl_host_oom(d, "the journal of a save") : PL_ERR_OK;
}

/* S1, and step 2 of save_set.h. *taken: the journal has its name, though the call may have
 * failed. */
static pl_err put_journal(const char *dir, const struct pl_text *text, bool *taken,
                          struct pl_diag *d) {
    struct pl_outbox j = {0};
    pl_err err = pl_outbox_init(&j, dir, d);
    if (err == PL_ERR_OK) err = pl_outbox_put(&j, PL_SAVE_JOURNAL, text->data, text->len, d);
    if (err == PL_ERR_OK) err = pl_outbox_commit(&j, d);
    *taken = j.n_named == 1;
    pl_outbox_finish(&j);
    return err;
}

/* The caller has written and closed the temporaries, which is step 1 of save_set.h;
 * settle_journal() does steps 3 and 4. */
pl_err pl_save_set_commit(struct pl_outbox *o, bool (*unwanted)(const char *name, const void *ctx),
                          const void *ctx, struct pl_diag *d) {
    struct pl_text text = {0};
    bool taken = false;
    pl_err err = write_journal(o, unwanted, ctx, &text, d);
    if (err == PL_ERR_OK) err = pl_dir_sync(o->dir, d);
    if (err == PL_ERR_OK) err = put_journal(o->dir, &text, &taken, d);
    if (taken) o->n_named = o->n; /* the temporaries are the journal's */
    if (err == PL_ERR_OK) err = settle_journal(o->dir, true, d);
    if (err != PL_ERR_OK && taken) hint_at_the_rest(o->dir, d);
    pl_text_finish(&text);
    return err;
}
