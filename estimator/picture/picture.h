/* picture.h - a plan as something to look at: self-contained SVG, and a memory snapshot.
 *
 * In: struct pl_plan.  Out: text or bytes appended to a struct pl_text.  Needs: plan. No I/O.
 *   V1  every figure is read off the plan; a picture computes pixels and nothing else
 *   V2  a picture needs no font, script or file but itself, and has a layout for any input
 *   V3  a failure to allocate is sticky in the text (`failed`), as everywhere
 * Use: pl_svg_vram(plan, budget, 0, 0, "SmolLM2", &text); fputs(pl_text_str(&text), file); */
#ifndef PL_ESTIMATOR_PICTURE_PICTURE_H
#define PL_ESTIMATOR_PICTURE_PICTURE_H

#include "estimator/plan/plan.h"

/* Stacked bytes over the ops of the peak phase (job arena below, live transients by category
 * above), budget line, peak marked with its largest tensors, planned / allocated / measured.
 * budget_bytes PL_AUTO_BYTES or 0 = none; allocated_bytes, measured_bytes 0 = not known. */
void pl_svg_vram(const struct pl_plan *plan, uint64_t budget_bytes, uint64_t allocated_bytes,
                 uint64_t measured_bytes, const char *title, struct pl_text *out);
/* The same over the forward and backward pass of a micro-batch, whatever phase needs most. */
void pl_svg_timeline(const struct pl_plan *plan, uint64_t budget_bytes, const char *title,
                     struct pl_text *out);
/* One stacked bar per phase: what its fullest op holds, by category, and what has to be free.
 * context_bytes stands in front of every bar; budget_bytes as above. */
void pl_svg_bill(const struct pl_plan *plan, uint64_t context_bytes, uint64_t budget_bytes,
                 const char *title, struct pl_text *out);
/* The colour a category has in every picture, "#rrggbb". */
const char *pl_picture_colour(enum pl_category c);

/* The planned step (micro-batch, then optimizer) as PyTorch's memory snapshot: what
 * torch.cuda.memory._dump_snapshot writes and pytorch.org/memory_viz reads, pickle protocol 2.
 * Two segments, the job arena and the batch arena, at made-up addresses; one trace with an alloc
 * and a free for every tensor, whose frames carry the tensor's name and the op's. time_us counts
 * ops, not microseconds. */
void pl_snapshot_pickle(const struct pl_plan *plan, struct pl_text *out);

#endif
