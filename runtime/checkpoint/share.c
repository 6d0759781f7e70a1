#include "runtime/checkpoint/share.h"

#include "estimator/base/alloc.h"
#include "estimator/base/checked.h"
#include "runtime/checkpoint/cut.h"
#include "runtime/checkpoint/manifest.h"
#include "runtime/checkpoint/tensor_io.h"
#include "runtime/comm/comm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PIECES_A_ROUND (PL_AGREE_MOST / sizeof(struct pl_file_piece))

struct shared_file {
    const struct pl_windows *w;
    uint32_t begin, end;
    const struct pl_tensor_io *io;
    struct pl_outbox *outbox;
    const char *name;
    struct pl_text header; /* owned */
    uint64_t bytes;        /* with the header */
    struct pl_file_id id;  /* of rank 0's */
};

static uint64_t bytes_of(const struct pl_window *w) {
    return w->count * pl_dtype_bytes(w->dtype);
}

static uint64_t tensor_bytes(const struct pl_windows *w, uint32_t begin, uint32_t end) {
    uint64_t bytes = 0;
    for (uint32_t i = begin; i < end; i++)
        bytes += bytes_of(&w->items[i]);
    return bytes;
}

static bool is_cut(const struct pl_tensor_io *io, const struct pl_window *w) {
    return io->cut && pl_cut_is_cut(io->cut, w->tensor);
}

/* True if windows [begin, end) are a file that all ranks write. The same on every rank. */
static bool are_shared(const struct pl_windows *w, uint32_t begin, uint32_t end,
                       const struct pl_tensor_io *io) {
    for (uint32_t i = begin; i < end; i++)
        if (is_cut(io, &w->items[i])) return true;
    return tensor_bytes(w, begin, end) > PL_SHARE_LEAST;
}

/* --- what is this rank's ---------------------------------------------------------------------- */

/* Elements of a window at byte `at` of a file that begin before byte `place` of it. */
static uint64_t elements_before(const struct pl_window *w, uint64_t at, uint64_t place) {
    if (place <= at) return 0;
    return pl_u64_min(pl_u64_div_up(place - at, pl_dtype_bytes(w->dtype)), w->count);
}

/* H1 of what every rank holds. */
static pl_err write_share(const struct shared_file *f, const struct pl_window *w, uint64_t at,
                          struct pl_diag *d) {
    const uint64_t rank = f->io->comm->world.rank, ranks = f->io->comm->world.size;
    const uint64_t share =
        pl_u64_div_up(pl_u64_div_up(f->bytes, ranks), PL_SHARE_LEAST) * PL_SHARE_LEAST;
    uint64_t from = elements_before(w, at, rank * share);
    uint64_t to = elements_before(w, at, (rank + 1) * share);
    if (w->turned) {
        from = 0;
        to = rank == 0 ? w->count : 0;
    }
    if (from == to) return PL_ERR_OK;
    return pl_window_save_part(w, f->io, from, to - from, f->outbox, at, d);
}

static pl_err write_held(const struct shared_file *f, const struct pl_window *w, uint64_t at,
                         struct pl_diag *d) {
    struct pl_cut_range ranges[PL_MAX_PARTS], r;
    const uint32_t n = pl_cut_ranges(f->io->cut, w->tensor, f->io->comm->world.rank, ranges);
    for (uint32_t i = 0; i < n; i++)
        if (pl_cut_meet(ranges[i], w->first, w->count, &r))
            PL_TRY(pl_window_save_part(w, f->io, r.from - w->first, r.count, f->outbox, at, d));
    return PL_ERR_OK;
}

static pl_err write_own(const struct shared_file *f, struct pl_diag *d) {
    uint64_t at = f->header.len;
    if (f->io->comm->world.rank == 0)
        PL_TRY(pl_outbox_write_at(f->outbox, 0, f->header.data, f->header.len, d));
    for (uint32_t i = f->begin; i < f->end; i++) {
        const struct pl_window *w = &f->w->items[i];
        PL_TRY(is_cut(f->io, w) ? write_held(f, w, at, d) : write_share(f, w, at, d));
        at += bytes_of(w);
    }
    return pl_outbox_close_shared(f->outbox, d);
}

/* --- agreement -------------------------------------------------------------------------------- */

struct vote {
    uint32_t err, n_pieces;
    struct pl_file_id id;
    char why[PL_AGREE_MOST - 24];
};
_Static_assert(sizeof(struct vote) == PL_AGREE_MOST, "what an agreement carries");

/* H4. mine, own: how this rank did, and why it has failed. all: of every rank, where none has. The
 * loss of a rank is told before a failure: rank 0 may have heard of it first, and removed what
 * could not be opened. */
static pl_err agree_on_file(const struct shared_file *f, pl_err mine, const struct pl_diag *own,
                            struct vote all[PL_RANKS_MAX], struct pl_diag *d) {
    struct vote vote = {.err = mine, .n_pieces = f->outbox->n_pieces, .id = f->id};
    if (mine != PL_ERR_OK) {
        /* The end of a sentence that is too long: it holds the name of the file and the cause. */
        const size_t n = strlen(own->message), most = sizeof vote.why - 1;
        snprintf(vote.why, sizeof vote.why, "%s", own->message + (n > most ? n - most : 0));
    }
    PL_TRY(pl_comm_agree(f->io->comm, &vote, sizeof vote, all, d));
    if (mine != PL_ERR_OK)
        return pl_diag_at(d, mine, own->file, own->line, own->column, "%s", own->message);
    for (uint32_t r = 0; r < f->io->comm->world.size; r++)
        if (all[r].err) return pl_diag_set(d, (pl_err)all[r].err, "rank %u: %s", r, all[r].why);
    return PL_ERR_OK;
}

/* --- the pieces of all ------------------------------------------------------------------------ */

static int by_place(const void *a, const void *b) {
    const struct pl_file_piece *x = a, *y = b;
    return (x->begin > y->begin) - (x->begin < y->begin);
}

/* H5 */
static pl_err list_pieces(const struct shared_file *f, struct pl_file_piece *pieces, uint32_t n,
                          struct pl_diag *d) {
    uint64_t at = 0;
    qsort(pieces, n, sizeof *pieces, by_place);
    for (uint32_t i = 0; i < n && pieces[i].begin == at; i++)
        at = pieces[i].end;
    if (at != f->bytes || pieces[n - 1].end != at)
        return pl_diag_set(d, PL_ERR_PLAN_BROKEN, "not one rank writes byte %llu of %s",
                           (unsigned long long)at, f->name);
    if (!f->outbox->manifest) return PL_ERR_OK;
    return pl_manifest_add_pieces(f->outbox->manifest, f->name, pieces, n, d);
}

/* out: of all pieces; NULL on the ranks that list none. */
static pl_err gather(const struct shared_file *f, const struct vote all[], uint32_t most,
                     struct pl_file_piece *out, struct pl_diag *d) {
    struct pl_file_piece got[PL_RANKS_MAX][PIECES_A_ROUND];
    for (uint32_t at = 0; at < most; at += PIECES_A_ROUND) {
        struct pl_file_piece mine[PIECES_A_ROUND] = {0};
        for (uint32_t i = 0; i < PIECES_A_ROUND && at + i < f->outbox->n_pieces; i++)
            mine[i] = f->outbox->pieces[at + i];
        PL_TRY(pl_comm_agree(f->io->comm, mine, sizeof mine, got, d));
        for (uint32_t r = 0; out && r < f->io->comm->world.size; r++)
            for (uint32_t i = 0; i < PIECES_A_ROUND && at + i < all[r].n_pieces; i++)
                *out++ = got[r][i];
    }
    return PL_ERR_OK;
}

static pl_err gather_and_list(const struct shared_file *f, const struct vote all[],
                              struct pl_diag *d) {
    uint32_t n = 0, most = 0;
    for (uint32_t r = 0; r < f->io->comm->world.size; r++) {
        n += all[r].n_pieces;
        if (all[r].n_pieces > most) most = all[r].n_pieces;
    }
    if (f->io->comm->world.rank != 0) return gather(f, all, most, NULL, d);
    struct pl_file_piece *pieces = pl_malloc(((size_t)n + 1) * sizeof *pieces);
    if (!pieces) return pl_host_oom(d, "the digests of a file");
    pl_err err = gather(f, all, most, pieces, d);
    if (err == PL_ERR_OK) err = list_pieces(f, pieces, n, d);
    free(pieces);
    return err;
}

/* --- a file ----------------------------------------------------------------------------------- */

static pl_err make_file(struct shared_file *f, struct pl_diag *d) {
    PL_TRY(pl_windows_header(f->w, f->begin, f->end, &f->header, d));
    f->bytes = f->header.len + tensor_bytes(f->w, f->begin, f->end);
    if (f->io->comm->world.rank != 0) return PL_ERR_OK;
    return pl_outbox_open_shared(f->outbox, f->name, f->bytes, &f->id, d);
}

static pl_err share_file(struct shared_file *f, struct pl_diag *d) {
    struct vote all[PL_RANKS_MAX];
    struct pl_diag own = {0};
    PL_TRY(agree_on_file(f, make_file(f, &own), &own, all, d));
    pl_err err = f->io->comm->world.rank == 0
                     ? PL_ERR_OK
                     : pl_outbox_join(f->outbox, f->name, &all[0].id, &own);
    PL_TRY(agree_on_file(f, err, &own, all, d)); /* H3 */
    PL_TRY(agree_on_file(f, write_own(f, &own), &own, all, d));
    return gather_and_list(f, all, d);
}

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
    if (io && are_shared(w, begin, end, io)) {
        struct shared_file f = {
            .w = w, .begin = begin, .end = end, .io = io, .outbox = o, .name = name};
        pl_err err = share_file(&f, d);
        pl_text_finish(&f.header);
        return err;
    }
    if (io && io->comm->world.rank != 0) return PL_ERR_OK;
    return save_alone(w, begin, end, source, o, name, d);
}
