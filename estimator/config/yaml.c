/* yaml.c - libyaml events -> struct pl_document. The only file that sees <yaml.h>. */
#include "estimator/base/alloc.h"
#include "estimator/config/document.h"
#include "estimator/config/scalar.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

struct reader {
    yaml_parser_t parser;
    struct pl_document *doc;
    const struct pl_origin *origin;
    struct pl_diag *d;
    const char *yaml;
    uint64_t bytes;
    uint32_t documents, depth;
    uint32_t open[PL_DOCUMENT_DEPTH]; /* containers we are in, outermost first */
    uint32_t last[PL_DOCUMENT_DEPTH]; /* the latest child of each, 0 = none yet */
};

pl_err pl_origin_fail(const struct pl_origin *o, const struct pl_node *at, pl_err err,
                      struct pl_diag *d, const char *fmt, ...) {
    char message[sizeof d->message];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(message, sizeof message, fmt, ap);
    va_end(ap);
    if (o->override_text) return pl_diag_set(d, err, "`%s`: %s", o->override_text, message);
    return pl_diag_at(d, err, o->file, at ? at->line : 0, at ? at->column : 0, "%s", message);
}

static pl_err out_of_memory(struct pl_diag *d) {
    return pl_host_oom(d, "the configuration");
}

static struct pl_node node_at(yaml_mark_t mark) {
    return (struct pl_node){.line = mark.line + 1, .column = mark.column + 1};
}

/* Reader errors (bad UTF-8, control characters) carry a byte offset and no mark. */
static struct pl_node node_at_byte(const struct reader *r, uint64_t offset) {
    struct pl_node at = {.line = 1, .column = 1};
    for (uint64_t i = 0; i < offset && i < r->bytes; i++) {
        unsigned char c = (unsigned char)r->yaml[i];
        if (c == '\n') {
            at.line++;
            at.column = 1;
        } else if ((c & 0xc0) != 0x80) {
            at.column++;
        }
    }
    return at;
}

/* True if the indentation of line `line` (1-based) holds a tab; *column is its column. */
static bool tab_in_indentation(const struct reader *r, uint64_t line, uint64_t *column) {
    const char *s = r->yaml, *end = r->yaml + r->bytes;
    for (; line > 1 && s < end; line--) {
        const char *newline = memchr(s, '\n', (size_t)(end - s));
        s = newline ? newline + 1 : end;
    }
    const char *start = s;
    while (s < end && *s == ' ')
        s++;
    *column = (uint64_t)(s - start) + 1;
    return s < end && *s == '\t';
}

/* libyaml counts characters in marks; what was opened and never closed is noticed at the end. */
static bool at_end(const struct reader *r, yaml_mark_t mark) {
    uint64_t characters = 0;
    for (uint64_t i = 0; i < r->bytes; i++)
        characters += ((unsigned char)r->yaml[i] & 0xc0) != 0x80;
    return mark.index >= characters;
}

static pl_err syntax_error(struct reader *r) {
    const yaml_parser_t *p = &r->parser;
    bool unclosed = p->context && at_end(r, p->problem_mark);
    struct pl_node at = node_at(unclosed ? p->context_mark : p->problem_mark);
    uint64_t column;
    const char *problem = p->problem ? p->problem : "unreadable";
    if (p->error == YAML_MEMORY_ERROR) return out_of_memory(r->d);
    if (p->error == YAML_READER_ERROR) {
        at = node_at_byte(r, p->problem_offset);
    } else if (tab_in_indentation(r, at.line, &column)) {
        at.column = column;
        problem = "a tab in the indentation";
    }
    return pl_origin_fail(r->origin, &at, PL_ERR_CONFIG_SYNTAX, r->d, "not valid YAML: %s",
                          problem);
}

static pl_err refuse_event(struct reader *r, const yaml_event_t *ev, const char *what,
                           const char *hint) {
    struct pl_node at = node_at(ev->start_mark);
    pl_err err = pl_origin_fail(r->origin, &at, PL_ERR_CONFIG_SYNTAX, r->d, "%s", what);
    pl_diag_hint(r->d, "%s", hint);
    return err;
}

/* Appends a node as the next child of the innermost open container. Indices, not pointers, as the
 * array moves while it grows. */
static pl_err add_node(struct reader *r, const yaml_event_t *ev, enum pl_node_kind kind,
                       uint32_t *out) {
    struct pl_document *doc = r->doc;
    if (doc->n == doc->cap) {
        uint32_t cap = doc->cap ? 2 * doc->cap : 128; /* n is bounded by the text's length */
        struct pl_node *nodes = pl_realloc(doc->nodes, cap * sizeof *nodes);
        if (!nodes) return out_of_memory(r->d);
        doc->nodes = nodes;
        doc->cap = cap;
    }
    uint32_t id = doc->n++;
    doc->nodes[id] = node_at(ev->start_mark);
    doc->nodes[id].kind = kind;
    if (r->depth) {
        uint32_t *last = &r->last[r->depth - 1];
        struct pl_node *parent = &doc->nodes[r->open[r->depth - 1]];
        *(*last ? &doc->nodes[*last].next : &parent->first) = id;
        *last = id;
        parent->n++;
    }
    *out = id;
    return PL_ERR_OK;
}

static bool at_key(const struct reader *r) {
    if (!r->depth) return false;
    const struct pl_node *parent = &r->doc->nodes[r->open[r->depth - 1]];
    return parent->kind == PL_NODE_MAPPING && parent->n % 2 == 0;
}

static pl_err check_properties(struct reader *r, const yaml_event_t *ev, const void *anchor,
                               const void *tag) {
    if (anchor)
        return refuse_event(r, ev, "anchors (`&name`) are not supported", "repeat the value");
    if (tag) return refuse_event(r, ev, "tags (`!name`) are not supported", "remove the tag");
    return PL_ERR_OK;
}

static pl_err on_scalar(struct reader *r, const yaml_event_t *ev) {
    const char *text = (const char *)ev->data.scalar.value;
    size_t len = ev->data.scalar.length;
    bool plain = ev->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
    uint32_t id;
    PL_TRY(check_properties(r, ev, ev->data.scalar.anchor, ev->data.scalar.tag));
    if (plain && at_key(r) && strcmp(text, "<<") == 0)
        return refuse_event(r, ev, "merge keys (`<<`) are not supported", "write the keys out");
    if (strlen(text) != len)
        return refuse_event(r, ev, "a NUL character inside a string", "remove the `\\0`");
    PL_TRY(add_node(r, ev, PL_NODE_SCALAR, &id));
    r->doc->nodes[id].plain = plain;
    r->doc->nodes[id].text_at = r->doc->texts.len;
    pl_text_addn(&r->doc->texts, text, len + 1);
    return r->doc->texts.failed ? out_of_memory(r->d) : PL_ERR_OK;
}

static pl_err on_open(struct reader *r, const yaml_event_t *ev, enum pl_node_kind kind,
                      const void *anchor, const void *tag) {
    uint32_t id;
    PL_TRY(check_properties(r, ev, anchor, tag));
    if (at_key(r))
        return refuse_event(r, ev, "a list or mapping as a key", "keys are single words");
    if (r->depth == PL_DOCUMENT_DEPTH)
        return refuse_event(r, ev, "nested too deeply", "a configuration is nested at most 3 deep");
    PL_TRY(add_node(r, ev, kind, &id));
    r->open[r->depth] = id;
    r->last[r->depth] = 0;
    r->depth++;
    return PL_ERR_OK;
}

static pl_err on_document(struct reader *r, const yaml_event_t *ev) {
    if (r->documents++)
        return refuse_event(r, ev, "a second document (`---`)", "one file holds one job");
    if (ev->data.document_start.tag_directives.start != ev->data.document_start.tag_directives.end)
        return refuse_event(r, ev, "tags (`%TAG`) are not supported", "remove the line");
    return PL_ERR_OK;
}

static pl_err on_event(struct reader *r, const yaml_event_t *ev) {
    switch (ev->type) {
    case YAML_DOCUMENT_START_EVENT:
        return on_document(r, ev);
    case YAML_ALIAS_EVENT:
        return refuse_event(r, ev, "aliases (`*name`) are not supported", "repeat the value");
    case YAML_SCALAR_EVENT:
        return on_scalar(r, ev);
    case YAML_SEQUENCE_START_EVENT:
        return on_open(r, ev, PL_NODE_SEQUENCE, ev->data.sequence_start.anchor,
                       ev->data.sequence_start.tag);
    case YAML_MAPPING_START_EVENT:
        return on_open(r, ev, PL_NODE_MAPPING, ev->data.mapping_start.anchor,
                       ev->data.mapping_start.tag);
    case YAML_SEQUENCE_END_EVENT:
    case YAML_MAPPING_END_EVENT:
        r->depth--;
        return PL_ERR_OK;
    default:
        return PL_ERR_OK; /* starts and ends of stream and document */
    }
}

static pl_err read_events(struct reader *r) {
    for (bool more = true; more;) {
        yaml_event_t ev;
        if (!yaml_parser_parse(&r->parser, &ev)) return syntax_error(r);
        more = ev.type != YAML_STREAM_END_EVENT;
        pl_err err = on_event(r, &ev);
        yaml_event_delete(&ev);
        PL_TRY(err);
    }
    for (uint32_t i = 0; i < r->doc->n; i++)
        if (r->doc->nodes[i].kind == PL_NODE_SCALAR)
            r->doc->nodes[i].text = r->doc->texts.data + r->doc->nodes[i].text_at;
    return PL_ERR_OK;
}

pl_err pl_document_parse(struct pl_document *doc, const struct pl_origin *origin, const char *yaml,
                         uint64_t bytes, struct pl_diag *d) {
    static const char bom[] = "\xef\xbb\xbf";
    *doc = (struct pl_document){0};
    if (bytes > PL_DOCUMENT_BYTES)
        return pl_origin_fail(origin, NULL, PL_ERR_CONFIG_FILE, d,
                              "a configuration is at most 1 MiB long");
    if (bytes >= 3 && memcmp(yaml, bom, 3) == 0) {
        yaml += 3;
        bytes -= 3;
    }
    struct reader r = {.doc = doc, .origin = origin, .d = d, .yaml = yaml, .bytes = bytes};
    if (!yaml_parser_initialize(&r.parser)) return out_of_memory(d);
    yaml_parser_set_encoding(&r.parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&r.parser, (const unsigned char *)yaml, (size_t)bytes);
    pl_err err = read_events(&r);
    yaml_parser_delete(&r.parser);
    if (err != PL_ERR_OK) pl_document_finish(doc);
    return err;
}

void pl_document_finish(struct pl_document *doc) {
    free(doc->nodes);
    pl_text_finish(&doc->texts);
    *doc = (struct pl_document){0};
}
