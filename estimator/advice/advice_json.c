/* advice_json.c - the advice as one object: the estimate's fields, and what surrounds them. */
#include "estimator/advice/advice.h"

#include "estimator/advice/parts.h"
#include "estimator/base/json_tree.h"
#include "estimator/config/key_table.h"

#include <stdio.h>

json_t *pl_price_json(const struct pl_price *p) {
    return json_pack("{s:I, s:f, s:s}", "needed_bytes", (json_int_t)p->needed_bytes,
                     "flops_per_token", p->flops_per_token, "verdict", pl_verdict_name(p->verdict));
}

/* A price with fields before it; steals both. */
static json_t *with_price(json_t *fields, const struct pl_price *p) {
    json_t *price = pl_price_json(p);
    pl_json_merge(&fields, price);
    json_decref(price);
    return fields;
}

static json_t *axis_json(const uint32_t *v, uint32_t n) {
    json_t *list = json_array();
    for (uint32_t i = 0; i < n; i++)
        pl_json_append(&list, json_integer(v[i]));
    return list;
}

static json_t *grid_json(const struct pl_fit_grid *g) {
    json_t *cells = json_array();
    for (uint32_t b = 0; b < g->n_batches; b++)
        for (uint32_t l = 0; l < g->n_lengths; l++)
            pl_json_append(&cells,
                           with_price(json_pack("{s:i, s:i}", "batch_size", (int)g->batches[b],
                                                "max_seq_length", (int)g->lengths[l]),
                                      &g->cells[b][l]));
    return json_pack("{s:o, s:o, s:o}", "batch_sizes", axis_json(g->batches, g->n_batches),
                     "max_seq_lengths", axis_json(g->lengths, g->n_lengths), "cells", cells);
}

static json_t *bytes_or_null(uint64_t bytes) {
    return bytes ? json_integer((json_int_t)bytes) : json_null();
}

static json_t *walls_json(const struct pl_advice *a) {
    uint32_t n;
    const struct pl_key_info *keys = pl_key_table(&n);
    json_t *list = json_array();
    for (uint32_t i = 0; i < a->n_walls; i++) {
        const struct pl_wall *w = &a->walls[i];
        json_t *o = json_pack(
            "{s:s, s:i, s:o, s:i, s:o, s:o, s:b}", "key", keys[w->key].key, "now", (int)w->now,
            "wall", a->q.budget.known ? json_integer(w->wall) : json_null(), "limit", (int)w->limit,
            "wall_bytes", bytes_or_null(w->wall_bytes), "next_bytes", bytes_or_null(w->next_bytes),
            "limited_by_memory", w->next_bytes != 0);
        pl_json_set(&o, "doubling_bytes",
                    w->doubling_known ? json_integer(w->doubling_bytes) : json_null());
        pl_json_set(&o, "doubling_fits",
                    w->doubling_known && a->q.budget.known ? json_boolean(w->doubling_fits)
                                                           : json_null());
        pl_json_append(&list, o);
    }
    return list;
}

static json_t *knobs_json(const struct pl_advice *a) {
    json_t *list = json_array();
    for (uint32_t i = 0; i < a->n_knobs; i++) {
        const struct pl_knob *k = &a->knobs[i];
        pl_json_append(&list,
                       with_price(json_pack("{s:s, s:s, s:I, s:f}", "from", k->from, "change",
                                            k->change, "saves_bytes", (json_int_t)k->saves_bytes,
                                            "work_percent", k->time_percent),
                                  &k->price));
    }
    return list;
}

static json_t *point_json(const struct pl_frontier_point *p) {
    if (!p->batch_size) return json_null();
    return json_pack("{s:i, s:I, s:f, s:b}", "batch_size", (int)p->batch_size, "needed_bytes",
                     (json_int_t)p->price.needed_bytes, "relative_time", p->relative_time,
                     "dominated", (int)p->dominated);
}

static json_t *tradeoffs_json(const struct pl_advice *a) {
    json_t *list = json_array();
    for (uint32_t i = 0; i < a->n_tradeoffs; i++) {
        const struct pl_tradeoff *t = &a->tradeoffs[i];
        char name[PL_LEVEL_TEXT];
        pl_tradeoff_name(t, name);
        pl_json_append(
            &list,
            with_price(json_pack("{s:s, s:o, s:f, s:o, s:o, s:b, s:b, s:b}",
                                 "gradient_checkpointing", name, "largest_batch_size",
                                 a->q.budget.known ? json_integer(t->largest_batch) : json_null(),
                                 "work_percent", t->time_percent, "at_largest_batch",
                                 point_json(&t->points[PL_FRONTIER_LARGEST]), "at_micro_batch",
                                 point_json(&t->points[PL_FRONTIER_MICRO]), "dominated",
                                 (int)pl_tradeoff_dominated(t), "chosen", (int)t->now, "automatic",
                                 (int)t->automatic),
                       &t->price));
    }
    return list;
}

static json_t *cards_json(const struct pl_advice *a) {
    json_t *list = json_array();
    for (uint32_t i = 0; i < a->n_cards; i++) {
        const struct pl_card_row *c = &a->cards[i];
        pl_json_append(&list,
                       json_pack("{s:s, s:i, s:I, s:I, s:s, s:b}", "name", c->name, "nameplate_gb",
                                 (int)c->nameplate_gb, "usable_bytes", (json_int_t)c->usable_bytes,
                                 "needed_bytes", (json_int_t)c->needed_bytes, "verdict",
                                 pl_verdict_name(c->verdict), "runs", (int)c->runs));
    }
    return list;
}

static json_t *choices_json(const struct pl_advice *a) {
    json_t *list = json_array();
    for (uint32_t i = 0; i < a->n_choices; i++) {
        const struct pl_length_choice *c = &a->choices[i];
        pl_json_append(
            &list,
            with_price(json_pack("{s:i, s:I, s:I, s:o}", "max_seq_length", (int)c->length,
                                 "samples_cut", (json_int_t)c->over, "tokens_lost",
                                 (json_int_t)c->lost_tokens, "largest_batch_size",
                                 a->q.budget.known ? json_integer(c->largest_batch) : json_null()),
                       &c->price));
    }
    return list;
}

static json_t *data_json(const struct pl_advice *a) {
    const struct pl_lengths *l = a->lengths;
    if (!l || !l->rows) return json_null();
    static const unsigned percents[] = {50, 90, 95, 99, 100};
    json_t *percentiles = json_object();
    for (size_t i = 0; i < sizeof percents / sizeof *percents && !l->described; i++) {
        char key[8];
        snprintf(key, sizeof key, "p%u", percents[i]);
        pl_json_set(&percentiles, key, json_integer(pl_lengths_percentile(l, percents[i])));
    }
    return json_pack("{s:I, s:I, s:i, s:b, s:o, s:o}", "samples", (json_int_t)l->rows, "tokens",
                     (json_int_t)l->tokens, "longest", (int)l->longest, "described",
                     (int)l->described, "percentiles", percentiles, "lengths", choices_json(a));
}

static json_t *accumulations_json(const struct pl_advice *a) {
    json_t *list = json_array();
    for (uint32_t i = 0; i < a->n_accumulations; i++) {
        const struct pl_accumulation_row *r = &a->accumulations[i];
        pl_json_append(&list, with_price(json_pack("{s:i, s:i}", "batch_size", (int)r->batch_size,
                                                   "gradient_accumulation_steps", (int)r->steps),
                                         &r->price));
    }
    return list;
}

static json_t *text_json(const struct pl_advice *a,
                         void (*write)(const struct pl_advice *, struct pl_text *)) {
    struct pl_text text = {0};
    write(a, &text);
    json_t *s = text.failed ? NULL : json_stringn(text.data ? text.data : "", text.len);
    pl_text_finish(&text);
    return s;
}

static json_t *advice_json(const struct pl_advice *a) {
    return json_pack(
        "{s:i, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "max_seq_length", (int)a->length,
        "largest_batch_size", a->q.budget.known ? json_integer(a->largest_batch) : json_null(),
        "recommended_batch_size",
        a->recommended_batch ? json_integer(a->recommended_batch) : json_null(),
        "effective_batch_size", a->effective_batch ? json_integer(a->effective_batch) : json_null(),
        "gradient_accumulation_steps",
        a->accumulation ? json_integer(a->accumulation) : json_null(), "price",
        pl_price_json(&a->recommended), "command", text_json(a, pl_advice_command), "yaml",
        text_json(a, pl_advice_yaml));
}

json_t *pl_advice_json(const struct pl_advice *a, const char *notes) {
    const struct {
        const char *key;
        json_t *value;
    } rows[] = {{"data", data_json(a)},           {"grid", grid_json(&a->grid)},
                {"walls", walls_json(a)},         {"knobs", knobs_json(a)},
                {"recompute", tradeoffs_json(a)}, {"accumulation", accumulations_json(a)},
                {"cards", cards_json(a)},         {"advice", advice_json(a)}};
    json_t *o = pl_estimate_json(&a->estimate, notes);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        pl_json_set(&o, rows[i].key, rows[i].value);
    return o;
}
