/* check_svg.c - the pictures: well formed, laid out, and true to their numbers.
 *
 * Layout is checked by the boxes of the texts: no two touch, none leaves the picture. Letters are
 * taken as 0.62 of the font size wide, which is DejaVu Sans on average. */
#include "runtime/report/report.h"
#include "estimator/picture/svg.h"
#include "tests/oom/toy_plan.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static struct pl_text svg;
static struct toy_plan toy;

static void setup(void) {
    toy_plan_init(&toy);
}

static void teardown(void) {
    pl_text_finish(&svg);
}

/* --- reading a picture ----------------------------------------------------------------------- */

/* The number of an attribute of the element that starts at s; -1 when it has none. */
static double attribute(const char *s, const char *name) {
    char mark[32];
    snprintf(mark, sizeof mark, " %s=\"", name);
    const char *end = strchr(s, '>'), *at = strstr(s, mark);
    return at && at < end ? strtod(at + strlen(mark), NULL) : -1;
}

static int count(const char *what) {
    int n = 0;
    for (const char *s = pl_text_str(&svg); (s = strstr(s, what)); s += strlen(what))
        n++;
    return n;
}

/* Every element is closed in turn; nothing in it is not a number. */
static void check_well_formed(void) {
    int depth = 0;
    const char *s = pl_text_str(&svg);
    ck_assert(strncmp(s, "<svg ", 5) == 0 && !svg.failed);
    for (const char *at = s; (at = strchr(at, '<')); at++) {
        const char *end = strchr(at, '>');
        ck_assert_ptr_nonnull(end);
        if (at[1] == '/')
            depth--;
        else if (end[-1] != '/')
            depth++;
        ck_assert_int_ge(depth, 0);
    }
    ck_assert_int_eq(depth, 0);
    ck_assert_msg(!strstr(s, "nan") && !strstr(s, "inf\"") && !strstr(s, "inf "), "%s", s);
}

struct box {
    double left, right, top, bottom;
    const char *at;
};

/* Characters as shown: an entity is one. */
static int letters(const char *s) {
    int n = 0;
    for (; *s && *s != '<'; s++, n++) {
        if (*s == '&') s += strcspn(s, ";");
    }
    return n;
}

static int find_texts(struct box *boxes, int cap) {
    int n = 0;
    for (const char *s = pl_text_str(&svg); (s = strstr(s, "<text x=")) && n < cap; s++) {
        const char *content = strchr(s, '>') + 1;
        double size = attribute(s, "font-size"), x = attribute(s, "x"), y = attribute(s, "y");
        double width = 0.62 * size * letters(content);
        const char *anchor = strstr(s, "text-anchor=\"") + 13;
        double left = *anchor == 's' ? x : *anchor == 'm' ? x - width / 2 : x - width;
        boxes[n++] = (struct box){left, left + width, y - 0.8 * size, y + 0.2 * size, content};
    }
    return n;
}

static void check_layout(void) {
    struct box b[128];
    int n = find_texts(b, 128);
    double width = attribute(svg.data, "width"), height = attribute(svg.data, "height");
    ck_assert_int_gt(n, 4);
    for (int i = 0; i < n; i++) {
        ck_assert_msg(b[i].left >= 0 && b[i].right <= width && b[i].top >= 0 &&
                          b[i].bottom <= height,
                      "outside: %.30s", b[i].at);
        for (int k = 0; k < i; k++) {
            bool apart = b[i].left >= b[k].right || b[k].left >= b[i].right ||
                         b[i].top >= b[k].bottom || b[k].top >= b[i].bottom;
            ck_assert_msg(apart, "overlap: %.30s and %.30s", b[i].at, b[k].at);
        }
    }
}

static bool has_text(const char *text) {
    char mark[256];
    snprintf(mark, sizeof mark, ">%s</text>", text);
    return strstr(pl_text_str(&svg), mark) != NULL;
}

/* --- axes ------------------------------------------------------------------------------------ */

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

/* --- loss ------------------------------------------------------------------------------------ */

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

START_TEST(a_loss_picture_is_well_laid_out_for_any_curve) {
    fill_curve(ranges[_i].scale, ranges[_i].offset);
    double marks[] = {1, 3, 500};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        pl_text_finish(&svg);
        pl_svg_loss_marked(steps, losses, lengths[i], marks, 3, "a title", &svg);
        check_well_formed();
        check_layout();
        ck_assert_uint_lt(svg.len, 64 * 1024);
    }
}
END_TEST

START_TEST(steps_of_any_size_are_laid_out) {
    static const double last[] = {2, 7, 99, 1234, 1e5, 1e6, 123456789, 4e12};
    for (size_t i = 0; i < sizeof last / sizeof *last; i++) {
        double x[] = {1, last[i] / 2, last[i]}, y[] = {3, 2, 1};
        pl_text_finish(&svg);
        pl_svg_loss(x, y, 3, "a title", &svg);
        check_well_formed();
        check_layout();
    }
}
END_TEST

START_TEST(what_is_not_finite_is_left_out_and_counted) {
    double x[] = {1, 2, 3, 4, 5}, y[] = {2, NAN, 1, INFINITY, -INFINITY};
    pl_svg_loss(x, y, 5, "t", &svg);
    check_well_formed();
    check_layout();
    ck_assert_int_eq(count("<circle"), 2);
    ck_assert(has_text("3 steps without a finite loss are left out"));
    pl_text_finish(&svg);
    pl_svg_loss(x + 1, y + 1, 1, "t", &svg);
    check_well_formed();
    ck_assert(has_text("1 steps without a finite loss are left out"));
}
END_TEST

START_TEST(a_gap_in_the_curve_is_not_bridged) {
    double x[] = {1, 2, 3, 4, 5}, y[] = {2, 3, NAN, 1, 2};
    pl_svg_loss(x, y, 5, "t", &svg);
    const char *path = strstr(svg.data, " d=\"") + 4;
    size_t len = strcspn(path, "\""), moves = 0;
    for (size_t i = 0; i < len; i++)
        moves += path[i] == 'M';
    ck_assert_uint_eq(moves, 2);
}
END_TEST

START_TEST(a_picture_without_a_step_says_so) {
    pl_svg_loss(NULL, NULL, 0, "t", &svg);
    check_well_formed();
    ck_assert(has_text("no step was logged yet"));
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

START_TEST(one_spike_among_ten_thousand_steps_is_seen) {
    fill_curve(0, 1);
    losses[4321] = 11;
    pl_svg_loss(steps, losses, MANY, "t", &svg);
    ck_assert_double_lt(highest_point("#9db8d9"), 120); /* the plot begins at 66 */
    ck_assert_double_gt(highest_point("#1d4f91"), 300); /* its mean hardly moves */
}
END_TEST

START_TEST(the_smoothed_line_does_not_lag) {
    for (int i = 0; i < MANY; i++)
        steps[i] = i + 1, losses[i] = MANY - i;
    pl_svg_loss(steps, losses, MANY, "t", &svg);
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
    pl_svg_loss_marked(x, y, 3, marks, 4, "t", &svg);
    check_well_formed();
    ck_assert_int_eq(count("l-5 -8 h10 z"), 2); /* two of them are steps of the picture */
    ck_assert(has_text("out of memory, batch halved"));
    pl_text_finish(&svg);
    pl_svg_loss(x, y, 3, "t", &svg);
    ck_assert(!has_text("out of memory, batch halved"));
}
END_TEST

START_TEST(a_title_is_escaped) {
    pl_svg_loss(NULL, NULL, 0, "a<b>&\"c\"\n", &svg);
    check_well_formed();
    ck_assert(has_text("a&lt;b&gt;&amp;\"c\" "));
    ck_assert_ptr_nonnull(strstr(svg.data, "<title>a&lt;b&gt;&amp;"));
}
END_TEST

/* --- memory ---------------------------------------------------------------------------------- */

START_TEST(a_memory_picture_is_well_laid_out_for_any_budget) {
    static const uint64_t budgets[] = {0,         PL_AUTO_BYTES, 1,         192 * MIB,
                                       200 * MIB, 1024 * MIB,    1ull << 50};
    for (size_t i = 0; i < sizeof budgets / sizeof *budgets; i++) {
        pl_text_finish(&svg);
        pl_svg_vram(&toy.plan, budgets[i], 192 * MIB, 201 * MIB, "a title", &svg);
        check_well_formed();
        check_layout();
    }
}
END_TEST

START_TEST(a_plan_with_bytes_in_every_category_is_laid_out) {
    struct pl_tensor tensors[PL_CATEGORY_COUNT];
    struct pl_place_row places[PL_CATEGORY_COUNT];
    for (int c = 0; c < PL_CATEGORY_COUNT; c++) {
        tensors[c] = toy.tensors[TOY_GU];
        tensors[c].category = (enum pl_category)c;
        places[c] = toy.places[TOY_GU];
        toy.plan.job_by_category[c] = 10 * MIB;
    }
    toy.program.tensors = tensors;
    toy.program.n_tensors = PL_CATEGORY_COUNT;
    toy.plan.places = places;
    toy.plan.arena_bytes = 210 * MIB;
    pl_svg_vram(&toy.plan, 220 * MIB, 210 * MIB, 210 * MIB, "a title", &svg);
    check_well_formed();
    check_layout();
    ck_assert(has_text("adapter") && has_text("gradients") && has_text("workspace"));
}
END_TEST

START_TEST(plans_of_any_size_are_laid_out) {
    for (int shift = -27; shift <= 30; shift += 3) {
        toy_plan_init(&toy);
        uint64_t *figures[] = {&toy.plan.arena_bytes,
                               &toy.plan.job_by_category[PL_CATEGORY_WEIGHTS],
                               &toy.plan.job_by_category[PL_CATEGORY_OPTIMIZER]};
        for (int i = 0; i < 3; i++)
            *figures[i] = shift < 0 ? *figures[i] >> -shift : *figures[i] << shift;
        for (int i = 0; i < TOY_TENSORS; i++)
            toy.tensors[i].bytes =
                shift < 0 ? toy.tensors[i].bytes >> -shift : toy.tensors[i].bytes << shift;
        pl_text_finish(&svg);
        pl_svg_vram(&toy.plan, 0, 0, 0, "a title", &svg);
        check_well_formed();
        check_layout();
    }
}
END_TEST

START_TEST(the_peak_is_marked_with_its_three_largest_tensors) {
    pl_svg_vram(&toy.plan, 0, 0, 0, "t", &svg);
    ck_assert(has_text("peak at op 2, linear of layer 0"));
    const char *gu = strstr(svg.data, ">layers.0.gu<"),
               *logits = strstr(svg.data, ">logits</text>");
    ck_assert(gu && has_text("16.00 MiB"));
    ck_assert(strstr(gu, ">logits<") && strstr(gu, ">layers.0.x<") && logits);
    ck_assert(!has_text("layers.0.m"));
}
END_TEST

START_TEST(a_long_name_keeps_its_end) {
    toy.tensors[TOY_GU].name = "a_tensor_with_a_name_of_many_letters";
    toy.plan.arena_bytes = 1023 * MIB;
    pl_svg_vram(&toy.plan, 1ull << 50, 0, 0, "t", &svg);
    check_layout();
    ck_assert(has_text("..a_name_of_many_letters"));
}
END_TEST

START_TEST(bands_show_their_bytes_at_the_peak) {
    pl_svg_vram(&toy.plan, 0, 0, 0, "t", &svg);
    static const char *const figures[] = {"100.0 MiB", "50.00 MiB", "28.00 MiB",
                                          "12.00 MiB", "192.0 MiB", "2.00 MiB"};
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++)
        ck_assert_msg(has_text(figures[i]), "%s", figures[i]);
    ck_assert(!has_text("budget") && !has_text("allocated") && !has_text("measured"));
}
END_TEST

/* The y pixel of a value in a picture whose axis ends 4 % above `top`. */
static double pixel(double bytes, double top) {
    return 456 - bytes / (1.04 * top) * (456 - 66);
}

START_TEST(the_areas_reach_the_planned_bytes_and_no_further) {
    pl_svg_vram(&toy.plan, 0, 0, 0, "t", &svg);
    double highest = 1e9;
    for (const char *s = strstr(svg.data, "<path fill="); s; s = strstr(s + 1, "<path fill=")) {
        const char *d = strstr(s, " d=\"") + 4;
        for (const char *end = strchr(d, '"'); d < end; d++) {
            if (*d == 'V') highest = fmin(highest, strtod(d + 1, NULL));
        }
    }
    double top = 192.0 * MIB, peak = pixel(190.0 * MIB, top); /* 150 resident + 40 at op 4 */
    ck_assert_double_eq_tol(highest, peak, 0.06);
    const char *dot = strstr(svg.data, "<circle");
    ck_assert_double_eq_tol(attribute(dot, "cy"), peak, 0.06);
    ck_assert_double_eq_tol(attribute(dot, "cx"), 84 + 2.5 / 6 * (716 - 84), 0.06);
    char line[64];
    snprintf(line, sizeof line, "y1=\"%.1f\" x2=\"716.0\"", pixel(top, top));
    ck_assert_msg(strstr(svg.data, line), "no line at %s", line);
}
END_TEST

START_TEST(a_budget_near_the_plan_is_a_line_and_a_far_one_a_word) {
    pl_svg_vram(&toy.plan, 256 * MIB, 0, 0, "t", &svg);
    ck_assert(has_text("budget") && has_text("256.0 MiB"));
    ck_assert_int_eq(count("stroke=\"" PL_SVG_ALARM "\""), 2); /* line and legend */
    pl_text_finish(&svg);
    pl_svg_vram(&toy.plan, 4096 * MIB, 0, 0, "t", &svg);
    ck_assert(has_text("budget, above the picture") && has_text("4.00 GiB"));
    ck_assert_int_eq(count("stroke=\"" PL_SVG_ALARM "\""), 0);
}
END_TEST

START_TEST(forward_and_backward_are_named) {
    pl_svg_vram(&toy.plan, 0, 0, 0, "t", &svg);
    ck_assert(has_text("forward") && has_text("backward"));
    for (int i = 0; i < TOY_OPS; i++)
        toy.ops[i].backward = false;
    pl_text_finish(&svg);
    pl_svg_vram(&toy.plan, 0, 0, 0, "t", &svg);
    ck_assert(!has_text("forward") && !has_text("backward"));
}
END_TEST

START_TEST(a_phase_without_an_op_still_gives_a_picture) {
    toy.program.phases[PL_PHASE_MICRO].n_ops = 0;
    pl_svg_vram(&toy.plan, 0, 0, 0, "t", &svg);
    check_well_formed();
    check_layout();
}
END_TEST

/* More ops than pixels: one op of ten thousand holds the peak, and it must be seen. */
START_TEST(the_peak_of_a_long_phase_is_not_lost_between_pixels) {
    enum { LONG = 10000, PEAK = 7777 };
    struct pl_op *ops = calloc(LONG, sizeof *ops);
    ck_assert_ptr_nonnull(ops);
    toy.program.ops = ops;
    toy.program.n_ops = LONG;
    toy.program.phases[PL_PHASE_MICRO] = (struct pl_phase_range){0, LONG};
    toy.plan.phases[PL_PHASE_MICRO].peak_op = PEAK;
    for (int i = TOY_IDS; i < TOY_TENSORS; i++)
        toy.places[i] = (struct pl_place_row){.first_op = PEAK, .last_op = PEAK};
    toy.plan.arena_bytes = 191 * MIB;
    pl_svg_vram(&toy.plan, 0, 0, 0, "t", &svg);
    free(ops);
    check_well_formed();
    ck_assert_uint_lt(svg.len, 64 * 1024);
    double top = 191.0 * MIB;
    char edge[32];
    snprintf(edge, sizeof edge, "V%.1fH", pixel(top, top));
    ck_assert_msg(strstr(svg.data, edge), "no edge at %s", edge);
    ck_assert(has_text("peak at op 7777, embed of layer 0"));
}
END_TEST

int main(void) {
    Suite *s = suite_create("report.svg");
    TCase *tc = tcase_create("loss");
    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_test(tc, ticks_stand_at_round_numbers);
    tcase_add_loop_test(tc, a_loss_picture_is_well_laid_out_for_any_curve, 0,
                        (int)(sizeof ranges / sizeof *ranges));
    tcase_add_test(tc, steps_of_any_size_are_laid_out);
    tcase_add_test(tc, what_is_not_finite_is_left_out_and_counted);
    tcase_add_test(tc, a_gap_in_the_curve_is_not_bridged);
    tcase_add_test(tc, a_picture_without_a_step_says_so);
    tcase_add_test(tc, one_spike_among_ten_thousand_steps_is_seen);
    tcase_add_test(tc, the_smoothed_line_does_not_lag);
    tcase_add_test(tc, recoveries_are_marked_where_they_fell);
    tcase_add_test(tc, a_title_is_escaped);
    suite_add_tcase(s, tc);
    tc = tcase_create("memory");
    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_test(tc, a_memory_picture_is_well_laid_out_for_any_budget);
    tcase_add_test(tc, a_plan_with_bytes_in_every_category_is_laid_out);
    tcase_add_test(tc, plans_of_any_size_are_laid_out);
    tcase_add_test(tc, the_peak_is_marked_with_its_three_largest_tensors);
    tcase_add_test(tc, a_long_name_keeps_its_end);
    tcase_add_test(tc, bands_show_their_bytes_at_the_peak);
    tcase_add_test(tc, the_areas_reach_the_planned_bytes_and_no_further);
    tcase_add_test(tc, a_budget_near_the_plan_is_a_line_and_a_far_one_a_word);
    tcase_add_test(tc, forward_and_backward_are_named);
    tcase_add_test(tc, a_phase_without_an_op_still_gives_a_picture);
    tcase_add_test(tc, the_peak_of_a_long_phase_is_not_lost_between_pixels);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
