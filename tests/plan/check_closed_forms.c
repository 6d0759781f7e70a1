/* check_closed_forms.c - the plan against formulas that were not derived from the builder.
 *
 * Static bytes: parameters x bytes per parameter (Rajbhandari et al., ZeRO, 1910.02054, section 3;
 * Hu et al. 2106.09685 for adapters). Kept activations of a decoder layer without recomputation, N
 * tokens, b bytes an element: b(4C + 2Q + 2K + 3F) and fp32 statistics; with QK-norm q and k are
 * kept once before the norm, so the sum is the same. */
#include "tests/plan/planning.h"

#include <check.h>
#include <string.h>

static uint64_t by_role(const struct pl_program *p, enum pl_role role) {
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < p->n_tensors; i++)
        if (p->tensors[i].role == role) bytes += p->tensors[i].bytes;
    return bytes;
}

START_TEST(full_fine_tuning_holds_16_bytes_a_parameter) {
    struct pl_model m;
    struct pl_planned p;
    pl_test_model(pl_test_models[_i], &m);
    struct pl_job_shape s = pl_test_shape(&m, PL_MODE_FULL, PL_RECOMPUTE_FULL, 1, 512);
    uint64_t n = pl_model_param_count(&m);
    pl_test_plan(&p, &s, &m);
    ck_assert_uint_eq(by_role(p.program, PL_ROLE_WEIGHT), 2 * n);
    ck_assert_uint_eq(p.plan->ledger[PL_CATEGORY_GRADIENTS], 2 * n);
    ck_assert_uint_eq(p.plan->ledger[PL_CATEGORY_OPTIMIZER], 12 * n);
    pl_planned_finish(&p);
}
END_TEST

START_TEST(lora_trains_only_its_adapters) {
    struct pl_model m;
    struct pl_planned p;
    pl_test_model(pl_test_models[_i], &m);
    struct pl_job_shape s = pl_test_shape(&m, PL_MODE_LORA, PL_RECOMPUTE_FULL, 1, 512);
    uint64_t n = pl_model_lora_params(&m, s.lora_targets.rows, 16, 0);
    pl_test_plan(&p, &s, &m);
    ck_assert_uint_eq(by_role(p.program, PL_ROLE_WEIGHT), 2 * pl_model_param_count(&m));
    ck_assert_uint_eq(p.plan->ledger[PL_CATEGORY_ADAPTER], 4 * n);
    ck_assert_uint_eq(p.plan->ledger[PL_CATEGORY_GRADIENTS], 4 * n);
    ck_assert_uint_eq(p.plan->ledger[PL_CATEGORY_OPTIMIZER], 8 * n);
    pl_planned_finish(&p);
}
END_TEST

/* A module that is trained whole is one tensor, not a second one in addition to the base's; except
 * for a tied head, which becomes a tensor of its own. */
START_TEST(a_module_trained_whole_holds_what_full_fine_tuning_holds_of_it) {
    static const char *const names[] = {"embed_tokens", "lm_head"}, *const all[] = {"all-linear"};
    static const uint32_t optimizers[] = {PL_OPTIMIZER_ADAMW, PL_OPTIMIZER_ADAMW_8BIT};
    struct pl_model m;
    pl_test_model(pl_test_models[_i], &m);
    const uint64_t one = m.vocab * m.hidden, weights = pl_model_param_count(&m);
    for (uint32_t k = 0; k < 8; k++) {
        const uint32_t first = k % 3 == 2, n = k % 3 == 0 ? 2 : 1;
        struct pl_target_choice c = {.modules = {all, 1}, .whole = {names + first, n}};
        struct pl_planned p;
        struct pl_job_shape s =
            pl_test_shape(&m, k % 2 ? PL_MODE_QLORA : PL_MODE_LORA, PL_RECOMPUTE_FULL, 1, 512);
        const struct pl_job_shape plain = s;
        struct pl_planned without;
        s.master_weights = true;
        s.optimizer = optimizers[k / 4];
        ck_assert_int_eq(pl_targets_find(&m, &c, &s.lora_targets, NULL, NULL), PL_ERR_OK);
        pl_test_plan(&p, &s, &m);
        pl_test_plan(&without, &plain, &m);
        const uint64_t *with = p.plan->ledger, *old = without.plan->ledger;
        const uint64_t adapters = pl_model_lora_params(&m, plain.lora_targets.rows, 16, 0);
        ck_assert_uint_eq(with[PL_CATEGORY_WEIGHTS],
                          old[PL_CATEGORY_WEIGHTS] + (m.tied ? 2 * one : 0));
        if (k % 2 == 0) ck_assert_uint_eq(by_role(without.program, PL_ROLE_WEIGHT), 2 * weights);
        ck_assert_uint_eq(with[PL_CATEGORY_GRADIENTS], 4 * adapters + 2 * n * one);
        /* moments and a master in fp32, whatever the optimizer does with adapters */
        const uint64_t own = by_role(p.program, PL_ROLE_MASTER);
        ck_assert_uint_eq(own, 4 * n * one);
        if (s.optimizer == PL_OPTIMIZER_ADAMW)
            ck_assert_uint_eq(with[PL_CATEGORY_OPTIMIZER], 8 * adapters + 12 * n * one);
        for (uint32_t i = 0; i < p.program->n_tensors; i++) {
            const struct pl_tensor *t = &p.program->tensors[i];
            if (t->role == PL_ROLE_STATE && t->layer == PL_NONE)
                ck_assert(t->dtype == PL_DTYPE_F32 && t->bytes == 4 * one);
        }
        pl_planned_finish(&p);
        pl_planned_finish(&without);
    }
}
END_TEST

START_TEST(an_adapter_on_the_embedding_holds_two_matrices_beside_it) {
    static const char *const names[] = {"all-linear", "embed_tokens"};
    struct pl_model m;
    struct pl_planned p;
    pl_test_model(pl_test_models[_i], &m);
    struct pl_job_shape s = pl_test_shape(&m, PL_MODE_LORA, PL_RECOMPUTE_FULL, 1, 512);
    const uint64_t n =
        pl_model_lora_params(&m, s.lora_targets.rows, 16, 0) + 16 * (m.vocab + m.hidden);
    ck_assert_int_eq(pl_targets_find(&m, &(struct pl_target_choice){.modules = {names, 2}},
                                     &s.lora_targets, NULL, NULL),
                     PL_ERR_OK);
    pl_test_plan(&p, &s, &m);
    ck_assert_uint_eq(by_role(p.program, PL_ROLE_WEIGHT), 2 * pl_model_param_count(&m));
    ck_assert_uint_eq(p.plan->ledger[PL_CATEGORY_ADAPTER], 4 * n);
    ck_assert_uint_eq(p.plan->ledger[PL_CATEGORY_GRADIENTS], 4 * n);
    ck_assert_uint_eq(p.plan->ledger[PL_CATEGORY_OPTIMIZER], 8 * n);
    pl_planned_finish(&p);
}
END_TEST

static uint64_t matrices_of(const struct pl_param_row *row) {
    return row->experts ? row->experts : 1;
}

/* Per module of n values, or expert of one: n/2 of codes, n/64 of 8-bit absmax, 4 for 64 x 256
 * values, and 4. */
START_TEST(a_4_bit_base_takes_half_a_byte_and_its_scales) {
    struct pl_model m;
    struct pl_planned p;
    struct pl_param_row rows[PL_MODEL_MAX_ROWS];
    pl_test_model(pl_test_models[_i], &m);
    struct pl_job_shape s = pl_test_shape(&m, PL_MODE_QLORA, PL_RECOMPUTE_FULL, 1, 512);
    uint64_t linear = pl_model_linear_params(&m) + pl_model_expert_params(&m), nests = 0;
    uint32_t n_rows = pl_model_rows(&m, rows);
    for (uint32_t r = 0; r < n_rows; r++) {
        if (!rows[r].per_layer || rows[r].vector || rows[r].slot == PL_SLOT_ROUTER) continue;
        ck_assert_uint_eq(rows[r].rows * rows[r].cols % 64, 0);
        nests +=
            m.layers * matrices_of(&rows[r]) * ((rows[r].rows * rows[r].cols + 16383) / 16384 + 1);
    }
    pl_test_plan(&p, &s, &m);
    ck_assert_uint_eq(by_role(p.program, PL_ROLE_CODES), linear / 2);
    ck_assert_uint_eq(by_role(p.program, PL_ROLE_ABSMAX8), linear / 64);
    ck_assert_uint_eq(by_role(p.program, PL_ROLE_ABSMAX), 4 * nests);
    ck_assert_uint_eq(by_role(p.program, PL_ROLE_WEIGHT), 2 * (pl_model_param_count(&m) - linear));
    pl_planned_finish(&p);
    s.double_quant = false;
    pl_test_plan(&p, &s, &m);
    ck_assert_uint_eq(by_role(p.program, PL_ROLE_ABSMAX8), 0);
    ck_assert_uint_eq(by_role(p.program, PL_ROLE_ABSMAX), 4 * linear / 64);
    pl_planned_finish(&p);
}
END_TEST

/* Experts of n values take n/2 of codes and n/32 of scales; all other matrices are in bf16. */
START_TEST(a_base_in_mxfp4_takes_the_bytes_of_its_files) {
    struct pl_model m;
    struct pl_planned p;
    pl_test_model("gpt-oss-20b", &m);
    ck_assert_int_eq(m.codes, PL_CODES_MXFP4);
    struct pl_job_shape s = pl_test_shape(&m, PL_MODE_QLORA, PL_RECOMPUTE_FULL, 1, 512);
    s.quant = PL_QUANT_MXFP4;
    s.double_quant = false;
    const uint64_t experts = pl_model_expert_params(&m);
    pl_test_plan(&p, &s, &m);
    ck_assert_uint_eq(by_role(p.program, PL_ROLE_CODES), experts / 2);
    ck_assert_uint_eq(by_role(p.program, PL_ROLE_ABSMAX), experts / 32);
    ck_assert_uint_eq(by_role(p.program, PL_ROLE_ABSMAX8), 0);
    ck_assert_uint_eq(by_role(p.program, PL_ROLE_WEIGHT), 2 * (pl_model_param_count(&m) - experts));
    pl_planned_finish(&p);
}
END_TEST

START_TEST(a_4_bit_head_takes_half_a_byte_and_its_scales) {
    struct pl_model m;
    struct pl_planned p;
    pl_test_model("Llama-3.1-8B", &m);
    struct pl_job_shape s = pl_test_shape(&m, PL_MODE_QLORA, PL_RECOMPUTE_FULL, 1, 512);
    uint64_t before[3], head = m.vocab * m.hidden;
    static const enum pl_role roles[] = {PL_ROLE_CODES, PL_ROLE_ABSMAX8, PL_ROLE_ABSMAX};
    pl_test_plan(&p, &s, &m);
    for (int i = 0; i < 3; i++)
        before[i] = by_role(p.program, roles[i]);
    pl_planned_finish(&p);
    s.quantize_head = true;
    pl_test_plan(&p, &s, &m);
    ck_assert_uint_eq(by_role(p.program, PL_ROLE_CODES), before[0] + head / 2);
    ck_assert_uint_eq(by_role(p.program, PL_ROLE_ABSMAX8), before[1] + head / 64);
    ck_assert_uint_eq(by_role(p.program, PL_ROLE_ABSMAX), before[2] + 4 * (head / 16384 + 1));
    ck_assert_uint_eq(by_role(p.program, PL_ROLE_WEIGHT),
                      2 * (pl_model_param_count(&m) - pl_model_linear_params(&m) - head));
    pl_planned_finish(&p);
}
END_TEST

static const char *const vocabularies[] = {"Llama-3.1-8B", "Qwen3-0.6B"}; /* untied, tied */

START_TEST(a_4_bit_embedding_takes_half_a_byte_and_its_scales) {
    struct pl_model m;
    struct pl_planned p;
    pl_test_model(vocabularies[_i], &m);
    struct pl_job_shape s = pl_test_shape(&m, PL_MODE_QLORA, PL_RECOMPUTE_FULL, 1, 512);
    s.quantize_embedding = true;
    s.quantize_head = !m.tied;
    pl_test_plan(&p, &s, &m);
    const uint64_t one = m.vocab * m.hidden, n = m.tied ? one : 2 * one;
    const uint64_t linear = pl_model_linear_params(&m);
    ck_assert_uint_eq(by_role(p.program, PL_ROLE_CODES), (linear + n) / 2);
    ck_assert_uint_eq(by_role(p.program, PL_ROLE_ABSMAX8), (linear + n) / 64);
    ck_assert_uint_eq(by_role(p.program, PL_ROLE_WEIGHT),
                      2 * (pl_model_param_count(&m) - linear - n));
    pl_planned_finish(&p);
}
END_TEST

START_TEST(a_4_bit_matrix_is_unpacked_where_the_last_one_was) {
    struct pl_model m;
    struct pl_planned p;
    pl_test_model("Qwen2.5-7B", &m);
    struct pl_job_shape s = pl_test_shape(&m, PL_MODE_QLORA, PL_RECOMPUTE_FULL, 1, 512);
    s.quantize_head = _i;
    pl_test_plan(&p, &s, &m);
    const struct pl_phase_range *micro = &p.program->phases[PL_PHASE_MICRO];
    uint64_t peak = 0;
    for (uint32_t at = micro->first_op; at < micro->first_op + micro->n_ops; at++) {
        uint64_t live = 0;
        for (uint32_t i = 0; i < p.program->n_tensors; i++) {
            const struct pl_tensor *t = &p.program->tensors[i];
            const struct pl_place_row *r = &p.plan->places[i];
            if (t->scope == PL_SCOPE_STEP && strcmp(t->name, "dequantised") == 0 &&
                r->first_op <= at && at <= r->last_op)
                live += t->bytes;
        }
        if (live > peak) peak = live;
    }
    ck_assert_uint_eq(peak, 2 * m.ffn * m.hidden); /* gate, or up, in bf16 */
    pl_planned_finish(&p);
}
END_TEST

/* 8-bit moments have a byte a value and an fp32 absmax per 256; below 4096 values they are fp32,
 * and so are those of the embedding and the head. */
static uint64_t moments_of(uint64_t n, bool has_rare_rows) {
    return n < 4096 || has_rare_rows ? 8 * n : 2 * n + 2 * 4 * ((n + 255) / 256);
}

/* M1 of optimizer_rows.h */
START_TEST(moments_in_8_bits_follow_the_tensors_of_the_files) {
    struct pl_model m;
    struct pl_planned p;
    struct pl_param_row rows[PL_MODEL_MAX_ROWS];
    uint64_t full = 0, lora = 0;
    pl_test_model(pl_test_models[_i], &m);
    uint32_t n_rows = pl_model_rows(&m, rows);
    struct pl_job_shape s = pl_test_shape(&m, PL_MODE_LORA, PL_RECOMPUTE_FULL, 1, 512);
    for (uint32_t r = 0; r < n_rows; r++) {
        uint64_t layers = rows[r].per_layer ? m.layers : 1;
        bool rare = rows[r].slot == PL_SLOT_EMBED || rows[r].slot == PL_SLOT_HEAD;
        const uint64_t tensors = pl_model_row_tensors(&rows[r]), n = rows[r].rows * rows[r].cols;
        full += layers * tensors * moments_of(matrices_of(&rows[r]) / tensors * n, rare);
        if (s.lora_targets.rows >> r & 1)
            lora += layers *
                    (moments_of(16 * rows[r].cols, false) + moments_of(16 * rows[r].rows, false));
    }
    s.optimizer = PL_OPTIMIZER_ADAMW_8BIT;
    pl_test_plan(&p, &s, &m);
    ck_assert_uint_eq(p.plan->ledger[PL_CATEGORY_OPTIMIZER], lora);
    pl_planned_finish(&p);
    s = pl_test_shape(&m, PL_MODE_FULL, PL_RECOMPUTE_FULL, 1, 512);
    s.optimizer = PL_OPTIMIZER_ADAMW_8BIT;
    pl_test_plan(&p, &s, &m);
    ck_assert_uint_eq(p.plan->ledger[PL_CATEGORY_OPTIMIZER], full + 4 * pl_model_param_count(&m));
    pl_planned_finish(&p);
}
END_TEST

/* Bytes of a layer's forward values that are still alive when the last layer's forward is over. */
static uint64_t kept_of_layer(const struct pl_planned *p, uint32_t layer) {
    const struct pl_program *g = p->program;
    uint32_t head = g->phases[PL_PHASE_MICRO].first_op;
    while (g->ops[head].kind != PL_OP_GATHER_ADD)
        head++;
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < g->n_tensors; i++) {
        const struct pl_tensor *t = &g->tensors[i];
        const struct pl_place_row *r = &p->plan->places[i];
        if (t->scope == PL_SCOPE_STEP && t->phase == PL_PHASE_MICRO && t->layer == layer &&
            r->first_op < head && r->last_op > head)
            bytes += t->bytes;
    }
    return bytes;
}

static uint64_t expected_kept(const struct pl_model *m, uint64_t n, uint64_t b, uint32_t level) {
    uint64_t c = m->hidden, q = m->heads * m->head_dim, k = m->kv_heads * m->head_dim, f = m->ffn;
    const uint64_t post =
        m->layer[0].kind == PL_LAYER_FOUR_NORM ? c : 0; /* input of a norm after each block */
    const uint64_t norms = 4 * (post ? 4 : 2), statistics = 4 * m->heads + norms;
    switch (level) {
    case PL_RECOMPUTE_NONE:
        return n * (b * (4 * c + 2 * q + 2 * k + 3 * f + 2 * post) + statistics);
    case PL_RECOMPUTE_LIGHT:
        return n * (b * (2 * c + 2 * q + 2 * k + 2 * f + 2 * post) + statistics);
    case PL_RECOMPUTE_MLP:
        return n * (b * (2 * c + 2 * q + 2 * k + post) + statistics);
    case PL_RECOMPUTE_ATTENTION:
        return n * (b * (2 * c + 2 * f + post) + norms);
    default:
        return n * b * c;
    }
}

/* The formula is that of a dense MLP. */
START_TEST(a_layer_keeps_what_the_formula_says) {
    struct pl_model m;
    struct pl_planned p;
    pl_test_model(pl_test_models[_i], &m);
    if (m.kinds >> PL_LAYER_EXPERTS & 1) return;
    for (uint32_t level = PL_RECOMPUTE_NONE; level <= PL_RECOMPUTE_FULL; level++) {
        struct pl_job_shape s = pl_test_shape(&m, PL_MODE_FULL, level, 3, 100);
        pl_test_plan(&p, &s, &m);
        ck_assert_uint_eq(kept_of_layer(&p, 5), expected_kept(&m, 300, 2, level));
        pl_planned_finish(&p);
        s.recompute = PL_RECOMPUTE_MIX(level, 6, PL_RECOMPUTE_LIGHT);
        pl_test_plan(&p, &s, &m);
        ck_assert_uint_eq(kept_of_layer(&p, 5), expected_kept(&m, 300, 2, level));
        ck_assert_uint_eq(kept_of_layer(&p, 6), expected_kept(&m, 300, 2, PL_RECOMPUTE_LIGHT));
        pl_planned_finish(&p);
    }
}
END_TEST

START_TEST(frozen_layers_keep_nothing) {
    struct pl_model m;
    struct pl_planned p;
    pl_test_model("Llama-3.2-1B", &m);
    for (uint32_t mode = PL_MODE_FULL; mode <= PL_MODE_QLORA; mode++) {
        struct pl_job_shape s = pl_test_shape(&m, mode, PL_RECOMPUTE_NONE, 1, 256);
        s.freeze_layers = 8;
        pl_test_plan(&p, &s, &m);
        ck_assert_uint_eq(kept_of_layer(&p, 4), 0);
        ck_assert_uint_gt(kept_of_layer(&p, 9), 0);
        pl_planned_finish(&p);
    }
}
END_TEST

START_TEST(logits_exist_one_chunk_at_a_time) {
    struct pl_model m;
    struct pl_planned p;
    pl_test_model("Qwen2.5-7B", &m);
    for (uint64_t chunk = 0; chunk <= 300; chunk += 100) {
        struct pl_job_shape s = pl_test_shape(&m, PL_MODE_LORA, PL_RECOMPUTE_FULL, 2, 512);
        s.loss_chunk_tokens = chunk;
        pl_test_plan(&p, &s, &m);
        uint64_t rows = chunk ? chunk : 1024, largest = 0;
        for (uint32_t i = 0; i < p.program->n_tensors; i++)
            if (p.program->tensors[i].category == PL_CATEGORY_LOGITS &&
                p.program->tensors[i].bytes > largest)
                largest = p.program->tensors[i].bytes;
        ck_assert_uint_eq(largest, rows * m.vocab * 2);
        pl_planned_finish(&p);
    }
}
END_TEST

START_TEST(sgd_keeps_no_moments_and_fp32_no_master) {
    struct pl_model m;
    struct pl_planned p;
    pl_test_model("SmolLM2-360M", &m);
    struct pl_job_shape s = pl_test_shape(&m, PL_MODE_FULL, PL_RECOMPUTE_FULL, 1, 128);
    s.optimizer = PL_OPTIMIZER_SGD;
    pl_test_plan(&p, &s, &m);
    ck_assert_uint_eq(p.plan->ledger[PL_CATEGORY_OPTIMIZER], 4 * pl_model_param_count(&m));
    pl_planned_finish(&p);
    s.dtype = s.gradient_dtype = PL_DTYPE_F32;
    pl_test_plan(&p, &s, &m);
    ck_assert_uint_eq(p.plan->ledger[PL_CATEGORY_OPTIMIZER], 0);
    pl_planned_finish(&p);
}
END_TEST

int main(void) {
    Suite *s = suite_create("plan.closed_forms");
    TCase *tc = tcase_create("closed forms");
    tcase_add_loop_test(tc, full_fine_tuning_holds_16_bytes_a_parameter, 0, pl_test_n_models);
    tcase_add_loop_test(tc, lora_trains_only_its_adapters, 0, pl_test_n_models);
    tcase_add_loop_test(tc, a_module_trained_whole_holds_what_full_fine_tuning_holds_of_it, 0,
                        pl_test_n_models);
    tcase_add_loop_test(tc, an_adapter_on_the_embedding_holds_two_matrices_beside_it, 0,
                        pl_test_n_models);
    tcase_add_loop_test(tc, a_4_bit_base_takes_half_a_byte_and_its_scales, 0, pl_test_n_models);
    tcase_add_test(tc, a_base_in_mxfp4_takes_the_bytes_of_its_files);
    tcase_add_test(tc, a_4_bit_head_takes_half_a_byte_and_its_scales);
    tcase_add_loop_test(tc, a_4_bit_embedding_takes_half_a_byte_and_its_scales, 0, 2);
    tcase_add_loop_test(tc, a_4_bit_matrix_is_unpacked_where_the_last_one_was, 0, 2);
    tcase_add_loop_test(tc, moments_in_8_bits_follow_the_tensors_of_the_files, 0, pl_test_n_models);
    tcase_add_loop_test(tc, a_layer_keeps_what_the_formula_says, 0, pl_test_n_models);
    tcase_add_test(tc, frozen_layers_keep_nothing);
    tcase_add_test(tc, logits_exist_one_chunk_at_a_time);
    tcase_add_test(tc, sgd_keeps_no_moments_and_fp32_no_master);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
