/* svg.c - shapes and axes of the pictures. */
#include "estimator/picture/svg.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>

/* XML 1.0 allows no control character but tab and line ends, escaped or not. */
void pl_svg_add_escaped(struct pl_text *out, const char *s) {
    for (; *s; s++) {
        if (*s == '&')
            pl_text_add(out, "&amp;");
        else if (*s == '<')
            pl_text_add(out, "&lt;");
        else if (*s == '>')
            pl_text_add(out, "&gt;");
        else if ((unsigned char)*s < 0x20)
            pl_text_add(out, " ");
        else
            pl_text_addn(out, s, 1);
    }
}

void pl_svg_begin(struct pl_text *out, int width, int height, const char *title) {
    pl_text_addf(out,
                 "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
                 "viewBox=\"0 0 %d %d\" font-family=\"system-ui, 'DejaVu Sans', sans-serif\">\n"
                 "<title>",
                 width, height, width, height);
    pl_svg_add_escaped(out, title);
    pl_text_add(out, "</title>\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n");
}

void pl_svg_end(struct pl_text *out) {
    pl_text_add(out, "</svg>\n");
}

void pl_svg_text(struct pl_text *out, double x, double y, enum pl_svg_anchor anchor, int size,
                 const char *colour, const char *fmt, ...) {
    static const char *const anchors[] = {"start", "middle", "end"};
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    pl_text_addf(out,
                 "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\" font-size=\"%d\" fill=\"%s\">", x,
                 y, anchors[anchor], size, colour);
    pl_svg_add_escaped(out, text);
    pl_text_add(out, "</text>\n");
}

void pl_svg_text_up(struct pl_text *out, double x, double y, int size, const char *text) {
    pl_text_addf(out,
                 "<text transform=\"translate(%.1f %.1f) rotate(-90)\" text-anchor=\"middle\" "
                 "font-size=\"%d\" fill=\"" PL_SVG_QUIET "\">",
                 x, y, size);
    pl_svg_add_escaped(out, text);
    pl_text_add(out, "</text>\n");
}

void pl_svg_line(struct pl_text *out, double x1, double y1, double x2, double y2,
                 const struct pl_svg_stroke *stroke) {
    pl_text_addf(out,
                 "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"%s\" "
                 "stroke-width=\"%.1f\"",
                 x1, y1, x2, y2, stroke->colour, stroke->width);
    if (stroke->dash) pl_text_addf(out, " stroke-dasharray=\"%s\"", stroke->dash);
    pl_text_add(out, "/>\n");
}

void pl_svg_dot(struct pl_text *out, double x, double y, double radius, const char *fill) {
    pl_text_addf(out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"%.1f\" fill=\"%s\"/>\n", x, y, radius,
                 fill);
}

double pl_svg_nice_step(double span, int ticks) {
    static const double nice[] = {1, 2, 5};
    double power = pow(10, floor(log10(span / ticks)));
    for (int i = 0; i < 3; i++) {
        if (span / (nice[i] * power) <= ticks) return nice[i] * power;
    }
    return 10 * power;
}

double pl_svg_at(const struct pl_svg_axis *a, double v) {
    return a->from + (v - a->lo) / (a->hi - a->lo) * (a->to - a->from);
}

double pl_svg_first_tick(const struct pl_svg_axis *a) {
    /* a hair below lo counts as lo: the limits are sums of steps themselves */
    return ceil(a->lo / a->step - 1e-6) * a->step;
}
