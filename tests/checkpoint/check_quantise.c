/* check_quantise.c - 4-bit base weights are what quantising the whole matrix at once would give. */
#include "runtime/checkpoint/init.h"
#include "runtime/checkpoint/model_io.h"
#include "tests/checkpoint/rig.h"

#include "runtime/checkpoint/windows.h"
#include "runtime/kernels/quant.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct pl_diag diag;
static char dir[64];

static void setup(void) {
    diag = (struct pl_diag){0};
    dir_make(dir);
}
static void teardown(void) {
    dir_remove(dir);
}

static bool call_it_f16(struct st_edit *e, const void *arg) {
    (void)arg;
    snprintf(e->dtype, sizeof e->dtype, "F16");
    return true;
}

/* A model directory with random weights; the same as a program in *plain, fp32 or bf16. As fp16 the
 * bits of bf16 below 1 are numbers too. */
static void make_model(struct rig *plain, enum pl_dtype dtype, const char *experts) {
    struct rig_options options = {
        .mode = PL_MODE_FULL, .untied = true, .wide = true, .experts = experts};
    options.dtype = dtype == PL_DTYPE_F32 ? PL_DTYPE_F32 : PL_DTYPE_BF16;
    rig_open(plain, &options);
    OK(pl_model_init_random(&plain->io, 7, &diag));
    OK(rig_save_model(&plain->io, dir, "{}", NULL, PL_SHARD_BYTES, &diag));
    if (dtype != PL_DTYPE_F16) return;
    st_rewrite(in(dir, "model.safetensors"), call_it_f16, NULL);
    rig_close(plain);
    options.dtype = PL_DTYPE_F32;
    rig_open(plain, &options);
    OK(pl_model_load(&plain->io, dir, &diag));
}

/* The values of the module, or of an expert of it, fp32, read off the fused weights of `plain`. */
static float *module_values(const struct rig *plain, const struct pl_param_row *row, uint32_t layer,
                            uint32_t expert) {
    uint32_t id = rig_find(plain, PL_ROLE_WEIGHT, row->slot, layer);
    uint64_t own = row->experts ? plain->program->tensors[id].dims[0] / row->experts : 0;
    uint64_t n = row->rows * row->cols, first = (expert * own + row->row0) * row->cols;
    float *out = malloc(n * sizeof *out);
    ck_assert_ptr_nonnull(out);
    if (plain->program->tensors[id].dtype == PL_DTYPE_F32) {
        memcpy(out, (const float *)plain->memory[id] + first, n * sizeof *out);
        return out;
    }
    const uint16_t *half = (const uint16_t *)plain->memory[id] + first;
    for (uint64_t i = 0; i < n; i++) {
        uint32_t bits = (uint32_t)half[i] << 16;
        memcpy(&out[i], &bits, sizeof bits);
    }
    return out;
}

static uint32_t find_module(const struct rig *r, enum pl_role role, uint32_t layer, uint32_t row) {
    for (uint32_t i = 0; i < r->program->n_tensors; i++) {
        const struct pl_tensor *t = &r->program->tensors[i];
        if (t->role == role && t->layer == layer && t->row == row) return i;
    }
    ck_abort_msg("no such tensor");
}

static const char *memory_of(const struct rig *r, enum pl_role role, uint32_t layer, uint32_t row) {
    return r->memory[find_module(r, role, layer, row)];
}

/* All blocks at once, with a mean summed in double. Those of experts lie one after another. */
static void assert_module(const struct rig *r, const float *x, uint64_t n, uint32_t layer,
                          uint32_t row, uint32_t expert) {
    uint64_t blocks = pl_quant_blocks(n), nests = pl_quant_nests(n);
    float *absmax = calloc(blocks, sizeof *absmax), *nested = calloc(nests + 1, sizeof *nested);
    uint8_t *codes = calloc(1, pl_quant_codes_bytes(n)), *absmax8 = calloc(1, blocks);
    ck_assert(absmax && nested && codes && absmax8);
    pl_quant_absmax(x, n, absmax);
    pl_quant_codes(r->program->shape.quant, x, n, absmax, codes);
    ck_assert_mem_eq(memory_of(r, PL_ROLE_CODES, layer, row) + expert * pl_quant_codes_bytes(n),
                     codes, pl_quant_codes_bytes(n));
    const bool nested_too = r->program->shape.double_quant;
    const float *held = (const float *)memory_of(r, PL_ROLE_ABSMAX, layer, row) +
                        expert * (nested_too ? nests + 1 : blocks);
    if (nested_too) {
        double sum = 0;
        for (uint64_t b = 0; b < blocks; b++)
            sum += absmax[b];
        nested[nests] = (float)(sum / (double)blocks);
        pl_quant_nest(absmax, blocks, nested[nests], absmax8, nested);
        ck_assert_mem_eq(memory_of(r, PL_ROLE_ABSMAX8, layer, row) + expert * blocks, absmax8,
                         blocks);
        ck_assert_mem_eq(held, nested, (nests + 1) * sizeof *nested);
    } else {
        ck_assert_mem_eq(held, absmax, blocks * sizeof *absmax);
    }
    free(absmax), free(nested), free(codes), free(absmax8);
}

static void assert_quantised(const struct rig *r, const struct rig *plain) {
    struct pl_param_row rows[PL_MODEL_MAX_ROWS];
    uint32_t n_rows = pl_model_rows(&r->model, rows), modules = 0;
    for (uint32_t i = 0; i < n_rows; i++) {
        if (!rows[i].per_layer || rows[i].vector || rows[i].slot == PL_SLOT_ROUTER) continue;
        for (uint32_t l = 0; l < r->model.layers; l++, modules++)
            for (uint32_t e = 0; e < (rows[i].experts ? rows[i].experts : 1); e++) {
                float *x = module_values(plain, &rows[i], l, e);
                assert_module(r, x, rows[i].rows * rows[i].cols, l, i, e);
                free(x);
            }
    }
    ck_assert_uint_eq(modules, (r->model.experts.fused ? 6 : 7) * r->model.layers);
}

/* Staging for one group of fp32 from a file and the absmax of one, but not of the whole matrix:
 * without kernels, and with them. */
#define SCANT_STAGING         (138 << 10)
#define SCANT_STAGING_KERNELS (68 << 10)

static const struct {
    enum pl_dtype file;
    struct rig_options options;
} loads[] = {
    {PL_DTYPE_F32, {.mode = PL_MODE_QLORA, .untied = true, .wide = true}},
    {PL_DTYPE_BF16, {.mode = PL_MODE_QLORA, .untied = true, .wide = true}},
    {PL_DTYPE_F32, {.mode = PL_MODE_QLORA, .untied = true, .wide = true, .single_quant = true}},
    {PL_DTYPE_F32,
     {.mode = PL_MODE_QLORA, .untied = true, .wide = true, .staging_bytes = PL_QUANT_STAGING}},
    {PL_DTYPE_BF16, {.mode = PL_MODE_QLORA, .untied = true, .wide = true, .dtype = PL_DTYPE_BF16}},
    {PL_DTYPE_F32,
     {.mode = PL_MODE_QLORA, .untied = true, .wide = true, .staging_bytes = SCANT_STAGING}},
    {PL_DTYPE_F32, {.mode = PL_MODE_QLORA, .untied = true, .wide = true, .kernels = true}},
    {PL_DTYPE_BF16, {.mode = PL_MODE_QLORA, .untied = true, .wide = true, .kernels = true}},
    {PL_DTYPE_F16, {.mode = PL_MODE_QLORA, .untied = true, .wide = true, .kernels = true}},
    {PL_DTYPE_F32,
     {.mode = PL_MODE_QLORA,
      .untied = true,
      .wide = true,
      .single_quant = true,
      .kernels = true,
      .staging_bytes = SCANT_STAGING_KERNELS}},
    {PL_DTYPE_F32,
     {.mode = PL_MODE_QLORA,
      .untied = true,
      .wide = true,
      .kernels = true,
      .staging_bytes = SCANT_STAGING_KERNELS}},
#define MIXTURE(type, ...)                                                                         \
    {                                                                                              \
        PL_DTYPE_BF16, {                                                                           \
            .mode = PL_MODE_QLORA, .untied = true, .wide = true, .experts = type, __VA_ARGS__      \
        }                                                                                          \
    }
    MIXTURE("qwen3_moe", .kernels = true),
    MIXTURE("qwen3_moe", .staging_bytes = SCANT_STAGING),
    MIXTURE("qwen3_moe", .kernels = true, .single_quant = true),
    MIXTURE("gpt_oss", .kernels = true),
    MIXTURE("gpt_oss", .staging_bytes = SCANT_STAGING),
    MIXTURE("gpt_oss", .single_quant = true),
#undef MIXTURE
};

START_TEST(a_matrix_is_quantised_piece_by_piece_as_it_would_be_whole) {
    struct rig plain, r;
    make_model(&plain, loads[_i].file, loads[_i].options.experts);
    rig_open(&r, &loads[_i].options);
    OK(pl_model_load(&r.io, dir, &diag));
    assert_quantised(&r, &plain);
    rig_close(&r);
    rig_close(&plain);
}
END_TEST

static const struct rig_options draws[] = {
    {.mode = PL_MODE_QLORA, .untied = true, .wide = true},
    {.mode = PL_MODE_QLORA, .untied = true, .wide = true, .staging_bytes = SCANT_STAGING},
    {.mode = PL_MODE_QLORA, .untied = true, .wide = true, .kernels = true},
    {.mode = PL_MODE_QLORA, .untied = true, .wide = true, .kernels = true, .single_quant = true},
    {.mode = PL_MODE_QLORA, .untied = true, .wide = true, .kernels = true, .staging_bytes = 2048},
    {.mode = PL_MODE_QLORA, .untied = true, .wide = true, .experts = "qwen3_moe"},
    {.mode = PL_MODE_QLORA, .untied = true, .wide = true, .experts = "gpt_oss", .kernels = true},
    {.mode = PL_MODE_QLORA, .untied = true, .wide = true, .experts = "gpt_oss"},
};

START_TEST(random_weights_are_those_of_a_job_that_does_not_quantise) {
    struct rig plain, r;
    rig_open(&plain,
             &(struct rig_options){
                 .mode = PL_MODE_FULL, .untied = true, .wide = true, .experts = draws[_i].experts});
    rig_open(&r, &draws[_i]);
    OK(pl_model_init_random(&plain.io, 11, &diag));
    OK(pl_model_init_random(&r.io, 11, &diag));
    assert_quantised(&r, &plain);
    rig_close(&r);
    rig_close(&plain);
}
END_TEST

START_TEST(staging_that_holds_no_group_is_a_broken_plan) {
    struct rig plain, r;
    make_model(&plain, PL_DTYPE_F32, NULL);
    rig_open(&r, &(struct rig_options){.mode = PL_MODE_QLORA,
                                       .untied = true,
                                       .wide = true,
                                       .staging_bytes = PL_QUANT_GROUP * 8});
    FAILS(pl_model_load(&r.io, dir, &diag), PL_ERR_PLAN_BROKEN, "too small to quantise in");
    rig_close(&r);
    rig_close(&plain);
}
END_TEST

int main(void) {
    Suite *s = suite_create("checkpoint.quantise");
    TCase *tc = tcase_create("values");
    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_loop_test(tc, a_matrix_is_quantised_piece_by_piece_as_it_would_be_whole, 0,
                        sizeof loads / sizeof *loads);
    tcase_add_loop_test(tc, random_weights_are_those_of_a_job_that_does_not_quantise, 0,
                        sizeof draws / sizeof *draws);
    tcase_add_test(tc, staging_that_holds_no_group_is_a_broken_plan);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
