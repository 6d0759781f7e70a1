/* check_memory.c - the plan over its operations: well formed, laid out, and true to its numbers. */
#include "estimator/base/units.h"
#include "estimator/picture/picture.h"
#include "estimator/picture/svg.h"
#include "tests/oom/toy_plan.h"
#include "tests/picture/drawing.h"
#include "tests/plan/planning.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
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

START_TEST(a_memory_picture_is_well_laid_out_for_any_budget) {
    static const uint64_t budgets[] = {0,         PL_AUTO_BYTES, 1,         192 * MIB,
                                       200 * MIB, 1024 * MIB,    1ull << 50};
    for (size_t i = 0; i < sizeof budgets / sizeof *budgets; i++) {
        pl_text_finish(&svg);
        pl_svg_vram(&toy.plan, budgets[i], 192 * MIB, 201 * MIB, "a title", &svg);
        drawn_check_well_formed(&svg);
        drawn_check_layout(&svg);
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
    drawn_check_well_formed(&svg);
    drawn_check_layout(&svg);
    ck_assert(drawn_has_text(&svg, "adapter") && drawn_has_text(&svg, "gradients") &&
              drawn_has_text(&svg, "workspace"));
}
END_TEST

/* V2 of picture.h */
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
        drawn_check_well_formed(&svg);
        drawn_check_layout(&svg);
    }
}
END_TEST

START_TEST(the_peak_is_marked_with_its_three_largest_tensors) {
    pl_svg_vram(&toy.plan, 0, 0, 0, "t", &svg);
    ck_assert(drawn_has_text(&svg, "peak at op 2, linear of layer 0"));
    const char *gu = strstr(svg.data, ">layers.0.gu<"),
               *logits = strstr(svg.data, ">logits</text>");
    ck_assert(gu && drawn_has_text(&svg, "16.00 MiB"));
    ck_assert(strstr(gu, ">logits<") && strstr(gu, ">layers.0.x<") && logits);
    ck_assert(!drawn_has_text(&svg, "layers.0.m"));
}
END_TEST

START_TEST(a_long_name_keeps_its_end) {
    toy.tensors[TOY_GU].name = "a_tensor_with_a_name_of_many_letters";
    toy.plan.arena_bytes = 1023 * MIB;
    pl_svg_vram(&toy.plan, 1ull << 50, 0, 0, "t", &svg);
    drawn_check_layout(&svg);
    ck_assert(drawn_has_text(&svg, "..a_name_of_many_letters"));
}
END_TEST

START_TEST(bands_show_their_bytes_at_the_peak) {
    pl_svg_vram(&toy.plan, 0, 0, 0, "t", &svg);
    static const char *const figures[] = {"100.0 MiB", "50.00 MiB", "28.00 MiB",
                                          "12.00 MiB", "192.0 MiB", "2.00 MiB"};
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++)
        ck_assert_msg(drawn_has_text(&svg, figures[i]), "%s", figures[i]);
    ck_assert(!drawn_has_text(&svg, "budget") && !drawn_has_text(&svg, "allocated") &&
              !drawn_has_text(&svg, "measured"));
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
    ck_assert_double_eq_tol(drawn_attribute(dot, "cy"), peak, 0.06);
    ck_assert_double_eq_tol(drawn_attribute(dot, "cx"), 84 + 2.5 / 6 * (716 - 84), 0.06);
    char line[64];
    snprintf(line, sizeof line, "y1=\"%.1f\" x2=\"716.0\"", pixel(top, top));
    ck_assert_msg(strstr(svg.data, line), "no line at %s", line);
}
END_TEST

START_TEST(a_budget_near_the_plan_is_a_line_and_a_far_one_a_word) {
    pl_svg_vram(&toy.plan, 256 * MIB, 0, 0, "t", &svg);
    ck_assert(drawn_has_text(&svg, "budget") && drawn_has_text(&svg, "256.0 MiB"));
    ck_assert_int_eq(drawn_count(&svg, "stroke=\"" PL_SVG_ALARM "\""), 2); /* line and legend */
    pl_text_finish(&svg);
    pl_svg_vram(&toy.plan, 4096 * MIB, 0, 0, "t", &svg);
    ck_assert(drawn_has_text(&svg, "budget, above the picture") &&
              drawn_has_text(&svg, "4.00 GiB"));
    ck_assert_int_eq(drawn_count(&svg, "stroke=\"" PL_SVG_ALARM "\""), 0);
}
END_TEST

START_TEST(forward_and_backward_are_named) {
    pl_svg_vram(&toy.plan, 0, 0, 0, "t", &svg);
    ck_assert(drawn_has_text(&svg, "forward") && drawn_has_text(&svg, "backward"));
    for (int i = 0; i < TOY_OPS; i++)
        toy.ops[i].backward = false;
    pl_text_finish(&svg);
    pl_svg_vram(&toy.plan, 0, 0, 0, "t", &svg);
    ck_assert(!drawn_has_text(&svg, "forward") && !drawn_has_text(&svg, "backward"));
}
END_TEST

START_TEST(a_phase_without_an_op_still_gives_a_picture) {
    toy.program.phases[PL_PHASE_MICRO].n_ops = 0;
    pl_svg_vram(&toy.plan, 0, 0, 0, "t", &svg);
    drawn_check_well_formed(&svg);
    drawn_check_layout(&svg);
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
    drawn_check_well_formed(&svg);
    ck_assert_uint_lt(svg.len, 64 * 1024);
    double top = 191.0 * MIB;
    char edge[32];
    snprintf(edge, sizeof edge, "V%.1fH", pixel(top, top));
    ck_assert_msg(strstr(svg.data, edge), "no edge at %s", edge);
    ck_assert(drawn_has_text(&svg, "peak at op 7777, embed of layer 0"));
}
END_TEST

/* --- of plans that training makes ------------------------------------------------------------ */

static const struct {
    const char *model;
    uint32_t mode, recompute;
    uint64_t batch, length;
} real[] = {{"SmolLM2-135M", PL_MODE_FULL, PL_RECOMPUTE_NONE, 2, 256},
            {"SmolLM2-135M", PL_MODE_LORA, PL_RECOMPUTE_FULL, 1, 16},
            {"Qwen2.5-0.5B", PL_MODE_QLORA, PL_RECOMPUTE_LIGHT, 8, 1024},
            {"Qwen2.5-7B", PL_MODE_LORA, PL_RECOMPUTE_FULL, 4, 2048},
            {"Llama-3.1-70B", PL_MODE_QLORA, PL_RECOMPUTE_OFFLOAD, 1, 4096}};
enum { N_REAL = sizeof real / sizeof *real };

static void plan_real(int i, struct pl_planned *p) {
    struct pl_model m;
    pl_test_model(real[i].model, &m);
    const struct pl_job_shape s =
        pl_test_shape(&m, real[i].mode, real[i].recompute, real[i].batch, real[i].length);
    pl_test_plan(p, &s, &m);
}

START_TEST(a_planned_step_is_laid_out_for_any_budget) {
    struct pl_planned p;
    plan_real(_i, &p);
    const uint64_t arena = p.plan->arena_bytes;
    const uint64_t budgets[] = {0, 1, arena / 2, arena, arena + arena / 3, 2 * arena, 100 * arena};
    for (size_t i = 0; i < sizeof budgets / sizeof *budgets; i++) {
        for (int timeline = 0; timeline < 2; timeline++) {
            pl_text_finish(&svg);
            if (timeline)
                pl_svg_timeline(p.plan, budgets[i], "a title", &svg);
            else
                pl_svg_vram(p.plan, budgets[i], arena, arena + 12345, "a title", &svg);
            drawn_check_well_formed(&svg);
            drawn_check_layout(&svg);
            ck_assert_uint_lt(svg.len, 256 * 1024);
        }
    }
    pl_planned_finish(&p);
}
END_TEST

/* The words to the right of the picture hold every byte: each category of the job arena and of the
 * batch arena at its peak, and the bytes that packing could not use. */
START_TEST(the_legend_holds_every_byte_of_the_ledger) {
    struct pl_planned p;
    char figure[PL_BYTES_TEXT];
    plan_real(_i, &p);
    const struct pl_plan *plan = p.plan;
    pl_svg_vram(plan, 0, 0, 0, "a title", &svg);
    uint64_t named = plan->alignment_bytes + plan->fragmentation_bytes;
    for (int c = 0; c < PL_CATEGORY_COUNT; c++) {
        const uint64_t parts[] = {plan->job_by_category[c], plan->phases[plan->peak_phase].live[c]};
        for (int i = 0; i < 2; i++) {
            named += parts[i];
            if (!parts[i]) continue;
            ck_assert(drawn_has_text(&svg, pl_category_name((enum pl_category)c)));
            ck_assert_msg(drawn_has_text(&svg, pl_bytes_text(parts[i], figure)), "%s of %s", figure,
                          pl_category_name((enum pl_category)c));
        }
    }
    ck_assert_uint_eq(named, plan->arena_bytes);
    ck_assert(drawn_has_text(&svg, pl_bytes_text(plan->arena_bytes, figure)));
    pl_planned_finish(&p);
}
END_TEST

/* The timeline is of a micro-batch, whatever phase needs most. */
START_TEST(a_timeline_is_of_the_micro_batch) {
    toy.plan.peak_phase = PL_PHASE_OPTIMIZER;
    pl_svg_timeline(&toy.plan, 0, "a title", &svg);
    drawn_check_well_formed(&svg);
    ck_assert(drawn_has_text(&svg, "op of the step phase"));
    ck_assert(drawn_has_text(&svg, "peak at op 2, linear of layer 0"));
    pl_text_finish(&svg);
    toy.plan.peak_phase = PL_PHASE_MICRO;
    pl_svg_timeline(&toy.plan, 0, "a title", &svg);
    ck_assert(drawn_has_text(&svg, "op of the step phase, the one that needs most memory"));
}
END_TEST

START_TEST(every_category_has_a_colour_of_its_own) {
    for (int c = 0; c < PL_CATEGORY_COUNT; c++) {
        const char *colour = pl_picture_colour((enum pl_category)c);
        ck_assert_uint_eq(strlen(colour), 7);
        ck_assert_uint_eq(strspn(colour + 1, "0123456789abcdef"), 6);
        for (int k = 0; k < c; k++)
            ck_assert_str_ne(colour, pl_picture_colour((enum pl_category)k));
    }
}
END_TEST

int main(void) {
    Suite *s = suite_create("picture.memory");
    TCase *tc = tcase_create("memory");
    tcase_set_timeout(tc, 60);
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
    tcase_add_loop_test(tc, a_planned_step_is_laid_out_for_any_budget, 0, N_REAL);
    tcase_add_loop_test(tc, the_legend_holds_every_byte_of_the_ledger, 0, N_REAL);
    tcase_add_test(tc, a_timeline_is_of_the_micro_batch);
    tcase_add_test(tc, every_category_has_a_colour_of_its_own);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
