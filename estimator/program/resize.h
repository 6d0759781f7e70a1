/* resize.h - rewrites a program for another number of samples.
 *
 * In: a brief program and the new shape.  Out: the same program as pl_program_create_brief()
 * builds, at a fraction of its time: ops and their operands stay, sizes and windows of rows are
 * written again.
 *   Z1  the result equals the program that would have been built, tensor by tensor and op by op
 * Use: if (!pl_program_resize(p, &shape)) ... destroy p and build one. */
#ifndef PL_ESTIMATOR_PROGRAM_RESIZE_H
#define PL_ESTIMATOR_PROGRAM_RESIZE_H

#include "estimator/program/program.h"

/* Returns false if the shape differs in more than batch_size and loss_chunk_tokens, if it has other
 * ops or operands, or if it cannot be built at all; p can then only be destroyed. */
bool pl_program_resize(struct pl_program *p, const struct pl_job_shape *shape);

#endif
