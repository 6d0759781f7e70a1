/* page_samples.c - the answers of the models to the prompts of their jobs. */
#include "estimator/picture/svg.h"
#include "runtime/report/page_parts.h"
#include "runtime/report/page_text.h"

#include <string.h>

enum {
    SAMPLES_MOST = 60, /* rows of one run, the newest; the others are counted */
    SAID_MOST = 1000,  /* bytes of a prompt or of an answer */
};

/* Lines stay lines. */
static void add_cell(const json_t *sample, const char *key, struct pl_text *out) {
    const char *text = json_string_value(json_object_get(sample, key));
    const size_t n = text ? pl_page_cut(text, SAID_MOST) : 0;
    pl_text_add(out, "<td class=\"left said\">");
    for (size_t at = 0, length; at < n; at += length + 1) {
        struct pl_text line = {0};
        length = strcspn(text + at, "\n");
        if (length > n - at) length = n - at;
        pl_text_addn(&line, text + at, length);
        pl_svg_add_escaped(out, pl_text_str(&line));
        if (at + length < n) pl_text_add(out, "<br>");
        out->failed |= line.failed;
        pl_text_finish(&line);
    }
    pl_text_add(out, text && text[n] ? "…</td>" : "</td>");
}

static void add_sample(const struct pl_page *p, uint32_t run, const json_t *sample,
                       struct pl_text *out) {
    pl_text_add(out, "<tr>");
    pl_page_add_run(p, run, out);
    pl_text_addf(out, "</th><td>%.15g</td>", json_number_value(json_object_get(sample, "step")));
    add_cell(sample, "text", out);
    add_cell(sample, "answer", out);
    pl_text_add(out, "</tr>\n");
}

static size_t count_left_out(const struct pl_page *p) {
    size_t left = 0;
    for (uint32_t i = 0; i < p->n; i++) {
        const size_t n = json_array_size(p->runs[i].log.samples);
        left += n > SAMPLES_MOST ? n - SAMPLES_MOST : 0;
    }
    return left;
}

void pl_page_add_samples(const struct pl_page *p, struct pl_text *out) {
    struct pl_text rows = {0};
    for (uint32_t run = 0; run < p->n; run++) {
        const json_t *samples = p->runs[run].log.samples;
        const size_t n = json_array_size(samples);
        for (size_t i = n > SAMPLES_MOST ? n - SAMPLES_MOST : 0; i < n; i++)
            add_sample(p, run, json_array_get(samples, i), &rows);
    }
    if (rows.len) {
        pl_text_add(out, "<section aria-labelledby=\"samples-title\">\n"
                         "<h2 id=\"samples-title\">Samples</h2>\n"
                         "<div class=\"table\" tabindex=\"0\" role=\"region\" "
                         "aria-labelledby=\"samples-title\"><table id=\"samples\">\n<thead><tr>"
                         "<th scope=\"col\">Run</th><th scope=\"col\">Step</th>"
                         "<th scope=\"col\" class=\"left\">Prompt</th>"
                         "<th scope=\"col\" class=\"left\">Answer</th></tr></thead>\n<tbody>\n");
        pl_text_add(out, pl_text_str(&rows));
        pl_text_add(out, "</tbody></table></div>\n");
        if (count_left_out(p))
            pl_text_addf(out, "<p>%zu earlier samples are in the logs.</p>\n", count_left_out(p));
        pl_text_add(out, "</section>\n");
    }
    out->failed |= rows.failed;
    pl_text_finish(&rows);
}
