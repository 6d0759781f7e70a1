#include "estimator/gguf/gguf_types.h"

#include <stddef.h>

static const struct pl_gguf_type types[] = {
#define X(id, name, elements, bytes) {id, #name, elements, bytes},
    PL_GGUF_TYPES(X)
#undef X
};

const struct pl_gguf_type *pl_gguf_type(uint32_t id) {
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (types[i].id == id) return &types[i];
    return NULL;
}
