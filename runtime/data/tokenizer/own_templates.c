/* own_templates.c - the chat templates that come with a tokenizer. */
#include "runtime/data/tokenizer/tokenizer.h"
#include "runtime/data/tokenizer/tokenizer_parts.h"
#include "estimator/base/alloc.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static pl_err no_memory(struct pl_diag *d) {
    return pl_host_oom(d, "a chat template");
}

/* Bytes of a name or of a program, which may hold a zero byte. */
struct piece {
    const char *s;
    size_t n;
};

static const struct piece name_of_one = {"default", 7};

static struct piece piece_of(const json_t *string) {
    return (struct piece){json_string_value(string), json_string_length(string)};
}

/* Copies. */
static pl_err keep(struct pl_tokenizer *t, struct piece name, struct piece text, const char *where,
                   struct pl_diag *d) {
    if (memchr(name.s, 0, name.n) || memchr(text.s, 0, text.n))
        return pl_diag_at(d, PL_ERR_TOKENIZER_FIELD, where, 0, 0,
                          "a chat template holds a zero byte");
    struct pl_tokenizer_template *all =
        pl_realloc(t->templates, (t->n_templates + 1) * sizeof *t->templates);
    if (!all) return no_memory(d);
    t->templates = all;
    struct pl_tokenizer_template *one = &all[t->n_templates++];
    *one = (struct pl_tokenizer_template){pl_strndup(name.s, name.n), pl_strndup(text.s, text.n),
                                          pl_strdup(where)};
    return one->name && one->text && one->where ? PL_ERR_OK : no_memory(d);
}

void pl_tokenizer_free_templates(struct pl_tokenizer *t) {
    for (size_t i = 0; i < t->n_templates; i++) {
        free(t->templates[i].name);
        free(t->templates[i].text);
        free(t->templates[i].where);
    }
    free(t->templates);
}

const struct pl_tokenizer_template *pl_tokenizer_template(const struct pl_tokenizer *t, size_t i) {
    return i < t->n_templates ? &t->templates[i] : NULL;
}

pl_err pl_tokenizer_take_templates(struct pl_tokenizer *t, const json_t *config, const char *path,
                                   struct pl_diag *d) {
    const json_t *v = json_object_get(config, "chat_template");
    if (json_is_string(v)) return keep(t, name_of_one, piece_of(v), path, d);
    for (size_t i = 0; i < json_array_size(v); i++) {
        const json_t *entry = json_array_get(v, i);
        const struct piece name = piece_of(json_object_get(entry, "name"));
        const struct piece text = piece_of(json_object_get(entry, "template"));
        if (name.s && text.s) PL_TRY(keep(t, name, text, path, d));
    }
    return PL_ERR_OK;
}

static pl_err read_one(struct pl_tokenizer *t, const char *path, struct piece name,
                       struct pl_diag *d) {
    struct pl_text text = {0};
    bool there;
    pl_err err = pl_tokenizer_read_file(path, &text, &there, d);
    if (err == PL_ERR_OK && there)
        err = keep(t, name, (struct piece){pl_text_str(&text), text.len}, path, d);
    pl_text_finish(&text);
    return err;
}

/* Every NAME.jinja of the directory is the template NAME. */
static pl_err read_directory(struct pl_tokenizer *t, const char *path, struct pl_diag *d) {
    static const char end[] = ".jinja";
    struct pl_text file = {0};
    pl_err err = PL_ERR_OK;
    DIR *dir = opendir(path);
    if (!dir && (errno == ENOENT || errno == ENOTDIR)) return PL_ERR_OK;
    if (!dir)
        return pl_diag_at(d, pl_err_of_errno(PL_ERR_TOKENIZER_FILE), path, 0, 0,
                          "cannot be opened: %s", strerror(errno));
    for (const struct dirent *e; err == PL_ERR_OK && (e = readdir(dir)) != NULL;) {
        const size_t n = strlen(e->d_name);
        const struct piece name = {e->d_name, n - (sizeof end - 1)};
        if (n < sizeof end || strcmp(e->d_name + n - (sizeof end - 1), end) != 0) continue;
        file.len = 0;
        pl_text_addf(&file, "%s/%s", path, e->d_name);
        err = file.failed ? no_memory(d) : read_one(t, pl_text_str(&file), name, d);
    }
    closedir(dir);
    pl_text_finish(&file);
    return err;
}

pl_err pl_tokenizer_read_templates(struct pl_tokenizer *t, const char *directory,
                                   struct pl_diag *d) {
    const char *slash = *directory ? "/" : "";
    struct pl_text path = {0};
    pl_err err = PL_ERR_OK;
    pl_text_addf(&path, "%s%schat_template.jinja", directory, slash);
    if (path.failed) err = no_memory(d);
    if (err == PL_ERR_OK) err = read_one(t, pl_text_str(&path), name_of_one, d);
    path.len = 0;
    pl_text_addf(&path, "%s%schat_templates", directory, slash);
    if (err == PL_ERR_OK && path.failed) err = no_memory(d);
    if (err == PL_ERR_OK) err = read_directory(t, pl_text_str(&path), d);
    pl_text_finish(&path);
    return err;
}
