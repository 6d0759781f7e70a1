#include "runtime/data/remarks.h"

#include "estimator/config/job_values.h"

#include <stdio.h>

void pl_remarks_count(const struct pl_remarks *r, struct pl_data_stats *stats) {
    stats->unsupervised_rows += r->unsupervised.n;
    stats->truncated_rows += r->truncated.n;
    stats->dropped_rows += r->dropped.n;
    for (int i = 0; i < PL_TRAITS; i++)
        stats->traits[i] += r->traits.of[i].rows;
}

static void note(struct pl_text *notes, const char *path, const struct pl_remark *r,
                 const char *what) {
    if (!r->n) return;
    pl_text_addf(notes, "%s:%llu: %llu row%s %s; this is the first\n", path,
                 (unsigned long long)r->line, (unsigned long long)r->n, r->n == 1 ? "" : "s", what);
}

/* Why the share that is trained on can only be a mistake, NULL = it need not be one. The first
 * token of a row is never a target. */
static const char *strange_share(const struct pl_remarks *r, const struct pl_remarks_about *about) {
    const struct pl_data_stats *s = about->stats;
    if (!s->supervised_tokens) return r->cut_off.n ? NULL : "none at all";
    if (s->supervised_tokens * 100 < s->tokens) return "below 1 %";
    const bool all = s->supervised_tokens + s->rows >= s->tokens;
    return all && about->job->train_on != PL_TRAIN_ON_ALL && pl_format_needs_chat(about->format)
               ? "the questions as well"
               : NULL;
}

/* Warns about files that would waste a run, with the number to change. */
static void warn(const struct pl_remarks *r, const struct pl_remarks_about *about,
                 struct pl_text *notes) {
    const struct pl_data_stats *s = about->stats;
    const uint64_t positions = about->positions;
    if (r->cut_off.n)
        pl_text_addf(notes,
                     "warning: %s:%llu: %llu row%s cut by max_seq_length before the first token to "
                     "train on; this is the first; `max_seq_length: %llu` cuts none of them\n",
                     about->path, (unsigned long long)r->cut_off.line,
                     (unsigned long long)r->cut_off.n, r->cut_off.n == 1 ? "" : "s",
                     (unsigned long long)r->whole);
    if (s->traits[PL_TRAIT_BEYOND_POSITIONS])
        pl_text_addf(notes,
                     "%s:%llu: %llu row%s longer than the %llu positions that the model was made "
                     "for, the longest %llu tokens; `max_seq_length: %llu` cuts them, and "
                     "`rope_scaling` in config.json makes room\n",
                     about->path, (unsigned long long)r->traits.of[PL_TRAIT_BEYOND_POSITIONS].line,
                     (unsigned long long)s->traits[PL_TRAIT_BEYOND_POSITIONS],
                     s->traits[PL_TRAIT_BEYOND_POSITIONS] == 1 ? "" : "s",
                     (unsigned long long)positions, (unsigned long long)s->longest,
                     (unsigned long long)positions);
    const char *strange = strange_share(r, about);
    if (strange)
        pl_text_addf(notes,
                     "warning: %s: %llu of %llu tokens are trained on, %s; `plimsoll tokenize "
                     "CONFIG --show` shows which\n",
                     about->path, (unsigned long long)s->supervised_tokens,
                     (unsigned long long)s->tokens, strange);
}

void pl_remarks_note(const struct pl_remarks *r, const struct pl_remarks_about *about,
                     struct pl_text *notes) {
    char reader[64];
    note(notes, about->path, &r->unsupervised,
         pl_job_reads_in_circle(about->job) ? "without a token to train on"
                                            : "without a token to train on, left out");
    note(notes, about->path, &r->truncated, "longer than max_seq_length, cut to it");
    note(notes, about->path, &r->dropped, "longer than max_seq_length, dropped");
    warn(r, about, notes);
    pl_file_traits_note(&r->traits, about->path, notes);
    snprintf(reader, sizeof reader, "format %s", pl_format_name(about->format));
    pl_told_keys_note(&r->told, about->path, reader, notes);
}
