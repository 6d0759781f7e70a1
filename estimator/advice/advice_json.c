/* advice_json.c - the advice as one object: the rows of the estimate, and its own after them. */
#include "estimator/advice/advice.h"

#include "estimator/advice/parts.h"
#include "estimator/advice/recommend.h"
#include "estimator/base/json_tree.h"
#include "estimator/config/key_table.h"

static json_t *axis_json(const uint32_t *v, uint32_t n) {
    json_t *list = json_array();
    for (uint32_t i = 0; i < n; i++)
        pl_json_append(&list, json_integer(v[i]));
    return list;
}

static json_t *grid_json(const struct pl_fit_grid *g) {
    struct pl_report r = {0}, cells = {0};
    pl_fit_grid_report(g, &cells);
    pl_report_tree(&r, "batch_sizes", axis_json(g->batches, g->n_batches));
    pl_report_tree(&r, "max_seq_lengths", axis_json(g->lengths, g->n_lengths));
    pl_report_tree(&r, "cells", pl_report_end_list(&cells));
    return pl_report_end(&r);
}

static json_t *walls_json(const struct pl_advice *a) {
    uint32_t n;
    const struct pl_key_info *keys = pl_key_table(&n);
    struct pl_report r = {0};
    for (uint32_t i = 0; i < a->n_walls; i++) {
        const struct pl_wall *w = &a->walls[i];
        pl_report_next(&r);
        pl_report_word(&r, "key", keys[w->key].key);
        pl_report_count(&r, "now", w->now);
        pl_report_count(&r, "wall", w->wall);
        pl_report_known(&r, a->q.budget.known);
        pl_report_count(&r, "limit", w->limit);
        pl_report_bytes(&r, "wall_bytes", w->wall_bytes);
        pl_report_known(&r, w->wall_bytes);
        pl_report_bytes(&r, "next_bytes", w->next_bytes);
        pl_report_known(&r, w->next_bytes);
        pl_report_truth(&r, "limited_by_memory", w->next_bytes);
        pl_report_integer(&r, "doubling_bytes", w->doubling_bytes);
        pl_report_known(&r, w->doubling_known);
        pl_report_truth(&r, "doubling_fits", w->doubling_fits);
        pl_report_known(&r, w->doubling_known && a->q.budget.known);
    }
    return pl_report_end_list(&r);
}

static json_t *knobs_json(const struct pl_advice *a) {
    struct pl_report r = {0};
    for (uint32_t i = 0; i < a->n_knobs; i++) {
        const struct pl_knob *k = &a->knobs[i];
        pl_report_next(&r);
        pl_report_word(&r, "from", k->from);
        pl_report_word(&r, "change", k->change);
        pl_report_integer(&r, "saves_bytes", k->saves_bytes);
        pl_report_real(&r, "work_percent", k->time_percent);
        pl_price_report(&k->price, &r);
    }
    return pl_report_end_list(&r);
}

static json_t *point_json(const struct pl_frontier_point *p) {
    struct pl_report r = {0};
    if (!p->batch_size) return json_null();
    pl_report_count(&r, "batch_size", p->batch_size);
    pl_report_bytes(&r, "needed_bytes", p->price.needed_bytes);
    pl_report_real(&r, "relative_time", p->relative_time);
    pl_report_truth(&r, "dominated", p->dominated);
    return pl_report_end(&r);
}

static json_t *tradeoffs_json(const struct pl_advice *a) {
    struct pl_report r = {0};
    for (uint32_t i = 0; i < a->n_tradeoffs; i++) {
        const struct pl_tradeoff *t = &a->tradeoffs[i];
        char name[PL_LEVEL_TEXT];
        pl_tradeoff_name(t, name);
        pl_report_next(&r);
        pl_report_format(&r, "gradient_checkpointing", "%s", name);
        pl_report_count(&r, "largest_batch_size", t->largest_batch);
        pl_report_known(&r, a->q.budget.known);
        pl_report_real(&r, "work_percent", t->time_percent);
        pl_report_tree(&r, "at_largest_batch", point_json(&t->points[PL_FRONTIER_LARGEST]));
        pl_report_tree(&r, "at_micro_batch", point_json(&t->points[PL_FRONTIER_MICRO]));
        pl_report_truth(&r, "dominated", pl_tradeoff_dominated(t));
        pl_report_truth(&r, "chosen", t->now);
        pl_report_truth(&r, "automatic", t->automatic);
        pl_price_report(&t->price, &r);
    }
    return pl_report_end_list(&r);
}

static json_t *cards_json(const struct pl_advice *a) {
    struct pl_report r = {0};
    for (uint32_t i = 0; i < a->n_cards; i++) {
        const struct pl_card_row *c = &a->cards[i];
        pl_report_next(&r);
        pl_report_word(&r, "name", c->name);
        pl_report_count(&r, "nameplate_gb", c->nameplate_gb);
        pl_report_bytes(&r, "usable_bytes", c->usable_bytes);
        pl_report_bytes(&r, "needed_bytes", c->needed_bytes);
        pl_report_word(&r, "verdict", pl_verdict_name(c->verdict));
        pl_report_truth(&r, "runs", c->runs);
    }
    return pl_report_end_list(&r);
}

void pl_length_choices_report(const struct pl_advice *a, struct pl_report *r) {
    const struct pl_lengths *l = a->lengths;
    for (uint32_t i = 0; i < a->n_choices; i++) {
        const struct pl_length_choice *c = &a->choices[i];
        const bool advised = a->recommended_batch && c->length == a->length;
        pl_report_next(r);
        pl_report_count(r, "max_seq_length", c->length);
        pl_report_count(r, "samples_cut", c->over);
        pl_report_count(r, "tokens_lost", c->lost_tokens);
        pl_report_count(r, "largest_batch_size", c->largest_batch);
        pl_report_known(r, a->q.budget.known);
        pl_price_report(&c->price, r);
        pl_report_format(r, "cut", "%.2f %%", 100.0 * (double)c->over / (double)l->rows);
        pl_report_for_people(r);
        pl_report_format(r, "lost", "%.2f %%", 100.0 * (double)c->lost_tokens / (double)l->tokens);
        pl_report_for_people(r);
        pl_report_word(r, "mark", advised ? "  <- advised" : "");
        pl_report_for_people(r);
    }
}

static json_t *data_json(const struct pl_advice *a) {
    static const struct {
        const char *name;
        unsigned percent;
    } percentiles[] = {{"p50", 50}, {"p90", 90}, {"p95", 95}, {"p99", 99}, {"p100", 100}};
    const struct pl_lengths *l = a->lengths;
    struct pl_report r = {0}, choices = {0}, p = {0};
    if (!l || !l->rows) return json_null();
    for (size_t i = 0; i < sizeof percentiles / sizeof *percentiles && !l->described; i++)
        pl_report_count(&p, percentiles[i].name, pl_lengths_percentile(l, percentiles[i].percent));
    pl_length_choices_report(a, &choices);
    pl_report_count(&r, "samples", l->rows);
    pl_report_count(&r, "tokens", l->tokens);
    pl_report_count(&r, "longest", l->longest);
    pl_report_truth(&r, "described", l->described);
    pl_report_tree(&r, "percentiles", pl_report_end(&p));
    pl_report_tree(&r, "lengths", pl_report_end_list(&choices));
    return pl_report_end(&r);
}

static json_t *accumulations_json(const struct pl_advice *a) {
    struct pl_report r = {0};
    for (uint32_t i = 0; i < a->n_accumulations; i++) {
        const struct pl_accumulation_row *row = &a->accumulations[i];
        pl_report_next(&r);
        pl_report_count(&r, "batch_size", row->batch_size);
        pl_report_count(&r, "gradient_accumulation_steps", row->steps);
        pl_price_report(&row->price, &r);
    }
    return pl_report_end_list(&r);
}

/* The values to use: those of the first way where one is recommended. */
static json_t *advice_json(const struct pl_advice *a, const struct pl_way *way) {
    const uint32_t batch = way ? way->job.batch_size : a->recommended_batch;
    const uint32_t steps = way ? way->steps : a->accumulation;
    struct pl_text command = {0}, yaml = {0};
    struct pl_report r = {0}, price = {0};
    if (way) {
        pl_advice_job_command(pl_advice_verb(&way->job), &way->job, a->q.job, a->q.card, &command);
        pl_advice_job_yaml(&way->job, &yaml);
    } else {
        pl_advice_command(a, &command);
        pl_advice_yaml(a, &yaml);
    }
    pl_report_count(&r, "max_seq_length", a->length);
    pl_report_count(&r, "largest_batch_size", a->largest_batch);
    pl_report_known(&r, a->q.budget.known);
    pl_report_count(&r, "recommended_batch_size", batch);
    pl_report_known(&r, batch);
    pl_report_count(&r, "effective_batch_size", a->effective_batch);
    pl_report_known(&r, a->effective_batch);
    pl_report_count(&r, "gradient_accumulation_steps", steps);
    pl_report_known(&r, steps);
    pl_price_report(way ? &way->price : &a->recommended, &price);
    pl_report_tree(&r, "price", pl_report_end(&price));
    pl_report_text(&r, "command", &command);
    pl_report_text(&r, "yaml", &yaml);
    return pl_report_end(&r);
}

json_t *pl_advice_json(const struct pl_advice *a, const struct pl_recommendation *found,
                       const char *notes) {
    struct pl_report r = {0};
    pl_estimate_report(&a->estimate, notes, &r);
    pl_report_tree(&r, "data", data_json(a));
    pl_report_tree(&r, "grid", grid_json(&a->grid));
    pl_report_tree(&r, "walls", walls_json(a));
    pl_report_tree(&r, "knobs", knobs_json(a));
    pl_report_tree(&r, "recompute", tradeoffs_json(a));
    pl_report_tree(&r, "accumulation", accumulations_json(a));
    pl_report_tree(&r, "cards", cards_json(a));
    pl_report_tree(&r, "advice", advice_json(a, found && found->n_ways ? found->ways : NULL));
    if (found) pl_report_tree(&r, "recommended", pl_recommendation_json(a, found));
    return pl_report_end(&r);
}
