/* stages.h - the kinds of training, and the losses of `stage: dpo`, one row each. The choices of
 * the keys `stage` and `preference_loss` come from these tables; runtime/train/losses.c computes
 * them.
 *
 * STAGE(ID, "name", GROUP, REFERENCE)
 *   GROUP      samples that one row of data makes: ONE, or TWO: chosen and rejected answer (KTO: an
 *              answer, and the same prompt with the answer of another row)
 *   REFERENCE  log-probabilities of a reference model are needed: REFERS, or ALONE
 * LOSS(ID, "name", function, MEAN)
 *   function   dpo_<function> of losses.c
 *   MEAN       SUM; or OF_SCORED: sums are divided by the tokens of the answer */
#ifndef PL_ESTIMATOR_CONFIG_STAGES_H
#define PL_ESTIMATOR_CONFIG_STAGES_H

#define PL_STAGES(STAGE)                                                                           \
    STAGE(SFT, "sft", ONE, ALONE)                                                                  \
    STAGE(DPO, "dpo", TWO, REFERS)                                                                 \
    STAGE(ORPO, "orpo", TWO, ALONE)                                                                \
    STAGE(SIMPO, "simpo", TWO, ALONE)                                                              \
    STAGE(KTO, "kto", TWO, REFERS)

#define PL_DPO_LOSSES(LOSS)                                                                        \
    LOSS(SIGMOID, "sigmoid", sigmoid, SUM)                                                         \
    LOSS(HINGE, "hinge", hinge, SUM)                                                               \
    LOSS(IPO, "ipo", ipo, OF_SCORED)                                                               \
    LOSS(ROBUST, "robust", robust, SUM)                                                            \
    LOSS(CDPO, "cdpo", cdpo, SUM)                                                                  \
    LOSS(SIGMOID_NORM, "sigmoid_norm", sigmoid_norm, OF_SCORED)                                    \
    LOSS(EXO_PAIR, "exo_pair", exo_pair, SUM)                                                      \
    LOSS(NCA_PAIR, "nca_pair", nca_pair, SUM)                                                      \
    LOSS(APO_ZERO, "apo_zero", apo_zero, SUM)                                                      \
    LOSS(APO_DOWN, "apo_down", apo_down, SUM)                                                      \
    LOSS(SPPO_HARD, "sppo_hard", sppo_hard, SUM)                                                   \
    LOSS(BCO_PAIR, "bco_pair", bco_pair, SUM)                                                      \
    PL_DPO_LOSSES_OF_A_TEST(LOSS)

/* A test that proves that a row is enough compiles the readers of the table with one more row. */
#ifndef PL_DPO_LOSSES_OF_A_TEST
#define PL_DPO_LOSSES_OF_A_TEST(LOSS)
#endif

#define PL_STAGE_ID(id, name, group, reference)      PL_STAGE_##id,
#define PL_STAGE_CHOICE(id, name, group, reference)  "|" name
#define PL_DPO_LOSS_ID(id, name, function, mean)     PL_DPO_LOSS_##id,
#define PL_DPO_LOSS_CHOICE(id, name, function, mean) "|" name

enum { PL_STAGES(PL_STAGE_ID) };
enum { PL_DPO_LOSSES(PL_DPO_LOSS_ID) PL_DPO_LOSS_COUNT };

/* "sft|dpo|..." */
#define PL_STAGE_CHOICES    &(PL_STAGES(PL_STAGE_CHOICE))[1]
#define PL_DPO_LOSS_CHOICES &(PL_DPO_LOSSES(PL_DPO_LOSS_CHOICE))[1]

#endif
