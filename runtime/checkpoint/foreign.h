/* foreign.h - checkpoints and output directories of other trainers, told by their files.
 *
 * In: a directory.  Out: who wrote it, and what of it can be trained on here.  Needs: base.
 *   R1  nothing of another trainer is ever removed or replaced: it is refused, passed over with a
 *       note, or moved aside under its name with `.replaced`
 * Use: pl_foreign_find(dir, &who, &d); if (who) ...; */
#ifndef PL_RUNTIME_CHECKPOINT_FOREIGN_H
#define PL_RUNTIME_CHECKPOINT_FOREIGN_H

#include "estimator/base/text.h"

#include <stdbool.h>
#include <stdint.h>

/* True if the text of a trainer_state.json, with a zero after it, comes from transformers' Trainer
 * and not of this program. */
bool pl_foreign_is_state(const char *text, uint64_t bytes);
/* Names the trainer whose files a directory holds; NULL in *who: none that is known. */
pl_err pl_foreign_find(const char *dir, const char **who, struct pl_diag *d);
/* CHECKPOINT_MISMATCH for a checkpoint of another trainer, with what can be made of it. */
pl_err pl_foreign_refuse(const char *dir, struct pl_diag *d);
/* A line for each entry of an output directory that is a checkpoint of another trainer under a name
 * that is never taken for one of this program. */
pl_err pl_foreign_note(const char *output_dir, struct pl_text *notes, struct pl_diag *d);

#endif
