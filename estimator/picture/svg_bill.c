/* svg_bill.c - one stacked bar per phase: where the bytes of its fullest op go. */
#include "estimator/picture/picture.h"

#include "estimator/base/checked.h"
#include "estimator/base/units.h"
#include "estimator/picture/svg.h"

#include <math.h>
#include <stdio.h>

enum {
    WIDTH = 1060,
    LEFT = 110,
    RIGHT = 900,
    TOP = 58,
    BAR = 30,
    GAP = 18,
    AXIS = 44, /* below the last bar: ticks and their labels */
    LEGEND_ROW = 24,
    LEGEND_COLUMN = 112,
    LEGEND_COLUMNS = (WIDTH - LEFT) / LEGEND_COLUMN,
    SEGMENTS = PL_CATEGORY_COUNT + 2, /* context first, what packing could not use last */
    TICKS = 8,
    LABEL_SIZE = 13,
    LABEL_DIGIT = 9, /* no font of that size has wider ones */
    LABEL_GAP = 8,
};
#define CONTEXT_COLOUR "#c9ced6"
#define UNUSED_COLOUR  "#eceff3"

static const struct pl_svg_stroke budget_stroke = {PL_SVG_ALARM, 1.8, "7 4"},
                                  grid_stroke = {PL_SVG_GRID, 1, NULL};

struct bill {
    const struct pl_plan *plan;
    uint64_t context, budget;
    struct pl_svg_axis x;
    double bottom; /* y of the bottom of the bars */
    struct pl_text *out;
};

static const char *segment_name(int s) {
    if (s == 0) return "context";
    return s == SEGMENTS - 1 ? "alignment, gaps" : pl_category_name((enum pl_category)(s - 1));
}

static const char *segment_colour(int s) {
    if (s == 0) return CONTEXT_COLOUR;
    return s == SEGMENTS - 1 ? UNUSED_COLOUR : pl_picture_colour((enum pl_category)(s - 1));
}

/* The segments of a phase add up to context + job arena + packed transients of the phase. */
static uint64_t phase_bytes(const struct bill *b, enum pl_phase p) {
    return b->context + b->plan->job_bytes + b->plan->phases[p].bytes;
}

static uint64_t segment_bytes(const struct bill *b, enum pl_phase p, int s) {
    const struct pl_plan *plan = b->plan;
    if (s == 0) return b->context;
    if (s < SEGMENTS - 1) return plan->job_by_category[s - 1] + plan->phases[p].live[s - 1];
    uint64_t named = b->context;
    for (int c = 0; c < PL_CATEGORY_COUNT; c++)
        named += plan->job_by_category[c] + plan->phases[p].live[c];
    return phase_bytes(b, p) - named;
}

/* Writes the need of a phase after its bar, or after the budget line if that would cross the
 * words. */
static void draw_total(const struct bill *b, uint64_t bytes, bool peak, double y) {
    char size[PL_BYTES_TEXT], text[PL_BYTES_TEXT + 8];
    const int n =
        snprintf(text, sizeof text, "%s%s", pl_bytes_text(bytes, size), peak ? "  peak" : "");
    const double budget = b->budget ? pl_svg_at(&b->x, (double)b->budget) : 0;
    double x = pl_svg_at(&b->x, (double)bytes) + LABEL_GAP;
    if (budget > x - LABEL_GAP && budget < x + n * LABEL_DIGIT && budget <= RIGHT)
        x = budget + LABEL_GAP;
    pl_svg_text(b->out, x, y + BAR / 2.0 + 4, PL_SVG_START, LABEL_SIZE,
                peak ? PL_SVG_INK : PL_SVG_QUIET, "%s", text);
}

static void draw_phase(const struct bill *b, enum pl_phase p, double y) {
    uint64_t from = 0;
    pl_svg_text(b->out, LEFT - 10, y + BAR / 2.0 + 4, PL_SVG_END, LABEL_SIZE, PL_SVG_INK, "%s",
                pl_phase_name(p));
    for (int s = 0; s < SEGMENTS; s++) {
        uint64_t bytes = segment_bytes(b, p, s);
        double x0 = pl_svg_at(&b->x, (double)from), x1 = pl_svg_at(&b->x, (double)(from + bytes));
        if (bytes)
            pl_text_addf(b->out,
                         "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.2f\" height=\"%d\" fill=\"%s\"/>\n",
                         x0, y, x1 - x0, BAR, segment_colour(s));
        from += bytes;
    }
    draw_total(b, from, p == b->plan->peak_phase, y);
}

static void draw_ticks(const struct bill *b) {
    for (double v = 0; v <= b->x.hi * (1 + 1e-9); v += b->x.step) {
        char text[PL_BYTES_TEXT];
        double x = pl_svg_at(&b->x, v);
        pl_svg_line(b->out, x, TOP - 6, x, b->bottom, &grid_stroke);
        pl_svg_text(b->out, x, b->bottom + 18, PL_SVG_MIDDLE, 12, PL_SVG_QUIET, "%s",
                    pl_bytes_text((uint64_t)v, text));
    }
}

static bool is_shown(const struct bill *b, int segment) {
    uint64_t any = 0;
    for (int p = 0; p < PL_PHASE_COUNT; p++)
        if (b->plan->program->phases[p].n_ops) any |= segment_bytes(b, p, segment);
    return any != 0;
}

static int legend_rows(const struct bill *b) {
    int n = 0;
    for (int s = 0; s < SEGMENTS; s++)
        n += is_shown(b, s);
    return (n + LEGEND_COLUMNS - 1) / LEGEND_COLUMNS;
}

/* y: base line of the first row. */
static void draw_legend(const struct bill *b, double y) {
    int n = 0;
    for (int s = 0; s < SEGMENTS; s++) {
        if (!is_shown(b, s)) continue;
        double x = LEFT + n % LEGEND_COLUMNS * LEGEND_COLUMN;
        double row = y + n / LEGEND_COLUMNS * LEGEND_ROW;
        pl_text_addf(b->out,
                     "<rect x=\"%.1f\" y=\"%.1f\" width=\"14\" height=\"11\" fill=\"%s\"/>\n", x,
                     row - 10, segment_colour(s));
        pl_svg_text(b->out, x + 19, row, PL_SVG_START, 12, PL_SVG_INK, "%s", segment_name(s));
        n++;
    }
}

static void draw_budget(const struct bill *b) {
    char text[PL_BYTES_TEXT];
    double x = pl_svg_at(&b->x, (double)b->budget);
    if (!b->budget || x > RIGHT) return;
    pl_svg_line(b->out, x, TOP - 12, x, b->bottom + 4, &budget_stroke);
    pl_svg_text(b->out, x, TOP - 18, PL_SVG_MIDDLE, 12, PL_SVG_ALARM, "budget %s",
                pl_bytes_text(b->budget, text));
}

/* Round binary figures: the step is a nice multiple of the power of 1024 below the span. */
static struct pl_svg_axis bytes_axis(double span) {
    double unit = 1;
    while (span / unit >= 1024)
        unit *= 1024;
    struct pl_svg_axis a = {0, span, LEFT, RIGHT, pl_svg_nice_step(span / unit, TICKS) * unit};
    a.hi = ceil(span / a.step) * a.step;
    return a;
}

void pl_svg_bill(const struct pl_plan *plan, uint64_t context_bytes, uint64_t budget_bytes,
                 const char *title, struct pl_text *out) {
    struct bill b = {.plan = plan,
                     .context = context_bytes,
                     .budget = budget_bytes == PL_AUTO_BYTES ? 0 : budget_bytes,
                     .bottom = TOP,
                     .out = out};
    double span = 1;
    for (int p = 0; p < PL_PHASE_COUNT; p++) {
        if (!plan->program->phases[p].n_ops) continue;
        span = fmax(span, (double)phase_bytes(&b, p));
        b.bottom += BAR + GAP;
    }
    if ((double)b.budget < 2 * span) span = fmax(span, (double)b.budget);
    b.x = bytes_axis(span);
    pl_svg_begin(out, WIDTH, (int)b.bottom + AXIS + legend_rows(&b) * LEGEND_ROW + 12, title);
    pl_svg_text(out, 24, 26, PL_SVG_START, 16, PL_SVG_INK, "%s", title);
    draw_ticks(&b);
    double y = TOP;
    for (int p = 0; p < PL_PHASE_COUNT; p++) {
        if (!plan->program->phases[p].n_ops) continue;
        draw_phase(&b, p, y);
        y += BAR + GAP;
    }
    draw_budget(&b);
    draw_legend(&b, b.bottom + AXIS + LEGEND_ROW / 2.0);
    pl_svg_end(out);
}
