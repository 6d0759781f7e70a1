/* check_weight_files.c - directories of weights as others leave them: files that are not there, and
 * what is there in their place. */
#include "estimator/config/job_text.h"
#include "runtime/checkpoint/adapter_io.h"
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
    {"pytorch_model.bin", "it has pytorch_model.bin", "').save_pretrained("},
    {"pytorch_model.bin.index.json", "the index of shards that torch.save wrote",
     "save_pretrained("},
    {"model-00001-of-00002.safetensors", "there is no index", "plimsoll fetch OWNER/NAME"},
    {"model.safetensors.incomplete", "a download that was not finished",
     "plimsoll fetch OWNER/NAME"},
    {"a1b2c3.incomplete", "a download that was not finished", "plimsoll fetch OWNER/NAME"},
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
    ck_assert_ptr_null(strstr(pl_diag_hint_text(&diag), "DIR"));
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
    refused(&r, PL_ERR_MODEL_FILE, says, "plimsoll fetch OWNER/NAME");
    refused(&r, PL_ERR_MODEL_FILE, last, "plimsoll fetch OWNER/NAME");
    snprintf(last, sizeof last, "model-00001-of-%05u.safetensors", n);
    ck_assert_int_eq(unlink(in(dir, last)), 0);
    snprintf(says, sizeof says, "and 1 more are missing: %u of %u shards are there", n - 2, n);
    refused(&r, PL_ERR_MODEL_FILE, says, "plimsoll fetch OWNER/NAME");
    spill(in(dir, "model-00001-of-00099.safetensors"), "x", 1);
    refused(&r, PL_ERR_MODEL_FILE, says, "model-00001-of-00099.safetensors is of another revision");
    json_decref(index);
    rig_close(&r);
}
END_TEST

/* ---- names ---- */

/* `from` of every name becomes `to`; "" is the beginning. */
struct rename {
    const char *from, *to, *note; /* note NULL: nothing is told */
};

static bool edit_name(struct st_edit *e, const void *arg) {
    const struct rename *x = arg;
    char name[sizeof e->name];
    const char *at = strstr(e->name, x->from);
    if (!at || (x->from[0] == 'm' && at != e->name)) return true;
    const int n = snprintf(name, sizeof name, "%.*s%s%s", (int)(at - e->name), e->name, x->to,
                           at + strlen(x->from));
    ck_assert_int_lt(n, (int)sizeof name);
    memcpy(e->name, name, sizeof name);
    return true;
}

static const struct rename of_model[] = {
    {"", "_orig_mod.", "without the `_orig_mod.` of torch.compile"},
    {"", "module.", "without the `module.` of DistributedDataParallel"},
    {"", "module._orig_mod.", "`module._orig_mod.model.embed_tokens.weight` is read as"},
    {"", "_fsdp_wrapped_module.", "of FSDP"},
    {"", "base_model.model.", "of PEFT"},
    {"layers.0.", "layers.0._fsdp_wrapped_module._checkpoint_wrapped_module.", "of FSDP"},
    {"layers.1.self_attn", "layers.1._orig_mod.self_attn", "of torch.compile"},
    {"q_proj.weight", "q_proj.base_layer.weight", "of PEFT"},
    {"model.", "", NULL},
    {"", "language_model.", NULL},
    {"model.", "model.language_model.", NULL},
};

START_TEST(names_of_a_wrapped_model_are_read) {
    struct rig a, b;
    struct pl_text notes = {0};
    const struct rename *x = &of_model[_i];
    const struct rig_options o = {.dtype = PL_DTYPE_F32};
    rig_open(&a, &o);
    rig_open(&b, &o);
    rig_scramble(&a, 11);
    OK(rig_save_model(&a.io, dir, "{}", NULL, PL_SHARD_BYTES, &diag));
    st_rewrite(in(dir, "model.safetensors"), edit_name, x);
    OK(pl_model_load(&b.io, dir, &diag));
    ck_assert(rig_same(&a, &b, PL_ROLE_WEIGHT));
    OK(pl_model_note_surplus(b.program, dir, &notes, &diag));
    ck_assert_msg(x->note ? strstr(pl_text_str(&notes), x->note) != NULL : !notes.len, "%s",
                  pl_text_str(&notes));
    pl_text_finish(&notes);
    rig_close(&a);
    rig_close(&b);
}
END_TEST

static const struct rename of_adapter[] = {
    {"base_model.model.model.", "base_model.model.model.language_model.", NULL},
    {"base_model.model.model.", "base_model.model.language_model.model.", NULL},
    {"base_model.model.", "_orig_mod.base_model.model.", NULL},
    {"base_model.model.", "module.base_model.model.", NULL},
    {"base_model.model.", "", NULL},
    {".weight", ".default.weight", NULL},
};

START_TEST(names_of_a_wrapped_adapter_are_read) {
    struct rig a, b;
    const struct rig_options o = {.mode = PL_MODE_LORA, .dtype = PL_DTYPE_F32};
    static struct pl_job job;
    OK(pl_job_defaults(&job, &diag));
    rig_open(&a, &o);
    rig_open(&b, &o);
    rig_scramble(&a, 12);
    OK(rig_save_adapter(&a.io, dir, &job, &diag));
    st_rewrite(in(dir, "adapter_model.safetensors"), edit_name, &of_adapter[_i]);
    OK(pl_adapter_load(&b.io, dir, &diag));
    ck_assert(rig_same(&a, &b, PL_ROLE_LORA_A));
    ck_assert(rig_same(&a, &b, PL_ROLE_LORA_B));
    pl_job_finish(&job);
    rig_close(&a);
    rig_close(&b);
}
END_TEST

static bool add_lora(struct st_edit *e, const void *arg) {
    (void)arg;
    char *q = strstr(e->name, "q_proj.weight"), *norm = strstr(e->name, "0.input_layernorm.weight");
    if (q) strcpy(q, "q_proj.base_layer.weight");
    if (norm) strcpy(norm, "0.self_attn.q_proj.lora_A.default.weight");
    return true;
}

static bool twice(struct st_edit *e, const void *arg) {
    (void)arg;
    if (strcmp(e->name, "model.norm.weight") == 0) strcpy(e->name, "module.model.embed.weight");
    if (strcmp(e->name, "model.embed_tokens.weight") == 0)
        strcpy(e->name, "_orig_mod.model.embed.weight");
    return true;
}

static const struct rename unknown[] = {
    {"", "actor.", "`actor.model.embed_tokens.weight` instead: 30 of 30 names begin with `actor.`"},
    {"model.", "transformer.", "`transformer.embed_tokens.weight` instead"},
    {"embed_tokens", "wte", "the file has 30 tensors, such as `lm_head.weight`"},
};

START_TEST(what_stands_in_place_of_a_name_is_told) {
    struct rig r;
    rig_open(&r, &(struct rig_options){.dtype = PL_DTYPE_F32, .untied = true});
    OK(rig_save_model(&r.io, dir, "{}", NULL, PL_SHARD_BYTES, &diag));
    st_rewrite(in(dir, "model.safetensors"), edit_name, &unknown[_i]);
    refused(&r, PL_ERR_MODEL_WEIGHTS, unknown[_i].note, _i ? "" : "without `actor.`");
    rig_close(&r);
}
END_TEST

/* P2 of plain_names.h: two tensors of one plain name are named and refused. */
START_TEST(names_that_mean_two_things_are_refused) {
    struct rig r;
    rig_open(&r, &(struct rig_options){.dtype = PL_DTYPE_F32});
    OK(rig_save_model(&r.io, dir, "{}", NULL, PL_SHARD_BYTES, &diag));
    st_rewrite(in(dir, "model.safetensors"), add_lora, NULL);
    refused(&r, PL_ERR_CHECKPOINT_FORMAT, "an adapter that is not merged", "merge_and_unload()");
    OK(rig_save_model(&r.io, dir, "{}", NULL, PL_SHARD_BYTES, &diag));
    st_rewrite(in(dir, "model.safetensors"), twice, NULL);
    refused(&r, PL_ERR_CHECKPOINT_FORMAT, "are both the tensor `model.embed.weight`", "keep one");
    rig_close(&r);
}
END_TEST

#define N(table) (int)(sizeof table / sizeof *table)

int main(void) {
    Suite *s = suite_create("checkpoint.weight_files");
    TCase *t = tcase_create("weight_files");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_loop_test(t, what_a_directory_has_instead_is_named, 0, N(others));
    tcase_add_test(t, missing_shards_are_counted);
    tcase_add_loop_test(t, names_of_a_wrapped_model_are_read, 0, N(of_model));
    tcase_add_loop_test(t, names_of_a_wrapped_adapter_are_read, 0, N(of_adapter));
    tcase_add_loop_test(t, what_stands_in_place_of_a_name_is_told, 0, N(unknown));
    tcase_add_test(t, names_that_mean_two_things_are_refused);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
