/* print.c - the text form of a planned program: one op a line, so that two plans can be diffed. */
#include "estimator/base/alloc.h"
#include "estimator/plan/plan.h"

#include <stdlib.h>

#define MIB 1048576.0

static void print_operand(const struct pl_plan *plan, const struct pl_operand *o,
                          struct pl_text *out) {
    if (o->id == PL_NONE) return;
    const struct pl_tensor *t = &plan->program->tensors[o->id];
    char name[96];
    pl_tensor_name(plan->program, o->id, name);
    pl_text_addf(out, " %s", name);
    if (o->cols) pl_text_addf(out, "[:,%u:%u]", o->col, o->col + o->cols);
    if (o->nrows)
        pl_text_addf(out, "[%llu:%llu]", (unsigned long long)o->row0,
                     (unsigned long long)(o->row0 + o->nrows));
    if (t->place != PL_PLACE_DEVICE) pl_text_addf(out, ":%s", pl_place_name(t->place));
    if (t->scope == PL_SCOPE_STEP)
        pl_text_addf(out, "@%.1fM/%.1fM", (double)plan->places[o->id].offset / MIB,
                     (double)t->bytes / MIB);
}

static void print_op(const struct pl_plan *plan, uint32_t i, uint64_t live, struct pl_text *out) {
    const struct pl_op *o = &plan->program->ops[i];
    const char *pass = o->recompute ? "rec" : o->backward ? "bwd" : "fwd";
    const bool of_pass = o->phase == PL_PHASE_MICRO || pl_phase_is_forward(o->phase);
    if (!of_pass) pass = o->host ? "cpu" : "";
    pl_text_addf(out, "#%04u %-9s %-3s ", i, pl_phase_name(o->phase), pass);
    if (o->layer != PL_NONE)
        pl_text_addf(out, "L%-3u ", o->layer);
    else
        pl_text_add(out, "-    ");
    pl_text_addf(out, "%-13s in:", pl_op_name(o->kind));
    for (int k = 0; k < o->n_in; k++)
        print_operand(plan, &o->in[k], out);
    pl_text_add(out, "  out:");
    for (int k = 0; k < o->n_out; k++)
        print_operand(plan, &o->out[k], out);
    pl_text_addf(out, "  live %.2f MiB", (double)live / MIB);
    if (o->flops > 0) pl_text_addf(out, "  %.3f GFLOP", o->flops / 1e9);
    pl_text_add(out, "\n");
}

void pl_plan_print(const struct pl_plan *plan, struct pl_text *out) {
    const struct pl_program *p = plan->program;
    uint64_t *live = pl_malloc((p->n_ops + 1) * sizeof *live);
    if (!live) {
        out->failed = true;
        return;
    }
    for (int ph = 0; ph < PL_PHASE_COUNT; ph++)
        if (p->phases[ph].n_ops) pl_plan_timeline(plan, ph, live + p->phases[ph].first_op);
    for (uint32_t i = 0; i < p->n_ops; i++)
        print_op(plan, i, live[i], out);
    free(live);
}
