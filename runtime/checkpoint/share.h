/* share.h - windows as one file of an outbox, which one process writes, or all ranks of a machine,
 * each its own bytes of it.
 *
 * In: windows, and what each rank holds of their tensors.  Out: the bytes that one process writes.
 * Needs: durable, cut, manifest, comm; one directory that all ranks see.
 *   H1  each byte has one writer. Of a tensor that is cut, a rank writes what it holds. What every
 *       rank holds is divided by place: of N ranks each writes an Nth of the file. The header, and
 *       a whole tensor that files have turned, are rank 0's
 *   H2  no byte of a tensor goes to another rank; outcomes and digests do, on the host
 *   H3  rank 0 makes the file, and nobody writes before all ranks have opened that very file. So a
 *       rank that was lost, and comes back, writes to a file without a name
 *   H4  every rank has written and synced before one may name the file; what one rank cannot do is
 *       the same error on all of them, which says the rank. A rank that is lost is the error of all
 *   H5  the pieces of all ranks follow each other without a gap, and end where the file ends
 *   H6  a file of no more than PL_SHARE_LEAST bytes, of tensors that all ranks hold, is written by
 *       rank 0 alone, as if there were no other
 * Use: io.shares = true; and on every rank pl_windows_save(&w, begin, end, &source, &o, ...) */
#ifndef PL_RUNTIME_CHECKPOINT_SHARE_H
#define PL_RUNTIME_CHECKPOINT_SHARE_H

#include "runtime/checkpoint/window_write.h"

/* An fsync and three agreements take longer than to write so many bytes. What all ranks hold is
 * divided at multiples of it. */
#define PL_SHARE_LEAST (UINT64_C(64) << 10)

/* Writes windows [begin, end) as one file of the outbox. Where files are shared, all ranks call it,
 * each with the outbox of rank 0 or one of the same directory; a file that rank 0 writes alone is
 * nothing to the others. */
pl_err pl_windows_save(const struct pl_windows *w, uint32_t begin, uint32_t end,
                       const struct pl_window_source *source, struct pl_outbox *o, const char *name,
                       struct pl_diag *d);

#endif
