/* check_kernels.c - every kernel against its reference: what the builder could emit, which it must
 * compute, and what it could not, which may be refused. */
#include "tests/kernels/cases.h"

#include <check.h>
#include <stdlib.h>

static const struct kernel_case *const files[] = {
#define X(name) name,
    KERNEL_CASE_FILES(X)
#undef X
};

/* True for all cases, or with kernels of AMX for those of products, which alone are other ones. */
static bool is_run(const struct kernel_case *c) {
#if defined(PL_AMX_KERNELS)
    return c->kind == PL_OP_LINEAR || c->kind == PL_OP_LINEAR_DX || c->kind == PL_OP_LINEAR_DW ||
           c->kind == PL_OP_GROUPED_LINEAR || c->kind == PL_OP_GROUPED_LINEAR_DX ||
           c->kind == PL_OP_GROUPED_LINEAR_DW;
#else
    (void)c;
    return true;
#endif
}

/* The i-th case of all files, NULL past the last. */
static const struct kernel_case *case_at(int i) {
    for (size_t f = 0; f < sizeof files / sizeof *files; f++)
        for (const struct kernel_case *c = files[f]; c->name; c++)
            if (is_run(c) && i-- == 0) return c;
    return NULL;
}

START_TEST(a_kernel_agrees_with_its_reference) {
    run_case(case_at(_i), TRIALS_EMITTED);
}
END_TEST

START_TEST(a_kernel_refuses_what_no_plan_holds_or_agrees) {
    run_case(case_at(_i), TRIALS_OUTSIDE);
}
END_TEST

int main(void) {
    int n = 0;
    while (case_at(n))
        n++;
    Suite *s = suite_create("kernels");
    TCase *tc = tcase_create("conformance");
    tcase_set_timeout(tc, 240);
    tcase_add_loop_test(tc, a_kernel_agrees_with_its_reference, 0, n);
    suite_add_tcase(s, tc);
    tc = tcase_create("outside");
    tcase_set_timeout(tc, 240);
    tcase_add_loop_test(tc, a_kernel_refuses_what_no_plan_holds_or_agrees, 0, n);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
