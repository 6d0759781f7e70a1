/* svg_loss.c - the loss over the steps of a run, and that of its evaluations. */
#include "runtime/report/run_log.h"
#include "runtime/report/report.h"
#include "estimator/picture/svg.h"

#include "estimator/base/checked.h"
#include "estimator/base/units.h"

#include <math.h>
#include <string.h>

enum {
    WIDTH = 880,
    HEIGHT = 420,
    LEFT = 88,
    RIGHT = 800,
    TOP = 66,
    BOTTOM = 356,
    COLUMNS = RIGHT - LEFT, /* one a pixel */
    X_TICKS = 8,
    Y_TICKS = 6,
    SMOOTH_FROM = 8,   /* points; below, the raw line says it all */
    SMOOTH_SHARE = 60, /* the mean reaches this part of all points to either side */
    DOTS_MOST = 60,    /* points; more of them are a line alone */
    LABEL_HEIGHT = 15, /* of a figure at the right end of a line */
};

#define RAW_COLOUR    "#9db8d9"
#define SMOOTH_COLOUR "#1d4f91"
#define EVAL_COLOUR   "#0d8a72"
#define MARK_COLOUR   "#d97706"
/* Far past any loss; keeps differences of two values finite. Steps stay exact integers. */
#define LARGEST_DRAWN 1e30
#define LARGEST_STEP  9e15

struct curve {
    const double *steps, *losses;
    uint64_t n, drawn; /* points, and those that can be drawn */
    const char *colour;
    double width;
    struct pl_svg_axis x, y; /* of the picture, the same for all its curves */
};

static bool can_draw(const struct curve *c, uint64_t i) {
    return fabs(c->losses[i]) < LARGEST_DRAWN && fabs(c->steps[i]) < LARGEST_STEP;
}

/* --- axes ------------------------------------------------------------------------------------ */

static void widen(struct curve *limits, struct curve *c) {
    for (uint64_t i = 0; i < c->n; i++) {
        if (!can_draw(c, i)) continue;
        c->drawn++;
        limits->x.lo = fmin(limits->x.lo, c->steps[i]);
        limits->x.hi = fmax(limits->x.hi, c->steps[i]);
        limits->y.lo = fmin(limits->y.lo, c->losses[i]);
        limits->y.hi = fmax(limits->y.hi, c->losses[i]);
    }
}

static void find_limits(struct curve *c, struct curve *evals) {
    c->x.lo = c->y.lo = LARGEST_DRAWN;
    c->x.hi = c->y.hi = -LARGEST_DRAWN;
    widen(c, c);
    widen(c, evals);
    if (!c->drawn && !evals->drawn) c->x.lo = c->y.lo = 0, c->x.hi = c->y.hi = 1;
}

/* Opens a range that is too thin to hold ticks, so that one point or a constant has a place. */
static void open_range(struct pl_svg_axis *a, double least) {
    double missing = least - (a->hi - a->lo);
    if (missing <= 0) return;
    a->lo -= missing / 2;
    a->hi += missing / 2;
}

/* Returns as many labels as fit next to each other; the last one is the longest. */
static int x_ticks(const struct curve *c) {
    char n[PL_COUNT_TEXT];
    size_t columns = strlen(pl_count_text((uint64_t)fmax(c->x.hi, 0), n)) + 2;
    return (int)pl_u64_min(X_TICKS, (RIGHT - LEFT) / (8 * columns));
}

static void set_axes(struct curve *c, struct curve *evals) {
    find_limits(c, evals);
    open_range(&c->x, 2);
    open_range(&c->y, fmax(1e-6, 0.02 * fmax(fabs(c->y.lo), fabs(c->y.hi))));
    c->x.from = LEFT, c->x.to = RIGHT;
    c->y.from = BOTTOM, c->y.to = TOP;
    c->x.step = fmax(1, pl_svg_nice_step(c->x.hi - c->x.lo, x_ticks(c)));
    c->y.step = pl_svg_nice_step(c->y.hi - c->y.lo, Y_TICKS);
    c->y.lo = floor(c->y.lo / c->y.step) * c->y.step;
    c->y.hi = ceil(c->y.hi / c->y.step) * c->y.step;
    evals->x = c->x;
    evals->y = c->y;
}

static void draw_value(struct pl_text *out, double x, double y, enum pl_svg_anchor anchor,
                       const char *colour, double v, double step) {
    bool plain = fabs(v) < 1e5 && step >= 9e-5;
    int decimals = step < 1 ? (int)ceil(-log10(step) - 1e-9) : 0;
    pl_svg_text(out, x, y, anchor, 12, colour, plain ? "%.*f" : "%.*e", plain ? decimals : 2, v);
}

static void draw_axes(const struct curve *c, struct pl_text *out) {
    static const struct pl_svg_stroke grid = {PL_SVG_GRID, 1, NULL}, base = {PL_SVG_QUIET, 1, NULL};
    double slack = 1e-6 * c->y.step;
    for (double v = pl_svg_first_tick(&c->y); v <= c->y.hi + slack; v += c->y.step) {
        double y = pl_svg_at(&c->y, v);
        pl_svg_line(out, LEFT, y, RIGHT, y, &grid);
        draw_value(out, LEFT - 8, y + 4, PL_SVG_END, PL_SVG_QUIET,
                   fabs(v) < slack ? 0 : v, /* not -0 */
                   c->y.step);
    }
    for (double v = pl_svg_first_tick(&c->x); v <= c->x.hi; v += c->x.step) {
        char n[PL_COUNT_TEXT];
        double x = pl_svg_at(&c->x, v);
        if (v < 0) continue; /* room around step 0 */
        pl_svg_line(out, x, BOTTOM, x, BOTTOM + 5, &base);
        pl_svg_text(out, x, BOTTOM + 20, PL_SVG_MIDDLE, 12, PL_SVG_QUIET, "%s",
                    pl_count_text((uint64_t)v, n));
    }
    pl_svg_line(out, LEFT, BOTTOM, RIGHT, BOTTOM, &base);
    pl_svg_text(out, (LEFT + RIGHT) / 2.0, BOTTOM + 42, PL_SVG_MIDDLE, 13, PL_SVG_QUIET, "step");
    pl_svg_text_up(out, 18, (TOP + BOTTOM) / 2.0, 13, "loss");
}

/* --- curves ---------------------------------------------------------------------------------- */

static void begin_path(struct pl_text *out, const char *colour, double width) {
    pl_text_addf(
        out,
        "<path fill=\"none\" stroke=\"%s\" stroke-width=\"%.1f\" stroke-linejoin=\"round\" "
        "stroke-linecap=\"round\" d=\"",
        colour, width);
}

static void draw_points(const struct curve *c, struct pl_text *out) {
    bool open = false;
    begin_path(out, c->colour, c->width);
    for (uint64_t i = 0; i < c->n; i++) {
        if (can_draw(c, i))
            pl_text_addf(out, "%c%.1f %.1f", open ? 'L' : 'M', pl_svg_at(&c->x, c->steps[i]),
                         pl_svg_at(&c->y, c->losses[i]));
        open = can_draw(c, i); /* a gap is a gap, no line across it */
    }
    pl_text_add(out, "\"/>\n");
    for (uint64_t i = 0; c->n <= DOTS_MOST && i < c->n; i++) {
        if (can_draw(c, i))
            pl_svg_dot(out, pl_svg_at(&c->x, c->steps[i]), pl_svg_at(&c->y, c->losses[i]),
                       2 * c->width, c->colour);
    }
}

/* More points than pixels: each pixel column shows the range of its points, so that no spike is
 * lost and the file stays small. */
static void draw_ranges(const struct curve *c, struct pl_text *out) {
    double lo[COLUMNS + 1], hi[COLUMNS + 1];
    for (int k = 0; k <= COLUMNS; k++)
        lo[k] = LARGEST_DRAWN, hi[k] = -LARGEST_DRAWN;
    for (uint64_t i = 0; i < c->n; i++) {
        if (!can_draw(c, i)) continue;
        int k = (int)(pl_svg_at(&c->x, c->steps[i]) - LEFT);
        lo[k] = fmin(lo[k], c->losses[i]);
        hi[k] = fmax(hi[k], c->losses[i]);
    }
    bool open = false;
    begin_path(out, c->colour, c->width);
    for (int k = 0; k <= COLUMNS; k++) {
        if (lo[k] > hi[k]) continue;
        pl_text_addf(out, "%c%d %.1fV%.1f", open ? 'L' : 'M', LEFT + k, pl_svg_at(&c->y, lo[k]),
                     pl_svg_at(&c->y, hi[k]));
        open = true;
    }
    pl_text_add(out, "\"/>\n");
}

static void draw_curve(const struct curve *c, struct pl_text *out) {
    if (c->n > 2 * COLUMNS)
        draw_ranges(c, out);
    else if (c->drawn)
        draw_points(c, out);
}

/* Writes the last value of a line after its end. */
static void draw_label(const struct curve *c, double y, double value, const char *colour,
                       struct pl_text *out) {
    draw_value(out, RIGHT + 8, y + 4, PL_SVG_START, colour, value, fmax(c->y.step / 100, 1e-4));
}

/* Returns the mean over the points around i: centred, so that the line does not lag after the
 * curve. At the start, where a loss falls fastest, it reaches no further ahead than back. */
static double mean_around(const struct curve *c, uint64_t i, uint64_t reach) {
    reach = pl_u64_min(reach, i);
    uint64_t first = i - reach, last = pl_u64_min(i + reach, c->n - 1), count = 0;
    double sum = 0;
    for (uint64_t k = first; k <= last; k++) {
        if (!can_draw(c, k)) continue;
        sum += c->losses[k];
        count++;
    }
    return sum / (double)count;
}

/* One vertex a pixel column at most, so the cost is columns times reach whatever n. Returns the y
 * of the label. */
static double draw_smoothed(const struct curve *c, struct pl_text *out) {
    uint64_t reach = pl_u64_max(1, c->n / SMOOTH_SHARE);
    double mean = 0, last_x = LEFT;
    bool open = false;
    begin_path(out, SMOOTH_COLOUR, 2.2);
    for (uint64_t i = 0; i < c->n; i++) {
        if (!can_draw(c, i)) continue;
        double x = pl_svg_at(&c->x, c->steps[i]);
        if (open && fabs(x - last_x) < 1 && i + 1 < c->n) continue;
        mean = mean_around(c, i, reach);
        pl_text_addf(out, "%c%.1f %.1f", open ? 'L' : 'M', x, pl_svg_at(&c->y, mean));
        last_x = x;
        open = true;
    }
    pl_text_add(out, "\"/>\n");
    double y = pl_svg_at(&c->y, mean);
    pl_svg_dot(out, last_x, y, 3.5, SMOOTH_COLOUR);
    draw_label(c, y, mean, SMOOTH_COLOUR, out);
    return y;
}

/* The label of the evaluations makes way for the other one, which stands at `taken`. */
static void draw_eval_label(const struct curve *c, double taken, struct pl_text *out) {
    uint64_t last = c->n - 1;
    while (!can_draw(c, last))
        last--;
    const double y = pl_svg_at(&c->y, c->losses[last]);
    double label = y;
    if (fabs(label - taken) < LABEL_HEIGHT)
        label = taken + (y < taken ? -LABEL_HEIGHT : LABEL_HEIGHT);
    if (label < TOP) label = taken + LABEL_HEIGHT;
    if (label > BOTTOM) label = taken - LABEL_HEIGHT;
    draw_label(c, label, c->losses[last], c->colour, out);
}

static void draw_marks(const struct curve *c, const double *marks, uint64_t n,
                       struct pl_text *out) {
    static const struct pl_svg_stroke stroke = {MARK_COLOUR, 1.5, "4 3"};
    for (uint64_t i = 0; i < n; i++) {
        if (!(marks[i] >= c->x.lo && marks[i] <= c->x.hi)) continue;
        double x = pl_svg_at(&c->x, marks[i]);
        pl_svg_line(out, x, TOP, x, BOTTOM, &stroke);
        pl_text_addf(out, "<path d=\"M%.1f %d l-5 -8 h10 z\" fill=\"" MARK_COLOUR "\"/>\n", x, TOP);
    }
}

/* --- words ----------------------------------------------------------------------------------- */

static void draw_legend(bool smoothed, bool evals, bool marked, struct pl_text *out) {
    const struct {
        bool shown;
        const char *text;
        struct pl_svg_stroke stroke;
        double width;
    } entries[] = {
        {true, "each step", {smoothed ? RAW_COLOUR : SMOOTH_COLOUR, 1.5, NULL}, 90},
        {smoothed, "smoothed", {SMOOTH_COLOUR, 2.2, NULL}, 90},
        {evals, "evaluation", {EVAL_COLOUR, 1.5, NULL}, 90},
        {marked, "out of memory, batch halved", {MARK_COLOUR, 1.5, "4 3"}, 210},
    };
    double x = LEFT;
    for (size_t i = 0; i < sizeof entries / sizeof *entries; i++) {
        if (!entries[i].shown) continue;
        pl_svg_line(out, x, 46, x + 22, 46, &entries[i].stroke);
        pl_svg_text(out, x + 28, 50, PL_SVG_START, 12, PL_SVG_QUIET, "%s", entries[i].text);
        x += entries[i].width + 28;
    }
}

/* Says in words that there is no curve, or no whole one. */
static void draw_missing(const struct curve *c, bool evals, struct pl_text *out) {
    if (!c->drawn && !evals)
        pl_svg_text(out, (LEFT + RIGHT) / 2.0, (TOP + BOTTOM) / 2.0, PL_SVG_MIDDLE, 14,
                    PL_SVG_QUIET, "no step was logged yet");
    if (c->drawn < c->n)
        pl_svg_text(out, RIGHT, BOTTOM + 42, PL_SVG_END, 12, PL_SVG_ALARM,
                    "%llu steps without a finite loss are left out",
                    (unsigned long long)(c->n - c->drawn));
}

void pl_svg_loss(const struct pl_loss_curves *curves, const char *title, struct pl_text *out) {
    struct curve c = {.steps = curves->steps, .losses = curves->losses, .n = curves->n},
                 evals = {.steps = curves->eval_steps,
                          .losses = curves->eval_losses,
                          .n = curves->n_evals,
                          .colour = EVAL_COLOUR,
                          .width = 1.5};
    double taken = -LABEL_HEIGHT; /* by no label */
    set_axes(&c, &evals);
    const bool smoothed = c.drawn >= SMOOTH_FROM;
    c.colour = smoothed ? RAW_COLOUR : SMOOTH_COLOUR;
    c.width = 1.2;
    pl_svg_begin(out, WIDTH, HEIGHT, title);
    pl_svg_text(out, LEFT, 26, PL_SVG_START, 16, PL_SVG_INK, "%s", title);
    draw_axes(&c, out);
    draw_curve(&c, out);
    if (smoothed) taken = draw_smoothed(&c, out);
    draw_curve(&evals, out);
    if (evals.drawn) draw_eval_label(&evals, taken, out);
    draw_marks(&c, curves->marks, curves->n_marks, out);
    draw_legend(smoothed, evals.drawn > 0, curves->n_marks > 0, out);
    draw_missing(&c, evals.drawn > 0, out);
    pl_svg_end(out);
}

void pl_svg_loss_of_run(const struct pl_run_log *h, const char *title, struct pl_text *out) {
    const struct pl_figures *steps = &h->steps, *evals = &h->evals;
    struct pl_loss_curves c = {.steps = steps->step,
                               .losses = pl_figures_column(steps, "loss"),
                               .eval_steps = evals->step,
                               .eval_losses = pl_figures_column(evals, "loss"),
                               .marks = h->recoveries.step,
                               .n_marks = h->recoveries.n};
    c.n = c.losses ? steps->n : 0;
    c.n_evals = c.eval_losses ? evals->n : 0;
    pl_svg_loss(&c, title, out);
}
