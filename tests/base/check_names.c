/* check_names.c - numbers by names: many of them, the last one of each, names that are no UTF-8. */
#include "estimator/base/names.h"

#include <check.h>
#include <stdio.h>

START_TEST(the_last_number_of_a_name_counts) {
    struct pl_names n = {0};
    uint32_t out = 7;
    ck_assert(!pl_names_get(&n, "a", &out) && out == 7);
    ck_assert(pl_names_put(&n, "a", 1) && pl_names_put(&n, "", 2) && pl_names_put(&n, "\xFF", 3));
    ck_assert(pl_names_get(&n, "a", &out) && out == 1);
    ck_assert(pl_names_get(&n, "", &out) && out == 2);
    ck_assert(pl_names_get(&n, "\xFF", &out) && out == 3);
    ck_assert(pl_names_put(&n, "a", UINT32_MAX));
    ck_assert(pl_names_get(&n, "a", &out) && out == UINT32_MAX);
    ck_assert(!pl_names_get(&n, "b", &out) && out == UINT32_MAX);
    pl_names_finish(&n);
    ck_assert(!pl_names_get(&n, "a", &out));
    pl_names_finish(&n);
}
END_TEST

START_TEST(each_of_many_names_is_found) {
    struct pl_names n = {0};
    char name[16];
    for (uint32_t i = 0; i < 20000; i++) {
        snprintf(name, sizeof name, "n%u", (unsigned)i);
        ck_assert(pl_names_put(&n, name, i));
    }
    for (uint32_t i = 0, out; i < 20000; i++) {
        snprintf(name, sizeof name, "n%u", (unsigned)i);
        ck_assert(pl_names_get(&n, name, &out) && out == i);
    }
    pl_names_finish(&n);
}
END_TEST

int main(void) {
    Suite *s = suite_create("base.names");
    TCase *t = tcase_create("all");
    tcase_add_test(t, the_last_number_of_a_name_counts);
    tcase_add_test(t, each_of_many_names_is_found);
    suite_add_tcase(s, t);
    SRunner *runner = srunner_create(s);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
