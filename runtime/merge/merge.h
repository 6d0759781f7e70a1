/* merge.h - `plimsoll merge`: an adapter into its base model, or into a GGUF file of its own, in
 * memory that was planned.
 *
 * In: paths and a budget.  Out: a model directory, or a file.
 * Needs: checkpoint, exec, the CPU device, estimator.
 *   M1  pl_merge_init reads headers and plans; it allocates no arena, reads no weight and writes
 *       nothing, except that it finishes an interrupted save of its inputs (save_set.h). Under a
 *       budget the buffers are planned smaller; when even rows alone do not fit, the merge is
 *       refused there
 *   M2  planned == bound == allocated, byte for byte, asserted in every run; the bytes depend on
 *       the widest matrix and the rank, not on the number of layers
 *   M3  a merge that fails or is stopped leaves no file, and no directory that it made; only where
 *       a rename fails in a directory that was there before may the whole set stay, as save_set.h
 *       says. One that was killed leaves the set or temporaries, which do not keep the same command
 *       from starting over
 * Use: pl_merge_init(&m, &request, &d); pl_merge_run(&m, &d); ... pl_merge_finish(&m); */
#ifndef PL_RUNTIME_MERGE_MERGE_H
#define PL_RUNTIME_MERGE_MERGE_H

#include "estimator/model/resolve.h"
#include "estimator/search/planned.h"
#include "runtime/checkpoint/merge_files.h"
#include "runtime/exec/exec.h"

#include <signal.h>

struct pl_merge_request {
    const char *model;     /* directory, hub id, or catalogue name */
    const char *adapter;   /* PEFT directory */
    const char *output;    /* directory: new, or empty */
    bool replace;          /* files of an earlier merge in `output` are replaced */
    const char *gguf;      /* nullable; the file to write instead, for which the model's weights are
                              not needed */
    enum pl_dtype dtype;   /* F32, BF16, F16. PL_DTYPE_COUNT: each tensor as in the base; GGUF
                              F32 */
    uint64_t budget_bytes; /* 0 = the memory of the machine */
    uint64_t shard_bytes;  /* 0 = the size that transformers uses */
    const volatile sig_atomic_t *stop; /* nullable; non-zero: stop */
    /* nullable; called after every stretch */
    void (*progress)(void *ctx, uint64_t done_bytes, uint64_t total_bytes);
    void *progress_ctx;
};

struct pl_merge {
    struct pl_merge_request request; /* borrowed strings */
    struct pl_model model;
    struct pl_model_ref ref;
    struct pl_merge_files files;
    struct pl_planned planned;
    struct pl_device *device; /* CPU; opened by pl_merge_run */
    struct pl_arena arena;
    struct pl_exec exec;
    enum pl_dtype dtype;  /* type of the output; of its first tensor if they differ */
    uint64_t total_bytes; /* bytes of the tensors to be written */
    uint64_t done_bytes, allocated_bytes;
    bool made_directory;
    bool locks;
    int lock; /* a lock on the output directory, if `locks` */
    struct pl_text notes;
};

/* MODEL_*, CHECKPOINT_*, RUNTIME_DOES_NOT_FIT. *m needs pl_merge_finish in every case. */
pl_err pl_merge_init(struct pl_merge *m, const struct pl_merge_request *request, struct pl_diag *d);
/* PL_ERR_INTERRUPTED if *stop was set. */
pl_err pl_merge_run(struct pl_merge *m, struct pl_diag *d);
void pl_merge_finish(struct pl_merge *m); /* leaves {0} */

#endif
