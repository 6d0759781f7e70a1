/* disk.h - whether what a run saves has room where it is saved.
 *
 * In: a planned job.  Out: a note.  Needs: checkpoint.h.
 *   D1  the bytes are those of the tensors that saving walks over, of `save_merged` too; headers,
 *       logs and pictures are left out
 * Use: PL_TRY(pl_disk_note(pf, &d)); */
#ifndef PL_RUNTIME_ADMIT_DISK_H
#define PL_RUNTIME_ADMIT_DISK_H

#include "estimator/base/diag.h"

struct pl_preflight;

/* Adds a note where the file system of output_dir has less left than the run may come to need
 * there. It may be more room by then, or less: nothing is refused. */
pl_err pl_disk_note(struct pl_preflight *pf, struct pl_diag *d);

#endif
