#include "runtime/report/page_timeline.h"

#include "estimator/base/alloc.h"
#include "estimator/base/json_tree.h"
#include "estimator/program/program.h"

#include <stdlib.h>
#include <string.h>

enum {
    FORM = 1,
    PHASES_MOST = 16,
    COLUMNS_MOST = 4000, /* of a phase */
    LARGEST_MOST = 8,    /* tensors named at a peak */
    NAMES_MOST = 512,
    NAME_MOST = 120, /* bytes */
};
#define BYTES_MOST (INT64_C(1) << 52) /* a script has doubles */

/* --- checks ---------------------------------------------------------------------------------- */

static bool is_count(const json_t *v) {
    return json_is_integer(v) && json_integer_value(v) >= 0 && json_integer_value(v) < BYTES_MOST;
}

static bool are_counts(const json_t *list, size_t n, json_int_t least) {
    const json_t *v;
    size_t i;
    if (!json_is_array(list) || json_array_size(list) != n) return false;
    json_array_foreach(list, i, v) if (!json_is_integer(v) || json_integer_value(v) < least ||
                                       json_integer_value(v) >= BYTES_MOST) return false;
    return true;
}

static bool are_names(const json_t *list, size_t n) {
    const json_t *v;
    size_t i;
    if (!json_is_array(list) || json_array_size(list) != n) return false;
    json_array_foreach(list, i, v) if (!json_is_string(v)) return false;
    return true;
}

static bool is_largest(const json_t *list) {
    const json_t *t;
    size_t i;
    if (!json_is_array(list) || json_array_size(list) > LARGEST_MOST) return false;
    json_array_foreach(list, i, t) if (!json_is_string(json_object_get(t, "name")) ||
                                       !is_count(json_object_get(t, "bytes"))) return false;
    return true;
}

/* Only the categories that there are have a colour. */
static bool is_category(const char *name) {
    for (int c = 0; c < PL_CATEGORY_COUNT; c++)
        if (strcmp(name, pl_category_name((enum pl_category)c)) == 0) return true;
    return false;
}

static bool is_live(json_t *live, size_t n) {
    const char *category;
    json_t *list;
    if (!json_is_object(live)) return false;
    json_object_foreach(live, category,
                        list) if (!is_category(category) || !are_counts(list, n, 0)) return false;
    return true;
}

/* Operations that increase, within the phase. */
static bool are_ops(const json_t *list, size_t n, json_int_t ops) {
    json_int_t last = -1;
    const json_t *v;
    size_t i;
    if (!are_counts(list, n, 0)) return false;
    json_array_foreach(list, i, v) {
        if (json_integer_value(v) <= last || json_integer_value(v) >= ops) return false;
        last = json_integer_value(v);
    }
    return true;
}

static bool is_phase(const json_t *phase) {
    static const char *const counts[] = {"ops", "backward_op", "peak_op"};
    const json_t *op = json_object_get(phase, "op"), *name = json_object_get(phase, "name");
    const size_t n = json_array_size(op);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        if (!is_count(json_object_get(phase, counts[i]))) return false;
    return n && n <= COLUMNS_MOST && json_is_string(name) &&
           json_string_length(name) <= NAME_MOST &&
           are_ops(op, n, json_integer_value(json_object_get(phase, "ops"))) &&
           are_names(json_object_get(phase, "what"), n) &&
           are_counts(json_object_get(phase, "layer"), n, -1) &&
           is_live(json_object_get(phase, "live"), n) &&
           is_largest(json_object_get(phase, "largest"));
}

static bool is_job(json_t *job) {
    const char *category;
    json_t *bytes;
    if (!json_is_object(job)) return false;
    json_object_foreach(job, category,
                        bytes) if (!is_category(category) || !is_count(bytes)) return false;
    return true;
}

static bool is_timeline(const json_t *o) {
    const json_t *phases = json_object_get(o, "phases"), *phase;
    const json_t *budget = json_object_get(o, "budget_bytes");
    size_t i;
    if (json_integer_value(json_object_get(o, "timeline")) != FORM || !json_array_size(phases) ||
        json_array_size(phases) > PHASES_MOST || !is_count(json_object_get(o, "arena_bytes")) ||
        (!is_count(budget) && !json_is_null(budget)) || !is_job(json_object_get(o, "job")))
        return false;
    json_array_foreach(phases, i, phase) if (!is_phase(phase)) return false;
    return true;
}

/* --- names as indices ------------------------------------------------------------------------ */

/* Returns the index of a name in the list, where it is put if it is new; -1: no memory, or too many
 * names. */
static json_int_t index_of(json_t *names, json_t *name) {
    const size_t n = json_array_size(names);
    for (size_t i = 0; i < n; i++)
        if (strcmp(json_string_value(json_array_get(names, i)), json_string_value(name)) == 0)
            return (json_int_t)i;
    if (n >= NAMES_MOST || json_array_append(names, name) != 0) return -1;
    return (json_int_t)n;
}

static json_t *indices(json_t *names, const json_t *what) {
    json_t *list = json_array(), *name;
    size_t i;
    json_array_foreach(what, i, name) {
        const json_int_t at = index_of(names, name);
        pl_json_append(&list, at < 0 ? NULL : json_integer(at));
    }
    return list;
}

/* The members that are drawn, and no other. */
static json_t *phase_drawn(const json_t *phase, json_t *names) {
    static const char *const kept[] = {"name", "ops",   "backward_op", "peak_op",
                                       "op",   "layer", "live",        "largest"};
    json_t *o = json_object();
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
        pl_json_set(&o, kept[i], json_incref(json_object_get(phase, kept[i])));
    pl_json_set(&o, "what", indices(names, json_object_get(phase, "what")));
    return o;
}

json_t *pl_page_timeline(const json_t *file, bool *no_memory) {
    const json_t *phases = json_object_get(file, "phases"), *phase;
    json_t *names = NULL, *drawn = NULL, *o = NULL;
    size_t i;
    *no_memory = false;
    if (!is_timeline(file)) return NULL;
    names = json_array();
    drawn = names ? json_array() : NULL;
    json_array_foreach(phases, i, phase) if (names)
        pl_json_append(&drawn, phase_drawn(phase, names));
    o = json_pack("{s:O, s:O, s:O, s:o, s:o}", "arena_bytes", json_object_get(file, "arena_bytes"),
                  "budget_bytes", json_object_get(file, "budget_bytes"), "job",
                  json_object_get(file, "job"), "names", names, "phases", drawn);
    *no_memory = !o;
    return o;
}

/* --- fewer columns --------------------------------------------------------------------------- */

static json_int_t item(const json_t *list, size_t i) {
    return json_integer_value(json_array_get(list, i));
}

static json_int_t live_bytes(json_t *live, size_t i) {
    json_int_t sum = 0;
    const char *category;
    json_t *list;
    json_object_foreach(live, category, list) sum += item(list, i);
    return sum;
}

/* The column of [from, to) with the peak of the phase, else the fullest. */
static size_t stands_for(const json_t *phase, size_t from, size_t to) {
    json_t *live = json_object_get(phase, "live");
    const json_t *op = json_object_get(phase, "op");
    const json_int_t peak = json_integer_value(json_object_get(phase, "peak_op"));
    size_t best = from;
    for (size_t i = from; i < to; i++) {
        if (item(op, i) == peak) return i;
        if (live_bytes(live, i) > live_bytes(live, best)) best = i;
    }
    return best;
}

static json_t *picked(const json_t *list, const size_t *at, size_t n) {
    json_t *out = json_array();
    for (size_t i = 0; i < n; i++)
        pl_json_append(&out, json_incref(json_array_get(list, at[i])));
    return out;
}

static json_t *live_picked(json_t *live, const size_t *at, size_t n) {
    json_t *out = json_object(), *list;
    const char *category;
    json_object_foreach(live, category, list) pl_json_set(&out, category, picked(list, at, n));
    return out;
}

static json_t *phase_thinned(json_t *phase, size_t columns) {
    static const char *const lists[] = {"op", "what", "layer"};
    const size_t n = json_array_size(json_object_get(phase, "op"));
    if (n <= columns) return json_incref(phase);
    size_t *at = pl_malloc(columns * sizeof *at);
    json_t *o = at ? json_copy(phase) : NULL;
    for (size_t i = 0; at && i < columns; i++)
        at[i] = stands_for(phase, i * n / columns, (i + 1) * n / columns);
    for (size_t i = 0; o && i < sizeof lists / sizeof *lists; i++)
        pl_json_set(&o, lists[i], picked(json_object_get(phase, lists[i]), at, columns));
    if (o) pl_json_set(&o, "live", live_picked(json_object_get(phase, "live"), at, columns));
    free(at);
    return o;
}

json_t *pl_page_timeline_thinned(const json_t *timeline, size_t columns) {
    const json_t *phases = json_object_get(timeline, "phases");
    json_t *o = json_object(), *thin = json_array(), *phase;
    size_t i;
    if (o && json_object_update(o, (json_t *)(uintptr_t)timeline) != 0) {
        json_decref(o);
        o = NULL;
    }
    json_array_foreach(phases, i, phase) pl_json_append(&thin, phase_thinned(phase, columns));
    pl_json_set(&o, "phases", thin);
    return o;
}
