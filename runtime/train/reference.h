/* reference.h - log-probabilities of answers by a reference, computed before the first step, in
 * memory and as a file of a checkpoint.
 *
 * A run that is resumed compares with the values that it began with, to the bit: computed again in
 * smaller micro-batches, as recovery leaves them, their last bits may differ. Two numbers a sample
 * are kept in host memory, a digest of the sample and its value.
 *
 * In: samples and their values.  Out: the value of a sample; `reference.bin` of a checkpoint.
 * Needs: batch.h, durable.h, manifest.h.  Private to the room.
 *   F1  a value belongs to the content of a sample, whatever row, epoch or order it stands in
 *   F2  the file is a magic number, then the rows by ascending key: a key and a value each
 *   F3  a file of which a bit has changed ends the start of the run that resumes: its digest is
 *       compared before its values are read, and its rows stand in their order
 * Use: struct pl_reference t = {0}; pl_reference_load(&t, checkpoint, &d);
 *      pl_reference_put(&t, key, value, &d); ... pl_reference_get(&t, key, &value);
 *      pl_reference_save(&t, &outbox, &d); pl_reference_finish(&t); */
#ifndef PL_RUNTIME_TRAIN_REFERENCE_H
#define PL_RUNTIME_TRAIN_REFERENCE_H

#include "runtime/checkpoint/durable.h"
#include "runtime/data/batch.h"

struct pl_reference {
    struct pl_reference_row {
        uint64_t key; /* 0: none */
        double value;
    } * rows; /* [cap], owned: open addressing */
    uint64_t n, cap;
    bool whole; /* the values of all samples of the run are there */
};

/* Returns the key of sample i of a step, never 0. */
uint64_t pl_reference_key(const struct pl_step_batch *b, uint64_t i);
bool pl_reference_get(const struct pl_reference *t, uint64_t key, double *value);
/* Adds a value; one that is there already stays. */
pl_err pl_reference_put(struct pl_reference *t, uint64_t key, double value, struct pl_diag *d);
pl_err pl_reference_save(const struct pl_reference *t, struct pl_outbox *o, struct pl_diag *d);
/* Adds the rows of the checkpoint's file; nothing where it has none. PL_ERR_CHECKPOINT_FORMAT: it
 * is damaged. */
pl_err pl_reference_load(struct pl_reference *t, const char *checkpoint, struct pl_diag *d);
void pl_reference_finish(struct pl_reference *t); /* leaves {0} */

#endif
