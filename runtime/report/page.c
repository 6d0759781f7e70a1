#include "runtime/report/page.h"

#include "estimator/base/alloc.h"
#include "estimator/base/json_tree.h"
#include "estimator/config/document.h"
#include "runtime/report/page_text.h"
#include "runtime/report/page_timeline.h"

#include <stdlib.h>
#include <string.h>

#define LABEL_MOST 160 /* bytes of a run's name */

static pl_err no_memory(struct pl_diag *d) {
    return pl_host_oom(d, "the page");
}

/* A copy in UTF-8, as the page is. */
static char *utf8(const char *s) {
    json_t *string = pl_json_string(s);
    char *copy = string ? pl_strdup(json_string_value(string)) : NULL;
    json_decref(string);
    return copy;
}

/* Every setting as it was asked for, with what was decided where it was open. */
static json_t *settings_of(const json_t *receipt) {
    json_t *settings = json_object();
    json_t *asked = json_object_get(json_object_get(receipt, "asked"), "settings");
    json_t *decided = json_object_get(receipt, "decided");
    if (json_is_object(asked)) pl_json_merge(&settings, asked);
    if (json_is_object(decided)) pl_json_merge(&settings, decided);
    return settings;
}

static bool is_taken(const struct pl_page *p, const char *label) {
    for (uint32_t i = 0; i < p->n; i++)
        if (strcmp(p->runs[i].label, label) == 0) return true;
    return false;
}

/* The name of a directory is the last part of its path. */
static void add_last_part(const char *dir, struct pl_text *out) {
    size_t n = strlen(dir);
    while (n > 1 && dir[n - 1] == '/')
        n--;
    size_t from = n;
    while (from && dir[from - 1] != '/')
        from--;
    pl_text_addn(out, dir + (from < n ? from : 0), from < n ? n - from : n);
}

/* A setting is YAML, as a person would write it. NULL: there is none, or no memory (*no_memory). */
static char *text_of_setting(const char *yaml, bool *no_memory) {
    const struct pl_origin origin = {0};
    struct pl_document doc;
    if (!yaml || !*yaml) return NULL;
    const pl_err err = pl_document_parse(&doc, &origin, yaml, strlen(yaml), NULL);
    *no_memory = err == PL_ERR_HOST_OOM;
    if (err != PL_ERR_OK) return NULL;
    const bool is_text = doc.n == 1 && doc.nodes[0].kind == PL_NODE_SCALAR && doc.nodes[0].text[0];
    char *text = is_text ? pl_strdup(doc.nodes[0].text) : NULL;
    *no_memory = is_text && !text;
    pl_document_finish(&doc);
    return text;
}

/* The run's name or that of its directory; the whole path, and then a number, where another run has
 * it. NULL: no memory. */
static char *label_of(const struct pl_page *p, const struct pl_page_run *run) {
    struct pl_text label = {0};
    char *name = text_of_setting(json_string_value(json_object_get(run->settings, "run_name")),
                                 &label.failed);
    if (name)
        pl_text_addn(&label, name, pl_page_cut(name, LABEL_MOST));
    else
        add_last_part(run->dir, &label);
    free(name);
    if (!label.failed && is_taken(p, pl_text_str(&label))) {
        pl_text_finish(&label);
        pl_text_add(&label, run->dir);
    }
    for (uint32_t i = 2; !label.failed && is_taken(p, pl_text_str(&label)); i++) {
        pl_text_finish(&label);
        pl_text_addf(&label, "%s (%u)", run->dir, i);
    }
    if (!label.failed) return label.data;
    pl_text_finish(&label);
    return NULL;
}

static void finish_run(struct pl_page_run *run) {
    free(run->dir);
    free(run->label);
    pl_run_log_finish(&run->log);
    json_decref(run->settings);
    json_decref(run->timeline);
    *run = (struct pl_page_run){0};
}

pl_err pl_page_take(struct pl_page *p, const char *dir, struct pl_run_log *log, json_t *receipt,
                    json_t *timeline, struct pl_diag *d) {
    pl_err err = PL_ERR_OK;
    bool lost = false;
    struct pl_page_run run = {.log = *log};
    *log = (struct pl_run_log){0};
    if (p->n == PL_PAGE_RUNS_MOST) {
        err = pl_diag_set(d, PL_ERR_USAGE, "a page has at most %d runs", PL_PAGE_RUNS_MOST);
        goto out;
    }
    run.dir = utf8(dir);
    if (receipt) run.settings = settings_of(receipt);
    if (timeline) run.timeline = pl_page_timeline(timeline, &lost);
    if (!lost && run.dir && (run.settings || !receipt)) run.label = label_of(p, &run);
    if (run.label)
        p->runs[p->n++] = run;
    else
        err = no_memory(d);
out:
    if (err != PL_ERR_OK) finish_run(&run);
    json_decref(receipt);
    json_decref(timeline);
    return err;
}

void pl_page_finish(struct pl_page *p) {
    for (uint32_t i = 0; i < p->n; i++)
        finish_run(&p->runs[i]);
    *p = (struct pl_page){0};
}
