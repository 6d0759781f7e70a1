/* wrapper.c - the config.json of a multimodal model, whose language model is one level down. */
#include "estimator/model/wrapper.h"

#include "estimator/base/alloc.h"
#include "estimator/base/json_tree.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#define INNER "text_config"

/* Wrappers whose language model is one of the families, held under INNER. */
static const struct {
    const char *outer, *inner, *class;
} wrappers[] = {
    {"gemma3", "gemma3_text", "Gemma3ForCausalLM"},
    {"gemma4", "gemma4_text", "Gemma4ForCausalLM"},
    {"mistral3", "ministral3", "Ministral3ForCausalLM"},
    {"mistral3", "mistral", "MistralForCausalLM"},
    {"qwen3_5", "qwen3_5_text", "Qwen3_5ForCausalLM"},
};

/* Facts of the language model that such a file may hold at the top level alone. */
static const char *const shared_keys[] = {
    "bos_token_id", "eos_token_id", "pad_token_id",        "tie_word_embeddings",
    "torch_dtype",  "dtype",        "quantization_config", "transformers_version"};

static const char *type_of(const json_t *object) {
    const char *type = json_string_value(json_object_get(object, "model_type"));
    return type ? type : "";
}

static const char *class_of(const json_t *root, const json_t *text) {
    for (size_t i = 0; i < sizeof wrappers / sizeof *wrappers; i++)
        if (strcmp(wrappers[i].outer, type_of(root)) == 0 &&
            strcmp(wrappers[i].inner, type_of(text)) == 0)
            return wrappers[i].class;
    return NULL;
}

static bool complete(const json_t *root, json_t *text, const char *class) {
    for (size_t i = 0; i < sizeof shared_keys / sizeof *shared_keys; i++) {
        json_t *value = json_object_get(root, shared_keys[i]);
        if (value && !json_object_get(text, shared_keys[i]) &&
            json_object_set(text, shared_keys[i], value) != 0)
            return false;
    }
    return json_object_set_new(text, "architectures", json_pack("[s]", class)) == 0;
}

static pl_err replace(const json_t *root, char **text, uint64_t *bytes, struct pl_diag *d) {
    json_t *inner = json_object_get(root, INNER);
    const char *class = class_of(root, inner);
    if (!class) return PL_ERR_OK;
    char *out = complete(root, inner, class) ? pl_json_dump(inner, JSON_INDENT(2)) : NULL;
    if (!out) return pl_host_oom(d, "config.json");
    free(*text);
    *text = out;
    *bytes = strlen(out);
    return PL_ERR_OK;
}

pl_err pl_model_unwrap(char **text, uint64_t *bytes, uint64_t most_weight, struct pl_diag *d) {
    struct pl_json_error e;
    if (!strstr(*text, "\"" INNER "\"")) return PL_ERR_OK; /* most files: they are parsed once */
    if (pl_json_weight(*text, *bytes) > most_weight) return PL_ERR_OK;
    json_t *root = pl_json_load(*text, (size_t)*bytes, PL_JSON_ONE_VALUE, &e);
    if (!root) return PL_ERR_OK; /* pl_model_parse() says what is wrong */
    pl_err err = replace(root, text, bytes, d);
    json_decref(root);
    return err;
}
