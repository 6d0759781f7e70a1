/* check_digests.c - every program and every offset of it, held by a digest: what a change of the
 * builder must not change. Each plan is checked, too.
 *
 * PLIMSOLL_DIGESTS names the list: a line for each model, mode and back-end, with the digest of all
 * recompute levels and, for some models, that of the ways to offload, optimizers and the rest. With
 * PLIMSOLL_DIGESTS_OUT set the lines of today are written there instead: a commit that means to
 * change programs replaces the list by them and says what it saves. */
#include "estimator/plan/plan_digest.h"
#include "tests/plan/planning.h"
#include "tests/program/listed.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LINE 160

/* --- which programs ------------------------------------------------------------------------------
 */

static void add_program(struct pl_digest *h, const struct pl_model *m, const struct pl_job_shape *s,
                        const struct pl_traits *traits) {
    struct pl_planned p;
    struct pl_diag d = {0};
    ck_assert_msg(pl_planned_init_shape(&p, s, m, traits, &d) == PL_ERR_OK, "%s", d.message);
    ck_assert_msg(pl_plan_check(p.plan, &d) == PL_ERR_OK, "%s", d.message);
    pl_digest_add_plan(h, p.plan);
    pl_planned_finish(&p);
}

static uint64_t digest_of_levels(const struct pl_model *m, int mode, const struct pl_traits *t) {
    struct pl_digest h;
    struct pl_job_shape s = pl_test_listed_shape(m, mode);
    pl_digest_init(&h, 0);
    for (s.recompute = PL_RECOMPUTE_NONE; s.recompute < PL_RECOMPUTE_PLAIN; s.recompute++) {
        add_program(&h, m, &s, t);
        if (s.inference) break;
    }
    return pl_digest_value(&h);
}

static uint64_t digest_of_variants(const struct pl_model *m, int mode, const struct pl_traits *t) {
    struct pl_digest h;
    pl_digest_init(&h, 0);
    for (int i = 0; i < PL_TEST_VARIANTS; i++) {
        struct pl_job_shape s = pl_test_listed_shape(m, mode);
        pl_test_vary(&s, i);
        add_program(&h, m, &s, t);
    }
    return pl_digest_value(&h);
}

/* --- the list ------------------------------------------------------------------------------------
 */

/* Models of a family whose layers have other programs than those of the common list: heads of two
 * sizes and values that are keys; keys and values of an earlier layer, and per-layer embeddings. */
static const char *const more_models[] = {"Gemma-4-31B", "Gemma-4-E2B"};
enum { N_MORE = sizeof more_models / sizeof *more_models };

static const char *model_of(int i) {
    return i < pl_test_n_all_models ? pl_test_models[i] : more_models[i - pl_test_n_all_models];
}

/* One of each kind of model: QK-norm, biases and a tied head, partial rotation with two tables, a
 * window, layers without rotation, linear attention. */
static bool has_variants(const char *model) {
    static const char *const varied[] = {"Qwen3-0.6B",      "Qwen2.5-0.5B", "Phi-4-mini",
                                         "Mistral-7B-v0.3", "SmolLM3-3B",   "Qwen3.5-9B"};
    for (size_t i = 0; i < sizeof varied / sizeof *varied; i++)
        if (strcmp(varied[i], model) == 0) return true;
    return false;
}

static void expect_line(const char *line) {
    char read[LINE];
    FILE *f = fopen(getenv("PLIMSOLL_DIGESTS"), "r");
    ck_assert_ptr_nonnull(f);
    bool found = false;
    while (!found && fgets(read, sizeof read, f))
        found = strcmp(read, line) == 0;
    fclose(f);
    ck_assert_msg(found, "a program or a plan has changed: not in the list: %s", line);
}

static void write_line(const char *line) {
    FILE *f = fopen(getenv("PLIMSOLL_DIGESTS_OUT"), "a");
    ck_assert_ptr_nonnull(f);
    ck_assert_int_ge(fputs(line, f), 0);
    ck_assert_int_eq(fclose(f), 0);
}

static void put_digest(const char *model, int mode, const char *backend, const char *what,
                       uint64_t v) {
    char line[LINE];
    snprintf(line, sizeof line, "%s %s %s %s %016llx\n", model, pl_test_modes[mode], backend, what,
             (unsigned long long)v);
    if (getenv("PLIMSOLL_DIGESTS_OUT"))
        write_line(line);
    else
        expect_line(line);
}

/* D1 of plan_digest.h: _i: model and mode. */
START_TEST(programs_and_their_places_are_those_of_the_list) {
    const struct pl_traits traits[] = {pl_traits_cpu(2), pl_traits_cuda(80)};
    static const char *const names[] = {"cpu", "cuda"};
    const char *model = model_of(_i / PL_TEST_MODES);
    const int mode = _i % PL_TEST_MODES;
    struct pl_model m;
    pl_test_model(model, &m);
    for (int t = 0; t < 2; t++) {
        put_digest(model, mode, names[t], "levels", digest_of_levels(&m, mode, &traits[t]));
        if (has_variants(model))
            put_digest(model, mode, names[t], "variants", digest_of_variants(&m, mode, &traits[t]));
    }
}
END_TEST

int main(void) {
    Suite *s = suite_create("program.digests");
    TCase *tc = tcase_create("list");
    tcase_set_timeout(tc, 120);
    tcase_add_loop_test(tc, programs_and_their_places_are_those_of_the_list, 0,
                        (pl_test_n_all_models + N_MORE) * PL_TEST_MODES);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
