/* optimizers.h - every optimizer, one row each. The choices and the help of the key `optimizer`,
 * what a job keeps for each parameter, the names of the states in files, the op that updates,
 * windows of offloaded states, remedies and advice all come from this table.
 *
 * ROW(ID, "name", OP, LIGHTER, states, words, note)
 *   name     in configurations
 *   OP       of op_rows.h: its operands are w, g, the states, clip, the scales of states in blocks,
 *            and the master, in that order; all but g and clip are updated in place
 *   LIGHTER  the ID of the same rule with smaller states; its own where there is none
 *   states   STATE("suffix in files", FORM), with a form of estimator/program/optimizer_rows.h
 *   words    WORD("name elsewhere", "hint for who writes it")
 *   note     a remark for the help of the key, after "; "; "" = none
 * A row whose rule is new also needs the op: a row in op_rows.h and a kernel for each back-end. */
#ifndef PL_ESTIMATOR_CONFIG_OPTIMIZERS_H
#define PL_ESTIMATOR_CONFIG_OPTIMIZERS_H

#define PL_OPTIMIZERS(ROW, STATE, WORD)                                                            \
    ROW(ADAMW, "adamw", ADAMW, ADAMW_8BIT,                                                         \
        STATE("exp_avg", F32) STATE("exp_avg_sq", F32),                                            \
        WORD("adamw_torch", "write `adamw`")                                                       \
        WORD("adamw_torch_fused", "write `adamw`")                                                 \
        WORD("adamw_hf", "write `adamw`")                                                          \
        WORD("paged_adamw", "write `adamw`: states are planned, not paged")                        \
        WORD("paged_adamw_32bit", "write `adamw`: states are planned, not paged"),                 \
        "")                                                                                        \
    ROW(ADAMW_8BIT, "adamw_8bit", ADAMW_8BIT, ADAMW_8BIT,                                          \
        STATE("exp_avg", CODES8) STATE("exp_avg_sq", CODES8),                                      \
        WORD("adamw_bnb_8bit", "write `adamw_8bit`")                                               \
        WORD("adamw8bit", "write `adamw_8bit`")                                                    \
        WORD("paged_adamw_8bit", "write `adamw_8bit`: states are planned, not paged"),             \
        "; adamw_8bit: moments in 8 bits, block by block")                                         \
    ROW(SGD, "sgd", SGD, SGD, , , "")                                                              \
    ROW(LION, "lion", LION, LION,                                                                  \
        STATE("exp_avg", F32),                                                                     \
        WORD("lion_32bit", "write `lion`")                                                         \
        WORD("lion_pytorch", "write `lion`"),                                                      \
        "; lion: updates by the sign of one moment; wants a third to a tenth of adamw's rate")     \
    PL_OPTIMIZERS_OF_A_TEST(ROW, STATE, WORD)

/* A test that proves that a row is enough compiles the readers of the table with one more row. */
#ifndef PL_OPTIMIZERS_OF_A_TEST
#define PL_OPTIMIZERS_OF_A_TEST(ROW, STATE, WORD)
#endif

#define PL_OPTIMIZERS_MAX 16 /* rows, at most */

#define PL_OPTIMIZER_SKIP(...)
#define PL_OPTIMIZER_ID(id, name, op, lighter, states, words, note)     PL_OPTIMIZER_##id,
#define PL_OPTIMIZER_CHOICE(id, name, op, lighter, states, words, note) "|" name
#define PL_OPTIMIZER_NOTE(id, name, op, lighter, states, words, note)   note

enum { PL_OPTIMIZERS(PL_OPTIMIZER_ID, PL_OPTIMIZER_SKIP, PL_OPTIMIZER_SKIP) };

/* "adamw|adamw_8bit|..." */
#define PL_OPTIMIZER_CHOICES                                                                       \
    &(PL_OPTIMIZERS(PL_OPTIMIZER_CHOICE, PL_OPTIMIZER_SKIP, PL_OPTIMIZER_SKIP))[1]
#define PL_OPTIMIZER_NOTES PL_OPTIMIZERS(PL_OPTIMIZER_NOTE, PL_OPTIMIZER_SKIP, PL_OPTIMIZER_SKIP)

#endif
