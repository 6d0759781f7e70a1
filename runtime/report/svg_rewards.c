#include "runtime/report/svg_rewards.h"

#include "runtime/report/svg_panel.h"

#include <math.h>

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

int pl_svg_rewards_height(const struct pl_loss_curves *c) {
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

void pl_svg_rewards(const struct pl_loss_curves *c, int top, struct pl_text *out) {
    for (size_t i = 0; i < PANELS; i++) {
        if (!has_curve(c, i)) continue;
        draw_panel(c, i, top, out);
        top += PANEL_HEIGHT;
    }
}
