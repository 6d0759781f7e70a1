#include "runtime/train/losses.h"

#include "estimator/base/checked.h"

#include <math.h>

static const char *const measure_names[] = {
#define X(id, name) name,
    PL_MEASURES(X)
#undef X
};

const char *pl_measure_name(enum pl_measure m) {
    return measure_names[m];
}

/* --- losses of a pair ------------------------------------------------------------------------- */

/* The two answers of a pair, the chosen one first. */
struct pair {
    double d[2];      /* log-probability of an answer, less that of the reference */
    double tokens[2]; /* by which a mean divides */
    const struct pl_job *job;
};

/* A loss, and its derivatives by the log-probabilities of both answers. */
struct pair_loss {
    double loss, by[2];
    double log_odds; /* ORPO */
};

static double sigmoid(double x) {
    return x >= 0 ? 1 / (1 + exp(-x)) : exp(x) / (1 + exp(x));
}

static double log_sigmoid(double x) {
    return (x < 0 ? x : 0) - log1p(exp(-fabs(x)));
}

static double slope_of_sigmoid(double x) {
    return sigmoid(x) * sigmoid(-x);
}

/* -(1-e) log s(z) - e log s(-z) for a share e of pairs whose labels are wrong, times `factor`; the
 * derivative by z in *slope. */
static double smoothed(double z, double wrong, double factor, double *slope) {
    *slope = factor * (wrong * sigmoid(z) - (1 - wrong) * sigmoid(-z));
    return -factor * ((1 - wrong) * log_sigmoid(z) + wrong * log_sigmoid(-z));
}

/* A loss of z = b (d(w)/n(w) - d(l)/n(l)), whose derivative by z is `slope`. */
static struct pair_loss of_difference(const struct pair *p, double loss, double slope,
                                      const double n[2]) {
    const double g = slope * p->job->beta;
    return (struct pair_loss){.loss = loss, .by = {g / n[0], -g / n[1]}};
}

static const double one_each[2] = {1, 1};

static double difference(const struct pair *p) {
    return p->job->beta * (p->d[0] - p->d[1]);
}

/* Rafailov et al., arXiv 2305.18290, equation 7. */
static struct pair_loss dpo_sigmoid(const struct pair *p) {
    double slope;
    const double loss = smoothed(difference(p), 0, 1, &slope);
    return of_difference(p, loss, slope, one_each);
}

/* cDPO: Mitchell, "A note on DPO with noisy preferences", 2023. */
static struct pair_loss dpo_cdpo(const struct pair *p) {
    double slope;
    const double loss = smoothed(difference(p), p->job->label_smoothing, 1, &slope);
    return of_difference(p, loss, slope, one_each);
}

/* rDPO, Chowdhury et al., arXiv 2403.00409: [-(1-e) log s(z) + e log s(-z)] / (1 - 2e). */
static struct pair_loss dpo_robust(const struct pair *p) {
    const double z = difference(p), e = p->job->label_smoothing;
    const double loss = (-(1 - e) * log_sigmoid(z) + e * log_sigmoid(-z)) / (1 - 2 * e);
    const double slope = (-(1 - e) * sigmoid(-z) - e * sigmoid(z)) / (1 - 2 * e);
    return of_difference(p, loss, slope, one_each);
}

/* SLiC, Zhao et al., arXiv 2305.10425; RSO, Liu et al., arXiv 2309.06657. */
static struct pair_loss dpo_hinge(const struct pair *p) {
    const double left = 1 - difference(p);
    return of_difference(p, left > 0 ? left : 0, left > 0 ? -1 : 0, one_each);
}

/* IPO, Azar et al., arXiv 2310.12036, equation 17, of means. */
static struct pair_loss dpo_ipo(const struct pair *p) {
    const double *n = p->tokens;
    const double x = p->d[0] / n[0] - p->d[1] / n[1] - 1 / (2 * p->job->beta);
    return (struct pair_loss){.loss = x * x, .by = {2 * x / n[0], -2 * x / n[1]}};
}

/* DPO of means: Meng et al., arXiv 2405.14734, table 5. */
static struct pair_loss dpo_sigmoid_norm(const struct pair *p) {
    double slope;
    const double z = p->job->beta * (p->d[0] / p->tokens[0] - p->d[1] / p->tokens[1]);
    const double loss = smoothed(z, 0, 1, &slope);
    return of_difference(p, loss, slope, p->tokens);
}

/* EXO, Ji et al., arXiv 2402.00856, for a pair: the divergence of (q, 1-q) from (1-e, e). */
static struct pair_loss dpo_exo_pair(const struct pair *p) {
    const double z = difference(p), e = p->job->label_smoothing;
    const double a = log_sigmoid(z) - log(1 - e), b = log_sigmoid(-z) - log(e);
    const double loss = sigmoid(z) * a + sigmoid(-z) * b;
    return of_difference(p, loss, slope_of_sigmoid(z) * (a - b), one_each);
}

/* NCA, Chen et al., arXiv 2402.05369, for a pair. */
static struct pair_loss dpo_nca_pair(const struct pair *p) {
    const double b = p->job->beta, w = b * p->d[0], l = b * p->d[1];
    return (struct pair_loss){.loss =
                                  -log_sigmoid(w) - 0.5 * log_sigmoid(-w) - 0.5 * log_sigmoid(-l),
                              .by = {b * (0.5 * sigmoid(w) - sigmoid(-w)), b * 0.5 * sigmoid(l)}};
}

/* APO, D'Oosterlinck et al., arXiv 2408.06266, section 3. */
static struct pair_loss dpo_apo_zero(const struct pair *p) {
    const double b = p->job->beta, w = b * p->d[0], l = b * p->d[1];
    return (struct pair_loss){.loss = 1 - sigmoid(w) + sigmoid(l),
                              .by = {-b * slope_of_sigmoid(w), b * slope_of_sigmoid(l)}};
}
static struct pair_loss dpo_apo_down(const struct pair *p) {
    const double b = p->job->beta, w = b * p->d[0], z = difference(p);
    const double g = b * slope_of_sigmoid(z);
    return (struct pair_loss){.loss = sigmoid(w) + 1 - sigmoid(z),
                              .by = {b * slope_of_sigmoid(w) - g, g}};
}

/* SPPO, Wu et al., arXiv 2405.00675, with labels that are certain. */
static struct pair_loss dpo_sppo_hard(const struct pair *p) {
    const double half = 1 / (2 * p->job->beta), w = p->d[0] - half, l = p->d[1] + half;
    return (struct pair_loss){.loss = w * w + l * l, .by = {2 * w, 2 * l}};
}

/* BCO, Jung et al., arXiv 2404.04656, without a running mean. */
static struct pair_loss dpo_bco_pair(const struct pair *p) {
    const double b = p->job->beta, w = b * p->d[0], l = b * p->d[1];
    return (struct pair_loss){.loss = -log_sigmoid(w) - log_sigmoid(-l),
                              .by = {-b * sigmoid(-w), b * sigmoid(l)}};
}

/* SimPO, Meng et al., arXiv 2405.14734, equation 6; gamma is not multiplied by beta. */
static struct pair_loss simpo(const struct pair *p) {
    double slope;
    const double *n = p->tokens;
    const double z = p->job->beta * (p->d[0] / n[0] - p->d[1] / n[1]) - p->job->simpo_gamma;
    const double loss = smoothed(z, p->job->label_smoothing, 1, &slope);
    return of_difference(p, loss, slope, n);
}

/* A mean log-probability of which the odds are finite: a model may be certain in fp32. */
static double uncertain(double mean) {
    return mean < -1e-12 ? mean : -1e-12;
}

/* ORPO, Hong et al., arXiv 2403.07691, equations 6 and 7: the odds of means m. log(1 - e^m) is
 * log(-expm1(m)), and the derivative of m - log(1 - e^m) is -1/expm1(m). */
static struct pair_loss orpo(const struct pair *p) {
    const double *n = p->tokens, b = p->job->beta;
    const double w = uncertain(p->d[0] / n[0]), l = uncertain(p->d[1] / n[1]);
    const double z = w - l - (log(-expm1(w)) - log(-expm1(l))), g = -b * sigmoid(-z);
    return (struct pair_loss){.loss = -b * log_sigmoid(z),
                              .by = {-g / expm1(w) / n[0], g / expm1(l) / n[1]},
                              .log_odds = z};
}

#ifdef PL_DPO_LOSS_FUNCTIONS_OF_A_TEST
PL_DPO_LOSS_FUNCTIONS_OF_A_TEST
#endif

/* --- the table -------------------------------------------------------------------------------- */

enum tokens { SUM, OF_SCORED, OF_PREDICTED };

struct pair_row {
    struct pair_loss (*loss)(const struct pair *p);
    enum tokens mean; /* the tokens that a mean divides by: OF_SCORED counts one at the very
                       * beginning, which nothing predicts, as TRL does */
};

static const struct pair_row dpo_rows[] = {
#define X(id, name, function, mean) {dpo_##function, mean},
    PL_DPO_LOSSES(X)
#undef X
};

static const struct pair_row orpo_row = {orpo, OF_PREDICTED}, simpo_row = {simpo, OF_PREDICTED};

static const struct pair_row *row_of(const struct pl_job *job) {
    if (job->stage == PL_STAGE_ORPO) return &orpo_row;
    return job->stage == PL_STAGE_SIMPO ? &simpo_row : &dpo_rows[job->preference_loss];
}

/* --- a step ----------------------------------------------------------------------------------- */

/* The samples of a step and what comes of them. */
struct step {
    const struct pl_job *job;
    struct pl_step_batch *b;
    const struct pl_score *scores;
    struct pl_measures *out;
    uint64_t pairs; /* that have samples */
    uint64_t units; /* that have pairs, or rows */
    uint64_t counted[PL_MEASURE_COUNT];
};

/* Measures are means of what is added; what was never added is absent. */
static void measure(struct step *s, enum pl_measure m, double v) {
    s->out->of[m] += v;
    s->counted[m]++;
}

static bool has_samples(const struct step *s, uint64_t first) {
    return s->b->samples[first].n > 0;
}

static double divisor(const struct pl_member *m, enum tokens mean) {
    return mean == SUM ? 1 : mean == OF_SCORED ? (double)m->scored : (double)m->predicted;
}

static void add_pair(struct step *s, uint64_t first, const struct pair_row *row) {
    struct pair p = {.job = s->job};
    const bool of_means = row->mean == OF_PREDICTED;
    double reward[2], logp[2];
    for (int k = 0; k < 2; k++) {
        const struct pl_score *score = &s->scores[first + k];
        p.d[k] = score->answer - score->reference;
        p.tokens[k] = divisor(&s->b->members[first + k], row->mean);
        reward[k] = s->job->beta * p.d[k] / (of_means ? p.tokens[k] : 1);
        logp[k] = score->answer / (of_means ? p.tokens[k] : 1);
    }
    const struct pair_loss l = row->loss(&p);
    s->out->of[PL_MEASURE_LOSS] += l.loss / (double)s->pairs;
    for (int k = 0; k < 2; k++)
        s->b->weights[first + k].answer = -l.by[k] / (double)s->pairs;
    measure(s, PL_MEASURE_REWARD_CHOSEN, reward[0]);
    measure(s, PL_MEASURE_REWARD_REJECTED, reward[1]);
    measure(s, PL_MEASURE_ACCURACY, reward[0] > reward[1]);
    measure(s, PL_MEASURE_MARGIN, reward[0] - reward[1]);
    measure(s, PL_MEASURE_LOGP_CHOSEN, logp[0]);
    measure(s, PL_MEASURE_LOGP_REJECTED, logp[1]);
    if (s->job->stage != PL_STAGE_ORPO) return;
    measure(s, PL_MEASURE_LOG_ODDS_RATIO, log_sigmoid(l.log_odds));
    measure(s, PL_MEASURE_LOG_ODDS_CHOSEN, l.log_odds);
}

/* The supervised loss of the chosen samples of a unit: the mean over their targets. */
static void add_supervised(struct step *s, uint64_t begin, uint64_t end, double weight) {
    double sum = 0;
    uint64_t targets = 0;
    for (uint64_t i = begin; i < end; i += 2)
        if (has_samples(s, i)) {
            sum += s->scores[i].all;
            targets += s->b->members[i].targets;
        }
    if (!targets) return;
    const double nll = -sum / (double)targets, each = weight / (double)s->units;
    for (uint64_t i = begin; i < end; i += 2)
        s->b->weights[i].all = each / (double)targets;
    s->out->of[PL_MEASURE_LOSS] += each * nll;
    if (s->job->stage != PL_STAGE_DPO) measure(s, PL_MEASURE_NLL, nll);
}

static void add_pairs(struct step *s, uint64_t begin, uint64_t end) {
    const struct pair_row *row = row_of(s->job);
    const double weight = s->job->stage == PL_STAGE_ORPO ? 1 : s->job->sft_weight;
    for (uint64_t i = begin; i < end; i += 2)
        if (has_samples(s, i)) add_pair(s, i, row);
    if (weight > 0) add_supervised(s, begin, end, weight);
}

/* --- KTO: Ethayarajh et al., arXiv 2402.01306, section 4.1 ------------------------------------ */

/* The mean log-ratio of answers to other prompts, which no gradient passes through. */
static double estimate_kl(const struct step *s, uint64_t begin, uint64_t end, uint64_t *rows) {
    double sum = 0;
    *rows = 0;
    for (uint64_t i = begin; i < end; i += 2) {
        if (!has_samples(s, i)) continue;
        sum += s->scores[i + 1].answer - s->scores[i + 1].reference;
        ++*rows;
    }
    return *rows && sum > 0 ? sum / (double)*rows : 0;
}

/* Means over the rows of a kind within a unit. */
struct kind {
    double reward, logp;
    uint64_t rows;
};

static void measure_kinds(struct step *s, const struct kind k[2]) {
    static const enum pl_measure rewards[] = {PL_MEASURE_REWARD_CHOSEN, PL_MEASURE_REWARD_REJECTED};
    static const enum pl_measure logps[] = {PL_MEASURE_LOGP_CHOSEN, PL_MEASURE_LOGP_REJECTED};
    for (int i = 0; i < 2; i++) {
        if (!k[i].rows) continue;
        measure(s, rewards[i], k[i].reward / (double)k[i].rows);
        measure(s, logps[i], k[i].logp / (double)k[i].rows);
    }
    if (k[0].rows && k[1].rows)
        measure(s, PL_MEASURE_MARGIN,
                k[0].reward / (double)k[0].rows - k[1].reward / (double)k[1].rows);
}

static void add_labelled(struct step *s, uint64_t begin, uint64_t end) {
    const struct pl_job *job = s->job;
    struct kind kinds[2] = {{0}};
    uint64_t rows;
    const double kl = estimate_kl(s, begin, end, &rows);
    for (uint64_t i = begin; i < end; i += 2) {
        if (!has_samples(s, i)) continue;
        const bool undesired = s->b->members[i].undesired;
        const double d = s->scores[i].answer - s->scores[i].reference;
        const double z = job->beta * (undesired ? kl - d : d - kl);
        const double w = undesired ? job->undesirable_weight : job->desirable_weight;
        const double share = w / (double)(rows * s->units);
        const double slope = share * job->beta * slope_of_sigmoid(z);
        s->out->of[PL_MEASURE_LOSS] += share * sigmoid(-z);
        s->b->weights[i].answer = undesired ? -slope : slope;
        kinds[undesired].reward += job->beta * d;
        kinds[undesired].logp += s->scores[i].answer;
        kinds[undesired].rows++;
    }
    if (rows) measure(s, PL_MEASURE_KL, kl);
    measure_kinds(s, kinds);
}

/* --- all of it -------------------------------------------------------------------------------- */

void pl_losses_begin(const struct pl_job *job, struct pl_step_batch *b) {
    const bool by_length = job->stage == PL_STAGE_DPO && !isnan(job->ld_alpha);
    for (uint64_t i = 0; i < b->n; i++)
        b->weights[i] = (struct pl_target_weights){.tail = UINT64_MAX};
    /* LD-DPO, Liu et al., arXiv 2409.06411 */
    for (uint64_t i = 0; by_length && i + 1 < b->n; i += 2) {
        const uint64_t tail = pl_u64_min(b->members[i].predicted, b->members[i + 1].predicted);
        for (int k = 0; k < 2; k++)
            b->weights[i + k] =
                (struct pl_target_weights){.tail = tail, .tail_factor = job->ld_alpha};
    }
}

/* Counts the pairs and units of the step. */
static void count_pairs(struct step *s, uint64_t unit) {
    for (uint64_t at = 0; at < s->b->n; at += 2 * unit) {
        const uint64_t end = pl_u64_min(at + 2 * unit, s->b->n), before = s->pairs;
        for (uint64_t i = at; i < end; i += 2)
            s->pairs += has_samples(s, i);
        s->units += s->pairs > before;
    }
}

/* Adds the units that hold samples [first, end). */
static void add_units(struct step *s, uint64_t unit, uint64_t first, uint64_t end) {
    for (uint64_t at = first - first % (2 * unit); at < end; at += 2 * unit) {
        const uint64_t until = pl_u64_min(at + 2 * unit, s->b->n);
        if (s->job->stage == PL_STAGE_KTO)
            add_labelled(s, at, until);
        else
            add_pairs(s, at, until);
    }
}

void pl_losses_of_samples(const struct pl_job *job, uint64_t unit, struct pl_step_batch *b,
                          uint64_t first, uint64_t end, const struct pl_score *scores) {
    struct pl_measures unread = {{0}};
    struct step s = {.job = job, .b = b, .scores = scores, .out = &unread};
    count_pairs(&s, unit);
    add_units(&s, unit, first, end);
}

void pl_losses_of_step(const struct pl_job *job, uint64_t unit, struct pl_step_batch *b,
                       const struct pl_score *scores, struct pl_measures *out) {
    struct step s = {.job = job, .b = b, .scores = scores, .out = out};
    *out = (struct pl_measures){{0}};
    count_pairs(&s, unit);
    add_units(&s, unit, 0, b->n);
    for (int m = PL_MEASURE_LOSS + 1; m < PL_MEASURE_COUNT; m++)
        out->of[m] = s.counted[m] ? out->of[m] / (double)s.counted[m] : NAN;
    if (!s.pairs) out->of[PL_MEASURE_LOSS] = NAN;
}
