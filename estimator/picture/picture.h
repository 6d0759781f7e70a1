/* picture.h - pictures of a plan: self-contained SVG, and a memory snapshot.
 *
 * In: struct pl_plan.  Out: text or bytes appended to a struct pl_text.  Needs: plan. No I/O.
 *   V1  every figure is read off the plan; a picture computes pixels and nothing else
 *   V2  a picture needs no font, script or file but itself, and has a layout for any input
 * A failure to allocate is sticky in the text (`failed`), as everywhere.
 * Use: pl_svg_vram(plan, budget, 0, 0, "SmolLM2", &text); fputs(pl_text_str(&text), file); */
#ifndef PL_ESTIMATOR_PICTURE_PICTURE_H
#define PL_ESTIMATOR_PICTURE_PICTURE_H

#include "estimator/plan/plan.h"

#include <jansson.h>

/* Draws stacked bytes over the ops of the peak phase (job arena below, live transients by category
 * above), the budget line, the peak with its largest tensors, and planned, allocated and measured
 * bytes. budget_bytes PL_AUTO_BYTES or 0 = none; allocated_bytes, measured_bytes 0 = not known. */
void pl_svg_vram(const struct pl_plan *plan, uint64_t budget_bytes, uint64_t allocated_bytes,
                 uint64_t measured_bytes, const char *title, struct pl_text *out);
/* Draws the same over the forward and backward pass of a micro-batch, whichever phase needs
 * most. */
void pl_svg_timeline(const struct pl_plan *plan, uint64_t budget_bytes, const char *title,
                     struct pl_text *out);
/* Draws one stacked bar per phase: the bytes of its fullest op by category, and what has to be
 * free. context_bytes stands in front of every bar; budget_bytes as above. */
void pl_svg_bill(const struct pl_plan *plan, uint64_t context_bytes, uint64_t budget_bytes,
                 const char *title, struct pl_text *out);
/* Returns the figures of such pictures for every phase: for at most 2000 operations of each, those
 * that stand for their neighbours (sweep.h), what runs, its layer (-1: none) and the live bytes of
 * the batch arena by category; where backward begins ("ops": nowhere); and the largest tensors at
 * the peak. "job" has the bytes that live as long as the run. NULL = no memory. */
json_t *pl_timeline_json(const struct pl_plan *plan, uint64_t budget_bytes);
/* Returns the colour of a category in every picture, "#rrggbb". */
const char *pl_picture_colour(enum pl_category c);

/* Appends the planned step (micro-batch, then optimizer) in the format of PyTorch's memory
 * snapshots, as torch.cuda.memory._dump_snapshot writes them and pytorch.org/memory_viz reads them:
 * pickle protocol 2. It has two segments, the job arena and the batch arena, at made-up addresses,
 * and one trace with an alloc and a free for every tensor, whose frames carry the names of the
 * tensor and of the op. time_us counts ops, not microseconds. */
void pl_snapshot_pickle(const struct pl_plan *plan, struct pl_text *out);

#endif
