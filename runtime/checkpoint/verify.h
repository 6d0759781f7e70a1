/* verify.h - whether the files of a directory are whole, without a run that wants them.
 *
 * In:    a checkpoint, an adapter, a model, or an output_dir with checkpoints in it.
 * Out:   a row a file.
 * Needs: safetensors, model, run_state.
 *   V1  every problem is a row; only a directory that cannot be listed, or that holds nothing of
 *       these, is an error
 *   V2  what was saved with digests is compared with them byte for byte
 *   V3  whoever wrote it: headers are well-formed, every number of a type that is known is finite,
 *       tensors of other types are counted as unchecked, the shapes are those of config.json or
 *       adapter_config.json, optimizer states those of what they belong to
 * Use: pl_verify_dir(&v, dir, &d); for (i < v.n) v.files[i].problem; ... pl_verify_finish(&v); */
#ifndef PL_RUNTIME_CHECKPOINT_VERIFY_H
#define PL_RUNTIME_CHECKPOINT_VERIFY_H

#include "estimator/base/diag.h"
#include "estimator/base/names.h"

#include <stdbool.h>
#include <stdint.h>

struct pl_verify_file {
    char *path;              /* owned */
    uint64_t bytes, tensors; /* tensors 0: no file of tensors */
    uint64_t not_floating;   /* of the tensors: no number of theirs can be other than finite */
    uint64_t unchecked;      /* of the tensors: their type is not known, and nothing is said */
    char *unknown;           /* owned; of the first one that is unchecked */
    char *not_compared; /* owned; why shapes were not compared with a configuration; NULL: were */
    bool digested;      /* it was compared with the digest that it was saved with */
    char *problem;      /* owned; the first that was found; NULL: none */
};

struct pl_verify {
    struct pl_verify_file *files; /* owned */
    struct pl_names places;       /* in `files`, by their paths */
    uint32_t n, cap, problems;
};

pl_err pl_verify_dir(struct pl_verify *v, const char *dir, struct pl_diag *d);
void pl_verify_finish(struct pl_verify *v); /* safe on {0} and twice */

#endif
