/* windows.h - each tensor of a file as a stretch of a tensor of the program.
 *
 * Files keep Hugging Face's split names; the program computes with fused matrices. A window ties
 * one to the other, and everything else in this room - load, save, initialise, resume - is a walk
 * over a list of windows.
 * In: program.  Out: lists, which weight_files.h and window_resolve.h find in files, window_load.h
 * reads and share.h writes.
 * Needs: base, model, program.
 *   W1  a window is contiguous: rows of a fused matrix are, and vectors have one column
 *   W2  all windows of a list are found, with shape and type, before the first byte moves
 * Use: pl_windows_add_model(&w, program, &d); pl_weight_files_open(&f, dir, "model", err, &d);
 *      pl_windows_resolve(&w, &f, PL_MATCH_CONVERT, err, &d);
 *      pl_windows_load(&w, io, true, &d); ... */
#ifndef PL_RUNTIME_CHECKPOINT_WINDOWS_H
#define PL_RUNTIME_CHECKPOINT_WINDOWS_H

#include "estimator/program/program.h"
#include "runtime/checkpoint/safetensors.h"

#include <jansson.h>

#define PL_WINDOW_NAME 192

/* The scales of a matrix whose files hold 4-bit codes already. */
struct pl_stored_codes {
    const struct pl_st_file *absmax_file, *nested_file;
    const struct pl_st_entry *absmax, *nested; /* absmax NULL: the files hold values */
    float offset;                              /* of nested absmax */
};

struct pl_window {
    char name[PL_WINDOW_NAME]; /* in the file */
    uint32_t tensor;           /* id; PL_NONE in lists without a program */
    enum pl_dtype dtype;       /* of the tensor, and of files that are written */
    uint32_t row;              /* index into pl_model_modules() */
    uint32_t which;            /* of the tensors of the row in its layer */
    uint32_t master;           /* id of the fp32 master of `tensor`, or PL_NONE */
    bool turned;               /* files have it turned round, all of it: [r,V] for [V,r] */
    bool is_copy;              /* of what `tensor` holds already: loading compares */
    bool finite;               /* loading refuses a number that is not */
    bool quantised;            /* `tensor` holds 4-bit codes; values are quantised on the way */
    uint32_t absmax, absmax8;  /* ids of its scales; absmax8 may be PL_NONE */
    uint32_t
        folded; /* of a turned window: so many of its rows lie in one row of the file, whose shape
                        is [dims[0] / folded, folded * dims[1]]; else 0 */
    uint32_t rank;
    uint64_t dims[2];
    uint32_t matrices; /* of the file's tensor, one after another, where it has that dimension: its
                          shape is [matrices, dims[0] / matrices, dims[1]]; else 0 */
    uint64_t first,
        count;           /* elements of the tensor; of codes, 0 and the values that they stand for,
                              of the matrices of experts from `which` on */
    enum pl_quant quant; /* of a quantised window */
    /* Filled by pl_windows_resolve; borrowed from the opened files. */
    const struct pl_st_file *file;
    const struct pl_st_entry *entry;
    struct pl_stored_codes stored;
};

/* Returns how many matrices a window has; those of codes are quantised each by itself. */
static inline uint64_t pl_window_matrices(const struct pl_window *w) {
    return w->matrices ? w->matrices : 1;
}

/* The elements of the tensors of a quantised window with which the codes and scales of a matrix
 * begin. */
struct pl_codes_place {
    uint64_t codes, absmax, absmax8;
};
struct pl_codes_place pl_window_codes_place(const struct pl_window *w, uint64_t matrix);

struct pl_windows {
    struct pl_window *items; /* owned */
    uint32_t n, cap;
};

/* One file, or the shards of an index: weight_files.h. */
struct pl_weight_files {
    char *path;               /* owned; the file, or the index */
    struct pl_st_file *files; /* owned */
    uint32_t n;
    json_t *weight_map; /* owned; NULL = one file */
    json_t *shards;     /* owned; with weight_map: where in `files` each of its shards is */
    bool has_mxfp4;     /* the last of `files` is of values of MXFP4 codes (mxfp4_weights.h) */
    bool of_adapter;    /* names are those of PEFT */
    struct pl_plain_name *plain; /* owned; [n_plain], by plain names (plain_names.h) */
    uint64_t n_plain;
};

/* Each appends; on failure the list still wants pl_windows_finish. */
pl_err pl_windows_add_model(struct pl_windows *w, const struct pl_program *p, struct pl_diag *d);
/* Adds the modules that are trained whole, too. */
pl_err pl_windows_add_adapter(struct pl_windows *w, const struct pl_program *p, struct pl_diag *d);
/* Adds the states and masters of the windows of `base`: NAME.exp_avg, NAME.exp_avg_sq,
 * NAME.master. */
pl_err pl_windows_add_states(struct pl_windows *w, const struct pl_windows *base,
                             const struct pl_program *p, struct pl_diag *d);
void pl_windows_finish(struct pl_windows *w); /* frees; leaves {0} */
/* Adds one window, for lists without a program. */
pl_err pl_windows_append(struct pl_windows *w, const struct pl_window *item, struct pl_diag *d);
/* Returns the window of a tensor in the files of a model, with its name and shape and nothing else.
 * `which` counts pl_model_row_tensors(). */
struct pl_window pl_window_of_row(const struct pl_param_row *row, uint64_t layer, uint32_t which);
/* Writes the shape that files have; returns its rank. */
uint32_t pl_window_shape(const struct pl_window *w, uint64_t out[3]);
/* True if a tensor of a file has that shape; `wanted` gets its text. */
bool pl_window_fits(const struct pl_window *w, const struct pl_st_entry *e,
                    char wanted[PL_ST_SHAPE_TEXT]);
/* Returns the window of the A or B matrix (`letter`) of an adapter of rank r, with its name and
 * shape and nothing else. `which` counts pl_model_row_tensors(); `adapted` are the rows with
 * adapters in the layer, which decide PEFT's names for parameters of experts. */
struct pl_window pl_window_of_adapter(const struct pl_model *m, const struct pl_param_row *row,
                                      uint64_t layer, uint32_t which, pl_row_set adapted,
                                      uint64_t r, char letter);
/* Writes PEFT's name of a module that is trained whole. */
void pl_window_whole_name(const struct pl_param_row *row, char out[PL_WINDOW_NAME]);
/* Counts how many whole columns of a turned window `elements` of it are. */
uint64_t pl_window_columns(const struct pl_window *w, uint64_t elements);

#endif
