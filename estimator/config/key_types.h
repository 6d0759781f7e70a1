/* key_types.h - the types of keys.h as a table: how each is parsed, printed and freed. Internal to
 * config/.
 *
 * In: a node of a document.  Out: a field of struct pl_job.  Needs: base, document, scalar.
 *   T1  parse() gets an unset field and leaves it unset when it fails
 *   T2  what print() writes, parse() reads back as an equal value
 * Use: union pl_key_value v; t->clear(&v); t->parse(&in, &v); t->print(&row, field, &text); */
#ifndef PL_ESTIMATOR_CONFIG_KEY_TYPES_H
#define PL_ESTIMATOR_CONFIG_KEY_TYPES_H

#include "estimator/config/job.h"
#include "estimator/config/key_input.h"
#include "estimator/config/key_table.h"

#include <stddef.h>

#define PL_KEY_TYPES(X)                                                                            \
    X(STR, "text")                                                                                 \
    X(PATH, "path")                                                                                \
    X(BOOL, "true or false")                                                                       \
    X(U32, "whole number")                                                                         \
    X(U64, "whole number")                                                                         \
    X(F64, "number")                                                                               \
    X(ENUM, "choice")                                                                              \
    X(DTYPE, "choice")                                                                             \
    X(TEMPLATE, "choice or path")                                                                  \
    X(AUTO, "whole number or auto")                                                                \
    X(BYTES, "size or auto")                                                                       \
    X(RECOMPUTE, "level")                                                                          \
    X(DEVICE, "device")                                                                            \
    X(LIST, "list of texts")                                                                       \
    X(DATASETS, "list of datasets")

enum pl_key_type_id {
#define X(type, label) PL_TYPE_##type,
    PL_KEY_TYPES(X)
#undef X
        PL_TYPE_COUNT
};

union pl_key_value {
#define X(type, label) pl_type_##type as_##type;
    PL_KEY_TYPES(X)
#undef X
};

/* The position of a row of keys.h in struct pl_job. */
struct pl_key_field {
    enum pl_key_type_id type;
    size_t offset;
};
extern const struct pl_key_field pl_key_fields[PL_KEY_COUNT];

struct pl_key_type {
    const char *label; /* name of the type in the reference */
    size_t size;
    pl_err (*parse)(const struct pl_key_input *in, void *field);
    void (*print)(const struct pl_key_info *info, const void *field, struct pl_text *out);
    bool (*is_set)(const void *field);
    void (*clear)(void *field); /* frees and leaves unset; {0} may be cleared too */
};
extern const struct pl_key_type pl_key_types[PL_TYPE_COUNT];

/* True if a node means "no value": empty, ~ or null. A choice that is spelled `null` stays one. */
bool pl_key_is_null(const struct pl_key_info *info, const struct pl_node *node);

/* Appends e.g. "1 to 4096", for keys that are numbers. */
void pl_key_write_limits(enum pl_key_id id, struct pl_text *out);

#endif
