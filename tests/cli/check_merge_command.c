/* check_merge_command.c - `plimsoll merge` through the binary: the merged model computes what base
 * and adapter compute together. PLIMSOLL names the binary, GOLDEN_CASES the recorded runs. */
#include "tests/support/child.h"
#include "tests/support/joblog.h"
#include "tests/support/scratch.h"

#include <check.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char dir[SCRATCH_PATH], job[SCRATCH_PATH + 8]; /* job: a copy of a case */

static void setup(void) {
    scratch_make(dir);
    snprintf(job, sizeof job, "%s/case", dir);
}
static void teardown(void) {
    scratch_remove(dir);
}

static const char *const cases[] = {"lora-llama", "lora-rslora"};

static void copy_case(const char *name) {
    const char *all = getenv("GOLDEN_CASES");
    ck_assert_ptr_nonnull(all);
    scratch_copy(in_dir(all, name), job);
}

/* The loss of the case's first step: that of the model as it was loaded. */
static double first_loss(const char *const extra[]) {
    const char *words[9] = {"max_steps=1", "output_dir=out"};
    for (int i = 0; extra[i]; i++)
        words[2 + i] = extra[i];
    plimsoll_train_expect(0, job, words);
    json_t *log = joblog_read(in_dir(job, "out"));
    double loss = joblog_number(joblog_step(log, 1), "loss");
    json_decref(log);
    scratch_remove(in_dir(job, "out"));
    return loss;
}

START_TEST(the_merged_model_computes_what_base_and_adapter_compute) {
    copy_case(cases[_i]);
    double base = first_loss((const char *const[]){"adapter_path=null", NULL});
    double together = first_loss((const char *const[]){NULL});
    struct outcome p =
        plimsoll_expect(0, job,
                        (const char *const[]){"merge", "--model", "model", "--adapter", "adapter",
                                              "--output", "merged", NULL});
    outcome_finish(&p);
    /* a new adapter adds nothing: its B is zero */
    double merged = first_loss((const char *const[]){"adapter_path=null", "model=merged", NULL});
    /* fp32 sums in another order, of a loss near 5 */
    ck_assert_msg(fabs(merged - together) < 1e-5, "%.9g, not %.9g", merged, together);
    ck_assert_msg(fabs(base - together) > 1e-3, "the adapter does nothing: %.9g", base);
}
END_TEST

START_TEST(json_tells_the_planned_and_the_allocated_bytes) {
    copy_case(cases[0]);
    struct outcome p = plimsoll_expect(
        0, job,
        (const char *const[]){"merge", "--json", "--quiet", "--model=model", "--adapter=adapter",
                              "--output=merged", "--dtype=bf16", "--memory=1MiB", NULL});
    json_t *root = json_loads(p.out, 0, NULL);
    ck_assert_ptr_nonnull(root);
    ck_assert_str_eq(p.err, "");
    ck_assert_str_eq(json_string_value(json_object_get(root, "dtype")), "bf16");
    json_int_t planned = json_integer_value(json_object_get(root, "planned_bytes"));
    ck_assert_int_gt(planned, 0);
    ck_assert_int_eq(planned, json_integer_value(json_object_get(root, "allocated_bytes")));
    ck_assert_int_eq(json_integer_value(json_object_get(root, "merged_matrices")), 14);
    json_decref(root);
    outcome_finish(&p);
}
END_TEST

START_TEST(a_gguf_file_needs_of_the_model_its_config_alone) {
    copy_case(cases[0]);
    scratch_remove(in_dir(job, "model/model.safetensors"));
    struct outcome p =
        plimsoll_expect(0, job,
                        (const char *const[]){"merge", "--model=model", "--adapter=adapter",
                                              "--gguf=a.gguf", "--dtype=fp16", "--json", NULL});
    size_t bytes;
    char *data = file_read(in_dir(job, "a.gguf"), &bytes);
    ck_assert_uint_gt(bytes, 1000);
    ck_assert(strncmp(data, "GGUF", 4) == 0);
    ck_assert_msg(strstr(p.out, "\"output\":\"a.gguf\"") && strstr(p.out, "\"dtype\":\"fp16\""),
                  "%s", p.out);
    free(data);
    outcome_finish(&p);
}
END_TEST

START_TEST(an_adapter_of_a_tied_head_is_no_gguf_file) {
    copy_case("lora-head-tied");
    struct outcome p =
        plimsoll_run(job, (const char *const[]){"merge", "--model=model", "--adapter=adapter",
                                                "--gguf=a.gguf", NULL});
    ck_assert_int_eq(p.status, 5);
    ck_assert_msg(strstr(p.err, "the head of this model is its embedding") != NULL, "%s", p.err);
    ck_assert_msg(strstr(p.err, "hint: merge the adapter into a model directory, without --gguf"),
                  "%s", p.err);
    outcome_finish(&p);
}
END_TEST

START_TEST(a_run_can_end_with_the_merged_model) {
    copy_case(cases[0]);
    for (int i = 0; i < 2; i++) { /* and again, over what the first left */
        plimsoll_train_expect(0, job,
                              (const char *const[]){"max_steps=2", "output_dir=out", "resume=never",
                                                    "save_merged=true", NULL});
        struct outcome p =
            plimsoll_expect(0, job,
                            (const char *const[]){"merge", "--model=model", "--adapter=out",
                                                  i ? "--output=again" : "--output=once", NULL});
        outcome_finish(&p);
    }
    ck_assert(file_same(in_dir(job, "out/merged/model.safetensors"),
                        in_dir(job, "once/model.safetensors")));
    ck_assert(file_same(in_dir(job, "out/merged/config.json"), in_dir(job, "once/config.json")));
    const char *const words[] = {"init=random", "save_merged=true", NULL};
    struct outcome p = plimsoll_train(job, words);
    ck_assert_int_eq(p.status, 2);
    ck_assert_msg(strstr(p.err, "`save_merged` has no meaning with `init: random`"), "%s", p.err);
    outcome_finish(&p);
}
END_TEST

static const struct {
    const char *words[9];
    int status;
    const char *says;
} refusals[] = {
    {{"merge", NULL}, 2, "`merge` needs --model"},
    {{"merge", "--model=model", "--output=m", NULL}, 2, "`merge` needs --adapter"},
    {{"merge", "--model=model", "--adapter=adapter", NULL}, 2, "`merge` needs --output"},
    {{"merge", "--model=model", "--adapter=adapter", "--output=m", "--gguf=m", NULL},
     2,
     "--output and --gguf cannot be given together"},
    {{"merge", "--model=model", "--adapter=adapter", "--gguf=no/such/place", NULL},
     1,
     "cannot create no/such/place"},
    {{"merge", "--model=model", "--adapter=adapter", "--output=m", "--memory=no", NULL},
     2,
     "--memory wants a size such as 64MiB, not `no`"},
    {{"merge", "--model=model", "--adapter=adapter", "--output=m", "--memory=1KiB", NULL},
     3,
     "RUNTIME_DOES_NOT_FIT"},
    {{"merge", "--model=model", "--adapter=model", "--output=m", NULL},
     5,
     "error[CHECKPOINT_FILE]: cannot read model/adapter_config.json: "},
    {{"merge", "--model=adapter", "--adapter=adapter", "--output=m", NULL}, 5, "config.json"},
    {{"merge", "--model=model", "--adapter=adapter", "--output=no/such/place", NULL},
     1,
     "cannot create no/such/place"},
};

START_TEST(a_merge_that_cannot_be_says_why_and_writes_nothing) {
    copy_case(cases[0]);
    struct outcome p = plimsoll_expect(refusals[_i].status, job, refusals[_i].words);
    ck_assert_msg(strstr(p.err, refusals[_i].says), "%s", p.err);
    ck_assert(!path_exists(in_dir(job, "m")));
    outcome_finish(&p);
}
END_TEST

int main(void) {
    Suite *s = suite_create("cli.merge_command");
    TCase *t = tcase_create("merge");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, the_merged_model_computes_what_base_and_adapter_compute, 0,
                        sizeof cases / sizeof *cases);
    tcase_add_test(t, json_tells_the_planned_and_the_allocated_bytes);
    tcase_add_test(t, a_run_can_end_with_the_merged_model);
    tcase_add_test(t, a_gguf_file_needs_of_the_model_its_config_alone);
    tcase_add_test(t, an_adapter_of_a_tied_head_is_no_gguf_file);
    tcase_add_loop_test(t, a_merge_that_cannot_be_says_why_and_writes_nothing, 0,
                        sizeof refusals / sizeof *refusals);
    suite_add_tcase(s, t);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
