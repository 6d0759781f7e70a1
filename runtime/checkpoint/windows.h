/* windows.h - which tensor of a file is which stretch of which tensor of the program.
 *
 * Files keep Hugging Face's split names; the program computes with fused matrices. A window ties
 * one to the other, and everything else in this room - load, save, initialise, resume - is a walk
 * over a list of windows.
 * In: program.  Out: lists; data moved between files, staging and the device.
 * Needs: base, model, program, device.
 *   W1  a window is contiguous: rows of a fused matrix are, and vectors have one column
 *   W2  all windows of a list are found, with shape and type, before the first byte moves
 * Use: pl_windows_add_model(&w, program, &d); pl_weight_files_open(&f, dir, "model", err, &d);
 *      pl_windows_resolve(&w, &f, PL_MATCH_CONVERT, err, &d);
 *      pl_windows_load(&w, io, true, &d); ... */
#ifndef PL_RUNTIME_CHECKPOINT_WINDOWS_H
#define PL_RUNTIME_CHECKPOINT_WINDOWS_H

#include "runtime/checkpoint/durable.h"
#include "runtime/checkpoint/safetensors.h"
#include "runtime/checkpoint/tensor_io.h"

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
    uint32_t master;           /* id of the fp32 master of `tensor`, or PL_NONE */
    bool turned;               /* files have it turned round, all of it: [r,V] for [V,r] */
    bool is_copy;              /* of what `tensor` holds already: loading compares */
    bool finite;               /* loading refuses a number that is not */
    bool quantised;            /* `tensor` holds 4-bit codes; values are quantised on the way */
    uint32_t absmax, absmax8;  /* ids of its scales; absmax8 may be PL_NONE */
    uint32_t rank;
    uint64_t dims[2];
    uint64_t first, count; /* elements of the tensor; of codes, values from the first one on */
    enum pl_quant quant;   /* of a quantised window */
    /* Filled by pl_windows_resolve; borrowed from the opened files. */
    const struct pl_st_file *file;
    const struct pl_st_entry *entry;
    struct pl_stored_codes stored;
};

struct pl_weight_files;

struct pl_windows {
    struct pl_window *items; /* owned */
    uint32_t n, cap;
};

/* Each appends; on failure the list still wants pl_windows_finish. */
pl_err pl_windows_add_model(struct pl_windows *w, const struct pl_program *p, struct pl_diag *d);
/* With the modules that are trained whole together with it. */
pl_err pl_windows_add_adapter(struct pl_windows *w, const struct pl_program *p, struct pl_diag *d);
/* States and masters of the windows of `base`: NAME.exp_avg, NAME.exp_avg_sq, NAME.master. */
pl_err pl_windows_add_states(struct pl_windows *w, const struct pl_windows *base,
                             const struct pl_program *p, struct pl_diag *d);
void pl_windows_finish(struct pl_windows *w); /* frees; leaves {0} */
/* One window more, for lists without a program. */
pl_err pl_windows_append(struct pl_windows *w, const struct pl_window *item, struct pl_diag *d);
/* PEFT may save the weight of the embedding or the head (`slot`) with an adapter: a window of that
 * copy where the files have one. A base that differs from it is not the one that the adapter
 * was trained on. */
pl_err pl_windows_add_base_copy(struct pl_windows *w, const struct pl_weight_files *f,
                                const struct pl_model *m, enum pl_slot slot, uint32_t tensor,
                                struct pl_diag *d);
bool pl_window_names_base_copy(const char *name);
/* PL_ERR_CHECKPOINT_MISMATCH: the base of that copy is another. */
pl_err pl_window_refuse_copy(const struct pl_window *copy, struct pl_diag *d);
/* Whether two resolved windows hold the same values, in the narrower of their types. */
pl_err pl_windows_compare(const struct pl_window *a, const struct pl_window *b, bool *same,
                          struct pl_diag *d);
/* PEFT's name of the A or B matrix (`which`) of a module. */
void pl_window_adapter_name(const struct pl_param_row *row, uint64_t layer, char which,
                            char out[PL_WINDOW_NAME]);
void pl_window_adapter_dims(const struct pl_param_row *row, uint64_t r, char which,
                            uint64_t out[2]);
/* PEFT's name of a module that is trained whole. */
void pl_window_whole_name(const struct pl_param_row *row, char out[PL_WINDOW_NAME]);

/* One file, or the shards of an index. */
struct pl_weight_files {
    char *path;               /* owned; the file, or the index */
    struct pl_st_file *files; /* owned */
    uint32_t n;
    json_t *weight_map; /* owned; NULL = one file */
    json_t *shards;     /* owned; with weight_map: where in `files` each of its shards is */
    bool of_adapter;    /* names are those of PEFT */
    struct pl_plain_name *plain; /* owned; [n_plain], by plain names (plain_names.h) */
    uint64_t n_plain;
};
/* dir/STEM.safetensors if there is one, else the shards of dir/STEM.safetensors.index.json. A file
 * that is not there is reported as `absent`. */
pl_err pl_weight_files_open(struct pl_weight_files *f, const char *dir, const char *stem,
                            pl_err absent, struct pl_diag *d);
void pl_weight_files_close(struct pl_weight_files *f);
/* absent_weights.c: `absent` with what the directory has instead of the files that are looked for,
 * and what to do. */
pl_err pl_weight_files_absent(const char *dir, const char *stem, pl_err absent, struct pl_diag *d);
/* `missing` of the shards that the index names, `first` among them, are not there. */
pl_err pl_weight_files_missing(const struct pl_weight_files *f, const char *dir, const char *first,
                               uint64_t missing, pl_err absent, struct pl_diag *d);
/* Fills file and entry, by the name of the window or else by its plain name; false when no file has
 * it. */
bool pl_window_find(const struct pl_weight_files *f, struct pl_window *w);

enum pl_window_match {
    PL_MATCH_CONVERT,  /* any type weights are stored in; other tensors of the files are ignored */
    PL_MATCH_COMPLETE, /* as above, but no other tensor may be there */
    PL_MATCH_EXACT,    /* the tensor's own type, and no other tensor may be there */
};
/* W2. `err` is reported for what is missing, too much, or of the wrong shape or type. */
pl_err pl_windows_resolve(struct pl_windows *w, const struct pl_weight_files *f,
                          enum pl_window_match match, pl_err err, struct pl_diag *d);

/* surplus.c: tensors that no window asks for.
 * Of a model whose head is its embedding: a head of its own in the files must hold the same values,
 * else PL_ERR_MODEL_WEIGHTS. transformers trains such a head, whatever the configuration says. */
pl_err pl_windows_check_tied_head(const struct pl_windows *w, const struct pl_weight_files *f,
                                  struct pl_diag *d);
/* Of windows that were looked for: a line with the number and the first names of the others; a tied
 * head is none of them. Terminal controls in names are the printer's business, as in all notes. */
pl_err pl_windows_note_surplus(const struct pl_windows *w, const struct pl_weight_files *f,
                               struct pl_text *notes, struct pl_diag *d);

/* prequantised.c: codes of bitsandbytes, which are copied bit for bit.
 * Finds the scales of a window whose tensor in the files is codes, and checks that they were made
 * the way the program reads them. */
pl_err pl_window_find_codes(struct pl_window *w, const struct pl_weight_files *f, pl_err err,
                            struct pl_diag *d);
pl_err pl_window_load_codes(const struct pl_window *w, const struct pl_tensor_io *io,
                            struct pl_diag *d);

/* Streams resolved windows into the device. fill_master: masters get the values before rounding. */
pl_err pl_windows_load(const struct pl_windows *w, const struct pl_tensor_io *io, bool fill_master,
                       struct pl_diag *d);
/* What a rank that writes no files does while rank 0 saves these windows (cut.h, K1). */
pl_err pl_windows_feed(const struct pl_windows *w, const struct pl_tensor_io *io,
                       struct pl_diag *d);
/* n elements of `src` to element `first` of a job tensor; the copy is over when this returns. */
pl_err pl_io_upload(const struct pl_tensor_io *io, uint32_t tensor, uint64_t first, const void *src,
                    uint64_t n, struct pl_diag *d);

/* Values that a rule makes: attr as START takes it (ops.h), first_element 0. */
struct pl_window_values {
    struct pl_attr attr;
    uint64_t seed;
};
/* Every value of the window, and of its master; of a quantised window by pl_window_quantise. */
pl_err pl_window_start(const struct pl_window *w, const struct pl_tensor_io *io,
                       const struct pl_window_values *values, struct pl_diag *d);
/* Quantises values on their way into the device: those of a rule or, where `values` is NULL, of the
 * resolved file. */
pl_err pl_window_quantise(const struct pl_window *w, const struct pl_tensor_io *io,
                          const struct pl_window_values *values, struct pl_diag *d);

/* The device whose kernel of this kind reaches a tensor; NULL: there is none. */
struct pl_device *pl_io_kernel_device(const struct pl_tensor_io *io, uint32_t tensor,
                                      enum pl_op_kind kind);
/* Runs it, and waits: staging is free again. */
pl_err pl_io_run(const struct pl_tensor_io *io, struct pl_device *on, uint32_t tensor,
                 enum pl_op_kind kind, const struct pl_call *c, struct pl_diag *d);
/* n elements of a job tensor from `element` on, as a kernel's operand. */
struct pl_view pl_io_view(const struct pl_tensor_io *io, uint32_t tensor, uint64_t element,
                          uint64_t n);

/* Where the bytes of windows come from on their way into files. */
struct pl_window_source {
    /* Writes the window's elements, in its type, to the open file of the outbox. */
    pl_err (*write)(void *ctx, const struct pl_window *w, struct pl_outbox *o, struct pl_diag *d);
    void *ctx;
    const struct pl_tensor_io *shares; /* borrowed: of this rank, whose files all ranks write
                                        * (share.h); NULL: one process writes them */
    void *buffer;                      /* for copies of small files */
    uint64_t buffer_bytes;
};
/* The tensors of a running job; *io is borrowed. */
struct pl_window_source pl_window_source_device(const struct pl_tensor_io *io);
/* The safetensors header of windows [begin, end). */
pl_err pl_windows_header(const struct pl_windows *w, uint32_t begin, uint32_t end,
                         struct pl_text *out, struct pl_diag *d);
/* Elements [from, from+n) of the tensor of a window, counted from its first one, to their places in
 * a shared file, where the window begins at byte `at`. Of a turned window they are whole columns of
 * the file. */
pl_err pl_window_save_part(const struct pl_window *w, const struct pl_tensor_io *io, uint64_t from,
                           uint64_t n, struct pl_outbox *o, uint64_t at, struct pl_diag *d);
/* Writes windows [begin, end) as one file of the outbox. Where files are shared, all ranks call it,
 * and one that rank 0 writes alone is nothing to the others. */
pl_err pl_windows_save(const struct pl_windows *w, uint32_t begin, uint32_t end,
                       const struct pl_window_source *source, struct pl_outbox *o, const char *name,
                       struct pl_diag *d);

#endif
