/* tokenizer_files.c - opening a tokenizer: tokenizer.json, and the files that come with it. */
#include "estimator/base/alloc.h"
#include "estimator/base/open_file.h"
#include "estimator/gguf/gguf_file.h"
#include "runtime/data/tokenizer/tokenizer.h"
#include "runtime/data/tokenizer/tokenizer_config.h"
#include "runtime/data/tokenizer/tokenizer_parts.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define PATH_BYTES 4096

static pl_err join_path(char out[PATH_BYTES], const char *directory, const char *name,
                        struct pl_diag *d) {
    int n = snprintf(out, PATH_BYTES, "%s%s%s", directory, *directory ? "/" : "", name);
    if (n > 0 && n < PATH_BYTES) return PL_ERR_OK;
    return pl_diag_set(d, PL_ERR_TOKENIZER_FILE, "the path %.200s... is too long", directory);
}

/* A directory, a GGUF file, which stands for one, or the path of a tokenizer.json: the file that is
 * read and where it lies. */
static pl_err find_files(const char *path, char file[PATH_BYTES], char directory[PATH_BYTES],
                         struct pl_diag *d) {
    struct stat st;
    if (stat(path, &st) != 0)
        return pl_diag_at(d, pl_err_of_errno(PL_ERR_TOKENIZER_FILE), path, 0, 0,
                          "there is no tokenizer: %s", strerror(errno));
    if (pl_gguf_is(path)) {
        PL_TRY(join_path(directory, "", path, d));
        return join_path(file, directory, "tokenizer.json", d);
    }
    if (!S_ISDIR(st.st_mode)) {
        const char *slash = strrchr(path, '/');
        PL_TRY(join_path(file, "", path, d));
        memcpy(directory, file, PATH_BYTES);
        directory[slash ? (size_t)(slash - path) + (slash == path) : 0] = 0;
        return PL_ERR_OK;
    }
    static const char *const names[] = {"tokenizer.json", "tokenizer.json.gz"};
    PL_TRY(join_path(directory, "", path, d));
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        PL_TRY(join_path(file, directory, names[i], d));
        if (pl_look_for(file) != PL_NOT_THERE) return PL_ERR_OK; /* opening it says what is wrong */
    }
    return pl_tokenizer_refuse_directory(path, d);
}

/* The newer form of templates wins. */
static pl_err take_config(struct pl_tokenizer *t, const struct pl_tokenizer_config *c,
                          const char *directory, struct pl_diag *d) {
    t->bos = pl_tokenizer_config_token(c, t, "bos_token");
    t->eos = pl_tokenizer_config_token(c, t, "eos_token");
    PL_TRY(pl_tokenizer_config_note_class(c, t, d));
    PL_TRY(pl_tokenizer_read_templates(t, directory, d));
    return t->n_templates ? PL_ERR_OK : pl_tokenizer_take_templates(t, c->merged, c->path, d);
}

static pl_err parse_files(struct pl_tokenizer *t, const struct pl_tokenizer_document *doc,
                          const struct pl_tokenizer_config *c, const char *file,
                          struct pl_diag *d) {
    struct pl_added_list tokens = {0};
    pl_err err = pl_tokenizer_config_tokens(c, doc->root, &tokens, d);
    if (err != PL_ERR_OK) {
        if (d && !d->file[0]) snprintf(d->file, sizeof d->file, "%.511s", c->path);
    } else {
        err = pl_tokenizer_parse(t, doc, &tokens, d);
        if (err != PL_ERR_OK && d && !d->file[0]) snprintf(d->file, sizeof d->file, "%.511s", file);
    }
    free(tokens.all);
    return err;
}

static pl_err open_files(struct pl_tokenizer *t, const char *file, const char *directory,
                         struct pl_diag *d) {
    struct pl_tokenizer_document doc = {0};
    struct pl_tokenizer_config config = {0};
    bool there;
    pl_err err = pl_tokenizer_read_file(file, &doc.text, &there, d);
    if (err == PL_ERR_OK && !there)
        err = pl_diag_at(d, PL_ERR_TOKENIZER_FILE, file, 0, 0, "the file is gone");
    if (err == PL_ERR_OK) err = pl_tokenizer_document_read(&doc, file, d);
    if (err != PL_ERR_OK && d && !d->file[0]) snprintf(d->file, sizeof d->file, "%.511s", file);
    if (err == PL_ERR_OK) err = pl_tokenizer_config_read(&config, directory, d);
    if (err == PL_ERR_OK) err = parse_files(t, &doc, &config, file, d);
    pl_tokenizer_document_finish(&doc);
    if (err == PL_ERR_OK) err = take_config(t, &config, directory, d);
    pl_tokenizer_config_finish(&config);
    return err;
}

pl_err pl_tokenizer_open(const char *path, struct pl_tokenizer **out, struct pl_diag *d) {
    char file[PATH_BYTES], directory[PATH_BYTES];
    struct pl_tokenizer *t = *out = pl_calloc(1, sizeof *t);
    if (!t) return pl_host_oom(d, "a tokenizer");
    t->bos = t->eos = -1;
    pl_err err;
    if (strcmp(path, "byte") == 0) {
        err = pl_tokenizer_make_byte(t, d);
    } else {
        err = find_files(path, file, directory, d);
        if (err == PL_ERR_OK) err = open_files(t, file, directory, d);
    }
    if (err != PL_ERR_OK) pl_tokenizer_close(out);
    return err;
}
