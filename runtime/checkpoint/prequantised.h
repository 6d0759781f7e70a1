/* prequantised.h - codes of bitsandbytes, which are copied bit for bit. */
#ifndef PL_RUNTIME_CHECKPOINT_PREQUANTISED_H
#define PL_RUNTIME_CHECKPOINT_PREQUANTISED_H

#include "runtime/checkpoint/tensor_io.h"
#include "runtime/checkpoint/weight_files.h"

/* Finds the scales of a window whose tensor in the files is codes, and checks that they were made
 * the way the program reads them. */
pl_err pl_window_find_codes(struct pl_window *w, const struct pl_weight_files *f, pl_err err,
                            struct pl_diag *d);
pl_err pl_window_load_codes(const struct pl_window *w, const struct pl_tensor_io *io,
                            struct pl_diag *d);
/* These do the same for codes that files hold as MXFP4. */
pl_err pl_window_check_mxfp4(const struct pl_window *w, pl_err err, struct pl_diag *d);
pl_err pl_window_load_mxfp4(const struct pl_window *w, const struct pl_tensor_io *io,
                            struct pl_diag *d);

#endif
