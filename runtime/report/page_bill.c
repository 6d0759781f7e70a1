/* page_bill.c - the ledger of each run as a bar and as a column of a table. */
#include "estimator/base/units.h"
#include "estimator/picture/picture.h"
#include "estimator/picture/svg.h"
#include "runtime/report/page_parts.h"

#include <string.h>

enum {
    LINES_MOST = 32, /* of the ledgers of all runs together */
    NAME_MOST = 40,  /* bytes of a line's name */
};
#define OTHER_COLOUR   "#b9c0c9"
#define CONTEXT        "context"
#define CONTEXT_COLOUR "#8792a0"

struct lines { /* the categories that a run of the page has bytes of */
    const char *names[LINES_MOST];
    int n;
};

const char *pl_page_category_colour(const char *category) {
    for (int c = 0; c < PL_CATEGORY_COUNT; c++)
        if (strcmp(category, pl_category_name((enum pl_category)c)) == 0)
            return pl_picture_colour((enum pl_category)c);
    return strcmp(category, CONTEXT) == 0 ? CONTEXT_COLOUR : OTHER_COLOUR;
}

static uint64_t bytes_of(const json_t *v) {
    return json_is_integer(v) && json_integer_value(v) > 0 ? (uint64_t)json_integer_value(v) : 0;
}

/* The bytes of one line of the ledger that a run started with. */
static uint64_t line_bytes(const struct pl_page_run *run, const char *name) {
    const json_t *ledger = json_object_get(run->log.preflight, "ledger"), *row;
    size_t i;
    if (strcmp(name, CONTEXT) == 0)
        return bytes_of(json_object_get(run->log.preflight, "context_bytes"));
    json_array_foreach(ledger, i, row) {
        const char *category = json_string_value(json_object_get(row, "category"));
        if (category && strcmp(category, name) == 0) return bytes_of(json_object_get(row, "bytes"));
    }
    return 0;
}

static uint64_t all_bytes(const struct pl_page_run *run, const struct lines *l) {
    uint64_t sum = 0;
    for (int i = 0; i < l->n; i++)
        sum += line_bytes(run, l->names[i]);
    return sum;
}

static void add_name(struct lines *l, const char *name) {
    for (int i = 0; i < l->n; i++)
        if (strcmp(l->names[i], name) == 0) return;
    if (l->n < LINES_MOST) l->names[l->n++] = name;
}

static struct lines list_lines(const struct pl_page *p) {
    struct lines l = {0};
    for (uint32_t r = 0; r < p->n; r++) {
        const json_t *ledger = json_object_get(p->runs[r].log.preflight, "ledger"), *row;
        size_t i;
        if (line_bytes(&p->runs[r], CONTEXT)) add_name(&l, CONTEXT);
        json_array_foreach(ledger, i, row) {
            const char *category = json_string_value(json_object_get(row, "category"));
            if (category && strlen(category) <= NAME_MOST && line_bytes(&p->runs[r], category))
                add_name(&l, category);
        }
    }
    return l;
}

static uint64_t budget_of(const struct pl_page_run *run) {
    return bytes_of(json_object_get(run->log.preflight, "budget_bytes"));
}

/* --- bars ------------------------------------------------------------------------------------ */

/* A budget beyond the bars is left to the table. */
static void add_bar(const struct pl_page_run *run, const struct lines *l, double most,
                    struct pl_text *out) {
    pl_text_add(out, "<div>");
    pl_svg_add_escaped(out, run->label);
    pl_text_add(out, "<div class=\"bar\"><div class=\"fill\">");
    for (int i = 0; i < l->n; i++) {
        const double share = 100 * (double)line_bytes(run, l->names[i]) / most;
        if (share > 0)
            pl_text_addf(out, "<i style=\"width:%.3f%%;background:%s\"></i>", share,
                         pl_page_category_colour(l->names[i]));
    }
    pl_text_add(out, "</div>");
    if (budget_of(run) && (double)budget_of(run) <= most)
        pl_text_addf(out, "<div class=\"limit\" style=\"left:%.3f%%\"></div>",
                     100 * (double)budget_of(run) / most);
    pl_text_add(out, "</div></div>\n");
}

static void add_keys(const struct lines *l, struct pl_text *out) {
    pl_text_add(out, "<div class=\"keys\">");
    for (int i = 0; i < l->n; i++) {
        pl_text_addf(out, "<span><i class=\"swatch\" style=\"background:%s\"></i>",
                     pl_page_category_colour(l->names[i]));
        pl_svg_add_escaped(out, l->names[i]);
        pl_text_add(out, "</span>");
    }
    pl_text_add(out, "<span>dashed line: budget, where it is in reach</span></div>\n");
}

/* The longest bar, or a budget that is less than twice as long. */
static double scale(const struct pl_page *p, const struct lines *l) {
    double most = 1, budget = 0;
    for (uint32_t i = 0; i < p->n; i++) {
        const double bytes = (double)all_bytes(&p->runs[i], l),
                     limit = (double)budget_of(&p->runs[i]);
        if (bytes > most) most = bytes;
        if (limit > budget) budget = limit;
    }
    return budget > most && budget < 2 * most ? budget * 1.01 : most;
}

/* --- the table ------------------------------------------------------------------------------- */

static void add_bytes(uint64_t bytes, struct pl_text *out) {
    char text[PL_BYTES_TEXT];
    pl_text_addf(out, "<td data-bytes=\"%llu\">%s</td>", (unsigned long long)bytes,
                 bytes ? pl_bytes_text(bytes, text) : "-");
}

static void add_row(const struct pl_page *p, const char *name, struct pl_text *out) {
    pl_text_addf(out, "<tr><th scope=\"row\"><i class=\"swatch\" style=\"background:%s\"></i>",
                 pl_page_category_colour(name));
    pl_svg_add_escaped(out, name);
    pl_text_add(out, "</th>");
    for (uint32_t i = 0; i < p->n; i++)
        add_bytes(line_bytes(&p->runs[i], name), out);
    pl_text_add(out, "</tr>\n");
}

static void add_sums(const struct pl_page *p, const struct lines *l, struct pl_text *out) {
    pl_text_add(out, "<tr class=\"sum\"><th scope=\"row\">in all</th>");
    for (uint32_t i = 0; i < p->n; i++)
        add_bytes(all_bytes(&p->runs[i], l), out);
    pl_text_add(out, "</tr>\n<tr><th scope=\"row\">budget</th>");
    for (uint32_t i = 0; i < p->n; i++)
        add_bytes(budget_of(&p->runs[i]), out);
    pl_text_add(out, "</tr>\n");
}

void pl_page_add_bill(const struct pl_page *p, struct pl_text *out) {
    const struct lines l = list_lines(p);
    if (!l.n) {
        pl_text_add(out, "<p class=\"none\">The logs have no ledger.</p>\n");
        return;
    }
    const double most = scale(p, &l);
    pl_text_add(out, "<div class=\"card bars\">\n");
    for (uint32_t i = 0; i < p->n; i++)
        add_bar(&p->runs[i], &l, most, out);
    add_keys(&l, out);
    pl_text_add(out, "</div>\n<div class=\"table\" tabindex=\"0\" role=\"region\" "
                     "aria-labelledby=\"bill-title\"><table id=\"bill\">\n<thead><tr>"
                     "<th scope=\"col\">As planned before the first step</th>");
    for (uint32_t i = 0; i < p->n; i++) {
        pl_text_add(out, "<th scope=\"col\"><span class=\"name\">");
        pl_svg_add_escaped(out, p->runs[i].label);
        pl_text_add(out, "</span></th>");
    }
    pl_text_add(out, "</tr></thead>\n<tbody>\n");
    for (int i = 0; i < l.n; i++)
        add_row(p, l.names[i], out);
    add_sums(p, &l, out);
    pl_text_add(out, "</tbody></table></div>\n");
}
