/* toy_family.h - the row of a family that no one else has: Gemma 3 under another name. */
#define PL_FAMILIES_OF_A_TEST PL_FAMILY_TOY,
#define PL_FAMILY_ROWS_OF_A_TEST                                                                   \
    [PL_FAMILY_TOY] = {.name = "toy_text",                                                         \
                       .class = "ToyForCausalLM",                                                  \
                       .gguf = "toy",                                                              \
                       .kv_heads = 4,                                                              \
                       .head_dim = 256,                                                            \
                       .max_positions = 131072,                                                    \
                       .rms_eps = 1e-6,                                                            \
                       .theta = 1e6,                                                               \
                       .local_theta = 1e4,                                                         \
                       .tied = true,                                                               \
                       .bos = 2,                                                                   \
                       .eos = 1,                                                                   \
                       .activation = PL_ACTIVATION_GELU_TANH,                                      \
                       .rope_types = ROPE_COMMON,                                                  \
                       .facts = gemma3_facts},
