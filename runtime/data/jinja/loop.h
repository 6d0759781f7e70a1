/* loop.h - a loop that runs: its elements, and what the variable `loop` tells of them. */
#ifndef PL_RUNTIME_DATA_JINJA_LOOP_H
#define PL_RUNTIME_DATA_JINJA_LOOP_H

#include "runtime/data/jinja/run.h"

struct pl_jinja_loop {
    struct pl_jinja_iterator *it;
    struct pl_jinja_value before, current, after; /* ABSENT: there is none, or not looked for */
    int64_t index0;
    size_t length; /* once known */
    bool has_length, ended;
    bool completed; /* a body came to its end: `else` does not run */
};

/* The next element becomes the current one. */
bool pl_jinja_loop_advance(struct pl_jinja_run *r, struct pl_jinja_loop *l, bool *done);
/* The member `name` of `loop`; ABSENT = none. */
bool pl_jinja_loop_member(struct pl_jinja_run *r, struct pl_jinja_loop *loop, const char *name,
                          size_t n, struct pl_jinja_value *out);

#endif
