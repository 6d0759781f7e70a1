#include "runtime/data/file_shape.h"

#include "runtime/data/row_members.h"

#include <ctype.h>
#include <string.h>

/* --- one object ------------------------------------------------------------------------------- */
static const struct pl_member *named(const struct pl_members *r, const char *name) {
    for (int i = 0; i < r->n; i++)
        if (strcmp(r->m[i].name, name) == 0) return &r->m[i];
    return NULL;
}

static int count_kind(const struct pl_members *r, enum pl_scan_kind kind) {
    int n = 0;
    for (int i = 0; i < r->n; i++)
        n += r->m[i].kind == kind;
    return n;
}

static bool is_answer(const struct pl_members *r) {
    static const char *const names[] = {"status", "statusCode", "documentation_url", "code"};
    const struct pl_member *message = named(r, "message");
    bool more = false;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        more = more || named(r, names[i]);
    return r->n <= 5 && !count_kind(r, PL_SCAN_ARRAY) &&
           (named(r, "error") || (named(r, "detail") && r->n == 1) || (message && more));
}

/* Written by the library `datasets` next to its Arrow files, or with a dataset on the hub. */
static bool is_description(const struct pl_members *r) {
    return named(r, "_data_files") || named(r, "builder_name") || named(r, "download_checksums") ||
           (named(r, "splits") && r->n == 1);
}

static bool is_pandas_split(const struct pl_members *r) {
    const struct pl_member *columns = named(r, "columns"), *data = named(r, "data");
    return columns && data && columns->first == PL_SCAN_STRING && data->first == PL_SCAN_ARRAY;
}

/* Every member is a list, none is one of messages, and some hold texts or lists. A single list of
 * texts may be anything, unless it is called text. */
static bool is_columns(const struct pl_members *r) {
    bool lists = r->n > 0 && count_kind(r, PL_SCAN_ARRAY) == r->n, values = false;
    for (int i = 0; i < r->n; i++) {
        const enum pl_scan_kind first = r->m[i].first;
        lists = lists && !r->m[i].role;
        values = values || first == PL_SCAN_ARRAY ||
                 (first == PL_SCAN_STRING && (r->n > 1 || !strcmp(r->m[i].name, "text")));
    }
    return lists && values;
}

static bool is_objects(const struct pl_members *r, bool numbered) {
    bool objects = r->n > 0 && count_kind(r, PL_SCAN_OBJECT) == r->n;
    for (int i = 0; i < r->n; i++)
        objects = objects && r->m[i].numbered == numbered && r->m[i].first != PL_SCAN_NONE;
    return objects;
}

static bool is_pandas_columns(const struct pl_members *r) {
    return is_objects(r, true);
}

static bool is_rows_by_name(const struct pl_members *r) {
    return is_objects(r, false) && (r->n > 1 || r->m[0].first == PL_SCAN_STRING);
}

static const char one_object[] = "one JSON object, not a list of rows";

/* The first that fits decides; loops NULL = nothing makes rows of it. */
static const struct {
    bool (*is)(const struct pl_members *r);
    const char *what, *says, *loops, *row;
} objects[] = {
    {is_answer, "the answer of a server, not data: a failed download?", "download the file again",
     NULL, NULL},
    {is_description, "a description of a dataset, not its rows",
     "`path` names files of rows; `datasets.load_from_disk` of Python reads such a directory, and "
     "`to_json` writes its rows",
     NULL, NULL},
    {is_pandas_split, one_object, "its rows are lists under `data`: ",
     "for c in [@] for r in c['data']", "dict(zip(c['columns'], r))"},
    {is_columns, one_object, "its members are columns; as rows: ",
     "for c in [@] for r in zip(*c.values())", "dict(zip(c, r))"},
    {is_pandas_columns, one_object, "its members are columns; as rows: ",
     "for c in [@] for r in zip(*map(dict.values, c.values()))", "dict(zip(c, r))"},
    {is_rows_by_name, one_object, "its members are rows; as a list: ", "for r in @.values()", "r"},
};

static bool shape_of_object(const struct pl_members *r, const struct pl_row_source *src,
                            const char **what, struct pl_text *out) {
    const struct pl_row_source one = {src->path, PL_SOURCE_LIST};
    for (size_t i = 0; i < sizeof objects / sizeof *objects; i++) {
        if (!objects[i].is(r)) continue;
        *what = objects[i].what;
        pl_text_add(out, objects[i].says);
        if (objects[i].loops) pl_row_command(&one, objects[i].loops, objects[i].row, out);
        return true;
    }
    const struct pl_member *list = NULL; /* the first array of objects that are no messages */
    for (int i = 0; i < r->n && !list; i++)
        if (r->m[i].kind == PL_SCAN_ARRAY && r->m[i].first == PL_SCAN_OBJECT && !r->m[i].role)
            list = &r->m[i];
    if (!list) return false;
    struct pl_text loops = {0};
    *what = one_object;
    pl_text_addf(&loops, "for r in @['%s']", list->name);
    pl_text_addf(out, "its rows are in `%s`: ", list->name);
    pl_row_command(&one, pl_text_str(&loops), "r", out);
    pl_text_finish(&loops);
    return true;
}

/* --- other values ----------------------------------------------------------------------------- */
/* No JSON: lines of a text, or of a CSV file under another name. */
static bool shape_of_text(const char *text, size_t n, const struct pl_row_source *src,
                          struct pl_text *out) {
    const size_t line =
        n && memchr(text, '\n', n) ? (size_t)((char *)memchr(text, '\n', n) - text) : n;
    if (!n || !(isalnum((unsigned char)*text) || *text == '"' || (unsigned char)*text >= 0x80))
        return false;
    if (memchr(text, ',', line)) {
        pl_text_add(out,
                    "JSON Lines want one object per line; the name of a CSV file ends in .csv");
        return true;
    }
    pl_text_add(out, "the lines of a text as rows of `text`: ");
    pl_row_command(src, "for r in sys.stdin", "{'text': r.rstrip()}", out);
    return true;
}

static bool shape_of_string(struct pl_scan s, const struct pl_row_source *src, const char **what,
                            struct pl_text *out) {
    const char *text = s.text + s.at;
    const bool json = s.n - s.at > 2 && text[1] == '{';
    if (!pl_scan_skip(&s) || !pl_scan_end(&s))
        return shape_of_text(text, s.n - (size_t)(text - s.text), src, out);
    if (json) *what = "the row is JSON that was written as a string";
    pl_text_add(out, json ? "what the strings hold, as rows: " : "as rows of `text`: ");
    pl_row_command(src, "for r in @", json ? "json.loads(r)" : "{'text': r}", out);
    return true;
}

/* A message: the file is a list of them, or has such a list on each line. */
static bool shape_of_message(const struct pl_row_source *src, const char **what,
                             struct pl_text *out) {
    const size_t n = strlen(src->path);
    const bool lines = n > 6 && strcmp(src->path + n - 6, ".jsonl") == 0;
    const struct pl_row_source own = {src->path, lines ? PL_SOURCE_LINES : PL_SOURCE_LIST};
    *what = "the row is a message of a conversation";
    pl_text_add(out, "as rows of `messages`: ");
    pl_row_command(&own, lines ? "for r in @" : "for r in [@]", "{'messages': r}", out);
    return true;
}

static bool shape_of_array(struct pl_scan s, const struct pl_row_source *src, struct pl_text *out) {
    const char *role, *content;
    if (!pl_scan_enter_array(&s) || !pl_scan_next_element(&s) ||
        !pl_message_keys(s, &role, &content))
        return false;
    pl_text_add(out, "as rows of `messages`: ");
    pl_row_command(src, "for r in @", "{'messages': r}", out);
    return true;
}

bool pl_file_shape(const char *text, size_t n, const struct pl_row_source *src, bool whole,
                   const char **what, struct pl_text *out) {
    struct pl_scan s = {.text = text, .n = n};
    struct pl_members members;
    const char *role, *content;
    const enum pl_scan_kind kind = pl_scan_peek(&s);
    *what = NULL;
    if (src->kind == PL_SOURCE_TABLE || src->kind == PL_SOURCE_PARQUET) return false;
    if (kind == PL_SCAN_NONE) return shape_of_text(text + s.at, n - s.at, src, out);
    if (kind == PL_SCAN_STRING) return shape_of_string(s, src, what, out);
    if (kind == PL_SCAN_ARRAY) return shape_of_array(s, src, out);
    if (src->kind == PL_SOURCE_LIST)
        return pl_message_keys(s, &role, &content) &&
               (!strcmp(role, "role") || !strcmp(role, "from")) && shape_of_message(src, what, out);
    return whole && pl_members_read(text, n, &members) && shape_of_object(&members, src, what, out);
}
