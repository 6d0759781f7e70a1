/* check_svg.c - the picture of the loss: well formed, laid out, and true to its numbers. */
#include "runtime/report/report.h"
#include "tests/picture/drawing.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct pl_text svg;

static void teardown(void) {
    pl_text_finish(&svg);
}

static void draw(const double *steps, const double *losses, uint64_t n, const char *title) {
    const struct pl_loss_curves c = {.steps = steps, .losses = losses, .n = n};
    pl_svg_loss(&c, title, &svg);
}

#define MANY 10000
static double steps[MANY], losses[MANY];

static void fill_curve(double scale, double offset) {
    for (int i = 0; i < MANY; i++) {
        steps[i] = i + 1;
        losses[i] = offset + scale * (exp(-i / 900.0) + 0.05 * sin(i * 1.7));
    }
}

static const uint64_t lengths[] = {0, 1, 2, 7, 8, 60, 61, 1000, 1424, 1425, MANY};
static const struct {
    double scale, offset;
} ranges[] = {{1, 1},    {0, 2.5},   {0, 0},      {1e-6, 1e-4}, {1e4, 1e5},
              {1e20, 0}, {1e-20, 0}, {1e-9, 1e9}, {30, -10},    {0.003, 0.69}};

/* L4 of report.h: whatever the curve is, nothing leaves the picture or covers a text.
 * N2 of svg_panel.h: it stays small. */
START_TEST(a_loss_picture_is_well_laid_out_for_any_curve) {
    fill_curve(ranges[_i].scale, ranges[_i].offset);
    const double marks[] = {1, 3, 500};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        pl_text_finish(&svg);
        const struct pl_loss_curves c = {.steps = steps,
                                         .losses = losses,
                                         .n = lengths[i],
                                         .eval_steps = steps + 1,
                                         .eval_losses = losses,
                                         .n_evals = lengths[i] / 2,
                                         .marks = marks,
                                         .n_marks = 3};
        pl_svg_loss(&c, "a title", &svg);
        drawn_check_well_formed(&svg);
        drawn_check_layout(&svg);
        ck_assert_uint_lt(svg.len, 64 * 1024);
    }
}
END_TEST

START_TEST(steps_of_any_size_are_laid_out) {
    static const double last[] = {2, 7, 99, 1234, 1e5, 1e6, 123456789, 4e12};
    for (size_t i = 0; i < sizeof last / sizeof *last; i++) {
        double x[] = {1, last[i] / 2, last[i]}, y[] = {3, 2, 1};
        pl_text_finish(&svg);
        draw(x, y, 3, "a title");
        drawn_check_well_formed(&svg);
        drawn_check_layout(&svg);
    }
}
END_TEST

START_TEST(what_is_not_finite_is_left_out_and_counted) {
    double x[] = {1, 2, 3, 4, 5}, y[] = {2, NAN, 1, INFINITY, -INFINITY};
    draw(x, y, 5, "t");
    drawn_check_well_formed(&svg);
    drawn_check_layout(&svg);
    ck_assert_int_eq(drawn_count(&svg, "<circle"), 2);
    ck_assert(drawn_has_text(&svg, "3 steps without a finite loss are left out"));
    pl_text_finish(&svg);
    draw(x + 1, y + 1, 1, "t");
    drawn_check_well_formed(&svg);
    ck_assert(drawn_has_text(&svg, "1 steps without a finite loss are left out"));
}
END_TEST

/* N1 of svg_panel.h: a loss beyond every picture is a gap as well, and the axes are those of the
 * others. */
START_TEST(a_gap_in_the_curve_is_not_bridged) {
    double x[] = {1, 2, 3, 4, 5}, y[] = {2, 3, _i ? 1e300 : NAN, 1, 2};
    draw(x, y, 5, "t");
    drawn_check_well_formed(&svg);
    drawn_check_layout(&svg);
    ck_assert_int_eq(drawn_count(&svg, "<circle"), 4);
    const char *path = strstr(svg.data, " d=\"") + 4;
    size_t len = strcspn(path, "\""), moves = 0;
    for (size_t i = 0; i < len; i++)
        moves += path[i] == 'M';
    ck_assert_uint_eq(moves, 2);
}
END_TEST

START_TEST(a_picture_without_a_step_says_so) {
    draw(NULL, NULL, 0, "t");
    drawn_check_well_formed(&svg);
    ck_assert(drawn_has_text(&svg, "no step was logged yet"));
}
END_TEST

/* The smallest y pixel (= largest value) in the path data of a colour. */
static double highest_point(const char *colour) {
    char mark[64];
    snprintf(mark, sizeof mark, "stroke=\"%s\"", colour);
    const char *s = strstr(strstr(svg.data, "<path"), mark);
    double best = 1e9;
    s = strstr(s, " d=\"") + 4;
    for (const char *end = strchr(s, '"'); s < end; s++) {
        if (*s == ' ' || *s == 'V') best = fmin(best, strtod(s + 1, NULL));
    }
    return best;
}

/* N2 of svg_panel.h: the column of the spike has its range. */
START_TEST(one_spike_among_ten_thousand_steps_is_seen) {
    fill_curve(0, 1);
    losses[4321] = 11;
    draw(steps, losses, MANY, "t");
    ck_assert_double_lt(highest_point("#9db8d9"), 120); /* the plot begins at 66 */
    ck_assert_double_gt(highest_point("#1d4f91"), 300); /* its mean hardly moves */
}
END_TEST

START_TEST(the_smoothed_line_does_not_lag) {
    for (int i = 0; i < MANY; i++)
        steps[i] = i + 1, losses[i] = MANY - i;
    draw(steps, losses, MANY, "t");
    /* on a straight line the mean of a centred window is the line: middle of the picture */
    const char *s = strstr(svg.data, "stroke=\"#1d4f91\" stroke-width=\"2.2\" stroke-linejoin");
    ck_assert_ptr_nonnull(s);
    for (s = strstr(s, " d=\"M") + 5; *s && *s != '"'; s += strcspn(s + 1, "L\"") + 1) {
        char *end;
        double x = strtod(s + (*s == 'L'), &end), y = strtod(end, NULL);
        double along = (x - 88) / (800 - 88); /* from 0 to 1 */
        if (along < 0.95) ck_assert_double_eq_tol(y, 66 + along * 290, 1);
    }
}
END_TEST

START_TEST(recoveries_are_marked_where_they_fell) {
    double x[] = {1, 2, 3}, y[] = {3, 2, 1}, marks[] = {2, 3, 99, NAN};
    const struct pl_loss_curves c = {.steps = x, .losses = y, .n = 3, .marks = marks, .n_marks = 4};
    pl_svg_loss(&c, "t", &svg);
    drawn_check_well_formed(&svg);
    ck_assert_int_eq(drawn_count(&svg, "l-5 -8 h10 z"),
                     2); /* two of them are steps of the picture */
    ck_assert(drawn_has_text(&svg, "out of memory, batch halved"));
    pl_text_finish(&svg);
    draw(x, y, 3, "t");
    ck_assert(!drawn_has_text(&svg, "out of memory, batch halved"));
}
END_TEST

/* Evaluations reach beyond the logged steps, and beyond their losses. */
START_TEST(evaluations_are_drawn_at_their_steps) {
    double x[] = {10, 20}, y[] = {3, 2}, at[] = {10, 20, 30}, eval[] = {4, NAN, 1};
    const struct pl_loss_curves c = {
        .steps = x, .losses = y, .n = 2, .eval_steps = at, .eval_losses = eval, .n_evals = 3};
    pl_svg_loss(&c, "t", &svg);
    drawn_check_well_formed(&svg);
    drawn_check_layout(&svg);
    ck_assert(drawn_has_text(&svg, "evaluation"));
    ck_assert_ptr_nonnull(strstr(svg.data, "<circle cx=\"88.0\" cy=\"66.0\" r=\"3.0\""));
    ck_assert_ptr_nonnull(strstr(svg.data, "<circle cx=\"800.0\" cy=\"356.0\" r=\"3.0\""));
    ck_assert_int_eq(drawn_count(&svg, "fill=\"#0d8a72\""), 3); /* two dots, and the last value */
    pl_text_finish(&svg);
    draw(x, y, 2, "t");
    ck_assert(!drawn_has_text(&svg, "evaluation"));
}
END_TEST

START_TEST(evaluations_alone_have_a_picture) {
    double at[] = {10, 20}, eval[] = {4, 1};
    const struct pl_loss_curves c = {.eval_steps = at, .eval_losses = eval, .n_evals = 2};
    pl_svg_loss(&c, "t", &svg);
    drawn_check_layout(&svg);
    ck_assert(!drawn_has_text(&svg, "no step was logged yet"));
}
END_TEST

/* The rewards of a run of so many steps, its accuracy alone without evaluations. */
static struct pl_loss_curves preferences(uint64_t n) {
    static double negative[MANY];
    for (int i = 0; i < MANY; i++)
        negative[i] = -losses[i];
    return (struct pl_loss_curves){.steps = steps,
                                   .losses = losses,
                                   .n = n,
                                   .eval_steps = steps,
                                   .eval_losses = losses,
                                   .n_evals = n / 2,
                                   .rewards = {[PL_REWARD_CHOSEN] = {losses, NULL},
                                               [PL_REWARD_REJECTED] = {negative, NULL},
                                               [PL_REWARD_MARGIN] = {losses, losses},
                                               [PL_REWARD_ACCURACY] = {losses, NULL}}};
}

START_TEST(rewards_are_well_laid_out_for_any_curve) {
    fill_curve(ranges[_i].scale, ranges[_i].offset);
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        pl_text_finish(&svg);
        const struct pl_loss_curves c = preferences(lengths[i]);
        pl_svg_loss(&c, "a title", &svg);
        drawn_check_well_formed(&svg);
        drawn_check_layout(&svg);
        ck_assert_uint_lt(svg.len, 256 * 1024);
        ck_assert(drawn_has_text(&svg, "margin, evaluation") == (lengths[i] > 1));
        ck_assert(drawn_has_text(&svg, "chosen") == (lengths[i] > 0));
    }
}
END_TEST

/* One line a figure, with its last value; a panel without a figure is left out. */
START_TEST(rewards_are_those_of_the_run) {
    static const double x[] = {1, 2, 3}, chosen[] = {0, 0.5, 1.25}, rejected[] = {0, -1, -2};
    struct pl_loss_curves c = {.steps = x, .losses = x, .n = 3};
    pl_svg_loss(&c, "t", &svg);
    ck_assert(!drawn_has_text(&svg, "reward"));
    const int height = (int)drawn_attribute(svg.data, "height");
    pl_text_finish(&svg);
    c.rewards[PL_REWARD_CHOSEN].of_steps = chosen;
    c.rewards[PL_REWARD_REJECTED].of_steps = rejected;
    pl_svg_loss(&c, "t", &svg);
    drawn_check_layout(&svg);
    ck_assert(drawn_has_text(&svg, "reward") && !drawn_has_text(&svg, "reward accuracy"));
    ck_assert(drawn_has_text(&svg, "1.25") && drawn_has_text(&svg, "-2.00"));
    ck_assert(!drawn_has_text(&svg, "margin"));
    ck_assert_int_gt((int)drawn_attribute(svg.data, "height"), height);
}
END_TEST

START_TEST(a_title_is_escaped) {
    draw(NULL, NULL, 0, "a<b>&\"c\"\n");
    drawn_check_well_formed(&svg);
    ck_assert(drawn_has_text(&svg, "a&lt;b&gt;&amp;\"c\" "));
    ck_assert_ptr_nonnull(strstr(svg.data, "<title>a&lt;b&gt;&amp;"));
}
END_TEST

int main(void) {
    Suite *s = suite_create("report.svg");
    TCase *tc = tcase_create("loss");
    tcase_add_checked_fixture(tc, NULL, teardown);
    tcase_add_loop_test(tc, a_loss_picture_is_well_laid_out_for_any_curve, 0,
                        (int)(sizeof ranges / sizeof *ranges));
    tcase_add_test(tc, steps_of_any_size_are_laid_out);
    tcase_add_test(tc, what_is_not_finite_is_left_out_and_counted);
    tcase_add_loop_test(tc, a_gap_in_the_curve_is_not_bridged, 0, 2);
    tcase_add_test(tc, a_picture_without_a_step_says_so);
    tcase_add_test(tc, one_spike_among_ten_thousand_steps_is_seen);
    tcase_add_test(tc, the_smoothed_line_does_not_lag);
    tcase_add_test(tc, recoveries_are_marked_where_they_fell);
    tcase_add_test(tc, evaluations_are_drawn_at_their_steps);
    tcase_add_test(tc, evaluations_alone_have_a_picture);
    tcase_add_loop_test(tc, rewards_are_well_laid_out_for_any_curve, 0,
                        (int)(sizeof ranges / sizeof *ranges));
    tcase_add_test(tc, rewards_are_those_of_the_run);
    tcase_add_test(tc, a_title_is_escaped);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
