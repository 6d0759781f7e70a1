#include "runtime/report/run_log.h"

#include "estimator/base/alloc.h"
#include "estimator/base/json_tree.h"
#include "runtime/report/report.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_ROWS 64

struct reading {
    struct pl_run_log *h;
    struct pl_diag *d;
};

static pl_err no_memory(struct pl_diag *d) {
    return pl_host_oom(d, "the figures of a log");
}

/* --- tables ---------------------------------------------------------------------------------- */

static bool grow(double **v, uint64_t cap) {
    double *more = pl_realloc(*v, cap * sizeof *more);
    if (more) *v = more;
    return more != NULL;
}

static bool add_row(struct pl_figures *t, double step) {
    if (t->n == t->cap) {
        const uint64_t cap = t->cap ? 2 * t->cap : FIRST_ROWS;
        bool whole = grow(&t->step, cap);
        for (uint32_t i = 0; whole && i < t->n_columns; i++)
            whole = grow(&t->columns[i].v, cap);
        if (!whole) return false;
        t->cap = cap;
    }
    t->step[t->n] = step;
    for (uint32_t i = 0; i < t->n_columns; i++)
        t->columns[i].v[t->n] = NAN;
    t->n++;
    return true;
}

static void drop_from(struct pl_figures *t, double step) {
    while (t->n && t->step[t->n - 1] >= step)
        t->n--;
}

static void finish_table(struct pl_figures *t) {
    for (uint32_t i = 0; i < t->n_columns; i++) {
        free(t->columns[i].name);
        free(t->columns[i].v);
    }
    free(t->step);
    *t = (struct pl_figures){0};
}

/* Lines of one kind have their keys in one order, so the column is mostly the one at `hint`. */
static struct pl_figure_column *find_column(struct pl_figures *t, const char *name, uint32_t hint) {
    if (hint < t->n_columns && strcmp(t->columns[hint].name, name) == 0) return &t->columns[hint];
    for (uint32_t i = 0; i < t->n_columns; i++)
        if (strcmp(t->columns[i].name, name) == 0) return &t->columns[i];
    return NULL;
}

/* The rows before have no figure of it. *c stays NULL where there are too many columns. */
static bool add_column(struct pl_figures *t, const char *name, struct pl_figure_column **c) {
    if (t->n_columns == PL_FIGURES_MOST) return true;
    struct pl_figure_column new = {pl_strdup(name), NULL};
    if (!new.name || !grow(&new.v, t->cap)) {
        free(new.name);
        return false;
    }
    for (uint64_t i = 0; i < t->n; i++)
        new.v[i] = NAN;
    t->columns[t->n_columns] = new;
    *c = &t->columns[t->n_columns++];
    return true;
}

const double *pl_figures_column(const struct pl_figures *t, const char *name) {
    for (uint32_t i = 0; i < t->n_columns; i++)
        if (strcmp(t->columns[i].name, name) == 0) return t->columns[i].v;
    return NULL;
}

/* --- lines ----------------------------------------------------------------------------------- */

/* Sets the figures of the last row. */
static pl_err set_figures(struct pl_figures *t, json_t *event, struct pl_diag *d) {
    uint32_t hint = 0;
    const char *key;
    json_t *v;
    json_object_foreach(event, key, v) {
        if (!json_is_number(v) && !json_is_boolean(v)) continue;
        if (strcmp(key, "step") == 0) continue;
        struct pl_figure_column *c = find_column(t, key, hint);
        if (!c && !add_column(t, key, &c)) return no_memory(d);
        if (!c) continue;
        c->v[t->n - 1] = json_is_boolean(v) ? json_is_true(v) : json_number_value(v);
        hint = (uint32_t)(c - t->columns) + 1;
    }
    return PL_ERR_OK;
}

static void drop_samples_from(json_t *samples, double step) {
    for (size_t n = json_array_size(samples); n; n--) {
        const json_t *last = json_array_get(samples, n - 1);
        if (json_number_value(json_object_get(last, "step")) < step) return;
        (void)json_array_remove(samples, n - 1);
    }
}

static pl_err add_step(struct reading *r, json_t *event, double step) {
    drop_samples_from(r->h->samples, step);
    drop_from(&r->h->steps, step);
    drop_from(&r->h->evals, step);
    if (!add_row(&r->h->steps, step)) return no_memory(r->d);
    return set_figures(&r->h->steps, event, r->d);
}

/* Several lines of one step are one row: each may have figures of its own. */
static pl_err add_eval(struct reading *r, json_t *event, double step) {
    struct pl_figures *t = &r->h->evals;
    while (t->n && t->step[t->n - 1] > step)
        t->n--;
    const bool again = t->n && t->step[t->n - 1] == step;
    if (!again && !add_row(t, step)) return no_memory(r->d);
    return set_figures(t, event, r->d);
}

static pl_err add_recovery(struct reading *r, json_t *event, double step) {
    const bool whole =
        add_row(&r->h->recoveries, step) && json_array_append(r->h->recovery_events, event) == 0;
    return whole ? PL_ERR_OK : no_memory(r->d);
}

static pl_err add_sample(struct reading *r, json_t *event, double unused) {
    (void)unused;
    return json_array_append(r->h->samples, event) == 0 ? PL_ERR_OK : no_memory(r->d);
}

static void keep(json_t **place, json_t *event) {
    json_decref(*place);
    *place = json_incref(event);
}

/* A run that begins in a log that has steps is one that was resumed. */
static pl_err add_preflight(struct reading *r, json_t *event, double unused) {
    (void)unused;
    const struct pl_figures *steps = &r->h->steps;
    struct pl_figures *resumes = &r->h->resumes;
    keep(&r->h->preflight, event);
    r->h->ended = false;
    if (!steps->n) return PL_ERR_OK;
    drop_from(resumes, steps->step[steps->n - 1]);
    return add_row(resumes, steps->step[steps->n - 1]) ? PL_ERR_OK : no_memory(r->d);
}

static pl_err add_summary(struct reading *r, json_t *event, double unused) {
    (void)unused;
    keep(&r->h->summary, event);
    r->h->ended = true;
    return PL_ERR_OK;
}

static const struct {
    const char *event;
    bool has_step;
    pl_err (*add)(struct reading *r, json_t *event, double step);
} kinds[] = {
    {"step", true, add_step},
    {"eval", true, add_eval},
    {"oom_recovery", true, add_recovery},
    {"sample", true, add_sample},
    {"preflight", false, add_preflight},
    {"summary", false, add_summary},
};

static pl_err add_line(void *ctx, const char *line, json_t *event) {
    (void)line;
    const char *name = json_string_value(json_object_get(event, "event"));
    const json_t *step = json_object_get(event, "step");
    for (size_t i = 0; name && i < sizeof kinds / sizeof *kinds; i++) {
        if (strcmp(name, kinds[i].event) != 0) continue;
        if (kinds[i].has_step && !json_is_number(step)) return PL_ERR_OK;
        return kinds[i].add(ctx, event, json_number_value(step));
    }
    return PL_ERR_OK;
}

pl_err pl_run_log_read(const char *path, struct pl_run_log *h, struct pl_diag *d) {
    struct reading r = {h, d};
    *h = (struct pl_run_log){.recovery_events = json_array(), .samples = json_array()};
    pl_err err =
        h->recovery_events && h->samples ? pl_log_each(path, add_line, &r, d) : no_memory(d);
    if (err != PL_ERR_OK) pl_run_log_finish(h);
    return err;
}

void pl_run_log_finish(struct pl_run_log *h) {
    finish_table(&h->steps);
    finish_table(&h->evals);
    finish_table(&h->resumes);
    finish_table(&h->recoveries);
    json_decref(h->recovery_events);
    json_decref(h->samples);
    json_decref(h->preflight);
    json_decref(h->summary);
    *h = (struct pl_run_log){0};
}
