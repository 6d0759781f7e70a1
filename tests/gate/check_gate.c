/* check_gate.c - verdicts at their limits, the size gate, and remedies that keep their word. */
#include "estimator/autobatch/decide.h"
#include "estimator/card/cards.h"
#include "estimator/config/job_text.h"
#include "estimator/config/job_values.h"
#include "estimator/gate/estimate.h"
#include "estimator/gate/remedies.h"
#include "tests/plan/planning.h"
#include "tests/support/ask.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct fixture {
    struct pl_job job;
    struct pl_model m;
    struct pl_traits traits;
    struct pl_planned planned;
};

static void set(struct pl_job *job, const char *key, const char *value) {
    struct pl_diag d = {0};
    ck_assert_msg(pl_job_set(job, key, value, &d) == PL_ERR_OK, "%s: %s", key, d.message);
}

static void start(struct fixture *f, const char *model, const char *mode, uint32_t batch) {
    *f = (struct fixture){.traits = pl_traits_cpu(2)};
    ck_assert_int_eq(pl_job_defaults(&f->job, NULL), PL_ERR_OK);
    set(&f->job, "mode", mode);
    set(&f->job, "max_seq_length", "512");
    f->job.batch_size = batch;
    pl_test_model(model, &f->m);
    ck_assert_int_eq(
        pl_question_plan(PL_ASK(&f->job, &f->m, &f->traits, NULL, batch), NULL, &f->planned, NULL),
        PL_ERR_OK);
}

static pl_err remedies(const struct fixture *f, const struct pl_budget *b,
                       struct pl_remedy rows[PL_MAX_REMEDIES], uint32_t *n) {
    const uint32_t batch = (uint32_t)f->planned.program->shape.batch_size;
    return pl_gate_remedies(PL_ASK(&f->job, &f->m, &f->traits, b, batch), f->planned.plan, rows, n,
                            NULL);
}

static void finish(struct fixture *f) {
    pl_planned_finish(&f->planned);
    pl_job_finish(&f->job);
}

static struct pl_budget card(uint64_t total, uint64_t margin, uint64_t context) {
    return (struct pl_budget){.known = true,
                              .total_bytes = total,
                              .margin_bytes = margin,
                              .context_bytes = context,
                              .source = "test"};
}

/* G1 of gate.h */
START_TEST(the_verdict_turns_on_single_bytes) {
    struct fixture f;
    start(&f, "SmolLM2-135M", "full", 2);
    uint64_t arena = f.planned.plan->arena_bytes;
    const struct {
        uint64_t total, margin, context, doubt;
        enum pl_verdict_kind want;
        uint64_t short_bytes; /* tight: of the margin, or */
        bool inside_doubt;    /* part of the context's doubt */
    } rows[] = {{arena, 0, 0, 0, PL_VERDICT_FITS, 0, false},
                {arena - 1, 0, 0, 0, PL_VERDICT_NO, 0, false},
                {arena + 1000, 1000, 0, 0, PL_VERDICT_FITS, 0, false},
                {arena + 999, 1000, 0, 0, PL_VERDICT_TIGHT, 1, false},
                {arena, 1000, 0, 0, PL_VERDICT_TIGHT, 1000, false},
                {arena + 500, 0, 500, 0, PL_VERDICT_FITS, 0, false},
                {arena + 499, 0, 500, 0, PL_VERDICT_NO, 0, false},
                {arena + 1499, 1000, 500, 0, PL_VERDICT_TIGHT, 1, false},
                {arena + 1700, 1000, 500, 200, PL_VERDICT_FITS, 0, false},
                {arena + 1699, 1000, 500, 200, PL_VERDICT_TIGHT, 1, false},
                {arena + 700, 1000, 500, 200, PL_VERDICT_TIGHT, 1000, false},
                {arena + 699, 1000, 500, 200, PL_VERDICT_TIGHT, 1, true},
                {arena + 300, 1000, 500, 200, PL_VERDICT_TIGHT, 400, true},
                {arena + 299, 1000, 500, 200, PL_VERDICT_NO, 0, false},
                {arena + 500, arena + 500, 0, 0, PL_VERDICT_TIGHT, arena, false},
                {arena + 500, arena + 501, 0, 0, PL_VERDICT_NO, 0, false},
                {arena + 500, 0, 500, UINT64_MAX, PL_VERDICT_TIGHT, UINT64_MAX - arena - 500, true},
                {100, UINT64_MAX, 0, 0, PL_VERDICT_NO, 0, false}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct pl_budget b = card(rows[i].total, rows[i].margin, rows[i].context);
        b.doubt_bytes = rows[i].doubt;
        struct pl_verdict v = pl_gate_judge(f.planned.plan, PL_ASK(&f.job, &f.m, &f.traits, &b, 0));
        ck_assert_msg(v.kind == rows[i].want, "row %zu: %s", i, pl_verdict_name(v.kind));
        ck_assert_uint_eq(v.short_bytes, rows[i].short_bytes);
        ck_assert_int_eq(v.inside_doubt, rows[i].inside_doubt);
        struct pl_diag d = {0};
        pl_err err = pl_gate_error(&v, PL_ASK(&f.job, &f.m, &f.traits, &b, 0), &d);
        ck_assert_int_eq(err, rows[i].want == PL_VERDICT_NO ? PL_ERR_DOES_NOT_FIT : PL_ERR_OK);
    }
    finish(&f);
}
END_TEST

/* G3 of gate.h, whatever the memory; the reason is what a run would be refused with. */
START_TEST(on_a_gpu_without_kernels_nothing_fits) {
    static const struct {
        uint32_t sm;
        bool runs;
    } rows[] = {{70, false}, {72, false}, {PL_CARD_OLDEST_SM, true}, {90, true}};
    const struct pl_budget roomy = card(UINT64_C(1) << 50, 0, 0);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct fixture f;
        struct pl_diag d = {0};
        struct pl_estimate e;
        struct pl_text text = {0};
        start(&f, "SmolLM2-135M", "lora", 1);
        f.traits = pl_traits_cuda(rows[i].sm);
        struct pl_question q = *PL_ASK(&f.job, &f.m, &f.traits, &roomy, 1);
        q.card = "a card";
        ck_assert_int_eq(pl_estimate_init(&e, &q, NULL, NULL), PL_ERR_OK);
        ck_assert_int_eq(e.verdict.kind, rows[i].runs ? PL_VERDICT_FITS : PL_VERDICT_NO);
        ck_assert_int_eq(e.verdict.no_kernels, !rows[i].runs);
        ck_assert_uint_eq(e.n_remedies, 0);
        ck_assert_int_eq(pl_gate_error(&e.verdict, &q, &d),
                         rows[i].runs ? PL_ERR_OK : PL_ERR_NO_DEVICE);
        pl_estimate_text(&e, false, 80, &text);
        ck_assert_int_eq(strstr(pl_text_str(&text), "verdict: no - a card has compute") != NULL,
                         !rows[i].runs);
        pl_text_finish(&text);
        pl_estimate_finish(&e);
        finish(&f);
    }
}
END_TEST

/* Kernels have room for so wide a head, which one layer has, or the model is named. */
START_TEST(a_head_too_wide_for_the_gpu_is_refused) {
    static const struct {
        uint32_t sm, head_dim;
        bool runs;
    } rows[] = {
        {0, 1024, true}, {75, 256, true}, {75, 264, false}, {80, 512, true}, {90, 520, false}};
    const struct pl_verdict v = {.kind = PL_VERDICT_NO, .no_kernels = true};
    const struct pl_budget roomy = card(UINT64_C(1) << 50, 0, 0);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct fixture f;
        struct pl_diag d = {0};
        start(&f, "SmolLM2-135M", "lora", 1);
        f.traits = rows[i].sm ? pl_traits_cuda(rows[i].sm) : pl_traits_cpu(1);
        f.job.dtype = PL_DTYPE_F32;
        f.m.layer[f.m.layers / 2].head_dim = rows[i].head_dim;
        ck_assert_int_eq(pl_job_without_kernels(&f.job, &f.m, &f.traits),
                         rows[i].runs ? PL_KEY_COUNT : PL_KEY_model);
        struct pl_question q = *PL_ASK(&f.job, &f.m, &f.traits, &roomy, 1);
        q.card = "a card";
        if (!rows[i].runs) {
            ck_assert_int_eq(pl_gate_error(&v, &q, &d), PL_ERR_NO_DEVICE);
            ck_assert_ptr_nonnull(strstr(d.message, "dimensions: attention on a card takes"));
            ck_assert_ptr_nonnull(strstr(d.hint, "device: cpu"));
        }
        finish(&f);
    }
}
END_TEST

START_TEST(a_tight_verdict_says_what_it_is_inside_of) {
    struct fixture f;
    start(&f, "SmolLM2-135M", "lora", 1);
    for (int in_doubt = 0; in_doubt < 2; in_doubt++) {
        const uint64_t mib = UINT64_C(1) << 20;
        struct pl_budget b = card(f.planned.plan->arena_bytes + 100 * mib, 64 * mib, 80 * mib);
        struct pl_estimate e;
        struct pl_text text = {0};
        b.doubt_bytes = in_doubt ? 40 * mib : 0;
        const struct pl_question q = *PL_ASK(&f.job, &f.m, &f.traits, &b, 1);
        ck_assert_int_eq(pl_estimate_init_of(&e, &q, &f.planned, NULL), PL_ERR_OK);
        pl_estimate_text(&e, false, 80, &text);
        const char *want = in_doubt ? ": 20.00 MiB (20971520 bytes) inside the possible error of "
                                      "the context, 40.00 MiB to either side\n"
                                    : ": 44.00 MiB (46137344 bytes) inside the margin of 64.00 "
                                      "MiB\n";
        ck_assert_msg(strstr(pl_text_str(&text), want) != NULL, "%s", pl_text_str(&text));
        json_t *o = pl_estimate_json(&e, NULL), *limits = json_object_get(o, "limits");
        ck_assert_str_eq(json_string_value(json_object_get(limits, "inside")),
                         in_doubt ? "context_doubt" : "margin");
        ck_assert_int_eq(json_integer_value(json_object_get(limits, "short_bytes")),
                         (json_int_t)(in_doubt ? 20 * mib : 44 * mib));
        json_decref(o);
        pl_text_finish(&text);
        pl_estimate_finish(&e);
    }
    finish(&f);
}
END_TEST

START_TEST(without_a_budget_the_verdict_is_unknown) {
    struct fixture f;
    const struct pl_budget none = {0};
    start(&f, "SmolLM2-135M", "lora", 1);
    ck_assert_int_eq(pl_gate_judge(f.planned.plan, PL_ASK(&f.job, &f.m, &f.traits, &none, 0)).kind,
                     PL_VERDICT_UNKNOWN);
    finish(&f);
}
END_TEST

/* G2 of gate.h */
START_TEST(the_size_gate_counts_exactly_and_only_for_full) {
    struct fixture f;
    struct pl_budget roomy = card(UINT64_C(1) << 50, 0, 0);
    struct pl_diag d = {0};
    start(&f, "Qwen2.5-7B", "full", 1);
    struct pl_verdict v = pl_gate_judge(f.planned.plan, PL_ASK(&f.job, &f.m, &f.traits, &roomy, 0));
    ck_assert(v.over_ceiling);
    ck_assert_int_eq(pl_gate_error(&v, PL_ASK(&f.job, &f.m, &f.traits, &roomy, 0), &d),
                     PL_ERR_FULL_FT_MODEL_TOO_LARGE);
    ck_assert_str_eq(pl_err_code(d.err), "RUNTIME_FULL_FT_MODEL_TOO_LARGE");
    ck_assert(strstr(d.message, "7.616"));
    f.job.full_ft_ceiling_billions = 7.615616512; /* equals its exact count */
    ck_assert(
        !pl_gate_judge(f.planned.plan, PL_ASK(&f.job, &f.m, &f.traits, &roomy, 0)).over_ceiling);
    f.job.full_ft_ceiling_billions = 7.615616511;
    ck_assert(
        pl_gate_judge(f.planned.plan, PL_ASK(&f.job, &f.m, &f.traits, &roomy, 0)).over_ceiling);
    f.job.mode = PL_MODE_LORA;
    ck_assert(
        !pl_gate_judge(f.planned.plan, PL_ASK(&f.job, &f.m, &f.traits, &roomy, 0)).over_ceiling);
    finish(&f);
}
END_TEST

/* Two devices train twice as much where each holds parts of gradients and states, and no more than
 * one where gradients are whole until the update. */
START_TEST(the_size_gate_is_for_each_device_that_shares_gradients) {
    static const struct {
        uint32_t sharding, rank_order;
        bool over;
    } rows[] = {{PL_SHARDING_NONE, PL_TRI_TRUE, true},
                {PL_SHARDING_OPTIMIZER, PL_TRI_TRUE, false},
                {PL_SHARDING_WEIGHTS, PL_TRI_TRUE, false},
                {PL_SHARDING_NONE, PL_TRI_FALSE, true},
                {PL_SHARDING_OPTIMIZER, PL_TRI_FALSE, true}};
    struct fixture f;
    struct pl_budget roomy = card(UINT64_C(1) << 50, 0, 0);
    start(&f, "Qwen2.5-7B", "full", 1);
    f.job.devices = 2;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct pl_planned planned;
        f.job.sharding = rows[i].sharding;
        f.job.rank_order = rows[i].rank_order;
        struct pl_question *q = PL_ASK(&f.job, &f.m, &f.traits, &roomy, 0);
        ck_assert_int_eq(pl_question_plan(q, NULL, &planned, NULL), PL_ERR_OK);
        ck_assert_msg(pl_gate_judge(planned.plan, q).over_ceiling == rows[i].over, "row %zu", i);
        pl_planned_finish(&planned);
    }
    finish(&f);
}
END_TEST

/* G2: the model has 28 layers and a head, and frozen layers cost no gradient and no state. */
START_TEST(frozen_layers_do_not_count_for_the_size_gate) {
    struct fixture f;
    struct pl_budget roomy = card(UINT64_C(1) << 50, 0, 0);
    struct pl_remedy rows[PL_MAX_REMEDIES];
    struct pl_planned frozen;
    uint32_t n, found = 0;
    start(&f, "Qwen2.5-7B", "full", 1);
    ck_assert_int_eq(remedies(&f, &roomy, rows, &n), PL_ERR_OK);
    for (uint32_t i = 0; i < n; i++)
        found += strcmp(rows[i].change, "freeze_layers: 14") == 0 && pl_price_fits(&rows[i].price);
    ck_assert_uint_eq(found, 1);
    f.job.freeze_layers = 27;
    struct pl_question *q = PL_ASK(&f.job, &f.m, &f.traits, &roomy, 0);
    ck_assert_int_eq(pl_question_plan(q, NULL, &frozen, NULL), PL_ERR_OK);
    struct pl_verdict v = pl_gate_judge(frozen.plan, q);
    ck_assert(!v.over_ceiling);
    ck_assert_int_eq(v.kind, PL_VERDICT_FITS);
    ck_assert(v.trained_billions > 0.7 && v.trained_billions < 0.8);
    pl_planned_finish(&frozen);
    finish(&f);
}
END_TEST

/* Returns the bytes of the job with the text of a remedy, batch size included, read by the
 * configuration parser: open settings are decided for it. */
static uint64_t needed_with(const struct fixture *f, const struct pl_budget *b,
                            const char *change) {
    struct pl_job job = f->job; /* strings stay borrowed: scalars are all that changes */
    uint32_t batch = f->job.batch_size;
    char text[200];
    snprintf(text, sizeof text, "%s", change);
    for (char *part = strtok(text, ","); part; part = strtok(NULL, ",")) {
        char key[64], value[64];
        ck_assert_int_eq(sscanf(part, " %63[a-z_]: %63[][a-z0-9_:+]", key, value), 2);
        if (strcmp(key, "batch_size") == 0)
            batch = (uint32_t)strtoul(value, NULL, 10);
        else if (strcmp(value, "[]") == 0) /* the names stay with the job that owns them */
            job.lora_modules_to_save.n = 0;
        else
            set(&job, key, value);
    }
    struct pl_planned p;
    struct pl_autobatch search;
    job.batch_size = batch;
    if (strstr(change, "global_batch_size")) /* micro-batches that add up keep their gradients */
        set(&job, "optimizer_in_backward", "false");
    struct pl_question *q = PL_ASK(&job, &f->m, &f->traits, b, batch);
    ck_assert_int_eq(pl_decide(q, PL_BATCH_LIMIT, &search, NULL, NULL), PL_ERR_OK);
    ck_assert_int_eq(pl_question_plan(q, &search.planned, &p, NULL), PL_ERR_OK);
    pl_autobatch_finish(&search);
    uint64_t bytes = p.plan->arena_bytes;
    pl_planned_finish(&p);
    return bytes;
}

/* Plans the changed job, with so many samples. */
static void plan_again(struct fixture *f, uint32_t batch) {
    pl_planned_finish(&f->planned);
    ck_assert_int_eq(
        pl_question_plan(PL_ASK(&f->job, &f->m, &f->traits, NULL, batch), NULL, &f->planned, NULL),
        PL_ERR_OK);
}

START_TEST(every_remedy_saves_what_it_says) {
    static const char *const modes[] = {"full", "lora", "lora"};
    struct fixture f;
    bool alone = false;
    struct pl_remedy rows[PL_MAX_REMEDIES];
    uint32_t n;
    start(&f, "Qwen2.5-0.5B", modes[_i], 8);
    f.job.gradient_checkpointing = PL_RECOMPUTE_NONE;
    f.job.loss_chunk_tokens = 0;
    if (_i == 2) set(&f.job, "lora_modules_to_save", "[embed_tokens, lm_head]");
    plan_again(&f, 8);
    uint64_t now = f.planned.plan->arena_bytes;
    struct pl_budget b = card(now / 2, 0, 0);
    ck_assert_int_eq(remedies(&f, &b, rows, &n), PL_ERR_OK);
    ck_assert_uint_ge(n, 5);
    for (uint32_t i = 0; i < n; i++) {
        uint64_t bytes = needed_with(&f, &b, rows[i].change);
        ck_assert_msg(bytes == rows[i].price.needed_bytes, "%s", rows[i].change);
        ck_assert_int_eq(rows[i].saves_bytes, (int64_t)(now - bytes));
        ck_assert_int_eq(pl_price_fits(&rows[i].price), bytes <= b.total_bytes);
        ck_assert(i == 0 || pl_price_fits(&rows[i - 1].price) ||
                  !pl_price_fits(&rows[i].price)); /* fitting ones first */
        alone |= strcmp(rows[i].change, "lora_modules_to_save: []") == 0;
    }
    ck_assert_int_eq(alone, _i == 2);
    finish(&f);
}
END_TEST

/* The sharding of the job itself, which does not fit, is another. */
START_TEST(a_remedy_has_the_sharding_that_auto_gives_it) {
    struct fixture f;
    struct pl_remedy rows[PL_MAX_REMEDIES];
    uint32_t n, at = 0;
    start(&f, "Qwen2.5-0.5B", "full", 8);
    f.job.devices = 2;
    f.job.sharding = PL_SHARDING_WEIGHTS;
    plan_again(&f, 8);
    struct pl_budget b = card(f.planned.plan->arena_bytes * 3 / 4, 0, 0);
    ck_assert_int_eq(remedies(&f, &b, rows, &n), PL_ERR_OK);
    while (at < n && strcmp(rows[at].change, "mode: lora") != 0)
        at++;
    ck_assert(at < n && pl_price_fits(&rows[at].price));
    ck_assert_uint_ne(needed_with(&f, &b, "mode: lora"), rows[at].price.needed_bytes);
    f.job.sharding = PL_SHARDING_GRADIENTS;
    ck_assert_uint_eq(needed_with(&f, &b, "mode: lora"), rows[at].price.needed_bytes);
    finish(&f);
}
END_TEST

/* Asked again it is a warning and no refusal, which the row says. */
START_TEST(a_remedy_that_takes_of_the_margin_is_tight) {
    struct fixture f;
    struct pl_remedy rows[PL_MAX_REMEDIES];
    uint32_t n, tight = 0;
    start(&f, "Qwen2.5-0.5B", "full", 8);
    const uint64_t now = f.planned.plan->arena_bytes;
    struct pl_budget b = card(now * 3 / 4, now / 2, 0);
    ck_assert_int_eq(remedies(&f, &b, rows, &n), PL_ERR_OK);
    for (uint32_t i = 0; i < n; i++) {
        const uint64_t bytes = rows[i].price.needed_bytes;
        const bool no = bytes > b.total_bytes, fits = bytes <= b.total_bytes - b.margin_bytes;
        ck_assert_int_eq(rows[i].price.verdict, no     ? PL_VERDICT_NO
                                                : fits ? PL_VERDICT_FITS
                                                       : PL_VERDICT_TIGHT);
        ck_assert_int_eq(pl_price_fits(&rows[i].price), fits);
        tight += rows[i].price.verdict == PL_VERDICT_TIGHT;
    }
    ck_assert_uint_gt(tight, 0);
    finish(&f);
}
END_TEST

/* Refused in some way each: level, chunk or both are open; weights, adapters, 4 bits. */
static const struct {
    const char *model, *mode, *level, *chunk;
    uint32_t batch;
    bool cuda;
    double share; /* share of the job's need that is there */
} refused[] = {
    {"SmolLM2-135M", "full", "full", "auto", 4, false, 0.6},
    {"SmolLM2-135M", "full", "auto", "auto", 8, true, 0.3},
    {"SmolLM2-135M", "lora", "auto", "auto", 16, true, 0.7},
    {"Qwen3-0.6B", "full", "auto", "256", 4, true, 0.5},
    {"Qwen3-0.6B", "lora", "none", "auto", 8, true, 0.4},
    {"Qwen3-0.6B", "qlora", "light", "0", 4, true, 0.5},
    {"Qwen2.5-0.5B", "full", "auto", "auto", 3, true, 0.1},
    {"Gemma-3-1B", "full", "full", "512", 2, true, 0.3},
    {"Gemma-3-1B", "lora", "auto", "auto", 4, false, 0.5},
    {"TinyLlama-1.1B", "full", "mlp", "auto", 2, true, 0.25},
};

/* R1 of remedies.h */
START_TEST(every_remedy_typed_gives_the_bytes_it_was_printed_with) {
    struct fixture f;
    struct pl_remedy rows[PL_MAX_REMEDIES];
    struct pl_estimate e;
    struct pl_autobatch search;
    uint32_t fits = 0;
    start(&f, refused[_i].model, refused[_i].mode, refused[_i].batch);
    if (refused[_i].cuda) f.traits = pl_traits_cuda(89);
    set(&f.job, "gradient_checkpointing", refused[_i].level);
    set(&f.job, "loss_chunk_tokens", refused[_i].chunk);
    const struct pl_budget tiny = card(1, 0, 0);
    const uint64_t least = needed_with(&f, &tiny, "");
    const struct pl_budget b = card((uint64_t)((double)least * refused[_i].share), 0, 0);
    struct pl_question *q = PL_ASK(&f.job, &f.m, &f.traits, &b, 0);
    ck_assert_int_eq(pl_decide(q, PL_BATCH_LIMIT, &search, NULL, NULL), PL_ERR_OK);
    ck_assert_int_eq(pl_estimate_init(&e, q, &search.planned, NULL), PL_ERR_OK);
    pl_autobatch_finish(&search);
    ck_assert_uint_gt(e.n_remedies, 0);
    memcpy(rows, e.remedies, sizeof rows);
    for (uint32_t i = 0; i < e.n_remedies; i++) {
        const uint64_t bytes = needed_with(&f, &b, rows[i].change);
        ck_assert_msg(bytes == rows[i].price.needed_bytes,
                      "%s: %llu bytes were printed, %llu come out", rows[i].change,
                      (unsigned long long)rows[i].price.needed_bytes, (unsigned long long)bytes);
        fits += pl_price_fits(&rows[i].price);
    }
    ck_assert_uint_gt(fits, 0);
    pl_estimate_finish(&e);
    finish(&f);
}
END_TEST

/* Inference is no mode of a job, and `mode: qlora` would plan training. */
START_TEST(inference_is_offered_what_can_be_typed_beside_it) {
    struct fixture f;
    struct pl_remedy rows[PL_MAX_REMEDIES];
    uint32_t n, found = 0;
    start(&f, "Qwen2.5-0.5B", "full", 3);
    pl_job_set_inference(&f.job);
    pl_planned_finish(&f.planned);
    ck_assert_int_eq(
        pl_question_plan(PL_ASK(&f.job, &f.m, &f.traits, NULL, 3), NULL, &f.planned, NULL),
        PL_ERR_OK);
    struct pl_budget b = card(f.planned.plan->arena_bytes / 2, 0, 0);
    ck_assert_int_eq(remedies(&f, &b, rows, &n), PL_ERR_OK);
    set(&f.job, "quant_type", "nf4");
    f.job.mode = PL_UNSET_U32;
    pl_job_set_inference(&f.job);
    for (uint32_t i = 0; i < n; i++) {
        ck_assert_ptr_null(strstr(rows[i].change, "mode:"));
        if (strcmp(rows[i].change, "quant_type: nf4") != 0) continue;
        found++;
        ck_assert_uint_eq(rows[i].price.needed_bytes, needed_with(&f, &b, "quant_type: nf4"));
    }
    ck_assert_uint_eq(found, 1);
    finish(&f);
}
END_TEST

/* Only where a step is one micro-batch of all weights, and its gradients are the device's. */
START_TEST(updates_in_the_backward_pass_are_offered_where_they_may_be) {
    static const struct {
        const char *mode, *key, *value;
        bool offered;
    } jobs[] = {
        {"full", "seed", "1", true},
        {"full", "offload", "optimizer", true},
        {"full", "offload", "gradients", false},
        {"full", "full_ft_offload", "true", false},
        {"full", "gradient_accumulation_steps", "2", false},
        {"full", "global_batch_size", "12", false},
        {"full", "optimizer_in_backward", "true", false},
        {"full", "optimizer_in_backward", "auto", false},
        {"lora", "seed", "1", false},
    };
    struct fixture f;
    struct pl_remedy rows[PL_MAX_REMEDIES];
    uint32_t n;
    start(&f, "Qwen2.5-0.5B", jobs[_i].mode, 3);
    set(&f.job, "optimizer_in_backward", "false");
    set(&f.job, jobs[_i].key, jobs[_i].value);
    pl_planned_finish(&f.planned);
    ck_assert_int_eq(
        pl_question_plan(PL_ASK(&f.job, &f.m, &f.traits, NULL, 3), NULL, &f.planned, NULL),
        PL_ERR_OK);
    for (uint64_t share = 2; share < 64; share *= 2) { /* from one change to several */
        bool offered = false;
        struct pl_budget b = card(f.planned.plan->arena_bytes / share, 0, 0);
        ck_assert_int_eq(remedies(&f, &b, rows, &n), PL_ERR_OK);
        for (uint32_t i = 0; i < n; i++) {
            const char *change = rows[i].change;
            if (!strstr(change, "optimizer_in_backward")) continue;
            offered = true;
            /* with no setting that makes it meaningless */
            ck_assert_msg(!strstr(change, "full_ft_offload") && !strstr(change, "batch_size") &&
                              !strstr(change, "mode:"),
                          "%s", change);
            ck_assert_uint_eq(rows[i].price.needed_bytes, needed_with(&f, &b, change));
        }
        ck_assert_int_eq(offered, jobs[_i].offered);
    }
    finish(&f);
}
END_TEST

START_TEST(no_remedy_is_listed_twice) {
    struct fixture f;
    struct pl_remedy rows[PL_MAX_REMEDIES];
    uint32_t n;
    start(&f, "Qwen2.5-0.5B", "lora", 3);
    struct pl_budget b = card(f.planned.plan->arena_bytes / 2, 0, 0);
    ck_assert_int_eq(remedies(&f, &b, rows, &n), PL_ERR_OK);
    for (uint32_t i = 1; i < n; i++)
        for (uint32_t k = 0; k < i; k++)
            ck_assert_str_ne(rows[i].change, rows[k].change);
    finish(&f);
}
END_TEST

/* Levels that take less time than `full` have a row where they are enough, and only there. */
START_TEST(a_cheaper_level_is_named_where_it_is_enough) {
    static const char *const levels[] = {"light", "attention", "mlp"};
    struct fixture f;
    struct pl_remedy rows[PL_MAX_REMEDIES];
    uint32_t n;
    char change[64];
    start(&f, "Qwen2.5-0.5B", "lora", 4);
    f.job.gradient_checkpointing = PL_RECOMPUTE_NONE;
    f.job.mlp_chunk_tokens = 0;
    pl_planned_finish(&f.planned);
    ck_assert_int_eq(
        pl_question_plan(PL_ASK(&f.job, &f.m, &f.traits, NULL, 4), NULL, &f.planned, NULL),
        PL_ERR_OK);
    snprintf(change, sizeof change, "gradient_checkpointing: %s", levels[_i]);
    const struct pl_budget tiny = card(1, 0, 0); /* the smallest chunk */
    for (uint64_t short_by = 0; short_by < 2; short_by++) {
        struct pl_budget b = card(needed_with(&f, &tiny, change) - short_by, 0, 0);
        bool named = false;
        ck_assert_int_eq(remedies(&f, &b, rows, &n), PL_ERR_OK);
        for (uint32_t i = 0; i < n; i++)
            named |= strcmp(rows[i].change, change) == 0;
        ck_assert_int_eq(named, !short_by);
    }
    finish(&f);
}
END_TEST

/* Returns the remedy with `gradient_checkpointing: offload`, alone or with other changes. */
static const char *offload_offered(const struct pl_remedy *rows, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        if (strstr(rows[i].change, "gradient_checkpointing: offload") &&
            pl_price_fits(&rows[i].price))
            return rows[i].change;
    ck_abort_msg("nothing with inputs in host memory is said to fit");
    return NULL;
}

/* Budgets lie between the needs of all layers at `full` and of all inputs in host memory: for each
 * the fewest layers that fit are found by trying them one after another. */
START_TEST(the_fewest_layers_whose_inputs_must_wait_in_host_memory_are_named) {
    struct fixture f;
    struct pl_remedy rows[PL_MAX_REMEDIES];
    char change[64];
    uint32_t n, mixes = 0;
    start(&f, "SmolLM2-135M", "lora", 4);
    f.traits = pl_traits_cuda(89);
    f.job.loss_chunk_tokens = 128;
    f.job.mlp_chunk_tokens = 0; /* in chunks `full` may be enough */
    const struct pl_budget tiny = card(1, 0, 0);
    const uint64_t full = needed_with(&f, &tiny, "gradient_checkpointing: full");
    const uint64_t all = needed_with(&f, &tiny, "gradient_checkpointing: offload");
    ck_assert_uint_lt(all, full);
    for (int share = 0; share <= 8; share++) {
        const struct pl_budget b = card(all + (full - all) * (uint64_t)share / 8, 0, 0);
        uint32_t k = 0;
        do {
            k++;
            snprintf(change, sizeof change, "gradient_checkpointing: offload:%u+full", k);
        } while (k < f.m.layers && needed_with(&f, &b, change) > b.total_bytes);
        if (k == f.m.layers || share == 8)
            snprintf(change, sizeof change, "gradient_checkpointing: offload");
        ck_assert_int_eq(remedies(&f, &b, rows, &n), PL_ERR_OK);
        ck_assert_str_eq(offload_offered(rows, n), change);
        mixes += strchr(change, '+') != NULL;
    }
    ck_assert_uint_ge(mixes, 5);
    finish(&f);
}
END_TEST

static const struct {
    const char *dtype, *base_dtype, *stored;
    bool on_gpu;
    const char *base, *both; /* the offers; "" = none */
} storages[] = {
    {"fp32", "auto", "float32", false, "base_dtype: bf16", "dtype: bf16"},
    {"fp32", "fp32", "bfloat16", false, "base_dtype: bf16", "dtype: bf16, base_dtype: auto"},
    {"fp32", "auto", "bfloat16", false, "", "dtype: bf16"},
    {"fp32", "auto", "float32", true, "", "dtype: bf16"},
    {"bf16", "auto", "float32", false, "", ""},
};

/* A base in bf16 where the back-end can and has none yet; every offer is a valid setting. */
START_TEST(narrower_storage_is_offered_where_there_is_some) {
    struct fixture f;
    struct pl_remedy rows[PL_MAX_REMEDIES];
    uint32_t n;
    bool base = false, both = false;
    start(&f, "Qwen2.5-0.5B", "lora", 1);
    set(&f.job, "dtype", storages[_i].dtype);
    set(&f.job, "base_dtype", storages[_i].base_dtype);
    f.job.given[PL_KEY_base_dtype] = strcmp(storages[_i].base_dtype, "auto") != 0;
    strcpy(f.m.torch_dtype, storages[_i].stored);
    if (storages[_i].on_gpu) f.traits = pl_traits_cuda(90);
    pl_planned_finish(&f.planned);
    ck_assert_int_eq(
        pl_question_plan(PL_ASK(&f.job, &f.m, &f.traits, NULL, 1), NULL, &f.planned, NULL),
        PL_ERR_OK);
    /* everything fits, so that an offer which saves nothing would be listed too */
    struct pl_budget b = card(f.planned.plan->arena_bytes, 0, 0);
    ck_assert_int_eq(remedies(&f, &b, rows, &n), PL_ERR_OK);
    for (uint32_t i = 0; i < n; i++) {
        if (strncmp(rows[i].change, "base_dtype", 10) != 0 &&
            strncmp(rows[i].change, "dtype", 5) != 0)
            continue;
        base |= strcmp(rows[i].change, storages[_i].base) == 0;
        both |= strcmp(rows[i].change, storages[_i].both) == 0;
        if (storages[_i].base[0] == 0) ck_assert_str_ne(rows[i].change, "base_dtype: bf16");
        ck_assert_uint_eq(needed_with(&f, &b, rows[i].change), rows[i].price.needed_bytes);
    }
    ck_assert_int_eq(base, storages[_i].base[0] != 0);
    ck_assert_int_eq(both, storages[_i].both[0] != 0);
    finish(&f);
}
END_TEST

START_TEST(what_no_single_change_cures_is_cured_together) {
    struct fixture f;
    struct pl_remedy rows[PL_MAX_REMEDIES];
    uint32_t n;
    start(&f, "SmolLM2-135M", "full", 16);
    struct pl_job lean = f.job;
    lean.mode = PL_MODE_LORA;
    struct pl_planned p;
    ck_assert_int_eq(pl_question_plan(PL_ASK(&lean, &f.m, &f.traits, NULL, 1), NULL, &p, NULL),
                     PL_ERR_OK);
    struct pl_budget b = card(p.plan->arena_bytes, 0, 0);
    pl_planned_finish(&p);
    ck_assert_int_eq(remedies(&f, &b, rows, &n), PL_ERR_OK);
    ck_assert(pl_price_fits(&rows[0].price));
    ck_assert(strstr(rows[0].change, "batch_size: 1") && strstr(rows[0].change, ", "));
    ck_assert_uint_eq(needed_with(&f, &b, rows[0].change), rows[0].price.needed_bytes);
    finish(&f);
}
END_TEST

int main(void) {
    Suite *s = suite_create("gate.gate");
    TCase *tc = tcase_create("gate");
    tcase_set_timeout(tc, 90);
    tcase_add_test(tc, the_verdict_turns_on_single_bytes);
    tcase_add_test(tc, on_a_gpu_without_kernels_nothing_fits);
    tcase_add_test(tc, a_head_too_wide_for_the_gpu_is_refused);
    tcase_add_test(tc, a_tight_verdict_says_what_it_is_inside_of);
    tcase_add_test(tc, without_a_budget_the_verdict_is_unknown);
    tcase_add_test(tc, the_size_gate_counts_exactly_and_only_for_full);
    tcase_add_test(tc, the_size_gate_is_for_each_device_that_shares_gradients);
    tcase_add_test(tc, frozen_layers_do_not_count_for_the_size_gate);
    tcase_add_loop_test(tc, every_remedy_typed_gives_the_bytes_it_was_printed_with, 0,
                        (int)(sizeof refused / sizeof *refused));
    tcase_add_test(tc, inference_is_offered_what_can_be_typed_beside_it);
    tcase_add_test(tc, no_remedy_is_listed_twice);
    tcase_add_loop_test(tc, updates_in_the_backward_pass_are_offered_where_they_may_be, 0, 8);
    tcase_add_loop_test(tc, every_remedy_saves_what_it_says, 0, 3);
    tcase_add_test(tc, a_remedy_has_the_sharding_that_auto_gives_it);
    tcase_add_test(tc, a_remedy_that_takes_of_the_margin_is_tight);
    tcase_add_loop_test(tc, a_cheaper_level_is_named_where_it_is_enough, 0, 3);
    tcase_add_loop_test(tc, narrower_storage_is_offered_where_there_is_some, 0,
                        sizeof storages / sizeof *storages);
    tcase_add_test(tc, the_fewest_layers_whose_inputs_must_wait_in_host_memory_are_named);
    tcase_add_test(tc, what_no_single_change_cures_is_cured_together);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
