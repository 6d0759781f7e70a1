/* estimate.c - a plan and its verdict. */
#include "estimator/gate/estimate.h"

#include "estimator/program/build/merge_program.h"

/* What `save_merged` takes at the end of a run: a program of its own, in the machine's memory. */
static pl_err plan_merged_export(struct pl_estimate *e, struct pl_diag *d) {
    const struct pl_traits traits = pl_traits_cpu(pl_cpu_count());
    const struct pl_job_shape *s = &e->planned.program->shape;
    const struct pl_job_shape shape = {.mode = PL_MODE_LORA,
                                       .lora_r = s->lora_r,
                                       .lora_scale = s->lora_scale,
                                       .lora_targets = s->lora_targets,
                                       .save = true,
                                       .stretch = PL_MERGE_STRETCH};
    struct pl_planned merge = {0};
    if (!e->q->job->save_merged || e->q->job->inference || !pl_mode_adapts(e->q->job->mode))
        return PL_ERR_OK;
    pl_err err = pl_program_create_merge(e->q->model, &shape, &traits, &merge.program, d);
    if (err == PL_ERR_OK) err = pl_plan_create(merge.program, &merge.plan, d);
    if (err == PL_ERR_OK) e->merged_export_bytes = merge.plan->arena_bytes;
    pl_planned_finish(&merge);
    return err;
}

pl_err pl_estimate_init(struct pl_estimate *e, const struct pl_question *q, struct pl_planned *made,
                        struct pl_diag *d) {
    *e = (struct pl_estimate){.q = q,
                              .gradient_accumulation = pl_job_accumulation(q->job, q->batch_size),
                              .param_count = pl_model_param_count(q->model)};
    PL_TRY(pl_question_plan(q, made, &e->planned, d));
    e->trainable_param_count = pl_gate_trained(e->planned.program);
    e->verdict = pl_gate_judge(e->planned.plan, q);
    PL_TRY(plan_merged_export(e, d));
    if (e->verdict.kind == PL_VERDICT_FITS || e->verdict.kind == PL_VERDICT_UNKNOWN)
        return PL_ERR_OK;
    return pl_gate_remedies(q, e->planned.plan, e->remedies, &e->n_remedies, d);
}

void pl_estimate_finish(struct pl_estimate *e) {
    pl_planned_finish(&e->planned);
    *e = (struct pl_estimate){0};
}

const char *pl_estimate_mode(const struct pl_estimate *e) {
    static const char *const names[] = {
        [PL_MODE_FULL] = "full", [PL_MODE_LORA] = "lora", [PL_MODE_QLORA] = "qlora"};
    return e->job->inference ? "inference" : names[e->job->mode];
}

static double gb(uint64_t bytes) {
    return (double)bytes / 1e9;
}

/* --- text ------------------------------------------------------------------------------------ */

/* Small jobs keep their digits: 0.2GB says little. */
static void add_gb(struct pl_text *out, uint64_t bytes) {
    pl_text_addf(out, bytes < UINT64_C(10000000000) ? "%.2fGB" : "%.1fGB", gb(bytes));
}

static void add_params(struct pl_text *out, uint64_t n) {
    if (n < UINT64_C(100000000))
        pl_text_addf(out, "%.1fM", (double)n / 1e6);
    else
        pl_text_addf(out, "%.1fB", (double)n / 1e9);
}

void pl_estimate_add_summary(const struct pl_estimate *e, struct pl_text *out) {
    pl_text_addf(out, "VRAM estimate (%s, ", mode_name(e));
    add_params(out, e->param_count);
    pl_text_addf(out, " params, batch=%u, seq=%u): total=", e->batch_size, e->job->max_seq_length);
    add_gb(out, e->verdict.needed_bytes);
}

struct style {
    const char *bold, *dim, *bar, *good, *bad, *off;
};
static const struct style plain = {"", "", "", "", "", ""};
static const struct style coloured = {"\033[1m",  "\033[2m",  "\033[36m",
                                      "\033[32m", "\033[31m", "\033[0m"};

#define LABEL_COLUMNS 46 /* what stands before a bar */
#define BAR_MAX       40

static void add_bar(struct pl_text *out, const struct style *s, uint64_t bytes, uint64_t total,
                    unsigned columns) {
    static const char *const eighths[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
    unsigned width = columns > LABEL_COLUMNS + 10 ? columns - LABEL_COLUMNS : 10;
    if (width > BAR_MAX) width = BAR_MAX;
    uint64_t units = total ? (uint64_t)((double)bytes / (double)total * width * 8 + 0.5) : 0;
    if (units == 0) return;
    pl_text_addf(out, "  %s", s->bar);
    for (uint64_t i = 0; i < units / 8; i++)
        pl_text_add(out, "█");
    pl_text_add(out, eighths[units % 8]);
    pl_text_add(out, s->off);
}

static void ledger_row(struct pl_text *out, const struct style *s, const char *name, uint64_t bytes,
                       uint64_t total, unsigned columns) {
    char size[PL_BYTES_TEXT], exact[PL_COUNT_TEXT];
    if (bytes == 0) return;
    pl_text_addf(out, "  %-14s %11s %16s", name, pl_bytes_text(bytes, size),
                 pl_count_text(bytes, exact));
    add_bar(out, s, bytes, total, columns);
    pl_text_add(out, "\n");
}

/* What lies in the machine's memory, all of it and by what may not be swapped. */
static void add_host(const struct pl_plan *plan, struct pl_text *out) {
    char size[PL_BYTES_TEXT], exact[PL_COUNT_TEXT], pinned[PL_BYTES_TEXT];
    uint64_t total = pl_plan_host_total(plan), pageable = pl_plan_host_bytes(plan, PL_PLACE_HOST);
    bool copies = total == plan->program->traits.pinned_bytes;
    if (total == 0) return;
    pl_text_addf(out, "  %-14s %11s %16s  ", "host", pl_bytes_text(total, size),
                 pl_count_text(total, exact));
    if (copies)
        pl_text_add(out, "pinned memory of the machine, for copies\n");
    else
        pl_text_addf(out, "memory of the machine, %s of it pinned\n",
                     pl_bytes_text(total - pageable, pinned));
}

/* By how much the total may be off: by the context, as long as nobody has measured it. */
static void add_doubt(const struct pl_budget *b, struct pl_text *out) {
    char size[PL_BYTES_TEXT], exact[PL_COUNT_TEXT];
    if (b->doubt_bytes == 0) return;
    pl_text_addf(out, "  %-14s %11s %16s  the context is a guess until a run has measured it\n",
                 "give or take", pl_bytes_text(b->doubt_bytes, size),
                 pl_count_text(b->doubt_bytes, exact));
}

static void add_ledger(const struct pl_estimate *e, const struct style *s, unsigned columns,
                       struct pl_text *out) {
    const struct pl_plan *plan = e->planned.plan;
    uint64_t total = e->verdict.needed_bytes;
    for (int c = 0; c < PL_CATEGORY_COUNT; c++)
        ledger_row(out, s, pl_category_name(c), plan->ledger[c], total, columns);
    ledger_row(out, s, "alignment", plan->alignment_bytes, total, columns);
    ledger_row(out, s, "fragmentation", plan->fragmentation_bytes, total, columns);
    ledger_row(out, s, "context", e->budget.context_bytes, total, columns);
    char size[PL_BYTES_TEXT], exact[PL_COUNT_TEXT], job[PL_BYTES_TEXT], batch[PL_BYTES_TEXT];
    pl_text_addf(out, "  %s%-14s %11s %16s%s  = job arena %s + batch arena %s\n", s->bold, "total",
                 pl_bytes_text(total, size), pl_count_text(total, exact), s->off,
                 pl_bytes_text(plan->job_bytes, job), pl_bytes_text(plan->batch_bytes, batch));
    add_doubt(&e->budget, out);
    add_host(plan, out);
}

static void add_peak(const struct pl_estimate *e, struct pl_text *out) {
    const struct pl_plan *plan = e->planned.plan;
    const struct pl_phase_plan *ph = &plan->phases[plan->peak_phase];
    const struct pl_op *op = &e->planned.program->ops[ph->peak_op];
    pl_text_addf(out, "  peak: %s, op %u (%s", pl_phase_name(plan->peak_phase), ph->peak_op,
                 pl_op_name(op->kind));
    if (op->layer != PL_NONE) pl_text_addf(out, ", layer %u", op->layer);
    pl_text_add(out, ")\n");
    char merged[PL_BYTES_TEXT];
    if (e->merged_export_bytes)
        pl_text_addf(out, "  merged export: %s of the machine's memory, after the run\n",
                     pl_bytes_text(e->merged_export_bytes, merged));
}

static void add_verdict(const struct pl_estimate *e, const struct style *s, struct pl_text *out) {
    char have[PL_BYTES_TEXT], margin[PL_BYTES_TEXT], rest[PL_BYTES_TEXT];
    const struct pl_verdict *v = &e->verdict;
    if (v->over_ceiling) {
        pl_text_addf(out,
                     "  verdict: %sno%s - mode: full would train %.3f billion parameters on the "
                     "device alone, full_ft_ceiling_billions is %g\n",
                     s->bad, s->off, v->params_billions, e->job->full_ft_ceiling_billions);
        return;
    }
    if (!e->budget.known) {
        pl_text_add(out, "  verdict: unknown - no budget was named (--vram-gb N, --vram 16GiB)\n");
        return;
    }
    uint64_t limit = e->budget.total_bytes - (e->budget.margin_bytes < e->budget.total_bytes
                                                  ? e->budget.margin_bytes
                                                  : e->budget.total_bytes);
    bool over = v->needed_bytes > limit;
    pl_text_addf(out, "  verdict: %s%s%s - %s %s, margin %s: %s %s\n",
                 v->kind == PL_VERDICT_FITS ? s->good : s->bad, pl_verdict_name(v->kind), s->off,
                 e->budget.source, pl_bytes_text(e->budget.total_bytes, have),
                 pl_bytes_text(e->budget.margin_bytes, margin),
                 pl_bytes_text(over ? v->needed_bytes - limit : limit - v->needed_bytes, rest),
                 over ? "too much" : "to spare");
}

static void add_remedies(const struct pl_estimate *e, struct pl_text *out) {
    if (e->n_remedies) pl_text_add(out, "  what would help, each planned:\n");
    for (uint32_t i = 0; i < e->n_remedies; i++) {
        const struct pl_remedy *r = &e->remedies[i];
        char total[PL_BYTES_TEXT], saves[PL_BYTES_TEXT];
        pl_text_addf(out, "    %-4s total %11s, saves %11s: %s", r->fits ? "fits" : "no",
                     pl_bytes_text(r->total_bytes, total),
                     pl_bytes_text(r->saves_bytes > 0 ? (uint64_t)r->saves_bytes : 0, saves),
                     r->change);
        if (r->host_bytes)
            pl_text_addf(out, " (%s of host memory)", pl_bytes_text(r->host_bytes, saves));
        pl_text_add(out, "\n");
    }
}

void pl_estimate_text(const struct pl_estimate *e, bool colour, unsigned columns,
                      struct pl_text *out) {
    const struct style *s = colour ? &coloured : &plain;
    char trained[PL_COUNT_TEXT], all[PL_COUNT_TEXT];
    pl_text_add(out, s->bold);
    pl_estimate_add_summary(e, out);
    pl_text_addf(out, "%s\n  %s, ", s->off, pl_family_name(e->model->family));
    if (!e->job->inference)
        pl_text_addf(out, "%s of ", pl_count_text(e->trainable_param_count, trained));
    pl_text_addf(out, "%s parameters%s\n", pl_count_text(e->param_count, all),
                 e->job->inference ? "" : " trained");
    add_ledger(e, s, columns, out);
    add_peak(e, out);
    add_verdict(e, s, out);
    if (e->recommended_batch_size)
        pl_text_addf(out, "  largest batch that fits: %u\n", e->recommended_batch_size);
    add_remedies(e, out);
}

/* --- JSON ------------------------------------------------------------------------------------ */

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
    put_int(&o, "context", e->budget.context_bytes);
    put_int(&o, "context_doubt", e->budget.doubt_bytes);
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
                       json_pack("{s:s, s:I, s:f, s:f, s:b}", "change", r->change, "saves_bytes",
                                 (json_int_t)r->saves_bytes, "total_gb", gb(r->total_bytes),
                                 "host_ram_gb", gb(r->host_bytes), "fits", (int)r->fits));
    }
    return list;
}

static json_t *limits_json(const struct pl_estimate *e) {
    json_t *o = json_object();
    put_int(&o, "needed_bytes", e->verdict.needed_bytes);
    pl_json_set(&o, "full_ft_ceiling_billions",
                e->job->mode == PL_MODE_FULL && !e->job->inference
                    ? json_real(e->job->full_ft_ceiling_billions)
                    : json_null());
    if (!e->budget.known) return o;
    put_int(&o, "budget_bytes", e->budget.total_bytes);
    put_int(&o, "margin_bytes", e->budget.margin_bytes);
    put_int(&o, "usable_bytes", pl_budget_usable(&e->budget));
    pl_json_set(&o, "source", json_string(e->budget.source));
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
    uint64_t overhead = e->budget.context_bytes + plan->alignment_bytes + e->budget.margin_bytes;
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
                {"context_gb", e->budget.context_bytes},
                {"fragmentation_gb", plan->fragmentation_bytes},
                {"host_ram_gb", pl_plan_host_total(plan)}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        put_real(o, rows[i].key, gb(rows[i].bytes));
}

static void put_inputs(const struct pl_estimate *e, json_t **o) {
    put_real(o, "param_count_billions", (double)e->param_count / 1e9);
    put_int(o, "param_count", e->param_count);
    put_int(o, "trainable_param_count", e->trainable_param_count);
    pl_json_set(o, "mode", json_string(mode_name(e)));
    put_int(o, "batch_size", e->batch_size);
    put_int(o, "gradient_accumulation", e->gradient_accumulation);
    put_int(o, "max_seq_length", e->job->max_seq_length);
    const struct pl_targets *adapted = &e->planned.program->shape.lora_targets;
    pl_json_set(o, "lora_r",
                adapted->rows | adapted->once ? json_integer(e->job->lora_r) : json_null());
}

static void put_verdict(const struct pl_estimate *e, json_t **o) {
    bool fits = e->verdict.kind == PL_VERDICT_FITS || e->verdict.kind == PL_VERDICT_TIGHT;
    bool known = e->verdict.kind != PL_VERDICT_UNKNOWN;
    pl_json_set(o, "recommended_batch_size",
                e->recommended_batch_size ? json_integer(e->recommended_batch_size) : json_null());
    pl_json_set(o, "vram_gb", e->budget.known ? json_real(gb(e->budget.total_bytes)) : json_null());
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
    pl_json_set(&o, "approximate", json_false());
    return o;
}
