/* window_load.h - windows into the device: from files, or from a rule. */
#ifndef PL_RUNTIME_CHECKPOINT_WINDOW_LOAD_H
#define PL_RUNTIME_CHECKPOINT_WINDOW_LOAD_H

#include "runtime/checkpoint/quantise.h"
#include "runtime/checkpoint/tensor_io.h"

/* Streams resolved windows into the device. fill_master: masters get the values before rounding. */
pl_err pl_windows_load(const struct pl_windows *w, const struct pl_tensor_io *io, bool fill_master,
                       struct pl_diag *d);
/* Makes every value of the window, and of its master; those of a quantised window by
 * pl_window_quantise. */
pl_err pl_window_start(const struct pl_window *w, const struct pl_tensor_io *io,
                       const struct pl_window_values *values, struct pl_diag *d);

#endif
