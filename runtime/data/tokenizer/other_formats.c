/* other_formats.c - what a directory without tokenizer.json has instead, and what converts it. */
#include "estimator/base/open_file.h"
#include "runtime/data/tokenizer/tokenizer_parts.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>

#define MOST_SHOWN 150 /* a hint has room for two such paths */

/* Files of which transformers makes a tokenizer.json; `second` must be there, too. */
static const struct {
    const char *first, *second;
} convertible[] = {
    {"tokenizer.model", NULL},    {"vocab.json", "merges.txt"},       {"spiece.model", NULL},
    {"tekken.json", NULL},        {"sentencepiece.bpe.model", NULL},  {"spm.model", NULL},
    {"qwen.tiktoken", NULL},      {"tiktoken.model", NULL},           {"vocab.txt", NULL},
};

static bool is_there(const char *directory, const char *name) {
    struct pl_text path = {0};
    pl_text_addf(&path, "%s/%s", directory, name);
    const bool there = !path.failed && pl_look_for(pl_text_str(&path)) == PL_THERE;
    pl_text_finish(&path);
    return there;
}

/* The first file NAME.tiktoken into *out. */
static void find_tiktoken(const char *directory, struct pl_text *out) {
    DIR *dir = opendir(directory);
    if (!dir) return;
    for (const struct dirent *e; !out->len && (e = readdir(dir)) != NULL;) {
        const char *dot = strrchr(e->d_name, '.');
        if (dot && dot != e->d_name && strcmp(dot, ".tiktoken") == 0)
            pl_text_addf(out, "%.200s", e->d_name);
    }
    closedir(dir);
}

static void find_convertible(const char *directory, struct pl_text *out) {
    for (size_t i = 0; i < sizeof convertible / sizeof *convertible; i++) {
        const char *second = convertible[i].second;
        if (!is_there(directory, convertible[i].first)) continue;
        if (second && !is_there(directory, second)) continue;
        pl_text_addf(out, "%s%s%s", convertible[i].first, second ? " and " : "",
                     second ? second : "");
        return;
    }
    find_tiktoken(directory, out);
}

pl_err pl_tokenizer_refuse_directory(const char *directory, struct pl_diag *d) {
    struct pl_text found = {0};
    find_convertible(directory, &found);
    const char *shown = strlen(directory) <= MOST_SHOWN ? directory : "DIR";
    if (found.len) {
        pl_diag_at(d, PL_ERR_TOKENIZER_FILE, directory, 0, 0,
                   "the directory has %s, but no tokenizer.json", pl_text_str(&found));
        pl_diag_hint(d,
                     "this writes it: python -c \"from transformers import AutoTokenizer; "
                     "AutoTokenizer.from_pretrained('%s').save_pretrained('%s')\"",
                     shown, shown);
    } else {
        pl_diag_at(d, PL_ERR_TOKENIZER_FILE, directory, 0, 0,
                   "the directory has no tokenizer.json");
        pl_diag_hint(d, "copy the files of the model's tokenizer there, or set `tokenizer:` to "
                        "their directory; `byte` is only for models that are trained with it");
    }
    pl_text_finish(&found);
    return PL_ERR_TOKENIZER_FILE;
}
