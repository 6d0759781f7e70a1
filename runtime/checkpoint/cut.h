/* cut.h - tensors of which every rank holds some rows, as files hold them: whole.
 *
 * Files, and the lists of windows that are made for them, know the program of one rank. What a rank
 * holds of a tensor of that program are ranges of its elements, at other places of a tensor of its
 * own program, or nothing.
 * Needs: program, comm.
 *   K1  ranks of one machine each write what they hold into the files of a checkpoint (share.h).
 *       Elsewhere, and of what a run ends with, rank 0 writes all bytes: the others send it theirs
 *       in the same order of windows and ranges (pl_windows_feed)
 *   K2  loading reads the files on every rank, and keeps what is the rank's */
#ifndef PL_RUNTIME_CHECKPOINT_CUT_H
#define PL_RUNTIME_CHECKPOINT_CUT_H

#include "estimator/program/program.h"
#include "runtime/device/device.h"

struct pl_cut {
    struct pl_program *whole;  /* owned: the job on one rank */
    struct pl_job_shape shape; /* of this rank */
    uint32_t *own;             /* owned; by tensor of `whole`: that of this rank, or PL_NONE */
};

/* A range of elements of a tensor of `whole`, and where a rank's own tensor has them. */
struct pl_cut_range {
    uint64_t from, count, at;
};

/* held: the program of this rank, of which only the model has to last. */
pl_err pl_cut_init(struct pl_cut *c, const struct pl_program *held, struct pl_diag *d);
void pl_cut_finish(struct pl_cut *c); /* leaves {0} */
/* True if the numbers of a rank lie apart from each other in files: those of adapters on parameters
 * of experts, whose B has a column for each expert there. Rank 0 writes such files (K1). */
bool pl_cut_is_scattered(const struct pl_cut *c);
/* True if ranks hold different rows of a tensor of `whole`; else each holds all of it. */
bool pl_cut_is_cut(const struct pl_cut *c, uint32_t tensor);
/* Writes the ranges of it that `rank` holds; returns how many there are. */
uint32_t pl_cut_ranges(const struct pl_cut *c, uint32_t tensor, uint32_t rank,
                       struct pl_cut_range out[PL_MAX_PARTS]);
/* Writes the part of `r` that lies in elements [from, from+n); false: there is none. */
static inline bool pl_cut_meet(struct pl_cut_range r, uint64_t from, uint64_t n,
                               struct pl_cut_range *out) {
    const uint64_t first = r.from > from ? r.from : from;
    const uint64_t end = r.from + r.count < from + n ? r.from + r.count : from + n;
    *out = (struct pl_cut_range){first, end - first, r.at + (first - r.from)};
    return end > first;
}

#endif
