/* window_save.c - windows as a file, by one process or by all ranks of a machine. */
#include "runtime/checkpoint/window_save.h"

#include "runtime/checkpoint/share.h"
#include "runtime/comm/comm.h"

static pl_err save_alone(const struct pl_windows *w, uint32_t begin, uint32_t end,
                         const struct pl_window_source *source, struct pl_outbox *o,
                         const char *name, struct pl_diag *d) {
    struct pl_text header = {0};
    pl_err err = pl_windows_header(w, begin, end, &header, d);
    if (err != PL_ERR_OK) goto out;
    PL_TRY_GOTO(pl_outbox_open(o, name, d), out);
    PL_TRY_GOTO(pl_outbox_write(o, header.data, header.len, d), out);
    for (uint32_t i = begin; i < end; i++)
        PL_TRY_GOTO(source->write(source->ctx, &w->items[i], o, d), out);
    err = pl_outbox_close(o, d);
out:
    pl_text_finish(&header);
    return err;
}

pl_err pl_windows_save(const struct pl_windows *w, uint32_t begin, uint32_t end,
                       const struct pl_window_source *source, struct pl_outbox *o, const char *name,
                       struct pl_diag *d) {
    const struct pl_tensor_io *io = source->shares;
    if (io && pl_windows_are_shared(w, begin, end, io))
        return pl_windows_share(w, begin, end, io, o, name, d);
    if (io && io->comm->world.rank != 0) return PL_ERR_OK;
    return save_alone(w, begin, end, source, o, name, d);
}
