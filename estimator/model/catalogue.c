/* catalogue.c - finds the row that a name means: by the names in it, by those of Ollama, or by
 * another spelling. */
#include "estimator/model/catalogue.h"

#include "estimator/base/alloc.h"
#include "estimator/base/json_tree.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define SEPARATORS "-_.: "

/* Names that `ollama run` takes, and the models that it downloads for them: one of several sizes
 * for a name without a size, and the instruct model of each. Source: ollama.com/library. */
static const struct {
    const char *names, *id;
} of_ollama[] = {
    {"llama2 llama2:7b", "meta-llama/Llama-2-7b-chat-hf"},
    {"llama2:13b", "meta-llama/Llama-2-13b-chat-hf"},
    {"llama2:70b", "meta-llama/Llama-2-70b-chat-hf"},
    {"codellama codellama:7b", "codellama/CodeLlama-7b-Instruct-hf"},
    {"llama3 llama3:8b", "meta-llama/Meta-Llama-3-8B-Instruct"},
    {"llama3:70b", "meta-llama/Meta-Llama-3-70B-Instruct"},
    {"llama3.1 llama3.1:8b", "meta-llama/Llama-3.1-8B-Instruct"},
    {"llama3.1:70b", "meta-llama/Llama-3.1-70B-Instruct"},
    {"llama3.1:405b", "meta-llama/Llama-3.1-405B-Instruct"},
    {"llama3.2 llama3.2:3b", "meta-llama/Llama-3.2-3B-Instruct"},
    {"llama3.2:1b", "meta-llama/Llama-3.2-1B-Instruct"},
    {"llama3.3 llama3.3:70b", "meta-llama/Llama-3.3-70B-Instruct"},
    {"tinyllama tinyllama:1.1b", "TinyLlama/TinyLlama-1.1B-Chat-v1.0"},
    {"smollm smollm:1.7b", "HuggingFaceTB/SmolLM-1.7B-Instruct"},
    {"smollm:135m", "HuggingFaceTB/SmolLM-135M-Instruct"},
    {"smollm:360m", "HuggingFaceTB/SmolLM-360M-Instruct"},
    {"smollm2 smollm2:1.7b", "HuggingFaceTB/SmolLM2-1.7B-Instruct"},
    {"smollm2:135m", "HuggingFaceTB/SmolLM2-135M-Instruct"},
    {"smollm2:360m", "HuggingFaceTB/SmolLM2-360M-Instruct"},
    {"qwen2:0.5b", "Qwen/Qwen2-0.5B-Instruct"},
    {"qwen2:1.5b", "Qwen/Qwen2-1.5B-Instruct"},
    {"qwen2 qwen2:7b", "Qwen/Qwen2-7B-Instruct"},
    {"qwen2.5:0.5b", "Qwen/Qwen2.5-0.5B-Instruct"},
    {"qwen2.5:1.5b", "Qwen/Qwen2.5-1.5B-Instruct"},
    {"qwen2.5:3b", "Qwen/Qwen2.5-3B-Instruct"},
    {"qwen2.5 qwen2.5:7b", "Qwen/Qwen2.5-7B-Instruct"},
    {"qwen2.5:14b", "Qwen/Qwen2.5-14B-Instruct"},
    {"qwen2.5:32b", "Qwen/Qwen2.5-32B-Instruct"},
    {"qwen2.5:72b", "Qwen/Qwen2.5-72B-Instruct"},
    {"qwen2.5-coder:0.5b", "Qwen/Qwen2.5-Coder-0.5B-Instruct"},
    {"qwen2.5-coder:1.5b", "Qwen/Qwen2.5-Coder-1.5B-Instruct"},
    {"qwen2.5-coder:3b", "Qwen/Qwen2.5-Coder-3B-Instruct"},
    {"qwen2.5-coder qwen2.5-coder:7b", "Qwen/Qwen2.5-Coder-7B-Instruct"},
    {"qwen2.5-coder:14b", "Qwen/Qwen2.5-Coder-14B-Instruct"},
    {"qwen2.5-coder:32b", "Qwen/Qwen2.5-Coder-32B-Instruct"},
    {"qwq qwq:32b", "Qwen/QwQ-32B"},
    {"qwen3:0.6b", "Qwen/Qwen3-0.6B"},
    {"qwen3:1.7b", "Qwen/Qwen3-1.7B"},
    {"qwen3:4b", "Qwen/Qwen3-4B"},
    {"qwen3 qwen3:8b", "Qwen/Qwen3-8B"},
    {"qwen3:14b", "Qwen/Qwen3-14B"},
    {"qwen3:32b", "Qwen/Qwen3-32B"},
    {"deepseek-r1:1.5b", "deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B"},
    {"deepseek-r1:7b", "deepseek-ai/DeepSeek-R1-Distill-Qwen-7B"},
    {"deepseek-r1:14b", "deepseek-ai/DeepSeek-R1-Distill-Qwen-14B"},
    {"deepseek-r1:32b", "deepseek-ai/DeepSeek-R1-Distill-Qwen-32B"},
    {"deepseek-r1:70b", "deepseek-ai/DeepSeek-R1-Distill-Llama-70B"},
    {"gemma3:270m", "google/gemma-3-270m-it"},
    {"gemma3:1b", "google/gemma-3-1b-it"},
    {"gemma3 gemma3:4b", "google/gemma-3-4b-it"},
    {"gemma3:12b", "google/gemma-3-12b-it"},
    {"gemma3:27b", "google/gemma-3-27b-it"},
    {"mistral mistral:7b", "mistralai/Mistral-7B-Instruct-v0.3"},
    {"mistral-nemo mistral-nemo:12b", "mistralai/Mistral-Nemo-Instruct-2407"},
    {"mistral-small:22b", "mistralai/Mistral-Small-Instruct-2409"},
    {"mistral-small mistral-small:24b", "mistralai/Mistral-Small-24B-Instruct-2501"},
    {"phi3.5 phi3.5:3.8b", "microsoft/Phi-3.5-mini-instruct"},
    {"phi4 phi4:14b", "microsoft/phi-4"},
    {"phi4-mini phi4-mini:3.8b", "microsoft/Phi-4-mini-instruct"},
    {"phi4-reasoning phi4-reasoning:14b", "microsoft/Phi-4-reasoning"},
};
#define N_OF_OLLAMA (sizeof of_ollama / sizeof *of_ollama)

static const char *after_slash(const char *id) {
    const char *slash = strchr(id, '/');
    return slash ? slash + 1 : id;
}

bool pl_catalogue_id(const struct pl_known_model *k, size_t i, char id[PL_KNOWN_ID]) {
    size_t whole = i;
    if (!k->ids[i]) return false;
    while (!*after_slash(k->ids[whole]))
        whole--; /* "owner/" stands for the name of an id before it */
    snprintf(id, PL_KNOWN_ID, "%s%s", k->ids[i], whole == i ? "" : after_slash(k->ids[whole]));
    return true;
}

/* --- names ----------------------------------------------------------------------------------- */

/* The next letter of a name as C3 of catalogue.h has it, ' ' between two words; 0 at the end.
 * `*before` is the letter before it, 0 where a word begins. */
static char next_letter(const char **s, char *before) {
    const char *at = *s + (*before ? strspn(*s, SEPARATORS) : 0);
    const bool number = isdigit((unsigned char)*at) && !isdigit((unsigned char)*before);
    const bool begins = *before && *at && (at != *s || number);
    *before = begins ? 0 : (char)tolower((unsigned char)*at);
    *s = at + (!begins && *at);
    return begins ? ' ' : *before;
}

static bool is_spelt_alike(const char *a, const char *b) {
    char before_a = 0, before_b = 0, letter;
    do {
        letter = next_letter(&a, &before_a);
        if (letter != next_letter(&b, &before_b)) return false;
    } while (letter);
    return true;
}

static bool is_same(const char *a, const char *b) {
    return strcasecmp(a, b) == 0;
}

/* Finds the row one of whose names or ids is `name`, and the id that it means. */
static const struct pl_known_model *
find_known(const char *name, bool (*same)(const char *, const char *), char id[PL_KNOWN_ID]) {
    size_t n;
    const struct pl_known_model *k = pl_catalogue_table(&n);
    for (const struct pl_known_model *end = k + n; k < end; k++) {
        for (size_t i = 0; pl_catalogue_id(k, i, id); i++)
            if (same(id, name) || same(after_slash(id), name)) return k;
        if (same(k->name, name)) {
            (void)pl_catalogue_id(k, 0, id);
            return k;
        }
    }
    return NULL;
}

static bool has_word(const char *words, const char *word) {
    const size_t n = strlen(word);
    for (size_t length; *words; words += length + (words[length] == ' ')) {
        length = strcspn(words, " ");
        if (length == n && strncasecmp(words, word, n) == 0) return true;
    }
    return false;
}

const struct pl_known_model *pl_catalogue_find(const char *name, struct pl_known_as *as) {
    struct pl_known_as own;
    if (!as) as = &own;
    as->guessed = false;
    const struct pl_known_model *k = find_known(name, is_same, as->id);
    if (k) return k;
    as->guessed = true;
    for (size_t i = 0; i < N_OF_OLLAMA; i++)
        if (has_word(of_ollama[i].names, name)) return find_known(of_ollama[i].id, is_same, as->id);
    return find_known(name, is_spelt_alike, as->id);
}

/* --- config.json ----------------------------------------------------------------------------- */

static json_t *tree_of(const struct pl_known_model *k) {
    char id[PL_KNOWN_ID];
    json_t *own = pl_json_load(k->config, strlen(k->config), 0, NULL);
    if (!k->like) return own;
    json_t *whole = tree_of(find_known(k->like, is_same, id));
    pl_json_merge(&whole, own);
    json_decref(own);
    return whole;
}

pl_err pl_catalogue_config(const struct pl_known_model *k, char **text, struct pl_diag *d) {
    if (!k->like) {
        *text = pl_strdup(k->config);
    } else {
        json_t *tree = tree_of(k);
        *text = tree ? pl_json_dump(tree, 0) : NULL;
        json_decref(tree);
    }
    return *text ? PL_ERR_OK : pl_host_oom(d, k->name);
}

/* --- nearest names --------------------------------------------------------------------------- */

static bool is_among(const char *name, const char *const *names, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (is_same(names[i], name)) return true;
    return false;
}

/* Lists every name, and the part of every id after its slash, each once for its row. `out` NULL:
 * counts them, and more. */
static size_t all_names(const char **out) {
    size_t rows, n = 0;
    const struct pl_known_model *k = pl_catalogue_table(&rows);
    for (const struct pl_known_model *end = k + rows; k < end; k++) {
        const size_t first = n;
        if (out) out[n] = k->name;
        n++;
        for (size_t i = 0; k->ids[i]; i++) {
            const char *name = after_slash(k->ids[i]);
            if (!*name || (out && is_among(name, out + first, n - first))) continue;
            if (out) out[n] = name;
            n++;
        }
    }
    return n;
}

void pl_catalogue_nearest(const char *name, struct pl_text *out) {
    const char *near[3], **names = pl_malloc(all_names(NULL) * sizeof *names);
    if (!names) return; /* the failure that this helps with is told without it */
    size_t n = pl_text_nearest_few(after_slash(name), names, all_names(names), near, 3);
    for (size_t i = 0; i < n; i++)
        pl_text_addf(out, "%s%s", i == 0 ? "" : i + 1 == n ? " or " : ", ", near[i]);
    free((void *)names);
}
