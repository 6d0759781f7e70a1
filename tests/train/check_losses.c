/* check_losses.c - losses of preferences: the weights that they give targets are derivatives, and
 * their values are those that are known. losses.c is compiled with one row more (toy_loss.h). */
#include "runtime/train/losses.h"

#include <check.h>
#include <math.h>
#include <string.h>

enum { SAMPLES = 8, UNIT = 2 };

struct problem {
    struct pl_job job;
    struct pl_step_batch batch;
    struct pl_sample samples[SAMPLES];
    struct pl_member members[SAMPLES];
    struct pl_target_weights weights[SAMPLES];
    struct pl_score scores[SAMPLES];
    struct pl_measures measures;
};

/* Pairs whose answers differ in length, likelihood and sign of the margin; the last unit has one
 * pair that is left out. */
static void set_up(struct problem *p, uint32_t stage, uint32_t loss) {
    static const uint64_t lengths[SAMPLES] = {5, 3, 2, 9, 4, 4, 7, 1};
    const bool refers = stage == PL_STAGE_DPO || stage == PL_STAGE_KTO;
    *p = (struct problem){
        .job = {.stage = stage,
                .preference_loss = loss,
                .beta = 0.3,
                .label_smoothing = 0.1,
                .sft_weight = stage == PL_STAGE_KTO ? 0 : 0.6,
                .ld_alpha = NAN,
                .simpo_gamma = 0.4,
                .desirable_weight = 1.3,
                .undesirable_weight = 0.7},
        .batch = {
            .samples = p->samples, .members = p->members, .weights = p->weights, .n = SAMPLES}};
    for (int i = 0; i < SAMPLES; i++) {
        const bool there = i < 4 || i > 5;
        p->samples[i].n = there ? lengths[i] + 2 : 0;
        p->members[i] = (struct pl_member){.answer = 2,
                                           .scored = lengths[i],
                                           .predicted = lengths[i],
                                           .targets = lengths[i] + (stage == PL_STAGE_ORPO),
                                           .undesired = stage == PL_STAGE_KTO && i % 4 == 2,
                                           .is_partner = stage == PL_STAGE_KTO && i % 2};
        p->scores[i] = (struct pl_score){.answer = -1.1 * (double)lengths[i] - 0.3 * i,
                                         .all = -1.2 * (double)lengths[i] - 0.4 * i - 1,
                                         .reference = refers ? -1.2 * (double)lengths[i] : 0};
    }
}

static double loss_of(struct problem *p) {
    pl_losses_begin(&p->job, &p->batch);
    pl_losses_of_step(&p->job, UNIT, &p->batch, p->scores, &p->measures);
    return p->measures.of[PL_MEASURE_LOSS];
}

/* The central difference of the loss by a score. */
static double slope_by(struct problem *p, double *score) {
    const double h = 1e-5, was = *score;
    *score = was + h;
    const double above = loss_of(p);
    *score = was - h;
    const double below = loss_of(p);
    *score = was;
    return (above - below) / (2 * h);
}

static void check_derivatives(uint32_t stage, uint32_t loss) {
    struct problem p;
    set_up(&p, stage, loss);
    for (int i = 0; i < SAMPLES; i++) {
        if (!p.samples[i].n || p.members[i].is_partner) continue;
        const double by_answer = slope_by(&p, &p.scores[i].answer);
        const double by_all = slope_by(&p, &p.scores[i].all);
        (void)loss_of(&p);
        ck_assert_msg(fabs(p.weights[i].answer + by_answer) < 1e-7,
                      "stage %u, loss %u, sample %d: weight %.9g, slope %.9g", stage, loss, i,
                      p.weights[i].answer, -by_answer);
        ck_assert_msg(fabs(p.weights[i].all + by_all) < 1e-7,
                      "stage %u, loss %u, sample %d: weight of all %.9g, slope %.9g", stage, loss,
                      i, p.weights[i].all, -by_all);
    }
}

START_TEST(weights_are_derivatives_of_every_row) {
    check_derivatives(PL_STAGE_DPO, (uint32_t)_i);
}
END_TEST

START_TEST(weights_are_derivatives_of_the_other_stages) {
    check_derivatives(PL_STAGE_ORPO, 0);
    check_derivatives(PL_STAGE_SIMPO, 0);
    check_derivatives(PL_STAGE_KTO, 0);
}
END_TEST

/* L2, whatever the micro-batch of the device is. The estimate is above 0 in one unit, and clamped
 * in another. */
START_TEST(the_estimate_of_kto_is_of_a_unit_and_not_negative) {
    struct problem p;
    set_up(&p, PL_STAGE_KTO, 0);
    p.scores[1].reference = p.scores[1].answer - 3;
    p.scores[3].reference = p.scores[3].answer - 1;
    p.scores[7].reference = p.scores[7].answer + 5;
    (void)loss_of(&p);
    ck_assert_double_eq_tol(p.measures.of[PL_MEASURE_KL], (2 + 0) / 2.0, 1e-12);
    check_derivatives(PL_STAGE_KTO, 0);
}
END_TEST

/* Policy and reference agree in the first step of a run with a new adapter. */
START_TEST(losses_without_a_difference_have_their_known_values) {
    static const struct {
        uint32_t stage, loss;
        double smoothing, value;
    } rows[] = {{PL_STAGE_DPO, PL_DPO_LOSS_SIGMOID, 0, 0.69314718055994531},
                {PL_STAGE_DPO, PL_DPO_LOSS_SIGMOID_NORM, 0, 0.69314718055994531},
                {PL_STAGE_DPO, PL_DPO_LOSS_ROBUST, 0.1, 0.69314718055994531},
                {PL_STAGE_DPO, PL_DPO_LOSS_CDPO, 0.1, 0.69314718055994531},
                {PL_STAGE_DPO, PL_DPO_LOSS_HINGE, 0, 1},
                {PL_STAGE_DPO, PL_DPO_LOSS_IPO, 0, 1 / (4 * 0.3 * 0.3)},
                {PL_STAGE_KTO, 0, 0, 0.5}};
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        struct problem p;
        set_up(&p, rows[r].stage, rows[r].loss);
        p.job.sft_weight = 0;
        p.job.label_smoothing = rows[r].smoothing;
        p.job.desirable_weight = p.job.undesirable_weight = 1;
        for (int i = 0; i < SAMPLES; i++)
            p.scores[i].reference = p.scores[i].answer;
        ck_assert_double_eq_tol(loss_of(&p), rows[r].value, 1e-12);
        if (rows[r].stage == PL_STAGE_DPO)
            ck_assert_double_eq(p.measures.of[PL_MEASURE_ACCURACY], 0); /* strictly above */
    }
}
END_TEST

START_TEST(scores_far_out_stay_finite) {
    for (uint32_t loss = 0; loss < PL_DPO_LOSS_COUNT; loss++) {
        struct problem p;
        set_up(&p, PL_STAGE_DPO, loss);
        p.scores[0].answer = -1e5;
        p.scores[2].reference = -1e5;
        ck_assert(isfinite(loss_of(&p)));
        for (int i = 0; i < SAMPLES; i++)
            ck_assert(isfinite(p.weights[i].answer));
    }
}
END_TEST

/* A step of rows of which none has anything to score. */
START_TEST(a_step_without_samples_has_no_loss) {
    struct problem p;
    set_up(&p, PL_STAGE_DPO, PL_DPO_LOSS_SIGMOID);
    for (int i = 0; i < SAMPLES; i++)
        p.samples[i].n = 0;
    ck_assert(isnan(loss_of(&p)));
    ck_assert(isnan(p.measures.of[PL_MEASURE_MARGIN]));
}
END_TEST

/* L1: micro-batches that weigh their own samples, as the first pass that is kept does. */
START_TEST(a_part_of_a_step_has_the_bits_of_the_whole) {
    static const uint32_t stages[] = {PL_STAGE_DPO, PL_STAGE_ORPO, PL_STAGE_SIMPO, PL_STAGE_KTO};
    struct problem whole, parts;
    set_up(&whole, stages[_i], 0);
    set_up(&parts, stages[_i], 0);
    (void)loss_of(&whole);
    pl_losses_begin(&parts.job, &parts.batch);
    for (uint64_t at = 0; at < SAMPLES; at += 2)
        pl_losses_of_samples(&parts.job, UNIT, &parts.batch, at, at + 2, parts.scores);
    ck_assert_mem_eq(parts.weights, whole.weights, sizeof whole.weights);
}
END_TEST

int main(void) {
    Suite *s = suite_create("train.losses");
    TCase *tc = tcase_create("losses");
    suite_add_tcase(s, tc);
    tcase_add_loop_test(tc, weights_are_derivatives_of_every_row, 0, PL_DPO_LOSS_COUNT);
    tcase_add_test(tc, weights_are_derivatives_of_the_other_stages);
    tcase_add_test(tc, the_estimate_of_kto_is_of_a_unit_and_not_negative);
    tcase_add_test(tc, losses_without_a_difference_have_their_known_values);
    tcase_add_test(tc, scores_far_out_stay_finite);
    tcase_add_test(tc, a_step_without_samples_has_no_loss);
    tcase_add_loop_test(tc, a_part_of_a_step_has_the_bits_of_the_whole, 0, 4);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_ENV);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed != 0;
}
