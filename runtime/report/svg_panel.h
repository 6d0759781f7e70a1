/* svg_panel.h - a panel of a picture: curves over steps with axes of their own.
 *
 * In: columns of figures.  Out: SVG.  Needs: svg.h, report.h. Private to the room.
 *   N1  a point that no picture has room for is a gap of its curve, and no part of the axes
 *   N2  more points than pixels become the ranges of their pixel columns: no spike is lost, and the
 *       picture stays small
 * Use: struct pl_panel p = {.top = 66, .bottom = 356, .label = "loss"};
 *      pl_panel_set_axes(&p, curves, n); pl_panel_draw_axes(&p, out);
 *      pl_panel_draw_curve(&p, &curves[0], out); */
#ifndef PL_RUNTIME_REPORT_SVG_PANEL_H
#define PL_RUNTIME_REPORT_SVG_PANEL_H

#include "estimator/picture/svg.h"

#include <stdbool.h>

enum {
    PL_PANEL_LEFT = 88,
    PL_PANEL_RIGHT = 800,
    PL_PANEL_SMOOTH_FROM = 8,   /* points; below, the raw line says it all */
    PL_PANEL_LABEL_HEIGHT = 15, /* of a figure at the right end of a line */
};

struct pl_panel {
    double top, bottom; /* pixels */
    const char *label;  /* of its figures */
    struct pl_svg_axis x, y;
};

struct pl_panel_curve {
    const double *steps, *values;
    uint64_t n, drawn; /* points, and those that can be drawn */
    const char *colour;
    double width;
};

/* Chooses the axes that hold these curves, and counts their points. */
void pl_panel_set_axes(struct pl_panel *p, struct pl_panel_curve *curves, uint32_t n);
void pl_panel_draw_axes(const struct pl_panel *p, struct pl_text *out);
void pl_panel_draw_curve(const struct pl_panel *p, const struct pl_panel_curve *c,
                         struct pl_text *out);
/* Draws the mean around each point, and a dot at its end; the value there goes to *last. Returns
 * its y. */
double pl_panel_draw_smoothed(const struct pl_panel *p, const struct pl_panel_curve *c,
                              const char *colour, double *last, struct pl_text *out);
/* Returns the last value that can be drawn; the curve has one. */
double pl_panel_last(const struct pl_panel_curve *c);
/* Writes a value after the right end of the panel. */
void pl_panel_draw_label(const struct pl_panel *p, double y, double value, const char *colour,
                         struct pl_text *out);

#endif
