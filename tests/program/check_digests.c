/* check_digests.c - every program and every offset of it, held by a digest: what a change of the
 * builder must not change. Each plan is checked, too.
 *
 * PLIMSOLL_DIGESTS names the list: a line for each model, mode and back-end, with the digest of all
 * recompute levels and, for some models, that of the ways to offload, optimizers and the rest. With
 * PLIMSOLL_DIGESTS_OUT set the lines of today are written there instead: a commit that means to
 * change programs replaces the list by them and says what it saves. */
#include "estimator/base/digest.h"
#include "tests/plan/planning.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LINE 160

/* --- a digest of a plan, by names where there are names ------------------------------------------
 */

static void add_number(struct pl_digest *h, uint64_t v) {
    pl_digest_add(h, &v, sizeof v);
}

static void add_real(struct pl_digest *h, double v) {
    pl_digest_add(h, &v, sizeof v);
}

static void add_text(struct pl_digest *h, const char *s) {
    pl_digest_add(h, s, strlen(s) + 1);
}

static void add_tensor(struct pl_digest *h, const struct pl_plan *plan, uint32_t id) {
    const struct pl_tensor *t = &plan->program->tensors[id];
    const struct pl_place_row *place = &plan->places[id];
    const uint64_t numbers[] = {t->dims[0], t->dims[1],    t->dims[2],      t->bytes,
                                t->layer,   t->row,        t->of,           (uint64_t)t->rows,
                                t->dtype,   t->scope,      t->place,        t->trainable,
                                t->decay,   place->offset, place->first_op, place->last_op};
    char name[96];
    pl_tensor_name(plan->program, id, name);
    add_text(h, name);
    add_text(h, pl_category_name(t->category));
    add_text(h, t->scope == PL_SCOPE_STEP ? pl_phase_name(t->phase) : "");
    pl_digest_add(h, numbers, sizeof numbers);
}

static void add_attr(struct pl_digest *h, const struct pl_attr *a) {
    const double reals[] = {a->alpha,    a->eps,    a->scale, a->dropout,
                            a->max_norm, a->spread, a->offset};
    const uint64_t numbers[] = {
        a->accumulate, a->add_dx,   a->inverse, a->gradient,      a->decay,
        a->not_first,  a->joins,    a->quant,   a->start,         a->heads,
        a->kv_heads,   a->head_dim, a->rot_dim, a->window,        a->long_from,
        a->context,    a->site,     a->stream,  a->first_element, (uint64_t)a->padding_idx};
    pl_digest_add(h, reals, sizeof reals);
    pl_digest_add(h, numbers, sizeof numbers);
    if (a->unit_offset) add_number(h, a->unit_offset); /* as if it had always been there */
}

static void add_operands(struct pl_digest *h, const struct pl_operand *list, uint32_t n) {
    add_number(h, n);
    for (uint32_t i = 0; i < n; i++) {
        const struct pl_operand *o = &list[i];
        const uint32_t numbers[] = {o->id,   o->version, o->col,      o->cols,
                                    o->row0, o->nrows,   o->batch_row};
        pl_digest_add(h, numbers, sizeof numbers);
    }
}

static void add_op(struct pl_digest *h, const struct pl_op *op) {
    add_text(h, pl_op_name(op->kind));
    add_text(h, pl_phase_name(op->phase));
    add_number(h, op->layer);
    add_number(h, op->backward * 4u + op->recompute * 2u + op->host);
    add_attr(h, &op->attr);
    add_operands(h, op->in, op->n_in);
    add_operands(h, op->out, op->n_out);
    add_real(h, op->flops);
}

static void add_plan(struct pl_digest *h, const struct pl_plan *plan) {
    const struct pl_program *p = plan->program;
    add_number(h, p->n_tensors);
    for (uint32_t i = 0; i < p->n_tensors; i++)
        add_tensor(h, plan, i);
    add_number(h, p->n_ops);
    for (uint32_t i = 0; i < p->n_ops; i++)
        add_op(h, &p->ops[i]);
    add_number(h, plan->job_bytes);
    add_number(h, plan->batch_bytes);
}

/* --- which programs ------------------------------------------------------------------------------
 */

static const char *const list_modes[] = {"full", "lora", "qlora", "inference"};
static const uint32_t modes[] = {PL_MODE_FULL, PL_MODE_LORA, PL_MODE_QLORA, PL_MODE_LORA};
enum { N_MODES = sizeof modes / sizeof *modes };

static struct pl_job_shape base_shape(const struct pl_model *m, int mode) {
    struct pl_job_shape s = pl_test_shape(m, modes[mode], PL_RECOMPUTE_NONE, 2, 1024);
    s.inference = strcmp(list_modes[mode], "inference") == 0;
    if (s.inference) s.eval = s.save = s.master_weights = false;
    return s;
}

/* What makes a variant of the shape; what a mode does not know changes nothing there. */
static const struct variant {
    uint32_t recompute, optimizer, offload;
    bool embedding_on_host, update_on_host, exact_gradients, drops, freezes, packs, head4, in_fp32,
        base_bf16;
} variants[] = {
    {.exact_gradients = true},
    {.recompute = PL_RECOMPUTE_FULL, .exact_gradients = true},
    {.recompute = PL_RECOMPUTE_EVERY_N(2)},
    {.recompute = PL_RECOMPUTE_MIX(PL_RECOMPUTE_FULL, 3, PL_RECOMPUTE_LIGHT)},
    {.optimizer = PL_OPTIMIZER_ADAMW_8BIT},
    {.optimizer = PL_OPTIMIZER_SGD},
    {.recompute = PL_RECOMPUTE_FULL, .offload = PL_OFFLOAD_OPTIMIZER},
    {.recompute = PL_RECOMPUTE_FULL, .offload = PL_OFFLOAD_GRADIENTS, .exact_gradients = true},
    {.recompute = PL_RECOMPUTE_FULL, .offload = PL_OFFLOAD_GRADIENTS, .update_on_host = true},
    {.recompute = PL_RECOMPUTE_OFFLOAD, .offload = PL_OFFLOAD_WEIGHTS},
    {.recompute = PL_RECOMPUTE_LIGHT, .offload = PL_OFFLOAD_WEIGHTS, .embedding_on_host = true},
    {.offload = PL_OFFLOAD_WEIGHTS, .update_on_host = true, .optimizer = PL_OPTIMIZER_ADAMW_8BIT},
    {.recompute = PL_RECOMPUTE_FULL, .drops = true},
    {.recompute = PL_RECOMPUTE_ATTENTION, .drops = true, .in_fp32 = true},
    {.freezes = true},
    {.recompute = PL_RECOMPUTE_MLP, .packs = true, .head4 = true},
    {.in_fp32 = true, .base_bf16 = true},
};

static void vary(struct pl_job_shape *s, const struct variant *v) {
    if (!s->inference) { /* which nothing of this is asked about */
        s->recompute = v->recompute;
        s->optimizer = v->optimizer ? v->optimizer : s->optimizer;
        s->offload = v->offload;
        s->update_on_host = v->update_on_host;
        s->embedding_on_host = v->embedding_on_host && s->mode != PL_MODE_FULL;
        s->packing = v->packs;
        s->freeze_layers = v->freezes ? 2 : 0;
        s->lora_dropout = v->drops && pl_mode_adapts(s->mode) ? 0.05 : 0;
    }
    s->quantize_head = v->head4 && s->mode == PL_MODE_QLORA;
    if (v->in_fp32) {
        s->dtype = s->gradient_dtype = PL_DTYPE_F32;
        s->master_weights = false;
        s->base_bf16 = v->base_bf16 && s->mode == PL_MODE_LORA;
    }
    if (v->exact_gradients) s->gradient_dtype = PL_DTYPE_F32;
}

static void add_program(struct pl_digest *h, const struct pl_model *m, const struct pl_job_shape *s,
                        const struct pl_traits *traits) {
    struct pl_planned p;
    struct pl_diag d = {0};
    ck_assert_msg(pl_planned_init_shape(&p, s, m, traits, &d) == PL_ERR_OK, "%s", d.message);
    ck_assert_msg(pl_plan_check(p.plan, &d) == PL_ERR_OK, "%s", d.message);
    add_plan(h, p.plan);
    pl_planned_finish(&p);
}

static uint64_t digest_of_levels(const struct pl_model *m, int mode, const struct pl_traits *t) {
    struct pl_digest h;
    struct pl_job_shape s = base_shape(m, mode);
    pl_digest_init(&h, 0);
    for (s.recompute = PL_RECOMPUTE_NONE; s.recompute < PL_RECOMPUTE_PLAIN; s.recompute++) {
        add_program(&h, m, &s, t);
        if (s.inference) break;
    }
    return pl_digest_value(&h);
}

static uint64_t digest_of_variants(const struct pl_model *m, int mode, const struct pl_traits *t) {
    struct pl_digest h;
    pl_digest_init(&h, 0);
    for (size_t i = 0; i < sizeof variants / sizeof *variants; i++) {
        struct pl_job_shape s = base_shape(m, mode);
        vary(&s, &variants[i]);
        add_program(&h, m, &s, t);
    }
    return pl_digest_value(&h);
}

/* --- the list ------------------------------------------------------------------------------------
 */

/* One of each kind of model: QK-norm, biases and a tied head, partial rotation with two tables, a
 * window, layers without rotation. */
static bool has_variants(const char *model) {
    static const char *const varied[] = {"Qwen3-0.6B", "Qwen2.5-0.5B", "Phi-4-mini",
                                         "Mistral-7B-v0.3", "SmolLM3-3B"};
    for (size_t i = 0; i < sizeof varied / sizeof *varied; i++)
        if (strcmp(varied[i], model) == 0) return true;
    return false;
}

static void expect_line(const char *line) {
    char read[LINE];
    FILE *f = fopen(getenv("PLIMSOLL_DIGESTS"), "r");
    ck_assert_ptr_nonnull(f);
    bool found = false;
    while (!found && fgets(read, sizeof read, f))
        found = strcmp(read, line) == 0;
    fclose(f);
    ck_assert_msg(found, "a program or a plan has changed: not in the list: %s", line);
}

static void write_line(const char *line) {
    FILE *f = fopen(getenv("PLIMSOLL_DIGESTS_OUT"), "a");
    ck_assert_ptr_nonnull(f);
    ck_assert_int_ge(fputs(line, f), 0);
    ck_assert_int_eq(fclose(f), 0);
}

static void put(const char *model, int mode, const char *backend, const char *what, uint64_t v) {
    char line[LINE];
    snprintf(line, sizeof line, "%s %s %s %s %016llx\n", model, list_modes[mode], backend, what,
             (unsigned long long)v);
    if (getenv("PLIMSOLL_DIGESTS_OUT"))
        write_line(line);
    else
        expect_line(line);
}

/* _i: model and mode. */
START_TEST(programs_and_their_places_are_those_of_the_list) {
    const struct pl_traits traits[] = {pl_traits_cpu(2), pl_traits_cuda(80)};
    static const char *const names[] = {"cpu", "cuda"};
    const char *model = pl_test_models[_i / N_MODES];
    const int mode = _i % N_MODES;
    struct pl_model m;
    pl_test_model(model, &m);
    for (int t = 0; t < 2; t++) {
        put(model, mode, names[t], "levels", digest_of_levels(&m, mode, &traits[t]));
        if (has_variants(model))
            put(model, mode, names[t], "variants", digest_of_variants(&m, mode, &traits[t]));
    }
}
END_TEST

int main(void) {
    Suite *s = suite_create("program.digests");
    TCase *tc = tcase_create("list");
    tcase_set_timeout(tc, 120);
    tcase_add_loop_test(tc, programs_and_their_places_are_those_of_the_list, 0,
                        pl_test_n_models * N_MODES);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
