/* recommend_text.c - the recommendation in ten lines, and as JSON. */
#include "estimator/advice/recommend.h"

#include "estimator/advice/parts.h"
#include "estimator/base/json_tree.h"
#include "estimator/base/units.h"
#include "estimator/card/cards.h"
#include "estimator/config/job_text.h"
#include "estimator/config/job_values.h"
#include "estimator/config/key_table.h"

#include <string.h>

#define ALTERNATIVES 2

struct page {
    const struct pl_advice *a;
    const struct pl_recommendation *r;
    const char *bold, *off;
    struct pl_text *out;
};

/* --- what a way changes ---------------------------------------------------------------------- */

static bool is_of_the_step(enum pl_key_id key) {
    return key == PL_KEY_batch_size || key == PL_KEY_gradient_accumulation_steps ||
           key == PL_KEY_global_batch_size || key == PL_KEY_max_seq_length ||
           key == PL_KEY_loss_chunk_tokens;
}

/* Keys whose values differ, the level of the second in any case. */
static void add_changes(const struct pl_job *from, const struct pl_job *to, struct pl_text *out) {
    uint32_t n;
    const struct pl_key_info *keys = pl_key_table(&n);
    const size_t start = out->len;
    for (uint32_t i = 0; i < n; i++) {
        const enum pl_key_id key = (enum pl_key_id)i;
        if (is_of_the_step(key)) continue;
        if (key != PL_KEY_gradient_checkpointing &&
            pl_advice_same_value(from, to, key, &out->failed))
            continue;
        pl_text_addf(out, "%s%s: ", out->len > start ? ", " : "", keys[i].key);
        pl_job_write_key(to, key, out);
    }
}

/* --- text ------------------------------------------------------------------------------------ */

/* On average, where slots are packed. */
static double samples_of_step(const struct pl_way *w) {
    const uint32_t asked = w->job.global_batch_size;
    double slots = (double)w->steps * w->job.batch_size * pl_job_ranks(&w->job);
    if (asked != PL_UNSET_U32 && slots > asked) slots = asked; /* which ranks may not divide */
    return w->slot.samples > 1 ? slots * w->slot.samples : slots;
}

static void add_size(const struct page *p, const struct pl_way *w) {
    pl_text_addf(p->out, "batch %u x %u tokens", w->job.batch_size, p->r->length);
    const uint32_t ranks = pl_job_ranks(&w->job);
    if (w->steps > 1) pl_text_addf(p->out, ", %u micro-batches", w->steps);
    if (ranks > 1) pl_text_addf(p->out, " on each of %u devices", ranks);
    if (w->slot.samples > 1)
        pl_text_addf(p->out, ", about %.0f samples a step", samples_of_step(w));
    else if (w->steps > 1 || ranks > 1)
        pl_text_addf(p->out, " = %.0f samples a step", samples_of_step(w));
}

static void add_bytes(const struct page *p, const struct pl_way *w) {
    char needed[PL_BYTES_TEXT], host[PL_BYTES_TEXT];
    pl_text_add(p->out, pl_bytes_text(w->price.needed_bytes, needed));
    if (w->price.host_bytes)
        pl_text_addf(p->out, " and %s of host memory", pl_bytes_text(w->price.host_bytes, host));
}

static void add_time(const struct page *p) {
    double fastest = 0;
    for (uint32_t i = 1; i <= ALTERNATIVES && i < p->r->n_ways; i++)
        if (i == 1 || p->r->ways[i].relative_time < fastest) fastest = p->r->ways[i].relative_time;
    if (fastest > 0)
        pl_text_addf(p->out, "  time   %.2f of the fastest alternative's\n", 1 / fastest);
    else
        pl_text_add(p->out, "  time   no other way fits\n");
}

static void add_best(const struct page *p) {
    const struct pl_way *w = &p->r->ways[0];
    const struct pl_budget *b = &p->a->q.budget;
    const uint64_t all = pl_budget_usable(b) + b->context_bytes;
    char usable[PL_BYTES_TEXT];
    pl_text_addf(p->out, "%srecommended%s  ", p->bold, p->off);
    add_size(p, w);
    pl_text_add(p->out, "\n  with   ");
    add_changes(p->a->q.job, &w->job, p->out);
    pl_text_add(p->out, "\n  needs  ");
    add_bytes(p, w);
    pl_text_addf(p->out, "; %.0f %% of the %s of %s\n",
                 100.0 * (double)w->price.needed_bytes / (double)all, pl_bytes_text(all, usable),
                 b->source);
    add_time(p);
}

static void add_alternatives(const struct page *p) {
    const struct pl_recommendation *r = p->r;
    if (r->n_ways > 1)
        pl_text_addf(p->out, "%salternatives%s, time a token compared with it\n", p->bold, p->off);
    for (uint32_t i = 1; i <= ALTERNATIVES && i < r->n_ways; i++) {
        pl_text_addf(p->out, "  %.2f   ", r->ways[i].relative_time);
        add_changes(&r->ways[0].job, &r->ways[i].job, p->out);
        pl_text_add(p->out, ": ");
        add_size(p, &r->ways[i]);
        pl_text_add(p->out, ", ");
        add_bytes(p, &r->ways[i]);
        pl_text_add(p->out, "\n");
    }
}

void pl_advice_job_text(const struct pl_advice *a, const struct pl_job *job, struct pl_text *out) {
    pl_text_add(out, "  ");
    pl_advice_job_command(pl_advice_verb(job), job, a->q.job, a->q.card, out);
    pl_text_add(out, "\ntables: --all, or --tables NAME,... (plimsoll help plan)\n\n");
    if (strcmp(pl_advice_verb(job), "train") != 0)
        pl_text_add(out, "# to train, add `dataset: FILE`\n");
    pl_advice_job_yaml(job, out);
}

/* A question that has an answer, in place of the one that has none. */
struct needed {
    char what[64];
    struct pl_job job; /* shallow */
    const char *card;
};
#define MAX_NEEDED 4

static struct needed needed(const char *what, const struct pl_job *job, const char *card) {
    struct needed n = {.job = *job, .card = card};
    snprintf(n.what, sizeof n.what, "%s", what);
    return n;
}

/* Adapters keep the length; without them shorter samples do, where any fit. Then more host memory
 * than the limit, and the smallest GPU that holds the job, or so much memory as no GPU of the table
 * has. */
static uint32_t list_needed(const struct pl_advice *a, const struct pl_recommendation *r,
                            struct needed out[MAX_NEEDED]) {
    uint32_t n = 0;
    char host[PL_BYTES_TEXT];
    if (r->n_ways || !r->least.price.needed_bytes) return 0;
    if (r->other.job.batch_size) {
        out[n++] = needed("adapters", &r->other.job, a->q.card);
    } else if (r->longest) {
        out[n] = needed("shorter samples", &r->least.job, a->q.card);
        out[n++].job.max_seq_length = r->longest;
    }
    if (r->host.job.batch_size) {
        out[n] = needed("", &r->host.job, a->q.card);
        snprintf(out[n].what, sizeof out[n].what, "%s of host memory",
                 pl_bytes_text(r->host.price.host_bytes, host));
        n++;
    }
    struct pl_job large = r->least.job; /* shallow */
    const struct pl_budget *b = &a->q.budget;
    large.vram_budget = r->least.price.needed_bytes + b->doubt_bytes + b->margin_bytes;
    large.vram_budget = ((large.vram_budget >> 30) + 1) << 30;
    large.given[PL_KEY_vram_budget] = true;
    out[n++] =
        r->card ? needed(r->card, &r->card_job, r->card) : needed("so much memory", &large, NULL);
    return n;
}

static void add_needed(const struct page *p) {
    const struct pl_recommendation *r = p->r;
    char least[PL_BYTES_TEXT], usable[PL_BYTES_TEXT];
    const struct pl_budget *b = &p->a->q.budget;
    const uint64_t there = pl_u64_min(pl_budget_usable(b) + b->context_bytes, b->total_bytes);
    if (r->no_kernels) {
        pl_text_add(p->out, p->bold);
        pl_gate_add_no_kernels(&p->a->q, p->out);
        pl_text_addf(p->out, "%s: %s\n", p->off, pl_gate_no_kernels_help(&p->a->q));
    } else {
        const uint32_t ranks = pl_job_ranks(p->a->q.job);
        pl_text_addf(p->out, "%snothing fits %s%s", p->bold, b->source, p->off);
        if (ranks > 1)
            pl_text_addf(p->out,
                         ": with the settings that take the least a rank of %u needs %s for "
                         "one sample of %u tokens",
                         ranks, pl_bytes_text(r->least.price.needed_bytes, least), r->length);
        else
            pl_text_addf(p->out, ": one sample of %u tokens needs %s", r->length,
                         pl_bytes_text(r->least.price.needed_bytes, least));
        pl_text_addf(p->out, ", and %s can be had", pl_bytes_text(there, usable));
        if (r->host_limit)
            pl_text_addf(p->out, " with %s of host memory", pl_bytes_text(r->host_limit, least));
        pl_text_add(p->out, "\n");
    }
    struct needed list[MAX_NEEDED];
    const uint32_t n = list_needed(p->a, r, list);
    pl_text_add(p->out, "what would do:\n");
    for (uint32_t i = 0; i < n; i++) {
        pl_text_addf(p->out, "  %s:\n    ", list[i].what);
        pl_advice_job_command("plan", &list[i].job, p->a->q.job, list[i].card, p->out);
        pl_text_add(p->out, "\n");
    }
}

void pl_recommendation_text(const struct pl_advice *a, const struct pl_recommendation *r,
                            bool colour, struct pl_text *out) {
    const struct page p = {a, r, colour ? "\033[1m" : "", colour ? "\033[0m" : "", out};
    if (r->n_ways) {
        add_best(&p);
        add_alternatives(&p);
        pl_advice_job_text(a, &r->ways[0].job, out);
    } else if (r->least.price.needed_bytes) {
        add_needed(&p);
    }
}

/* --- JSON ------------------------------------------------------------------------------------ */

static void report_way(const struct pl_advice *a, const struct pl_way *w, struct pl_report *r) {
    struct pl_text level = {0}, changed = {0}, yaml = {0}, command = {0};
    pl_job_write_key(&w->job, PL_KEY_gradient_checkpointing, &level);
    add_changes(a->q.job, &w->job, &changed);
    pl_advice_job_yaml(&w->job, &yaml);
    pl_advice_job_command(pl_advice_verb(&w->job), &w->job, a->q.job, a->q.card, &command);
    pl_report_next(r);
    pl_report_count(r, "batch_size", w->job.batch_size);
    pl_report_count(r, "gradient_accumulation_steps", w->steps);
    pl_report_real(r, "samples_per_step", samples_of_step(w));
    pl_report_text(r, "gradient_checkpointing", &level);
    pl_report_text(r, "change", &changed);
    pl_report_bytes(r, "needed_bytes", w->price.needed_bytes);
    pl_report_bytes(r, "host_bytes", w->price.host_bytes);
    pl_report_word(r, "verdict", pl_verdict_name(w->price.verdict));
    pl_report_real(r, "relative_time", w->relative_time);
    pl_report_text(r, "yaml", &yaml);
    pl_report_text(r, "command", &command);
}

static json_t *needed_json(const struct pl_advice *a, const struct pl_recommendation *r) {
    struct needed list[MAX_NEEDED];
    json_t *commands = json_array();
    const uint32_t n = list_needed(a, r, list);
    for (uint32_t i = 0; i < n; i++) {
        struct pl_text command = {0};
        pl_advice_job_command("plan", &list[i].job, a->q.job, list[i].card, &command);
        pl_json_append(&commands, command.failed ? NULL : json_string(pl_text_str(&command)));
        pl_text_finish(&command);
    }
    return commands;
}

json_t *pl_recommendation_json(const struct pl_advice *a, const struct pl_recommendation *r) {
    struct pl_report answer = {0}, ways = {0};
    for (uint32_t i = 0; i < r->n_ways; i++)
        report_way(a, &r->ways[i], &ways);
    pl_report_tree(&answer, "ways", pl_report_end_list(&ways));
    pl_report_tree(&answer, "commands", needed_json(a, r));
    return pl_report_end(&answer);
}
