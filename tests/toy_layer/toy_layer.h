/* toy_layer.h - a kind of layers that no other program has, and the family that has it: every
 * second layer is of the kind. rows.c, block.c and families.c are compiled with this header. */
#ifndef PL_TESTS_TOY_LAYER_H
#define PL_TESTS_TOY_LAYER_H

#define PL_LAYERS_OF_A_TEST         PL_LAYER_TOY,
#define PL_LAYER_ROWS_OF_A_TEST     [PL_LAYER_TOY] = ATTENTION | DENSE_MLP
#define PL_LAYER_FORWARDS_OF_A_TEST [PL_LAYER_TOY] = toy_layer
#define PL_FAMILIES_OF_A_TEST       PL_FAMILY_TOY,
#define PL_FAMILY_ROWS_OF_A_TEST                                                                   \
    [PL_FAMILY_TOY] = {.name = "toy",                                                              \
                       .max_positions = 2048,                                                      \
                       .rms_eps = 1e-6,                                                            \
                       .theta = 1e4,                                                               \
                       .bos = 1,                                                                   \
                       .eos = 2,                                                                   \
                       .pad = -1,                                                                  \
                       .rope_types = ROPE_COMMON,                                                  \
                       .facts = toy_facts},

#include "estimator/model/families.h"
#include "estimator/program/emit/tape.h"

pl_err toy_facts(const struct pl_hf *h, struct pl_model *m);
pl_var toy_layer(struct pl_tape *t, pl_var x, pl_var below, pl_var *trunk);

#endif
