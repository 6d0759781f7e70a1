/* longest_text.c - how long samples may be, in ten lines and as JSON. */
#include "estimator/advice/longest.h"

#include "estimator/advice/parts.h"
#include "estimator/config/job_text.h"
#include "estimator/config/recompute.h"

#include <inttypes.h>

struct level_text {
    char text[2 * PL_LEVEL_TEXT];
};

/* "full", or "auto: full:20+light" with what it is. */
static struct level_text level_of(const struct pl_longest_row *r) {
    struct level_text level = {""};
    struct pl_text text = PL_TEXT_FIXED(level.text);
    pl_recompute_print(r->job.gradient_checkpointing, &text);
    if (r->decided == r->job.gradient_checkpointing) return level;
    pl_text_add(&text, ": ");
    pl_recompute_print(r->decided, &text);
    return level;
}

static void add_command(const struct pl_question *q, const struct pl_longest_row *r,
                        struct pl_text *out) {
    pl_advice_job_command("estimate-vram", &r->job, q->job, q->card, out);
}

/* --- text ------------------------------------------------------------------------------------ */

/* Within the margin or the doubt about the context a job is not refused, and still does not fit. */
static void add_proof(const struct pl_longest *l, bool colour, struct pl_text *out) {
    const struct pl_wall *w = &l->best->wall;
    pl_text_addf(out, "%s%u tokens fit%s: %" PRIu64 " of %" PRIu64 " bytes",
                 colour ? "\033[1m" : "", w->wall, colour ? "\033[0m" : "", w->wall_bytes,
                 l->budget_bytes);
    if (w->next_bytes)
        pl_text_addf(out, "; %u do not: %" PRIu64 "%s\n", w->wall + 1, w->next_bytes,
                     w->next_verdict == PL_VERDICT_TIGHT ? " (tight)" : "");
    else
        pl_text_add(out, "; longer samples cannot be asked about\n");
}

/* A line of the table; `row` is the whole answer too, where it is the best. */
static void report_row(const struct pl_question *q, const struct pl_longest *l,
                       const struct pl_longest_row *row, struct pl_report *r) {
    const struct pl_wall *w = &row->wall;
    struct pl_text level = {0}, decided = {0}, command = {0};
    pl_recompute_print(row->job.gradient_checkpointing, &level);
    pl_recompute_print(row->decided, &decided);
    pl_report_next(r);
    pl_report_text(r, "gradient_checkpointing", &level);
    pl_report_text(r, "decided", &decided);
    pl_report_count(r, "max_seq_length", w->wall);
    pl_report_format(r, "level", "%s", level_of(row).text);
    pl_report_for_people(r);
    pl_report_format(r, "longest", w->wall ? "%u" : "none fits", w->wall);
    pl_report_for_people(r);
    if (w->wall) {
        add_command(q, row, &command);
        pl_report_count(r, "needed_bytes", w->wall_bytes);
        pl_report_count(r, "beyond", w->next_bytes);
        pl_report_known(r, w->next_bytes);
        pl_report_for_people(r);
        pl_report_count(r, "mlp_chunk_tokens", row->mlp_chunk);
        pl_report_bytes(r, "host_bytes", row->price.host_bytes);
        pl_report_bytes(r, "host", row->price.host_bytes);
        pl_report_known(r, row->price.host_bytes);
        pl_report_for_people(r);
        pl_report_real(r, "relative_time", row->relative_time);
        pl_report_truth(r, "beyond_max_positions", pl_longest_is_beyond(l, row));
        pl_report_text(r, "command", &command);
        pl_report_word(r, "mark", row == l->best ? "  <-" : "");
        pl_report_for_people(r);
    }
    if (!w->next_bytes) return;
    pl_report_count(r, "next_bytes", w->next_bytes);
    pl_report_word(r, "next_verdict", pl_verdict_name(w->next_verdict));
}

static struct pl_report rows_of(const struct pl_question *q, const struct pl_longest *l) {
    struct pl_report r = {0};
    for (uint32_t i = 0; i < l->n_rows; i++)
        report_row(q, l, &l->rows[i], &r);
    return r;
}

void pl_longest_text(const struct pl_question *q, const struct pl_longest *l, bool colour,
                     struct pl_text *out) {
    static const struct pl_report_column columns[] = {{"level", "gradient_checkpointing", 2, -22},
                                                      {"longest", "longest", 2, 8},
                                                      {"needed_bytes", "bytes", 2, 14},
                                                      {"beyond", "one token more", 2, 14},
                                                      {"host", "host memory", 2, 11},
                                                      {"relative_time", "time a token", 2, 12},
                                                      {"mark", "", 0, 0}};
    struct pl_report rows = rows_of(q, l);
    add_proof(l, colour, out);
    pl_report_columns(&rows, columns, sizeof columns / sizeof *columns, colour ? "\033[2m" : "",
                      colour ? "\033[0m" : "", out);
    pl_report_finish(&rows);
    pl_text_add(out, "  ");
    add_command(q, l->best, out);
    pl_text_add(out, "\n");
}

/* --- JSON ------------------------------------------------------------------------------------ */

json_t *pl_longest_json(const struct pl_question *q, const struct pl_longest *l) {
    struct pl_report r = {0}, rows = rows_of(q, l);
    report_row(q, l, l->best, &r);
    pl_report_count(&r, "batch_size", l->batch_size);
    pl_report_count(&r, "budget_bytes", l->budget_bytes);
    pl_report_count(&r, "max_positions", l->max_positions);
    pl_report_tree(&r, "rows", pl_report_end_list(&rows));
    return pl_report_end(&r);
}
