/* filters.h - filters; between filters.c, filters_list.c and methods.c, which share their work.
 *
 * In: a call.  Out: a value.  Needs: run.
 * Use: FILTER(name) { ... } defines the filter that the table of filters.c names. */
#ifndef PL_RUNTIME_DATA_JINJA_FILTERS_H
#define PL_RUNTIME_DATA_JINJA_FILTERS_H

#include "runtime/data/jinja/run.h"

#define FILTER(name)                                                                               \
    bool pl_jinja_filter_##name(struct pl_jinja_run *r, const struct pl_jinja_call *c,             \
                                struct pl_jinja_value *out)

/* of values (filters.c) */
FILTER(string);
FILTER(safe);
FILTER(escape);
FILTER(forceescape);
FILTER(format);
FILTER(upper);
FILTER(lower);
FILTER(capitalize);
FILTER(title);
FILTER(trim);
FILTER(replace);
FILTER(tojson);
FILTER(indent);
FILTER(int);
FILTER(float);
FILTER(abs);
FILTER(round);
FILTER(default);
FILTER(length);
FILTER(attr);
/* of lists (filters_list.c) */
FILTER(items);
FILTER(join);
FILTER(list);
FILTER(map);
FILTER(select);
FILTER(reject);
FILTER(selectattr);
FILTER(rejectattr);
FILTER(dictsort);
FILTER(sort);
FILTER(unique);
FILTER(min);
FILTER(max);
FILTER(sum);
FILTER(first);
FILTER(last);
FILTER(reverse);

/* shared with the methods of strings (methods.c) */
bool pl_jinja_change_case(struct pl_jinja_run *r, const struct pl_jinja_value *v,
                          enum pl_jinja_case how, struct pl_jinja_value *out);
/* str.replace; count below 0: all of them */
bool pl_jinja_replace(struct pl_jinja_run *r, const struct pl_jinja_value *v,
                      const struct pl_jinja_value *old, const struct pl_jinja_value *new,
                      int64_t count, struct pl_jinja_value *out);
/* str.splitlines(); a further line feed may be imagined at the end. */
bool pl_jinja_split_lines(struct pl_jinja_run *r, const struct pl_jinja_value *v, bool one_more,
                          struct pl_jinja_list **out);

#endif
