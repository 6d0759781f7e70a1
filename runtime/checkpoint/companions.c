/* companions.c - copies of the files that come with weights. */
#include "runtime/checkpoint/companions.h"

#include "estimator/base/alloc.h"
#include "estimator/base/open_file.h"
#include "estimator/gguf/gguf_tokenizer.h"
#include "runtime/checkpoint/read_file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TEMPLATE_FILE         "chat_template.jinja"
#define TOKENIZER_CONFIG_FILE "tokenizer_config.json"

static const struct {
    const char *name;
    bool of_tokenizer;
} files[] = {
    {"tokenizer.json", true},
    {TOKENIZER_CONFIG_FILE, true},
    {"special_tokens_map.json", true},
    {"added_tokens.json", true},
    {TEMPLATE_FILE, true},
    {"vocab.json", true},
    {"merges.txt", true},
    {"tokenizer.model", true},
    {"generation_config.json", false},
    {"preprocessor_config.json", false},
    {"LICENSE", false},
    {"LICENSE.txt", false},
    {"LICENSE.md", false},
    {"NOTICE", false},
    {"USE_POLICY.md", false},
};
#define N_FILES (sizeof files / sizeof *files)

bool pl_companions_has(const char *name) {
    for (size_t i = 0; i < N_FILES; i++)
        if (strcmp(name, files[i].name) == 0) return true;
    return false;
}

bool pl_companions_is_leftover(const char *name, const void *outbox) {
    return strcmp(name, TEMPLATE_FILE) == 0 && !pl_outbox_has(outbox, name);
}

static pl_err copy_bytes(struct pl_outbox *o, int fd, const char *path, void *buffer,
                         uint64_t bytes, struct pl_diag *d) {
    for (;;) {
        ssize_t n = read(fd, buffer, (size_t)bytes);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0)
            return pl_diag_at(d, pl_err_of_errno(PL_ERR_CHECKPOINT_FILE), path, 0, 0,
                              "cannot read %s: %s", path, strerror(errno));
        if (n == 0) return PL_ERR_OK;
        PL_TRY(pl_outbox_write(o, buffer, (uint64_t)n, d));
    }
}

/* The text that a GGUF file in place of the directory holds. */
static pl_err put_text_of(struct pl_outbox *o, const char *path, const char *name, bool *there,
                          struct pl_diag *d) {
    struct pl_text text = {0};
    pl_err err = pl_gguf_companion(path, &text, there, d);
    if (err == PL_ERR_OK && *there) err = pl_outbox_put(o, name, pl_text_str(&text), text.len, d);
    pl_text_finish(&text);
    return err;
}

/* *there: the directory has the file, which is copied. */
static pl_err copy_from(struct pl_outbox *o, const char *dir, const char *name, void *buffer,
                        uint64_t bytes, bool *there, struct pl_diag *d) {
    pl_err err = PL_ERR_OK;
    const char *why;
    char *path = pl_path_join(dir, name);
    *there = false;
    if (!path) return pl_host_oom(d, "a path");
    int fd = pl_open_file(path, NULL, &why);
    if (fd < 0 && errno == ENOENT) goto out;
    if (fd < 0 && errno == ENOTDIR) {
        err = put_text_of(o, path, name, there, d);
        goto out;
    }
    if (fd < 0) {
        err = pl_diag_at(d, pl_err_of_errno(PL_ERR_CHECKPOINT_FILE), path, 0, 0,
                         "cannot open %s: %s", path, why);
        goto out;
    }
    *there = true;
    PL_TRY_GOTO(pl_outbox_open(o, name, d), out);
    PL_TRY_GOTO(copy_bytes(o, fd, path, buffer, bytes, d), out);
    err = pl_outbox_close(o, d);
out:
    if (fd >= 0) close(fd);
    free(path);
    return err;
}

/* The directory whose tokenizer.json is taken, and with it all that belongs to it but the template,
 * which may be a run's own; 2: none has one, so that each file comes from where it is. */
static pl_err find_tokenizer(const struct pl_companions *c, size_t *out, struct pl_diag *d) {
    for (*out = 0; *out < 2; ++*out) {
        char *path = c->dirs[*out] ? pl_path_join(c->dirs[*out], files[0].name) : NULL;
        if (c->dirs[*out] && !path) return pl_host_oom(d, "a path");
        const bool there = path && (access(path, F_OK) == 0 || pl_gguf_is(c->dirs[*out]));
        free(path);
        if (there) break;
    }
    return PL_ERR_OK;
}

pl_err pl_companions_put(struct pl_outbox *o, const struct pl_companions *c, void *buffer,
                         uint64_t bytes, struct pl_diag *d) {
    size_t of;
    if (!c) return PL_ERR_OK;
    PL_TRY(find_tokenizer(c, &of, d));
    for (size_t i = 0; i < N_FILES; i++) {
        const char *name = files[i].name, *text = NULL; /* NULL: the file is copied */
        const bool template = strcmp(name, TEMPLATE_FILE) == 0;
        if (template) text = c->chat_template;
        if (strcmp(name, TOKENIZER_CONFIG_FILE) == 0) text = c->tokenizer_config;
        const bool of_one = files[i].of_tokenizer && !template && of < 2;
        bool there = text != NULL || (c->tokenizer_config && template);
        if (text) PL_TRY(pl_outbox_put(o, name, text, strlen(text), d));
        if (c->tokenizer_only && !files[i].of_tokenizer) continue;
        for (size_t k = 0; k < 2 && !there; k++)
            if (c->dirs[k] && (!of_one || k == of))
                PL_TRY(copy_from(o, c->dirs[k], name, buffer, bytes, &there, d));
    }
    return PL_ERR_OK;
}
