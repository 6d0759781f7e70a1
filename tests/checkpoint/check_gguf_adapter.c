/* check_gguf_adapter.c - the GGUF adapter, read back by a reader that allows nothing else. */
#include "estimator/config/job_text.h"
#include "runtime/checkpoint/convert.h"
#include "runtime/checkpoint/durable.h"
#include "runtime/checkpoint/gguf_adapter.h"
#include "runtime/checkpoint/gguf_names.h"
#include "tests/checkpoint/rig.h"
#include "tests/support/scratch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILE_NAME "adapter.gguf"
#define MOST      64 /* tensors and values of a file here */

static char dir[64];
static struct pl_diag diag;
static struct pl_job job;

static void setup(void) {
    diag = (struct pl_diag){0};
    OK(pl_job_defaults(&job, &diag));
    dir_make(dir);
}
static void teardown(void) {
    pl_checkpoint_set_fault(NULL);
    pl_job_finish(&job);
    dir_remove(dir);
}

/* --- the reader ------------------------------------------------------------------------------ */

struct tensor {
    char name[64];
    uint64_t ne[2], offset;
    uint32_t type;
};
struct gguf {
    char *data; /* owned */
    size_t bytes, at, base;
    uint64_t n_values, n_tensors;
    char keys[MOST][64], texts[MOST][64];
    uint32_t kinds[MOST], bits[MOST];
    struct tensor tensors[MOST];
};

static uint64_t take(struct gguf *g, int bytes) {
    uint64_t v = 0;
    ck_assert_uint_le(g->at + (size_t)bytes, g->bytes);
    for (int i = bytes - 1; i >= 0; i--)
        v = v << 8 | (unsigned char)g->data[g->at + (size_t)i];
    g->at += (size_t)bytes;
    return v;
}

static void take_string(struct gguf *g, char out[64]) {
    uint64_t n = take(g, 8);
    ck_assert_uint_lt(n, 64);
    ck_assert_uint_le(g->at + n, g->bytes);
    memcpy(out, g->data + g->at, n);
    out[n] = 0;
    g->at += n;
}

static void take_padding(struct gguf *g) {
    for (; g->at % 32; g->at++)
        ck_assert_int_eq(g->data[g->at], 0);
}

static size_t tensor_size(const struct tensor *t) {
    return t->ne[0] * t->ne[1] * (t->type == 0 ? 4 : 2);
}

/* Every byte of the file belongs to a field, a tensor or padding of zeros. G1 of gguf_adapter.h:
 * the version, the order and the alignment are checked. */
static void gguf_read(struct gguf *g) {
    *g = (struct gguf){0};
    g->data = file_read(in(dir, FILE_NAME), &g->bytes);
    ck_assert_uint_eq(take(g, 4), 0x46554747); /* GGUF */
    ck_assert_uint_eq(take(g, 4), 3);
    g->n_tensors = take(g, 8);
    g->n_values = take(g, 8);
    ck_assert(g->n_tensors <= MOST && g->n_values <= MOST);
    for (uint64_t i = 0; i < g->n_values; i++) {
        take_string(g, g->keys[i]);
        g->kinds[i] = (uint32_t)take(g, 4);
        if (g->kinds[i] == 8)
            take_string(g, g->texts[i]);
        else
            g->bits[i] = (uint32_t)take(g, 4);
    }
    for (uint64_t i = 0; i < g->n_tensors; i++) {
        struct tensor *t = &g->tensors[i];
        take_string(g, t->name);
        ck_assert_uint_eq(take(g, 4), 2);
        t->ne[0] = take(g, 8);
        t->ne[1] = take(g, 8);
        t->type = (uint32_t)take(g, 4);
        t->offset = take(g, 8);
    }
    take_padding(g);
    g->base = g->at;
    for (uint64_t i = 0; i < g->n_tensors; i++) {
        ck_assert_uint_eq(g->base + g->tensors[i].offset, g->at);
        g->at += tensor_size(&g->tensors[i]);
        ck_assert_uint_le(g->at, g->bytes);
        take_padding(g);
    }
    ck_assert_uint_eq(g->at, g->bytes);
}

static const struct tensor *find_tensor(const struct gguf *g, const char *name) {
    for (uint64_t i = 0; i < g->n_tensors; i++)
        if (strcmp(g->tensors[i].name, name) == 0) return &g->tensors[i];
    ck_abort_msg("no tensor %s", name);
}

static uint64_t find_value(const struct gguf *g, const char *key, uint32_t kind) {
    for (uint64_t i = 0; i < g->n_values; i++) {
        if (strcmp(g->keys[i], key) != 0) continue;
        ck_assert_uint_eq(g->kinds[i], kind);
        return i;
    }
    ck_abort_msg("no value %s", key);
}

static float real_value(const struct gguf *g, const char *key) {
    float v;
    memcpy(&v, &g->bits[find_value(g, key, 6)], 4);
    return v;
}

/* --- the writer ------------------------------------------------------------------------------ */

static struct pl_merge_buffers work_buffers(void *ctx, uint32_t row, uint64_t cols) {
    ck_assert(row == PL_NONE && cols == 0);
    return *(struct pl_merge_buffers *)ctx;
}
static pl_err no_product(void *ctx, uint32_t row, uint64_t cols, uint64_t n, struct pl_diag *d) {
    (void)ctx, (void)row, (void)cols, (void)n;
    return pl_diag_set(d, PL_ERR_PLAN_BROKEN, "an export multiplies nothing");
}
static pl_err go_on(void *ctx, uint64_t bytes, struct pl_diag *d) {
    (void)ctx, (void)bytes, (void)d;
    return PL_ERR_OK;
}

/* Element k of every matrix of the adapter is k / 16, B's sign negative. */
static void save_adapter(struct rig *r, const struct rig_options *o) {
    rig_open(r, o);
    for (uint32_t i = 0; i < r->program->n_tensors; i++) {
        const struct pl_tensor *t = &r->program->tensors[i];
        float *w = r->memory[i];
        for (uint64_t k = 0; t->category == PL_CATEGORY_ADAPTER && k < t->bytes / 4; k++)
            w[k] = (float)k / (t->role == PL_ROLE_LORA_A ? 16.0f : -16.0f);
    }
    OK(rig_save_adapter(&r->io, dir, &job, &diag));
}

static pl_err export_adapter(const struct rig *r, enum pl_dtype dtype) {
    struct pl_merge_files f;
    float values[4096], raw[4096];
    struct pl_merge_buffers buffers = {.raw = raw, .values = values, .elements = 4096};
    const struct pl_merge_work work = {work_buffers, no_product, go_on, &buffers};
    pl_err err = pl_merge_files_open(&f, &r->model, NULL, dir, &diag);
    if (err == PL_ERR_OK)
        err = pl_gguf_write_adapter(&f, &r->model, &work, in(dir, FILE_NAME), dtype, &diag);
    pl_merge_files_close(&f);
    return err;
}

static const struct {
    struct rig_options options;
    const char *architecture;
    bool permuted;
    const char *names[5]; /* modules of a layer, as llama.cpp has them */
} families[] = {
    {{.mode = PL_MODE_LORA},
     "llama",
     true,
     {"attn_q", "attn_k", "attn_v", "attn_output", "ffn_down"}},
    {{.mode = PL_MODE_LORA, .bias = true},
     "qwen2",
     false,
     {"attn_q", "attn_k", "ffn_gate", "ffn_up", "ffn_down"}},
    {{.mode = PL_MODE_LORA, .qk_norm = true},
     "qwen3",
     false,
     {"attn_q", "attn_k", "ffn_gate", "ffn_up", "attn_output"}},
    {{.mode = PL_MODE_LORA, .fused = true},
     "phi3",
     false,
     {"attn_qkv", "attn_output", "ffn_up", "ffn_down", "attn_qkv"}},
};
enum { N_FAMILIES = sizeof families / sizeof *families };

/* G2 of gguf_adapter.h: a name or a shape that llama.cpp does not know ends the test. */
START_TEST(names_and_metadata_are_those_llama_cpp_reads) {
    struct rig r;
    struct gguf g;
    save_adapter(&r, &families[_i].options);
    OK(export_adapter(&r, PL_DTYPE_F32));
    gguf_read(&g);
    ck_assert_str_eq(g.texts[find_value(&g, "general.type", 8)], "adapter");
    ck_assert_str_eq(g.texts[find_value(&g, "adapter.type", 8)], "lora");
    ck_assert_str_eq(g.texts[find_value(&g, "general.architecture", 8)], families[_i].architecture);
    ck_assert_str_eq(g.keys[0], "general.architecture");
    ck_assert(real_value(&g, "adapter.lora.alpha") == 8);
    ck_assert_uint_eq(g.n_tensors, families[_i].options.fused ? 3 * 4 * 2 : 3 * 7 * 2);
    for (int layer = 0; layer < 3; layer++) {
        for (int k = 0; k < 5; k++) {
            const char *name = families[_i].names[k];
            const struct tensor *a = find_tensor(&g, textf("blk.%d.%s.weight.lora_a", layer, name));
            const struct tensor *b = find_tensor(&g, textf("blk.%d.%s.weight.lora_b", layer, name));
            /* llama.cpp: "lora_a tensor is not transposed" where the ranks do not meet */
            ck_assert_uint_eq(a->ne[1], 4);
            ck_assert_uint_eq(b->ne[0], 4);
        }
    }
    free(g.data);
    rig_close(&r);
}
END_TEST

/* torch: B.reshape(heads, 2, half, r).swapaxes(1, 2).reshape(B.shape) */
static void permute(const float *b, float *out, int heads, int half, int r) {
    for (int h = 0; h < heads; h++)
        for (int i = 0; i < half; i++)
            for (int j = 0; j < 2; j++)
                memcpy(out + ((h * half + i) * 2 + j) * r, b + ((h * 2 + j) * half + i) * r,
                       (size_t)r * sizeof *out);
}

static void check_matrix(const struct gguf *g, const char *name, const float *want) {
    const struct tensor *t = find_tensor(g, name);
    ck_assert_msg(memcmp(g->data + g->base + t->offset, want, tensor_size(t)) == 0, "%s", name);
}

START_TEST(values_arrive_and_q_and_k_are_permuted_where_the_base_is) {
    struct rig r;
    struct gguf g;
    float moved[64];
    save_adapter(&r, &families[_i].options);
    OK(export_adapter(&r, PL_DTYPE_F32));
    gguf_read(&g);
    for (uint32_t i = 0; i < r.program->n_tensors; i++) {
        const struct pl_tensor *t = &r.program->tensors[i];
        struct pl_param_row rows[PL_MODEL_MAX_ROWS];
        char name[48];
        pl_model_rows(&r.model, rows);
        if (t->role != PL_ROLE_LORA_B) continue;
        ck_assert(pl_gguf_module_name(&rows[t->row], t->layer, name));
        const float *b = r.memory[i];
        bool q = strcmp(rows[t->row].module, "q_proj") == 0;
        bool k = strcmp(rows[t->row].module, "k_proj") == 0;
        if (families[_i].permuted && (q || k)) { /* 4 heads of q, 2 of k, of 4 rows; rank 4 */
            permute(b, moved, q ? 4 : 2, 2, 4);
            ck_assert(memcmp(moved, b, (size_t)t->bytes) != 0);
            b = moved;
        }
        check_matrix(&g, textf("%s.weight.lora_b", name), b);
    }
    /* the stacked A is cut in row order: [12,16] of q, k and v */
    if (!families[_i].options.fused) {
        const float *a = r.memory[rig_find(&r, PL_ROLE_LORA_A, PL_SLOT_QKV, 2)];
        check_matrix(&g, "blk.2.attn_q.weight.lora_a", a);
        check_matrix(&g, "blk.2.attn_v.weight.lora_a", a + 2 * 4 * 16);
    }
    free(g.data);
    rig_close(&r);
}
END_TEST

static const struct {
    enum pl_dtype dtype;
    uint32_t ggml, file;
} halves[] = {{PL_DTYPE_F16, 1, 1}, {PL_DTYPE_BF16, 30, 32}};

/* Rank 3, so that matrices end between two multiples of 32 bytes. */
START_TEST(sixteen_bits_hold_the_rounded_values) {
    struct rig r;
    struct gguf g;
    save_adapter(&r, &(struct rig_options){.mode = PL_MODE_LORA, .bias = true, .lora_r = 3});
    OK(export_adapter(&r, halves[_i].dtype));
    gguf_read(&g);
    ck_assert_uint_eq(g.bits[find_value(&g, "general.file_type", 4)], halves[_i].file);
    const struct tensor *t = find_tensor(&g, "blk.1.ffn_down.weight.lora_b");
    ck_assert_uint_eq(t->type, halves[_i].ggml);
    const float *b = r.memory[rig_find(&r, PL_ROLE_LORA_B, PL_SLOT_DOWN, 1)];
    uint16_t want[48];
    pl_convert_from_f32(want, b, halves[_i].dtype, 48);
    ck_assert_mem_eq(g.data + g.base + t->offset, want, sizeof want);
    free(g.data);
    rig_close(&r);
}
END_TEST

/* G4 of gguf_adapter.h: alpha is written anew, since llama.cpp divides it by the rank. */
START_TEST(alpha_over_rank_is_the_scale_of_rank_stabilised_adapters_too) {
    struct rig r;
    struct gguf g;
    OK(pl_job_set(&job, "use_rslora", "true", &diag));
    OK(pl_job_set(&job, "lora_alpha", "3", &diag));
    save_adapter(&r, &families[1].options);
    OK(export_adapter(&r, PL_DTYPE_F32));
    gguf_read(&g);
    ck_assert(real_value(&g, "adapter.lora.alpha") / 4 == 1.5f); /* 3 / sqrt(4) */
    free(g.data);
    rig_close(&r);
}
END_TEST

/* llama.cpp's own converter refuses it, too. */
START_TEST(what_was_trained_whole_has_no_place_in_it) {
    struct rig r;
    save_adapter(&r, &(struct rig_options){.mode = PL_MODE_LORA, .whole = {"embed_tokens"}});
    FAILS(export_adapter(&r, PL_DTYPE_F32), PL_ERR_MODEL_UNSUPPORTED,
          "cannot hold `base_model.model.model.embed_tokens.weight`");
    ck_assert(!exists(in(dir, FILE_NAME)) && !exists(in(dir, FILE_NAME ".tmp")));
    rig_close(&r);
}
END_TEST

START_TEST(a_failure_at_any_write_leaves_no_file) {
    struct rig r;
    save_adapter(&r, &families[0].options);
    for (uint64_t at = 1;; at++) {
        struct pl_io_fault fault = {.at = at, .count = UINT64_MAX};
        pl_checkpoint_set_fault(&fault);
        pl_err err = export_adapter(&r, PL_DTYPE_F32);
        pl_checkpoint_set_fault(NULL);
        ck_assert(!exists(in(dir, FILE_NAME ".tmp")));
        if (err == PL_ERR_OK) break;
        ck_assert_int_eq(err, PL_ERR_CHECKPOINT_WRITE);
        /* a rename that took place is not taken back: what follows is about the directory */
        ck_assert(!exists(in(dir, FILE_NAME)) || !strstr(diag.message, FILE_NAME));
        diag = (struct pl_diag){0};
    }
    ck_assert(exists(in(dir, FILE_NAME)));
    rig_close(&r);
}
END_TEST

int main(void) {
    Suite *s = suite_create("checkpoint.gguf_adapter");
    TCase *t = tcase_create("gguf");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, names_and_metadata_are_those_llama_cpp_reads, 0, N_FAMILIES);
    tcase_add_loop_test(t, values_arrive_and_q_and_k_are_permuted_where_the_base_is, 0, N_FAMILIES);
    tcase_add_loop_test(t, sixteen_bits_hold_the_rounded_values, 0, 2);
    tcase_add_test(t, alpha_over_rank_is_the_scale_of_rank_stabilised_adapters_too);
    tcase_add_test(t, what_was_trained_whole_has_no_place_in_it);
    tcase_add_test(t, a_failure_at_any_write_leaves_no_file);
    suite_add_tcase(s, t);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
