/* knobs.c - what each setting saves or costs, every row planned again. */
#include "estimator/advice/parts.h"

#include "estimator/autobatch/autobatch.h"
#include "estimator/autobatch/decide.h"
#include "estimator/base/checked.h"
#include "estimator/config/job_text.h"
#include "estimator/config/job_values.h"
#include "estimator/config/key_table.h"
#include "estimator/config/validate.h"

#include <stdio.h>
#include <string.h>

#define IN_FULL  1u
#define IN_LORA  2u
#define IN_WHOLE 4u /* adapters, and modules that are trained whole with them */
#define IN_QLORA 8u
#define IN_BOTH  (IN_FULL | IN_LORA)

/* The value of a row: a word of the key's own, each of them in turn, or what it does to the number
 * that stands there. */
enum scale { AS_WRITTEN, EVERY_CHOICE, HALVE, DOUBLE, HALF_THE_LAYERS, NO_MODULES, BOTH_MODULES };

/* A new key that costs or saves bytes gets a row here. Order: from what leaves the result alone to
 * what changes the experiment. */
static const struct knob_row {
    enum pl_key_id key;
    unsigned modes;
    enum scale scale;
    const char *value;
} rows[] = {
    {PL_KEY_gradient_checkpointing, IN_BOTH, AS_WRITTEN, "none"},
    {PL_KEY_gradient_checkpointing, IN_BOTH, AS_WRITTEN, "light"},
    {PL_KEY_gradient_checkpointing, IN_BOTH, AS_WRITTEN, "attention"},
    {PL_KEY_gradient_checkpointing, IN_BOTH, AS_WRITTEN, "mlp"},
    {PL_KEY_gradient_checkpointing, IN_BOTH, AS_WRITTEN, "full"},
    {PL_KEY_gradient_checkpointing, IN_BOTH, AS_WRITTEN, "offload"},
    {PL_KEY_offload, IN_BOTH, AS_WRITTEN, "none"},
    {PL_KEY_offload, IN_BOTH, AS_WRITTEN, "optimizer"},
    {PL_KEY_offload, IN_LORA, AS_WRITTEN, "weights"},
    {PL_KEY_embedding_device, IN_LORA, AS_WRITTEN, "host"},
    {PL_KEY_full_ft_offload, IN_FULL, AS_WRITTEN, "true"},
    {PL_KEY_full_ft_offload, IN_FULL, AS_WRITTEN, "false"},
    {PL_KEY_optimizer_in_backward, IN_FULL, AS_WRITTEN, "true"},
    {PL_KEY_optimizer_in_backward, IN_FULL, AS_WRITTEN, "false"},
    {PL_KEY_loss_chunk_tokens, IN_BOTH, AS_WRITTEN, "128"},
    {PL_KEY_loss_chunk_tokens, IN_BOTH, AS_WRITTEN, "0"},
    {PL_KEY_mlp_chunk_tokens, IN_BOTH, AS_WRITTEN, "1024"},
    {PL_KEY_mlp_chunk_tokens, IN_BOTH, AS_WRITTEN, "0"},
    {PL_KEY_unpack_buffer, IN_QLORA, AS_WRITTEN, "16MiB"},
    {PL_KEY_unpack_buffer, IN_QLORA, AS_WRITTEN, "0"},
    {PL_KEY_batch_size, IN_BOTH, HALVE, ""},
    {PL_KEY_batch_size, IN_BOTH, DOUBLE, ""},
    {PL_KEY_gradient_dtype, IN_FULL | IN_WHOLE, AS_WRITTEN, "bf16"},
    {PL_KEY_gradient_dtype, IN_FULL | IN_WHOLE, AS_WRITTEN, "fp32"},
    {PL_KEY_master_weights, IN_FULL | IN_WHOLE, AS_WRITTEN, "false"},
    {PL_KEY_master_weights, IN_FULL, AS_WRITTEN, "true"},
    {PL_KEY_moment_dtype, IN_FULL | IN_WHOLE, AS_WRITTEN, "bf16"},
    {PL_KEY_adapter_dtype, IN_LORA, AS_WRITTEN, "bf16"},
    {PL_KEY_adapter_dtype, IN_LORA, AS_WRITTEN, "fp32"},
    {PL_KEY_base_dtype, IN_LORA, AS_WRITTEN, "bf16"},
    {PL_KEY_base_dtype, IN_LORA, AS_WRITTEN, "fp32"},
    {PL_KEY_dtype, IN_BOTH, AS_WRITTEN, "bf16"},
    {PL_KEY_dtype, IN_BOTH, AS_WRITTEN, "fp32"},
    {PL_KEY_mode, IN_LORA, AS_WRITTEN, "lora"},
    {PL_KEY_mode, IN_LORA, AS_WRITTEN, "qlora"},
    {PL_KEY_quantize_embedding, IN_QLORA, AS_WRITTEN, "true"},
    {PL_KEY_quantize_head, IN_QLORA, AS_WRITTEN, "true"},
    {PL_KEY_lora_modules_to_save, IN_LORA, NO_MODULES, ""},
    {PL_KEY_lora_modules_to_save, IN_LORA, BOTH_MODULES, ""},
    {PL_KEY_lora_r, IN_LORA, HALVE, ""},
    {PL_KEY_lora_r, IN_LORA, DOUBLE, ""},
    {PL_KEY_max_seq_length, IN_BOTH, HALVE, ""},
    {PL_KEY_max_seq_length, IN_BOTH, DOUBLE, ""},
    {PL_KEY_optimizer, IN_BOTH, EVERY_CHOICE, ""},
    {PL_KEY_freeze_layers, IN_FULL, HALF_THE_LAYERS, ""},
};
#define N_ROWS (sizeof rows / sizeof *rows)
_Static_assert(N_ROWS + PL_OPTIMIZERS_MAX <= PL_MAX_KNOBS, "room for every row and choice");

/* "key: value" as it is planned. */
static void describe(const struct pl_question *q, enum pl_key_id key, char *out, size_t size) {
    uint32_t n;
    struct pl_job job = *q->job; /* shallow */
    struct pl_text line = PL_TEXT_IN(out, size);
    pl_question_settle(q, &job);
    job.batch_size = q->batch_size;
    pl_text_addf(&line, "%s: ", pl_key_table(&n)[key].key);
    pl_job_write_key(&job, key, &line);
    if (key == PL_KEY_lora_modules_to_save && !job.lora_modules_to_save.n) pl_text_add(&line, "[]");
}

static unsigned modes_of(const struct pl_job *job) {
    if (job->mode == PL_MODE_FULL) return IN_FULL;
    return IN_LORA | (job->lora_modules_to_save.n ? IN_WHOLE : 0) |
           (job->mode == PL_MODE_QLORA ? IN_QLORA : 0);
}

/* The copy of a job owns none of its lists. */
static pl_err train_whole(struct pl_variant *v, bool both) {
    static const char *const names[] = {"embed_tokens", "lm_head"};
    v->job.lora_modules_to_save = (struct pl_str_list){(char **)(uintptr_t)names, both ? 2 : 0};
    return PL_ERR_OK;
}

/* Another error than PL_ERR_HOST_OOM: the row does not apply, since it is of another mode, out of
 * range, or refused with the other keys. */
static pl_err apply(const struct knob_row *row, struct pl_variant *v) {
    const struct pl_model *m = v->q.model;
    uint32_t n, now = 0;
    if (!(row->modes & modes_of(&v->job))) return PL_ERR_CONFIG_CONFLICT;
    if (row->key == PL_KEY_embedding_device && (m->tied || pl_job_trains_embedding(&v->job)))
        return PL_ERR_CONFIG_CONFLICT;
    if (row->key == PL_KEY_base_dtype && !pl_job_base_may_be_bf16(&v->job, &v->q.traits))
        return PL_ERR_CONFIG_CONFLICT;
    if (row->scale == AS_WRITTEN) {
        PL_TRY(pl_job_set(&v->job, pl_key_table(&n)[row->key].key, row->value, NULL));
        return pl_job_validate(&v->job, NULL);
    }
    if (row->scale == NO_MODULES || row->scale == BOTH_MODULES)
        return train_whole(v, row->scale == BOTH_MODULES);
    if (row->scale == HALF_THE_LAYERS) {
        if (v->job.freeze_layers >= m->layers / 2) return PL_ERR_CONFIG_CONFLICT;
        return pl_price_put(v, row->key, (uint32_t)(m->layers / 2), NULL);
    }
    now = pl_price_get(&v->q, row->key);
    if (row->scale == HALVE)
        return now >= 2 ? pl_price_put(v, row->key, now / 2, NULL) : PL_ERR_CONFIG_RANGE;
    return now <= UINT32_MAX / 2 ? pl_price_put(v, row->key, now * 2, NULL) : PL_ERR_CONFIG_RANGE;
}

static double percent_more(double than, double v) {
    return than > 0 ? 100 * (v / than - 1) : 0;
}

/* Nothing is added where the row does not apply, or changes nothing: `auto` spelled out is the same
 * plan. */
static pl_err add_knob(struct pl_advice *a, const struct knob_row *row, struct pl_diag *d) {
    struct pl_knob *k = &a->knobs[a->n_knobs];
    struct pl_variant v;
    struct pl_diag why = {0};
    pl_variant_of(&v, &a->q);
    describe(&v.q, row->key, k->from, sizeof k->from);
    pl_err applied = apply(row, &v);
    if (applied == PL_ERR_HOST_OOM) return pl_host_oom(d, "the price of a setting");
    if (applied != PL_ERR_OK) return PL_ERR_OK;
    describe(&v.q, row->key, k->change, sizeof k->change);
    if (strcmp(k->from, k->change) == 0) return PL_ERR_OK;
    applied = pl_price_of(&v.q, &a->trials, &k->price, &why);
    if (applied == PL_ERR_CONFIG_CONFLICT || applied == PL_ERR_CONFIG_RANGE)
        return PL_ERR_OK; /* with the model, or other keys */
    if (applied != PL_ERR_OK && d) *d = why;
    PL_TRY(applied);
    k->saves_bytes = (int64_t)(a->now.needed_bytes - k->price.needed_bytes);
    k->time_percent = percent_more(a->now.flops_per_token, k->price.flops_per_token);
    a->n_knobs += k->saves_bytes != 0 || k->price.flops_per_token != a->now.flops_per_token;
    return PL_ERR_OK;
}

static pl_err add_choices(struct pl_advice *a, const struct knob_row *row, struct pl_diag *d) {
    uint32_t n;
    const char *choices = pl_key_table(&n)[row->key].choices;
    char choice[PL_CHOICE_BYTES];
    for (uint32_t i = 0; pl_key_choice(choices, i, choice); i++) {
        const struct knob_row one = {row->key, row->modes, AS_WRITTEN, choice};
        PL_TRY(add_knob(a, &one, d));
    }
    return PL_ERR_OK;
}

pl_err pl_advice_knobs(struct pl_advice *a, struct pl_diag *d) {
    a->n_knobs = 0;
    for (size_t i = 0; i < N_ROWS; i++)
        PL_TRY((rows[i].scale == EVERY_CHOICE ? add_choices : add_knob)(a, &rows[i], d));
    return PL_ERR_OK;
}

/* --- recomputation against batch size -------------------------------------------------------- */

void pl_tradeoff_name(const struct pl_tradeoff *t, char out[PL_LEVEL_TEXT]) {
    struct pl_text text = PL_TEXT_IN(out, PL_LEVEL_TEXT);
    pl_text_add(&text, "");
    pl_recompute_print(t->recompute, &text);
}

uint32_t pl_advice_step_samples(const struct pl_advice *a) {
    const uint32_t batch = a->q.job->batch_size;
    if (a->effective_batch || batch == PL_AUTO) return a->effective_batch;
    uint64_t all = (uint64_t)batch * pl_job_accumulation(a->q.job, batch);
    return all <= UINT32_MAX ? (uint32_t)all : batch;
}

bool pl_tradeoff_dominated(const struct pl_tradeoff *t) {
    bool any = false, all = true;
    for (int e = 0; e < PL_FRONTIER_ENDS; e++) {
        if (!t->points[e].batch_size) continue;
        any = true;
        all &= t->points[e].dominated;
    }
    return any && all;
}

static bool dominates(const struct pl_price *a, const struct pl_price *b) {
    return a->needed_bytes <= b->needed_bytes && a->seconds_per_token <= b->seconds_per_token &&
           (a->needed_bytes < b->needed_bytes || a->seconds_per_token < b->seconds_per_token);
}

static struct pl_frontier_point *point_at(struct pl_advice *a, uint32_t i) {
    struct pl_frontier_point *p = &a->tradeoffs[i / PL_FRONTIER_ENDS].points[i % PL_FRONTIER_ENDS];
    return p->batch_size ? p : NULL;
}

static void compare_points(struct pl_advice *a) {
    uint32_t n = a->n_tradeoffs * PL_FRONTIER_ENDS;
    double fastest = 0;
    for (uint32_t i = 0; i < n; i++) {
        const struct pl_frontier_point *p = point_at(a, i);
        if (p && (fastest == 0 || p->price.seconds_per_token < fastest))
            fastest = p->price.seconds_per_token;
    }
    for (uint32_t i = 0; i < n; i++) {
        struct pl_frontier_point *p = point_at(a, i);
        if (!p) continue;
        p->relative_time = fastest > 0 ? p->price.seconds_per_token / fastest : 1;
        for (uint32_t k = 0; k < n && !p->dominated; k++) {
            const struct pl_frontier_point *other = point_at(a, k);
            p->dominated = other && dominates(&other->price, &p->price);
        }
    }
}

static pl_err price_point(struct pl_question *q, struct pl_trials *t, uint32_t batch_size,
                          struct pl_frontier_point *p, struct pl_diag *d) {
    p->batch_size = q->batch_size = batch_size;
    return batch_size ? pl_price_of(q, t, &p->price, d) : PL_ERR_OK;
}

static pl_err price_level(struct pl_advice *a, struct pl_question *q, struct pl_tradeoff *t,
                          struct pl_diag *d) {
    PL_TRY(pl_price_of(q, &a->trials, &t->price, d));
    t->time_percent = percent_more(a->tradeoffs[0].price.flops_per_token, t->price.flops_per_token);
    PL_TRY(pl_price_largest_batch(q, &a->trials, &t->largest_batch, d));
    uint32_t micro = a->q.batch_size, samples = pl_advice_step_samples(a);
    if (a->q.budget.known) /* without samples to make up: the least a level can do with */
        micro = pl_price_micro_batch(t->largest_batch, samples ? samples : 1);
    PL_TRY(price_point(q, &a->trials, t->largest_batch, &t->points[PL_FRONTIER_LARGEST], d));
    return price_point(q, &a->trials, micro, &t->points[PL_FRONTIER_MICRO], d);
}

static struct pl_tradeoff *add_level(struct pl_advice *a, uint32_t level) {
    for (uint32_t i = 0; i < a->n_tradeoffs; i++)
        if (a->tradeoffs[i].recompute == level) return &a->tradeoffs[i];
    struct pl_tradeoff *t = &a->tradeoffs[a->n_tradeoffs++];
    *t = (struct pl_tradeoff){.recompute = level, .mixed = level >= PL_RECOMPUTE_PLAIN};
    return t;
}

/* What `auto` would be: decided as everywhere, with the job's chunk. */
static pl_err add_automatic(struct pl_advice *a, struct pl_question *open, struct pl_diag *d) {
    if (!open->budget.known) return PL_ERR_OK;
    PL_TRY(pl_decide_levels(open, pl_autobatch_limit(open->job), &a->trials, NULL, d));
    add_level(a, open->recompute)->automatic = true;
    return PL_ERR_OK;
}

/* The plain levels, half of the layers at each with the other half at the next one that is worth
 * it, the job's own level, and that of `auto`. */
static pl_err list_levels(struct pl_advice *a, struct pl_diag *d) {
    struct pl_ladder ladder;
    struct pl_variant open;
    pl_variant_of(&open, &a->q);
    open.job.gradient_checkpointing = open.q.recompute = PL_RECOMPUTE_AUTO;
    a->n_tradeoffs = 0;
    for (uint32_t level = PL_RECOMPUTE_NONE; level < PL_RECOMPUTE_OFFLOAD; level++)
        add_level(a, level);
    PL_TRY(pl_autolevel_ladder(&open.q, &a->trials, &ladder, d));
    for (uint32_t i = 1; i < ladder.n_levels && ladder.layers > 1; i++)
        add_level(a, pl_ladder_value(&ladder, i * ladder.layers - ladder.layers / 2));
    uint32_t now = pl_question_level(&a->q);
    if (now != PL_RECOMPUTE_AUTO) add_level(a, now)->now = true;
    PL_TRY(add_automatic(a, &open.q, d));
    add_level(a, PL_RECOMPUTE_OFFLOAD);
    return PL_ERR_OK;
}

static void drop_dominated_mixes(struct pl_advice *a) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < a->n_tradeoffs; i++) {
        const struct pl_tradeoff *t = &a->tradeoffs[i];
        if (t->mixed && !t->now && !t->automatic && pl_tradeoff_dominated(t)) continue;
        a->tradeoffs[n++] = *t;
    }
    a->n_tradeoffs = n;
}

pl_err pl_advice_tradeoffs(struct pl_advice *a, struct pl_diag *d) {
    PL_TRY(list_levels(a, d));
    for (uint32_t i = 0; i < a->n_tradeoffs; i++) {
        struct pl_variant v;
        pl_variant_of(&v, &a->q);
        v.job.gradient_checkpointing = a->tradeoffs[i].recompute;
        PL_TRY(price_level(a, &v.q, &a->tradeoffs[i], d));
    }
    compare_points(a);
    drop_dominated_mixes(a);
    return PL_ERR_OK;
}
