/* fit_grid.c - batch x length, every cell a plan of its own; as CSV and as a heat map. */
#include "estimator/advice/advice.h"

#include "estimator/advice/parts.h"
#include "estimator/base/units.h"
#include "estimator/picture/svg.h"

#include <stdlib.h>
#include <string.h>

#define FIRST_BATCH  1
#define FIRST_LENGTH 256

/* Powers of two from `first`; the job's own value takes the place of the one below it, and a value
 * beyond the end moves the row up. */
static uint32_t fill_axis(uint32_t axis[PL_GRID_SIDE], uint32_t first, uint32_t own,
                          uint32_t largest) {
    uint64_t v = first;
    uint32_t n = 0;
    while (own < v && v > 1)
        v /= 2;
    while (v << (PL_GRID_SIDE - 1) < own)
        v *= 2;
    for (; n < PL_GRID_SIDE && v <= largest; v *= 2)
        axis[n++] = (v <= own && own < 2 * v) ? own : (uint32_t)v;
    return n;
}

pl_err pl_advice_grid(const struct pl_question *q, struct pl_trials *t, struct pl_fit_grid *out,
                      struct pl_diag *d) {
    struct pl_variant v;
    *out = (struct pl_fit_grid){0};
    out->n_lengths = fill_axis(out->lengths, FIRST_LENGTH, q->job->max_seq_length,
                               pl_change_most(q, PL_KEY_max_seq_length));
    pl_variant_sized(&v, q, q->batch_size, out->lengths[out->n_lengths - 1]);
    out->n_batches = fill_axis(out->batches, FIRST_BATCH, q->batch_size,
                               pl_change_most(&v.q, PL_KEY_batch_size));
    for (uint32_t l = 0; l < out->n_lengths; l++) {
        for (uint32_t b = 0; b < out->n_batches; b++) { /* one program, resized */
            pl_variant_sized(&v, q, out->batches[b], out->lengths[l]);
            pl_variant_smallest_level(&v);
            PL_TRY(pl_price_of(&v.q, t, &out->cells[b][l], d));
            out->cells[b][l].flops_per_token = 0;
        }
    }
    return PL_ERR_OK;
}

void pl_fit_grid_report(const struct pl_fit_grid *g, struct pl_report *r) {
    for (uint32_t b = 0; b < g->n_batches; b++) {
        for (uint32_t l = 0; l < g->n_lengths; l++) {
            pl_report_next(r);
            pl_report_count(r, "batch_size", g->batches[b]);
            pl_report_count(r, "max_seq_length", g->lengths[l]);
            pl_price_report(&g->cells[b][l], r);
        }
    }
}

void pl_advice_csv(const struct pl_fit_grid *g, struct pl_text *out) {
    static const char *const names[] = {"batch_size", "max_seq_length", "needed_bytes", "verdict"};
    struct pl_report r = {0};
    pl_fit_grid_report(g, &r);
    pl_report_csv(&r, names, sizeof names / sizeof *names, out);
    pl_report_finish(&r);
}

/* --- heat map -------------------------------------------------------------------------------- */

enum { LEFT = 96, TOP = 84, CELL_W = 98, CELL_H = 40, FOOT = 58 };

struct rgb {
    double r, g, b;
};

/* Green to yellow while it fits, orange where it is tight, red beyond; grey without a budget. */
static struct rgb cell_colour(const struct pl_price *c, const struct pl_budget *budget) {
    static const struct rgb cool = {214, 238, 219}, warm = {246, 226, 122}, tight = {243, 172, 86},
                            over = {226, 120, 110}, plain = {228, 231, 235};
    if (c->verdict == PL_VERDICT_UNKNOWN) return plain;
    if (c->verdict == PL_VERDICT_NO) return over;
    if (c->verdict == PL_VERDICT_TIGHT) return tight;
    double t = budget->total_bytes ? (double)c->needed_bytes / (double)budget->total_bytes : 1;
    return (struct rgb){cool.r + (warm.r - cool.r) * t, cool.g + (warm.g - cool.g) * t,
                        cool.b + (warm.b - cool.b) * t};
}

static void draw_cell(const struct pl_price *c, const struct pl_budget *budget, double x, double y,
                      struct pl_text *out) {
    char bytes[PL_BYTES_TEXT];
    struct rgb colour = cell_colour(c, budget);
    pl_text_addf(out,
                 "<rect x=\"%.0f\" y=\"%.0f\" width=\"%d\" height=\"%d\" rx=\"3\" "
                 "fill=\"#%02x%02x%02x\"/>\n",
                 x + 1, y + 1, CELL_W - 2, CELL_H - 2, (unsigned)colour.r, (unsigned)colour.g,
                 (unsigned)colour.b);
    pl_svg_text(out, x + CELL_W / 2.0, y + 18, PL_SVG_MIDDLE, 12, PL_SVG_INK, "%s",
                pl_bytes_text(c->needed_bytes, bytes));
    if (c->verdict != PL_VERDICT_UNKNOWN)
        pl_svg_text(out, x + CELL_W / 2.0, y + 32, PL_SVG_MIDDLE, 11, PL_SVG_QUIET, "%s",
                    pl_verdict_name(c->verdict));
}

void pl_advice_grid_svg(const struct pl_fit_grid *g, const struct pl_budget *budget,
                        const char *title, struct pl_text *out) {
    double right = LEFT + CELL_W * (double)g->n_lengths,
           bottom = TOP + CELL_H * (double)g->n_batches;
    pl_svg_begin(out, (int)right + 28, (int)bottom + FOOT, title);
    pl_svg_text(out, 24, 28, PL_SVG_START, 16, PL_SVG_INK, "%s", title);
    pl_svg_text(out, (LEFT + right) / 2, 54, PL_SVG_MIDDLE, 13, PL_SVG_QUIET, "max_seq_length");
    pl_svg_text_up(out, 28, (TOP + bottom) / 2, 13, "batch_size");
    for (uint32_t l = 0; l < g->n_lengths; l++)
        pl_svg_text(out, LEFT + CELL_W * (l + 0.5), TOP - 10, PL_SVG_MIDDLE, 12, PL_SVG_INK, "%u",
                    g->lengths[l]);
    for (uint32_t b = 0; b < g->n_batches; b++) {
        double y = TOP + CELL_H * (double)b;
        pl_svg_text(out, LEFT - 12, y + CELL_H / 2.0 + 4, PL_SVG_END, 12, PL_SVG_INK, "%u",
                    g->batches[b]);
        for (uint32_t l = 0; l < g->n_lengths; l++)
            draw_cell(&g->cells[b][l], budget, LEFT + CELL_W * (double)l, y, out);
    }
    char total[PL_BYTES_TEXT], margin[PL_BYTES_TEXT], context[PL_BYTES_TEXT];
    if (budget->known)
        pl_svg_text(out, LEFT, bottom + 30, PL_SVG_START, 12, PL_SVG_QUIET,
                    "needed bytes of %s: %s, context %s included, margin %s", budget->source,
                    pl_bytes_text(budget->total_bytes, total),
                    pl_bytes_text(budget->context_bytes, context),
                    pl_bytes_text(budget->margin_bytes, margin));
    else
        pl_svg_text(out, LEFT, bottom + 30, PL_SVG_START, 12, PL_SVG_QUIET,
                    "needed bytes; no budget was named");
    pl_svg_end(out);
}
