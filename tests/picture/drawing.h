/* drawing.h - reads a picture that was drawn: its words and their positions.
 *
 * Layout is checked by the boxes of the texts: no two touch, none leaves the picture. Letters are
 * taken as 0.62 of the font size wide, which is DejaVu Sans on average. */
#ifndef PL_TESTS_PICTURE_DRAWING_H
#define PL_TESTS_PICTURE_DRAWING_H

#include "estimator/base/text.h"

#include <stdbool.h>

struct drawn_box {
    double left, right, top, bottom;
    const char *at; /* the text, up to `<` */
};

/* Returns the number of an attribute of the element that starts at s; -1 if it has none. */
double drawn_attribute(const char *s, const char *name);
int drawn_count(const struct pl_text *svg, const char *what);
bool drawn_has_text(const struct pl_text *svg, const char *text);
/* Lists boxes of the upright texts, at most `cap`; returns their number. */
int drawn_texts(const struct pl_text *svg, struct drawn_box *boxes, int cap);

/* Every element is closed in turn and by its own name, every attribute is quoted, `&` begins one of
 * the entities of XML, and no figure is not a number. */
void drawn_check_well_formed(const struct pl_text *svg);
/* Checks that words neither touch each other nor leave the picture. */
void drawn_check_layout(const struct pl_text *svg);

#endif
