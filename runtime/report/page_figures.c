/* page_figures.c - the final figures of each run: as rows, and as the first table of the page. */
#include "estimator/base/alloc.h"
#include "estimator/base/units.h"
#include "estimator/picture/svg.h"
#include "runtime/report/page_parts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- figures --------------------------------------------------------------------------------- */

/* Adds the last figure of a column that is a number. */
static void add_last(struct pl_report *r, const char *name, const struct pl_figures *t,
                     const char *column) {
    const double *v = pl_figures_column(t, column);
    uint64_t n = v ? t->n : 0;
    while (n && isnan(v[n - 1]))
        n--;
    pl_report_figure(r, name, n ? v[n - 1] : 0, 4);
    pl_report_known(r, n > 0);
}

static void add_best(struct pl_report *r, const struct pl_figures *evals) {
    const double *v = pl_figures_column(evals, "loss");
    uint64_t best = evals->n;
    for (uint64_t i = 0; v && i < evals->n; i++)
        if (!isnan(v[i]) && (best == evals->n || v[i] < v[best])) best = i;
    pl_report_figure(r, "best_eval_loss", best < evals->n ? v[best] : 0, 4);
    pl_report_known(r, best < evals->n);
    pl_report_count(r, "best_eval_step", best < evals->n ? (uint64_t)evals->step[best] : 0);
    pl_report_known(r, best < evals->n);
}

static int compare(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The median is not moved by steps that waited for an evaluation or for the disk. */
static void add_speed(struct pl_report *r, const struct pl_figures *steps) {
    const double *v = pl_figures_column(steps, "tokens_per_second");
    double *sorted = v && steps->n ? pl_malloc(steps->n * sizeof *sorted) : NULL;
    uint64_t n = 0;
    r->failed |= v && steps->n && !sorted;
    for (uint64_t i = 0; sorted && i < steps->n; i++)
        if (!isnan(v[i])) sorted[n++] = v[i];
    if (n) qsort(sorted, n, sizeof *sorted, compare);
    pl_report_figure(r, "tokens_per_second", n ? (sorted[(n - 1) / 2] + sorted[n / 2]) / 2 : 0, 0);
    pl_report_known(r, n > 0);
    free(sorted);
}

static void add_bytes(struct pl_report *r, const char *name, const json_t *event, const char *key) {
    const json_t *v = json_object_get(event, key);
    const bool known = json_is_integer(v) && json_integer_value(v) >= 0;
    pl_report_bytes(r, name, known ? (uint64_t)json_integer_value(v) : 0);
    pl_report_known(r, known);
}

static uint64_t skipped_steps(const struct pl_figures *steps) {
    const double *skipped = pl_figures_column(steps, "skipped");
    uint64_t n = 0;
    for (uint64_t i = 0; skipped && i < steps->n; i++)
        n += skipped[i] == 1;
    return n;
}

static void add_text(struct pl_report *r, const char *name, const char *s) {
    struct pl_text t = {0};
    pl_text_add(&t, s);
    pl_report_text(r, name, &t);
}

static void add_run(const struct pl_page_run *run, struct pl_report *r) {
    const struct pl_figures *steps = &run->log.steps;
    /* That of a run that was resumed meanwhile is about an earlier part of it. */
    const json_t *summary = run->log.ended ? run->log.summary : NULL;
    const json_t *wall = json_object_get(summary, "wall_seconds");
    add_text(r, "run", run->label);
    add_text(r, "directory", run->dir);
    pl_report_word(r, "state", run->log.ended ? "ended" : run->lives ? "trains" : "unfinished");
    pl_report_count(r, "steps", steps->n ? (uint64_t)fmax(0, steps->step[steps->n - 1]) : 0);
    add_last(r, "loss", steps, "loss");
    add_last(r, "eval_loss", &run->log.evals, "loss");
    add_best(r, &run->log.evals);
    add_speed(r, steps);
    pl_report_figure(r, "wall_seconds", json_number_value(wall), 1);
    pl_report_known(r, json_is_number(wall));
    add_bytes(r, "planned_bytes", run->log.preflight, "planned_bytes");
    add_bytes(r, "allocated_bytes", summary, "allocated_peak_bytes");
    add_bytes(r, "measured_bytes", summary, "measured_peak_bytes");
    pl_report_count(r, "oom_recoveries", run->log.recoveries.n);
    pl_report_count(r, "skipped_steps", skipped_steps(steps));
}

void pl_page_figures(const struct pl_page *p, struct pl_report *r) {
    for (uint32_t i = 0; i < p->n; i++) {
        pl_report_next(r);
        add_run(&p->runs[i], r);
    }
}

/* --- the table ------------------------------------------------------------------------------- */

static const struct {
    const char *name, *heading;
} columns[] = {
    {"state", "State"},
    {"steps", "Steps"},
    {"loss", "Loss"},
    {"eval_loss", "Evaluation"},
    {"best_eval_loss", "Best"},
    {"best_eval_step", "at step"},
    {"tokens_per_second", "Tokens/s"},
    {"wall_seconds", "Seconds"},
    {"planned_bytes", "Planned"},
    {"allocated_bytes", "Allocated"},
    {"measured_bytes", "Measured"},
    {"oom_recoveries", "Recoveries"},
    {"skipped_steps", "Skipped"},
};
enum { COLUMNS = sizeof columns / sizeof *columns };

void pl_page_add_run(const struct pl_page *p, uint32_t i, struct pl_text *out) {
    pl_text_addf(out,
                 "<th scope=\"row\"><i class=\"swatch\" style=\"background:var(--run%u)\"></i>"
                 "<span class=\"name\">",
                 i);
    pl_svg_add_escaped(out, p->runs[i].label);
    pl_text_add(out, "</span>");
}

static void add_cell(const struct pl_row *row, struct pl_text *out) {
    char room[PL_REPORT_CELL];
    const bool is_count = row->type == PL_ROW_COUNT && row->is.count >= 0;
    const char *text =
        is_count ? pl_count_text((uint64_t)row->is.count, room) : pl_report_cell(row, room);
    const bool is_state = strcmp(row->name, "state") == 0; /* its words are classes too */
    pl_text_addf(out, "<td data-figure=\"%s\"%s%s%s>", row->name, is_state ? " class=\"" : "",
                 is_state ? text : "", is_state ? "\"" : "");
    pl_svg_add_escaped(out, text);
    pl_text_add(out, "</td>");
}

/* The rows of the line that begins at *row, up to the next line. */
static void add_line(const struct pl_page *p, uint32_t run, const struct pl_report *r,
                     uint32_t *row, struct pl_text *out) {
    const uint32_t first = *row;
    do
        ++*row;
    while (*row < r->n_rows && !r->rows[*row].line);
    pl_text_add(out, "<tr>");
    pl_page_add_run(p, run, out);
    pl_text_add(out, "<span class=\"where\">");
    pl_svg_add_escaped(out, p->runs[run].dir);
    pl_text_add(out, "</span></th>");
    for (int c = 0; c < COLUMNS; c++)
        for (uint32_t i = first; i < *row; i++)
            if (strcmp(r->rows[i].name, columns[c].name) == 0) add_cell(&r->rows[i], out);
    pl_text_add(out, "</tr>\n");
}

void pl_page_add_figures(const struct pl_page *p, struct pl_text *out) {
    struct pl_report r = {0};
    uint32_t row = 0;
    pl_page_figures(p, &r);
    pl_text_add(out, "<div class=\"table\" tabindex=\"0\" role=\"region\" "
                     "aria-labelledby=\"figures-title\"><table id=\"figures\">\n<thead><tr>"
                     "<th scope=\"col\">Run</th>");
    for (int c = 0; c < COLUMNS; c++)
        pl_text_addf(out, "<th scope=\"col\">%s</th>", columns[c].heading);
    pl_text_add(out, "</tr></thead>\n<tbody>\n");
    for (uint32_t i = 0; i < p->n && row < r.n_rows; i++)
        add_line(p, i, &r, &row, out);
    pl_text_add(out, "</tbody></table></div>\n<p class=\"none\">Losses are those of the last step "
                     "and evaluation. Tokens/s: the median of the steps. Seconds: of the last "
                     "start. Bytes: of the device at their peak.</p>\n");
    out->failed |= r.failed;
    pl_report_finish(&r);
}
