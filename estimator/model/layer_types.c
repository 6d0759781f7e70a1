/* layer_types.c - the list that says of every layer what its attention sees. */
#include "estimator/model/families.h"

#include <string.h>

pl_err pl_model_layer_names(const struct pl_hf *h, const struct pl_model *m, const json_t **list) {
    *list = pl_hf_given(h, "layer_types") ? json_object_get(h->object, "layer_types") : NULL;
    if (!*list || (json_is_array(*list) && json_array_size(*list) == m->layers)) return PL_ERR_OK;
    return pl_hf_refuse(h, "layer_types", PL_ERR_MODEL_FIELD, "expected a list of %llu names",
                        (unsigned long long)m->layers);
}

pl_err pl_model_read_layer_types(const struct pl_hf *h, uint64_t window, struct pl_model *m,
                                 bool *given) {
    const json_t *list, *item;
    size_t i;
    PL_TRY(pl_model_layer_names(h, m, &list));
    *given = list != NULL;
    if (!list) return PL_ERR_OK;
    json_array_foreach(list, i, item) {
        const char *name = json_string_value(item);
        const bool full = name && strcmp(name, "full_attention") == 0;
        m->layer[i].window = full ? 0 : (uint32_t)window;
        if (full) continue;
        if (!name || strcmp(name, "sliding_attention") != 0 || !window)
            return pl_hf_refuse(h, "layer_types", PL_ERR_MODEL_UNSUPPORTED,
                                "layer %zu is no \"full_attention\" layer%s", i,
                                window ? " and no \"sliding_attention\" one" : "");
    }
    return PL_ERR_OK;
}
