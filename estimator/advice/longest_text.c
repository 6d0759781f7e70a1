/* longest_text.c - how long samples may be, in ten lines and as JSON. */
#include "estimator/advice/longest.h"

#include "estimator/advice/parts.h"
#include "estimator/base/json_tree.h"
#include "estimator/base/units.h"
#include "estimator/config/job_text.h"
#include "estimator/config/recompute.h"

#include <inttypes.h>
#include <stdio.h>

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

static void add_row(const struct pl_longest *l, const struct pl_longest_row *r,
                    struct pl_text *out) {
    char host[PL_BYTES_TEXT], next[24] = "-";
    if (!r->wall.wall) {
        pl_text_addf(out, "  %-22s  none fits\n", level_of(r).text);
        return;
    }
    if (r->wall.next_bytes) snprintf(next, sizeof next, "%" PRIu64, r->wall.next_bytes);
    pl_text_addf(out, "  %-22s  %8u  %14" PRIu64 "  %14s  %11s  %12.2f%s\n", level_of(r).text,
                 r->wall.wall, r->wall.wall_bytes, next,
                 r->host_bytes ? pl_bytes_text(r->host_bytes, host) : "-", r->relative_time,
                 r == l->best ? "  <-" : "");
}

void pl_longest_text(const struct pl_question *q, const struct pl_longest *l, bool colour,
                     struct pl_text *out) {
    add_proof(l, colour, out);
    pl_text_addf(out, "  %s%-22s  %8s  %14s  %14s  %11s  %12s%s\n", colour ? "\033[2m" : "",
                 "gradient_checkpointing", "longest", "bytes", "one token more", "host memory",
                 "time a token", colour ? "\033[0m" : "");
    for (uint32_t i = 0; i < l->n_rows; i++)
        add_row(l, &l->rows[i], out);
    pl_text_add(out, "  ");
    add_command(q, l->best, out);
    pl_text_add(out, "\n");
}

/* --- JSON ------------------------------------------------------------------------------------ */

static json_t *row_json(const struct pl_question *q, const struct pl_longest *l,
                        const struct pl_longest_row *r) {
    const struct pl_wall *w = &r->wall;
    struct pl_text level = {0}, decided = {0}, command = {0};
    pl_recompute_print(r->job.gradient_checkpointing, &level);
    pl_recompute_print(r->decided, &decided);
    json_t *o = json_pack("{s:s, s:s, s:i}", "gradient_checkpointing", pl_text_str(&level),
                          "decided", pl_text_str(&decided), "max_seq_length", (int)w->wall);
    if (w->wall) {
        add_command(q, r, &command);
        pl_json_set(&o, "needed_bytes", json_integer((json_int_t)w->wall_bytes));
        pl_json_set(&o, "mlp_chunk_tokens", json_integer(r->mlp_chunk));
        pl_json_set(&o, "host_bytes", json_integer((json_int_t)r->host_bytes));
        pl_json_set(&o, "relative_time", json_real(r->relative_time));
        pl_json_set(&o, "beyond_max_positions", json_boolean(pl_longest_is_beyond(l, r)));
        pl_json_set(&o, "command", json_string(pl_text_str(&command)));
    }
    if (w->next_bytes) {
        pl_json_set(&o, "next_bytes", json_integer((json_int_t)w->next_bytes));
        pl_json_set(&o, "next_verdict", json_string(pl_verdict_name(w->next_verdict)));
    }
    if (level.failed || decided.failed || command.failed) pl_json_set(&o, "command", NULL);
    pl_text_finish(&level);
    pl_text_finish(&decided);
    pl_text_finish(&command);
    return o;
}

json_t *pl_longest_json(const struct pl_question *q, const struct pl_longest *l) {
    json_t *rows = json_array(), *o = row_json(q, l, l->best);
    for (uint32_t i = 0; i < l->n_rows; i++)
        pl_json_append(&rows, row_json(q, l, &l->rows[i]));
    pl_json_set(&o, "batch_size", json_integer(l->batch_size));
    pl_json_set(&o, "budget_bytes", json_integer((json_int_t)l->budget_bytes));
    pl_json_set(&o, "max_positions", json_integer((json_int_t)l->max_positions));
    pl_json_set(&o, "rows", rows);
    return o;
}
