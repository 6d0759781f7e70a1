/* checklist.c - the questions one asks after an out-of-memory, answered with this run's facts. */
#include "oom_recovery/checklist.h"

#include "estimator/base/units.h"
#include "estimator/plan/live.h"

#define LARGEST_LINES   3
#define LARGEST_TENSORS 3

enum mark { INFORM, FINE, CHANGE };

struct scene {
    const struct pl_plan *plan;
    const struct pl_job_shape *shape;
    const struct pl_oom_facts *facts;
    uint64_t budget_bytes, held_bytes;
    const struct pl_budget *budget; /* budget of a job that has not run; NULL after a failure */
    struct pl_text *out;
};

static void begin(const struct scene *s, enum mark mark, const char *topic) {
    static const char *const marks[] = {[INFORM] = "[i] ", [FINE] = "[ok]", [CHANGE] = "[!] "};
    pl_text_addf(s->out, "%s %s: ", marks[mark], topic);
}

static void add_bytes(const struct scene *s, uint64_t bytes) {
    char text[PL_BYTES_TEXT];
    pl_text_add(s->out, pl_bytes_text(bytes, text));
}

/* --- one question each ----------------------------------------------------------------------- */

static void ask_request(const struct scene *s) {
    begin(s, INFORM, "what failed");
    pl_text_addf(s->out, "%s asked for ", s->facts->what ? s->facts->what : "device memory");
    add_bytes(s, s->facts->requested_bytes);
    pl_text_add(s->out, " with ");
    add_bytes(s, s->facts->free_bytes);
    pl_text_addf(s->out, " free%s\n", s->facts->injected ? " (injected by debug_inject)" : "");
}

static void ask_precision(const struct scene *s) {
    bool wide = s->shape->dtype == PL_DTYPE_F32;
    begin(s, wide ? CHANGE : FINE, "precision");
    if (pl_dtype_is_narrow(s->shape->base_dtype))
        pl_text_addf(s->out, "weights are %s, activations ", pl_dtype_name(s->shape->base_dtype));
    else
        pl_text_add(s->out, "weights and activations are ");
    pl_text_addf(s->out, "%s%s\n", pl_dtype_name(s->shape->dtype),
                 wide ? "; `dtype: bf16` takes half" : "");
}

/* True if no layer, of however many, keeps more than its input, on the device or in host memory. */
static bool keeps_inputs_alone(uint32_t level) {
    for (uint64_t l = 0; l <= PL_RECOMPUTE_LAYERS_MAX; l++)
        if (pl_recompute_of_layer(level, l) < PL_RECOMPUTE_FULL) return false;
    return true;
}

static void ask_checkpointing(const struct scene *s) {
    uint32_t level = s->shape->recompute;
    bool full = keeps_inputs_alone(level);
    if (s->shape->inference) return; /* nothing is kept for a way back */
    begin(s, full ? FINE : CHANGE, "gradient checkpointing");
    pl_recompute_print(level, s->out);
    pl_text_add(s->out,
                full ? "\n" : "; `gradient_checkpointing: full` keeps one tensor a layer\n");
}

static void ask_batch(const struct scene *s) {
    uint64_t n = s->shape->batch_size;
    begin(s, n > 1 ? CHANGE : FINE, "batch size");
    pl_text_addf(s->out, "%llu%s\n", (unsigned long long)n,
                 n == 1                ? " already"
                 : s->shape->inference ? "; fewer sequences at a time take less"
                                       : "; batch_size 1 with more accumulation trains the same");
}

static void ask_length(const struct scene *s) {
    bool one = s->shape->batch_size == 1;
    begin(s, one ? CHANGE : INFORM, "sequence length");
    pl_text_addf(s->out, "%llu tokens a sample, %llu a micro-batch%s\n",
                 (unsigned long long)s->shape->max_seq_length,
                 (unsigned long long)s->plan->program->tokens,
                 one ? "; a smaller max_seq_length is the next thing to try" : "");
}

static void ask_adapters(const struct scene *s) {
    const uint64_t *job = s->plan->job_by_category;
    bool full = s->shape->mode == PL_MODE_FULL;
    if (s->shape->inference) return; /* nothing is trained */
    begin(s, full ? CHANGE : FINE, "LoRA");
    if (full)
        pl_text_add(s->out, "off, every weight is trained: gradients and optimizer hold ");
    else
        pl_text_addf(s->out, "rank %llu: adapters, gradients and optimizer hold ",
                     (unsigned long long)s->shape->lora_r);
    add_bytes(s,
              job[PL_CATEGORY_ADAPTER] + job[PL_CATEGORY_GRADIENTS] + job[PL_CATEGORY_OPTIMIZER]);
    pl_text_add(s->out, full ? "; `mode: lora` trains a small part\n" : "\n");
}

/* Tells about memory that the budget promised and the device no longer has, beyond what this
 * process holds. */
static void ask_neighbours(const struct scene *s) {
    uint64_t own = s->held_bytes, available = s->facts->free_bytes;
    if (s->budget_bytes == PL_AUTO_BYTES) {
        begin(s, INFORM, "others on the device");
        pl_text_add(s->out, "not known without a budget; this process held ");
        add_bytes(s, own);
    } else if (own <= s->budget_bytes && available < s->budget_bytes - own) {
        begin(s, CHANGE, "others on the device");
        add_bytes(s, s->budget_bytes - own - available);
        pl_text_add(s->out, " of the budget of ");
        add_bytes(s, s->budget_bytes);
        pl_text_add(s->out, " is used by other processes");
    } else {
        begin(s, FINE, "others on the device");
        pl_text_add(s->out, "none within the budget of ");
        add_bytes(s, s->budget_bytes);
    }
    pl_text_add(s->out, "\n");
}

/* Tells, for a plan, how much others may hold without preventing it. */
static void ask_room(const struct scene *s) {
    uint64_t needed = s->plan->arena_bytes + s->budget->context_bytes;
    bool room = s->budget->known && needed <= s->budget->total_bytes;
    begin(s, !s->budget->known ? INFORM : room ? FINE : CHANGE, "others on the device");
    if (!s->budget->known) {
        pl_text_add(s->out, "none are in this plan; name a card to see what is left for them\n");
        return;
    }
    pl_text_add(s->out, "none are in this plan; ");
    add_bytes(s, room ? s->budget->total_bytes - needed : needed - s->budget->total_bytes);
    pl_text_add(s->out, room ? " are left for them and the margin\n" : " are missing as it is\n");
}

static void ask_ledger(const struct scene *s) {
    bool used[PL_CATEGORY_COUNT] = {false};
    begin(s, INFORM, "largest lines");
    for (int line = 0; line < LARGEST_LINES; line++) {
        int best = -1;
        for (int c = 0; c < PL_CATEGORY_COUNT; c++) {
            if (used[c] || !s->plan->ledger[c]) continue;
            if (best < 0 || s->plan->ledger[c] > s->plan->ledger[best]) best = c;
        }
        if (best < 0) break;
        used[best] = true;
        pl_text_addf(s->out, "%s%s ", line ? ", " : "", pl_category_name((enum pl_category)best));
        add_bytes(s, s->plan->ledger[best]);
    }
    pl_text_add(s->out, " of ");
    add_bytes(s, s->plan->arena_bytes);
    pl_text_add(s->out, "\n");
}

static void ask_peak(const struct scene *s) {
    const struct pl_program *p = s->plan->program;
    const struct pl_phase_plan *phase = &s->plan->phases[s->plan->peak_phase];
    if (phase->peak_op >= p->n_ops) return;
    const struct pl_op *op = &p->ops[phase->peak_op];
    begin(s, INFORM, "where the peak is");
    pl_text_addf(s->out, "%s phase, op %u %s", pl_phase_name(s->plan->peak_phase), phase->peak_op,
                 pl_op_name(op->kind));
    if (op->layer != PL_NONE) pl_text_addf(s->out, " of layer %u", op->layer);
    pl_text_addf(s->out, "%s, ", op->backward ? " going back" : "");
    add_bytes(s, phase->live_bytes);
    pl_text_add(s->out, " alive:");
    uint32_t ids[LARGEST_TENSORS];
    uint32_t n = pl_plan_largest_live(s->plan, phase->peak_op, LARGEST_TENSORS, ids);
    for (uint32_t i = 0; i < n; i++) {
        char name[96];
        pl_tensor_name(p, ids[i], name);
        pl_text_addf(s->out, "%s %s ", i ? "," : "", name);
        add_bytes(s, p->tensors[ids[i]].bytes);
    }
    pl_text_add(s->out, "\n");
}

void pl_oom_checklist(const struct pl_plan *plan, const struct pl_oom_facts *f,
                      uint64_t budget_bytes, uint64_t held_bytes, struct pl_text *out) {
    static void (*const questions[])(const struct scene *s) = {
        ask_request,  ask_precision,  ask_checkpointing, ask_batch, ask_length,
        ask_adapters, ask_neighbours, ask_ledger,        ask_peak,
    };
    const struct scene s = {plan, &plan->program->shape, f, budget_bytes, held_bytes, NULL, out};
    for (size_t i = 0; i < sizeof questions / sizeof *questions; i++)
        questions[i](&s);
}

void pl_job_checklist(const struct pl_plan *plan, const struct pl_budget *budget,
                      struct pl_text *out) {
    static void (*const questions[])(const struct scene *s) = {
        ask_precision, ask_checkpointing, ask_batch,  ask_length,
        ask_adapters,  ask_room,          ask_ledger, ask_peak,
    };
    const struct scene s = {plan, &plan->program->shape, NULL, PL_AUTO_BYTES, 0, budget, out};
    for (size_t i = 0; i < sizeof questions / sizeof *questions; i++)
        questions[i](&s);
}
