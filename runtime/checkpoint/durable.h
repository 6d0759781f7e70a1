/* durable.h - files that are there in full or not at all, and the faults that tests inject.
 *
 * In: bytes.  Out: files and directories that survive a power cut once a call returned OK.
 * Needs: base. Not for two threads at once: the fault counter is process-wide.
 *   U1  a name is taken only by rename, after the content was written, fsynced and closed
 *   U2  a failed fsync is the loss of the file: it is removed and never synced again, because the
 *       kernel may have dropped the dirty pages and would answer OK the second time
 *   U3  every open-for-writing, write, truncation, fsync, close, rename, mkdir and unlink of one
 *       file passes the fault counter
 *   U4  a file that several processes write (share.h) is made, named and removed by one of them.
 *       The others write and sync what is theirs of the temporary
 * Use: struct pl_outbox o = {0};
 *      pl_outbox_init(&o, dir, &d); pl_outbox_open(&o, "config.json", &d);
 *      pl_outbox_write(&o, text, n, &d); pl_outbox_close(&o, &d);
 *      pl_outbox_commit(&o, &d); ... pl_outbox_finish(&o); */
#ifndef PL_RUNTIME_CHECKPOINT_DURABLE_H
#define PL_RUNTIME_CHECKPOINT_DURABLE_H

#include "estimator/base/diag.h"
#include "estimator/base/digest.h"

#include <stdbool.h>
#include <stdint.h>

struct pl_file_digest;
struct pl_file_piece;

/* Files of one directory. Each is written as NAME.tmp; commit gives them their names once every one
 * is on disk, in the order they were opened. Where they must change together, the directory is one
 * that takes its own name afterwards, or pl_save_set_commit (save_set.h) takes the place of commit.
 */
struct pl_outbox {
    char *dir;                    /* owned */
    char **names;                 /* owned, final names */
    struct pl_file_digest *marks; /* owned, [n], of the files that were closed */
    uint32_t n, cap;
    uint32_t n_named;        /* files whose temporaries are no longer the outbox's to remove */
    char *open_path;         /* owned; the temporary being written, NULL when none */
    int fd;                  /* of open_path */
    struct pl_digest digest; /* of what was written to it */
    struct json_t *manifest; /* borrowed; files are listed there as they are closed; NULL = not */
    /* The stretches that pl_outbox_write_at wrote of the file that was opened last. */
    struct pl_file_piece *pieces; /* owned */
    uint32_t n_pieces, cap_pieces;
};

/* The identity of a file, whatever its name. */
struct pl_file_id {
    uint64_t device, inode;
};

pl_err pl_outbox_init(struct pl_outbox *o, const char *dir, struct pl_diag *d);
/* Makes the outbox of the directory in which `path` lies; *name is borrowed from path. */
pl_err pl_outbox_init_file(struct pl_outbox *o, const char *path, const char **name,
                           struct pl_diag *d);
pl_err pl_outbox_open(struct pl_outbox *o, const char *name, struct pl_diag *d);
pl_err pl_outbox_write(struct pl_outbox *o, const void *data, uint64_t bytes, struct pl_diag *d);
/* Syncs and closes the open file, and lists it. */
pl_err pl_outbox_close(struct pl_outbox *o, struct pl_diag *d);
/* Makes a shared file (U4): its length is set at once. */
pl_err pl_outbox_open_shared(struct pl_outbox *o, const char *name, uint64_t bytes,
                             struct pl_file_id *id, struct pl_diag *d);
/* Opens a shared file in the other processes (U4). PL_ERR_CHECKPOINT_WRITE: there is none of that
 * name, or it is another. */
pl_err pl_outbox_join(struct pl_outbox *o, const char *name, const struct pl_file_id *id,
                      struct pl_diag *d);
/* Writes a stretch of an open file that is shared. Those that follow each other are one piece. */
pl_err pl_outbox_write_at(struct pl_outbox *o, uint64_t at, const void *data, uint64_t bytes,
                          struct pl_diag *d);
/* Syncs and closes it. Nothing is listed: one process knows no more than its own pieces. */
pl_err pl_outbox_close_shared(struct pl_outbox *o, struct pl_diag *d);
/* Opens, writes and closes one file. */
pl_err pl_outbox_put(struct pl_outbox *o, const char *name, const void *data, uint64_t bytes,
                     struct pl_diag *d);
/* True if the outbox writes a file of this name. */
bool pl_outbox_has(const struct pl_outbox *o, const char *name);
/* Renames all, then syncs the directory. When a rename fails the files before it have their new
 * content, the others their old one; when the sync fails all have the new one, not yet durable. */
pl_err pl_outbox_commit(struct pl_outbox *o, struct pl_diag *d);
/* Removes the temporaries that have no name yet, frees; safe on {0} and after commit. */
void pl_outbox_finish(struct pl_outbox *o);

pl_err pl_dir_create(const char *path, struct pl_diag *d);
pl_err pl_dir_sync(const char *path, struct pl_diag *d);
/* Syncs the directory in which a new directory has its name: a power cut must not take that
 * away. */
pl_err pl_dir_sync_parent(const char *path, struct pl_diag *d);
pl_err pl_path_rename(const char *from, const char *to, struct pl_diag *d);
/* Removes a file; one that does not exist is OK. */
pl_err pl_path_unlink(const char *path, struct pl_diag *d);
/* Locks a directory until *lock is closed, whatever ends the process. PL_ERR_IO: another run has
 * it. Some network file systems lock no directories: there it is always OK. */
pl_err pl_dir_lock(const char *path, int *lock, struct pl_diag *d);
/* True if a process holds the lock of a directory. A free one is held for the moment of the
 * question. */
bool pl_dir_is_locked(const char *path);
/* Removes a file or a directory with all it holds; links are removed, not followed. A path that
 * does not exist is OK. */
pl_err pl_tree_remove(const char *path, struct pl_diag *d);
/* Removes what a directory holds under names that are `unwanted`, as pl_tree_remove does. */
pl_err pl_dir_clear(const char *path, bool (*unwanted)(const char *name, const void *ctx),
                    const void *ctx, struct pl_diag *d);

/* Writes a whole small text file, crash-safe (temp, fsync, rename, fsync directory). */
pl_err pl_file_write(const char *path, const char *text, uint64_t bytes, struct pl_diag *d);

/* Fault injection: the at-th call of open-for-writing, write, truncation, fsync, close, rename,
 * mkdir and unlink of a file together (1-based; 0 = none) fails with ENOSPC, count times, or, where
 * there is `before`, does what it should after that. Process-wide counter owned by the caller.
 * NULL = off. */
struct pl_io_fault {
    uint64_t at, count, calls;
    void (*before)(void); /* nullable */
};
void pl_checkpoint_set_fault(struct pl_io_fault *f);

#endif
