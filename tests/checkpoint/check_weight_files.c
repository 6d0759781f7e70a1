/* check_weight_files.c - directories of weights as others leave them: files that are not there, and
 * what is there in their place. */
#include "tests/checkpoint/rig.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define INDEX_NAME "model.safetensors.index.json"

static char dir[64];
static struct pl_diag diag;

static void setup(void) {
    dir_make(dir);
    diag = (struct pl_diag){0};
}

static void teardown(void) {
    dir_remove(dir);
}

static void refused(const struct rig *r, pl_err err, const char *says, const char *hint) {
    diag = (struct pl_diag){0};
    ck_assert_str_eq(pl_err_code(pl_model_check_files(r->program, dir, &diag)), pl_err_code(err));
    ck_assert_msg(strstr(diag.message, says) != NULL, "`%s` lacks `%s`", diag.message, says);
    ck_assert_msg(strstr(pl_diag_hint_text(&diag), hint) != NULL, "`%s` lacks `%s`",
                  pl_diag_hint_text(&diag), hint);
}

static const struct {
    const char *file, *says, *hint;
} others[] = {
    {"pytorch_model.bin", "it has pytorch_model.bin", "save_pretrained("},
    {"pytorch_model.bin.index.json", "the index of shards that torch.save wrote",
     "save_pretrained("},
    {"model-00001-of-00002.safetensors", "there is no index", "hf download"},
    {"model.safetensors.incomplete", "a download that was not finished", "hf download"},
    {"a1b2c3.incomplete", "a download that was not finished", "hf download"},
    {"adapter_model.safetensors", "the weights of an adapter", "adapter_path"},
    {"consolidated.00.pth", "Meta's own layout", "convert_llama_weights_to_hf.py"},
    {"consolidated.safetensors", "mistral-inference", "model*.safetensors"},
    {"weights.Q4_K_M.gguf", "a GGUF file", "safetensors"},
    {"model.fp16.safetensors", "of another name", "rename"},
    {"model.pt", "torch.save", "save_pretrained()"},
    {"last.ckpt", "torch.save", "save_pretrained()"},
    {"tf_model.h5", "TensorFlow", "from_tf=True"},
    {"flax_model.msgpack", "Flax", "from_flax=True"},
    {"zero_to_fp32.py", "DeepSpeed", "python zero_to_fp32.py"},
    {"README.md", "has neither model.safetensors nor " INDEX_NAME, "a model is a directory"},
};

START_TEST(what_a_directory_has_instead_is_named) {
    struct rig r;
    rig_open(&r, &(struct rig_options){.dtype = PL_DTYPE_F32});
    spill(in(dir, "config.json"), "{}", 2);
    spill(in(dir, others[_i].file), "x", 1);
    refused(&r, PL_ERR_MODEL_FILE, others[_i].says, others[_i].hint);
    rig_close(&r);
}
END_TEST

START_TEST(missing_shards_are_counted) {
    struct rig r;
    unsigned n = 0;
    rig_open(&r, &(struct rig_options){.dtype = PL_DTYPE_F32});
    OK(rig_save_model(&r.io, dir, "{}", NULL, 4000, &diag));
    json_t *index = json_load_file(in(dir, INDEX_NAME), 0, NULL);
    const char *shard = json_string_value(
        json_object_get(json_object_get(index, "weight_map"), "model.norm.weight"));
    ck_assert_int_eq(sscanf(shard, "model-%*u-of-%u.safetensors", &n), 1);
    char says[64], last[64];
    snprintf(last, sizeof last, "%s", shard);
    ck_assert_int_eq(unlink(in(dir, last)), 0);
    snprintf(says, sizeof says, "is missing: %u of %u shards are there", n - 1, n);
    refused(&r, PL_ERR_MODEL_FILE, says, "hf download");
    refused(&r, PL_ERR_MODEL_FILE, last, "hf download");
    snprintf(last, sizeof last, "model-00001-of-%05u.safetensors", n);
    ck_assert_int_eq(unlink(in(dir, last)), 0);
    snprintf(says, sizeof says, "and 1 more are missing: %u of %u shards are there", n - 2, n);
    refused(&r, PL_ERR_MODEL_FILE, says, "hf download");
    spill(in(dir, "model-00001-of-00099.safetensors"), "x", 1);
    refused(&r, PL_ERR_MODEL_FILE, says, "model-00001-of-00099.safetensors is of another revision");
    json_decref(index);
    rig_close(&r);
}
END_TEST

int main(void) {
    Suite *s = suite_create("checkpoint.weight_files");
    TCase *t = tcase_create("weight_files");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_loop_test(t, what_a_directory_has_instead_is_named, 0,
                        sizeof others / sizeof *others);
    tcase_add_test(t, missing_shards_are_counted);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
