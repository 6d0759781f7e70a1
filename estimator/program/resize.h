/* resize.h - a program for another number of samples, made of one that is there.
 *
 * In: a brief program and the shape that is wanted.  Out: the same program as
 * pl_program_create_brief() builds, at a fraction of its time: ops and their operands stay, sizes
 * and windows of rows are written again.
 *   Z1  what comes out is what would have been built, tensor by tensor and op by op
 * Use: if (!pl_program_resize(p, &shape)) ... destroy p and build one. */
#ifndef PL_ESTIMATOR_PROGRAM_RESIZE_H
#define PL_ESTIMATOR_PROGRAM_RESIZE_H

#include "estimator/program/program.h"

/* False where the shape differs in more than batch_size and loss_chunk_tokens, where it has other
 * ops or operands, or where it cannot be built at all; p is then good for nothing but to be
 * destroyed. */
bool pl_program_resize(struct pl_program *p, const struct pl_job_shape *shape);

#endif
