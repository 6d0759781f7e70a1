/* check_reference_passes.c - `precompute_reference: auto` computes the reference for as few rows as
 * it can, with the bits of either way. */
#include "tests/support/joblog.h"
#include "tests/support/tensorset.h"
#include "tests/train/preference_runs.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

static bool is_resolved(const char *out, const char *line) {
    char *text = file_read(textf("%s/%s/config.resolved.yaml", dir, out), NULL);
    ck_assert_ptr_nonnull(text);
    const bool found = strstr(text, textf("\nprecompute_reference: %s\n", line)) != NULL;
    free(text);
    return found;
}

/* One epoch computes each row once in any case; an order of its own gives KTO other samples. */
static const struct {
    const char *name, *more[4], *decided;
} cases[] = {
    {"dpo-lora", {"max_steps=0", "num_epochs=1", "shuffle=true"}, "false"},
    {"dpo-lora", {"max_steps=0", "num_epochs=2", "shuffle=true"}, "true"},
    {"dpo-lora", {"max_steps=3", "num_epochs=2"}, "false"},
    {"dpo-lora", {"max_steps=0", "val_set_size=2", "eval_steps=1"}, "true"},
    {"dpo-lora", {"max_steps=0", "val_set_size=2", "eval_steps=0"}, "false"},
    {"dpo-lora", {"max_steps=5", "reference=initial"}, "auto"},
    {"kto-lora", {"max_steps=0", "num_epochs=2", "shuffle=true"}, "false"},
    {"kto-lora", {"max_steps=0", "num_epochs=2", "shuffle=false"}, "true"},
    {"kto-lora", {"max_steps=4", "gradient_accumulation_steps=1"}, "true"},
    {"kto-lora", {"max_steps=4", "batch_size=2", "gradient_accumulation_steps=1"}, "false"},
};
enum { CASES = sizeof cases / sizeof *cases };

/* W1 of reference_passes.h: the rows of the table have more passes before the first step, fewer, or
 * as many. */
START_TEST(the_fewer_passes_are_taken) {
    TRAIN(cases[_i].name, "out", cases[_i].more, NULL);
    ck_assert_msg(is_resolved("out", cases[_i].decided), "not `%s`", cases[_i].decided);
}
END_TEST

/* F1 of reference.h: later epochs, in another order, find the values of the first. */
START_TEST(either_way_has_the_same_bits) {
    const char *const *more = cases[_i].more;
    TRAIN(cases[_i].name, "auto", more, NULL);
    TRAIN(cases[_i].name, "before", more, "precompute_reference=true");
    TRAIN(cases[_i].name, "with", more, "precompute_reference=false");
    joblog_assert_same_steps(in_dir(dir, "before"), in_dir(dir, "with"));
    joblog_assert_same_steps(in_dir(dir, "auto"), in_dir(dir, "with"));
    weights_assert_same(in_dir(dir, "before"), in_dir(dir, "with"), "adapter_model");
}
END_TEST

/* W2 of reference_passes.h: three epochs alone would be `true`. */
START_TEST(a_run_that_is_resumed_keeps_what_it_began_with) {
    static const char *const more[] = {"max_steps=0", "save_steps=1", NULL};
    TRAIN("dpo-lora", "out", more, "num_epochs=1");
    TRAIN("dpo-lora", "out", more, "num_epochs=3");
    ck_assert(is_resolved("out", "false"));
    json_t *log = joblog_read(in_dir(dir, "out"));
    ck_assert_ptr_nonnull(joblog_step(log, 12));
    json_decref(log);
}
END_TEST

/* F2 of reference.h, and F3 of reference.h: the rows stand by their keys, and a bit of them that
 * changed ends the start of the run that resumes. */
START_TEST(values_of_a_checkpoint_are_whole_or_refused) {
    static const char *const more[] = {"precompute_reference=true", "save_steps=1", NULL};
    char path[SCRATCH_PATH + 64];
    uint64_t before = 0, key;
    size_t bytes;
    snprintf(path, sizeof path, "%s/out/checkpoint-2/reference.bin", dir);
    TRAIN("dpo-lora", "out", more, "max_steps=2");
    char *file = file_read(path, &bytes);
    ck_assert_uint_ge(bytes, 8 + 16 * 4);
    ck_assert_uint_eq((bytes - 8) % 16, 0);
    ck_assert_mem_eq(file, "PLREFER1", 8);
    for (size_t at = 8; at < bytes; at += 16, before = key) {
        memcpy(&key, file + at, sizeof key);
        ck_assert_uint_gt(key, before);
    }
    file[bytes - 1] ^= 1;
    FILE *f = fopen(path, "wb");
    ck_assert_ptr_nonnull(f);
    ck_assert_uint_eq(fwrite(file, 1, bytes, f), bytes);
    ck_assert_int_eq(fclose(f), 0);
    free(file);
    char *says = train(5, GOLDEN "/../preference/dpo-lora", "out", more,
                       (const char *[]){"max_steps=3", NULL});
    ck_assert_msg(strstr(says, "reference.bin is damaged") != NULL, "%s", says);
    free(says);
}
END_TEST

int main(void) {
    Suite *s = suite_create("train.reference_passes");
    TCase *tc = tcase_create("runs");
    tcase_set_timeout(tc, 60);
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_loop_test(tc, the_fewer_passes_are_taken, 0, CASES);
    tcase_add_loop_test(tc, either_way_has_the_same_bits, 1, 2);
    tcase_add_loop_test(tc, either_way_has_the_same_bits, 7, 9);
    tcase_add_test(tc, a_run_that_is_resumed_keeps_what_it_began_with);
    tcase_add_test(tc, values_of_a_checkpoint_are_whole_or_refused);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
