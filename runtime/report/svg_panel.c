#include "runtime/report/svg_panel.h"

#include "estimator/base/checked.h"
#include "estimator/base/units.h"

#include <math.h>
#include <string.h>

enum {
    LEFT = PL_PANEL_LEFT,
    RIGHT = PL_PANEL_RIGHT,
    COLUMNS = RIGHT - LEFT, /* one a pixel */
    X_TICKS = 8,
    Y_TICKS = 6,
    SMOOTH_SHARE = 60, /* the mean reaches this part of all points to either side */
    DOTS_MOST = 60,    /* points; more of them are a line alone */
};
#define SMOOTH_WIDTH 2.2
/* Far past any loss; keeps differences of two values finite. Steps stay exact integers. */
#define LARGEST_DRAWN 1e30
#define LARGEST_STEP  9e15

static bool can_draw(const struct pl_panel_curve *c, uint64_t i) {
    return fabs(c->values[i]) < LARGEST_DRAWN && fabs(c->steps[i]) < LARGEST_STEP;
}

/* --- axes ------------------------------------------------------------------------------------ */

static void widen(struct pl_panel *p, struct pl_panel_curve *c) {
    c->drawn = 0;
    for (uint64_t i = 0; i < c->n; i++) {
        if (!can_draw(c, i)) continue;
        c->drawn++;
        p->x.lo = fmin(p->x.lo, c->steps[i]);
        p->x.hi = fmax(p->x.hi, c->steps[i]);
        p->y.lo = fmin(p->y.lo, c->values[i]);
        p->y.hi = fmax(p->y.hi, c->values[i]);
    }
}

static void find_limits(struct pl_panel *p, struct pl_panel_curve *curves, uint32_t n) {
    uint64_t drawn = 0;
    p->x.lo = p->y.lo = LARGEST_DRAWN;
    p->x.hi = p->y.hi = -LARGEST_DRAWN;
    for (uint32_t i = 0; i < n; i++) {
        widen(p, &curves[i]);
        drawn += curves[i].drawn;
    }
    if (!drawn) p->x.lo = p->y.lo = 0, p->x.hi = p->y.hi = 1;
}

/* Opens a range that is too thin to hold ticks, so that one point or a constant has a place. */
static void open_range(struct pl_svg_axis *a, double least) {
    double missing = least - (a->hi - a->lo);
    if (missing <= 0) return;
    a->lo -= missing / 2;
    a->hi += missing / 2;
}

/* Returns as many labels as fit next to each other; the last one is the longest. */
static int x_ticks(const struct pl_panel *p) {
    char n[PL_COUNT_TEXT];
    size_t columns = strlen(pl_count_text((uint64_t)fmax(p->x.hi, 0), n)) + 2;
    return (int)pl_u64_min(X_TICKS, (RIGHT - LEFT) / (8 * columns));
}

void pl_panel_set_axes(struct pl_panel *p, struct pl_panel_curve *curves, uint32_t n) {
    find_limits(p, curves, n);
    open_range(&p->x, 2);
    open_range(&p->y, fmax(1e-6, 0.02 * fmax(fabs(p->y.lo), fabs(p->y.hi))));
    p->x.from = LEFT, p->x.to = RIGHT;
    p->y.from = p->bottom, p->y.to = p->top;
    p->x.step = fmax(1, pl_svg_nice_step(p->x.hi - p->x.lo, x_ticks(p)));
    p->y.step = pl_svg_nice_step(p->y.hi - p->y.lo, Y_TICKS);
    p->y.lo = floor(p->y.lo / p->y.step) * p->y.step;
    p->y.hi = ceil(p->y.hi / p->y.step) * p->y.step;
}

static void draw_value(struct pl_text *out, double x, double y, enum pl_svg_anchor anchor,
                       const char *colour, double v, double step) {
    bool plain = fabs(v) < 1e5 && step >= 9e-5;
    int decimals = step < 1 ? (int)ceil(-log10(step) - 1e-9) : 0;
    pl_svg_text(out, x, y, anchor, 12, colour, plain ? "%.*f" : "%.*e", plain ? decimals : 2, v);
}

void pl_panel_draw_axes(const struct pl_panel *p, struct pl_text *out) {
    static const struct pl_svg_stroke grid = {PL_SVG_GRID, 1, NULL}, base = {PL_SVG_QUIET, 1, NULL};
    double slack = 1e-6 * p->y.step;
    for (double v = pl_svg_first_tick(&p->y); v <= p->y.hi + slack; v += p->y.step) {
        double y = pl_svg_at(&p->y, v);
        pl_svg_line(out, LEFT, y, RIGHT, y, &grid);
        draw_value(out, LEFT - 8, y + 4, PL_SVG_END, PL_SVG_QUIET,
                   fabs(v) < slack ? 0 : v, /* not -0 */
                   p->y.step);
    }
    for (double v = pl_svg_first_tick(&p->x); v <= p->x.hi; v += p->x.step) {
        char n[PL_COUNT_TEXT];
        double x = pl_svg_at(&p->x, v);
        if (v < 0) continue; /* room around step 0 */
        pl_svg_line(out, x, p->bottom, x, p->bottom + 5, &base);
        pl_svg_text(out, x, p->bottom + 20, PL_SVG_MIDDLE, 12, PL_SVG_QUIET, "%s",
                    pl_count_text((uint64_t)v, n));
    }
    pl_svg_line(out, LEFT, p->bottom, RIGHT, p->bottom, &base);
    pl_svg_text(out, (LEFT + RIGHT) / 2.0, p->bottom + 42, PL_SVG_MIDDLE, 13, PL_SVG_QUIET, "step");
    pl_svg_text_up(out, 18, (p->top + p->bottom) / 2.0, 13, p->label);
}

/* --- curves ---------------------------------------------------------------------------------- */

static void begin_path(struct pl_text *out, const char *colour, double width) {
    pl_text_addf(
        out,
        "<path fill=\"none\" stroke=\"%s\" stroke-width=\"%.1f\" stroke-linejoin=\"round\" "
        "stroke-linecap=\"round\" d=\"",
        colour, width);
}

static void draw_points(const struct pl_panel *p, const struct pl_panel_curve *c,
                        struct pl_text *out) {
    bool open = false;
    begin_path(out, c->colour, c->width);
    for (uint64_t i = 0; i < c->n; i++) {
        if (can_draw(c, i))
            pl_text_addf(out, "%c%.1f %.1f", open ? 'L' : 'M', pl_svg_at(&p->x, c->steps[i]),
                         pl_svg_at(&p->y, c->values[i]));
        open = can_draw(c, i); /* a gap is a gap, no line across it */
    }
    pl_text_add(out, "\"/>\n");
    for (uint64_t i = 0; c->n <= DOTS_MOST && i < c->n; i++) {
        if (can_draw(c, i))
            pl_svg_dot(out, pl_svg_at(&p->x, c->steps[i]), pl_svg_at(&p->y, c->values[i]),
                       2 * c->width, c->colour);
    }
}

/* More points than pixels: each pixel column shows the range of its points, so that no spike is
 * lost and the file stays small. */
static void draw_ranges(const struct pl_panel *p, const struct pl_panel_curve *c,
                        struct pl_text *out) {
    double lo[COLUMNS + 1], hi[COLUMNS + 1];
    for (int k = 0; k <= COLUMNS; k++)
        lo[k] = LARGEST_DRAWN, hi[k] = -LARGEST_DRAWN;
    for (uint64_t i = 0; i < c->n; i++) {
        if (!can_draw(c, i)) continue;
        int k = (int)(pl_svg_at(&p->x, c->steps[i]) - LEFT);
        lo[k] = fmin(lo[k], c->values[i]);
        hi[k] = fmax(hi[k], c->values[i]);
    }
    bool open = false;
    begin_path(out, c->colour, c->width);
    for (int k = 0; k <= COLUMNS; k++) {
        if (lo[k] > hi[k]) continue;
        pl_text_addf(out, "%c%d %.1fV%.1f", open ? 'L' : 'M', LEFT + k, pl_svg_at(&p->y, lo[k]),
                     pl_svg_at(&p->y, hi[k]));
        open = true;
    }
    pl_text_add(out, "\"/>\n");
}

void pl_panel_draw_curve(const struct pl_panel *p, const struct pl_panel_curve *c,
                         struct pl_text *out) {
    if (c->n > 2 * COLUMNS)
        draw_ranges(p, c, out);
    else if (c->drawn)
        draw_points(p, c, out);
}

void pl_panel_draw_label(const struct pl_panel *p, double y, double value, const char *colour,
                         struct pl_text *out) {
    draw_value(out, RIGHT + 8, y + 4, PL_SVG_START, colour, value, fmax(p->y.step / 100, 1e-4));
}

/* Returns the mean over the points around i: centred, so that the line does not lag after the
 * curve. At the start, where a loss falls fastest, it reaches no further ahead than back. */
static double mean_around(const struct pl_panel_curve *c, uint64_t i, uint64_t reach) {
    reach = pl_u64_min(reach, i);
    uint64_t first = i - reach, last = pl_u64_min(i + reach, c->n - 1), count = 0;
    double sum = 0;
    for (uint64_t k = first; k <= last; k++) {
        if (!can_draw(c, k)) continue;
        sum += c->values[k];
        count++;
    }
    return sum / (double)count;
}

/* One vertex a pixel column at most, so the cost is columns times reach whatever n. */
double pl_panel_draw_smoothed(const struct pl_panel *p, const struct pl_panel_curve *c,
                              const char *colour, double *last, struct pl_text *out) {
    uint64_t reach = pl_u64_max(1, c->n / SMOOTH_SHARE);
    double mean = 0, last_x = LEFT;
    bool open = false;
    begin_path(out, colour, SMOOTH_WIDTH);
    for (uint64_t i = 0; i < c->n; i++) {
        if (!can_draw(c, i)) continue;
        double x = pl_svg_at(&p->x, c->steps[i]);
        if (open && fabs(x - last_x) < 1 && i + 1 < c->n) continue;
        mean = mean_around(c, i, reach);
        pl_text_addf(out, "%c%.1f %.1f", open ? 'L' : 'M', x, pl_svg_at(&p->y, mean));
        last_x = x;
        open = true;
    }
    pl_text_add(out, "\"/>\n");
    double y = pl_svg_at(&p->y, mean);
    pl_svg_dot(out, last_x, y, 3.5, colour);
    *last = mean;
    return y;
}

double pl_panel_last(const struct pl_panel_curve *c) {
    uint64_t last = c->n - 1;
    while (!can_draw(c, last))
        last--;
    return c->values[last];
}
