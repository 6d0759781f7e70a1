/* merge_program.h - the programs of `plimsoll merge`, whose bytes are planned like those of
 * training.
 *
 * In: model, rank, targets, scale.  Out: struct pl_program with one phase, PL_PHASE_SAVE.
 * Needs: base, model, program.
 *   E1  no tensor lives for the whole job: matrices pass through buffers, a stretch of rows at a
 *       time, so the bytes do not grow with the layers
 *   E2  the buffers of a kind of matrix are the MERGE_* tensors whose `row` is its index in
 *       pl_model_modules(), with a group for every number of columns that it has in some layer; the
 *       buffers of everything that is only copied have `row` PL_NONE
 *   E3  the op of a kind is the LINEAR_DX among its tensors; it runs once per stretch, with
 *       batch.n_tokens the rows of the stretch
 * Use: shape = (struct pl_job_shape){.mode = PL_MODE_LORA, .lora_r = 16, .lora_scale = 2,
 *      .lora_targets = mask}; pl_program_create_merge(&model, &shape, &traits, &program, &d); */
#ifndef PL_ESTIMATOR_PROGRAM_EMIT_MERGE_PROGRAM_H
#define PL_ESTIMATOR_PROGRAM_EMIT_MERGE_PROGRAM_H

#include "estimator/program/program.h"

/* Elements of a stretch if no budget asks for less; larger buffers are not faster. */
#define PL_MERGE_STRETCH (UINT64_C(2) << 20)

/* Builds W + s B A of every targeted matrix. Of the shape, mode, lora_r, lora_scale, lora_targets
 * and stretch count; a stretch is at least a row. */
pl_err pl_program_create_merge(const struct pl_model *m, const struct pl_job_shape *shape,
                               const struct pl_traits *traits, struct pl_program **out,
                               struct pl_diag *d);
/* Builds the copy of the adapter alone into another file: one whole matrix at a time. */
pl_err pl_program_create_adapter_export(const struct pl_model *m, const struct pl_job_shape *shape,
                                        const struct pl_traits *traits, struct pl_program **out,
                                        struct pl_diag *d);
/* Returns the MERGE_* tensor of this role for matrices of a row with so many columns, or for what
 * only passes (row PL_NONE); PL_NONE if there is none. */
uint32_t pl_program_find_merge(const struct pl_program *p, enum pl_role role, uint32_t row,
                               uint64_t cols);

#endif
