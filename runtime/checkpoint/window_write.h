/* window_write.h - the bytes of windows on their way into files. */
#ifndef PL_RUNTIME_CHECKPOINT_WINDOW_WRITE_H
#define PL_RUNTIME_CHECKPOINT_WINDOW_WRITE_H

#include "runtime/checkpoint/durable.h"
#include "runtime/checkpoint/tensor_io.h"
#include "runtime/checkpoint/windows.h"

/* The source of the bytes of windows on their way into files. */
struct pl_window_source {
    /* Writes the window's elements, in its type, to the open file of the outbox. */
    pl_err (*write)(void *ctx, const struct pl_window *w, struct pl_outbox *o, struct pl_diag *d);
    void *ctx;
    const struct pl_tensor_io *shares; /* borrowed: of this rank, whose files all ranks write
                                        * (share.h); NULL: one process writes them */
    void *buffer;                      /* for copies of small files */
    uint64_t buffer_bytes;
};
/* Returns a source of the tensors of a running job; *io is borrowed. */
struct pl_window_source pl_window_source_device(const struct pl_tensor_io *io);
/* Writes the safetensors header of windows [begin, end). */
pl_err pl_windows_header(const struct pl_windows *w, uint32_t begin, uint32_t end,
                         struct pl_text *out, struct pl_diag *d);
/* Writes elements [from, from+n) of the tensor of a window, counted from its first one, to their
 * places in a shared file, where the window begins at byte `at`. Of a turned window they are whole
 * columns of the file. */
pl_err pl_window_save_part(const struct pl_window *w, const struct pl_tensor_io *io, uint64_t from,
                           uint64_t n, struct pl_outbox *o, uint64_t at, struct pl_diag *d);
/* A rank that writes no files calls this while rank 0 saves these windows (cut.h, K1). */
pl_err pl_windows_feed(const struct pl_windows *w, const struct pl_tensor_io *io,
                       struct pl_diag *d);

#endif
