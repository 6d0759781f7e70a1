/* identity.h - which base model a directory holds, by its content and not by its path.
 *
 * In: config.json, weight files.  Out: 64-bit digests.  Needs: digest, safetensors.
 *   I1  config.json counts by its values: neither the order of its keys nor spaces matter
 *   I2  weights count by name, type, shape and the first 4 KiB of every tensor, however they are
 *       cut into files: fine-tuning changes every row, and reading it all would take as long as
 *       loading it. Damage is found by verify.h
 * Use: pl_weights_identity(dir, &identity, &d); */
#ifndef PL_RUNTIME_CHECKPOINT_IDENTITY_H
#define PL_RUNTIME_CHECKPOINT_IDENTITY_H

#include "estimator/base/diag.h"

#include <stdint.h>

pl_err pl_config_identity(const char *json, uint64_t bytes, uint64_t *out, struct pl_diag *d);
pl_err pl_weights_identity(const char *dir, uint64_t *out, struct pl_diag *d);

#endif
