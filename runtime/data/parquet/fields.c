#include "runtime/data/parquet/fields.h"

#include "estimator/base/alloc.h"

#include <stdlib.h>
#include <string.h>

#define DEPTH_MOST 60 /* the library gives 64 names of a path at most */

/* The tree while it is made: groups that are open, the row first. */
struct making {
    struct pl_parquet_tree *t;
    const struct pl_carquet *c;
    const struct pl_carquet_schema *schema;
    uint32_t open[DEPTH_MOST + 1];
    uint32_t depth; /* open[depth] is the innermost group */
};

/* --- types ------------------------------------------------------------------------------------ */
static const struct {
    const char *name;
    uint32_t bytes; /* 0: that of the type's length */
    enum pl_parquet_value value;
} physicals[] = {
    [PL_CARQUET_BOOLEAN] = {"BOOLEAN", 1, PL_PARQUET_BOOLEAN},
    [PL_CARQUET_INT32] = {"INT32", 4, PL_PARQUET_INT32},
    [PL_CARQUET_INT64] = {"INT64", 8, PL_PARQUET_INT64},
    [PL_CARQUET_INT96] = {"INT96", 12, PL_PARQUET_OTHER},
    [PL_CARQUET_FLOAT] = {"FLOAT", 4, PL_PARQUET_FLOAT},
    [PL_CARQUET_DOUBLE] = {"DOUBLE", 8, PL_PARQUET_DOUBLE},
    [PL_CARQUET_BYTE_ARRAY] = {"BYTE_ARRAY without a logical type", sizeof(struct pl_carquet_bytes),
                               PL_PARQUET_OTHER},
    [PL_CARQUET_FIXED] = {"FIXED_LEN_BYTE_ARRAY", 0, PL_PARQUET_OTHER},
};

static const char *const logicals[] = {
#define X(name) #name,
    PL_CARQUET_LOGICALS(X)
#undef X
};

static enum pl_parquet_value integer_of(int physical, bool is_signed) {
    if (physical == PL_CARQUET_INT32) return is_signed ? PL_PARQUET_INT32 : PL_PARQUET_UINT32;
    if (physical == PL_CARQUET_INT64) return is_signed ? PL_PARQUET_INT64 : PL_PARQUET_UINT64;
    return PL_PARQUET_OTHER;
}

/* Returns how a leaf of these types is written. */
static enum pl_parquet_value value_of(int physical, const struct pl_carquet_logical *logical) {
    switch (logical ? logical->id : PL_CARQUET_NONE) {
    case PL_CARQUET_NONE:
    case PL_CARQUET_NULL: /* no value of such a column is present */
        return physicals[physical].value;
    case PL_CARQUET_STRING:
    case PL_CARQUET_ENUM:
    case PL_CARQUET_JSON:
        return physical == PL_CARQUET_BYTE_ARRAY ? PL_PARQUET_TEXT : PL_PARQUET_OTHER;
    case PL_CARQUET_INTEGER:
        return integer_of(physical, logical->integer.is_signed);
    default:
        return PL_PARQUET_OTHER;
    }
}

/* False: the types are none of the format, or the library counts other levels: a damaged file may
 * have a repetition that is none. */
static bool set_leaf(struct making *m, struct pl_parquet_node *node,
                     const struct pl_carquet_element *e) {
    const struct pl_carquet_logical *logical = m->c->schema_node_logical_type(e);
    const int physical = m->c->schema_node_physical_type(e);
    if (physical < 0 || physical >= PL_CARQUET_PHYSICALS) return false;
    if (logical && (logical->id < 0 || logical->id >= PL_CARQUET_LOGICAL_IDS)) return false;
    const int32_t length = m->c->schema_node_type_length(e), leaf = (int32_t)m->t->leaves;
    if (m->c->schema_max_def_level(m->schema, leaf) != node->definition ||
        m->c->schema_max_rep_level(m->schema, leaf) != node->repetition)
        return false;
    if (!physicals[physical].bytes && length <= 0) return false;
    node->shape = PL_PARQUET_LEAF;
    node->value = value_of(physical, logical);
    node->type = logical && logical->id ? logicals[logical->id] : physicals[physical].name;
    node->bytes = physicals[physical].bytes ? physicals[physical].bytes : (uint32_t)length;
    node->apart = physical == PL_CARQUET_BYTE_ARRAY;
    node->leaf = m->t->leaves++;
    node->leaves = 1;
    return true;
}

/* --- nodes ------------------------------------------------------------------------------------ */
/* Adds element i below the innermost open group. */
static bool add_node(struct making *m, uint32_t i) {
    struct pl_parquet_node *node = &m->t->nodes[i], *parent = &m->t->nodes[m->open[m->depth]];
    const struct pl_carquet_element *e = m->c->schema_get_element(m->schema, (int32_t)i);
    if (!e) return false;
    const int repetition = m->c->schema_node_repetition(e);
    const char *name = m->c->schema_node_name(e);
    node->name = name ? name : "";
    node->repeated = repetition == PL_CARQUET_REPEATED;
    node->definition = (int16_t)(parent->definition + (repetition != PL_CARQUET_REQUIRED));
    node->repetition = (int16_t)(parent->repetition + node->repeated);
    node->end = i + 1;
    parent->children++;
    if (m->c->schema_node_is_leaf(e)) return set_leaf(m, node, e);
    const struct pl_carquet_logical *logical = m->c->schema_node_logical_type(e);
    const int id = logical ? logical->id : PL_CARQUET_NONE;
    node->shape = id == PL_CARQUET_LIST  ? PL_PARQUET_LIST
                  : id == PL_CARQUET_MAP ? PL_PARQUET_PAIRS
                                         : PL_PARQUET_STRUCT;
    node->leaf = m->t->leaves;
    m->open[++m->depth] = i;
    return true;
}

/* Adds elements [from, leaf], of which the last is a leaf and the others are the groups around it
 * that no earlier leaf has. The library tells the depth of a leaf alone. */
static bool add_leaf(struct making *m, uint32_t from, uint32_t leaf) {
    const char *path[DEPTH_MOST + 4];
    const int32_t n = m->c->schema_column_path(m->schema, (int32_t)m->t->leaves, path,
                                               (int32_t)(sizeof path / sizeof *path));
    const int64_t outer = (int64_t)n - 1 - (leaf - from);
    if (n > DEPTH_MOST || outer < 0 || outer > m->depth) return false;
    m->depth = (uint32_t)outer;
    for (uint32_t i = from; i <= leaf; i++)
        if (!add_node(m, i) || path[outer + (i - from)] != m->t->nodes[i].name) return false;
    for (uint32_t i = 0; i <= m->depth; i++) {
        struct pl_parquet_node *group = &m->t->nodes[m->open[i]];
        group->end = leaf + 1;
        group->leaves = m->t->leaves - group->leaf;
    }
    return true;
}

static bool add_all(struct making *m) {
    uint32_t from = 1;
    for (uint32_t i = 1; i < m->t->n; i++) {
        const struct pl_carquet_element *e = m->c->schema_get_element(m->schema, (int32_t)i);
        if (!e) return false;
        if (!m->c->schema_node_is_leaf(e)) continue;
        if (!add_leaf(m, from, i)) return false;
        from = i + 1;
    }
    return from == m->t->n && m->t->leaves &&
           m->t->leaves == (uint32_t)m->c->schema_num_columns(m->schema);
}

/* True if a repeated group is the element of the list, and not a holder of it: LogicalTypes.md of
 * the format, "Backward-compatibility rules". */
static bool is_element(const struct pl_parquet_node *list, const struct pl_parquet_node *repeated) {
    static const char tuple[] = "_tuple";
    const size_t n = strlen(list->name);
    if (repeated->shape != PL_PARQUET_STRUCT || repeated->children != 1) return true;
    return strcmp(repeated->name, "array") == 0 ||
           (strncmp(repeated->name, list->name, n) == 0 && strcmp(repeated->name + n, tuple) == 0);
}

/* A group that is annotated as a list or a map, and does not look like one, is what it looks
 * like. */
static void set_shapes(struct pl_parquet_tree *t) {
    for (uint32_t i = 1; i < t->n; i++) {
        struct pl_parquet_node *node = &t->nodes[i], *child = node + 1;
        if (node->shape != PL_PARQUET_LIST && node->shape != PL_PARQUET_PAIRS) continue;
        const bool pair = child->shape == PL_PARQUET_STRUCT && child->children == 2;
        if (node->children != 1 || !child->repeated || (node->shape == PL_PARQUET_PAIRS && !pair))
            node->shape = PL_PARQUET_STRUCT;
        else if (node->shape == PL_PARQUET_LIST && !is_element(node, child))
            child->shape = PL_PARQUET_HOLDER;
    }
}

pl_err pl_parquet_tree_make(struct pl_parquet_tree *t, const struct pl_carquet *c,
                            const struct pl_carquet_schema *schema, const char *path,
                            struct pl_diag *d) {
    const int32_t n = c->schema_num_elements(schema);
    struct making m = {.t = t, .c = c, .schema = schema};
    *t = (struct pl_parquet_tree){.n = n > 0 ? (uint32_t)n : 0};
    t->nodes = pl_calloc((size_t)t->n + 1, sizeof *t->nodes);
    if (!t->nodes) return pl_host_oom(d, "the columns of a Parquet file");
    t->nodes[0] = (struct pl_parquet_node){.name = "", .shape = PL_PARQUET_STRUCT, .end = 1};
    if (add_all(&m)) {
        set_shapes(t);
        return PL_ERR_OK;
    }
    pl_parquet_tree_finish(t);
    pl_diag_at(d, PL_ERR_DATA_SYNTAX, path, 1, 0,
               "the columns of the Parquet file are damaged, or nested more than %d deep",
               DEPTH_MOST);
    return PL_ERR_DATA_SYNTAX;
}

void pl_parquet_tree_finish(struct pl_parquet_tree *t) {
    free(t->nodes);
    *t = (struct pl_parquet_tree){.nodes = NULL};
}
