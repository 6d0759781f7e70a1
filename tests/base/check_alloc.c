/* check_alloc.c - the requests that are told to fail do, and no others. */
#include "estimator/base/alloc.h"

#include <check.h>
#include <errno.h>
#include <string.h>

/* Request i of every kind of call, in turn. */
static void *request(unsigned i, void *old) {
    char *text = NULL;
    switch (i % 6) {
    case 0:
        return pl_malloc(8);
    case 1:
        return pl_calloc(2, 8);
    case 2:
        return pl_realloc(old, 16);
    case 3:
        return pl_strdup("text");
    case 4:
        return pl_strndup("text", 2);
    default:
        return pl_asprintf(&text, "%d", 5) < 0 ? NULL : text;
    }
}

/* A letter for each of the next 12 requests: x where it failed. */
static const char *outcome(char out[13]) {
    for (unsigned i = 0; i < 12; i++) {
        char *old = malloc(4);
        ck_assert_ptr_nonnull(old);
        memcpy(old, "old", 4);
        errno = 0;
        char *p = request(i, old);
        out[i] = p ? '.' : 'x';
        if (!p) ck_assert_int_eq(errno, ENOMEM);
        if (!p || i % 6 != 2) {
            ck_assert_str_eq(old, "old");
            free(old);
        }
        free(p);
    }
    out[12] = 0;
    return out;
}

static const struct {
    uint64_t at, count;
    const char *expected;
} schedules[] = {
    {0, 0, "............"}, {1, 1, "x..........."},          {3, 1, "..x........."},
    {6, 4, ".....xxxx..."}, {2, UINT64_MAX, ".xxxxxxxxxxx"}, {12, UINT64_MAX, "...........x"},
};

/* AL2: outcome() looks at errno and at the old memory of each request that failed. */
START_TEST(only_the_requests_that_were_named_fail) {
    char out[13];
    pl_alloc_fail(schedules[_i].at, schedules[_i].count);
    ck_assert_str_eq(outcome(out), schedules[_i].expected);
    ck_assert_uint_eq(pl_alloc_requests(), 12);
    pl_alloc_fail(0, 0);
    ck_assert_str_eq(outcome(out), "............");
}
END_TEST

START_TEST(texts_are_copied_whole_up_to_the_limit_and_as_formatted) {
    char *whole = pl_strdup("four"), *part = pl_strndup("four", 2), *formatted = NULL;
    ck_assert_str_eq(whole, "four");
    ck_assert_str_eq(part, "fo");
    ck_assert_int_eq(pl_asprintf(&formatted, "%s-%04d", "step", 12), 9);
    ck_assert_str_eq(formatted, "step-0012");
    free(whole);
    free(part);
    free(formatted);
}
END_TEST

int main(void) {
    Suite *s = suite_create("base.alloc");
    TCase *tc = tcase_create("alloc");
    tcase_add_loop_test(tc, only_the_requests_that_were_named_fail, 0,
                        sizeof schedules / sizeof *schedules);
    tcase_add_test(tc, texts_are_copied_whole_up_to_the_limit_and_as_formatted);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
