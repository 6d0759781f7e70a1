/* activations.h - the activations of an MLP's gate, one row each.
 *
 * ROW(ID, "name in config.json", GLU)
 *   GLU  the op of op_rows.h that computes act(gate) * up; its gradient is that op's
 * `swish` is read as `silu`, as in transformers. */
#ifndef PL_ESTIMATOR_MODEL_ACTIVATIONS_H
#define PL_ESTIMATOR_MODEL_ACTIVATIONS_H

/* A test that proves that a row is enough compiles the readers of the table with one more row. */
#ifndef PL_ACTIVATIONS_OF_A_TEST
#define PL_ACTIVATIONS_OF_A_TEST(ROW)
#endif

#define PL_ACTIVATIONS(ROW)                                                                        \
    ROW(SILU, "silu", SWIGLU)                                                                      \
    ROW(GELU_TANH, "gelu_pytorch_tanh", GEGLU)                                                     \
    PL_ACTIVATIONS_OF_A_TEST(ROW)

enum pl_activation {
#define PL_ACTIVATION_ID(id, name, glu) PL_ACTIVATION_##id,
    PL_ACTIVATIONS(PL_ACTIVATION_ID)
#undef PL_ACTIVATION_ID
        PL_ACTIVATION_COUNT
};

#endif
