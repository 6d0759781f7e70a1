/* toy_plan.h - a plan small enough to check by eye: two resident tensors, five transient ones over
 * six ops of the step phase, which start at op 2 of the whole list.
 *
 *   op       2    3    4    5    6    7        bytes (MiB)
 *   ids      |----|                            1
 *   x             |----|----|                  8
 *   gu            |----|                       16
 *   m                  |----|                  4
 *   logits             |----|----|             12
 *   live     1    25   40   24   12   0        peak at op 4: gu, logits, x */
#ifndef PL_TESTS_OOM_TOY_PLAN_H
#define PL_TESTS_OOM_TOY_PLAN_H

#include "estimator/plan/plan.h"

#define MIB (1ull << 20)

enum { TOY_WEIGHTS, TOY_OPTIMIZER, TOY_IDS, TOY_X, TOY_GU, TOY_M, TOY_LOGITS, TOY_TENSORS };
enum { TOY_FIRST_OP = 2, TOY_STEP_OPS = 6, TOY_PEAK_OP = 4, TOY_OPS = 10 };

struct toy_plan {
    struct pl_program program;
    struct pl_plan plan;
    struct pl_tensor tensors[TOY_TENSORS];
    struct pl_place_row places[TOY_TENSORS];
    struct pl_op ops[TOY_OPS];
};

static inline void toy_tensor(struct toy_plan *t, uint32_t id, const char *name, uint32_t layer,
                              enum pl_category category, uint64_t bytes, uint32_t first,
                              uint32_t last) {
    enum pl_scope scope = id <= TOY_OPTIMIZER ? PL_SCOPE_JOB : PL_SCOPE_STEP;
    t->tensors[id] = (struct pl_tensor){.name = name,
                                        .layer = layer,
                                        .dims = {bytes, 1, 1},
                                        .dtype = PL_DTYPE_U8,
                                        .category = category,
                                        .scope = scope,
                                        .phase = PL_PHASE_MICRO,
                                        .of = PL_NONE,
                                        .bytes = bytes};
    t->places[id] = (struct pl_place_row){.first_op = first, .last_op = last};
}

static inline void toy_plan_init(struct toy_plan *t) {
    *t = (struct toy_plan){0};
    toy_tensor(t, TOY_WEIGHTS, "qkv", 0, PL_CATEGORY_WEIGHTS, 100 * MIB, 0, TOY_OPS - 1);
    toy_tensor(t, TOY_OPTIMIZER, "moment1", PL_NONE, PL_CATEGORY_OPTIMIZER, 50 * MIB, 0,
               TOY_OPS - 1);
    toy_tensor(t, TOY_IDS, "ids", PL_NONE, PL_CATEGORY_BATCH, 1 * MIB, 2, 2);
    toy_tensor(t, TOY_X, "x", 0, PL_CATEGORY_ACTIVATIONS, 8 * MIB, 3, 5);
    toy_tensor(t, TOY_GU, "gu", 0, PL_CATEGORY_ACTIVATIONS, 16 * MIB, 3, 4);
    toy_tensor(t, TOY_M, "m", 0, PL_CATEGORY_ACTIVATIONS, 4 * MIB, 4, 5);
    toy_tensor(t, TOY_LOGITS, "logits", PL_NONE, PL_CATEGORY_LOGITS, 12 * MIB, 4, 6);
    for (uint32_t i = 0; i < TOY_OPS; i++)
        t->ops[i] = (struct pl_op){
            .kind = PL_OP_LINEAR, .phase = PL_PHASE_MICRO, .layer = 0, .backward = i >= 5};
    t->program = (struct pl_program){.tensors = t->tensors,
                                     .ops = t->ops,
                                     .n_tensors = TOY_TENSORS,
                                     .n_ops = TOY_OPS,
                                     .tokens = 2048,
                                     .shape = {.mode = PL_MODE_LORA,
                                               .batch_size = 1,
                                               .max_seq_length = 2048,
                                               .dtype = PL_DTYPE_BF16,
                                               .recompute = PL_RECOMPUTE_FULL,
                                               .lora_r = 16}};
    t->program.phases[PL_PHASE_MICRO] = (struct pl_phase_range){TOY_FIRST_OP, TOY_STEP_OPS};
    t->plan = (struct pl_plan){.program = &t->program,
                               .places = t->places,
                               .job_bytes = 150 * MIB,
                               .batch_bytes = 42 * MIB,
                               .arena_bytes = 192 * MIB,
                               .peak_phase = PL_PHASE_MICRO,
                               .fragmentation_bytes = 2 * MIB};
    t->plan.job_by_category[PL_CATEGORY_WEIGHTS] = 100 * MIB;
    t->plan.job_by_category[PL_CATEGORY_OPTIMIZER] = 50 * MIB;
    t->plan.ledger[PL_CATEGORY_WEIGHTS] = 100 * MIB;
    t->plan.ledger[PL_CATEGORY_OPTIMIZER] = 50 * MIB;
    t->plan.ledger[PL_CATEGORY_ACTIVATIONS] = 28 * MIB;
    t->plan.ledger[PL_CATEGORY_LOGITS] = 12 * MIB;
    t->plan.phases[PL_PHASE_MICRO] =
        (struct pl_phase_plan){.bytes = 42 * MIB, .live_bytes = 40 * MIB, .peak_op = TOY_PEAK_OP};
}

#endif
