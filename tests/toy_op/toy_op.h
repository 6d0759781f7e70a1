/* toy_op.h - an operation that no other program has, and its caller: the gate of an MLP under
 * another name. A table of the runtime that is to contain it is compiled with this header. */
#define PL_OP_ROWS_OF_A_TEST          "tests/toy_op/toy_op_rows.inc"
#define PL_ACTIVATIONS_OF_A_TEST(ROW) ROW(TOY, "toy_silu", TOYGLU)
#define PL_FAMILIES_OF_A_TEST         PL_FAMILY_TOY,
#define PL_FAMILY_ROWS_OF_A_TEST                                                                   \
    [PL_FAMILY_TOY] = {.name = "toy",                                                              \
                       .gguf = "toy",                                                              \
                       .max_positions = 2048,                                                      \
                       .rms_eps = 1e-6,                                                            \
                       .theta = 1e4,                                                               \
                       .bos = 1,                                                                   \
                       .eos = 2,                                                                   \
                       .pad = -1,                                                                  \
                       .activation = PL_ACTIVATION_TOY,                                            \
                       .rope_types = ROPE_COMMON,                                                  \
                       .facts = llama_facts},
