#include "runtime/data/summary.h"

#include "estimator/base/json_tree.h"
#include "estimator/base/units.h"

static void add_count(struct pl_text *out, uint64_t n, const char *what) {
    char count[PL_COUNT_TEXT];
    if (n) pl_text_addf(out, ", %s %s", pl_count_text(n, count), what);
}

void pl_data_write_files(const struct pl_data *data, struct pl_text *out) {
    char rows[PL_COUNT_TEXT], tokens[PL_COUNT_TEXT], longest[PL_COUNT_TEXT];
    for (uint32_t i = 0; i < pl_data_files(data); i++) {
        const struct pl_data_file *f = pl_data_file(data, i);
        const struct pl_data_stats *s = &f->stats;
        double share = s->tokens ? 100.0 * (double)s->supervised_tokens / (double)s->tokens : 0;
        pl_text_addf(out, "  data: %s: %s row%s, %s tokens, %.1f %% trained on, longest %s",
                     f->path, pl_count_text(s->rows, rows), s->rows == 1 ? "" : "s",
                     pl_count_text(s->tokens, tokens), share, pl_count_text(s->longest, longest));
        add_count(out, s->truncated_rows, "cut");
        add_count(out, s->dropped_rows, "dropped");
        add_count(out, s->unsupervised_rows, "training nothing");
        add_count(out, s->weighted_rows, "with a weight");
        for (int k = 0; k < PL_TRAITS; k++)
            if (*pl_trait_brief(k)) add_count(out, s->traits[k], pl_trait_brief(k));
        pl_text_add(out, "\n");
    }
}

json_t *pl_data_files_json(const struct pl_data *data) {
    json_t *list = json_array();
    for (uint32_t i = 0; list && i < pl_data_files(data); i++) {
        const struct pl_data_file *f = pl_data_file(data, i);
        const struct pl_data_stats *s = &f->stats;
        json_t *o = json_pack(
            "{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "file", f->path, "rows",
            (json_int_t)s->rows, "tokens", (json_int_t)s->tokens, "supervised_tokens",
            (json_int_t)s->supervised_tokens, "longest", (json_int_t)s->longest, "truncated_rows",
            (json_int_t)s->truncated_rows, "dropped_rows", (json_int_t)s->dropped_rows,
            "unsupervised_rows", (json_int_t)s->unsupervised_rows);
        pl_json_set(&o, "weighted_rows", json_integer((json_int_t)s->weighted_rows));
        for (int k = 0; k < PL_TRAITS; k++)
            pl_json_set(&o, pl_trait_key(k), json_integer((json_int_t)s->traits[k]));
        if (json_array_append_new(list, o) == 0) continue;
        json_decref(list);
        list = NULL;
    }
    return list;
}
