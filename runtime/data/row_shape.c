#include "runtime/data/row_shape.h"

#include "estimator/config/datasets.h"

#include <string.h>

bool pl_prompt_next(const char **at, struct pl_prompt_piece *piece, const char **problem) {
    const char *s = *at;
    bool doubled = *s && (*s == '{' || *s == '}') && s[1] == *s;
    *problem = NULL;
    *piece = (struct pl_prompt_piece){{s, doubled ? 1 : strcspn(s, "{}")}, false};
    *at = s + piece->span.n + doubled;
    if (!*s || doubled || piece->span.n) return *s;
    const size_t n = strcspn(s + 1, "{}");
    *piece = (struct pl_prompt_piece){{s + 1, n}, true};
    *at = s + n + 2;
    if (*s == '}')
        *problem = "has a brace that is not open";
    else if (s[n + 1] != '}')
        *problem = "has a brace that is not closed";
    else if (!n)
        *problem = "has a brace without a column";
    return !*problem;
}

static bool is_known(const struct pl_row_shape *s, struct pl_span name) {
    for (uint32_t i = 0; i < s->n_names; i++)
        if (s->names[i].n == name.n && memcmp(s->names[i].at, name.at, name.n) == 0) return true;
    return false;
}

enum pl_column pl_columns_prompt(const struct pl_columns *columns) {
    return columns->name[PL_COLUMN_PROMPT_FORMAT]     ? PL_COLUMN_PROMPT_FORMAT
           : columns->name[PL_COLUMN_QUESTION_FORMAT] ? PL_COLUMN_QUESTION_FORMAT
                                                      : PL_COLUMN_COUNT;
}

/* Adds the names of a format. Returns its problem, NULL = none. */
static const char *find_names(struct pl_row_shape *s, const char *at, bool may_be_empty) {
    const char *problem = NULL;
    struct pl_prompt_piece piece;
    while (at && pl_prompt_next(&at, &piece, &problem)) {
        if (!piece.name || is_known(s, piece.span)) continue;
        if (s->n_names == PL_SHAPE_NAMES) return "names more columns than 8";
        s->may_be_empty[s->n_names] = may_be_empty;
        s->names[s->n_names++] = piece.span;
    }
    return problem;
}

pl_err pl_row_shape_init(struct pl_row_shape *s, const struct pl_job *job,
                         const struct pl_dataset *entry, struct pl_diag *d) {
    *s = (struct pl_row_shape){.n_names = 0};
    if (!pl_columns_copy(&s->columns, &entry->columns))
        return pl_diag_set(d, PL_ERR_HOST_OOM, "no memory for the columns of %s", entry->path);
    enum pl_column bad = PL_COLUMN_NO_INPUT_FORMAT;
    const enum pl_column prompt = pl_columns_prompt(&s->columns);
    const char *bare = s->columns.name[bad], *problem = find_names(s, bare, false);
    if (!problem && prompt != PL_COLUMN_COUNT)
        problem = find_names(s, s->columns.name[bad = prompt], bare != NULL);
    if (!problem) return PL_ERR_OK;
    pl_row_shape_finish(s);
    pl_diag_at(d, PL_ERR_CONFIG_RANGE, job->path, entry->line, entry->column, "`%s` %s",
               pl_column_key(bad), problem);
    pl_diag_hint(d, "write {column} for the value of a column, {{ and }} for braces of the text");
    return PL_ERR_CONFIG_RANGE;
}

void pl_row_shape_finish(struct pl_row_shape *s) {
    pl_columns_finish(&s->columns);
    *s = (struct pl_row_shape){.n_names = 0};
}

bool pl_row_shape_is_named(const struct pl_row_shape *s) {
    bool any = false;
    for (int i = 0; i < PL_COLUMN_COUNT; i++)
        any = any || s->columns.name[i];
    return any;
}
