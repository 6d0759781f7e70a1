/* svg.h - the few shapes the pictures are made of, and axes with ticks at round numbers.
 *
 * In: pixels and plain text.  Out: SVG 1.1 appended to a struct pl_text. Needs: base.
 * Coordinates grow right and down; text is escaped here and nowhere else (pl_svg_add_escaped). */
#ifndef PL_ESTIMATOR_PICTURE_SVG_H
#define PL_ESTIMATOR_PICTURE_SVG_H

#include "estimator/base/text.h"

#include <stdint.h>

#define PL_SVG_INK   "#1f2933" /* titles, marks */
#define PL_SVG_QUIET "#616e7c" /* labels */
#define PL_SVG_GRID  "#e4e7eb"
#define PL_SVG_ALARM "#c81e1e"

enum pl_svg_anchor { PL_SVG_START, PL_SVG_MIDDLE, PL_SVG_END };

struct pl_svg_stroke {
    const char *colour;
    double width;
    const char *dash; /* NULL = solid */
};

/* A linear scale from values to pixels; lo < hi, pixels may run either way. */
struct pl_svg_axis {
    double lo, hi;
    double from, to; /* pixels of lo and hi */
    double step;     /* between ticks */
};

/* Appends text as the content of an element of XML or HTML; it is not for attributes. */
void pl_svg_add_escaped(struct pl_text *out, const char *s);
void pl_svg_begin(struct pl_text *out, int width, int height, const char *title);
void pl_svg_end(struct pl_text *out);
void pl_svg_text(struct pl_text *out, double x, double y, enum pl_svg_anchor anchor, int size,
                 const char *colour, const char *fmt, ...) PL_PRINTF(7, 8);
/* Draws text that reads upwards, with its middle at (x, y). */
void pl_svg_text_up(struct pl_text *out, double x, double y, int size, const char *text);
void pl_svg_line(struct pl_text *out, double x1, double y1, double x2, double y2,
                 const struct pl_svg_stroke *stroke);
void pl_svg_dot(struct pl_text *out, double x, double y, double radius, const char *fill);

/* Returns the smallest of 1, 2, 5 times a power of ten that gives at most `ticks` steps over span >
 * 0. */
double pl_svg_nice_step(double span, int ticks);
double pl_svg_at(const struct pl_svg_axis *a, double v);
/* Returns the first multiple of the step at or above lo; the i-th tick is this plus i steps. */
double pl_svg_first_tick(const struct pl_svg_axis *a);

#endif
