/* check_not_finite.c - numbers of a base or an adapter that are not finite, through the binary:
 * each command names the tensor, and writes nothing. PLIMSOLL names the binary, GOLDEN_CASES the
 * recorded runs. */
#include "runtime/checkpoint/safetensors.h"
#include "tests/support/child.h"
#include "tests/support/scratch.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define UP "model.layers.1.mlp.up_proj.weight"
#define QB "base_model.model.model.layers.1.self_attn.q_proj.lora_B.weight"

static char dir[SCRATCH_PATH], job[SCRATCH_PATH + 8]; /* job: a copy of a case */

static void setup(void) {
    const char *all = getenv("GOLDEN_CASES");
    ck_assert_ptr_nonnull(all);
    scratch_make(dir);
    snprintf(job, sizeof job, "%s/case", dir);
    scratch_copy(in_dir(all, "lora-llama"), job);
}
static void teardown(void) {
    scratch_remove(dir);
}

/* One fp32 element of a tensor, in place. */
static void poke(const char *path, const char *tensor, uint64_t row, uint64_t col, float value) {
    struct pl_st_file f;
    struct pl_diag d = {0};
    ck_assert_msg(pl_st_open(&f, in_dir(job, path), &d) == PL_ERR_OK, "%s", d.message);
    const struct pl_st_entry *e = pl_st_find(&f, tensor);
    ck_assert_msg(e != NULL, "no %s", tensor);
    ck_assert_int_eq(e->dtype, PL_DTYPE_F32);
    FILE *out = fopen(in_dir(job, path), "r+b");
    ck_assert_ptr_nonnull(out);
    ck_assert_int_eq(
        fseek(out, (long)(f.data_offset + e->begin + 4 * (row * e->dims[1] + col)), SEEK_SET), 0);
    ck_assert_uint_eq(fwrite(&value, sizeof value, 1, out), 1);
    ck_assert_int_eq(fclose(out), 0);
    pl_st_close(&f);
}

static void poke_adapter(float value) {
    poke("adapter/adapter_model.safetensors", QB, 0, 3, value);
}

static void poke_base(float value) {
    poke("model/model.safetensors", UP, 0, 3, value);
}

static void fails(int status, const char *const words[], const char *says, const char *hint) {
    struct outcome o = plimsoll_expect(status, job, words);
    ck_assert_msg(strstr(o.err, says) != NULL, "no `%s` in %s", says, o.err);
    ck_assert_msg(strstr(o.err, hint) != NULL, "no `%s` in %s", hint, o.err);
    outcome_finish(&o);
    ck_assert_int_ne(access(in_dir(job, "merged"), F_OK), 0);
    ck_assert_int_ne(access(in_dir(job, "a.gguf"), F_OK), 0);
}

#define BOTH "--model", "model", "--adapter", "adapter"
static const char *const merge[] = {"merge", BOTH, "--output", "merged", NULL};
static const char *const halve[] = {"merge", BOTH, "--output", "merged", "--dtype", "fp16", NULL};
static const char *const gguf[] = {"merge", BOTH, "--gguf", "a.gguf", NULL};
static const char *const gguf16[] = {"merge", BOTH, "--gguf", "a.gguf", "--dtype", "fp16", NULL};
static const char *const generate[] = {
    "generate", BOTH, "--prompt-ids", "1,2,3", "--max-new-tokens", "2", NULL};
static const char *const train[] = {"train", "run.yaml", "max_steps=1", NULL};

#define DAMAGED QB "`: element 3 is not a finite number"
static const struct {
    const char *const *words;
    float value;
    const char *says, *hint;
} of_adapter[] = {
    {merge, NAN, DAMAGED, "plimsoll verify adapter"},
    {gguf, NAN, DAMAGED, "plimsoll verify adapter"},
    {generate, NAN, DAMAGED, "plimsoll verify adapter"},
    {train, NAN, DAMAGED, "plimsoll verify adapter"},
    {merge, -INFINITY, DAMAGED, "plimsoll verify adapter"},
    {gguf16, 1e6f, QB "`: element 3 would be 1e+06, which F16 does not hold", "--dtype bf16"},
    {halve, 1e9f, "model.layers.1.self_attn.q_proj.weight`: element ", "--dtype bf16"},
    {merge, 3e38f, "q_proj.weight`: element ", "diverged"},
};

/* F5 of merge_files.h: a number that is not finite is refused where it is read, and where the
 * output's type does not hold it. */
START_TEST(an_adapter_that_is_not_finite_is_refused) {
    poke_adapter(of_adapter[_i].value);
    if (_i == 7)
        poke("adapter/adapter_model.safetensors", /* 3e38 times 10 */
             "base_model.model.model.layers.1.self_attn.q_proj.lora_A.weight", 3, 0, 1e3f);
    fails(5, of_adapter[_i].words, of_adapter[_i].says, of_adapter[_i].hint);
}
END_TEST

START_TEST(an_alpha_beyond_fp32_is_refused) {
    char *text = file_read(in_dir(job, "adapter/adapter_config.json"), NULL);
    char *at = strstr(text, "\"lora_alpha\": 16");
    ck_assert_ptr_nonnull(at);
    memcpy(at + strlen("\"lora_alpha\": "), "8e99", 4); /* over "16,\n" */
    at[strlen("\"lora_alpha\": 8e99")] = ',';
    file_write(in_dir(job, "adapter/adapter_config.json"), text);
    free(text);
    fails(5, merge, "lora_alpha 8e+99 makes a scale of 1e+99", "the adapter was trained with");
    fails(5, gguf, "which fp32 does not hold", "the adapter was trained with");
}
END_TEST

/* W1 of watch.h: an operand that is only read is named where it was not finite before. */
START_TEST(a_base_that_is_not_finite_is_named) {
    static const char *const alone[] = {"generate", "--model",          "model", "--prompt-ids",
                                        "1,2,3",    "--max-new-tokens", "2",     NULL};
    poke_base(NAN);
    fails(5, merge, UP "`: element 3 is not a finite number", "plimsoll verify model");
    fails(5, alone, UP "`: element 3 is not a finite number", "plimsoll verify model");
    /* no rate is to blame before the first update */
    fails(1, train, "the loss of the untouched weights is not finite", "plimsoll verify model");
    fails(1, train, ": layers.1.gu[80, 3] is nan, read by op ", "plimsoll verify model");
    fails(1, (const char *const[]){"train", "run.yaml", "output_dir=b", "adapter_path=null", NULL},
          UP "`: element 3 is not a finite number", "plimsoll verify model");
    struct outcome o = plimsoll_expect(5, job, (const char *const[]){"verify", "model", NULL});
    ck_assert_ptr_nonnull(strstr(o.out, UP "`: element 3 is not a finite number"));
    outcome_finish(&o);
}
END_TEST

/* W1 of watch.h: the op that wrote the first such value is named. All numbers of the files are
 * finite, and those that come of them are not. */
START_TEST(what_overflows_in_whole_files_is_told) {
    poke_base(3e38f);
    poke("model/model.safetensors", "model.norm.weight", 0, 3, 3e38f);
    fails(1, train, "the loss of the untouched weights is not finite", "dtype: fp32");
    fails(1, train, "inf, written by op ", "dtype: fp32");
    fails(1, generate, "the logits of the model are not finite", "--dtype fp32");
}
END_TEST

int main(void) {
    Suite *s = suite_create("cli.not_finite");
    TCase *t = tcase_create("not_finite");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, an_adapter_that_is_not_finite_is_refused, 0,
                        (int)(sizeof of_adapter / sizeof *of_adapter));
    tcase_add_test(t, an_alpha_beyond_fp32_is_refused);
    tcase_add_test(t, a_base_that_is_not_finite_is_named);
    tcase_add_test(t, what_overflows_in_whole_files_is_told);
    suite_add_tcase(s, t);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
