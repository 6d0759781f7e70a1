#include "runtime/data/tokenizer/tokenizer_document.h"

#include "estimator/base/json_tree.h"

#include <string.h>

/* The largest known rest, of 6,400 added tokens, has 1.3 MB. A tree takes up to 100 bytes for one
 * of weight (json_tree.h). */
#define TREE_MOST_BYTES ((size_t)8 << 20)
#define TREE_WEIGHT(n)  (65536 + (n) / 4)

struct cut { /* bytes of the document that are not in the text of the tree */
    size_t at, n;
};

struct reader {
    struct pl_tokenizer_document *doc;
    struct pl_scan scan;
    struct pl_text key;
    struct cut cuts[2];
    size_t n_cuts;
};

static size_t place_in_document(const struct reader *r, size_t at) {
    for (size_t i = 0; i < r->n_cuts; i++)
        if (at >= r->cuts[i].at) at += r->cuts[i].n;
    return at;
}

/* --- the tree --------------------------------------------------------------------------------- */

static pl_err check_bytes(const char *path, size_t n, struct pl_diag *d) {
    if (n <= TREE_MOST_BYTES) return PL_ERR_OK;
    return pl_diag_at(d, PL_ERR_TOKENIZER_FILE, path, 0, 0,
                      "vocabulary and merges aside the file is above %zu MiB",
                      TREE_MOST_BYTES >> 20);
}

static pl_err check_weight(const char *path, const struct pl_text *text, struct pl_diag *d) {
    if (text->failed) return pl_host_oom(d, path);
    if (pl_json_weight(pl_text_str(text), text->len) <= TREE_WEIGHT(text->len)) return PL_ERR_OK;
    return pl_diag_at(d, PL_ERR_TOKENIZER_FILE, path, 0, 0,
                      "more values than a tokenizer of its size has");
}

static json_t *parse(const struct pl_text *text, struct pl_json_error *e) {
    return pl_json_load(pl_text_str(text), text->len, PL_JSON_TEXT, e);
}

pl_err pl_tokenizer_tree_read(const char *path, const struct pl_text *text, json_t **out,
                              struct pl_diag *d) {
    struct pl_json_error e;
    PL_TRY(check_bytes(path, text->len, d));
    PL_TRY(check_weight(path, text, d));
    *out = parse(text, &e);
    return *out ? PL_ERR_OK : pl_json_refuse(&e, PL_ERR_TOKENIZER_SYNTAX, path, d);
}

/* The document without what was cut. */
static void add_rest(const struct reader *r, struct pl_text *rest) {
    const struct pl_text *all = &r->doc->text;
    size_t from = 0;
    for (size_t i = 0; i < r->n_cuts; i++) {
        pl_text_addn(rest, all->data + from, r->cuts[i].at - from);
        from = r->cuts[i].at + r->cuts[i].n;
    }
    pl_text_addn(rest, pl_text_str(all) + from, all->len - from);
}

static pl_err read_rest(const struct reader *r, const char *path, struct pl_diag *d) {
    struct pl_tokenizer_document *doc = r->doc;
    struct pl_text rest = {0};
    struct pl_json_error e;
    size_t bytes = doc->text.len;
    for (size_t i = 0; i < r->n_cuts; i++)
        bytes -= r->cuts[i].n;
    PL_TRY(check_bytes(path, bytes, d));
    add_rest(r, &rest);
    pl_err err = check_weight(path, &rest, d);
    if (err == PL_ERR_OK && !(doc->root = parse(&rest, &e))) {
        e.at = place_in_document(r, (size_t)e.at);
        pl_json_place(doc->text.data, doc->text.len, &e);
        err = pl_json_refuse(&e, PL_ERR_TOKENIZER_SYNTAX, path, d);
    }
    pl_text_finish(&rest);
    return err;
}

/* --- the two lists ---------------------------------------------------------------------------- */

static bool count_elements(struct pl_scan *s, uint64_t *n) {
    if (!pl_scan_enter_array(s)) return false;
    for (*n = 0; pl_scan_next_element(s); ++*n)
        if (!pl_scan_skip(s)) return false;
    return s->err == PL_ERR_OK;
}

/* The value at the cursor: what is between its brackets stays out of the tree. */
static bool cut_list(struct reader *r, struct pl_tokenizer_list *list) {
    struct pl_scan *s = &r->scan;
    const enum pl_scan_kind kind = pl_scan_peek(s);
    const size_t at = s->at;
    if (kind != PL_SCAN_OBJECT && kind != PL_SCAN_ARRAY) return pl_scan_skip(s);
    if (list->n)
        return pl_scan_fail(s, PL_ERR_TOKENIZER_SYNTAX, at, NULL, "`%s` is there twice",
                            pl_text_str(&r->key));
    if (kind == PL_SCAN_ARRAY ? !count_elements(s, &list->elements) : !pl_scan_skip(s))
        return false;
    list->at = at;
    list->n = s->at - at;
    r->cuts[r->n_cuts++] = (struct cut){at + 1, list->n - 2};
    return true;
}

static bool split_model(struct reader *r) {
    if (pl_scan_peek(&r->scan) != PL_SCAN_OBJECT) return pl_scan_skip(&r->scan);
    if (!pl_scan_enter(&r->scan)) return false;
    while (pl_scan_next_key(&r->scan, &r->key)) {
        const char *key = pl_text_str(&r->key);
        struct pl_tokenizer_list *list = strcmp(key, "vocab") == 0    ? &r->doc->vocab
                                         : strcmp(key, "merges") == 0 ? &r->doc->merges
                                                                      : NULL;
        if (list ? !cut_list(r, list) : !pl_scan_skip(&r->scan)) return false;
    }
    return r->scan.err == PL_ERR_OK;
}

static bool split(struct reader *r) {
    if (pl_scan_peek(&r->scan) != PL_SCAN_OBJECT)
        return pl_scan_skip(&r->scan) && pl_scan_end(&r->scan);
    if (!pl_scan_enter(&r->scan)) return false;
    while (pl_scan_next_key(&r->scan, &r->key)) {
        const bool model = strcmp(pl_text_str(&r->key), "model") == 0;
        if (model ? !split_model(r) : !pl_scan_skip(&r->scan)) return false;
    }
    return pl_scan_end(&r->scan);
}

pl_err pl_tokenizer_document_read(struct pl_tokenizer_document *doc, const char *path,
                                  struct pl_diag *d) {
    struct reader r = {.doc = doc, .scan = pl_scan_file(pl_text_str(&doc->text), doc->text.len)};
    struct pl_json_error e;
    pl_err err = PL_ERR_OK;
    if (!split(&r)) {
        pl_json_explain(&r.scan, &e);
        err = pl_json_refuse(&e, PL_ERR_TOKENIZER_SYNTAX, path, d);
    }
    if (err == PL_ERR_OK) err = read_rest(&r, path, d);
    if (r.key.failed) err = pl_host_oom(d, path);
    pl_text_finish(&r.key);
    return err;
}

void pl_tokenizer_document_finish(struct pl_tokenizer_document *doc) {
    pl_text_finish(&doc->text);
    json_decref(doc->root);
    *doc = (struct pl_tokenizer_document){0};
}

struct pl_scan pl_tokenizer_list_scan(const struct pl_tokenizer_document *doc,
                                      const struct pl_tokenizer_list *list) {
    return (struct pl_scan){.text = doc->text.data + list->at, .n = list->n};
}
