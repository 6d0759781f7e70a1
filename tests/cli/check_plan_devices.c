/* check_plan_devices.c - `plimsoll plan --devices N`: one answer, whichever part of it is read.
 *
 * PLIMSOLL names the binary. */
#include "tests/support/child.h"
#include "tests/support/scratch.h"

#include <check.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SAMPLES 64

/* The memory of each device, and whether all of them hold the job as it is given, hold it with
 * other settings, or do not hold it. */
static const struct {
    const char *devices, *vram;
    enum { AS_GIVEN, CHANGED, NOT } holds;
} cases[] = {{"2", "8GiB", AS_GIVEN},
             {"auto", "8GiB", AS_GIVEN},
             {"3", "5GiB", CHANGED},
             {"2", "3GiB", NOT}};
#define N_CASES (int)(sizeof cases / sizeof *cases)

static struct outcome plan(int i, bool json) {
    return plimsoll_run(NULL,
                        (const char *[]){"plan", "Qwen2.5-0.5B", "--mode", "full", "--vram",
                                         cases[i].vram, "--devices", cases[i].devices,
                                         "--effective-batch", "64", json ? "--json" : NULL, NULL});
}

static const char *text_of(const json_t *o, const char *key) {
    const char *text = json_string_value(json_object_get(o, key));
    ck_assert_msg(text != NULL, "%s", key);
    return text;
}

static json_int_t bytes_of(const json_t *o) {
    return json_integer_value(json_object_get(o, "needed_bytes"));
}

/* Returns the answer of estimate-vram to a command that was printed. */
static json_int_t estimated(const char *command) {
    const char *name = "plimsoll ";
    ck_assert_int_eq(strncmp(command, name, strlen(name)), 0);
    FILE *f =
        popen(textf("'%s' %s --json 2>/dev/null", getenv("PLIMSOLL"), command + strlen(name)), "r");
    ck_assert_ptr_nonnull(f);
    json_t *answer = json_loadf(f, 0, NULL), *rank;
    ck_assert_int_eq(pclose(f), 0);
    json_int_t most = 0;
    size_t i;
    json_array_foreach(json_object_get(answer, "ranks"), i, rank) if (bytes_of(rank) > most) most =
        bytes_of(rank);
    json_decref(answer);
    return most;
}

/* The row that is recommended is the way that is recommended, and the advice. */
static void expect_row(const json_t *answer, const json_t *way) {
    const json_t *devices = json_object_get(answer, "devices");
    const json_t *best = json_object_get(devices, "recommended");
    const json_t *row =
        json_array_get(json_object_get(devices, "rows"), (size_t)json_integer_value(best));
    ck_assert(json_is_integer(best) && row);
    ck_assert_str_eq(text_of(row, "command"), text_of(way, "command"));
    ck_assert_int_eq(bytes_of(row), bytes_of(way));
}

START_TEST(the_answer_in_json_agrees_with_itself) {
    struct outcome o = plan(_i, true);
    json_t *answer = json_loads(o.out, 0, NULL);
    const json_t *ways = json_object_get(json_object_get(answer, "recommended"), "ways"), *way;
    size_t i;
    ck_assert_int_eq(o.status, cases[_i].holds == AS_GIVEN ? 0 : 3);
    ck_assert_uint_eq(json_array_size(ways) > 0, cases[_i].holds != NOT);
    json_array_foreach(ways, i, way) {
        ck_assert(json_number_value(json_object_get(way, "samples_per_step")) == SAMPLES);
        ck_assert_int_eq(estimated(text_of(way, "command")), bytes_of(way));
    }
    way = json_array_get(ways, 0);
    if (way)
        ck_assert_str_eq(text_of(way, "command"),
                         text_of(json_object_get(answer, "advice"), "command"));
    if (cases[_i].holds == AS_GIVEN) expect_row(answer, way);
    json_decref(answer);
    outcome_finish(&o);
}
END_TEST

START_TEST(the_answer_for_people_is_one) {
    struct outcome o = plan(_i, false);
    const bool holds = strstr(o.out, "largest rank takes ") && !strstr(o.out, "do not hold it");
    ck_assert_msg(holds == (cases[_i].holds == AS_GIVEN), "%s", o.out);
    ck_assert_msg((strstr(o.out, "\nrecommended") != NULL) == (cases[_i].holds == CHANGED), "%s",
                  o.out);
    ck_assert_msg((strstr(o.out, "nothing fits") != NULL) == (cases[_i].holds == NOT), "%s", o.out);
    outcome_finish(&o);
}
END_TEST

int main(void) {
    Suite *s = suite_create("plan_devices");
    TCase *tc = tcase_create("plan_devices");
    tcase_set_timeout(tc, 60);
    tcase_add_loop_test(tc, the_answer_in_json_agrees_with_itself, 0, N_CASES);
    tcase_add_loop_test(tc, the_answer_for_people_is_one, 0, N_CASES);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
