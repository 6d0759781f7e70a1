/* document.h - a YAML text as a small tree of nodes with places. Internal to config/.
 *
 * In: UTF-8 bytes.  Out: nodes; node 0 is the root.  Needs: base, libyaml (in yaml.c alone).
 *   D1  anchors, aliases, tags, merge keys, keys that are not scalars and further documents were
 *       refused by name
 *   D2  nesting is at most PL_DOCUMENT_DEPTH deep, the text at most PL_DOCUMENT_BYTES long
 * Children of a mapping alternate: key, value, key, value; keys are scalars.
 * Use: struct pl_document doc; pl_document_parse(&doc, &origin, text, bytes, d);
 *      for (i = doc.nodes[0].first; i; i = doc.nodes[i].next) ...; pl_document_finish(&doc); */
#ifndef PL_ESTIMATOR_CONFIG_DOCUMENT_H
#define PL_ESTIMATOR_CONFIG_DOCUMENT_H

#include "estimator/base/diag.h"
#include "estimator/base/text.h"

#include <stdbool.h>
#include <stdint.h>

#define PL_DOCUMENT_BYTES (UINT64_C(1) << 20)
#define PL_DOCUMENT_DEPTH 8

enum pl_node_kind { PL_NODE_SCALAR, PL_NODE_SEQUENCE, PL_NODE_MAPPING };

struct pl_node {
    enum pl_node_kind kind;
    bool plain;            /* a scalar without quotes: the core schema applies */
    uint32_t first, next;  /* first child, next sibling; 0 = none, as node 0 is the root */
    uint32_t n;            /* children */
    uint64_t line, column; /* 1-based; 0 = not from a file */
    uint64_t text_at;      /* offset of text in the document's pool */
    const char *text;      /* scalars: NUL-terminated, without embedded NUL */
};

struct pl_document {
    struct pl_node *nodes;
    uint32_t n, cap; /* n = 0: the text holds no document */
    struct pl_text texts;
};

/* The source that a message blames: a file with the node's place, or an override as it was
 * written. */
struct pl_origin {
    const char *file;          /* NULL = no file */
    const char *override_text; /* NULL = not an override */
};

/* Records a failure at node `at` (NULL = no place). */
pl_err pl_origin_fail(const struct pl_origin *o, const struct pl_node *at, pl_err err,
                      struct pl_diag *d, const char *fmt, ...) PL_PRINTF(5, 6);

/* PL_ERR_CONFIG_SYNTAX, PL_ERR_CONFIG_FILE (too large) or PL_ERR_HOST_OOM. On failure *doc is
 * finished. */
pl_err pl_document_parse(struct pl_document *doc, const struct pl_origin *origin, const char *yaml,
                         uint64_t bytes, struct pl_diag *d);
void pl_document_finish(struct pl_document *doc); /* leaves {0} */

#endif
