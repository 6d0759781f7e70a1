/* check_prequantised.c - files of bitsandbytes' codes go into 4-bit weights bit for bit, and those
 * made in another way are refused by the part that says so. */
#include "runtime/checkpoint/init.h"
#include "runtime/checkpoint/model_io.h"
#include "runtime/checkpoint/windows.h"
#include "runtime/kernels/quant.h"
#include "tests/checkpoint/rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILE_NAME "model.safetensors"

static struct pl_diag diag;
static char dir[64];

static void setup(void) {
    diag = (struct pl_diag){0};
    dir_make(dir);
}
static void teardown(void) {
    dir_remove(dir);
}

static const struct rig_options kinds[] = {
    {.mode = PL_MODE_QLORA, .dtype = PL_DTYPE_BF16, .wide = true},
    {.mode = PL_MODE_QLORA, .dtype = PL_DTYPE_BF16, .wide = true, .single_quant = true},
    {.mode = PL_MODE_QLORA, .dtype = PL_DTYPE_BF16, .wide = true, .fused = true},
    {.mode = PL_MODE_QLORA, .dtype = PL_DTYPE_BF16, .wide = true, .experts = "qwen3_moe"},
    {.mode = PL_MODE_QLORA,
     .dtype = PL_DTYPE_BF16,
     .wide = true,
     .experts = "qwen3_moe",
     .single_quant = true},
};
enum { N_KINDS = sizeof kinds / sizeof *kinds };

struct file {
    struct pl_text header, data;
};

static void put_part(struct file *f, const char *name, const char *part, const char *dtype,
                     const char *shape, const void *data, uint64_t bytes) {
    pl_text_addf(&f->header,
                 "%c\"%s%s%s\":{\"dtype\":\"%s\",\"shape\":%s,\"data_offsets\":[%zu,%zu]}",
                 f->header.len ? ',' : '{', name, *part ? "." : "", part, dtype, shape, f->data.len,
                 f->data.len + (size_t)bytes);
    pl_text_addn(&f->data, data, (size_t)bytes);
}

static void put_vector(struct file *f, const char *name, const char *part, const char *dtype,
                       const void *data, uint64_t n) {
    char shape[32];
    snprintf(shape, sizeof shape, "[%llu]", (unsigned long long)n);
    put_part(f, name, part, dtype, shape, data, n * (strcmp(dtype, "F32") == 0 ? 4 : 1));
}

/* Writes the parts of a matrix as QuantState.as_dict(packed=True) of bitsandbytes names and stores
 * them. */
static void put_codes(struct file *f, const struct rig *r, const struct pl_window *w) {
    const struct pl_codes_place own = pl_window_codes_place(w, 0);
    const float *absmax = (const float *)r->memory[w->absmax] + own.absmax;
    uint64_t blocks = pl_quant_blocks(w->count), nests = pl_quant_nests(w->count);
    float map[PL_QUANT_MAP_SIZE];
    char text[512], shape[48];
    snprintf(shape, sizeof shape, "[%llu, 1]", (unsigned long long)pl_quant_codes_bytes(w->count));
    put_part(f, w->name, "", "U8", shape, (const char *)r->memory[w->tensor] + own.codes,
             pl_quant_codes_bytes(w->count));
    put_vector(f, w->name, "quant_map", "F32", pl_quant_table(PL_QUANT_NF4), 16);
    int n = snprintf(text, sizeof text,
                     "{\"quant_type\": \"nf4\", \"blocksize\": 64, \"dtype\": \"bfloat16\", "
                     "\"shape\": [%d, %d]",
                     (int)w->dims[0], (int)w->dims[1]);
    if (w->absmax8 == PL_NONE) {
        put_vector(f, w->name, "absmax", "F32", absmax, blocks);
    } else {
        pl_quant_map_values(true, map);
        put_vector(f, w->name, "absmax", "U8", (const char *)r->memory[w->absmax8] + own.absmax8,
                   blocks);
        put_vector(f, w->name, "nested_absmax", "F32", absmax, nests);
        put_vector(f, w->name, "nested_quant_map", "F32", map, PL_QUANT_MAP_SIZE);
        n += snprintf(text + n, sizeof text - (size_t)n,
                      ", \"nested_blocksize\": 256, \"nested_dtype\": \"float32\", "
                      "\"nested_offset\": %.17g",
                      (double)absmax[nests]);
    }
    n += snprintf(text + n, sizeof text - (size_t)n, "}");
    put_vector(f, w->name, "quant_state.bitsandbytes__nf4", "U8", text, (uint64_t)n);
}

/* The model of r, whose matrices are codes, as transformers would save it. */
static void save_codes(const struct rig *r) {
    struct pl_windows w = {0};
    struct file f = {0};
    OK(pl_windows_add_model(&w, r->program, &diag));
    for (uint32_t i = 0; i < w.n; i++) {
        const struct pl_window *item = &w.items[i];
        char shape[64];
        if (item->quantised) {
            put_codes(&f, r, item);
            continue;
        }
        snprintf(shape, sizeof shape, item->rank == 2 ? "[%d, %d]" : "[%d]", (int)item->dims[0],
                 (int)item->dims[1]);
        put_part(&f, item->name, "", "BF16", shape,
                 (const char *)r->memory[item->tensor] + 2 * item->first, 2 * item->count);
    }
    pl_text_add(&f.header, "}");
    ck_assert(!f.header.failed && !f.data.failed);
    st_spill(in(dir, FILE_NAME), f.header.data, f.data.data, f.data.len);
    pl_text_finish(&f.header);
    pl_text_finish(&f.data);
    pl_windows_finish(&w);
}

START_TEST(codes_and_scales_arrive_bit_for_bit) {
    struct rig made, read;
    struct rig_options narrow = kinds[_i];
    narrow.staging_bytes = 4096; /* smaller than any group that is quantised */
    rig_open(&made, &kinds[_i]);
    rig_open(&read, &narrow);
    OK(pl_model_init_random(&made.io, 5, &diag));
    save_codes(&made);
    OK(pl_model_check_files(read.program, dir, &diag));
    OK(pl_model_load(&read.io, dir, &diag));
    ck_assert(rig_same(&made, &read, PL_ROLE_CODES));
    ck_assert(rig_same(&made, &read, PL_ROLE_ABSMAX));
    ck_assert(rig_same(&made, &read, PL_ROLE_WEIGHT));
    if (!kinds[_i].single_quant) ck_assert(rig_same(&made, &read, PL_ROLE_ABSMAX8));
    rig_close(&made);
    rig_close(&read);
}
END_TEST

/* Replaces the first `from` after the named tensor's entry; same length, so that nothing moves. */
static void patch(const char *part, const char *from, const char *to) {
    struct pl_st_file f;
    char name[256];
    snprintf(name, sizeof name, "model.layers.1.self_attn.o_proj.weight.%s", part);
    OK(pl_st_open(&f, in(dir, FILE_NAME), &diag));
    const struct pl_st_entry *e = pl_st_find(&f, name);
    ck_assert_ptr_nonnull(e);
    uint64_t first = f.data_offset + e->begin, bytes = f.data_offset + f.data_bytes;
    uint64_t length = e->end - e->begin;
    pl_st_close(&f);
    char *all = slurp(in(dir, FILE_NAME));
    char *at = memmem(all + first, length, from, strlen(from));
    ck_assert_ptr_nonnull(at);
    memcpy(at, to, strlen(to));
    spill(in(dir, FILE_NAME), all, bytes);
    free(all);
}

static const struct {
    const char *part, *from, *to, *says;
} patches[] = {
    {"quant_state.bitsandbytes__nf4", "\"blocksize\": 64", "\"blocksize\": 32",
     "gives a block size other than 64"},
    {"quant_state.bitsandbytes__nf4", "\"nested_blocksize\": 256", "\"nested_blocksize\": 128",
     "gives a nested block size other than 256"},
    {"quant_state.bitsandbytes__nf4", "\"nested_offset\"", "\"nested_ofsett\"",
     "or no nested_offset"},
    {"quant_state.bitsandbytes__nf4", "\"shape\": [", "\"shape\": 7,", "is not a JSON object"},
    {"quant_state.bitsandbytes__nf4", "\"shape\"", "\"shope\"", "gives another shape"},
    {"quant_map", "\x80\xbf", "\x80\x3f", "is not the table of this code"}, /* -1 becomes 1 */
    {"nested_quant_map", "\x80\x3f", "\x80\xbf", "is not the table of this code"},
};

START_TEST(codes_of_another_make_are_refused_by_the_part) {
    struct rig r;
    rig_open(&r, &kinds[0]);
    OK(pl_model_init_random(&r.io, 5, &diag));
    save_codes(&r);
    patch(patches[_i].part, patches[_i].from, patches[_i].to);
    FAILS(pl_model_check_files(r.program, dir, &diag), PL_ERR_MODEL_WEIGHTS, patches[_i].says);
    rig_close(&r);
}
END_TEST

struct edit {
    const char *part, *shape, *says; /* shape NULL: the tensor is dropped */
    bool borrowed;                   /* and that of down_proj, of another length, takes its place */
};
static const struct edit edits[] = {
    {"absmax", NULL, "o_proj.weight.absmax` is missing", false},
    {"nested_absmax", NULL, "o_proj.weight.nested_absmax` is missing", false},
    {"quant_map", NULL, "o_proj.weight.quant_map` is missing", false},
    {"nested_quant_map", NULL, "o_proj.weight.nested_quant_map` is missing", false},
    {"quant_state.bitsandbytes__nf4", NULL, "bitsandbytes__nf4` is missing", false},
    {"quant_map", "[4, 4]", "o_proj.weight.quant_map` has another type or length", false},
    {"absmax", NULL, "o_proj.weight.absmax` has another type or length", true},
};

static bool edit_part(struct st_edit *e, const void *arg) {
    const struct edit *edit = arg;
    char name[128];
    snprintf(name, sizeof name, "model.layers.1.mlp.down_proj.weight.%s", edit->part);
    bool borrowed = edit->borrowed && strcmp(e->name, name) == 0;
    snprintf(name, sizeof name, "model.layers.1.self_attn.o_proj.weight.%s", edit->part);
    if (borrowed) snprintf(e->name, sizeof e->name, "%s", name);
    if (borrowed || strcmp(e->name, name) != 0) return true;
    if (!edit->shape) return false;
    snprintf(e->shape, sizeof e->shape, "%s", edit->shape);
    return true;
}

START_TEST(a_missing_part_is_named) {
    struct rig r;
    rig_open(&r, &kinds[0]);
    OK(pl_model_init_random(&r.io, 5, &diag));
    save_codes(&r);
    st_rewrite(in(dir, FILE_NAME), edit_part, &edits[_i]);
    FAILS(pl_model_check_files(r.program, dir, &diag), PL_ERR_MODEL_WEIGHTS, edits[_i].says);
    rig_close(&r);
}
END_TEST

START_TEST(scales_of_the_other_depth_are_refused) {
    struct rig deep, flat;
    rig_open(&deep, &kinds[0]);
    rig_open(&flat, &kinds[1]);
    OK(pl_model_init_random(&deep.io, 5, &diag));
    save_codes(&deep);
    FAILS(pl_model_check_files(flat.program, dir, &diag), PL_ERR_MODEL_WEIGHTS,
          "absmax` has another type or length");
    rig_close(&deep);
    rig_close(&flat);
}
END_TEST

static bool call_it_codes(struct st_edit *e, const void *arg) {
    (void)arg;
    if (!strstr(e->name, "experts.gate_up_proj") || strstr(e->name, "bias")) return true;
    snprintf(e->dtype, sizeof e->dtype, "U8");
    snprintf(e->shape, sizeof e->shape, "[%d, 1]", 4 * 32 * 64 * 2);
    return true;
}

/* bitsandbytes can quantise the experts of a layer as one matrix, whose absmax then share an
 * offset. */
START_TEST(experts_that_are_codes_of_one_matrix_are_refused) {
    struct rig plain, r;
    const struct rig_options options = {
        .mode = PL_MODE_FULL, .dtype = PL_DTYPE_BF16, .experts = "gpt_oss"};
    struct rig_options packed = options;
    packed.mode = PL_MODE_QLORA;
    rig_open(&plain, &options);
    rig_open(&r, &packed);
    OK(pl_model_init_random(&plain.io, 5, &diag));
    OK(rig_save_model(&plain.io, dir, "{}", NULL, PL_SHARD_BYTES, &diag));
    st_rewrite(in(dir, FILE_NAME), call_it_codes, NULL);
    FAILS(pl_model_check_files(r.program, dir, &diag), PL_ERR_MODEL_WEIGHTS,
          "`model.layers.0.mlp.experts.gate_up_proj` holds the codes of all experts");
    rig_close(&r);
    rig_close(&plain);
}
END_TEST

int main(void) {
    Suite *s = suite_create("checkpoint.prequantised");
    TCase *t = tcase_create("prequantised");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, codes_and_scales_arrive_bit_for_bit, 0, N_KINDS);
    tcase_add_loop_test(t, codes_of_another_make_are_refused_by_the_part, 0,
                        sizeof patches / sizeof *patches);
    tcase_add_loop_test(t, a_missing_part_is_named, 0, sizeof edits / sizeof *edits);
    tcase_add_test(t, experts_that_are_codes_of_one_matrix_are_refused);
    tcase_add_test(t, scales_of_the_other_depth_are_refused);
    suite_add_tcase(s, t);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
