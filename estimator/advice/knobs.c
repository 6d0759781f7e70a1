/* knobs.c - what each setting saves or costs, every row planned again. */
#include "estimator/advice/setting.h"

#include "estimator/base/checked.h"

#include <stdio.h>
#include <string.h>

#define IN_FULL 1u
#define IN_LORA 2u
#define IN_BOTH (IN_FULL | IN_LORA)

/* The value of a row: a word of the key's own, or what it does to the number that stands there. */
enum scale { AS_WRITTEN, HALVE, DOUBLE, HALF_THE_LAYERS };

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
    {PL_KEY_gradient_checkpointing, IN_BOTH, AS_WRITTEN, "full"},
    {PL_KEY_gradient_checkpointing, IN_BOTH, AS_WRITTEN, "offload"},
    {PL_KEY_offload, IN_BOTH, AS_WRITTEN, "none"},
    {PL_KEY_offload, IN_BOTH, AS_WRITTEN, "optimizer"},
    {PL_KEY_offload, IN_LORA, AS_WRITTEN, "weights"},
    {PL_KEY_embedding_device, IN_LORA, AS_WRITTEN, "host"},
    {PL_KEY_full_ft_offload, IN_FULL, AS_WRITTEN, "true"},
    {PL_KEY_full_ft_offload, IN_FULL, AS_WRITTEN, "false"},
    {PL_KEY_loss_chunk_tokens, IN_BOTH, AS_WRITTEN, "auto"},
    {PL_KEY_loss_chunk_tokens, IN_BOTH, AS_WRITTEN, "0"},
    {PL_KEY_batch_size, IN_BOTH, HALVE, ""},
    {PL_KEY_batch_size, IN_BOTH, DOUBLE, ""},
    {PL_KEY_gradient_dtype, IN_FULL, AS_WRITTEN, "bf16"},
    {PL_KEY_gradient_dtype, IN_FULL, AS_WRITTEN, "fp32"},
    {PL_KEY_master_weights, IN_FULL, AS_WRITTEN, "false"},
    {PL_KEY_master_weights, IN_FULL, AS_WRITTEN, "true"},
    {PL_KEY_adapter_dtype, IN_LORA, AS_WRITTEN, "bf16"},
    {PL_KEY_adapter_dtype, IN_LORA, AS_WRITTEN, "fp32"},
    {PL_KEY_dtype, IN_BOTH, AS_WRITTEN, "bf16"},
    {PL_KEY_dtype, IN_BOTH, AS_WRITTEN, "fp32"},
    {PL_KEY_mode, IN_LORA, AS_WRITTEN, "lora"},
    {PL_KEY_mode, IN_LORA, AS_WRITTEN, "qlora"},
    {PL_KEY_lora_r, IN_LORA, HALVE, ""},
    {PL_KEY_lora_r, IN_LORA, DOUBLE, ""},
    {PL_KEY_max_seq_length, IN_BOTH, HALVE, ""},
    {PL_KEY_max_seq_length, IN_BOTH, DOUBLE, ""},
    {PL_KEY_optimizer, IN_BOTH, AS_WRITTEN, "adamw"},
    {PL_KEY_optimizer, IN_BOTH, AS_WRITTEN, "adamw_8bit"},
    {PL_KEY_optimizer, IN_BOTH, AS_WRITTEN, "sgd"},
    {PL_KEY_freeze_layers, IN_FULL, HALF_THE_LAYERS, ""},
};
#define N_ROWS (sizeof rows / sizeof *rows)
_Static_assert(N_ROWS <= PL_MAX_KNOBS, "room for every row");

/* "key: value" as the setting has it. */
static void describe(const struct pl_setting *s, enum pl_key_id key, char *out, size_t size) {
    uint32_t n;
    struct pl_text value = {0};
    const char *name = pl_key_table(&n)[key].key;
    if (key == PL_KEY_batch_size) {
        snprintf(out, size, "%s: %u", name, s->batch_size);
        return;
    }
    pl_job_write_key(&s->job, key, &value);
    snprintf(out, size, "%s: %s", name, pl_text_str(&value));
    pl_text_finish(&value);
}

/* False when the row does not apply: another mode, out of range, refused beside the other keys. */
static bool apply(const struct knob_row *row, const struct pl_model *m, struct pl_setting *s) {
    uint32_t n, now = 0;
    if (!(row->modes & (s->job.mode == PL_MODE_FULL ? IN_FULL : IN_LORA))) return false;
    if (row->key == PL_KEY_embedding_device && m->tied) return false;
    if (row->scale == AS_WRITTEN)
        return pl_job_set(&s->job, pl_key_table(&n)[row->key].key, row->value, NULL) == PL_ERR_OK &&
               pl_job_validate(&s->job, NULL) == PL_ERR_OK;
    if (row->scale == HALF_THE_LAYERS) {
        if (s->job.freeze_layers >= m->layers / 2) return false;
        return pl_setting_put(s, row->key, (uint32_t)(m->layers / 2));
    }
    now = pl_setting_get(s, row->key);
    if (row->scale == HALVE) return now >= 2 && pl_setting_put(s, row->key, now / 2);
    return now <= UINT32_MAX / 2 && pl_setting_put(s, row->key, now * 2);
}

static double percent_more(double than, double v) {
    return than > 0 ? 100 * (v / than - 1) : 0;
}

pl_err pl_advice_knobs(struct pl_advice *a, struct pl_diag *d) {
    uint32_t batch_size = a->estimate.batch_size;
    a->n_knobs = 0;
    for (size_t i = 0; i < N_ROWS; i++) {
        struct pl_knob *k = &a->knobs[a->n_knobs];
        struct pl_setting s = pl_setting_of(&a->q, batch_size);
        describe(&s, rows[i].key, k->from, sizeof k->from);
        if (!apply(&rows[i], a->q.model, &s)) continue;
        describe(&s, rows[i].key, k->change, sizeof k->change);
        if (strcmp(k->from, k->change) == 0) continue;
        PL_TRY(pl_setting_price(&a->q, &s, &k->price, d));
        k->saves_bytes = (int64_t)(a->now.needed_bytes - k->price.needed_bytes);
        k->time_percent = percent_more(a->now.flops_per_token, k->price.flops_per_token);
        /* `auto` spelled out: the same plan, nothing to say */
        if (k->saves_bytes == 0 && k->price.flops_per_token == a->now.flops_per_token) continue;
        a->n_knobs++;
    }
    return PL_ERR_OK;
}

pl_err pl_advice_tradeoffs(struct pl_advice *a, struct pl_diag *d) {
    static const uint32_t levels[PL_MAX_TRADEOFFS] = {PL_RECOMPUTE_NONE, PL_RECOMPUTE_LIGHT,
                                                      PL_RECOMPUTE_FULL};
    for (a->n_tradeoffs = 0; a->n_tradeoffs < PL_MAX_TRADEOFFS; a->n_tradeoffs++) {
        struct pl_tradeoff *t = &a->tradeoffs[a->n_tradeoffs];
        struct pl_setting s = pl_setting_of(&a->q, a->estimate.batch_size);
        s.job.gradient_checkpointing = t->recompute = levels[a->n_tradeoffs];
        PL_TRY(pl_setting_price(&a->q, &s, &t->price, d));
        t->time_percent =
            percent_more(a->tradeoffs[0].price.flops_per_token, t->price.flops_per_token);
        PL_TRY(pl_setting_largest_batch(&a->q, &s, &t->largest_batch, d));
    }
    return PL_ERR_OK;
}
