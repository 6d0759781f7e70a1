/* advice_text.c - the advice for people: tables that line up, within the width they were given. */
#include "estimator/advice/advice.h"

#include "estimator/advice/parts.h"
#include "estimator/base/checked.h"
#include "estimator/base/units.h"
#include "estimator/config/key_table.h"
#include "estimator/gate/provenance.h"

#include <stdio.h>
#include <string.h>

struct style {
    const char *bold, *dim, *good, *warn, *bad, *off;
};
static const struct style plain = {"", "", "", "", "", ""};
static const struct style coloured = {"\033[1m",  "\033[2m",  "\033[32m",
                                      "\033[33m", "\033[31m", "\033[0m"};

struct page {
    const struct pl_advice *a;
    const struct style *s;
    unsigned columns;
    struct pl_text *out;
};

static const char *tone(const struct page *p, enum pl_verdict_kind v) {
    const char *const tones[] = {p->s->good, p->s->warn, p->s->bad, p->s->off};
    return tones[v];
}

static void heading(const struct page *p, const char *title, const char *explain) {
    pl_text_addf(p->out, "\n%s%s%s%s%s%s\n", p->s->bold, title, p->s->off, p->s->dim, explain,
                 p->s->off);
}

/* The heading of a table that is planned at the smallest level where no one wrote one. */
static void heading_at_level(const struct page *p, const char *title, const char *explain) {
    char room[128];
    struct pl_text text = PL_TEXT_IN(room, sizeof room);
    pl_text_add(&text, explain);
    if (pl_question_has_unwritten_level(&p->a->q)) pl_text_add(&text, "; level: full");
    heading(p, title, room);
}

/* " +1.20 GiB": a difference with its sign. */
static void add_signed(struct pl_text *out, int64_t bytes) {
    char text[PL_BYTES_TEXT], all[PL_BYTES_TEXT + 2];
    uint64_t size = bytes < 0 ? -(uint64_t)bytes : (uint64_t)bytes;
    snprintf(all, sizeof all, "%s%s", bytes < 0 ? "-" : "+", pl_bytes_text(size, text));
    pl_text_addf(out, "%12s", all);
}

static void add_verdict(const struct page *p, enum pl_verdict_kind v) {
    pl_text_addf(p->out, "%s%-7s%s", tone(p, v), v == PL_VERDICT_UNKNOWN ? "" : pl_verdict_name(v),
                 p->s->off);
}

static void add_bytes(struct pl_text *out, uint64_t bytes) {
    char text[PL_BYTES_TEXT];
    pl_text_addf(out, "%11s", pl_bytes_text(bytes, text));
}

/* --- what the data says ---------------------------------------------------------------------- */

#define HISTOGRAM_ROWS 8
#define HISTOGRAM_BAR  30

static void add_histogram(const struct page *p) {
    const struct pl_lengths *l = p->a->lengths;
    uint64_t most = 1, count[HISTOGRAM_ROWS];
    uint32_t width = l->longest / HISTOGRAM_ROWS + 1;
    for (uint32_t i = 0; i < HISTOGRAM_ROWS; i++) {
        uint64_t below = i ? pl_lengths_over(l, i * width - 1) : l->rows;
        count[i] = below - pl_lengths_over(l, (i + 1) * width - 1);
        most = pl_u64_max(most, count[i]);
    }
    for (uint32_t i = 0; i < HISTOGRAM_ROWS; i++) {
        char n[PL_COUNT_TEXT];
        pl_text_addf(p->out, "  %7u - %-7u %11s  ", i * width, (i + 1) * width - 1,
                     pl_count_text(count[i], n));
        uint64_t bar = (count[i] * HISTOGRAM_BAR + most - 1) / most;
        while (bar--)
            pl_text_add(p->out, "█");
        pl_text_add(p->out, "\n");
    }
}

static void add_data(const struct page *p) {
    static const struct pl_report_column columns[] = {
        {"max_seq_length", "length", 2, 7},
        {"cut", "cut", 1, 9},
        {"lost", "lost", 1, 9},
        {"needed_bytes", "batch 1 needs", 1, 13},
        {"largest_batch_size", "largest batch", 1, 15},
        {"mark", "", 0, 0}};
    const struct pl_lengths *l = p->a->lengths;
    struct pl_report choices = {0};
    char rows[PL_COUNT_TEXT], tokens[PL_COUNT_TEXT];
    if (!l || !l->rows) return;
    heading(p, "data", l->described ? "  as described; shares are upper bounds" : "");
    pl_text_addf(p->out, "  %s samples, %s tokens, mean %.0f, longest %u",
                 pl_count_text(l->rows, rows), pl_count_text(l->tokens, tokens),
                 (double)l->tokens / (double)l->rows, l->longest);
    if (!l->described)
        pl_text_addf(p->out, "; half are within %u, 90 %% within %u, 99 %% within %u",
                     pl_lengths_percentile(l, 50), pl_lengths_percentile(l, 90),
                     pl_lengths_percentile(l, 99));
    pl_text_add(p->out, "\n");
    if (!l->described) add_histogram(p);
    pl_length_choices_report(p->a, &choices);
    pl_report_columns(&choices, columns, sizeof columns / sizeof *columns, p->s->dim, p->s->off,
                      p->out);
    pl_report_finish(&choices);
}

/* --- grid ------------------------------------------------------------------------------------ */

#define GRID_LABEL 7
#define GRID_CELL  8

static void add_grid(const struct page *p) {
    const struct pl_fit_grid *g = &p->a->grid;
    const char *mark[] = {" ", "~", "x", " "};
    unsigned fit = p->columns > GRID_LABEL + GRID_CELL ? (p->columns - GRID_LABEL) / GRID_CELL : 1;
    uint32_t n = g->n_lengths < fit ? g->n_lengths : (uint32_t)fit;
    heading_at_level(p, "batch x length", ", GiB needed; ~ tight, x does not fit");
    pl_text_addf(p->out, "%s%*s", p->s->dim, GRID_LABEL - 1, "");
    for (uint32_t l = 0; l < n; l++)
        pl_text_addf(p->out, "%*u ", GRID_CELL - 1, g->lengths[l]);
    pl_text_addf(p->out, "%s\n", p->s->off);
    for (uint32_t b = 0; b < g->n_batches; b++) {
        pl_text_addf(p->out, "%*u", GRID_LABEL - 1, g->batches[b]);
        for (uint32_t l = 0; l < n; l++) {
            char figure[16];
            const struct pl_price *c = &g->cells[b][l];
            const double gib = (double)c->needed_bytes / 1073741824.0;
            snprintf(figure, sizeof figure, gib < 10 ? "%.2f" : gib < 1000 ? "%.1f" : "%.0f", gib);
            pl_text_addf(p->out, "%s%*s%s%s", tone(p, c->verdict), GRID_CELL - 1, figure,
                         mark[c->verdict], p->s->off);
        }
        pl_text_add(p->out, "\n");
    }
    if (n < g->n_lengths)
        pl_text_addf(p->out, "  from %u on: use --csv, --svg, or a wider terminal\n",
                     g->lengths[n]);
}

/* --- walls, knobs, trade-offs ---------------------------------------------------------------- */

static void add_walls(const struct page *p) {
    uint32_t n;
    const struct pl_key_info *keys = pl_key_table(&n);
    bool known = p->a->q.budget.known;
    heading_at_level(p, "limits",
                     known ? ", one axis at a time; one more was planned and does not fit"
                           : ": no budget was named; what doubling costs");
    for (uint32_t i = 0; i < p->a->n_walls; i++) {
        const struct pl_wall *w = &p->a->walls[i];
        char wall[40] = "";
        if (known && w->wall && w->next_bytes)
            snprintf(wall, sizeof wall, "up to %u", w->wall);
        else if (known && w->wall)
            snprintf(wall, sizeof wall, "up to %u, the limit", w->wall);
        else if (known)
            snprintf(wall, sizeof wall, "none fits");
        pl_text_addf(p->out, "  %-15s %-24s", keys[w->key].key, wall);
        if (w->doubling_known) {
            pl_text_addf(p->out, " %u -> %u:", w->now, 2 * w->now);
            add_signed(p->out, w->doubling_bytes);
        }
        pl_text_add(p->out, "\n");
    }
}

static void add_percent(struct pl_text *out, double percent) {
    if (percent > -0.05 && percent < 0.05)
        pl_text_addf(out, "%9s", "same");
    else
        pl_text_addf(out, "%+7.1f %%", percent);
}

#define KNOB_COLUMNS 42 /* and more where a name needs more */
#define KNOB_TEXT    96

static int knob_name(const struct pl_knob *k, char row[KNOB_TEXT]) {
    const char *from = strchr(k->from, ':'), *to = strchr(k->change, ':');
    snprintf(row, KNOB_TEXT, "%.*s%s ->%s", (int)(from - k->from), k->from, from, to + 1);
    return (int)strlen(row);
}

static void add_knobs(const struct page *p) {
    char row[KNOB_TEXT];
    int columns = KNOB_COLUMNS;
    heading(p, "settings", ", each planned again; work = planned FLOPs per token, not seconds");
    for (uint32_t i = 0; i < p->a->n_knobs; i++) {
        const int n = knob_name(&p->a->knobs[i], row);
        if (n > columns) columns = n;
    }
    for (uint32_t i = 0; i < p->a->n_knobs; i++) {
        const struct pl_knob *k = &p->a->knobs[i];
        knob_name(k, row);
        pl_text_addf(p->out, "  %-*s", columns, row);
        add_signed(p->out, -k->saves_bytes);
        add_bytes(p->out, k->price.needed_bytes);
        add_percent(p->out, k->time_percent);
        pl_text_add(p->out, "  ");
        add_verdict(p, k->price.verdict);
        pl_text_add(p->out, "\n");
    }
}

static void add_point(const struct page *p, const struct pl_frontier_point *point) {
    if (!point->batch_size) {
        pl_text_addf(p->out, "%25s", "-");
        return;
    }
    pl_text_addf(p->out, "%7u", point->batch_size);
    add_bytes(p->out, point->price.needed_bytes);
    pl_text_addf(p->out, "%s%7.2f%s", point->dominated ? p->s->dim : "", point->relative_time,
                 point->dominated ? p->s->off : "");
}

/* The level, its work, and twice a batch with bytes and time. */
static void add_tradeoffs(const struct page *p) {
    char micro[32] = "one sample";
    uint32_t samples = pl_advice_step_samples(p->a);
    if (!p->a->q.budget.known)
        snprintf(micro, sizeof micro, "the job's batch");
    else if (samples)
        snprintf(micro, sizeof micro, "for %u a step", samples);
    heading(p, "recompute or a smaller batch",
            ": the same gradient either way\n"
            "  time: of a token by the roofline of a nominal machine, the fastest row is 1.00");
    pl_text_addf(p->out, "  %s%-18s%9s%25s%25s%s\n", p->s->dim, "", "", "the largest batch", micro,
                 p->s->off);
    pl_text_addf(p->out, "  %s%-18s%9s%7s%11s%7s%7s%11s%7s%s\n", p->s->dim, "level", "work",
                 "batch", "needs", "time", "batch", "needs", "time", p->s->off);
    for (uint32_t i = 0; i < p->a->n_tradeoffs; i++) {
        const struct pl_tradeoff *t = &p->a->tradeoffs[i];
        char name[PL_LEVEL_TEXT];
        pl_tradeoff_name(t, name);
        pl_text_addf(p->out, "  %-18s", name);
        add_percent(p->out, t->time_percent);
        for (int e = 0; e < PL_FRONTIER_ENDS; e++)
            add_point(p, &t->points[e]);
        if (pl_tradeoff_dominated(t)) pl_text_add(p->out, "  dominated");
        if (t->now || t->automatic)
            pl_text_addf(p->out, "  <- %s%s%s", t->now ? "this job" : "",
                         t->now && t->automatic ? ", " : "", t->automatic ? "auto" : "");
        pl_text_add(p->out, "\n");
    }
}

static void add_accumulation(const struct page *p) {
    if (!p->a->effective_batch) return;
    char title[64];
    snprintf(title, sizeof title, "%u samples a step", p->a->effective_batch);
    heading(p, title,
            ": the loss is divided by the tokens of the whole step, so all rows train the same");
    for (uint32_t i = 0; i < p->a->n_accumulations; i++) {
        const struct pl_accumulation_row *r = &p->a->accumulations[i];
        pl_text_addf(p->out, "  batch %5u x %-6u", r->batch_size, r->steps);
        add_bytes(p->out, r->price.needed_bytes);
        pl_text_add(p->out, "  ");
        add_verdict(p, r->price.verdict);
        pl_text_addf(p->out, "%s\n", r->batch_size == p->a->recommended_batch ? "<- advised" : "");
    }
}

/* --- cards --------------------------------------------------------------------- */

static void add_cards(const struct page *p) {
    uint32_t shown = 0, at = 0;
    heading(p, "cards", " of the table that hold the job without changes, and can run it:");
    for (uint32_t i = 0; i < p->a->n_cards; i++) {
        const struct pl_card_row *c = &p->a->cards[i];
        if (c->verdict != PL_VERDICT_FITS || !c->runs) continue;
        char name[80];
        unsigned n = (unsigned)snprintf(name, sizeof name, "%s (%u GB)", c->name, c->nameplate_gb);
        if (!shown || at + n + 2 > p->columns) {
            pl_text_add(p->out, shown ? ",\n  " : "  ");
            at = 2;
        } else {
            pl_text_add(p->out, ", ");
            at += 2;
        }
        pl_text_add(p->out, name);
        at += n;
        shown++;
    }
    pl_text_add(p->out, shown ? "\n" : "  none\n");
}

/* --- what to do ------------------------------------------------------------------------------ */

/* A reason that no batch and no length changes is said first. */
static void add_refusal(const struct page *p) {
    const struct pl_advice *a = p->a;
    const struct pl_plan *plan = a->estimate.planned.plan;
    char job[PL_BYTES_TEXT], usable[PL_BYTES_TEXT];
    if (a->estimate.verdict.no_kernels) {
        pl_text_add(p->out, "  ");
        pl_gate_add_no_kernels(&a->q, p->out);
        pl_text_addf(p->out, ": %s\n", pl_gate_no_kernels_help(&a->q));
        return;
    }
    pl_text_addf(p->out, "  not even one sample of %u tokens fits %s%s\n", a->length,
                 a->q.budget.source,
                 a->recommended.verdict == PL_VERDICT_TIGHT ? " for certain" : "");
    if (plan->job_bytes <= pl_budget_usable(&a->q.budget)) return;
    pl_text_addf(p->out,
                 "  weights, adapters, gradients and states alone need %s of the %s available:\n"
                 "  a smaller batch or length does not help, `offload`%s\n",
                 pl_bytes_text(plan->job_bytes, job),
                 pl_bytes_text(pl_budget_usable(&a->q.budget), usable),
                 a->q.job->mode == PL_MODE_QLORA ? " does" : " and `mode: qlora` do");
}

static void add_advice(const struct page *p) {
    const struct pl_advice *a = p->a;
    heading(p, "advice", "");
    if (!a->q.budget.known) {
        pl_text_add(p->out, "  no budget was named: --gpu NAME, --vram-gb N or --vram 16GiB\n");
    } else if (!a->largest_batch) {
        add_refusal(p);
    } else if (!a->recommended_batch) {
        pl_text_addf(p->out, "  length %u, largest batch %u\n", a->length, a->largest_batch);
    } else {
        pl_text_addf(p->out, "  length %u, largest batch %u, recommended %u", a->length,
                     a->largest_batch, a->recommended_batch);
        if (a->effective_batch)
            pl_text_addf(p->out, " x %u micro-batches = %u samples a step", a->accumulation,
                         a->effective_batch);
        pl_text_add(p->out, ": needs");
        add_bytes(p->out, a->recommended.needed_bytes);
        pl_text_add(p->out, "\n");
    }
    if (a->q.budget.known && !a->recommended_batch) return;
    pl_text_add(p->out, "  ");
    pl_advice_command(a, p->out);
    heading(p, "\nto paste", "");
    pl_advice_yaml(a, p->out);
}

static void add_assumptions(const struct page *p) {
    struct pl_text lines = {0};
    pl_estimate_assumptions(&p->a->estimate, &lines);
    heading(p, "assumes", "");
    const char *line = pl_text_str(&lines);
    for (const char *end; *line; line = end + (*end == '\n')) {
        end = line + strcspn(line, "\n");
        pl_text_addf(p->out, "  - %.*s\n", (int)(end - line), line);
    }
    p->out->failed |= lines.failed;
    pl_text_finish(&lines);
}

static void add_ledger(const struct page *p) {
    pl_estimate_text(&p->a->estimate, *p->s->off != 0, p->columns, p->out);
}

static const char *const section_names[PL_ADVICE_SECTION_COUNT] = {
#define X(id, name) name,
    PL_ADVICE_SECTIONS(X)
#undef X
};

static void hint_at_sections(struct pl_diag *d) {
    char words[160];
    struct pl_text list = PL_TEXT_FIXED(words);
    for (int i = 0; i < PL_ADVICE_SECTION_COUNT; i++)
        pl_text_addf(&list, "%s%s", i ? ", " : "", section_names[i]);
    pl_diag_hint(d, "they are: %s", pl_text_str(&list));
}

pl_err pl_advice_sections(const char *names, unsigned *out, struct pl_diag *d) {
    *out = 0;
    for (const char *end; *names; names = end + (*end == ',')) {
        unsigned i = 0;
        end = names + strcspn(names, ",");
        const size_t n = (size_t)(end - names);
        while (i < PL_ADVICE_SECTION_COUNT &&
               (strlen(section_names[i]) != n || strncmp(section_names[i], names, n) != 0))
            i++;
        if (i < PL_ADVICE_SECTION_COUNT) {
            *out |= 1u << i;
            continue;
        }
        pl_diag_set(d, PL_ERR_USAGE, "`%.*s` is none of the tables of `plan`", (int)n, names);
        hint_at_sections(d);
        return PL_ERR_USAGE;
    }
    if (*out) return PL_ERR_OK;
    return pl_diag_set(d, PL_ERR_USAGE, "--tables wants names, such as grid,limits");
}

void pl_advice_text(const struct pl_advice *a, unsigned sections, bool colour, unsigned columns,
                    struct pl_text *out) {
    static void (*const add[PL_ADVICE_SECTION_COUNT])(const struct page *) = {
        [PL_ADVICE_LEDGER] = add_ledger,       [PL_ADVICE_DATA] = add_data,
        [PL_ADVICE_GRID] = add_grid,           [PL_ADVICE_LIMITS] = add_walls,
        [PL_ADVICE_SETTINGS] = add_knobs,      [PL_ADVICE_LEVELS] = add_tradeoffs,
        [PL_ADVICE_STEP] = add_accumulation,   [PL_ADVICE_CARDS] = add_cards,
        [PL_ADVICE_ASSUMES] = add_assumptions, [PL_ADVICE_ADVICE] = add_advice};
    const struct page p = {a, colour ? &coloured : &plain, columns, out};
    for (unsigned i = 0; i < PL_ADVICE_SECTION_COUNT; i++)
        if (sections & (1u << i)) add[i](&p);
}
