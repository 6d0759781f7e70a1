/* reference_file.h - log-probabilities by the reference as a file of a checkpoint, so that a run
 * that is resumed compares with the values that it began with, to the bit: computed again in
 * smaller micro-batches, as recovery leaves them, their last bits may differ.
 *
 * In/out: a table (reference.h), `reference.bin` of a checkpoint.  Needs: durable.h, manifest.h.
 * Private to the room.
 *   Y1  the file is a magic number, then the rows by ascending key: a key and a value each
 *   Y2  nothing of it is used before it had its digest, and its rows their order
 * Use: pl_reference_save(&t, &outbox, &d); ... pl_reference_load(&t, checkpoint, &d); */
#ifndef PL_RUNTIME_TRAIN_REFERENCE_FILE_H
#define PL_RUNTIME_TRAIN_REFERENCE_FILE_H

#include "runtime/checkpoint/durable.h"
#include "runtime/train/reference.h"

pl_err pl_reference_save(const struct pl_reference *t, struct pl_outbox *o, struct pl_diag *d);
/* Adds the rows of the checkpoint's file; nothing where it has none. PL_ERR_CHECKPOINT_FORMAT: it
 * is damaged. */
pl_err pl_reference_load(struct pl_reference *t, const char *checkpoint, struct pl_diag *d);

#endif
