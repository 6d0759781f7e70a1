/* merge_files.h - a base model and an adapter as files, and the merged model they become.
 *
 * In: a model's facts, a model directory, a PEFT directory.  Out: a model directory.
 * Needs: base, model, program; no device: buffers and the product come from the caller.
 *   F1  every name, shape and type of both sides is found right before a weight byte is read, and
 *       no tensor of the adapter is left without a place
 *   F2  a matrix without adapter whose type stays the same is copied bit for bit; one that was
 *       trained whole is that of the adapter's files, in the type of the base's unless asked
 *   F3  sums are fp32; each element is rounded once, to the type of the output
 *   F4  files appear under their names together, or none does (save_set.h)
 *   F5  no number is written that is not finite: one that is read, or that the output's type does
 *       not hold, is PL_ERR_CHECKPOINT_FORMAT with its tensor
 * Use: pl_merge_files_open(&f, &model, "base", "adapter", &d);
 *      pl_merge_files_write(&f, &work, &target, &d); pl_merge_files_close(&f); */
#ifndef PL_RUNTIME_CHECKPOINT_MERGE_FILES_H
#define PL_RUNTIME_CHECKPOINT_MERGE_FILES_H

#include "runtime/checkpoint/adapter_config.h"
#include "runtime/checkpoint/companions.h"
#include "runtime/checkpoint/weight_files.h"
#include "runtime/checkpoint/windows.h"

/* The adapter of a weight among the matrices of the adapter's files. */
struct pl_adapter_place {
    uint32_t a;       /* its A, which its B follows; PL_NONE: it has no adapter */
    uint32_t expert;  /* the first of `experts` in A and B that the weight is of */
    uint32_t experts; /* that A and B are of together; 0: A and B are of this weight alone */
    uint64_t row0;    /* the first row of B that is of the weight */
};

struct pl_merge_files {
    struct pl_adapter_config config;
    struct pl_weight_files base, adapter;
    struct pl_windows weights;  /* of the model: `row` is the index in pl_model_modules() */
    struct pl_windows matrices; /* of the adapter: each A, followed by its B; then what is whole */
    struct pl_adapter_place *adapter_of; /* owned, [weights.n] */
    uint32_t *whole_of; /* owned, [weights.n]: what replaces it among them, or PL_NONE */
    uint32_t n_rows;    /* pl_model_modules() */
    uint32_t pairs;     /* matrices that are A or B */
    struct pl_targets targets;
    bool unties;      /* a tied model comes out with a head of its own */
    uint32_t head;    /* among the weights; of a tied model only where it is untied */
    uint32_t modules; /* matrices with an adapter */
};

/* model_dir NULL: only the adapter is opened. */
pl_err pl_merge_files_open(struct pl_merge_files *f, const struct pl_model *m,
                           const char *model_dir, const char *adapter_dir, struct pl_diag *d);
void pl_merge_files_close(struct pl_merge_files *f); /* safe on {0} */
/* Decides what each window of a list is written in: `dtype`, or with PL_DTYPE_COUNT what its own
 * file stores. Returns the bytes of all. */
uint64_t pl_windows_set_dtype(struct pl_windows *w, enum pl_dtype dtype);

struct pl_merge_buffers {
    void *raw;         /* elements x 4 bytes */
    float *values;     /* elements */
    float *a, *b;      /* [r,in] and [rows of a stretch, r]; NULL where nothing is merged */
    uint64_t elements; /* of raw and values */
};

struct pl_merge_work {
    /* The buffers for matrices of a row with adapters, of so many columns, or for everything that
     * only passes (PL_NONE, 0). */
    struct pl_merge_buffers (*buffers)(void *ctx, uint32_t row, uint64_t cols);
    /* values[n,cols] += scale b[n,r] a[r,cols] in these buffers. */
    pl_err (*multiply)(void *ctx, uint32_t row, uint64_t cols, uint64_t n, struct pl_diag *d);
    /* Called after every stretch with the bytes written since the last call. An error ends the
     * work. */
    pl_err (*advance)(void *ctx, uint64_t bytes, struct pl_diag *d);
    void *ctx;
};

struct pl_merge_target {
    const char *dir;         /* exists */
    const char *config_json; /* to be written as config.json */
    const struct pl_companions *companions;
    uint64_t shard_bytes;
};
/* Writes the weights in the types that pl_windows_set_dtype() decided. */
pl_err pl_merge_files_write(struct pl_merge_files *f, const struct pl_merge_work *work,
                            const struct pl_merge_target *target, struct pl_diag *d);

/* Reads n elements of a resolved window from `first` on, as fp32, through raw; any n (F5). */
pl_err pl_window_values(const struct pl_window *w, uint64_t first, uint64_t n,
                        const struct pl_merge_buffers *buffers, float *out, struct pl_diag *d);
/* Rounds n fp32 values, those of a window from `first` on, to another type (F5). */
pl_err pl_window_round(const struct pl_window *w, enum pl_dtype to, const float *values,
                       uint64_t first, uint64_t n, void *out, struct pl_diag *d);

#endif
