/* planning.h - helpers of the planner's tests: public models by name, jobs, plans. */
#ifndef PL_TESTS_PLAN_PLANNING_H
#define PL_TESTS_PLAN_PLANNING_H

#include "estimator/search/planned.h"

extern const char *const pl_test_models[]; /* directories of tests/model/configs */
/* All of them; and those at the front, for which closed forms hold: their layers are of attention
 * and an MLP alone. */
extern const int pl_test_n_all_models, pl_test_n_models;

/* Fails the test if the file cannot be read. */
void pl_test_model(const char *name, struct pl_model *m);
/* bf16, AdamW, everything on: eval, load, save; LoRA r16 on all linears. */
struct pl_job_shape pl_test_shape(const struct pl_model *m, uint32_t mode, uint32_t recompute,
                                  uint64_t batch, uint64_t length);
/* An adapter on the head too. */
void pl_test_adapt_head(struct pl_job_shape *s, const struct pl_model *m);
/* Lists the tensors of a phase in one memory in `ids`, which has room for all of the program;
 * returns their number. */
struct pl_phase_tensors pl_test_tensors(const struct pl_plan *plan, enum pl_phase phase,
                                        enum pl_tensor_place place, uint32_t *ids);
void pl_test_plan(struct pl_planned *out, const struct pl_job_shape *s, const struct pl_model *m);

#endif
