/* window_save.h - windows as one file of an outbox. */
#ifndef PL_RUNTIME_CHECKPOINT_WINDOW_SAVE_H
#define PL_RUNTIME_CHECKPOINT_WINDOW_SAVE_H

#include "runtime/checkpoint/window_write.h"

/* Writes windows [begin, end) as one file of the outbox. Where files are shared, all ranks call it,
 * and one that rank 0 writes alone is nothing to the others. */
pl_err pl_windows_save(const struct pl_windows *w, uint32_t begin, uint32_t end,
                       const struct pl_window_source *source, struct pl_outbox *o, const char *name,
                       struct pl_diag *d);

#endif
