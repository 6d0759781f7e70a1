/* estimate_json.c - an estimate as a JSON object. */
#include "estimator/gate/estimate.h"

#include "estimator/base/json_tree.h"
#include "estimator/base/units.h"
#include "estimator/gate/provenance.h"

#include <string.h>

#define SCHEMA 1

json_t *pl_estimate_ledger_json(const struct pl_plan *plan) {
    struct pl_line lines[PL_LEDGER_LINES];
    json_t *list = json_array();
    pl_estimate_ledger(plan, lines);
    for (int i = 0; i < PL_LEDGER_LINES; i++)
        pl_json_append(&list, json_pack("{s:s, s:I, s:s}", "category", lines[i].name, "bytes",
                                        (json_int_t)lines[i].bytes, "provenance",
                                        pl_provenance_name(PL_PROVENANCE_PLANNED)));
    return list;
}

static void report_bytes(const struct pl_estimate *e, struct pl_report *r) {
    const struct pl_plan *plan = e->planned.plan;
    struct pl_line lines[PL_LEDGER_LINES];
    pl_report_open(r, "bytes");
    pl_report_count(r, "total", e->verdict.needed_bytes);
    pl_report_count(r, "arena", plan->arena_bytes);
    pl_report_count(r, "job_arena", plan->job_bytes);
    pl_report_count(r, "batch_arena", plan->batch_bytes);
    pl_report_count(r, "context", pl_budget_own_context(&e->q->budget));
    pl_report_count(r, "context_doubt", pl_budget_own_doubt(&e->q->budget));
    pl_report_count(r, "comm", e->q->budget.comm_bytes);
    pl_report_count(r, "comm_doubt", e->q->budget.comm_doubt_bytes);
    pl_report_count(r, "host", pl_plan_host_total(plan));
    pl_report_count(r, "host_pageable", pl_plan_host_bytes(plan, PL_PLACE_HOST));
    pl_estimate_ledger(plan, lines);
    for (int i = 0; i < PL_LEDGER_LINES; i++)
        pl_report_count(r, i == PL_CATEGORY_ADAPTER ? "adapters" : lines[i].name, lines[i].bytes);
    pl_report_open(r, NULL);
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
    struct pl_line lines[PL_PHASE_LINES];
    json_t *list = json_array();
    const uint32_t n = pl_estimate_phases(e, lines);
    for (uint32_t i = 0; i < n; i++) {
        const bool on_host = i + 1 == n && e->merged_export_bytes;
        pl_json_append(&list,
                       json_pack("{s:s, s:I, s:s*}", "name", lines[i].name, "bytes",
                                 (json_int_t)lines[i].bytes, "memory", on_host ? "host" : NULL));
    }
    return list;
}

static json_t *remedies_json(const struct pl_estimate *e) {
    json_t *list = json_array();
    for (uint32_t i = 0; i < e->n_remedies; i++) {
        const struct pl_remedy *r = &e->remedies[i];
        const struct pl_price *p = &r->price;
        pl_json_append(&list, json_pack("{s:s, s:I, s:f, s:f, s:b, s:s}", "change", r->change,
                                        "saves_bytes", (json_int_t)r->saves_bytes, "total_gb",
                                        pl_gb(p->needed_bytes), "host_ram_gb", pl_gb(p->host_bytes),
                                        "fits", (int)pl_price_fits(p), "verdict",
                                        pl_verdict_name(p->verdict)));
    }
    return list;
}

static void report_limits(const struct pl_estimate *e, struct pl_report *r) {
    const struct pl_budget *b = &e->q->budget;
    pl_report_open(r, "limits");
    pl_report_count(r, "needed_bytes", e->verdict.needed_bytes);
    pl_report_real(r, "full_ft_ceiling_billions", e->q->job->full_ft_ceiling_billions);
    pl_report_known(r, e->q->job->mode == PL_MODE_FULL && !e->q->job->inference);
    if (b->known) {
        pl_report_count(r, "budget_bytes", b->total_bytes);
        pl_report_count(r, "margin_bytes", b->margin_bytes);
        pl_report_count(r, "usable_bytes", pl_budget_usable(b));
        pl_report_word(r, "source", b->source);
    }
    if (b->known && e->verdict.kind == PL_VERDICT_TIGHT) {
        pl_report_count(r, "short_bytes", e->verdict.short_bytes);
        pl_report_word(r, "inside", e->verdict.inside_doubt ? "context_doubt" : "margin");
    }
    pl_report_open(r, NULL);
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

static void report_gigabytes(const struct pl_estimate *e, struct pl_report *r) {
    const struct pl_plan *plan = e->planned.plan;
    const uint64_t *l = plan->ledger;
    /* what belongs to no other part, so that the parts are the total; the margin is a limit */
    uint64_t overhead = e->q->budget.context_bytes + plan->alignment_bytes + l[PL_CATEGORY_BATCH];
    const struct pl_line lines[] = {{"total_gb", e->verdict.needed_bytes},
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
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        pl_report_real(r, lines[i].name, pl_gb(lines[i].bytes));
}

static void report_inputs(const struct pl_estimate *e, struct pl_report *r) {
    const struct pl_targets *adapted = &e->planned.program->shape.lora_targets;
    pl_report_real(r, "param_count_billions", (double)e->param_count / 1e9);
    pl_report_count(r, "param_count", e->param_count);
    pl_report_count(r, "trainable_param_count", e->trainable_param_count);
    pl_report_word(r, "mode", pl_estimate_mode(e));
    pl_report_count(r, "batch_size", e->q->batch_size);
    pl_report_count(r, "gradient_accumulation", e->gradient_accumulation);
    pl_report_count(r, "max_seq_length", e->q->job->max_seq_length);
    pl_report_count(r, "lora_r", e->q->job->lora_r);
    pl_report_known(r, adapted->rows | adapted->once);
}

static void report_verdict(const struct pl_estimate *e, struct pl_report *r) {
    const enum pl_verdict_kind kind = e->verdict.kind;
    pl_report_count(r, "recommended_batch_size", e->q->recommended);
    pl_report_known(r, e->q->recommended);
    pl_report_real(r, "vram_gb", pl_gb(e->q->budget.total_bytes));
    pl_report_known(r, e->q->budget.known);
    pl_report_word(r, "verdict", pl_verdict_name(kind));
    pl_report_truth(r, "fits", kind == PL_VERDICT_FITS || kind == PL_VERDICT_TIGHT);
    pl_report_known(r, kind != PL_VERDICT_UNKNOWN);
    report_limits(e, r);
    pl_report_word(r, "peak_phase", pl_phase_name(e->planned.plan->peak_phase));
}

void pl_estimate_report(const struct pl_estimate *e, const char *notes, struct pl_report *r) {
    pl_report_count(r, "schema", SCHEMA);
    report_gigabytes(e, r);
    report_inputs(e, r);
    report_verdict(e, r);
    pl_report_tree(r, "notes", notes_json(notes));
    pl_report_tree(r, "phases", phases_json(e));
    pl_report_tree(r, "ledger", pl_estimate_ledger_json(e->planned.plan));
    pl_report_tree(r, "host_ledger", host_ledger_json(e->planned.plan));
    report_bytes(e, r);
    pl_report_tree(r, "remedies", remedies_json(e));
    pl_report_tree(r, "provenance", pl_estimate_provenance_json(e));
    pl_report_tree(r, "assumptions", pl_estimate_assumptions_json(e));
    if (e->n_ranks) pl_report_tree(r, "ranks", pl_estimate_ranks_json(e));
    pl_report_truth(r, "approximate", false);
}

json_t *pl_estimate_json(const struct pl_estimate *e, const char *notes) {
    struct pl_report r = {0};
    pl_estimate_report(e, notes, &r);
    return pl_report_end(&r);
}
