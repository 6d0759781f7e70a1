/* check_model_io.c - model directories in and out, and random starts. */
#include "runtime/checkpoint/convert.h"
#include "runtime/checkpoint/identity.h"
#include "runtime/checkpoint/init.h"
#include "runtime/checkpoint/model_io.h"
#include "runtime/checkpoint/safetensors.h"
#include "tests/checkpoint/rig.h"

#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_NAME  "model.safetensors"
#define INDEX_NAME "model.safetensors.index.json"

static char dir[64];
static struct pl_diag diag;

static void setup(void) {
    diag = (struct pl_diag){0};
    dir_make(dir);
}
static void teardown(void) {
    dir_remove(dir);
}

static const struct rig_options kinds[] = {
    {.dtype = PL_DTYPE_F32},
    {.dtype = PL_DTYPE_BF16, .bias = true},
    {.dtype = PL_DTYPE_F32, .qk_norm = true, .untied = true},
    {.dtype = PL_DTYPE_BF16, .untied = true, .staging_bytes = 4096},
};
enum { N_KINDS = sizeof kinds / sizeof *kinds };

START_TEST(a_saved_model_loads_bit_for_bit) {
    struct rig a, b;
    rig_open(&a, &kinds[_i]);
    rig_open(&b, &kinds[_i]);
    rig_scramble(&a, 7);
    OK(rig_save_model(&a.io, dir, "{}", NULL, PL_SHARD_BYTES, &diag));
    OK(pl_model_check_files(b.program, dir, &diag));
    OK(pl_model_load(&b.io, dir, &diag));
    ck_assert(rig_same(&a, &b, PL_ROLE_WEIGHT));
    rig_close(&a);
    rig_close(&b);
}
END_TEST

START_TEST(shards_hold_what_one_file_holds) {
    struct rig a, b;
    rig_open(&a, &kinds[_i]);
    rig_open(&b, &kinds[_i]);
    rig_scramble(&a, 11);
    OK(rig_save_model(&a.io, dir, "{}", NULL, 4000, &diag));
    ck_assert(!exists(in(dir, FILE_NAME)));
    OK(pl_model_load(&b.io, dir, &diag));
    ck_assert(rig_same(&a, &b, PL_ROLE_WEIGHT));
    json_t *index = json_load_file(in(dir, INDEX_NAME), 0, NULL);
    const json_t *map = json_object_get(index, "weight_map");
    const json_t *total = json_object_get(json_object_get(index, "metadata"), "total_size");
    ck_assert_uint_eq((uint64_t)json_integer_value(total),
                      pl_model_param_count(&a.model) * pl_dtype_bytes(kinds[_i].dtype));
    const char *shard = json_string_value(json_object_get(map, "model.norm.weight"));
    ck_assert_ptr_nonnull(shard);
    ck_assert(exists(in(dir, shard)));
    json_decref(index);
    rig_close(&a);
    rig_close(&b);
}
END_TEST

START_TEST(each_shard_keeps_the_limit) {
    struct rig a;
    rig_open(&a, &kinds[0]);
    OK(rig_save_model(&a.io, dir, "{}", NULL, 4000, &diag));
    for (unsigned k = 1, n = 1; k <= n; k++) {
        char name[64];
        struct pl_st_file f;
        if (k == 1)
            for (n = 1;
                 snprintf(name, 64, "model-00001-of-%05u.safetensors", n), !exists(in(dir, name));)
                ck_assert_uint_lt(n++, 100);
        snprintf(name, sizeof name, "model-%05u-of-%05u.safetensors", k, n);
        OK(pl_st_open(&f, in(dir, name), &diag));
        ck_assert(f.data_bytes <= 4000 || f.n == 1);
        ck_assert_uint_eq(f.data_offset % 8, 0);
        pl_st_close(&f);
    }
    rig_close(&a);
}
END_TEST

/* W1 of windows.h: each part of a fused matrix is one stretch of it. */
START_TEST(fused_slots_are_gathered_by_name) {
    struct rig r;
    rig_open(&r, &(struct rig_options){.dtype = PL_DTYPE_F32});
    uint32_t qkv = rig_find(&r, PL_ROLE_WEIGHT, PL_SLOT_QKV, 1);
    float *w = r.memory[qkv]; /* [16 + 8 + 8, 16] */
    struct pl_st_file f;
    float got[8 * 16];
    for (int i = 0; i < 32 * 16; i++)
        w[i] = (float)i;
    OK(rig_save_model(&r.io, dir, "{}", NULL, PL_SHARD_BYTES, &diag));
    OK(pl_st_open(&f, in(dir, FILE_NAME), &diag));
    const struct pl_st_entry *v = pl_st_find(&f, "model.layers.1.self_attn.v_proj.weight");
    ck_assert_ptr_nonnull(v);
    ck_assert_uint_eq(v->dims[0], 8);
    ck_assert_uint_eq(v->dims[1], 16);
    OK(pl_st_read(&f, v, 0, got, sizeof got, &diag));
    for (int i = 0; i < 8 * 16; i++)
        ck_assert(got[i] == (float)(24 * 16 + i));
    ck_assert_uint_eq(pl_st_find(&f, "model.norm.weight")->rank, 1);
    ck_assert_ptr_null(pl_st_find(&f, "lm_head.weight"));
    pl_st_close(&f);
    rig_close(&r);
}
END_TEST

struct rule { /* the change that st_rewrite makes to the tensor of this name; NULL = none */
    const char *name, *new_name, *dtype, *shape;
    bool drop;
};

static bool edit_one(struct st_edit *e, const void *arg) {
    const struct rule *rule = arg;
    if (strcmp(e->name, rule->name) != 0) return true;
    if (rule->new_name) snprintf(e->name, sizeof e->name, "%s", rule->new_name);
    if (rule->dtype) snprintf(e->dtype, sizeof e->dtype, "%s", rule->dtype);
    if (rule->shape) snprintf(e->shape, sizeof e->shape, "%s", rule->shape);
    return !rule->drop;
}

#define Q1 "model.layers.1.self_attn.q_proj.weight"
static const struct {
    struct rule rule;
    const char *says;
} wrong[] = {
    {{.name = Q1, .drop = true}, "tensor `" Q1 "` is missing"},
    {{.name = Q1, .new_name = "renamed"}, "tensor `" Q1 "` is missing"},
    {{.name = Q1, .shape = "[8, 32]"}, "`" Q1 "` has shape [8, 32], the model wants [16, 16]"},
    {{.name = Q1, .shape = "[256]"}, "`" Q1 "` has shape [256], the model wants [16, 16]"},
    {{.name = Q1, .shape = "[1, 1, 1, 16, 16]"}, "has shape [1, 1, 1, 16, ...]"},
    {{.name = "model.norm.weight", .shape = "[16, 1]"}, "has shape [16, 1], the model wants [16]"},
    {{.name = Q1, .dtype = "I32"}, "`" Q1 "` is stored as I32, not as F32, BF16 or F16"},
    {{.name = Q1, .dtype = "NEWTYPE"}, "`" Q1 "` is stored as NEWTYPE"},
};

START_TEST(weights_that_do_not_fit_the_model_are_named) {
    struct rig r;
    rig_open(&r, &(struct rig_options){.dtype = PL_DTYPE_F32});
    OK(rig_save_model(&r.io, dir, "{}", NULL, PL_SHARD_BYTES, &diag));
    st_rewrite(in(dir, FILE_NAME), edit_one, &wrong[_i].rule);
    rig_scramble(&r, 3);
    struct rig copy;
    rig_open(&copy, &(struct rig_options){.dtype = PL_DTYPE_F32});
    rig_scramble(&copy, 3);
    FAILS(pl_model_check_files(r.program, dir, &diag), PL_ERR_MODEL_WEIGHTS, wrong[_i].says);
    FAILS(pl_model_load(&r.io, dir, &diag), PL_ERR_MODEL_WEIGHTS, wrong[_i].says);
    ck_assert_msg(rig_same(&r, &copy, PL_ROLE_WEIGHT), "nothing may be loaded before all is right");
    rig_close(&copy);
    rig_close(&r);
}
END_TEST

/* --- tensors that the model has no row for ---------------------------------------------------- */

/* transformers 5.23 trains a head that is in the files and differs, whatever config.json says. */
START_TEST(a_head_beside_a_tied_embedding_must_be_its_copy) {
    const enum pl_dtype type = _i ? PL_DTYPE_BF16 : PL_DTYPE_F32;
    struct rig files, tied;
    rig_open(&files, &(struct rig_options){.dtype = type, .untied = true});
    rig_open(&tied, &(struct rig_options){.dtype = type});
    rig_scramble(&files, 5);
    uint32_t embedding = rig_find(&files, PL_ROLE_WEIGHT, PL_SLOT_EMBED, PL_NONE);
    uint32_t head = rig_find(&files, PL_ROLE_WEIGHT, PL_SLOT_HEAD, PL_NONE);
    size_t bytes = files.program->tensors[head].bytes;
    unsigned char *last = (unsigned char *)files.memory[head] + bytes - 1;
    memcpy(files.memory[head], files.memory[embedding], bytes);
    OK(rig_save_model(&files.io, dir, "{}", NULL, PL_SHARD_BYTES, &diag));
    OK(pl_model_check_files(tied.program, dir, &diag));
    OK(pl_model_load(&tied.io, dir, &diag));
    *last ^= 1;
    OK(rig_save_model(&files.io, dir, "{}", NULL, PL_SHARD_BYTES, &diag));
    FAILS(pl_model_check_files(tied.program, dir, &diag), PL_ERR_MODEL_WEIGHTS,
          "`lm_head.weight` differs from the embedding");
    FAILS(pl_model_load(&tied.io, dir, &diag), PL_ERR_MODEL_WEIGHTS, "tie_word_embeddings: true");
    OK(pl_model_load(&files.io, dir, &diag));
    rig_close(&tied);
    rig_close(&files);
}
END_TEST

START_TEST(surplus_tensors_are_noted_by_number_and_name) {
    struct rig files, r;
    struct pl_text notes = {0};
    rig_open(&files, &(struct rig_options){.dtype = PL_DTYPE_F32, .bias = true, .untied = true});
    rig_open(&r, &(struct rig_options){.dtype = PL_DTYPE_F32});
    OK(rig_save_model(&files.io, dir, "{}", NULL, PL_SHARD_BYTES, &diag));
    OK(pl_model_note_surplus(files.program, dir, &notes, &diag));
    ck_assert_str_eq(pl_text_str(&notes), "");
    OK(pl_model_note_surplus(r.program, dir, &notes, &diag));
    ck_assert_ptr_nonnull(strstr(pl_text_str(&notes),
                                 "9 tensors are not of this model and not used: "
                                 "`model.layers.0.self_attn.k_proj.bias`, "
                                 "`model.layers.0.self_attn.q_proj.bias`, "
                                 "`model.layers.0.self_attn.v_proj.bias`, ...\n"));
    pl_text_finish(&notes);
    rig_close(&r);
    rig_close(&files);
}
END_TEST

static bool call_f16(struct st_edit *e, const void *arg) {
    (void)arg;
    strcpy(e->dtype, "F16");
    return true;
}

static const struct {
    enum pl_dtype files;
    bool f16; /* 16 bits of the files are called F16 */
    uint32_t mode;
    enum pl_dtype tensors;
    const char *says; /* NULL: exact */
} exact[] = {
    {PL_DTYPE_BF16, false, PL_MODE_FULL, PL_DTYPE_BF16, NULL},
    {PL_DTYPE_BF16, false, PL_MODE_FULL, PL_DTYPE_F32, NULL},
    {PL_DTYPE_BF16, true, PL_MODE_FULL, PL_DTYPE_F32, NULL},
    {PL_DTYPE_F32, false, PL_MODE_FULL, PL_DTYPE_F32, NULL},
    {PL_DTYPE_F32, false, PL_MODE_QLORA, PL_DTYPE_F32, NULL}, /* codes round by intent */
    {PL_DTYPE_F32, false, PL_MODE_FULL, PL_DTYPE_BF16, "is stored as F32"},
    {PL_DTYPE_F32, false, PL_MODE_QLORA, PL_DTYPE_BF16, "embed_tokens.weight` is stored as F32"},
    {PL_DTYPE_BF16, true, PL_MODE_FULL, PL_DTYPE_BF16, "is stored as F16"},
};

START_TEST(files_that_would_be_rounded_are_told_from_those_that_fit) {
    struct rig files, r;
    rig_open(&files, &(struct rig_options){.dtype = exact[_i].files});
    rig_open(&r, &(struct rig_options){.dtype = exact[_i].tensors, .mode = exact[_i].mode});
    OK(rig_save_model(&files.io, dir, "{}", NULL, PL_SHARD_BYTES, &diag));
    if (exact[_i].f16) st_rewrite(in(dir, FILE_NAME), call_f16, NULL);
    OK(pl_model_check_files(r.program, dir, &diag));
    if (exact[_i].says)
        FAILS(pl_model_check_exact(r.program, dir, &diag), PL_ERR_MODEL_WEIGHTS, exact[_i].says);
    else
        OK(pl_model_check_exact(r.program, dir, &diag));
    rig_close(&files);
    rig_close(&r);
}
END_TEST

static bool drop_norms(struct st_edit *e, const void *arg) {
    (void)arg;
    return !strstr(e->name, "input_layernorm");
}

START_TEST(missing_tensors_are_counted) {
    struct rig r;
    rig_open(&r, &(struct rig_options){.dtype = PL_DTYPE_F32});
    OK(rig_save_model(&r.io, dir, "{}", NULL, PL_SHARD_BYTES, &diag));
    st_rewrite(in(dir, FILE_NAME), drop_norms, NULL);
    FAILS(pl_model_check_files(r.program, dir, &diag), PL_ERR_MODEL_WEIGHTS,
          "`model.layers.0.input_layernorm.weight` is missing (and 2 more)");
    rig_close(&r);
}
END_TEST

/* S3 of safetensors.h: an unknown type is no error where its tensor is not needed. */
START_TEST(extra_tensors_of_any_type_are_not_read) {
    struct rig a, b;
    rig_open(&a, &(struct rig_options){.dtype = PL_DTYPE_F32, .untied = true});
    rig_open(&b, &(struct rig_options){.dtype = PL_DTYPE_F32});
    rig_scramble(&a, 5);
    OK(rig_save_model(&a.io, dir, "{}", NULL, PL_SHARD_BYTES, &diag));
    const struct rule odd = {.name = "lm_head.weight", .new_name = "odd", .dtype = "STRANGE"};
    st_rewrite(in(dir, FILE_NAME), edit_one, &odd);
    OK(pl_model_load(&b.io, dir, &diag));
    uint32_t x = rig_find(&a, PL_ROLE_WEIGHT, PL_SLOT_EMBED, PL_NONE);
    uint32_t y = rig_find(&b, PL_ROLE_WEIGHT, PL_SLOT_EMBED, PL_NONE);
    ck_assert_mem_eq(a.memory[x], b.memory[y], 40 * 16 * 4);
    rig_close(&a);
    rig_close(&b);
}
END_TEST

START_TEST(a_missing_shard_and_a_tensor_outside_its_shard_are_named) {
    struct rig r;
    rig_open(&r, &(struct rig_options){.dtype = PL_DTYPE_F32});
    OK(rig_save_model(&r.io, dir, "{}", NULL, 4000, &diag));
    json_t *index = json_load_file(in(dir, INDEX_NAME), 0, NULL);
    json_t *map = json_object_get(index, "weight_map");
    char shard[64];
    snprintf(shard, sizeof shard, "%s", json_string_value(json_object_get(map, Q1)));
    json_object_set(map, "model.norm.weight", json_object_get(map, "model.embed_tokens.weight"));
    json_dump_file(index, in(dir, INDEX_NAME), 0);
    FAILS(pl_model_check_files(r.program, dir, &diag), PL_ERR_CHECKPOINT_FORMAT,
          "`model.norm.weight` is not in its shard model-00001");
    json_object_set_new(map, "model.norm.weight", json_string("../x.safetensors"));
    json_dump_file(index, in(dir, INDEX_NAME), 0);
    FAILS(pl_model_check_files(r.program, dir, &diag), PL_ERR_CHECKPOINT_FORMAT, "not a file name");
    json_object_del(map, "model.norm.weight");
    json_dump_file(index, in(dir, INDEX_NAME), 0);
    FAILS(pl_model_check_files(r.program, dir, &diag), PL_ERR_MODEL_WEIGHTS,
          "`model.norm.weight` is missing");
    ck_assert_int_eq(unlink(in(dir, shard)), 0);
    FAILS(pl_model_check_files(r.program, dir, &diag), PL_ERR_MODEL_FILE, shard);
    spill(in(dir, INDEX_NAME), "{\"weight_map\": 1}", 17);
    FAILS(pl_model_check_files(r.program, dir, &diag), PL_ERR_CHECKPOINT_FORMAT, "no weight_map");
    spill(in(dir, INDEX_NAME), "{\n{", 3);
    FAILS(pl_model_check_files(r.program, dir, &diag), PL_ERR_CHECKPOINT_FORMAT, "a key in quotes");
    json_decref(index);
    rig_close(&r);
}
END_TEST

START_TEST(a_directory_without_weights_is_a_model_error) {
    struct rig r;
    rig_open(&r, &(struct rig_options){.dtype = PL_DTYPE_F32});
    FAILS(pl_model_check_files(r.program, dir, &diag), PL_ERR_MODEL_FILE, "has neither");
    rig_close(&r);
}
END_TEST

/* Bytes this process has read through system calls; UINT64_MAX where the kernel does not say. */
static uint64_t bytes_read(void) {
    unsigned long long n = 0;
    FILE *f = fopen("/proc/self/io", "r");
    if (!f) return UINT64_MAX;
    int got = fscanf(f, "rchar: %llu", &n);
    fclose(f);
    return got == 1 ? n : UINT64_MAX;
}

/* A model of this width has 200 GB of weights: the file is a hole with a header. S1 of
 * safetensors.h: the bytes that are read are those of the header. */
START_TEST(checking_files_reads_headers_only) {
    struct rig r;
    rig_open(&r, &(struct rig_options){.dtype = PL_DTYPE_F32});
    OK(rig_save_model(&r.io, dir, "{}", NULL, PL_SHARD_BYTES, &diag));
    struct pl_st_file f;
    struct pl_text header = {0};
    uint64_t at = 0;
    OK(pl_st_open(&f, in(dir, FILE_NAME), &diag));
    for (uint64_t i = 0; i < f.n; i++) {
        char shape[PL_ST_SHAPE_TEXT];
        uint64_t bytes = f.entries[i].end - f.entries[i].begin;
        pl_st_shape_text(f.entries[i].rank, f.entries[i].dims, shape);
        pl_text_addf(&header,
                     "%c\"%s\":{\"dtype\":\"F32\",\"shape\":%s,\"data_offsets\":[%llu,%llu]}",
                     i ? ',' : '{', f.entries[i].name, shape, (unsigned long long)at,
                     (unsigned long long)(at + bytes));
        at += bytes;
    }
    const uint64_t extra = UINT64_C(1) << 40;
    pl_text_addf(
        &header, ",\"extra\":{\"dtype\":\"U8\",\"shape\":[%llu],\"data_offsets\":[%llu,%llu]}}",
        (unsigned long long)extra, (unsigned long long)at, (unsigned long long)(at + extra));
    pl_st_close(&f);
    st_spill(in(dir, FILE_NAME), header.data, "", 0);
    uint64_t file_bytes = 8 + header.len + at + extra;
    ck_assert_int_eq(truncate(in(dir, FILE_NAME), (off_t)file_bytes), 0);
    uint64_t before = bytes_read();
    OK(pl_model_check_files(r.program, dir, &diag));
    uint64_t after = bytes_read();
    if (before != UINT64_MAX) {
        ck_assert_uint_ge(after - before, 8 + header.len);
        ck_assert_uint_lt(after - before, 8 + header.len + 2048); /* and /proc/self/io itself */
    }
    pl_text_finish(&header);
    rig_close(&r);
}
END_TEST

static const struct {
    enum pl_dtype stored, held;
    bool master;
    uint64_t staging;
} conversions[] = {
    {PL_DTYPE_F32, PL_DTYPE_BF16, true, 4096},   {PL_DTYPE_F32, PL_DTYPE_BF16, false, 1 << 20},
    {PL_DTYPE_BF16, PL_DTYPE_F32, false, 4096},  {PL_DTYPE_BF16, PL_DTYPE_BF16, true, 4096},
    {PL_DTYPE_F16, PL_DTYPE_F32, false, 4096},   {PL_DTYPE_F16, PL_DTYPE_BF16, true, 4096},
    {PL_DTYPE_F16, PL_DTYPE_BF16, false, 65536},
};

static bool as_f16(struct st_edit *e, const void *arg) {
    (void)arg;
    snprintf(e->dtype, sizeof e->dtype, "F16");
    return true;
}

/* The embedding [40, 16], loaded from `stored`, must be the fp32 value rounded once to `held`, and
 * the master the fp32 value itself. */
START_TEST(loading_converts_and_fills_masters) {
    enum pl_dtype stored = conversions[_i].stored, held = conversions[_i].held;
    struct rig a, b;
    rig_open(&a, &(struct rig_options){.dtype = stored == PL_DTYPE_F32 ? stored : PL_DTYPE_BF16});
    rig_open(&b, &(struct rig_options){.dtype = held,
                                       .master = conversions[_i].master,
                                       .staging_bytes = conversions[_i].staging});
    rig_scramble(&a, 23);
    OK(rig_save_model(&a.io, dir, "{}", NULL, PL_SHARD_BYTES, &diag));
    if (stored == PL_DTYPE_F16) st_rewrite(in(dir, FILE_NAME), as_f16, NULL);
    OK(pl_model_load(&b.io, dir, &diag));
    float want[640];
    char rounded[640 * 4];
    uint32_t from = rig_find(&a, PL_ROLE_WEIGHT, PL_SLOT_EMBED, PL_NONE);
    uint32_t to = rig_find(&b, PL_ROLE_WEIGHT, PL_SLOT_EMBED, PL_NONE);
    pl_convert_to_f32(want, a.memory[from], stored, 640);
    pl_convert_from_f32(rounded, want, held, 640);
    ck_assert_mem_eq(b.memory[to], rounded, 640 * pl_dtype_bytes(held));
    if (conversions[_i].master) {
        uint32_t master = rig_find(&b, PL_ROLE_MASTER, PL_SLOT_EMBED, PL_NONE);
        ck_assert_mem_eq(b.memory[master], want, sizeof want);
    }
    rig_close(&a);
    rig_close(&b);
}
END_TEST

START_TEST(companions_are_copied_and_leftovers_removed) {
    struct rig r;
    char source[64];
    rig_open(&r, &(struct rig_options){.dtype = PL_DTYPE_F32, .staging_bytes = 4096});
    dir_make(source);
    char *big = malloc(20000);
    memset(big, 'x', 20000);
    spill(in(source, "tokenizer.json"), big, 20000);
    spill(in(source, "merges.txt"), "a b\n", 4);
    spill(in(source, "added_tokens.json"), "{}", 2);
    spill(in(source, "LICENSE"), "terms", 5);
    spill(in(source, "README.md"), "no", 2);
    OK(rig_save_model(&r.io, dir, "{\"a\": 1}", NULL, 4000, &diag));
    OK(rig_save_model(&r.io, dir, "{\"a\": 2}", &(struct pl_companions){.dirs = {source}},
                      PL_SHARD_BYTES, &diag));
    char *config = slurp(in(dir, "config.json")), *copy = slurp(in(dir, "tokenizer.json"));
    ck_assert_str_eq(config, "{\"a\": 2}");
    ck_assert_uint_eq(strlen(copy), 20000);
    ck_assert(exists(in(dir, "merges.txt")) && !exists(in(dir, "README.md")));
    ck_assert(exists(in(dir, "added_tokens.json")) && exists(in(dir, "LICENSE")));
    ck_assert(!exists(in(dir, "vocab.json")));
    ck_assert(exists(in(dir, FILE_NAME)) && !exists(in(dir, INDEX_NAME)));
    ck_assert(!exists(in(dir, "model-00001-of-00005.safetensors")));
    OK(rig_save_model(&r.io, dir, "{}", NULL, 4000, &diag));
    ck_assert(!exists(in(dir, FILE_NAME)));
    free(big);
    free(config);
    free(copy);
    dir_remove(source);
    rig_close(&r);
}
END_TEST

/* N2 of companions.h */
START_TEST(a_companion_that_cannot_be_read_is_an_error) {
    struct rig r;
    char source[64];
    rig_open(&r, &(struct rig_options){.dtype = PL_DTYPE_F32});
    dir_make(source);
    const struct pl_companions c = {.dirs = {source}};
    OK(rig_save_model(&r.io, dir, "{}", &c, PL_SHARD_BYTES, &diag));
    ck_assert_int_eq(mkdir(in(source, "merges.txt"), 0777), 0);
    FAILS(rig_save_model(&r.io, dir, "{}", &c, PL_SHARD_BYTES, &diag), PL_ERR_CHECKPOINT_FILE,
          "merges.txt");
    dir_remove(source);
    rig_close(&r);
}
END_TEST

static uint64_t weights_identity(void) {
    uint64_t identity;
    OK(pl_weights_identity(dir, &identity, &diag));
    return identity;
}

/* I2 of identity.h */
START_TEST(weights_are_known_by_their_content_however_they_are_cut) {
    struct rig r;
    rig_open(&r, &kinds[_i]);
    rig_scramble(&r, 3);
    OK(rig_save_model(&r.io, dir, "{}", NULL, PL_SHARD_BYTES, &diag));
    const uint64_t whole = weights_identity();
    OK(rig_save_model(&r.io, dir, "{}", NULL, 4000, &diag));
    ck_assert_uint_eq(weights_identity(), whole);
    unsigned char *norm = r.memory[rig_find(&r, PL_ROLE_WEIGHT, PL_SLOT_NORMF, PL_NONE)];
    norm[0] ^= 1;
    OK(rig_save_model(&r.io, dir, "{}", NULL, 4000, &diag));
    ck_assert_uint_ne(weights_identity(), whole);
    rig_close(&r);
}
END_TEST

static uint64_t config_identity(const char *json) {
    uint64_t identity;
    OK(pl_config_identity(json, strlen(json), &identity, &diag));
    return identity;
}

/* I1 of identity.h */
START_TEST(a_configuration_is_known_by_its_values) {
    const uint64_t identity = config_identity("{\"a\": 1, \"b\": [2, 3]}");
    ck_assert_uint_eq(config_identity("{\"b\":[2,3],\n \"a\":1}\n"), identity);
    ck_assert_uint_ne(config_identity("{\"a\": 1, \"b\": [3, 2]}"), identity);
    ck_assert_uint_ne(config_identity("{\"a\": 1, \"c\": [2, 3]}"), identity);
}
END_TEST

START_TEST(a_random_start_has_the_right_distribution) {
    struct rig r;
    rig_open(&r, &(struct rig_options){.dtype = PL_DTYPE_F32, .bias = true});
    OK(pl_model_init_random(&r.io, 42, &diag));
    double sum = 0, squares = 0;
    uint64_t n = 0;
    for (uint32_t i = 0; i < r.program->n_tensors; i++) {
        const struct pl_tensor *t = &r.program->tensors[i];
        const float *w = r.memory[i];
        if (t->role != PL_ROLE_WEIGHT) continue;
        for (uint64_t k = 0; k < t->bytes / 4; k++) {
            if (t->slot == PL_SLOT_NORM1 || t->slot == PL_SLOT_NORM2 || t->slot == PL_SLOT_NORMF)
                ck_assert(w[k] == 1.0f);
            else if (t->slot == PL_SLOT_QKV_B)
                ck_assert(w[k] == 0.0f);
            else
                sum += w[k], squares += (double)w[k] * w[k], n++;
        }
    }
    /* n = 6400 values: the mean has a standard error of 0.02/80, the variance of 1.8 % */
    ck_assert(fabs(sum / (double)n) < 4 * 0.02 / sqrt((double)n));
    ck_assert(fabs(squares / (double)n / 0.0004 - 1) < 4 * sqrt(2.0 / (double)n));
    rig_close(&r);
}
END_TEST

START_TEST(a_random_start_depends_on_seed_and_tensor_alone) {
    const struct rig_options small = {.dtype = PL_DTYPE_F32, .staging_bytes = 4096};
    struct rig a, b, c;
    rig_open(&a, &small);
    rig_open(&b, &(struct rig_options){.dtype = PL_DTYPE_F32});
    rig_open(&c, &(struct rig_options){.dtype = PL_DTYPE_BF16, .master = true});
    OK(pl_model_init_random(&a.io, 42, &diag));
    OK(pl_model_init_random(&b.io, 42, &diag));
    OK(pl_model_init_random(&c.io, 42, &diag));
    ck_assert(rig_same(&a, &b, PL_ROLE_WEIGHT));
    uint32_t w0 = rig_find(&a, PL_ROLE_WEIGHT, PL_SLOT_GU, 0);
    uint32_t w1 = rig_find(&a, PL_ROLE_WEIGHT, PL_SLOT_GU, 1);
    uint32_t master = rig_find(&c, PL_ROLE_MASTER, PL_SLOT_GU, 0);
    ck_assert_mem_eq(a.memory[w0], c.memory[master], 48 * 16 * 4);
    ck_assert_mem_ne(a.memory[w0], a.memory[w1], 64);
    /* gate and up are rows of one matrix, not copies of one stream */
    ck_assert_mem_ne(a.memory[w0], (char *)a.memory[w0] + 24 * 16 * 4, 64);
    OK(pl_model_init_random(&b.io, 43, &diag));
    ck_assert_mem_ne(a.memory[w0], b.memory[w0], 64);
    rig_close(&a);
    rig_close(&b);
    rig_close(&c);
}
END_TEST

static const struct rig_options starts[] = {
    {.dtype = PL_DTYPE_F32, .bias = true},
    {.dtype = PL_DTYPE_BF16, .qk_norm = true, .untied = true},
    {.dtype = PL_DTYPE_BF16, .master = true, .fused = true},
    {.dtype = PL_DTYPE_BF16, .mode = PL_MODE_LORA, .adapter_dtype = PL_DTYPE_F32, .lora_r = 5},
    {.dtype = PL_DTYPE_F32, .mode = PL_MODE_LORA, .adapter_dtype = PL_DTYPE_BF16},
};

START_TEST(kernels_start_with_the_bits_of_the_host) {
    const bool adapts = pl_mode_adapts(starts[_i].mode);
    struct rig_options options = starts[_i];
    struct rig by_host, by_kernels;
    rig_open(&by_host, &options);
    options.kernels = true;
    options.staging_bytes = 1; /* values do not pass through it */
    rig_open(&by_kernels, &options);
    struct rig *rigs[] = {&by_host, &by_kernels};
    for (int k = 0; k < 2; k++) {
        rig_scramble(rigs[k], (uint32_t)k);
        OK(pl_model_init_random(&rigs[k]->io, 42, &diag));
        if (adapts) OK(pl_adapter_init(&rigs[k]->io, 42, &diag));
    }
    ck_assert(rig_same(&by_host, &by_kernels, PL_ROLE_WEIGHT));
    if (options.master) ck_assert(rig_same(&by_host, &by_kernels, PL_ROLE_MASTER));
    if (adapts) ck_assert(rig_same(&by_host, &by_kernels, PL_ROLE_LORA_A));
    if (adapts) ck_assert(rig_same(&by_host, &by_kernels, PL_ROLE_LORA_B));
    rig_close(&by_host);
    rig_close(&by_kernels);
}
END_TEST

START_TEST(a_staging_buffer_that_is_too_small_is_refused) {
    struct rig r;
    rig_open(&r, &(struct rig_options){.dtype = PL_DTYPE_F32, .staging_bytes = 4095});
    FAILS(pl_model_init_random(&r.io, 1, &diag), PL_ERR_PLAN_BROKEN, "4095");
    rig_close(&r);
}
END_TEST

int main(void) {
    Suite *s = suite_create("checkpoint.model_io");
    TCase *t = tcase_create("model_io");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, a_saved_model_loads_bit_for_bit, 0, N_KINDS);
    tcase_add_loop_test(t, shards_hold_what_one_file_holds, 0, N_KINDS);
    tcase_add_test(t, each_shard_keeps_the_limit);
    tcase_add_test(t, fused_slots_are_gathered_by_name);
    tcase_add_loop_test(t, a_head_beside_a_tied_embedding_must_be_its_copy, 0, 2);
    tcase_add_test(t, surplus_tensors_are_noted_by_number_and_name);
    tcase_add_loop_test(t, weights_that_do_not_fit_the_model_are_named, 0,
                        sizeof wrong / sizeof *wrong);
    tcase_add_loop_test(t, files_that_would_be_rounded_are_told_from_those_that_fit, 0,
                        sizeof exact / sizeof *exact);
    tcase_add_test(t, missing_tensors_are_counted);
    tcase_add_test(t, extra_tensors_of_any_type_are_not_read);
    tcase_add_test(t, a_missing_shard_and_a_tensor_outside_its_shard_are_named);
    tcase_add_test(t, a_directory_without_weights_is_a_model_error);
    tcase_add_test(t, checking_files_reads_headers_only);
    tcase_add_loop_test(t, loading_converts_and_fills_masters, 0,
                        sizeof conversions / sizeof *conversions);
    tcase_add_test(t, companions_are_copied_and_leftovers_removed);
    tcase_add_test(t, a_companion_that_cannot_be_read_is_an_error);
    tcase_add_loop_test(t, weights_are_known_by_their_content_however_they_are_cut, 0, N_KINDS);
    tcase_add_test(t, a_configuration_is_known_by_its_values);
    tcase_add_test(t, a_random_start_has_the_right_distribution);
    tcase_add_test(t, a_random_start_depends_on_seed_and_tensor_alone);
    tcase_add_loop_test(t, kernels_start_with_the_bits_of_the_host, 0,
                        sizeof starts / sizeof *starts);
    tcase_add_test(t, a_staging_buffer_that_is_too_small_is_refused);
    suite_add_tcase(s, t);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
