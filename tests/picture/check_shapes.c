/* check_shapes.c - what the pictures are made of: scales, ticks, words that XML would misread. */
#include "estimator/picture/svg.h"
#include "tests/picture/drawing.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

START_TEST(ticks_stand_at_round_numbers) {
    static const struct {
        double span;
        int ticks;
        double step;
    } steps[] = {{10, 5, 2},       {10, 10, 1},   {11, 10, 2}, {99, 8, 20},     {1, 6, 0.2},
                 {0.03, 6, 0.005}, {7e9, 8, 1e9}, {5.1, 5, 2}, {1e-7, 5, 2e-8}, {45, 9, 5}};
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        double step = pl_svg_nice_step(steps[i].span, steps[i].ticks);
        ck_assert_msg(fabs(step / steps[i].step - 1) < 1e-12, "%g by %d: %g", steps[i].span,
                      steps[i].ticks, step);
    }
    const struct pl_svg_axis a = {.lo = 13, .hi = 47, .from = 100, .to = 0, .step = 5};
    ck_assert_double_eq(pl_svg_first_tick(&a), 15);
    ck_assert_double_eq(pl_svg_at(&a, 13), 100);
    ck_assert_double_eq(pl_svg_at(&a, 47), 0);
    ck_assert_double_eq(pl_svg_at(&a, 30), 50);
}
END_TEST

/* The step at any span and number of ticks is 1, 2 or 5 times a power of ten, enough, and no finer
 * than needed. */
START_TEST(a_step_is_the_smallest_nice_one_that_is_enough) {
    static const double mantissas[] = {1, 2, 5}, next[] = {0.5, 0.5, 0.4}; /* the nice one below */
    for (int ticks = 1; ticks <= 12; ticks++) {
        for (double span = 3e-9; span < 1e15; span *= 1.37) {
            const double step = pl_svg_nice_step(span, ticks);
            double mantissa = step / pow(10, floor(log10(step) + 1e-9));
            int nice = -1;
            for (int i = 0; i < 3; i++)
                if (fabs(mantissa / mantissas[i] - 1) < 1e-9) nice = i;
            ck_assert_msg(nice >= 0, "%g in %d: %g", span, ticks, step);
            ck_assert_double_le(span / step, ticks * (1 + 1e-12));
            ck_assert_msg(span / (step * next[nice]) > ticks, "%g in %d: %g", span, ticks, step);
        }
    }
}
END_TEST

START_TEST(a_scale_is_linear_and_may_run_either_way) {
    const struct pl_svg_axis up = {.lo = -3, .hi = 9, .from = 100, .to = 20, .step = 2};
    for (double v = -3; v <= 9; v += 0.75) {
        ck_assert_double_eq_tol(pl_svg_at(&up, v), 100 - (v + 3) / 12 * 80, 1e-9);
        ck_assert_double_lt(pl_svg_at(&up, v + 0.1), pl_svg_at(&up, v));
    }
    ck_assert_double_eq(pl_svg_first_tick(&up), -2);
    const struct pl_svg_axis sums = {.lo = 0.1 + 0.2, .hi = 1, .from = 0, .to = 1, .step = 0.1};
    ck_assert_double_eq_tol(pl_svg_first_tick(&sums), 0.3, 1e-9); /* a hair above three tenths */
}
END_TEST

START_TEST(words_cannot_break_the_picture) {
    static const char hostile[] = "</text><script>&\"'\x01\x1f\t\n ]]> <!-- \xc3\xa9";
    static const char shown[] = "&lt;/text&gt;&lt;script&gt;&amp;\"'     ]]&gt; &lt;!-- \xc3\xa9";
    struct pl_text svg = {0};
    const struct pl_svg_stroke dashed = {PL_SVG_INK, 1, "3 3"}, solid = {PL_SVG_INK, 1, NULL};
    pl_svg_begin(&svg, 320, 200, hostile);
    pl_svg_text(&svg, 1, 2, PL_SVG_END, 12, PL_SVG_INK, "%s", hostile);
    pl_svg_text_up(&svg, 3, 4, 12, hostile);
    pl_svg_line(&svg, 0, 0, 1, 1, &dashed);
    pl_svg_line(&svg, 0, 0, 1, 1, &solid);
    pl_svg_dot(&svg, 5, 6, 7, "#ffffff");
    pl_svg_end(&svg);
    drawn_check_well_formed(&svg);
    ck_assert_int_eq(drawn_count(&svg, shown), 3);
    ck_assert_int_eq(drawn_count(&svg, "<script"), 0);
    ck_assert_int_eq(drawn_count(&svg, "stroke-dasharray"), 1);
    ck_assert_double_eq(drawn_attribute(strstr(svg.data, "<circle"), "r"), 7);
    pl_text_finish(&svg);
}
END_TEST

int main(void) {
    Suite *s = suite_create("picture.shapes");
    TCase *tc = tcase_create("shapes");
    tcase_add_test(tc, ticks_stand_at_round_numbers);
    tcase_add_test(tc, a_step_is_the_smallest_nice_one_that_is_enough);
    tcase_add_test(tc, a_scale_is_linear_and_may_run_either_way);
    tcase_add_test(tc, words_cannot_break_the_picture);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
