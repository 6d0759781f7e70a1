/* embed.c - the step below the layers: rows of the embedding, and of an adapter on it.
 *
 *   x[i] = W[id] + s B a[id]
 * as PEFT's lora.Embedding, which has no dropout. */
#include "estimator/program/emit/exchange.h"
#include "estimator/program/emit/tape.h"

/* Returns the factor of the embedding's rows in the type of activations, as a module's buffer has
 * it in transformers; 0 = none. */
static float embed_scale(const struct pl_builder *b) {
    if (b->m->embed_scale == 1) return 0;
    return pl_dtype_round(b->s->dtype, (float)b->m->embed_scale);
}

/* The factor of B a[id]: an embedding that is scaled scales the adapter's part as well. */
static float adapter_scale(const struct pl_builder *b) {
    const float scale = embed_scale(b);
    return (float)b->s->lora_scale * (scale != 0 ? scale : 1.0f);
}

static void look_up(struct pl_builder *b, uint32_t table, uint32_t x, float scale) {
    if (b->err != PL_ERR_OK) return;
    struct pl_operand in[] = {pl_arg(b->in.ids), pl_arg(pl_build_now(b, table))};
    struct pl_operand out[] = {pl_arg(pl_build_now(b, x))};
    PL_EMIT(b, EMBED, (struct pl_attr){.scale = scale}, in, out);
}

static void run_adapter(struct pl_tape *t, const struct pl_step *s,
                        const struct pl_adapter_slot *ad) {
    const uint32_t a = pl_build_adapter_rows(t->b, "lora_a_out", ad);
    look_up(t->b, ad->a, a, 0);
    t->values[s->out[1]].val = pl_build_now(t->b, a);
}

void pl_step_embed(struct pl_tape *t, const struct pl_step *s, pl_var_set missing) {
    struct pl_builder *b = t->b;
    const struct pl_adapter_slot *ad = pl_build_adapter(b, PL_SLOT_EMBED);
    if (!(missing & pl_var_bit(s->out[0]))) {
        run_adapter(t, s, ad);
        return;
    }
    const uint32_t x =
        pl_build_activation(b, t->values[s->out[0]].name, PL_ROWS_TOKENS, b->m->hidden);
    if (pl_build_is_quantised(b, PL_NONE, PL_SLOT_EMBED))
        pl_build_look_up_codes(b, x, embed_scale(b));
    else
        look_up(b, pl_build_weight(b, PL_SLOT_EMBED), x, embed_scale(b));
    if (ad && b->err == PL_ERR_OK) {
        run_adapter(t, s, ad);
        pl_build_product(b, pl_arg(t->values[s->out[1]].val), pl_arg_now(b, ad->b[0]), pl_arg_none,
                         pl_arg(pl_build_now(b, x)), adapter_scale(b), true);
    }
    t->values[s->out[0]].val = pl_build_now(b, x);
}

/* The rows of A are looked up again: they are cheaper to read than to keep. */
pl_var_set pl_step_embed_needs(const struct pl_tape *t, const struct pl_step *s) {
    return pl_build_adapter(t->b, PL_SLOT_EMBED) ? pl_var_bit(s->out[1]) : 0;
}

static void table_gradient(struct pl_builder *b, uint32_t table, uint32_t dx, float scale) {
    if (b->err != PL_ERR_OK || !pl_build_trains(b, table)) return;
    struct pl_attr attr = {.padding_idx = b->m->pad, .scale = scale};
    struct pl_operand g = pl_build_grad(b, table, &attr);
    struct pl_operand in[] = {pl_arg(b->in.ids), pl_arg(b->in.order), pl_arg(pl_build_now(b, dx)),
                              g};
    struct pl_operand out[] = {g};
    PL_EMIT(b, EMBED_BWD, attr, in, out);
}

void pl_step_embed_gradient(struct pl_tape *t, const struct pl_step *s) {
    struct pl_builder *b = t->b;
    const struct pl_adapter_slot *ad = pl_build_adapter(b, PL_SLOT_EMBED);
    const uint32_t dx = t->values[s->out[0]].grad;
    table_gradient(b, pl_build_weight(b, PL_SLOT_EMBED), dx, embed_scale(b));
    if (!ad || b->err != PL_ERR_OK) return;
    const float scale = adapter_scale(b);
    const uint32_t da = pl_build_adapter_rows(b, "d_lora_a_out", ad);
    const struct pl_operand dy = pl_arg(pl_build_now(b, dx));
    pl_build_product_dw(b, dy, pl_arg(t->values[s->out[1]].val), ad->b[0], scale);
    pl_build_product_dx(b, dy, pl_arg_now(b, ad->b[0]), pl_arg(pl_build_now(b, da)), scale, false);
    table_gradient(b, ad->a, da, 0);
}

pl_var pl_tape_embed(struct pl_tape *t, struct pl_builder *b) {
    *t = (struct pl_tape){.b = b};
    const pl_var x = pl_tape_add_value(t, PL_PART_INPUT, "x0", NULL);
    const pl_var a = pl_tape_add_value(t, PL_PART_NEVER, NULL, NULL);
    t->values[x].trunk = true;
    pl_tape_record(t, (struct pl_step){
                          PL_STEP_EMBED, PL_SLOT_EMBED, {PL_NO_VAR, PL_NO_VAR}, {x, a, PL_NO_VAR}});
    pl_tape_layer_inputs(t, x);
    return x;
}
