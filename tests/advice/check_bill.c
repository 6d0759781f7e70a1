/* check_bill.c - the bars of the bill add up to what each phase needs. */
#include "estimator/base/units.h"
#include "estimator/picture/picture.h"
#include "tests/plan/planning.h"

#include <check.h>
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

int main(void) {
    Suite *s = suite_create("advice.bill");
    TCase *tc = tcase_create("bill");
    tcase_add_test(tc, every_phase_has_a_bar_as_long_as_its_bytes);
    tcase_add_test(tc, a_long_legend_goes_on_in_a_second_row);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
