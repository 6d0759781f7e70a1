/* page_tables.c - what happened to the runs, and how they were set. */
#include "estimator/base/units.h"
#include "estimator/picture/svg.h"
#include "runtime/report/page_parts.h"
#include "runtime/report/page_text.h"

#include <string.h>

enum {
    EVENTS_MOST = 100, /* rows of one run; the rest is counted */
    SKIPS_NAMED = 12,
    WORDS_MOST = 200,    /* bytes of a cause */
    SETTING_MOST = 300,  /* bytes of a value, or of a name */
    SETTINGS_MOST = 400, /* rows */
};

/* --- events ---------------------------------------------------------------------------------- */

static void open_row(const struct pl_page *p, uint32_t run, double step, const char *kind,
                     struct pl_text *out) {
    pl_text_add(out, "<tr>");
    pl_page_add_run(p, run, out);
    pl_text_addf(out, "</th><td>%.15g</td><td class=\"left\">%s</td><td class=\"left wrap\">", step,
                 kind);
}

static void close_row(struct pl_text *out) {
    pl_text_add(out, "</td></tr>\n");
}

static void add_bytes_of(const json_t *event, const char *before, const char *key,
                         struct pl_text *out) {
    const json_t *v = json_object_get(event, key);
    char text[PL_BYTES_TEXT];
    if (json_is_integer(v) && json_integer_value(v) > 0)
        pl_text_addf(out, ", %s %s", pl_bytes_text((uint64_t)json_integer_value(v), text), before);
}

static long long integer_of(const json_t *event, const char *key) {
    return (long long)json_integer_value(json_object_get(event, key));
}

static void add_recovery(const struct pl_page *p, uint32_t run, const json_t *event,
                         struct pl_text *out) {
    const char *cause = json_string_value(json_object_get(event, "cause"));
    const char *what = json_string_value(json_object_get(event, "what"));
    open_row(p, run, json_number_value(json_object_get(event, "step")), "out of memory", out);
    pl_text_addf(out, "micro-batch %lld → %lld, %lld micro-batches a step",
                 integer_of(event, "old_batch_size"), integer_of(event, "new_batch_size"),
                 integer_of(event, "gradient_accumulation_steps"));
    add_bytes_of(event, "requested", "requested_bytes", out);
    add_bytes_of(event, "free", "free_bytes", out);
    if (cause || what) pl_text_add(out, "; ");
    pl_page_add_text(cause ? cause : "", WORDS_MOST, out);
    if (what) {
        pl_text_add(out, cause ? ": " : "");
        pl_page_add_text(what, WORDS_MOST, out);
    }
    close_row(out);
}

/* One row for all of them: fp16 may skip many. */
static bool add_skips(const struct pl_page *p, uint32_t run, struct pl_text *out) {
    const struct pl_figures *steps = &p->runs[run].log.steps;
    const double *skipped = pl_figures_column(steps, "skipped");
    struct pl_text named = {0};
    uint64_t n = 0, first = steps->n;
    for (uint64_t i = 0; skipped && i < steps->n; i++) {
        if (skipped[i] != 1) continue;
        if (!n++) first = i;
        if (n <= SKIPS_NAMED) pl_text_addf(&named, "%s%.15g", n > 1 ? ", " : "", steps->step[i]);
    }
    if (n) {
        open_row(p, run, steps->step[first], "skipped", out);
        pl_text_addf(out, "%llu %s: gradients overflowed fp16 in %s%s", (unsigned long long)n,
                     n == 1 ? "step" : "steps", pl_text_str(&named),
                     n > SKIPS_NAMED ? " and later ones" : "");
        close_row(out);
    }
    out->failed |= named.failed;
    pl_text_finish(&named);
    return n > 0;
}

static bool add_events_of(const struct pl_page *p, uint32_t run, struct pl_text *out) {
    const struct pl_run_log *log = &p->runs[run].log;
    const size_t n = json_array_size(log->recovery_events);
    bool any = n > 0 || log->resumes.n > 0;
    for (size_t i = 0; i < n && i < EVENTS_MOST; i++)
        add_recovery(p, run, json_array_get(log->recovery_events, i), out);
    if (n > EVENTS_MOST) {
        open_row(p, run, log->recoveries.step[EVENTS_MOST], "out of memory", out);
        pl_text_addf(out, "and %llu more recoveries", (unsigned long long)(n - EVENTS_MOST));
        close_row(out);
    }
    for (uint64_t i = 0; i < log->resumes.n && i < EVENTS_MOST; i++) {
        open_row(p, run, log->resumes.step[i], "resumed", out);
        pl_text_add(out, "continued after this step");
        close_row(out);
    }
    return add_skips(p, run, out) || any;
}

void pl_page_add_events(const struct pl_page *p, struct pl_text *out) {
    struct pl_text rows = {0};
    bool any = false;
    for (uint32_t i = 0; i < p->n; i++)
        any = add_events_of(p, i, &rows) || any;
    if (any) {
        pl_text_add(out, "<div class=\"table\" tabindex=\"0\" role=\"region\" "
                         "aria-labelledby=\"events-title\"><table id=\"events\">\n<thead><tr>"
                         "<th scope=\"col\">Run</th><th scope=\"col\">Step</th>"
                         "<th scope=\"col\" class=\"left\">Event</th>"
                         "<th scope=\"col\" class=\"left\">Details</th></tr></thead>\n<tbody>\n");
        pl_text_add(out, pl_text_str(&rows));
        pl_text_add(out, "</tbody></table></div>\n");
    } else {
        pl_text_add(out,
                    "<p class=\"none\">No step ran out of memory, none was skipped, and no run "
                    "was resumed.</p>\n");
    }
    out->failed |= rows.failed;
    pl_text_finish(&rows);
}

/* --- settings -------------------------------------------------------------------------------- */

static const char *setting(const struct pl_page *p, uint32_t run, const char *key) {
    return json_string_value(json_object_get(p->runs[run].settings, key));
}

/* A run whose settings are not known tells nothing. */
static bool differs(const struct pl_page *p, const char *key) {
    uint32_t first = 0;
    while (first < p->n && !p->runs[first].settings)
        first++;
    for (uint32_t i = first + 1; i < p->n; i++) {
        const char *a = setting(p, first, key), *b = setting(p, i, key);
        if (!p->runs[i].settings || (a && b ? strcmp(a, b) == 0 : a == b)) continue;
        /* These name a run and its place: they differ in any case. */
        return strcmp(key, "output_dir") != 0 && strcmp(key, "run_name") != 0;
    }
    return false;
}

/* Lists the keys of all runs, each once; NULL: no memory. */
static json_t *all_keys(const struct pl_page *p) {
    json_t *keys = json_object();
    for (uint32_t i = 0; keys && i < p->n; i++)
        if (p->runs[i].settings && json_object_update_missing(keys, p->runs[i].settings) != 0) {
            json_decref(keys);
            return NULL;
        }
    return keys;
}

/* Returns the number of rows. */
static uint32_t add_rows(const struct pl_page *p, json_t *keys, bool all, struct pl_text *out) {
    uint32_t n = 0;
    const char *key;
    json_t *unused;
    json_object_foreach(keys, key, unused) {
        (void)unused;
        if (n == SETTINGS_MOST || (!all && !differs(p, key))) continue;
        n++;
        pl_text_add(out, "<tr><th scope=\"row\">");
        pl_page_add_text(key, SETTING_MOST, out);
        pl_text_add(out, "</th>");
        for (uint32_t i = 0; i < p->n; i++) {
            const char *value = setting(p, i, key);
            pl_text_add(out, "<td class=\"wrap\">");
            pl_page_add_text(value ? value : "-", SETTING_MOST, out);
            pl_text_add(out, "</td>");
        }
        pl_text_add(out, "</tr>\n");
    }
    return n;
}

static void add_settings_table(const struct pl_page *p, const char *id, const struct pl_text *rows,
                               struct pl_text *out) {
    pl_text_addf(out,
                 "<div class=\"table\" tabindex=\"0\" role=\"region\" "
                 "aria-labelledby=\"settings-title\"><table id=\"%s\">\n<thead><tr>"
                 "<th scope=\"col\">Setting</th>",
                 id);
    for (uint32_t i = 0; i < p->n; i++) {
        pl_text_add(out, "<th scope=\"col\"><span class=\"name\">");
        pl_svg_add_escaped(out, p->runs[i].label);
        pl_text_add(out, "</span></th>");
    }
    pl_text_add(out, "</tr></thead>\n<tbody>\n");
    pl_text_add(out, pl_text_str(rows));
    pl_text_add(out, "</tbody></table></div>\n");
}

static void add_differences(const struct pl_page *p, json_t *keys, struct pl_text *out) {
    struct pl_text rows = {0};
    if (p->n < 2) return;
    if (add_rows(p, keys, false, &rows))
        add_settings_table(p, "differences", &rows, out);
    else
        pl_text_add(out, "<p class=\"none\">The settings of the runs are the same.</p>\n");
    out->failed |= rows.failed;
    pl_text_finish(&rows);
}

void pl_page_add_settings(const struct pl_page *p, struct pl_text *out) {
    struct pl_text rows = {0};
    json_t *keys = all_keys(p);
    out->failed |= !keys;
    if (keys && !json_object_size(keys)) {
        pl_text_add(out, "<p class=\"none\">No run has a receipt.json that could be read.</p>\n");
    } else if (keys) {
        add_differences(p, keys, out);
        add_rows(p, keys, true, &rows);
        pl_text_add(out, p->n > 1 ? "<details><summary>All settings</summary>\n"
                                  : "<details open><summary>All settings</summary>\n");
        add_settings_table(p, "settings", &rows, out);
        pl_text_add(out, "</details>\n");
    }
    out->failed |= rows.failed;
    pl_text_finish(&rows);
    json_decref(keys);
}
