/* estimate_text.c - an estimate for people: a summary line, a ledger with bars, the verdict. */
#include "estimator/gate/estimate.h"

#include "estimator/base/units.h"
#include "estimator/config/job_values.h"

void pl_estimate_add_summary(const struct pl_estimate *e, struct pl_text *out) {
    const bool small = e->param_count < UINT64_C(100000000);
    pl_text_addf(out,
                 "VRAM estimate (%s, %.1f%s params, batch=%u, seq=%u): total=", pl_estimate_mode(e),
                 (double)e->param_count / (small ? 1e6 : 1e9), small ? "M" : "B", e->q->batch_size,
                 e->q->job->max_seq_length);
    const uint64_t bytes = e->verdict.needed_bytes; /* small jobs keep their digits */
    pl_text_addf(out, bytes < UINT64_C(10000000000) ? "%.2fGB" : "%.1fGB", pl_gb(bytes));
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

static void ledger_row(struct pl_text *out, const struct style *s, const struct pl_line *line,
                       uint64_t total, unsigned columns) {
    char size[PL_BYTES_TEXT], exact[PL_COUNT_TEXT];
    if (line->bytes == 0) return;
    pl_text_addf(out, "  %-14s %11s %16s", line->name, pl_bytes_text(line->bytes, size),
                 pl_count_text(line->bytes, exact));
    add_bar(out, s, line->bytes, total, columns);
    pl_text_add(out, "\n");
}

/* Adds the bytes in the machine's memory, and the part of them that cannot be swapped. */
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

/* Adds how far the total may be off: context and connections are guesses until a run has measured
 * them. */
static void add_doubt(const struct pl_budget *b, struct pl_text *out) {
    char size[PL_BYTES_TEXT], exact[PL_COUNT_TEXT];
    if (b->doubt_bytes == 0) return;
    pl_text_addf(out, "  %-14s %11s %16s  %s\n", "give or take",
                 pl_bytes_text(b->doubt_bytes, size), pl_count_text(b->doubt_bytes, exact),
                 b->comm_doubt_bytes ? "context and comm are guesses until a run has measured them"
                                     : "the context is a guess until a run has measured it");
}

static void add_ledger(const struct pl_estimate *e, const struct style *s, unsigned columns,
                       struct pl_text *out) {
    const struct pl_plan *plan = e->planned.plan;
    uint64_t total = e->verdict.needed_bytes;
    struct pl_line lines[PL_LEDGER_LINES + 2];
    pl_estimate_ledger(plan, lines);
    lines[PL_LEDGER_LINES] = (struct pl_line){"context", pl_budget_own_context(&e->q->budget)};
    lines[PL_LEDGER_LINES + 1] = (struct pl_line){"comm", e->q->budget.comm_bytes};
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        ledger_row(out, s, &lines[i], total, columns);
    char size[PL_BYTES_TEXT], exact[PL_COUNT_TEXT], job[PL_BYTES_TEXT], batch[PL_BYTES_TEXT];
    pl_text_addf(out, "  %s%-14s %11s %16s%s  = job arena %s + batch arena %s\n", s->bold, "total",
                 pl_bytes_text(total, size), pl_count_text(total, exact), s->off,
                 pl_bytes_text(plan->job_bytes, job), pl_bytes_text(plan->batch_bytes, batch));
    add_doubt(&e->q->budget, out);
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

/* The bytes of all experts of a layer, as they are held. */
static uint64_t expert_bytes(const struct pl_program *p, uint32_t layer) {
    uint64_t bytes = 0;
    for (uint32_t id = 0; id < p->n_tensors; id++) {
        const struct pl_tensor *t = &p->tensors[id];
        struct pl_slot_shape shape;
        const bool held = t->role == PL_ROLE_WEIGHT || t->role == PL_ROLE_CODES ||
                          t->role == PL_ROLE_ABSMAX || t->role == PL_ROLE_ABSMAX8;
        if (!held || t->layer != layer) continue;
        pl_model_slot(p->model, layer, t->slot, &shape);
        if (shape.experts) bytes += t->bytes;
    }
    return bytes;
}

/* The rows of experts are the same for any routing, since every token has as many experts. */
static void add_experts(const struct pl_estimate *e, struct pl_text *out) {
    const struct pl_model *m = e->q->model;
    const uint64_t tokens = (uint64_t)e->q->batch_size * e->q->job->max_seq_length;
    char rows[PL_COUNT_TEXT], all[PL_COUNT_TEXT], bytes[PL_BYTES_TEXT];
    if (!(m->kinds >> PL_LAYER_EXPERTS & 1) || e->q->job->inference) return;
    pl_text_addf(out,
                 "  experts: %s rows a layer, %u of %u experts for each of %s tokens, however "
                 "they are routed\n",
                 pl_count_text(tokens * m->experts.per_token, rows), m->experts.per_token,
                 m->experts.n, pl_count_text(tokens, all));
    if (pl_job_offload(e->q->job) >= PL_OFFLOAD_WEIGHTS)
        pl_text_addf(
            out, "  experts: every pass over a layer copies all of its experts, %s\n",
            pl_bytes_text(expert_bytes(e->planned.program, m->first_of_kind[PL_LAYER_EXPERTS]),
                          bytes));
}

static void add_verdict(const struct pl_estimate *e, const struct style *s, struct pl_text *out) {
    char have[PL_BYTES_TEXT], margin[PL_BYTES_TEXT], rest[PL_BYTES_TEXT];
    const struct pl_verdict *v = &e->verdict;
    if (v->no_kernels) {
        pl_text_addf(out, "  verdict: %sno%s - ", s->bad, s->off);
        pl_gate_add_no_kernels(e->q, out);
        pl_text_add(out, "\n");
        return;
    }
    if (v->over_ceiling) {
        pl_text_addf(out,
                     "  verdict: %sno%s - mode: full would train %.3f billion parameters on the "
                     "device alone, full_ft_ceiling_billions is %g\n",
                     s->bad, s->off, v->trained_billions, e->q->job->full_ft_ceiling_billions);
        return;
    }
    if (!e->q->budget.known) {
        pl_text_add(out, "  verdict: unknown - no budget was named (--vram-gb N, --vram 16GiB)\n");
        return;
    }
    const struct pl_budget *b = &e->q->budget;
    if (v->kind == PL_VERDICT_TIGHT) {
        pl_text_addf(out, "  verdict: %stight%s - %s %s: ", s->bad, s->off, b->source,
                     pl_bytes_text(b->total_bytes, have));
        pl_gate_add_tight(v, e->q, out);
        pl_text_add(out, "\n");
        return;
    }
    uint64_t limit = b->total_bytes - pl_u64_min(b->margin_bytes, b->total_bytes);
    bool over = v->most_bytes > limit;
    pl_text_addf(out, "  verdict: %s%s%s - %s %s, margin %s: %s %s\n",
                 v->kind == PL_VERDICT_FITS ? s->good : s->bad, pl_verdict_name(v->kind), s->off,
                 e->q->budget.source, pl_bytes_text(e->q->budget.total_bytes, have),
                 pl_bytes_text(e->q->budget.margin_bytes, margin),
                 pl_bytes_text(over ? v->most_bytes - limit : limit - v->most_bytes, rest),
                 over ? "too much" : "to spare");
}

static void add_remedies(const struct pl_estimate *e, struct pl_text *out) {
    if (e->n_remedies) pl_text_add(out, "  what would help, each planned:\n");
    for (uint32_t i = 0; i < e->n_remedies; i++) {
        const struct pl_remedy *r = &e->remedies[i];
        char total[PL_BYTES_TEXT], saves[PL_BYTES_TEXT];
        pl_text_addf(out, "    %-4s total %11s, saves %11s: %s", pl_verdict_name(r->price.verdict),
                     pl_bytes_text(r->price.needed_bytes, total),
                     pl_bytes_text(r->saves_bytes > 0 ? (uint64_t)r->saves_bytes : 0, saves),
                     r->change);
        if (r->price.host_bytes)
            pl_text_addf(out, " (%s of host memory)", pl_bytes_text(r->price.host_bytes, saves));
        pl_text_add(out, "\n");
    }
}

static void add_target(const struct pl_traits *t, struct pl_text *out) {
    if (t->backend == PL_BACKEND_CUDA)
        pl_text_addf(out, "; planned for a GPU of compute capability %u.%u\n", t->sm / 10,
                     t->sm % 10);
    else
        pl_text_addf(out, "; planned for the CPU, %u thread%s\n", t->threads,
                     t->threads == 1 ? "" : "s");
}

/* Another level than the one that a written `auto` chose may hold a larger batch, in more time. */
static void add_largest(const struct pl_question *q, struct pl_text *out) {
    if (!q->recommended) return;
    pl_text_addf(out, "  largest batch that fits: %u", q->recommended);
    const uint32_t level = q->recommended_level;
    const bool other = level != PL_RECOMPUTE_AUTO;
    if ((other || q->job->gradient_checkpointing == PL_RECOMPUTE_AUTO) && !q->job->inference) {
        pl_text_add(out, ", with gradient_checkpointing: ");
        pl_recompute_print(other ? level : pl_question_level(q), out);
    }
    pl_text_add(out, "\n");
}

void pl_estimate_text(const struct pl_estimate *e, bool colour, unsigned columns,
                      struct pl_text *out) {
    const struct style *s = colour ? &coloured : &plain;
    char trained[PL_COUNT_TEXT], all[PL_COUNT_TEXT];
    pl_text_add(out, s->bold);
    pl_estimate_add_summary(e, out);
    pl_text_addf(out, "%s\n  %s, ", s->off, pl_family_name(e->q->model->family));
    if (!e->q->job->inference)
        pl_text_addf(out, "%s of ", pl_count_text(e->trainable_param_count, trained));
    pl_text_addf(out, "%s parameters%s", pl_count_text(e->param_count, all),
                 e->q->job->inference ? "" : " trained");
    add_target(&e->q->traits, out);
    add_ledger(e, s, columns, out);
    add_peak(e, out);
    add_experts(e, out);
    pl_estimate_ranks_text(e, out);
    add_verdict(e, s, out);
    add_largest(e->q, out);
    add_remedies(e, out);
}
