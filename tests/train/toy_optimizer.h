/* toy_optimizer.h - the rows of two optimizers that no one else has: AdamW under other names. */
#define PL_OPTIMIZERS_OF_A_TEST(ROW, STATE, WORD)                                                  \
    ROW(TOY, "toy", ADAMW, TOY_8BIT,                                                               \
        STATE("first_toy", F32) STATE("second_toy", F32),                                          \
        WORD("old_toy", "write `toy`"),                                                            \
        "; toy: of a test")                                                                        \
    ROW(TOY_8BIT, "toy_8bit", ADAMW_8BIT, TOY_8BIT,                                                \
        STATE("first_toy", CODES8) STATE("second_toy", CODES8), , "")
