/* names.c - numbers by names. */
#include "estimator/base/names.h"

#include <stddef.h>

bool pl_names_put(struct pl_names *n, const char *name, uint32_t number) {
    if (!n->numbers) n->numbers = json_object();
    /* a name may be that of a file, which need not be UTF-8 */
    return n->numbers &&
           json_object_set_new_nocheck(n->numbers, name, json_integer((json_int_t)number)) == 0;
}

bool pl_names_get(const struct pl_names *n, const char *name, uint32_t *out) {
    const json_t *number = json_object_get(n->numbers, name);
    if (number) *out = (uint32_t)json_integer_value(number);
    return number != NULL;
}

void pl_names_finish(struct pl_names *n) {
    json_decref(n->numbers);
    n->numbers = NULL;
}
