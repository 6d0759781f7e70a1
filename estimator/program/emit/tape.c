/* tape.c - recording a part of the forward pass and walking back over it. */
#include "estimator/program/emit/tape.h"

#include "estimator/program/emit/exchange.h"

/* --- recording ------------------------------------------------------------------------------- */

static void overflow(struct pl_tape *t, const char *what) {
    if (t->b->err == PL_ERR_OK)
        t->b->err = pl_diag_set(t->b->d, PL_ERR_PLAN_BROKEN, "a tape has too many %s", what);
}

pl_var pl_tape_add_value(struct pl_tape *t, enum pl_value_part part, const char *name,
                         const char *grad_name) {
    if (t->n_values == PL_TAPE_VALUES) {
        overflow(t, "values");
        return 0;
    }
    t->values[t->n_values] = (struct pl_value){
        .val = PL_NO_VAL, .name = name, .grad_name = grad_name, .grad = PL_NONE, .part = part};
    return t->n_values++;
}

void pl_tape_record(struct pl_tape *t, struct pl_step s) {
    const struct pl_step_row *row = &pl_step_rows[s.kind];
    if (t->n_steps == PL_TAPE_STEPS) {
        overflow(t, "steps");
        return;
    }
    t->steps[t->n_steps++] = s;
    if (s.out[0] != PL_NO_VAR) t->values[s.out[0]].wants = !row->wants || row->wants(t, &s);
    if (t->b->err == PL_ERR_OK) row->run(t, &s, UINT64_MAX);
}

struct pl_val pl_tape_value(const struct pl_tape *t, pl_var v) {
    return t->values[v].val;
}

pl_var pl_tape_begin(struct pl_tape *t, struct pl_builder *b, struct pl_val trunk,
                     struct pl_val pending, bool need_dx, pl_var *below) {
    const bool adds = pending.id != PL_NONE;
    *t = (struct pl_tape){.b = b};
    const pl_var x = pl_tape_add_value(t, PL_PART_INPUT, NULL, NULL);
    t->values[x].val = adds ? pending : trunk;
    t->values[x].wants = need_dx;
    t->values[x].trunk = true;
    *below = PL_NO_VAR;
    if (!adds) return x;
    *below = pl_tape_add_value(t, PL_PART_INPUT, NULL, NULL);
    t->values[*below].val = trunk;
    return x;
}

pl_var pl_tape_norm(struct pl_tape *t, enum pl_slot slot, pl_var x, pl_var r, const char *name,
                    const char *grad_name) {
    const pl_var n = pl_tape_add_value(t, PL_PART_ROWS, name, grad_name);
    const pl_var rstd = pl_tape_add_value(t, PL_PART_TRUNK, "rstd", NULL);
    pl_tape_record(t, (struct pl_step){PL_STEP_NORM, slot, {x, r}, {n, rstd, x}});
    return n;
}

pl_var pl_tape_post_norm(struct pl_tape *t, enum pl_slot slot, pl_var x, const char *name) {
    const pl_var n = pl_tape_add_value(t, PL_PART_TRUNK, name, NULL);
    const pl_var rstd = pl_tape_add_value(t, PL_PART_TRUNK, "rstd", NULL);
    pl_tape_record(t,
                   (struct pl_step){PL_STEP_POST_NORM, slot, {x, PL_NO_VAR}, {n, rstd, PL_NO_VAR}});
    return n;
}

pl_var pl_tape_linear(struct pl_tape *t, enum pl_slot slot, pl_var x, uint64_t cols,
                      enum pl_value_part part, const char *name, const char *grad_name) {
    const pl_var y = pl_tape_add_value(t, part, name, grad_name);
    const pl_var a = pl_tape_add_value(t, part, NULL, NULL);
    t->values[y].cols = cols;
    pl_tape_record(t, (struct pl_step){PL_STEP_LINEAR, slot, {x, PL_NO_VAR}, {y, a, PL_NO_VAR}});
    return y;
}

pl_var pl_tape_qk_norm(struct pl_tape *t, pl_var q, pl_var qkv) {
    const pl_var qk = pl_tape_add_value(t, PL_PART_NEVER, "qk", NULL);
    const pl_var rstd_q = pl_tape_add_value(t, PL_PART_NEVER, "qk_rstd", NULL);
    const pl_var rstd_k = pl_tape_add_value(t, PL_PART_NEVER, "qk_rstd", NULL);
    pl_tape_record(
        t, (struct pl_step){PL_STEP_QK_NORM, PL_SLOT_QNORM, {q, qkv}, {qk, rstd_q, rstd_k}});
    return qk;
}

void pl_tape_rope(struct pl_tape *t, enum pl_slot slot, pl_var qk, pl_var qkv) {
    if (t->b->m->layer[t->b->layer].rope == PL_NO_ROPE) return;
    pl_tape_record(t, (struct pl_step){PL_STEP_ROPE, slot, {qk, qkv}, {qk, PL_NO_VAR, PL_NO_VAR}});
}

pl_var pl_tape_attention(struct pl_tape *t, pl_var qk, pl_var qkv) {
    const pl_var o = pl_tape_add_value(t, PL_PART_ATTENTION, PL_TAPE_NAME("o"));
    const pl_var lse = pl_tape_add_value(t, PL_PART_ATTENTION, "lse", NULL);
    pl_tape_record(
        t, (struct pl_step){PL_STEP_ATTENTION, PL_SLOT_QKV, {qk, qkv}, {o, lse, PL_NO_VAR}});
    return o;
}

/* --- making values again --------------------------------------------------------------------- */

static pl_var_set outputs_of(const struct pl_step *s) {
    return pl_var_bit(s->out[0]) | pl_var_bit(s->out[1]) | pl_var_bit(s->out[2]);
}

static pl_var_set values_there(const struct pl_tape *t) {
    pl_var_set there = 0;
    for (pl_var v = 0; v < t->n_values; v++)
        if (t->values[v].there) there |= pl_var_bit(v);
    return there;
}

/* Steps are visited from the end: a step runs again if it makes something that is missing, and then
 * the values that it reads are needed, too. */
void pl_tape_rebuild(struct pl_tape *t, pl_var_set wanted) {
    const pl_var_set there = values_there(t), asked = wanted;
    uint32_t steps = 0;
    for (int i = t->n_steps - 1; i >= 0; i--) {
        const struct pl_step *s = &t->steps[i];
        if (!(outputs_of(s) & wanted & ~there)) continue;
        steps |= UINT32_C(1) << i;
        wanted |= pl_step_rows[s->kind].reads(t, s);
    }
    t->b->recompute = true;
    for (int i = 0; i < t->n_steps && t->b->err == PL_ERR_OK; i++)
        if (steps >> i & 1) pl_step_rows[t->steps[i].kind].run(t, &t->steps[i], wanted & ~there);
    t->b->recompute = false;
    for (int i = 0; i < t->n_steps; i++)
        for (int k = 0; k < 3 && steps >> i & 1; k++)
            if (t->steps[i].out[k] != PL_NO_VAR) t->values[t->steps[i].out[k]].there = true;
    for (pl_var v = 0; v < t->n_values; v++)
        if (t->values[v].part == PL_PART_NEVER && !(asked & pl_var_bit(v)))
            t->values[v].there = false;
}

/* --- back ------------------------------------------------------------------------------------ */

#define PART(p) (1u << PL_PART_##p)

/* Parts whose values the forward pass keeps for the gradient, by level. */
static const unsigned kept_parts[PL_RECOMPUTE_PLAIN] = {
    [PL_RECOMPUTE_NONE] = PART(INPUT) | PART(TRUNK) | PART(ROWS) | PART(MLP) | PART(ATTENTION),
    [PL_RECOMPUTE_LIGHT] = PART(INPUT) | PART(TRUNK) | PART(MLP) | PART(ATTENTION),
    [PL_RECOMPUTE_MLP] = PART(INPUT) | PART(TRUNK) | PART(ATTENTION),
    [PL_RECOMPUTE_ATTENTION] = PART(INPUT) | PART(TRUNK) | PART(MLP),
    [PL_RECOMPUTE_FULL] = PART(INPUT),
    [PL_RECOMPUTE_OFFLOAD] = PART(INPUT),
};

/* A gradient has taken the place of the value: before a second pass over the tape. */
static bool is_overwritten(const struct pl_builder *b, struct pl_val v) {
    return b->again && v.id != PL_NONE && b->version[v.id] != v.version;
}

bool pl_tape_keeps(const struct pl_builder *b, enum pl_value_part part) {
    return kept_parts[pl_recompute_of_layer(b->s->recompute, b->layer)] >> part & 1;
}

static void keep(struct pl_tape *t) {
    const struct pl_builder *b = t->b;
    for (pl_var v = 0; v < t->n_values; v++)
        t->values[v].there =
            pl_tape_keeps(b, t->values[v].part) && !is_overwritten(b, t->values[v].val);
}

static bool is_product(const struct pl_step *s) {
    return s->kind == PL_STEP_LINEAR || s->kind == PL_STEP_MLP;
}

/* T4, of the input of step i. */
static bool is_remade(const struct pl_tape *t, int i) {
    const struct pl_step *s = &t->steps[i];
    if (s->kind != PL_STEP_LINEAR || i == 0) return false;
    const struct pl_value *x = &t->values[s->in[0]];
    return t->steps[i - 1].kind == PL_STEP_GATE && t->steps[i - 1].out[0] == s->in[0] &&
           !x->there && x->wants && pl_build_linear_needs_x(t->b, s->slot);
}

/* T3: what the gradients of step i and of those below it, down to the next product, read. */
static pl_var_set needs_from(const struct pl_tape *t, int i) {
    pl_var_set needs = 0;
    do {
        needs |= pl_step_rows[t->steps[i].kind].needs(t, &t->steps[i]);
    } while (--i >= 0 && !is_product(&t->steps[i]));
    return needs;
}

void pl_tape_backward(struct pl_tape *t, uint32_t dx) {
    const pl_var output = t->steps[t->n_steps - 1].out[0];
    keep(t);
    t->trunk_grad = dx;
    if (output != PL_NO_VAR) t->values[output].grad = dx;
    if (t->steps[0].kind == PL_STEP_EMBED) t->values[t->steps[0].out[0]].grad = dx;
    for (int i = t->n_steps - 1; i >= 0 && t->b->err == PL_ERR_OK; i--) {
        const struct pl_step *s = &t->steps[i];
        if (s->in[0] != PL_NO_VAR) t->values[s->in[0]].remade = is_remade(t, i);
        if (is_product(s) || i == t->n_steps - 1) pl_tape_rebuild(t, needs_from(t, i));
        if (t->b->err == PL_ERR_OK) pl_step_rows[s->kind].gradient(t, s);
        if (s->kind == PL_STEP_GATE && t->values[s->out[0]].remade)
            pl_step_linear_weights(t, &t->steps[i + 1]);
        if (t->b->err == PL_ERR_OK) pl_build_settle(t->b, s->kind == PL_STEP_EMBED);
        if (t->b->err == PL_ERR_OK) pl_build_exchange(t->b, false);
    }
}
