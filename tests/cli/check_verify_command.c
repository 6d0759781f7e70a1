/* check_verify_command.c - `plimsoll verify` through the binary: whole directories pass, and one
 * damage of each kind is named with its file. */
#include "runtime/checkpoint/safetensors.h"
#include "tests/support/child.h"
#include "tests/support/scratch.h"
#include "tests/support/tiny.h"

#include <check.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char dir[SCRATCH_PATH];

static void set_up(void) {
    scratch_make(dir);
}

static void tear_down(void) {
    scratch_remove(dir);
}

static const char job[] = "batch_size: 2\nmax_steps: 2\nsave_steps: 1\n";

static void train(const char *mode, const char *word) {
    tiny_make(dir, &(struct tiny){.mode = mode}, job);
    plimsoll_train_expect(0, dir, (const char *[]){word, NULL});
}

static struct outcome verify(int status, const char *path) {
    return plimsoll_expect(status, dir, (const char *[]){"verify", path, NULL});
}

/* Nothing is known of other files except their contents. */
static void forget_digests(const char *path) {
    ck_assert_int_eq(unlink(in_dir(dir, textf("%s/trainer_state.json", path))), 0);
}

static const struct {
    const char *mode, *word;
} kinds[] = {{"full", NULL},
             {"full", "dtype=bf16"},
             {"lora", "lora_r=4"},
             {"qlora", "lora_r=4"},
             {"full", "optimizer=sgd"},
             {"lora", "optimizer=adamw_8bit"},
             {"qlora", "lora_modules_to_save=embed_tokens,lm_head"},
             {"lora", "lora_target_modules=embed_tokens,q_proj"}};

START_TEST(what_a_run_leaves_is_whole) {
    train(kinds[_i].mode, kinds[_i].word);
    struct outcome o = verify(0, "out");
    ck_assert_ptr_null(strstr(o.out, "damaged"));
    ck_assert_ptr_nonnull(strstr(o.out, "out/checkpoint-1/optimizer.safetensors"));
    ck_assert_ptr_nonnull(strstr(o.out, "all finite, as it was saved"));
    outcome_finish(&o);
    forget_digests("out/checkpoint-2");
    o = verify(0, "out/checkpoint-2");
    ck_assert_ptr_nonnull(strstr(o.out, "tensors, all finite"));
    ck_assert_ptr_null(strstr(o.out, "as it was saved"));
    outcome_finish(&o);
}
END_TEST

/* The bytes of the middle of a tensor's first element, in place. */
static void put_tensor(const char *path, const char *tensor, const void *bytes, size_t n) {
    struct pl_st_file f;
    struct pl_diag d = {0};
    ck_assert_msg(pl_st_open(&f, path, &d) == PL_ERR_OK, "%s", d.message);
    const struct pl_st_entry *e = pl_st_find(&f, tensor);
    ck_assert_msg(e && e->end - e->begin >= 8 * n, "no %s", tensor);
    FILE *out = fopen(path, "r+b");
    ck_assert_ptr_nonnull(out);
    ck_assert_int_eq(fseek(out, (long)(f.data_offset + e->begin + 5 * n), SEEK_SET), 0);
    ck_assert_uint_eq(fwrite(bytes, 1, n, out), n);
    ck_assert_int_eq(fclose(out), 0);
    pl_st_close(&f);
}

/* `to` is as long as `from`. */
static void replace(const char *path, const char *from, const char *to) {
    char *text = file_read(path, NULL), *at = strstr(text, from);
    ck_assert_msg(at && strlen(from) == strlen(to), "no %s in %s", from, text);
    memcpy(at, to, strlen(to));
    file_write(path, text);
    free(text);
}

static void flip_weights(const char *at) {
    put_tensor(in_dir(at, "model.safetensors"), "model.norm.weight", "\x01\x02\x03\x3f", 4);
}
static void nan_in_weights(const char *at) {
    put_tensor(in_dir(at, "model.safetensors"), "model.norm.weight", "\x00\x00\xc0\x7f", 4);
}
static void infinity_in_bf16(const char *at) {
    put_tensor(in_dir(at, "model.safetensors"), "model.norm.weight", "\x80\xff", 2);
}
static void nan_in_states(const char *at) {
    put_tensor(in_dir(at, "optimizer.safetensors"), "model.norm.weight.exp_avg_sq",
               "\x01\x00\x80\xff", 4);
}
static void cut_states(const char *at) {
    ck_assert_int_eq(truncate(in_dir(at, "optimizer.safetensors"), 5000), 0);
}
static void lose_weights(const char *at) {
    ck_assert_int_eq(unlink(in_dir(at, "model.safetensors")), 0);
}
static void other_width(const char *at) {
    replace(in_dir(at, "config.json"), "\"intermediate_size\": 48", "\"intermediate_size\": 40");
}
static void more_layers(const char *at) {
    replace(in_dir(at, "config.json"), "\"num_hidden_layers\": 2", "\"num_hidden_layers\": 3");
}
static void other_rank(const char *at) {
    replace(in_dir(at, "adapter_config.json"), "\"r\": 16", "\"r\": 12");
}
static void damaged_state(const char *at) {
    replace(in_dir(at, "trainer_state.json"), "\"step\": 2", "\"step\": 1");
}

static const struct {
    void (*damage)(const char *at);
    const char *mode, *word;
    bool digests;
    const char *says;
} damages[] = {
    {flip_weights, "full", NULL, true,
     "model.safetensors is damaged: it was saved with the digest"},
    {lose_weights, "full", NULL, true, "model.safetensors: No such file"},
    {cut_states, "full", NULL, true, "optimizer.safetensors is damaged: it was saved with"},
    {damaged_state, "full", NULL, true, "trainer_state.json is damaged"},
    {nan_in_weights, "full", NULL, false,
     "tensor `model.norm.weight`: element 5 is not a finite number"},
    {infinity_in_bf16, "full", "dtype=bf16", false,
     "tensor `model.norm.weight`: element 5 is not a finite number"},
    {nan_in_states, "full", NULL, false, "exp_avg_sq`: element 5 is not a finite number"},
    {cut_states, "full", NULL, false, "optimizer.safetensors: "},
    {other_width, "full", NULL, false, "has shape [48, 32], where [40, 32] belongs"},
    {more_layers, "full", NULL, false, "`model.layers.2."},
    {other_rank, "lora", NULL, false, "adapter_config.json says rank 12"},
};

/* V2 of verify.h: digests cover every byte. V3 of verify.h: without them numbers and shapes are
 * checked. */
START_TEST(every_damage_is_named) {
    train(damages[_i].mode, damages[_i].word);
    if (!damages[_i].digests) forget_digests("out/checkpoint-2");
    damages[_i].damage(in_dir(dir, "out/checkpoint-2"));
    struct outcome o = verify(5, "out");
    ck_assert_msg(strstr(o.out, damages[_i].says), "no `%s` in %s", damages[_i].says, o.out);
    const char *row = strstr(o.out, "damaged  ");
    ck_assert_msg(row && strstr(row, "out/checkpoint-2/"), "%s", o.out);
    ck_assert_ptr_nonnull(strstr(o.err, "error[CHECKPOINT_FORMAT]: "));
    ck_assert_ptr_null(strstr(o.out, "damaged  out/checkpoint-1/"));
    outcome_finish(&o);
    o = verify(0, "out/checkpoint-1");
    outcome_finish(&o);
}
END_TEST

START_TEST(the_answer_in_json_names_files_and_problems) {
    train("full", NULL);
    struct outcome o = plimsoll_expect(0, dir, (const char *[]){"verify", "out", "--json", NULL});
    json_t *root = json_loads(o.out, 0, NULL);
    ck_assert_msg(root && json_integer_value(json_object_get(root, "schema")) == 1, "%s", o.out);
    ck_assert_int_eq(json_integer_value(json_object_get(root, "problems")), 0);
    const json_t *first = json_array_get(json_object_get(root, "files"), 0);
    ck_assert(json_is_true(json_object_get(first, "digest")));
    ck_assert(json_is_null(json_object_get(first, "problem")));
    json_decref(root);
    outcome_finish(&o);
    nan_in_weights(in_dir(dir, "out"));
    o = plimsoll_expect(5, dir, (const char *[]){"verify", "out", "--json", NULL});
    root = json_loads(o.out, 0, NULL);
    ck_assert_int_eq(json_integer_value(json_object_get(root, "problems")), 1);
    const json_t *error = json_object_get(root, "error");
    ck_assert_str_eq(json_string_value(json_object_get(error, "code")), "CHECKPOINT_FORMAT");
    json_decref(root);
    outcome_finish(&o);
}
END_TEST

/* A tensor of each kind, appended to those of a file, and the report on its numbers. */
static const struct {
    const char *entry; /* an entry of 8 bytes, all ones */
    const char *says;
} types[] = {
    {"\"dtype\":\"%n\",\"shape\":[4]", "finite, 1 not checked: dtype `%n` of `extra` is not known"},
    {"\"dtype\":\"F5\",\"shape\":[4]", "1 not checked: dtype `F5` of `extra` is not known"},
    {"\"dtype\":\"I64\",\"shape\":[1]", "finite, 1 not floating\n"},
    {"\"dtype\":\"BOOL\",\"shape\":[8]", "finite, 1 not floating\n"},
    {"\"dtype\":\"F4\",\"shape\":[16]", "all finite\n"},
    {"\"dtype\":\"F8_E4M3\",\"shape\":[8]", "tensor `extra`: element 0 is not a finite number"},
    {"\"dtype\":\"F8_E5M2\",\"shape\":[8]", "tensor `extra`: element 0 is not a finite number"},
    {"\"dtype\":\"C64\",\"shape\":[1]", "tensor `extra`: element 0 is not a finite number"},
};

static void add_extra(const char *path, const char *entry) {
    size_t n;
    char *old = file_read(path, &n);
    uint64_t length;
    memcpy(&length, old, sizeof length);
    const uint64_t data = n - 8 - length;
    int at = (int)length; /* position of the last bracket of the header */
    while (old[8 + --at] != '}')
        continue;
    char *header = malloc(length + 200);
    ck_assert_ptr_nonnull(header);
    snprintf(header, length + 200, "%.*s,\"extra\":{%s,\"data_offsets\":[%llu,%llu]}}", at, old + 8,
             entry, (unsigned long long)data, (unsigned long long)data + 8);
    const uint64_t longer = strlen(header);
    FILE *f = fopen(path, "wb");
    ck_assert_ptr_nonnull(f);
    ck_assert_uint_eq(fwrite(&longer, 8, 1, f), 1);
    ck_assert_uint_eq(fwrite(header, longer, 1, f), 1);
    ck_assert_uint_eq(fwrite(old + 8 + length, data, 1, f), 1);
    ck_assert_uint_eq(fwrite("\xff\xff\xff\xff\xff\xff\xff\xff", 8, 1, f), 1);
    ck_assert_int_eq(fclose(f), 0);
    free(header);
    free(old);
}

START_TEST(nothing_is_said_of_numbers_that_were_not_read) {
    train("full", NULL);
    forget_digests("out");
    add_extra(in_dir(dir, "out/model.safetensors"), types[_i].entry);
    const bool damaged = strstr(types[_i].says, "is not a finite") != NULL;
    struct outcome o = verify(damaged ? 5 : 0, "out");
    ck_assert_msg(strstr(o.out, types[_i].says), "no `%s` in %s", types[_i].says, o.out);
    outcome_finish(&o);
}
END_TEST

/* It is whole, and nothing is known of what its shapes should be. */
START_TEST(what_is_not_supported_is_no_damage) {
    train("lora", "lora_r=4");
    forget_digests("out");
    replace(in_dir(dir, "out/adapter_config.json"), "\"use_dora\": false", "\"use_dora\": true ");
    struct outcome o = verify(0, "out");
    ck_assert_msg(
        strstr(o.out, "all finite; shapes not checked: out/adapter_config.json: use_dora"), "%s",
        o.out);
    outcome_finish(&o);
    scratch_remove(in_dir(dir, "out"));
    train("full", NULL);
    forget_digests("out");
    replace(in_dir(dir, "out/config.json"), "\"model_type\": \"llama\"",
            "\"model_type\": \"bloom\"");
    o = verify(0, "out");
    ck_assert_msg(strstr(o.out, "shapes not checked: ") && strstr(o.out, "bloom"), "%s", o.out);
    outcome_finish(&o);
}
END_TEST

START_TEST(a_model_without_safetensors_says_what_it_has) {
    tiny_make(dir, &(struct tiny){0}, job);
    file_write(in_dir(dir, "pytorch_model.bin"), "PK");
    struct outcome o = verify(5, ".");
    ck_assert_msg(strstr(o.err, "it has pytorch_model.bin") != NULL, "%s", o.err);
    outcome_finish(&o);
}
END_TEST

START_TEST(a_directory_without_any_of_these_is_an_error) {
    struct outcome o = verify(5, ".");
    ck_assert_ptr_nonnull(strstr(o.err, "holds no checkpoint, adapter or model"));
    outcome_finish(&o);
    o = verify(5, "none");
    ck_assert_ptr_nonnull(strstr(o.err, "none: No such file or directory"));
    outcome_finish(&o);
}
END_TEST

/* Another trainer's state is none of ours, and says nothing of the files. */
/* Removing a checkpoint begins with its state and may be cut off at any file; a start passes over
 * what is left, and so does this, unless it is asked about it. */
START_TEST(what_a_removal_left_is_no_damage) {
    train("full", NULL);
    forget_digests("out/checkpoint-1");
    ck_assert_int_eq(unlink(in_dir(dir, "out/checkpoint-1/config.json")), 0);
    struct outcome o = verify(0, "out");
    ck_assert_ptr_null(strstr(o.out, "out/checkpoint-1"));
    outcome_finish(&o);
    o = verify(5, "out/checkpoint-1");
    ck_assert_msg(strstr(o.out, "damaged  out/checkpoint-1/config.json: ") != NULL, "%s", o.out);
    outcome_finish(&o);
}
END_TEST

START_TEST(a_state_of_another_trainer_is_passed_over) {
    train("full", NULL);
    file_write(in_dir(dir, "out/checkpoint-2/trainer_state.json"), "{\"global_step\": 2}\n");
    struct outcome o = verify(0, "out/checkpoint-2");
    outcome_finish(&o);
}
END_TEST

int main(void) {
    Suite *s = suite_create("cli.verify_command");
    TCase *t = tcase_create("verify");
    tcase_add_checked_fixture(t, set_up, tear_down);
    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, what_a_run_leaves_is_whole, 0, (int)(sizeof kinds / sizeof *kinds));
    tcase_add_loop_test(t, every_damage_is_named, 0, (int)(sizeof damages / sizeof *damages));
    tcase_add_test(t, the_answer_in_json_names_files_and_problems);
    tcase_add_loop_test(t, nothing_is_said_of_numbers_that_were_not_read, 0,
                        (int)(sizeof types / sizeof *types));
    tcase_add_test(t, what_is_not_supported_is_no_damage);
    tcase_add_test(t, a_model_without_safetensors_says_what_it_has);
    tcase_add_test(t, a_directory_without_any_of_these_is_an_error);
    tcase_add_test(t, what_a_removal_left_is_no_damage);
    tcase_add_test(t, a_state_of_another_trainer_is_passed_over);
    suite_add_tcase(s, t);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
