/* page_data.c - what the script of the page draws: curves, marks and timelines, as JSON. */
#include "estimator/base/alloc.h"
#include "estimator/base/checked.h"
#include "estimator/base/json_tree.h"
#include "estimator/program/program.h"
#include "runtime/report/page_parts.h"
#include "runtime/report/page_timeline.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A point takes up to 34 bytes of the page, and a column of a timeline up to 100. */
enum {
    POINTS_MOST = 30000, /* of all curves together */
    POINTS_LEAST = 60,   /* of one */
    POINTS_EACH = 6000,  /* at most, of one */
    COLUMNS_MOST = 3200, /* of a phase, of all timelines together */
    COLUMNS_LEAST = 120,
    MARKS_MOST = 600, /* of a kind, of one run */
    CHARTS_MOST = 24,
    NAME_MOST = 60, /* bytes of a figure's name; those with longer ones are left out */
    OF_STRETCH = 4, /* points that stay of a stretch of a curve, at most; and its mean */
};
/* A page of numbers holds doubles, but a picture no larger ones. */
#define LARGEST_DRAWN 1e30
#define LARGEST_STEP  9e15

/* --- charts ---------------------------------------------------------------------------------- */

struct chart {
    const char *key, *title, *unit;
    bool noisy;           /* it is measured, so a smoothed line says more */
    bool where_it_varies; /* a constant says nothing that the tables do not */
};

/* Figures of a log that no row names are shown under their own names, after these. */
static const struct chart known[] = {
    {"loss", "Loss", "", true, false},
    {"learning_rate", "Learning rate", "", false, false},
    {"grad_norm", "Gradient norm", "L2, before clipping", true, false},
    {"tokens_per_second", "Throughput", "tokens/s", true, false},
    {"accuracy", "Accuracy", "of the tokens of an evaluation", false, false},
    {"perplexity", "Perplexity", "of an evaluation", false, false},
    {"rewards/margins", "Reward margin", "of chosen answers over rejected ones", true, false},
    {"rewards/accuracies", "Reward accuracy", "of the pairs", true, false},
    {"rewards/chosen", "Reward of chosen answers", "", true, false},
    {"rewards/rejected", "Reward of rejected answers", "", true, false},
    {"loss_scale", "Loss scale", "fp16", false, false},
    {"batch_size", "Micro-batch", "samples", false, true},
    {"device_bytes", "Memory on the device", "bytes", false, true},
};
/* These are counts that only grow, or marks. */
static const char *const not_drawn[] = {"epoch",           "tokens",  "right_tokens",
                                        "computed_tokens", "samples", "skipped"};

struct charts {
    struct chart list[CHARTS_MOST];
    uint32_t n;
};

static bool varies(const struct pl_page *p, const char *key) {
    double first = NAN;
    for (uint32_t i = 0; i < p->n; i++) {
        const struct pl_figures *t = &p->runs[i].log.steps;
        const double *v = pl_figures_column(t, key);
        for (uint64_t k = 0; v && k < t->n; k++) {
            if (isnan(first)) first = v[k];
            if (!isnan(v[k]) && v[k] != first) return true;
        }
    }
    return false;
}

static bool has_figure(const double *v, uint64_t n) {
    for (uint64_t i = 0; v && i < n; i++)
        if (!isnan(v[i])) return true;
    return false;
}

static bool is_drawn(const char *key) {
    for (size_t i = 0; i < sizeof not_drawn / sizeof *not_drawn; i++)
        if (strcmp(key, not_drawn[i]) == 0) return false;
    return true;
}

static void add_chart(struct charts *c, struct chart chart) {
    for (uint32_t i = 0; i < c->n; i++)
        if (strcmp(c->list[i].key, chart.key) == 0) return;
    if (c->n < CHARTS_MOST) c->list[c->n++] = chart;
}

static void add_columns(struct charts *c, const struct pl_figures *t) {
    for (uint32_t i = 0; i < t->n_columns; i++) {
        const char *name = t->columns[i].name;
        if (strlen(name) <= NAME_MOST && is_drawn(name) && has_figure(t->columns[i].v, t->n))
            add_chart(c, (struct chart){name, name, "", true, false});
    }
}

static bool any_has(const struct pl_page *p, const char *key) {
    for (uint32_t i = 0; i < p->n; i++) {
        const struct pl_run_log *log = &p->runs[i].log;
        if (has_figure(pl_figures_column(&log->steps, key), log->steps.n) ||
            has_figure(pl_figures_column(&log->evals, key), log->evals.n))
            return true;
    }
    return false;
}

/* Removes the known charts that have nothing to show, once they have kept others from their names.
 */
static struct charts list_charts(const struct pl_page *p) {
    struct charts all = {0}, shown = {0};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        add_chart(&all, known[i]);
    for (uint32_t i = 0; i < p->n; i++) {
        add_columns(&all, &p->runs[i].log.steps);
        add_columns(&all, &p->runs[i].log.evals);
    }
    for (uint32_t i = 0; i < all.n; i++) {
        const struct chart *c = &all.list[i];
        if (any_has(p, c->key) && (!c->where_it_varies || varies(p, c->key)))
            shown.list[shown.n++] = *c;
    }
    return shown;
}

static json_t *charts_json(const struct charts *c) {
    json_t *list = json_array();
    for (uint32_t i = 0; i < c->n; i++) {
        const struct chart *one = &c->list[i];
        pl_json_append(&list, json_pack("{s:s, s:s, s:s, s:b}", "key", one->key, "title",
                                        one->title, "unit", one->unit, "noisy", (int)one->noisy));
    }
    return list;
}

/* --- curves ---------------------------------------------------------------------------------- */

struct curve {
    const double *x, *v;
    uint64_t n;
    json_t *xs, *ys;
    json_t *means_x, *means; /* of the stretches, where the curve is thinned */
    uint64_t next;           /* points before it were looked at */
};

static json_t *step_json(double step) {
    return step == floor(step) ? json_integer((json_int_t)step) : json_real(step);
}

/* Null where there is no figure, or none that can be drawn. */
static void add_point(struct curve *c, uint64_t i) {
    const double v = c->v[i];
    if (i < c->next) return;
    c->next = i + 1;
    pl_json_append(&c->xs, step_json(c->x[i]));
    pl_json_append(&c->ys, fabs(v) < LARGEST_DRAWN ? json_real(v) : json_null());
}

/* A line through extremes lies anywhere between them; the mean tells where the curve is. */
static void add_mean(struct curve *c, uint64_t from, uint64_t to) {
    double sum = 0;
    uint64_t n = 0;
    for (uint64_t i = from; i < to; i++) {
        if (!(fabs(c->v[i]) < LARGEST_DRAWN)) continue;
        sum += c->v[i];
        n++;
    }
    pl_json_append(&c->means_x, step_json(c->x[from + (to - from) / 2]));
    pl_json_append(&c->means, n ? json_real(sum / (double)n) : json_null());
}

static void sort_indices(uint64_t *at, int n) {
    for (int i = 1; i < n; i++)
        for (int k = i; k > 0 && at[k] < at[k - 1]; k--) {
            const uint64_t swap = at[k];
            at[k] = at[k - 1];
            at[k - 1] = swap;
        }
}

/* Keeps the first, the least, the largest and the first missing point of [from, to). */
static void add_stretch(struct curve *c, uint64_t from, uint64_t to) {
    uint64_t least = to, most = to, missing = to, at[OF_STRETCH];
    int n = 0;
    for (uint64_t i = from; i < to; i++) {
        if (!(fabs(c->v[i]) < LARGEST_DRAWN)) {
            if (missing == to) missing = i;
            continue;
        }
        if (least == to || c->v[i] < c->v[least]) least = i;
        if (most == to || c->v[i] > c->v[most]) most = i;
    }
    const uint64_t kept[OF_STRETCH] = {from, least, most, missing};
    for (int i = 0; i < OF_STRETCH; i++)
        if (kept[i] < to) at[n++] = kept[i];
    sort_indices(at, n);
    for (int i = 0; i < n; i++)
        add_point(c, at[i]);
}

/* The points of a step that no picture has room for are left out at the ends. */
static void trim(struct curve *c) {
    while (c->n && !(fabs(c->x[c->n - 1]) < LARGEST_STEP))
        c->n--;
    while (c->n && !(fabs(c->x[0]) < LARGEST_STEP)) {
        c->x++;
        c->v++;
        c->n--;
    }
}

/* NULL: no memory. */
static json_t *curve_json(const struct pl_figures *t, const double *v, uint64_t points) {
    struct curve c = {.x = t->step, .v = v, .n = t->n, .xs = json_array(), .ys = json_array()};
    trim(&c);
    const bool thinned = c.n > points;
    const uint64_t stretches = thinned ? pl_u64_max(1, points / OF_STRETCH) : c.n;
    if (thinned) c.means_x = json_array(), c.means = json_array();
    for (uint64_t i = 0; i < stretches; i++) {
        const uint64_t from = i * c.n / stretches, to = (i + 1) * c.n / stretches;
        add_stretch(&c, from, to);
        if (thinned) add_mean(&c, from, to);
    }
    if (c.n) add_point(&c, c.n - 1);
    json_t *o = json_pack("{s:I, s:o, s:o}", "of", (json_int_t)c.n, "x", c.xs, "y", c.ys);
    if (thinned) pl_json_set(&o, "mean_x", c.means_x);
    if (thinned) pl_json_set(&o, "mean_y", c.means);
    return o;
}

static json_t *curves_json(const struct pl_figures *t, const struct charts *charts,
                           uint64_t points) {
    json_t *o = json_object();
    for (uint32_t i = 0; i < charts->n; i++) {
        const double *v = pl_figures_column(t, charts->list[i].key);
        if (has_figure(v, t->n)) pl_json_set(&o, charts->list[i].key, curve_json(t, v, points));
    }
    return o;
}

static uint64_t count_curves(const struct pl_page *p, const struct charts *charts) {
    uint64_t n = 0;
    for (uint32_t i = 0; i < p->n; i++)
        for (uint32_t c = 0; c < charts->n; c++) {
            n += pl_figures_column(&p->runs[i].log.steps, charts->list[c].key) != NULL;
            n += pl_figures_column(&p->runs[i].log.evals, charts->list[c].key) != NULL;
        }
    return pl_u64_max(1, n);
}

/* --- marks ----------------------------------------------------------------------------------- */

/* Lists the steps at which `flag` is 1 (NULL: all), each once; every k-th of too many. */
static json_t *marks_json(const struct pl_figures *t, const double *flag) {
    json_t *list = json_array();
    uint64_t n = 0, at = 0;
    double last = NAN;
    for (uint64_t i = 0; i < t->n; i++)
        n += !flag || flag[i] == 1;
    const uint64_t every = n / MARKS_MOST + 1;
    for (uint64_t i = 0; i < t->n; i++) {
        if ((flag && flag[i] != 1) || at++ % every || t->step[i] == last) continue;
        last = t->step[i];
        if (fabs(last) < LARGEST_STEP) pl_json_append(&list, json_real(last));
    }
    return list;
}

static json_t *skips_json(const struct pl_figures *steps) {
    const double *skipped = pl_figures_column(steps, "skipped");
    return skipped ? marks_json(steps, skipped) : json_array();
}

/* --- the whole ------------------------------------------------------------------------------- */

static json_t *run_json(const struct pl_page_run *run, const struct charts *charts, uint64_t points,
                        size_t columns) {
    json_t *o =
        json_pack("{s:s, s:o, s:o, s:o, s:o, s:o}", "label", run->label, "steps",
                  curves_json(&run->log.steps, charts, points), "evals",
                  curves_json(&run->log.evals, charts, points), "recoveries",
                  marks_json(&run->log.recoveries, NULL), "skips", skips_json(&run->log.steps),
                  "resumes", marks_json(&run->log.resumes, NULL));
    if (run->timeline)
        pl_json_set(&o, "timeline", pl_page_timeline_thinned(run->timeline, columns));
    return o;
}

static json_t *categories_json(void) {
    json_t *o = json_object();
    for (int c = 0; c < PL_CATEGORY_COUNT; c++) {
        const char *name = pl_category_name((enum pl_category)c);
        pl_json_set(&o, name, json_string(pl_page_category_colour(name)));
    }
    return o;
}

static json_t *page_json(const struct pl_page *p) {
    const struct charts charts = list_charts(p);
    const uint64_t share = POINTS_MOST / count_curves(p, &charts);
    const uint64_t points = pl_u64_min(POINTS_EACH, pl_u64_max(POINTS_LEAST, share));
    const size_t columns = (size_t)pl_u64_max(COLUMNS_LEAST, COLUMNS_MOST / pl_u64_max(1, p->n));
    json_t *runs = json_array();
    for (uint32_t i = 0; i < p->n; i++)
        pl_json_append(&runs, run_json(&p->runs[i], &charts, points, columns));
    return json_pack("{s:I, s:o, s:o, s:o}", "refresh", (json_int_t)p->refresh_seconds,
                     "categories", categories_json(), "charts", charts_json(&charts), "runs", runs);
}

/* Within a script element nothing but `<` can end it or open another. */
static void add_script_safe(const char *json, struct pl_text *out) {
    for (const char *open; (open = strchr(json, '<')) != NULL; json = open + 1) {
        pl_text_addn(out, json, (size_t)(open - json));
        pl_text_add(out, "\\u003c");
    }
    pl_text_add(out, json);
}

void pl_page_add_data(const struct pl_page *p, struct pl_text *out) {
    json_t *o = page_json(p);
    char *dump = o ? pl_json_dump(o, JSON_COMPACT | JSON_REAL_PRECISION(17)) : NULL;
    out->failed |= !dump;
    if (dump) add_script_safe(dump, out);
    free(dump);
    json_decref(o);
}
