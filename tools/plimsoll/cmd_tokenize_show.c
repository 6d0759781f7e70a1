/* cmd_tokenize_show.c - `plimsoll tokenize CONFIG --show N`: the first samples of a run as training
 * will see them, token by token, and which of them are trained on. */
#include "tools/plimsoll/cmd_tokenize.h"

#include "estimator/config/safe_text.h"
#include "estimator/base/json_tree.h"
#include "estimator/config/job_text.h"
#include "runtime/admit/preflight.h"
#include "runtime/data/encode.h"
#include "runtime/data/summary.h"

#include <string.h>

#define DEFAULT_SAMPLES 3
#define MAX_SAMPLES     1000000
#define INDENT          10

enum style { STYLE_TRAINED, STYLE_MASKED, STYLE_IDS, STYLE_BOLD, STYLE_OFF };

struct show {
    struct pl_job job;
    struct pl_text notes;
    struct pl_preflight pf;
    struct pl_encoder encoder;            /* opened where the rows bring their tokens */
    const struct pl_tokenizer *tokenizer; /* NULL where there is none: ids alone then */
    struct pl_sample sample;
    uint64_t wanted;
    bool colour;
    unsigned columns;
};

static pl_err open_show(const struct pl_cli *cli, struct show *s, struct pl_diag *d) {
    double wanted = DEFAULT_SAMPLES;
    struct pl_diag none = {0};
    PL_TRY(pl_cli_number(cli, PL_FLAG_SHOW, 1, MAX_SAMPLES, true, &wanted, d));
    PL_TRY(pl_job_read_to_train(&s->job, cli->args[0], cli->overrides, cli->n_overrides, &s->notes,
                                d));
    struct pl_progress progress;
    pl_progress_init(&progress, stderr, pl_cli_has(cli, PL_FLAG_QUIET), 0);
    progress.notes_alone = pl_cli_has(cli, PL_FLAG_NO_PROGRESS);
    PL_TRY(pl_preflight_read_data(&s->pf, &s->job, &progress, d));
    s->wanted = (uint64_t)wanted;
    if (s->wanted > s->pf.data.walk.epoch_rows) s->wanted = s->pf.data.walk.epoch_rows;
    s->colour = pl_cli_colour(cli, stdout);
    s->columns = pl_cli_columns(stdout);
    s->tokenizer = pl_data_tokenizer(s->pf.data.rows);
    if (s->tokenizer) return PL_ERR_OK;
    pl_err err = pl_encoder_open(&s->encoder, &s->job, &s->pf.model, &none);
    s->tokenizer = s->encoder.tokenizer;
    return err == PL_ERR_HOST_OOM ? pl_diag_set(d, err, "%s", none.message) : PL_ERR_OK;
}

static const char *piece(const struct show *s, int32_t id) {
    const char *text = s->tokenizer ? pl_tokenizer_piece(s->tokenizer, id) : NULL;
    return text ? text : "";
}

/* --- for a person ----------------------------------------------------------------------------- */

static void style(const struct show *s, struct pl_text *out, enum style which) {
    static const char *const escapes[] = {"\033[32m", "\033[2m", "\033[36m", "\033[1m", "\033[0m"};
    if (s->colour) pl_text_add(out, escapes[which]);
}

/* Columns that a UTF-8 text takes, characters of two columns counted as one. */
static unsigned width(const char *text) {
    unsigned n = 0;
    for (; *text; text++)
        n += ((unsigned char)*text & 0xC0) != 0x80;
    return n;
}

/* A line of words, indented and wrapped, in the style of one run. */
struct line {
    const struct show *show;
    struct pl_text *out;
    enum style style;
    unsigned at;
};

static void begin_line(struct line *l, const char *label) {
    pl_text_addf(l->out, "%*s", -INDENT, label);
    style(l->show, l->out, l->style);
    l->at = INDENT;
}

static void end_line(struct line *l) {
    style(l->show, l->out, STYLE_OFF);
    pl_text_add(l->out, "\n");
}

static void add_word(struct line *l, const char *word) {
    unsigned n = width(word);
    if (l->at > INDENT && l->at + n >= l->show->columns) {
        end_line(l);
        begin_line(l, "");
    }
    if (l->at > INDENT) pl_text_add(l->out, " ");
    pl_tokenize_add_visible(l->out, word);
    l->at += n + 1;
}

static bool is_trained(const struct pl_sample *sample, uint64_t i) {
    return pl_sample_label(sample, i) != PL_LABEL_MASKED;
}

static bool begins_part(const struct pl_sample *sample, uint64_t i) {
    return pl_label_begins_part(sample->labels[i]);
}

/* The name of a part of a row of preferences. */
static const char *part_name(const struct show *s, uint64_t part, unsigned flags) {
    if (s->job.stage == PL_STAGE_KTO)
        return flags & PL_PART_UNDESIRED ? "undesirable" : "desirable";
    return part ? "rejected" : "chosen";
}

static void name_part(const struct show *s, uint64_t at, uint64_t part, struct pl_text *out) {
    if (!begins_part(&s->sample, at)) return;
    style(s, out, STYLE_BOLD);
    pl_text_addf(out, " %s", part_name(s, part, pl_label_part_flags(s->sample.labels[at])));
    style(s, out, STYLE_OFF);
    pl_text_add(out, "\n");
}

/* Tokens [from, to) of one kind: pieces, then ids below them. */
static void add_run(const struct show *s, uint64_t from, uint64_t to, struct pl_text *out) {
    bool trained = is_trained(&s->sample, from);
    struct line l = {s, out, trained ? STYLE_TRAINED : STYLE_MASKED, 0};
    char id[16];
    if (s->tokenizer) {
        begin_line(&l, trained ? "  trained" : "  masked");
        for (uint64_t i = from; i < to; i++)
            add_word(&l, piece(s, s->sample.ids[i]));
        end_line(&l);
    }
    l.style = STYLE_IDS;
    begin_line(&l, s->tokenizer ? "" : trained ? "  trained" : "  masked");
    for (uint64_t i = from; i < to; i++) {
        snprintf(id, sizeof id, "%ld", (long)s->sample.ids[i]);
        add_word(&l, id);
    }
    end_line(&l);
}

static void add_sample(const struct show *s, uint64_t position, uint64_t row, struct pl_text *out) {
    const struct pl_data_file *f = pl_data_file_of(s->pf.data.rows, row);
    const struct pl_sample *sample = &s->sample;
    style(s, out, STYLE_BOLD);
    pl_text_addf(out, "sample %llu", (unsigned long long)position + 1);
    style(s, out, STYLE_OFF);
    pl_text_addf(out, ": row %llu of ", (unsigned long long)(row - f->first) + 1);
    pl_text_add_safe(out, f->path, strlen(f->path));
    pl_text_addf(out, ", %llu tokens, %llu trained%s", (unsigned long long)sample->n,
                 (unsigned long long)pl_sample_targets(sample),
                 pl_data_is_cut(s->pf.data.rows, row) ? ", cut to max_seq_length" : "");
    if (sample->weighted) pl_text_addf(out, ", weight %g", (double)sample->weight);
    pl_text_add(out, "\n");
    for (uint64_t from = 0, to, part = 0; from < sample->n; from = to) {
        const bool trained = is_trained(sample, from);
        for (to = from + 1; to < sample->n && !begins_part(sample, to); to++)
            if (is_trained(sample, to) != trained) break;
        name_part(s, from, part, out);
        part += begins_part(sample, from);
        add_run(s, from, to, out);
    }
    pl_text_add(out, "\n");
}

static void add_totals(const struct show *s, struct pl_text *out) {
    const struct pl_data_stats *st = pl_data_stats(s->pf.data.rows);
    struct pl_text files = {0};
    pl_data_write_files(s->pf.data.rows, &files);
    pl_cli_add_safe_lines(out, &files);
    pl_text_finish(&files);
    pl_text_addf(out,
                 "%llu rows, %llu tokens, %llu trained; longest %llu; %llu cut, %llu dropped, "
                 "%llu without a token to train on\n",
                 (unsigned long long)st->rows, (unsigned long long)st->tokens,
                 (unsigned long long)st->supervised_tokens, (unsigned long long)st->longest,
                 (unsigned long long)st->truncated_rows, (unsigned long long)st->dropped_rows,
                 (unsigned long long)st->unsupervised_rows);
}

/* --- for a program ---------------------------------------------------------------------------- */

static json_t *numbers(const int32_t *v, uint64_t n) {
    json_t *list = json_array();
    for (uint64_t i = 0; i < n; i++)
        pl_json_append(&list, json_integer(v[i]));
    return list;
}

static json_t *labels(const struct pl_sample *s) {
    json_t *list = json_array();
    for (uint64_t i = 0; i < s->n; i++)
        pl_json_append(&list, json_integer(pl_sample_label(s, i)));
    return list;
}

/* The tokens at which the samples of a row of preferences begin. */
static json_t *parts(const struct pl_sample *s) {
    json_t *list = json_array();
    for (uint64_t i = 0; i < s->n; i++)
        if (begins_part(s, i)) pl_json_append(&list, json_integer((json_int_t)i));
    return list;
}

static json_t *pieces(const struct show *s) {
    json_t *list = json_array();
    for (uint64_t i = 0; i < s->sample.n && s->tokenizer; i++)
        pl_json_append(&list, json_string(piece(s, s->sample.ids[i])));
    return list;
}

static json_t *sample_object(const struct show *s, uint64_t position, uint64_t row) {
    const struct pl_data_file *f = pl_data_file_of(s->pf.data.rows, row);
    const struct pl_sample *sample = &s->sample;
    json_t *o =
        json_pack("{s:I, s:s, s:I, s:I, s:I, s:b, s:o, s:o, s:o}", "position", (json_int_t)position,
                  "file", f->path, "row", (json_int_t)(row - f->first), "tokens",
                  (json_int_t)sample->n, "supervised_tokens", (json_int_t)pl_sample_targets(sample),
                  "truncated", pl_data_is_cut(s->pf.data.rows, row), "ids",
                  numbers(sample->ids, sample->n), "labels", labels(sample), "pieces", pieces(s));
    if (s->job.stage != PL_STAGE_SFT) pl_json_set(&o, "parts", parts(sample));
    if (sample->weighted) pl_json_set(&o, "weight", json_real((double)sample->weight));
    return o;
}

static json_t *answer_object(const struct show *s, json_t *samples) {
    const struct pl_data_stats *st = pl_data_stats(s->pf.data.rows);
    return json_pack(
        "{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:o}", "rows", (json_int_t)st->rows, "tokens",
        (json_int_t)st->tokens, "supervised_tokens", (json_int_t)st->supervised_tokens, "longest",
        (json_int_t)st->longest, "truncated_rows", (json_int_t)st->truncated_rows, "dropped_rows",
        (json_int_t)st->dropped_rows, "unsupervised_rows", (json_int_t)st->unsupervised_rows,
        "files", pl_data_files_json(s->pf.data.rows), "samples", samples);
}

/* --- the command ------------------------------------------------------------------------------ */

static pl_err answer(const struct pl_cli *cli, struct show *s, struct pl_diag *d) {
    bool json = pl_cli_has(cli, PL_FLAG_JSON);
    struct pl_text out = {0};
    json_t *samples = json_array();
    pl_err err = PL_ERR_OK;
    for (uint64_t p = 0; p < s->wanted && err == PL_ERR_OK; p++) {
        uint64_t row = pl_walk_row(&s->pf.data.walk, p);
        err = pl_data_sample(s->pf.data.rows, row, &s->sample, d);
        if (err != PL_ERR_OK) break;
        if (json)
            pl_json_append(&samples, sample_object(s, p, row));
        else
            add_sample(s, p, row, &out);
    }
    if (err == PL_ERR_OK && json) {
        err = pl_cli_print_json(answer_object(s, samples), d);
    } else {
        json_decref(samples);
        if (err == PL_ERR_OK) {
            add_totals(s, &out);
            return pl_cli_print_text(&out, d);
        }
    }
    pl_text_finish(&out);
    return err;
}

pl_err pl_tokenize_show(const struct pl_cli *cli, struct pl_diag *d) {
    struct show s = {0};
    pl_err err = open_show(cli, &s, d);
    pl_cli_print_notes(cli, &s.notes);
    pl_cli_print_notes(cli, &s.pf.notes);
    if (err == PL_ERR_OK) err = answer(cli, &s, d);
    pl_sample_finish(&s.sample);
    pl_encoder_finish(&s.encoder);
    pl_preflight_finish(&s.pf);
    pl_text_finish(&s.notes);
    pl_job_finish(&s.job);
    return err;
}
