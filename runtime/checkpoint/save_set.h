/* save_set.h - the files of a finished save: all of them are the new ones, or none is.
 *
 * output_dir and a merged model are ordinary directories that other programs open, so a save cannot
 * give them a new name; it changes files in them one by one. A journal makes that one step:
 *
 *   1  every new file is written as NAME.tmp and synced, then the directory
 *   2  the journal, with size and digest of each file and the names that go, is written into it
 *      under a temporary name, synced, renamed to plimsoll-save.journal, and the directory synced
 *   3  every NAME.tmp is renamed to NAME, every name that goes is unlinked, the directory is synced
 *   4  the journal is unlinked, the directory synced
 *
 * Needs: durable.h.
 *   S1  the rename of the journal is the moment of the save. Ended before it, by a kill, a power
 *       cut or an error, the old files are all there; ended after it, the new ones are all on the
 *       disk
 *   S2  steps 3 and 4 can be done any number of times, by any process: whoever finds a journal does
 *       what is left of them before it reads or writes a file of the directory. Committing is
 *       writing the journal and then doing the same
 *   S3  one process at a time does so: it holds a lock on the journal, which ends with the process
 *   S4  what a journal says is not believed of a file whose size or digest is another. When a file
 *       is lost, but no other has its name yet, the old files are whole and the journal is dropped.
 *       When some have, the directory is refused by name until it is saved into again; the journal
 *       stays until the new one takes its name
 *   S5  a journal names plain files of its own directory alone
 * A directory under construction that gets its own name by rename afterwards needs none of this.
 * Use: pl_save_set_begin(dir, &d); pl_outbox_init(&o, dir, &d); pl_outbox_put(&o, ...);
 *      pl_save_set_commit(&o, NULL, NULL, &d); ...
 *      pl_save_set_settle(dir, &d); read files of it */
#ifndef PL_RUNTIME_CHECKPOINT_SAVE_SET_H
#define PL_RUNTIME_CHECKPOINT_SAVE_SET_H

#include "runtime/checkpoint/durable.h"

#define PL_SAVE_JOURNAL "plimsoll-save.journal"

/* To be called before the first file of a save is opened: a save that was cut short is finished
 * first. */
pl_err pl_save_set_begin(const char *dir, struct pl_diag *d);
/* The files of the outbox take their names, and what the directory holds under names that are
 * `unwanted` (nullable) goes. A failure after S1 leaves its work to who comes next, and its hint
 * says so. */
pl_err pl_save_set_commit(struct pl_outbox *o, bool (*unwanted)(const char *name, const void *ctx),
                          const void *ctx, struct pl_diag *d);
/* S2; at once where there is no journal. PL_ERR_CHECKPOINT_FORMAT: S4. */
pl_err pl_save_set_settle(const char *dir, struct pl_diag *d);
/* Readers that come too late to settle call this: it refuses a directory with a journal. */
pl_err pl_save_set_check(const char *dir, struct pl_diag *d);

#endif
