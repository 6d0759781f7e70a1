/* init.h - weights of a run that starts from none.
 *
 * In: tensors of a running job, a seed.  Out: weights.  Needs: windows. */
#ifndef PL_RUNTIME_CHECKPOINT_INIT_H
#define PL_RUNTIME_CHECKPOINT_INIT_H

#include "runtime/checkpoint/tensor_io.h"

/* Masters, where there are any, get the same values before rounding; so they do on loading.
 * normal(0, initializer_range); norms 1, biases 0; a function of (seed, tensor, element) alone, and
 * of the same bits on every back-end. A device with the kernels START, QUANT4 and NEST4 makes them
 * where they belong; for one without they pass through staging. */
pl_err pl_model_init_random(const struct pl_tensor_io *io, uint64_t seed, struct pl_diag *d);
/* A is uniform in +-1/sqrt(in), B is 0 (PEFT's default). */
pl_err pl_adapter_init(const struct pl_tensor_io *io, uint64_t seed, struct pl_diag *d);

#endif
