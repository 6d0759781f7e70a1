/* losses.h - the losses of preference stages, one row each: what a step has lost, and how much by
 * each of its answers.
 *
 * Each of these losses depends on a sample only through the sum of the log-probabilities of its
 * answer, and on means over tokens whose weights are known beforehand. From the sums of all samples
 * of a step follow the loss and its derivatives, which are the weights of targets: forward and
 * backward then compute each sample by itself, as if it were supervised.
 *
 * In: the samples of a step and their scores.  Out: weights of their targets, measures.  Needs:
 * batch.h, job.h. The equations and their sources stand at the rows of losses.c.
 *   L1  sums run over the samples in their order, in fp64: the same scores give the same bits
 *   L2  a pair counts once in the mean of a step; means over tokens (sft_weight, ORPO) and the
 *       estimate of KTO are those of `unit` rows, a micro-batch as the job was written, whatever
 *       a halving has made of it
 * Use: pl_losses_begin(job, &batch); ... score ...;
 *      pl_losses_of_step(job, unit, &batch, scores, &m); */
#ifndef PL_RUNTIME_TRAIN_LOSSES_H
#define PL_RUNTIME_TRAIN_LOSSES_H

#include "estimator/config/job.h"
#include "runtime/data/batch.h"

/* Sums of log-probabilities of a sample. */
struct pl_score {
    double answer;    /* of its answer, with the weights of its tail */
    double all;       /* of all its targets */
    double reference; /* as `answer`, by the reference; 0 without one */
};

/* The measures of a step: X(ID, name in the log). All but the loss may be absent, as NaN. */
#define PL_MEASURES(X)                                                                             \
    X(LOSS, "loss")                                                                                \
    X(REWARD_CHOSEN, "rewards/chosen")                                                             \
    X(REWARD_REJECTED, "rewards/rejected")                                                         \
    X(ACCURACY, "rewards/accuracies")                                                              \
    X(MARGIN, "rewards/margins")                                                                   \
    X(LOGP_CHOSEN, "logps/chosen")                                                                 \
    X(LOGP_REJECTED, "logps/rejected")                                                             \
    X(NLL, "nll_loss")                                                                             \
    X(LOG_ODDS_RATIO, "log_odds_ratio")                                                            \
    X(LOG_ODDS_CHOSEN, "log_odds_chosen")                                                          \
    X(KL, "kl")
enum pl_measure {
#define X(id, name) PL_MEASURE_##id,
    PL_MEASURES(X)
#undef X
        PL_MEASURE_COUNT
};
const char *pl_measure_name(enum pl_measure m);

struct pl_measures {
    double of[PL_MEASURE_COUNT];
};

/* Sets the weights of tails, with which samples are scored. */
void pl_losses_begin(const struct pl_job *job, struct pl_step_batch *b);
/* Fills the weights of samples [first, end), whose own scores and those of partners are known:
 * nothing else of the scores of a step goes into them. Weights of other samples may change. */
void pl_losses_of_samples(const struct pl_job *job, uint64_t unit, struct pl_step_batch *b,
                          uint64_t first, uint64_t end, const struct pl_score *scores);
/* Fills the weights of all targets, and the measures; scores has one for each sample. */
void pl_losses_of_step(const struct pl_job *job, uint64_t unit, struct pl_step_batch *b,
                       const struct pl_score *scores, struct pl_measures *out);

#endif
