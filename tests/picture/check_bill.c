/* check_bill.c - the bars of the bill add up to what each phase needs. */
#include "estimator/base/units.h"
#include "estimator/picture/picture.h"
#include "tests/picture/drawing.h"
#include "tests/plan/planning.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CONTEXT (UINT64_C(300) << 20)

START_TEST(every_phase_has_a_bar_as_long_as_its_bytes) {
    struct pl_model m;
    struct pl_planned p;
    struct pl_text svg = {0};
    double longest = 0, least = 1e9;
    int bars = 0;
    pl_test_model("SmolLM2-135M", &m);
    const struct pl_job_shape s = pl_test_shape(&m, PL_MODE_FULL, PL_RECOMPUTE_FULL, 2, 512);
    pl_test_plan(&p, &s, &m);
    pl_svg_bill(p.plan, CONTEXT, 0, "a <title>", &svg);
    ck_assert(!svg.failed);
    ck_assert_ptr_nonnull(strstr(svg.data, "a &lt;title&gt;"));
    for (int phase = 0; phase < PL_PHASE_COUNT; phase++) {
        uint64_t bytes = CONTEXT + p.plan->job_bytes + p.plan->phases[phase].bytes;
        char label[PL_BYTES_TEXT + 2];
        if (!p.program->phases[phase].n_ops) continue;
        label[0] = '>';
        pl_bytes_text(bytes, label + 1);
        ck_assert_msg(strstr(svg.data, label) != NULL, "%s", label);
    }
    /* rectangles of a bar touch; their sum over the scale is the phase */
    for (int phase = 0; phase < PL_PHASE_COUNT; phase++) {
        if (!p.program->phases[phase].n_ops) continue;
        double y = 58 + 48 * bars++, width = 0, x, at, w;
        for (const char *r = svg.data; (r = strstr(r, "<rect x=")) != NULL; r++)
            if (sscanf(r, "<rect x=\"%lf\" y=\"%lf\" width=\"%lf\" height=\"30\"", &x, &at, &w) ==
                    3 &&
                at == y && w < 1000)
                width += w;
        double scale = width / (double)(CONTEXT + p.plan->job_bytes + p.plan->phases[phase].bytes);
        longest = scale > longest ? scale : longest;
        least = scale < least ? scale : least;
    }
    ck_assert_int_ge(bars, 4);
    /* widths are printed to 0.01 pixel, at most ten of them on bars of over 100 pixels */
    ck_assert_double_lt(longest / least, 1.001);
    pl_text_finish(&svg);
    pl_planned_finish(&p);
}
END_TEST

START_TEST(a_long_legend_goes_on_in_a_second_row) {
    struct pl_model m;
    struct pl_planned p;
    struct pl_text svg = {0};
    pl_test_model("Qwen2.5-7B", &m);
    const struct pl_job_shape s = pl_test_shape(&m, PL_MODE_QLORA, PL_RECOMPUTE_FULL, 1, 512);
    pl_test_plan(&p, &s, &m);
    pl_svg_bill(p.plan, CONTEXT, 0, "title", &svg);
    ck_assert(!svg.failed);
    const char *last = strstr(svg.data, ">alignment, gaps<");
    double x = 0, width = 0;
    ck_assert_ptr_nonnull(last);
    for (const char *t = svg.data; (t = strstr(t, "<text x=\"")) != NULL && t < last; t++)
        x = strtod(t + strlen("<text x=\""), NULL);
    ck_assert_int_eq(sscanf(strstr(svg.data, " width=\""), " width=\"%lf\"", &width), 1);
    ck_assert_double_lt(x, width - 100); /* room for its letters */
    pl_text_finish(&svg);
    pl_planned_finish(&p);
}
END_TEST

/* The figures of a row of bars: what stands at y, by colour, as a share of all. */
static double share(const struct pl_text *svg, double row, const char *colour) {
    double all = 0, own = 0, x, y, w;
    char fill[8];
    for (const char *r = svg->data; (r = strstr(r, "<rect x=")) != NULL; r++) {
        if (sscanf(r, "<rect x=\"%lf\" y=\"%lf\" width=\"%lf\" height=\"30\" fill=\"%7[#0-9a-f]",
                   &x, &y, &w, fill) != 4 ||
            fabs(y - row) > 0.1)
            continue;
        all += w;
        if (strcmp(fill, colour) == 0) own += w;
    }
    return own / all;
}

/* The fullest phase holds every byte of the ledger, each in the colour of its category. */
START_TEST(every_byte_of_the_ledger_is_drawn) {
    static const uint32_t modes[] = {PL_MODE_FULL, PL_MODE_LORA, PL_MODE_QLORA};
    struct pl_model m;
    struct pl_planned p;
    struct pl_text svg = {0};
    double row = 58, total = 0;
    pl_test_model("Qwen2.5-0.5B", &m);
    const struct pl_job_shape s = pl_test_shape(&m, modes[_i], PL_RECOMPUTE_NONE, 3, 700);
    pl_test_plan(&p, &s, &m);
    pl_svg_bill(p.plan, CONTEXT, 0, "title", &svg);
    for (int phase = 0; phase < (int)p.plan->peak_phase; phase++)
        row += p.program->phases[phase].n_ops ? 48 : 0;
    const double needed = (double)(CONTEXT + p.plan->arena_bytes);
    for (int c = 0; c < PL_CATEGORY_COUNT; c++) {
        const double drawn = share(&svg, row, pl_picture_colour((enum pl_category)c));
        /* a bar is 100 pixels at least, and a width is printed to 0.01 of one */
        ck_assert_double_eq_tol(drawn, (double)p.plan->ledger[c] / needed, 1e-4);
        total += drawn;
    }
    total += share(&svg, row, "#c9ced6") + share(&svg, row, "#eceff3"); /* context; gaps */
    ck_assert_double_eq_tol(total, 1, 1e-9);
    ck_assert_double_eq_tol(share(&svg, row, "#c9ced6"), CONTEXT / needed, 1e-4);
    pl_text_finish(&svg);
    pl_planned_finish(&p);
}
END_TEST

/* The budget line runs through all rows: it cuts no figure, wherever it falls. */
START_TEST(no_word_lies_under_the_budget_line) {
    struct pl_model m;
    struct pl_planned p;
    int lines = 0;
    pl_test_model("Qwen2.5-0.5B", &m);
    const struct pl_job_shape s = pl_test_shape(&m, PL_MODE_LORA, PL_RECOMPUTE_FULL, 3, 700);
    pl_test_plan(&p, &s, &m);
    const uint64_t needed = CONTEXT + p.plan->arena_bytes;
    for (uint64_t percent = 20; percent <= 240; percent++) {
        struct pl_text svg = {0};
        struct drawn_box words[64];
        pl_svg_bill(p.plan, CONTEXT, needed / 100 * percent, "title", &svg);
        drawn_check_well_formed(&svg);
        drawn_check_layout(&svg);
        const char *line = strstr(svg.data, "stroke=\"#c81e1e\"");
        const int n = drawn_texts(&svg, words, 64);
        if (line) {
            while (strncmp(line, "<line", 5) != 0)
                line--;
            const double x = drawn_attribute(line, "x1"), top = drawn_attribute(line, "y1");
            const double bottom = drawn_attribute(line, "y2");
            for (int i = 0; i < n; i++)
                ck_assert_msg(words[i].right < x || words[i].left > x || words[i].bottom < top ||
                                  words[i].top > bottom,
                              "%d %%: the line cuts %.20s", (int)percent, words[i].at);
            lines++;
        }
        pl_text_finish(&svg);
    }
    ck_assert_int_gt(lines, 150); /* twice the need and more is out of sight */
    pl_planned_finish(&p);
}
END_TEST

int main(void) {
    Suite *s = suite_create("picture.bill");
    TCase *tc = tcase_create("bill");
    tcase_add_test(tc, every_phase_has_a_bar_as_long_as_its_bytes);
    tcase_add_test(tc, a_long_legend_goes_on_in_a_second_row);
    tcase_add_loop_test(tc, every_byte_of_the_ledger_is_drawn, 0, 3);
    tcase_add_test(tc, no_word_lies_under_the_budget_line);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
