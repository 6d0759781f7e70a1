/* page_write.c - the template of a page, with the sections put into it. */
#include "estimator/picture/svg.h"
#include "runtime/report/page_files.h"
#include "runtime/report/page_parts.h"
#include "runtime/report/report.h"

#include <string.h>

/* Without JavaScript the page is loaded again by this. */
static void add_refresh(const struct pl_page *p, struct pl_text *out) {
    if (p->refresh_seconds)
        pl_text_addf(out, "<noscript><meta http-equiv=\"refresh\" content=\"%u\"></noscript>\n",
                     p->refresh_seconds);
}

static void add_title(const struct pl_page *p, struct pl_text *out) {
    if (p->n == 1)
        pl_svg_add_escaped(out, p->runs[0].label);
    else
        pl_text_addf(out, "%u runs", p->n);
}

static void add_state(const struct pl_page *p, struct pl_text *out) {
    uint32_t live = 0, ended = 0;
    for (uint32_t i = 0; i < p->n; i++) {
        live += p->runs[i].lives;
        ended += p->runs[i].log.ended;
    }
    if (live)
        pl_text_addf(out, "%u of %u %s still %s.", live, p->n, p->n == 1 ? "run" : "runs",
                     live == 1 ? "trains" : "train");
    else if (ended == p->n)
        pl_text_add(out, p->n == 1 ? "The run has ended." : "All runs have ended.");
    else
        pl_text_addf(out, "%u of %u %s a summary, and nothing else is alive.", ended, p->n,
                     ended == 1 ? "has" : "have");
    if (p->refresh_seconds)
        pl_text_addf(out, " The page loads itself again every %u s.", p->refresh_seconds);
}

static void add_style(const struct pl_page *p, struct pl_text *out) {
    (void)p;
    pl_text_add(out, pl_page_style_css);
}

static void add_script(const struct pl_page *p, struct pl_text *out) {
    (void)p;
    static const char *const parts[] = {pl_page_plot_js, pl_page_curves_js, pl_page_timeline_js,
                                        pl_page_main_js};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        pl_text_add(out, parts[i]);
}

static void add_pictures(const struct pl_page *p, struct pl_text *out) {
    for (uint32_t i = 0; i < p->n; i++)
        pl_svg_loss_of_run(&p->runs[i].log, p->runs[i].label, out);
}

static void add_version(const struct pl_page *p, struct pl_text *out) {
    (void)p;
    pl_text_add(out, PL_VERSION);
}

static const struct {
    const char *name;
    void (*add)(const struct pl_page *p, struct pl_text *out);
} sections[] = {
    {"refresh", add_refresh},
    {"title", add_title},
    {"state", add_state},
    {"style", add_style},
    {"figures", pl_page_add_figures},
    {"pictures", add_pictures},
    {"events", pl_page_add_events},
    {"samples", pl_page_add_samples},
    {"bill", pl_page_add_bill},
    {"settings", pl_page_add_settings},
    {"version", add_version},
    {"data", pl_page_add_data},
    {"script", add_script},
};

static void add_section(const struct pl_page *p, const char *name, size_t n, struct pl_text *out) {
    for (size_t i = 0; i < sizeof sections / sizeof *sections; i++)
        if (strlen(sections[i].name) == n && memcmp(sections[i].name, name, n) == 0)
            sections[i].add(p, out);
}

/* The template has {{NAME}} where a section stands. */
void pl_page_write(const struct pl_page *p, struct pl_text *out) {
    const char *at = pl_page_page_html;
    for (const char *open; (open = strstr(at, "{{")) != NULL;) {
        const char *close = strstr(open, "}}");
        pl_text_addn(out, at, (size_t)(open - at));
        add_section(p, open + 2, (size_t)(close - open - 2), out);
        at = close + 2;
    }
    pl_text_add(out, at);
}
