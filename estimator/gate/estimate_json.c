/* estimate_json.c - an estimate as a JSON object. */
#include "estimator/gate/estimate.h"

#include "estimator/base/json_tree.h"
#include "estimator/base/units.h"
#include "estimator/gate/provenance.h"

#include <string.h>

#define SCHEMA 1

static void put_int(json_t **o, const char *key, uint64_t v) {
    pl_json_set(o, key, json_integer((json_int_t)v));
}

static void put_real(json_t **o, const char *key, double v) {
    pl_json_set(o, key, json_real(v));
}

static json_t *ledger_row_json(const char *name, uint64_t bytes) {
    return json_pack("{s:s, s:I, s:s}", "category", name, "bytes", (json_int_t)bytes, "provenance",
                     pl_provenance_name(PL_PROVENANCE_PLANNED));
}

json_t *pl_estimate_ledger_json(const struct pl_plan *plan) {
    json_t *list = json_array();
    for (int c = 0; c < PL_CATEGORY_COUNT; c++)
        pl_json_append(&list, ledger_row_json(pl_category_name(c), plan->ledger[c]));
    pl_json_append(&list, ledger_row_json("alignment", plan->alignment_bytes));
    pl_json_append(&list, ledger_row_json("fragmentation", plan->fragmentation_bytes));
    return list;
}

static json_t *bytes_json(const struct pl_estimate *e) {
    const struct pl_plan *plan = e->planned.plan;
    json_t *o = json_object();
    put_int(&o, "total", e->verdict.needed_bytes);
    put_int(&o, "arena", plan->arena_bytes);
    put_int(&o, "job_arena", plan->job_bytes);
    put_int(&o, "batch_arena", plan->batch_bytes);
    put_int(&o, "context", pl_budget_own_context(&e->q->budget));
    put_int(&o, "context_doubt", pl_budget_own_doubt(&e->q->budget));
    put_int(&o, "comm", e->q->budget.comm_bytes);
    put_int(&o, "comm_doubt", e->q->budget.comm_doubt_bytes);
    put_int(&o, "host", pl_plan_host_total(plan));
    put_int(&o, "host_pageable", pl_plan_host_bytes(plan, PL_PLACE_HOST));
    for (int c = 0; c < PL_CATEGORY_COUNT; c++)
        put_int(&o, c == PL_CATEGORY_ADAPTER ? "adapters" : pl_category_name(c), plan->ledger[c]);
    put_int(&o, "alignment", plan->alignment_bytes);
    put_int(&o, "fragmentation", plan->fragmentation_bytes);
    return o;
}

static void add_host_row(json_t **list, const char *category, enum pl_tensor_place place,
                         uint64_t bytes) {
    if (bytes)
        pl_json_append(list, json_pack("{s:s, s:s, s:I}", "category", category, "memory",
                                       pl_place_name(place), "bytes", (json_int_t)bytes));
}

/* [{category, memory, bytes}], summing exactly to the host bytes. */
static json_t *host_ledger_json(const struct pl_plan *plan) {
    json_t *list = json_array();
    add_host_row(&list, "staging", PL_PLACE_PINNED, plan->program->traits.pinned_bytes);
    for (int place = PL_PLACE_PINNED; place < PL_PLACE_COUNT; place++) {
        for (int c = 0; c < PL_CATEGORY_COUNT; c++)
            add_host_row(&list, pl_category_name(c), place, plan->host[place].ledger[c]);
        add_host_row(&list, "padding", place, plan->host[place].padding_bytes);
    }
    return list;
}

static json_t *phases_json(const struct pl_estimate *e) {
    const struct pl_plan *plan = e->planned.plan;
    json_t *list = json_array();
    for (int p = 0; p < PL_PHASE_COUNT; p++)
        if (plan->program->phases[p].n_ops)
            pl_json_append(&list, json_pack("{s:s, s:I}", "name", pl_phase_name(p), "bytes",
                                            (json_int_t)(plan->job_bytes + plan->phases[p].bytes)));
    if (e->merged_export_bytes)
        pl_json_append(&list, json_pack("{s:s, s:I, s:s}", "name", "merged export", "bytes",
                                        (json_int_t)e->merged_export_bytes, "memory", "host"));
    return list;
}

static json_t *remedies_json(const struct pl_estimate *e) {
    json_t *list = json_array();
    for (uint32_t i = 0; i < e->n_remedies; i++) {
        const struct pl_remedy *r = &e->remedies[i];
        pl_json_append(&list,
                       json_pack("{s:s, s:I, s:f, s:f, s:b, s:s}", "change", r->change,
                                 "saves_bytes", (json_int_t)r->saves_bytes, "total_gb",
                                 pl_gb(r->total_bytes), "host_ram_gb", pl_gb(r->host_bytes), "fits",
                                 (int)r->fits, "verdict", pl_verdict_name(r->verdict)));
    }
    return list;
}

static json_t *limits_json(const struct pl_estimate *e) {
    json_t *o = json_object();
    put_int(&o, "needed_bytes", e->verdict.needed_bytes);
    pl_json_set(&o, "full_ft_ceiling_billions",
                e->q->job->mode == PL_MODE_FULL && !e->q->job->inference
                    ? json_real(e->q->job->full_ft_ceiling_billions)
                    : json_null());
    if (!e->q->budget.known) return o;
    put_int(&o, "budget_bytes", e->q->budget.total_bytes);
    put_int(&o, "margin_bytes", e->q->budget.margin_bytes);
    put_int(&o, "usable_bytes", pl_budget_usable(&e->q->budget));
    pl_json_set(&o, "source", json_string(e->q->budget.source));
    if (e->verdict.kind != PL_VERDICT_TIGHT) return o;
    put_int(&o, "short_bytes", e->verdict.short_bytes);
    pl_json_set(&o, "inside", json_string(e->verdict.inside_doubt ? "context_doubt" : "margin"));
    return o;
}

static json_t *notes_json(const char *notes) {
    json_t *list = json_array();
    for (const char *end; notes && *notes; notes = *end ? end + 1 : end) {
        end = strchr(notes, '\n');
        if (!end) end = notes + strlen(notes);
        if (end > notes) pl_json_append(&list, json_stringn(notes, (size_t)(end - notes)));
    }
    return list;
}

static void put_gigabytes(const struct pl_estimate *e, json_t **o) {
    const struct pl_plan *plan = e->planned.plan;
    const uint64_t *l = plan->ledger;
    /* what belongs to no other part, so that the parts are the total; the margin is a limit */
    uint64_t overhead = e->q->budget.context_bytes + plan->alignment_bytes + l[PL_CATEGORY_BATCH];
    const struct {
        const char *key;
        uint64_t bytes;
    } rows[] = {{"total_gb", e->verdict.needed_bytes},
                {"model_weights_gb", l[PL_CATEGORY_WEIGHTS]},
                {"lora_adapter_gb", l[PL_CATEGORY_ADAPTER]},
                {"gradients_gb", l[PL_CATEGORY_GRADIENTS]},
                {"optimizer_state_gb", l[PL_CATEGORY_OPTIMIZER]},
                {"activations_gb", l[PL_CATEGORY_ACTIVATIONS]},
                {"logits_gb", l[PL_CATEGORY_LOGITS]},
                {"workspace_gb", l[PL_CATEGORY_WORKSPACE]},
                {"kv_cache_gb", l[PL_CATEGORY_KV_CACHE]},
                {"overhead_gb", overhead},
                {"context_gb", pl_budget_own_context(&e->q->budget)},
                {"comm_gb", e->q->budget.comm_bytes},
                {"fragmentation_gb", plan->fragmentation_bytes},
                {"host_ram_gb", pl_plan_host_total(plan)}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        put_real(o, rows[i].key, pl_gb(rows[i].bytes));
}

static void put_inputs(const struct pl_estimate *e, json_t **o) {
    put_real(o, "param_count_billions", (double)e->param_count / 1e9);
    put_int(o, "param_count", e->param_count);
    put_int(o, "trainable_param_count", e->trainable_param_count);
    pl_json_set(o, "mode", json_string(pl_estimate_mode(e)));
    put_int(o, "batch_size", e->q->batch_size);
    put_int(o, "gradient_accumulation", e->gradient_accumulation);
    put_int(o, "max_seq_length", e->q->job->max_seq_length);
    const struct pl_targets *adapted = &e->planned.program->shape.lora_targets;
    pl_json_set(o, "lora_r",
                adapted->rows | adapted->once ? json_integer(e->q->job->lora_r) : json_null());
}

static void put_verdict(const struct pl_estimate *e, json_t **o) {
    bool fits = e->verdict.kind == PL_VERDICT_FITS || e->verdict.kind == PL_VERDICT_TIGHT;
    bool known = e->verdict.kind != PL_VERDICT_UNKNOWN;
    pl_json_set(o, "recommended_batch_size",
                e->q->recommended ? json_integer(e->q->recommended) : json_null());
    pl_json_set(o, "vram_gb",
                e->q->budget.known ? json_real(pl_gb(e->q->budget.total_bytes)) : json_null());
    pl_json_set(o, "verdict", json_string(pl_verdict_name(e->verdict.kind)));
    pl_json_set(o, "fits", known ? json_boolean(fits) : json_null());
    pl_json_set(o, "limits", limits_json(e));
    pl_json_set(o, "peak_phase", json_string(pl_phase_name(e->planned.plan->peak_phase)));
}

json_t *pl_estimate_json(const struct pl_estimate *e, const char *notes) {
    json_t *o = json_object();
    if (!o) return NULL;
    put_int(&o, "schema", SCHEMA);
    put_gigabytes(e, &o);
    put_inputs(e, &o);
    put_verdict(e, &o);
    pl_json_set(&o, "notes", notes_json(notes));
    pl_json_set(&o, "phases", phases_json(e));
    pl_json_set(&o, "ledger", pl_estimate_ledger_json(e->planned.plan));
    pl_json_set(&o, "host_ledger", host_ledger_json(e->planned.plan));
    pl_json_set(&o, "bytes", bytes_json(e));
    pl_json_set(&o, "remedies", remedies_json(e));
    pl_json_set(&o, "provenance", pl_estimate_provenance_json(e));
    pl_json_set(&o, "assumptions", pl_estimate_assumptions_json(e));
    if (e->n_ranks) pl_json_set(&o, "ranks", pl_estimate_ranks_json(e));
    pl_json_set(&o, "approximate", json_false());
    return o;
}
