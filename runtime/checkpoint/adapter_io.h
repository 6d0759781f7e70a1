/* adapter_io.h - PEFT adapter directories, read and written.
 *
 * In/out: adapter_config.json and adapter_model.safetensors.  Needs: windows, adapter_config. */
#ifndef PL_RUNTIME_CHECKPOINT_ADAPTER_IO_H
#define PL_RUNTIME_CHECKPOINT_ADAPTER_IO_H

#include "estimator/config/job.h"
#include "runtime/checkpoint/companions.h"
#include "runtime/checkpoint/durable.h"
#include "runtime/checkpoint/tensor_io.h"

/* r, target_modules, the scale and every name and shape must be those of the program:
 * PL_ERR_CHECKPOINT_MISMATCH names both sides. Names with and without `.default` are read. */
pl_err pl_adapter_load(const struct pl_tensor_io *io, const char *dir, struct pl_diag *d);
/* Checks the same without reading a tensor. */
pl_err pl_adapter_check_files(const struct pl_program *p, const char *dir, struct pl_diag *d);

/* Writes the files of an adapter into an outbox, whose manifest counts, for the caller to commit;
 * the companions go with them. */
pl_err pl_adapter_put(const struct pl_tensor_io *io, struct pl_outbox *o, const struct pl_job *job,
                      const struct pl_companions *companions, struct pl_diag *d);
/* Writes the tensors alone. The other ranks call it meanwhile, where they share the file
 * (share.h). */
pl_err pl_adapter_join(const struct pl_tensor_io *io, struct pl_outbox *o, struct pl_diag *d);

#endif
