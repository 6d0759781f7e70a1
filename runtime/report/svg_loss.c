/* svg_loss.c - the loss over the steps of a run, and that of its evaluations; of a run that learned
 * from preferences its rewards below it. */
#include "runtime/report/report.h"
#include "runtime/report/run_log.h"
#include "runtime/report/svg_panel.h"

#include <math.h>

enum {
    WIDTH = 880,
    HEIGHT = 420,
    TOP = 66,
    BOTTOM = 356,
};

static const char *const rewards[PL_REWARD_FIGURES] = {
#define X(id, name) name,
    PL_REWARD_FIGURES_TABLE(X)
#undef X
};

#define RAW_COLOUR    "#9db8d9"
#define SMOOTH_COLOUR "#1d4f91"
#define EVAL_COLOUR   "#0d8a72"
#define MARK_COLOUR   "#d97706"

/* The label of the evaluations makes way for the other one, which stands at `taken`. */
static void draw_eval_label(const struct pl_panel *p, const struct pl_panel_curve *c, double taken,
                            struct pl_text *out) {
    const double last = pl_panel_last(c), y = pl_svg_at(&p->y, last);
    double label = y;
    if (fabs(label - taken) < PL_PANEL_LABEL_HEIGHT)
        label = taken + (y < taken ? -PL_PANEL_LABEL_HEIGHT : PL_PANEL_LABEL_HEIGHT);
    if (label < p->top) label = taken + PL_PANEL_LABEL_HEIGHT;
    if (label > p->bottom) label = taken - PL_PANEL_LABEL_HEIGHT;
    pl_panel_draw_label(p, label, last, c->colour, out);
}

static void draw_marks(const struct pl_panel *p, const double *marks, uint64_t n,
                       struct pl_text *out) {
    static const struct pl_svg_stroke stroke = {MARK_COLOUR, 1.5, "4 3"};
    for (uint64_t i = 0; i < n; i++) {
        if (!(marks[i] >= p->x.lo && marks[i] <= p->x.hi)) continue;
        double x = pl_svg_at(&p->x, marks[i]);
        pl_svg_line(out, x, p->top, x, p->bottom, &stroke);
        pl_text_addf(out, "<path d=\"M%.1f %.0f l-5 -8 h10 z\" fill=\"" MARK_COLOUR "\"/>\n", x,
                     p->top);
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
    double x = PL_PANEL_LEFT;
    for (size_t i = 0; i < sizeof entries / sizeof *entries; i++) {
        if (!entries[i].shown) continue;
        pl_svg_line(out, x, 46, x + 22, 46, &entries[i].stroke);
        pl_svg_text(out, x + 28, 50, PL_SVG_START, 12, PL_SVG_QUIET, "%s", entries[i].text);
        x += entries[i].width + 28;
    }
}

/* Says in words that there is no curve, or no whole one. */
static void draw_missing(const struct pl_panel_curve *c, bool evals, struct pl_text *out) {
    if (!c->drawn && !evals)
        pl_svg_text(out, (PL_PANEL_LEFT + PL_PANEL_RIGHT) / 2.0, (TOP + BOTTOM) / 2.0,
                    PL_SVG_MIDDLE, 14, PL_SVG_QUIET, "no step was logged yet");
    if (c->drawn < c->n)
        pl_svg_text(out, PL_PANEL_RIGHT, BOTTOM + 42, PL_SVG_END, 12, PL_SVG_ALARM,
                    "%llu steps without a finite loss are left out",
                    (unsigned long long)(c->n - c->drawn));
}

static void draw_loss(const struct pl_loss_curves *curves, struct pl_text *out) {
    struct pl_panel p = {.top = TOP, .bottom = BOTTOM, .label = "loss"};
    struct pl_panel_curve both[] = {
        {.steps = curves->steps, .values = curves->losses, .n = curves->n, .width = 1.2},
        {.steps = curves->eval_steps,
         .values = curves->eval_losses,
         .n = curves->n_evals,
         .colour = EVAL_COLOUR,
         .width = 1.5}};
    struct pl_panel_curve *c = &both[0], *evals = &both[1];
    double taken = -PL_PANEL_LABEL_HEIGHT, last; /* by no label */
    pl_panel_set_axes(&p, both, 2);
    const bool smoothed = c->drawn >= PL_PANEL_SMOOTH_FROM;
    c->colour = smoothed ? RAW_COLOUR : SMOOTH_COLOUR;
    pl_panel_draw_axes(&p, out);
    pl_panel_draw_curve(&p, c, out);
    if (smoothed) {
        taken = pl_panel_draw_smoothed(&p, c, SMOOTH_COLOUR, &last, out);
        pl_panel_draw_label(&p, taken, last, SMOOTH_COLOUR, out);
    }
    pl_panel_draw_curve(&p, evals, out);
    if (evals->drawn) draw_eval_label(&p, evals, taken, out);
    draw_marks(&p, curves->marks, curves->n_marks, out);
    draw_legend(smoothed, evals->drawn > 0, curves->n_marks > 0, out);
    draw_missing(c, evals->drawn > 0, out);
}

/* --- rewards ---------------------------------------------------------------------------------- */

enum {
    PANEL_HEIGHT = 290, /* of all of a panel */
    CURVES_AT = 36,     /* the place of its curves in it */
    CURVES_HEIGHT = 190,
    LINES_MOST = 4,
};

struct line {
    const char *name; /* NULL ends the list */
    enum pl_reward_figure figure;
    bool of_evals;
    const char *colour, *faint; /* faint: of single steps, where they are smoothed */
};

static const struct {
    const char *label;
    struct line lines[LINES_MOST + 1];
} panels[] = {
    {"reward",
     {{"chosen", PL_REWARD_CHOSEN, false, "#1d4f91", "#c3d3e8"},
      {"rejected", PL_REWARD_REJECTED, false, "#b4430f", "#f2cdb8"},
      {"margin", PL_REWARD_MARGIN, false, "#6d28d9", "#d8caf4"},
      {"margin, evaluation", PL_REWARD_MARGIN, true, "#0d8a72", NULL}}},
    {"reward accuracy",
     {{"training", PL_REWARD_ACCURACY, false, "#1d4f91", "#9db8d9"},
      {"evaluation", PL_REWARD_ACCURACY, true, "#0d8a72", NULL}}},
};
#define PANELS (sizeof panels / sizeof *panels)

static struct pl_panel_curve curve_of(const struct pl_loss_curves *c, const struct line *l) {
    const struct pl_reward_columns *r = &c->rewards[l->figure];
    const double *values = l->of_evals ? r->of_evals : r->of_steps;
    return (struct pl_panel_curve){.steps = l->of_evals ? c->eval_steps : c->steps,
                                   .values = values,
                                   .n = !values       ? 0
                                        : l->of_evals ? c->n_evals
                                                      : c->n,
                                   .colour = l->colour,
                                   .width = 1.5};
}

static bool has_curve(const struct pl_loss_curves *c, size_t panel) {
    for (const struct line *l = panels[panel].lines; l->name; l++)
        if (curve_of(c, l).n) return true;
    return false;
}

/* Returns the pixels that the panels take; 0: there are none. */
static int rewards_height(const struct pl_loss_curves *c) {
    int height = 0;
    for (size_t i = 0; i < PANELS; i++)
        height += has_curve(c, i) ? PANEL_HEIGHT : 0;
    return height;
}

/* The figure at the end of a line. */
struct label {
    double y, value;
    const char *colour;
};

static void insert_label(struct label *labels, uint32_t n, struct label x) {
    for (; n > 0 && labels[n - 1].y > x.y; n--)
        labels[n] = labels[n - 1];
    labels[n] = x;
}

/* Labels from the lowest up; one that is too near the one below makes way. */
static void draw_labels(const struct pl_panel *p, struct label *labels, uint32_t n,
                        struct pl_text *out) {
    double lowest = p->bottom;
    for (uint32_t i = n; i-- > 0; lowest = labels[i].y - PL_PANEL_LABEL_HEIGHT) {
        labels[i].y = fmin(labels[i].y, lowest);
        pl_panel_draw_label(p, labels[i].y, labels[i].value, labels[i].colour, out);
    }
}

static struct label draw_line(const struct pl_panel *p, const struct line *l,
                              struct pl_panel_curve *c, struct pl_text *out) {
    const bool smoothed = l->faint && c->drawn >= PL_PANEL_SMOOTH_FROM;
    struct label label = {.colour = l->colour};
    if (smoothed) c->colour = l->faint;
    pl_panel_draw_curve(p, c, out);
    if (smoothed) {
        label.y = pl_panel_draw_smoothed(p, c, l->colour, &label.value, out);
        return label;
    }
    label.value = pl_panel_last(c);
    label.y = pl_svg_at(&p->y, label.value);
    return label;
}

static void draw_panel(const struct pl_loss_curves *c, size_t panel, int top, struct pl_text *out) {
    const struct line *lines = panels[panel].lines;
    struct pl_panel p = {.top = top + CURVES_AT,
                         .bottom = top + CURVES_AT + CURVES_HEIGHT,
                         .label = panels[panel].label};
    struct pl_panel_curve curves[LINES_MOST];
    struct label labels[LINES_MOST];
    uint32_t n = 0, n_labels = 0;
    double x = PL_PANEL_LEFT;
    for (; lines[n].name; n++)
        curves[n] = curve_of(c, &lines[n]);
    pl_panel_set_axes(&p, curves, n);
    pl_panel_draw_axes(&p, out);
    for (uint32_t i = 0; i < n; i++) {
        if (!curves[i].drawn) continue;
        const struct pl_svg_stroke stroke = {lines[i].colour, 2, NULL};
        pl_svg_line(out, x, top + 16, x + 22, top + 16, &stroke);
        pl_svg_text(out, x + 28, top + 20, PL_SVG_START, 12, PL_SVG_QUIET, "%s", lines[i].name);
        x += 118;
        insert_label(labels, n_labels++, draw_line(&p, &lines[i], &curves[i], out));
    }
    draw_labels(&p, labels, n_labels, out);
}

static void draw_rewards(const struct pl_loss_curves *c, int top, struct pl_text *out) {
    for (size_t i = 0; i < PANELS; i++) {
        if (!has_curve(c, i)) continue;
        draw_panel(c, i, top, out);
        top += PANEL_HEIGHT;
    }
}

/* --- the picture ------------------------------------------------------------------------------ */

void pl_svg_loss(const struct pl_loss_curves *curves, const char *title, struct pl_text *out) {
    pl_svg_begin(out, WIDTH, HEIGHT + rewards_height(curves), title);
    pl_svg_text(out, PL_PANEL_LEFT, 26, PL_SVG_START, 16, PL_SVG_INK, "%s", title);
    draw_loss(curves, out);
    draw_rewards(curves, HEIGHT, out);
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
    for (int i = 0; i < PL_REWARD_FIGURES; i++)
        c.rewards[i] = (struct pl_reward_columns){pl_figures_column(steps, rewards[i]),
                                                  pl_figures_column(evals, rewards[i])};
    pl_svg_loss(&c, title, out);
}
