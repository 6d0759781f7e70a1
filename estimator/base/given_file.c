#include "estimator/base/given_file.h"

#include "estimator/base/alloc.h"
#include "estimator/base/text.h"

#include <stdbool.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

/* The first bytes of a file; only they are looked at. */
struct given {
    const char *path, *bytes;
    size_t n;
};

/* True if the name ends with one of `ends`, a list that ends with NULL, in any case of letters. */
static bool name_ends(const char *path, const char *const *ends) {
    const size_t n = strlen(path);
    for (; *ends; ends++)
        if (n > strlen(*ends) && strcasecmp(path + n - strlen(*ends), *ends) == 0) return true;
    return false;
}

/* True if `key` stands in the first bytes as a key of JSON: in quotes, with a colon after it. */
static bool has_key(const struct given *g, const char *key) {
    const size_t n = strlen(key);
    for (size_t i = 0; i + n + 2 < g->n; i++) {
        if (g->bytes[i] != '"' || g->bytes[i + n + 1] != '"') continue;
        if (memcmp(g->bytes + i + 1, key, n) != 0) continue;
        size_t next = i + n + 2;
        while (next < g->n && strchr(" \t\r\n", g->bytes[next]))
            next++;
        if (next < g->n && g->bytes[next] == ':') return true;
    }
    return false;
}

static bool has_any_key(const struct given *g, const char *const *keys) {
    for (; *keys; keys++)
        if (has_key(g, *keys)) return true;
    return false;
}

/* The first byte that is no blank, after a byte order mark; 0: there is none. */
static char first_byte(const struct given *g) {
    size_t i = g->n >= 3 && memcmp(g->bytes, "\xEF\xBB\xBF", 3) == 0 ? 3 : 0;
    while (i < g->n && strchr(" \t\r\n", g->bytes[i]))
        i++;
    return i < g->n ? g->bytes[i] : 0;
}

static bool is_directory(const struct given *g) {
    struct stat st;
    return stat(g->path, &st) == 0 && S_ISDIR(st.st_mode);
}

static bool is_weights(const struct given *g) {
    static const char *const ends[] = {".safetensors", ".gguf", ".bin", ".pt",
                                       ".pth",         ".ckpt", NULL};
    return name_ends(g->path, ends);
}

static bool is_tokenizer(const struct given *g) {
    static const char *const names[] = {"tokenizer.json", "tokenizer_config.json",
                                        "tokenizer.model", "tokenizer.json.gz", NULL};
    static const char *const keys[] = {"added_tokens", "pre_tokenizer", "tokenizer_class", NULL};
    const char *slash = strrchr(g->path, '/'), *base = slash ? slash + 1 : g->path;
    for (const char *const *name = names; *name; name++)
        if (strcmp(base, *name) == 0) return true;
    return first_byte(g) == '{' && has_any_key(g, keys);
}

static bool is_model_config(const struct given *g) {
    static const char *const keys[] = {"model_type", "architectures", "hidden_size", NULL};
    return first_byte(g) == '{' && has_any_key(g, keys);
}

/* True if the file's name or its magic number is that of rows, or if it is JSON with a column that
 * rows have. */
static bool is_rows(const struct given *g) {
    static const char *const ends[] = {
        ".jsonl",    ".ndjson",    ".csv",     ".tsv",      ".parquet", ".arrow",
        ".jsonl.gz", ".jsonl.zst", ".json.gz", ".json.zst", ".csv.gz",  ".csv.zst",
        ".tsv.gz",   ".tsv.zst",   ".txt.gz",  ".txt.zst",  NULL};
    static const char *const columns[] = {"messages",  "conversations", "conversation", "text",
                                          "prompt",    "completion",    "instruction",  "output",
                                          "input_ids", "question",      "answer",       "response",
                                          "chosen",    "rejected",      "query",        NULL};
    if (name_ends(g->path, ends)) return true;
    if (g->n >= 4 && memcmp(g->bytes, "PAR1", 4) == 0) return true;
    if (g->n >= 6 && memcmp(g->bytes, "ARROW1", 6) == 0) return true;
    return (first_byte(g) == '[' || first_byte(g) == '{') && has_any_key(g, columns);
}

/* The first row that the file fits is told; `hint` takes the path wherever it says `@`. */
static const struct kind {
    bool (*fits)(const struct given *g);
    const char *what, *hint;
} kinds[] = {
    {is_directory, "a directory, not a configuration",
     "a configuration is a YAML file that names it, `model: @`; `plimsoll estimate-vram @` "
     "and `plimsoll tokenize --tokenizer @` take a model's directory"},
    {is_weights, "a file of weights, not a configuration",
     "a configuration is a YAML file that names the directory of the model, `model: DIR`"},
    {is_tokenizer, "a tokenizer's file, not a configuration",
     "`plimsoll tokenize --tokenizer @` takes it; a configuration is a YAML file"},
    {is_model_config, "the configuration of a model, not of a job",
     "`plimsoll estimate-vram @` takes it; a configuration is a YAML file that names the "
     "directory of the model, `model: DIR`"},
    {is_rows, "rows of training data, not a configuration",
     "a job reads them: `plimsoll tokenize CONFIG.yaml datasets=@ --show 3` shows what is trained "
     "on; lines {\"text\": ...} alone: `plimsoll tokenize --tokenizer DIR --json <@`"},
};

/* True for a configuration in the form of a JSON object, which is YAML, too. */
static bool may_be_job(const struct given *g) {
    static const char *const keys[] = {"mode", "dataset", "datasets", "model_config", NULL};
    return first_byte(g) == '{' && has_any_key(g, keys);
}

static pl_err give_hint(const char *hint, const char *path, struct pl_diag *d) {
    struct pl_text t = {0};
    for (; *hint; hint++) {
        if (*hint == '@')
            pl_text_add(&t, path);
        else
            pl_text_addn(&t, hint, 1);
    }
    if (!t.failed) pl_diag_hint(d, "%s", pl_text_str(&t));
    const pl_err err = t.failed ? pl_host_oom(d, "a hint") : PL_ERR_CONFIG_FILE;
    pl_text_finish(&t);
    return err;
}

pl_err pl_given_as_job(const char *path, const char *bytes, size_t n, struct pl_diag *d) {
    const struct given g = {path, bytes, n < PL_GIVEN_BYTES ? n : PL_GIVEN_BYTES};
    struct stat st;
    if (stat(path, &st) != 0 || may_be_job(&g)) return PL_ERR_OK;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (!kinds[i].fits(&g)) continue;
        pl_diag_at(d, PL_ERR_CONFIG_FILE, path, 0, 0, "%s", kinds[i].what);
        return give_hint(kinds[i].hint, path, d);
    }
    return PL_ERR_OK;
}

pl_err pl_given_as_model(const char *path, const char *bytes, size_t n, struct pl_diag *d) {
    const struct given g = {path, bytes, n < PL_GIVEN_BYTES ? n : PL_GIVEN_BYTES};
    if (is_tokenizer(&g) || is_model_config(&g) || !is_rows(&g)) return PL_ERR_OK;
    pl_diag_at(d, PL_ERR_MODEL_FILE, path, 0, 0, "rows of training data, not a model");
    pl_diag_hint(d, "name the model, and the rows as its data: MODEL datasets=%s", path);
    return PL_ERR_MODEL_FILE;
}
