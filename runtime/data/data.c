/* data.c - opens data files: every row is read once and checked, its offset is kept. */
#include "runtime/data/data.h"
#include "runtime/data/data_content.h"
#include "runtime/data/data_state.h"
#include "runtime/data/shares.h"
#include "estimator/base/alloc.h"
#include "estimator/base/checked.h"
#include "estimator/base/open_file.h"
#include "estimator/config/datasets.h"
#include "estimator/config/job_values.h"
#include "runtime/data/cache_key.h"
#include "runtime/data/column_hint.h"
#include "runtime/data/csv.h"
#include "runtime/data/file_kind.h"
#include "runtime/data/file_shape.h"
#include "runtime/data/formats.h"
#include "runtime/data/paths.h"
#include "runtime/data/remarks.h"
#include "runtime/data/split.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define CUT UINT32_C(0x80000000)

/* The row as JSON; false: the scanner of the parser says what is wrong. */
static bool as_json(struct pl_data *data, struct data_file *f, const char **text, size_t *n) {
    struct pl_scan *s = &data->parser.scan;
    if (!f->csv) return true;
    *s = (struct pl_scan){.err = PL_ERR_OK};
    if (!pl_csv_record(&f->header, *text, *n, &data->json))
        return pl_scan_fail(s, PL_ERR_DATA_SYNTAX, 0, f->header.hint, "%s", f->header.problem);
    if (data->json.failed)
        return pl_scan_fail(s, PL_ERR_HOST_OOM, 0, NULL, "no memory for the row");
    *text = pl_text_str(&data->json);
    *n = data->json.len;
    return true;
}

/* One row of f into *out. */
static bool parse_text(struct pl_data *data, struct data_file *f, const char *text, size_t n,
                       bool ends_file, struct pl_sample *out) {
    data->parser.shape = &f->shape;
    return as_json(data, f, &text, &n) &&
           pl_row_parse(&data->parser, f->format, text, n, ends_file, out);
}

/* A CSV record and a row of Parquet have no columns: those would be of the line made of it. */
static pl_err report(const struct pl_scan *s, const struct data_file *f,
                     const struct pl_raw_row *row, struct pl_diag *d) {
    const char *path = f->path;
    if (f->csv || f->parquet) {
        pl_err code = pl_diag_at(d, s->err, path, row->line, 0, "%s", s->what);
        if (s->hint) pl_file_hint(d, s->hint, path);
        return code;
    }
    uint64_t line = row->line, start = row->line_start, at = row->offset + s->where;
    for (size_t i = 0; i < s->where; i++) {
        if (row->text[i] != '\n') continue;
        line++;
        start = row->offset + i + 1;
    }
    pl_err err = pl_diag_at(d, s->err, path, line, at - start + 1, "%s", s->what);
    if (s->hint) pl_file_hint(d, s->hint, path);
    return err;
}

/* A file while it is being read for the first time. */
struct index {
    struct pl_split split;
    struct pl_raw_row row; /* the next to take */
    bool more;             /* there is one */
    struct pl_remarks remarks;
    struct pl_cache_writer writer;
    struct pl_sample *sample; /* scratch */
};

/* True if nothing but space follows the row. */
static bool ends_content(const struct data_file *f, const struct pl_raw_row *row) {
    char rest[16];
    const ssize_t n = pl_content_read(&f->content, rest, sizeof rest, row->offset + row->n);
    size_t blank = 0;
    while (n > 0 && blank < (size_t)n && strchr(" \t\r\n", rest[blank]))
        blank++;
    return n >= 0 && (size_t)n < sizeof rest && blank == (size_t)n;
}

static enum pl_source_kind source_of(const struct data_file *f, const struct pl_split *s) {
    return f->parquet   ? PL_SOURCE_PARQUET
           : s->csv     ? PL_SOURCE_TABLE
           : s->array   ? PL_SOURCE_LIST
           : s->objects ? PL_SOURCE_OBJECTS
                        : PL_SOURCE_LINES;
}

/* The first row of a file: where it is a row of no format, the hint says what reads the file. */
static pl_err report_first(struct pl_data *data, const struct data_file *f, const struct index *ix,
                           struct pl_diag *d) {
    const struct pl_row_source src = {f->path, source_of(f, &ix->split)};
    struct pl_scan *s = &data->parser.scan;
    struct pl_text hint = {0};
    const char *what = NULL;
    const bool strange = data->parser.strange && !pl_row_shape_is_named(&f->shape);
    if ((strange || *ix->row.text != '{') && !f->csv &&
        pl_file_shape(s->text, s->n, &src, ends_content(f, &ix->row), &what, &hint)) {
        if (what) {
            *s = (struct pl_scan){.text = s->text, .n = s->n, .err = PL_ERR_DATA_FIELD};
            snprintf(s->what, sizeof s->what, "%s", what);
        }
        s->hint = pl_text_str(&hint);
    } else if (strange &&
               pl_column_hint(s->text, s->n, &src, f->detected ? NULL : f->format, &hint)) {
        s->hint = pl_text_str(&hint);
    }
    pl_err err = report(s, f, &ix->row, d);
    pl_text_finish(&hint);
    return err;
}

static pl_err keep_row(struct pl_data *data, struct data_file *f, struct stored_row stored,
                       struct pl_diag *d) {
    if (data->n_rows == data->cap_rows) {
        uint64_t cap = data->cap_rows ? 2 * data->cap_rows : 1024, bytes;
        struct stored_row *rows = NULL;
        if (pl_u64_mul(cap, sizeof *rows, &bytes) && bytes <= SIZE_MAX)
            rows = pl_realloc(data->rows, (size_t)bytes);
        if (!rows)
            return pl_diag_set(d, PL_ERR_HOST_OOM, "no memory for the places of %llu rows",
                               (unsigned long long)cap);
        data->rows = rows;
        data->cap_rows = cap;
    }
    data->rows[data->n_rows++] = stored;
    f->info.rows++;
    return PL_ERR_OK;
}

/* Counts a row and keeps its offset; stored.tokens, CUT or 0, is filled in. */
static pl_err count_row(struct pl_data *data, struct data_file *f, struct stored_row stored,
                        const struct pl_counted_row *row, struct pl_diag *d) {
    if (row->targets) pl_longest_add(&data->longest, data->stats.rows, row->n);
    pl_data_stats_add(&f->info.stats, row);
    pl_data_stats_add(&data->stats, row);
    stored.tokens |= row->targets ? (uint32_t)row->n : 0;
    return keep_row(data, f, stored, d);
}

/* True if the row was longer than a limit; samples of preferences were cut when they were read. */
static bool is_cut(const struct pl_data *data, const struct pl_sample *s) {
    return data->prefers ? s->beyond > 0 : s->n + s->beyond > data->max_tokens;
}

/* The row's tokens are in `s`: applies the rule for length, counts, keeps the offset. */
static pl_err take_row(struct pl_data *data, struct data_file *f, const struct pl_raw_row *row,
                       struct pl_sample *s, struct index *ix, struct pl_diag *d) {
    struct pl_remarks *r = &ix->remarks;
    const uint64_t whole = s->n + s->beyond;
    bool cut = is_cut(data, s);
    if (s->dropped && data->overlength != PL_OVERLENGTH_ERROR) {
        pl_remark_add(&r->dropped, row->line);
        return PL_ERR_OK;
    }
    if (cut) {
        if (data->overlength == PL_OVERLENGTH_ERROR)
            return pl_diag_at(d, PL_ERR_DATA_FIELD, f->path, row->line, 0,
                              "the row has %llu tokens, max_seq_length is %u",
                              (unsigned long long)whole, data->job->max_seq_length);
        bool drop = data->overlength == PL_OVERLENGTH_DROP;
        pl_remark_add(drop ? &r->dropped : &r->truncated, row->line);
        if (drop) return PL_ERR_OK;
    }
    const bool of_whole = cut && (s->trained_beyond || pl_sample_targets(s));
    s->n = pl_u64_min(s->n, data->max_tokens);
    uint64_t targets = pl_sample_targets(s);
    if (!targets) pl_remark_add(&r->unsupervised, row->line);
    if (data->positions && s->n > data->positions)
        pl_row_traits_add(&data->parser.encoder.traits, PL_TRAIT_BEYOND_POSITIONS, 1);
    pl_file_traits_count(&r->traits, &data->parser.encoder.traits, row->line);
    if (!targets && of_whole) {
        pl_remark_add(&r->cut_off, row->line);
        r->whole = pl_u64_max(r->whole, whole);
    }
    pl_cache_add(&ix->writer, s, targets, cut);
    const struct stored_row stored = {row->offset, (uint32_t)row->n, cut ? CUT : 0,
                                      pl_sample_digest(s)};
    const struct pl_counted_row counted = {s->n, targets, s->weighted};
    return count_row(data, f, stored, &counted, d);
}

/* The first row decides the format of `auto`. */
static pl_err choose_format(struct pl_data *data, const struct pl_job *job, struct data_file *f,
                            const struct index *ix, struct pl_text *notes, struct pl_diag *d) {
    const struct pl_raw_row *row = &ix->row;
    data->parser.shape = &f->shape;
    if (!f->format) {
        f->detected = true;
        const char *text = row->text;
        size_t n = row->n;
        if (as_json(data, f, &text, &n))
            f->format = pl_format_detect(&data->parser, text, n, row->ends_file);
        if (!f->format) return report_first(data, f, ix, d);
    }
    data->parser.detected = f->detected;
    return pl_row_parser_prepare(&data->parser, f->format, job, data->model, notes, d);
}

/* Counts the remarks on the file, and says them. */
static void end_remarks(struct pl_data *data, struct data_file *f, const struct pl_remarks *r,
                        struct pl_text *notes) {
    const struct pl_remarks_about about = {f->path, &f->info.stats, f->format, data->job,
                                           data->positions};
    pl_remarks_count(r, &f->info.stats);
    pl_remarks_count(r, &data->stats);
    if (notes) pl_remarks_note(r, &about, notes);
}

/* Parses and counts the rows of the file that the entry takes. */
static pl_err take_rows(struct pl_data *data, struct data_file *f, struct index *ix,
                        struct pl_diag *d) {
    for (uint64_t i = 0; i < f->skip && ix->more; i++)
        PL_TRY(pl_split_next(&ix->split, &ix->row, &ix->more, d));
    while (ix->more && f->info.rows + ix->remarks.dropped.n < f->most) {
        const struct pl_raw_row *row = &ix->row;
        data->parser.line = row->line;
        if (!parse_text(data, f, row->text, row->n, row->ends_file, ix->sample))
            return f->skip || f->info.rows || ix->remarks.dropped.n
                       ? report(&data->parser.scan, f, row, d)
                       : report_first(data, f, ix, d);
        PL_TRY(take_row(data, f, row, ix->sample, ix, d));
        const struct pl_data_reading at = {f->path, row->offset + row->n, f->content_bytes,
                                           f->info.rows};
        if (data->watch) data->watch->reading(data->watch->ctx, &at);
        PL_TRY(pl_split_next(&ix->split, &ix->row, &ix->more, d));
    }
    return PL_ERR_OK;
}

/* Everything but the file's content that its tokens depend on. */
static void add_facts(const struct pl_data *data, const struct data_file *f, struct pl_text *out) {
    pl_text_addf(out, "at most %llu tokens, overlength %u, positions %llu\n",
                 (unsigned long long)data->max_tokens, data->overlength,
                 (unsigned long long)data->positions);
    if (f->most != UINT64_MAX)
        pl_text_addf(out, "%llu rows after %llu\n", (unsigned long long)f->most,
                     (unsigned long long)f->skip);
    pl_row_parser_add_facts(&data->parser, f->format, out);
}

/* The cache of a file's tokens. */
struct kept {
    struct pl_text dir; /* empty: nowhere */
    struct pl_cache_key key;
    struct stat before; /* the key was made of this file */
};

static void add_note(struct pl_text *notes, struct pl_text *why) {
    if (notes && why->len) pl_text_addf(notes, "%s\n", pl_text_str(why));
    why->len = 0;
}

static void choose_cache(const struct pl_data *data, const struct pl_job *job,
                         const struct data_file *f, struct kept *k, struct pl_text *notes) {
    struct pl_text facts = {0}, why = {0};
    pl_cache_choose_dir(job, pl_row_parser_is_costly(&data->parser, f->format), &k->dir, &why);
    add_note(notes, &why);
    add_facts(data, f, &facts);
    if (!k->dir.len || fstat(f->content.fd, &k->before) != 0 ||
        !pl_cache_make_key(&k->key, &f->content, &facts))
        k->dir.len = 0;
    pl_text_finish(&facts);
    pl_text_finish(&why);
}

/* A cache of a file that somebody wrote to meanwhile would be one of neither content. */
static bool unchanged(const struct data_file *f, const struct stat *before) {
    struct stat now;
    return fstat(f->content.fd, &now) == 0 && now.st_size == before->st_size &&
           now.st_mtim.tv_sec == before->st_mtim.tv_sec &&
           now.st_mtim.tv_nsec == before->st_mtim.tv_nsec;
}

static bool open_cache(struct pl_data *data, struct data_file *f, const struct kept *k,
                       struct pl_text *notes) {
    struct pl_text why = {0};
    bool opened = k->dir.len && pl_cache_open(&f->cache, pl_text_str(&k->dir), &k->key,
                                              data->parser.vocab, data->max_tokens, &why);
    if (opened) pl_pool_adopt(&data->pool, &f->cache.fd);
    add_note(notes, &why);
    pl_text_finish(&why);
    return opened;
}

/* Counts what the open cache of the file holds. */
static pl_err take_cache(struct pl_data *data, struct data_file *f, struct pl_diag *d) {
    pl_err err = PL_ERR_OK;
    for (uint64_t i = 0; i < f->cache.header.rows && err == PL_ERR_OK; i++) {
        const struct pl_cache_row *r = &f->cache.rows[i];
        const struct stored_row stored = {r->place, r->tokens, pl_cache_is_cut(r) ? CUT : 0,
                                          r->digest};
        const struct pl_counted_row counted = {r->tokens, r->targets, pl_cache_is_weighted(r)};
        err = count_row(data, f, stored, &counted, d);
    }
    free(f->cache.rows);
    f->cache.rows = NULL;
    return err;
}

/* Parses the file, writing its tokens away where they are kept; they are then read from there. */
static pl_err take_file(struct pl_data *data, struct data_file *f, struct index *ix,
                        const struct kept *k, struct pl_text *notes, struct pl_diag *d) {
    const struct pl_data_stats stats = data->stats;
    const struct pl_longest longest = data->longest;
    struct pl_text why = {0};
    if (k->dir.len) pl_cache_create(&ix->writer, pl_text_str(&k->dir), &k->key, &why);
    data->parser.told = &ix->remarks.told;
    pl_err err = take_rows(data, f, ix, d);
    data->parser.told = NULL;
    bool whole = err == PL_ERR_OK && k->dir.len && unchanged(f, &k->before) &&
                 pl_cache_commit(&ix->writer, &ix->remarks, &why);
    add_note(notes, &why);
    pl_text_finish(&why);
    if (!whole || !open_cache(data, f, k, notes)) return err;
    data->stats = stats;
    data->longest = longest;
    data->n_rows = f->info.first;
    f->info.rows = 0;
    f->info.stats = (struct pl_data_stats){0};
    return take_cache(data, f, d);
}

/* The first record of a CSV file. */
static pl_err read_header(struct data_file *f, struct index *ix, struct pl_diag *d) {
    PL_TRY(pl_split_next(&ix->split, &ix->row, &ix->more, d));
    if (!ix->more) return PL_ERR_OK;
    bool ok = pl_csv_header(&f->header, ix->row.text, ix->row.n);
    if (f->header.keys.failed)
        return pl_diag_set(d, PL_ERR_HOST_OOM, "no memory for the header of %s", f->path);
    if (ok) return PL_ERR_OK;
    pl_diag_at(d, PL_ERR_DATA_SYNTAX, f->path, ix->row.line, 0, "%s", f->header.problem);
    pl_file_hint(d, f->header.hint, f->path);
    return PL_ERR_DATA_SYNTAX;
}

static pl_err index_file(struct pl_data *data, const struct pl_job *job, struct data_file *f,
                         struct pl_sample *s, struct pl_text *notes, struct pl_diag *d) {
    struct index ix = {.sample = s, .writer = {.fd = -1}};
    struct kept kept = {0};
    PL_TRY(pl_split_open(&ix.split, &f->content, f->path, f->csv, d));
    pl_err err;
    if (f->csv) PL_TRY_GOTO(read_header(f, &ix, d), out);
    PL_TRY_GOTO(pl_split_next(&ix.split, &ix.row, &ix.more, d), out);
    if (!ix.more) {
        err = pl_diag_at(d, PL_ERR_DATA_EMPTY, f->path, 0, 0, "no rows in the file");
        goto out;
    }
    PL_TRY_GOTO(choose_format(data, job, f, &ix, notes, d), out);
    choose_cache(data, job, f, &kept, notes);
    if (open_cache(data, f, &kept, notes)) {
        ix.remarks = f->cache.header.remarks;
        err = take_cache(data, f, d);
    } else {
        err = take_file(data, f, &ix, &kept, notes, d);
    }
    f->passed = f->info.rows + ix.remarks.dropped.n;
    if (err == PL_ERR_OK) end_remarks(data, f, &ix.remarks, notes);
out:
    pl_cache_abandon(&ix.writer);
    pl_text_finish(&kept.dir);
    pl_split_finish(&ix.split);
    return err;
}

/* The format and the columns that the entry names. */
static pl_err take_shape(const struct pl_job *job, const struct pl_dataset *ds, struct data_file *f,
                         struct pl_diag *d) {
    const struct pl_format *written = pl_format_written(&ds->columns);
    f->format = pl_format_find(ds->format, job->stage);
    if (written && f->format) {
        const char *key = pl_column_key(pl_columns_prompt(&ds->columns));
        pl_diag_at(d, PL_ERR_CONFIG_CONFLICT, job->path, ds->line, ds->column,
                   "`%s` and `format: %s` are both given", key, pl_format_name(f->format));
        pl_diag_hint(d, "`%s` is a format of its own: remove `format`", key);
        return PL_ERR_CONFIG_CONFLICT;
    }
    if (written) f->format = written;
    PL_TRY(pl_row_shape_init(&f->shape, job, ds, d));
    return pl_format_check_columns(f->format, job, ds, d);
}

/* A failure to open is the configuration's: it points at the line that names the file. */
static pl_err open_file(struct pl_data *data, const struct pl_dataset *ds, struct data_file *f,
                        struct pl_diag *d) {
    const struct pl_job *job = data->job;
    const char *why;
    f->path = pl_strdup(ds->path);
    if (!f->path) return pl_diag_set(d, PL_ERR_HOST_OOM, "no memory for the path %s", ds->path);
    if (pl_pool_open(&data->pool, f->path, &f->fd, &why) < 0) {
        const int error = errno;
        pl_err err = pl_diag_at(d, pl_err_of_errno(PL_ERR_DATA_FILE), job->path, ds->line,
                                ds->column, "cannot open %s: %s", f->path, why);
        return pl_open_hint(d, err, error);
    }
    f->header.separator = pl_csv_separator(f->path, pl_unpacked_length(f->path));
    f->csv = f->header.separator != 0;
    PL_TRY(take_shape(job, ds, f, d));
    f->info = (struct pl_data_file){.path = f->path, .weight = ds->weight};
    f->entry = ds->number;
    return PL_ERR_OK;
}

static pl_err read_all(struct pl_data *data, struct pl_text *notes, struct pl_diag *d) {
    struct pl_sample s = {0};
    pl_err err = PL_ERR_OK;
    for (uint32_t i = 0; i < data->n_files; i++) {
        PL_TRY_GOTO(pl_data_share(data, i, d), out);
        data->files[i].info.first = data->n_rows;
        if (!data->files[i].most) continue;
        PL_TRY_GOTO(pl_data_unpack(data, &data->files[i], d), out);
        PL_TRY_GOTO(index_file(data, data->job, &data->files[i], &s, notes, d), out);
    }
    if (!data->stats.supervised_tokens)
        err = pl_diag_at(d, PL_ERR_DATA_EMPTY, data->n_files ? data->files[0].path : NULL, 0, 0,
                         "nothing to train on: %llu rows without a supervised token, %llu dropped",
                         (unsigned long long)data->stats.unsupervised_rows,
                         (unsigned long long)data->stats.dropped_rows);
    else if (notes && notes->failed)
        err = pl_host_oom(d, "the notes on the data");
out:
    pl_sample_finish(&s);
    return err;
}

/* --- opening: every file, then all rows ------------------------------------------------------ */

static pl_err open_all(struct pl_data *data, const struct pl_dataset_list *list,
                       struct pl_diag *d) {
    data->files = pl_calloc((size_t)list->n + 1, sizeof *data->files);
    if (!data->files)
        return pl_diag_set(d, PL_ERR_HOST_OOM, "no memory for %u data files", list->n);
    for (uint32_t i = 0; i < list->n; i++) {
        data->files[i].fd = data->files[i].cache.fd = -1;
        data->n_files = i + 1;
        PL_TRY(open_file(data, &list->items[i], &data->files[i], d));
    }
    return PL_ERR_OK;
}

pl_err pl_data_find(struct pl_data *data, struct pl_diag *d) {
    struct pl_dataset_list files = {0};
    PL_TRY(pl_paths_expand(data->job, &data->entries, &files, d));
    pl_err err = open_all(data, &files, d);
    pl_paths_finish(&files);
    return err;
}

pl_err pl_data_read(struct pl_data *data, struct pl_text *notes, const struct pl_data_watch *watch,
                    struct pl_diag *d) {
    data->watch = watch;
    pl_err err = read_all(data, notes, d);
    data->watch = NULL;
    return err;
}

void pl_data_close(struct pl_data **data) {
    struct pl_data *x = *data;
    if (!x) return;
    for (uint32_t i = 0; i < x->n_files; i++) {
        if (x->files[i].fd >= 0) close(x->files[i].fd);
        pl_cache_close(&x->files[i].cache);
        pl_row_shape_finish(&x->files[i].shape);
        pl_csv_finish(&x->files[i].header);
        free(x->files[i].path);
    }
    pl_unpacked_finish(&x->unpacked);
    pthread_mutex_destroy(&x->lock);
    pl_row_parser_finish(&x->parser);
    free(x->entries.items); /* their names belong to the job */
    free(x->files);
    free(x->rows);
    free(x->buf);
    pl_text_finish(&x->json);
    free(x);
    *data = NULL;
}

uint64_t pl_data_rows(const struct pl_data *data) {
    return data->n_rows;
}
const char *pl_data_chat_date(const struct pl_data *data, char buf[PL_DAY_TEXT]) {
    return pl_encoder_write_day(&data->parser.encoder, buf);
}

const struct pl_data_stats *pl_data_stats(const struct pl_data *data) {
    return &data->stats;
}

const struct pl_longest *pl_data_longest(const struct pl_data *data) {
    return &data->longest;
}

uint32_t pl_data_files(const struct pl_data *data) {
    return data->n_files;
}

const struct pl_data_file *pl_data_file(const struct pl_data *data, uint32_t i) {
    return &data->files[i].info;
}

const struct pl_tokenizer *pl_data_tokenizer(const struct pl_data *data) {
    return data->parser.encoder.tokenizer;
}

enum pl_prompt_form pl_data_prompt_form(const struct pl_data *data) {
    uint32_t i = 0;
    while (i + 1 < data->n_files && !data->files[i].format) /* no row of it is read */
        i++;
    return pl_row_parser_form(&data->parser, data->n_files ? data->files[i].format : NULL);
}

void pl_data_write_program(const struct pl_data *data, struct pl_text *out) {
    pl_encoder_write_program(&data->parser.encoder, out);
}

bool pl_data_tokenizer_identity(const struct pl_data *data, uint64_t *out) {
    *out = data->parser.encoder.identity;
    return data->parser.encoder.tokenizer != NULL;
}

uint64_t pl_data_tokens(const struct pl_data *data, uint64_t row) {
    return row < data->n_rows ? data->rows[row].tokens & ~CUT : 0;
}

bool pl_data_is_cut(const struct pl_data *data, uint64_t row) {
    return row < data->n_rows && data->rows[row].tokens & CUT;
}

/* The last file that begins at the row or before it; empty files begin where the next one does. */
static struct data_file *file_of(const struct pl_data *data, uint64_t row) {
    uint32_t low = 0, high = data->n_files;
    while (high - low > 1) {
        uint32_t mid = low + (high - low) / 2;
        if (data->files[mid].info.first <= row)
            low = mid;
        else
            high = mid;
    }
    return &data->files[low];
}

const struct pl_data_file *pl_data_file_of(const struct pl_data *data, uint64_t row) {
    return &file_of(data, row)->info;
}

static pl_err changed(const struct data_file *f, const struct stored_row *r, struct pl_diag *d) {
    pl_diag_at(d, PL_ERR_DATA_FILE, f->path, pl_content_line(&f->content, r->offset), 0,
               "the file changed after it was opened (row at byte %llu)",
               (unsigned long long)r->offset);
    pl_diag_hint(d,
                 "start again with the file as it is to be, and leave it alone until the run ends");
    return PL_ERR_DATA_FILE;
}

static pl_err read_row(struct pl_data *data, struct data_file *f, const struct stored_row *r,
                       struct pl_diag *d) {
    if (r->bytes > data->buf_cap) {
        char *buf = pl_realloc(data->buf, r->bytes);
        if (!buf)
            return pl_diag_set(d, PL_ERR_HOST_OOM, "no memory for a row of %u bytes", r->bytes);
        data->buf = buf;
        data->buf_cap = r->bytes;
    }
    if (!f->packed) {
        PL_TRY(pl_data_reopen(data, f->path, &f->fd, d));
        f->content = PL_CONTENT_OF(f->fd);
    }
    for (size_t have = 0; have < r->bytes;) {
        ssize_t got =
            pl_content_read(&f->content, data->buf + have, r->bytes - have, r->offset + have);
        if (got < 0)
            return pl_diag_at(d, pl_err_of_errno(PL_ERR_DATA_FILE), f->path, 0, 0,
                              "cannot read: %s", strerror(errno));
        if (got == 0) return changed(f, r, d);
        have += (size_t)got;
    }
    return PL_ERR_OK;
}

static pl_err take_cached_row(struct pl_data *data, struct data_file *f, const struct stored_row *r,
                              struct pl_sample *out, struct pl_diag *d) {
    PL_TRY(pl_data_reopen(data, f->cache.path, &f->cache.fd, d));
    PL_TRY(pl_cache_read(&f->cache, r->offset, r->bytes, out, d));
    /* Packing has counted on the tokens that a row of a cache says it has. */
    const uint64_t tokens = pl_sample_targets(out) ? out->n : 0;
    if (pl_sample_digest(out) == r->digest && tokens == (r->tokens & ~CUT)) return PL_ERR_OK;
    out->n = 0;
    return pl_cache_changed(&f->cache, d);
}

static pl_err parse_row(struct pl_data *data, uint64_t row, struct pl_sample *out,
                        struct pl_diag *d) {
    const struct stored_row *r = &data->rows[row];
    struct data_file *f = file_of(data, row);
    if (f->cache.path) return take_cached_row(data, f, r, out, d);
    PL_TRY(read_row(data, f, r, d));
    if (!parse_text(data, f, data->buf, r->bytes, false, out)) {
        out->n = 0;
        if (data->parser.scan.err == PL_ERR_HOST_OOM)
            return pl_diag_set(d, PL_ERR_HOST_OOM, "%s", data->parser.scan.what);
        return changed(f, r, d);
    }
    if (is_cut(data, out) && data->overlength != PL_OVERLENGTH_TRUNCATE) {
        out->n = 0;
        return changed(f, r, d);
    }
    out->n = pl_u64_min(out->n, data->max_tokens);
    if (pl_sample_digest(out) == r->digest) return PL_ERR_OK;
    out->n = 0;
    return changed(f, r, d);
}

pl_err pl_data_sample(struct pl_data *data, uint64_t row, struct pl_sample *out,
                      struct pl_diag *d) {
    if (row >= data->n_rows)
        return pl_diag_set(d, PL_ERR_DATA_FIELD, "row %llu of %llu does not exist",
                           (unsigned long long)row, (unsigned long long)data->n_rows);
    pthread_mutex_lock(&data->lock);
    pl_err err = parse_row(data, row, out, d);
    pthread_mutex_unlock(&data->lock);
    return err;
}
