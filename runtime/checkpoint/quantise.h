/* quantise.h - values on their way into 4-bit tensors. */
#ifndef PL_RUNTIME_CHECKPOINT_QUANTISE_H
#define PL_RUNTIME_CHECKPOINT_QUANTISE_H

#include "runtime/checkpoint/tensor_io.h"
#include "runtime/checkpoint/windows.h"

/* Values that a rule makes: attr as START takes it (ops.h), first_element 0. */
struct pl_window_values {
    struct pl_attr attr;
    uint64_t seed;
};
/* Quantises values on their way into the device: those of a rule or, where `values` is NULL, of the
 * resolved file. */
pl_err pl_window_quantise(const struct pl_window *w, const struct pl_tensor_io *io,
                          const struct pl_window_values *values, struct pl_diag *d);

#endif
