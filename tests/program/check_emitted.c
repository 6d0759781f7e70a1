/* check_emitted.c - the builder emits no operands but those that every kernel is tested with. */
#include "estimator/model/catalogue.h"
#include "tests/kernels/emitted.h"
#include "tests/plan/planning.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

static bool is_float(enum pl_dtype t) {
    return t == PL_DTYPE_F32 || t == PL_DTYPE_BF16;
}

/* Kinds that the conformance suite has no cases for: START, QUANT4 and others have tests of their
 * own. */
static bool is_tested_elsewhere(enum pl_op_kind kind) {
    static const enum pl_op_kind kinds[] = {PL_OP_DROPOUT,   PL_OP_DROPOUT_BWD, PL_OP_STAGE_IN,
                                            PL_OP_STAGE_OUT, PL_OP_START,       PL_OP_QUANT4,
                                            PL_OP_NEST4};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (kinds[i] == kind) return true;
    return false;
}

static int type_of(const struct pl_program *p, const struct pl_operand *o) {
    return o->id == PL_NONE ? EMITTED_ABSENT : (int)p->tensors[o->id].dtype;
}

static bool is_output(const struct pl_op *op, uint32_t id) {
    bool found = false;
    for (uint32_t i = 0; i < op->n_out; i++)
        found = found || op->out[i].id == id;
    return found;
}

static void sign(const struct pl_program *p, const struct pl_op *op, char text[EMITTED_TEXT]) {
    int in[PL_OP_MAX_IN], out[PL_OP_MAX_OUT];
    for (uint32_t i = 0; i < PL_OP_MAX_IN; i++)
        in[i] =
            i < op->n_in && !is_output(op, op->in[i].id) ? type_of(p, &op->in[i]) : EMITTED_ABSENT;
    for (uint32_t i = 0; i < PL_OP_MAX_OUT; i++)
        out[i] = i < op->n_out ? type_of(p, &op->out[i]) : EMITTED_ABSENT;
    emitted_signature(in, out, text);
}

static void check_window(const struct pl_program *p, const struct pl_op *op,
                         const struct pl_operand *o) {
    if (o->id == PL_NONE || !is_float(p->tensors[o->id].dtype)) return;
    const struct pl_tensor *t = &p->tensors[o->id];
    const uint64_t ld = t->dims[1] * t->dims[2], cols = o->cols ? o->cols : ld;
    const uint64_t first = (o->row0 * ld + o->col) * pl_dtype_bytes(t->dtype);
    if (!emitted_layout(t->dtype, first, cols, ld))
        ck_abort_msg("%s: %s is a window that no kernel is tested with: from byte %llu, %llu of "
                     "%llu columns",
                     pl_op_name(op->kind), t->name, (unsigned long long)first,
                     (unsigned long long)cols, (unsigned long long)ld);
}

static void check_program(const struct pl_program *p, const char *model) {
    for (uint32_t i = 0; i < p->n_ops; i++) {
        const struct pl_op *op = &p->ops[i];
        char text[EMITTED_TEXT];
        if (is_tested_elsewhere(op->kind)) continue;
        sign(p, op, text);
        if (!emitted_storage(op->kind, text))
            ck_abort_msg("%s: the builder emits %s with operands %s, which the table of "
                         "tests/kernels/emitted.c lacks",
                         model, pl_op_name(op->kind), text);
        for (uint32_t k = 0; k < op->n_in; k++)
            check_window(p, op, &op->in[k]);
        for (uint32_t k = 0; k < op->n_out; k++)
            check_window(p, op, &op->out[k]);
    }
}

/* True for ops that make an operand of a product, in either pass: a weight in 4 bits or of host
 * memory, and the input of an adapter after dropout. */
static bool serves_products(enum pl_op_kind kind) {
    return kind == PL_OP_DEQUANT4 || kind == PL_OP_COPY_IN || kind == PL_OP_COPY_OUT ||
           kind == PL_OP_DROPOUT || kind == PL_OP_NARROW;
}

/* Ops of the backward pass that compute nothing again, and do not only add up what the others have
 * made, are gradients of what the forward pass computed, by the rows of both. */
static void check_gradients(const struct pl_program *p, const char *model) {
    const struct pl_phase_range *micro = &p->phases[PL_PHASE_MICRO];
    bool forward[PL_OP_COUNT] = {false};
    for (uint32_t i = micro->first_op; i < micro->first_op + micro->n_ops; i++) {
        const struct pl_op *op = &p->ops[i];
        bool known = serves_products(op->kind) || op->kind == PL_OP_FOLD;
        if (!op->backward) forward[op->kind] = true;
        if (!op->backward || op->recompute) continue;
        for (int k = 0; k < PL_OP_COUNT; k++)
            known = known || (forward[k] && pl_op_is_gradient(op->kind, k));
        if (!known)
            ck_abort_msg("%s: no row of an op of the forward pass names %s as of its gradient",
                         model, pl_op_name(op->kind));
    }
}

/* Bits of a variation. */
enum {
    RECOMPUTES = 1,
    DROPS = 2,
    FP32 = 4,
    OTHER_ADAPTER = 8,
    OTHER_BASE = 16, /* and gradients: fp32, or bf16 where the job is in fp32 */
    INFERS = 32,
    VARIATIONS = 64
};

static struct pl_job_shape vary(const struct pl_model *m, uint32_t mode, uint32_t optimizer,
                                int v) {
    struct pl_job_shape s =
        pl_test_shape(m, mode, v & RECOMPUTES ? PL_RECOMPUTE_FULL : PL_RECOMPUTE_NONE, 2, 128);
    const bool frozen = mode != PL_MODE_FULL;
    s.lora_dropout = v & DROPS ? 0.1 : 0;
    if (frozen && !(v & DROPS)) pl_test_adapt_head(&s, m);
    if (v & FP32) {
        s.dtype = s.gradient_dtype = PL_DTYPE_F32;
        s.master_weights = false;
    }
    if (v & OTHER_ADAPTER) s.adapter_dtype = PL_DTYPE_BF16;
    if (v & OTHER_BASE) {
        s.gradient_dtype = PL_DTYPE_F32;
        s.compute_dtype = PL_DTYPE_F32;
        s.quantize_embedding = mode == PL_MODE_QLORA;
        s.double_quant = false;
        s.base_dtype = v & FP32 && frozen ? PL_DTYPE_BF16 : PL_DTYPE_F32;
    }
    if (v & OTHER_ADAPTER && mode == PL_MODE_QLORA && m->codes == PL_CODES_MXFP4) {
        s.quant = PL_QUANT_MXFP4;
        s.double_quant = s.quantize_embedding = false;
    }
    s.optimizer = optimizer;
    s.moment_dtype = v & OTHER_ADAPTER ? PL_DTYPE_BF16 : PL_DTYPE_F32;
    if (optimizer % 2) s.loss_chunk_tokens = 100;
    s.folds_gradients = optimizer % 2 && s.gradient_dtype == PL_DTYPE_BF16;
    if (v & INFERS) {
        s.inference = true;
        s.load = s.save = s.eval = false;
    }
    return s;
}

static const char *const models[] = {"Llama-3.2-1B", "Qwen2.5-0.5B",  "Qwen3-0.6B", "Phi-4-mini",
                                     "SmolLM2-135M", "SmolLM3-3B",    "Gemma-3-1B", "Qwen3.5-0.8B",
                                     "Gemma-4-E2B",  "Qwen3-30B-A3B", "gpt-oss-20b"};

static void check_variation(const struct pl_model *m, const char *name,
                            const struct pl_job_shape *s) {
    const struct pl_traits traits =
        pl_dtype_is_narrow(s->base_dtype) ? pl_traits_cpu(2) : pl_traits_cuda(90);
    struct pl_diag d = {0};
    struct pl_planned p;
    ck_assert_msg(pl_planned_init_shape(&p, s, m, &traits, &d) == PL_ERR_OK, "%s", d.message);
    check_program(p.program, name);
    check_gradients(p.program, name);
    pl_planned_finish(&p);
}

START_TEST(every_kernel_is_tested_with_what_the_builder_emits) {
    struct pl_model m;
    uint32_t n_optimizers;
    pl_optimizer_table(&n_optimizers);
    pl_test_model(models[_i], &m);
    for (uint32_t mode = PL_MODE_FULL; mode <= PL_MODE_QLORA; mode++)
        for (uint32_t optimizer = 0; optimizer < n_optimizers; optimizer++)
            for (int v = 0; v < VARIATIONS; v++) {
                const struct pl_job_shape s = vary(&m, mode, optimizer, v);
                check_variation(&m, models[_i], &s);
            }
}
END_TEST

/* --- packs ----------------------------------------------------------------------------------- */

/* Matrix products run in a library that takes any row; the others have a form for packs of 16
 * bytes, and one for single elements, which is several times slower. */
static bool is_product(enum pl_op_kind kind) {
    return kind == PL_OP_LINEAR || kind == PL_OP_LINEAR_DX || kind == PL_OP_LINEAR_DW;
}

static void check_packs(const struct pl_program *p, const struct pl_op *op,
                        const struct pl_operand *o, const char *model) {
    if (o->id == PL_NONE || !is_float(p->tensors[o->id].dtype)) return;
    const struct pl_tensor *t = &p->tensors[o->id];
    if (strcmp(t->name, "lse") == 0 || strcmp(t->name, "qk_rstd") == 0)
        return; /* a number for each head, read one at a time */
    if (op->kind == PL_OP_NARROW && t->role == PL_ROLE_LORA_B)
        return; /* rows of any rank, read once a layer and pass */
    if (t->slot == PL_SLOT_DELTA_CONV)
        return; /* some numbers for each channel, read once a block */
    const uint64_t ld = t->dims[1] * t->dims[2], rows = o->nrows ? o->nrows : t->dims[0];
    const uint64_t size = pl_dtype_bytes(t->dtype), first = (o->row0 * ld + o->col) * size;
    const bool flat = ld == 1 || rows <= 1; /* one element after another */
    if ((o->col * size) % 16 != 0 || (!flat && (ld * size % 16 != 0 || first % 16 != 0)))
        ck_abort_msg("%s: %s reads %s without packs: from byte %llu, rows of %llu", model,
                     pl_op_name(op->kind), t->name, (unsigned long long)first,
                     (unsigned long long)(ld * size));
}

static void check_all_packs(const struct pl_program *p, const char *model) {
    for (uint32_t i = 0; i < p->n_ops; i++) {
        const struct pl_op *op = &p->ops[i];
        const bool updates = op->phase != PL_PHASE_MICRO && op->phase != PL_PHASE_EVAL;
        if (is_product(op->kind) || updates) continue;
        for (uint32_t k = 0; k < op->n_in; k++)
            check_packs(p, op, &op->in[k], model);
        for (uint32_t k = 0; k < op->n_out; k++)
            check_packs(p, op, &op->out[k], model);
    }
}

static void read_known(const struct pl_known_model *k, struct pl_model *m) {
    struct pl_diag d = {0};
    char *text;
    ck_assert_msg(pl_catalogue_config(k, &text, &d) == PL_ERR_OK, "%s", d.message);
    ck_assert_msg(pl_model_parse(k->name, text, strlen(text), m, &d) == PL_ERR_OK, "%s", d.message);
    free(text);
}

static void expect_packs(const struct pl_model *m, const char *name, uint32_t mode, uint32_t rank) {
    const struct pl_traits traits = pl_traits_cuda(90);
    struct pl_job_shape s = pl_test_shape(m, mode, PL_RECOMPUTE_FULL, 2, 128);
    struct pl_diag d = {0};
    struct pl_program *p;
    if (mode != PL_MODE_FULL) s.lora_r = rank;
    ck_assert_msg(pl_program_create_brief(m, &s, &traits, &p, &d) == PL_ERR_OK, "%s", d.message);
    check_all_packs(p, name);
    pl_program_destroy(&p);
}

/* Holds for every model of the catalogue, as it is and with an odd vocabulary and rank. */
START_TEST(no_kernel_reads_single_elements) {
    size_t n;
    const struct pl_known_model *known = pl_catalogue_table(&n);
    for (size_t i = 0; i < n; i++) {
        struct pl_model m;
        read_known(&known[i], &m);
        for (uint32_t mode = PL_MODE_FULL; mode <= PL_MODE_QLORA; mode++)
            expect_packs(&m, known[i].name, mode, 4);
        m.vocab |= 1;
        for (uint32_t mode = PL_MODE_FULL; mode <= PL_MODE_QLORA; mode++)
            expect_packs(&m, known[i].name, mode, 5);
    }
}
END_TEST

int main(void) {
    Suite *s = suite_create("emitted");
    TCase *tc = tcase_create("builder");
    tcase_set_timeout(tc, 60);
    tcase_add_loop_test(tc, every_kernel_is_tested_with_what_the_builder_emits, 0,
                        (int)(sizeof models / sizeof *models));
    tcase_add_test(tc, no_kernel_reads_single_elements);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
