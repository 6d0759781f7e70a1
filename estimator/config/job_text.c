/* job_text.c - defaults, file and overrides -> struct pl_job; writing it back. */
#include "estimator/config/job_text.h"

#include "estimator/base/given_file.h"
#include "estimator/base/alloc.h"
#include "estimator/base/open_file.h"
#include "estimator/config/document.h"
#include "estimator/config/recipe.h"
#include "estimator/config/key_table.h"
#include "estimator/config/key_types.h"
#include "estimator/config/meaning.h"
#include "estimator/config/scalar.h"
#include "estimator/config/trainer_words.h"
#include "estimator/config/validate.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define KEY_BYTES 64 /* longer than every key; what does not fit is unknown */

static void *field_of(struct pl_job *job, uint32_t id) {
    return (char *)job + pl_key_fields[id].offset;
}

static const void *const_field_of(const struct pl_job *job, uint32_t id) {
    return (const char *)job + pl_key_fields[id].offset;
}

static const struct pl_key_type *type_of(uint32_t id) {
    return &pl_key_types[pl_key_fields[id].type];
}

static const struct pl_key_info *info_of(uint32_t id) {
    uint32_t n;
    return &pl_key_table(&n)[id];
}

static pl_err out_of_memory(struct pl_diag *d) {
    return pl_host_oom(d, "the configuration");
}

/* ---- one key ---- */

/* The field changes only when the new value is good. */
static pl_err store(struct pl_job *job, const struct pl_key_input *in) {
    const struct pl_key_type *type = type_of(in->id);
    union pl_key_value v;
    memset(&v, 0, sizeof v);
    type->clear(&v);
    if (!pl_key_is_null(in->info, in->node)) PL_TRY(type->parse(in, &v));
    type->clear(field_of(job, in->id));
    memcpy(field_of(job, in->id), &v, type->size);
    return PL_ERR_OK;
}

static pl_err store_default(struct pl_job *job, uint32_t id, struct pl_diag *d) {
    const struct pl_key_info *info = info_of(id);
    const struct pl_origin origin = {0};
    const struct pl_node node = {.kind = PL_NODE_SCALAR, .plain = true, .text = info->def};
    const struct pl_key_input in = {.id = (enum pl_key_id)id,
                                    .info = info,
                                    .written = info->key,
                                    .origin = &origin,
                                    .node = &node,
                                    .d = d};
    return store(job, &in);
}

/* Returns how many failures were kept; a value whose parts are refused is kept part by part. */
static uint32_t kept(const struct pl_diag *d) {
    return d && d->all ? d->all->n : 0;
}

/* A null value goes back to the default and counts as not given. */
static pl_err assign(struct pl_job *job, const struct pl_key_input *in) {
    const uint32_t before = kept(in->d);
    bool null = pl_key_is_null(in->info, in->node);
    pl_err err = null ? store_default(job, in->id, in->d) : store(job, in);
    job->unread[in->id] = err != PL_ERR_OK || kept(in->d) > before;
    if (err != PL_ERR_OK) return err;
    job->given[in->id] = !null;
    job->place[in->id] =
        null ? (struct pl_place){0, 0} : (struct pl_place){in->node->line, in->node->column};
    return PL_ERR_OK;
}

static pl_err unknown_key(const struct pl_origin *origin, const struct pl_node *at,
                          const char *name, struct pl_diag *d) {
    char buf[PL_EXCERPT_BYTES], room[sizeof d->hint];
    struct pl_text known = PL_TEXT_FIXED(room);
    const char *near = pl_key_nearest(name);
    pl_err err = pl_origin_fail(origin, at, PL_ERR_CONFIG_UNKNOWN_KEY, d, "`%s` is not a key",
                                pl_scalar_excerpt(name, buf));
    if (pl_trainer_key_hint(name, &known))
        pl_diag_hint(d, "%s", pl_text_str(&known));
    else if (near)
        pl_diag_hint(d, "did you mean `%s`?", near);
    return err;
}

static void add_place(const struct pl_key_input *in, uint64_t line, struct pl_text *notes) {
    if (in->origin->file && line)
        pl_text_addf(notes, "%s:%llu: ", in->origin->file, (unsigned long long)line);
}

static void note_synonym(const struct pl_key_input *in, uint64_t line, struct pl_text *notes) {
    if (!notes || strcmp(in->written, in->info->key) == 0) return;
    add_place(in, line, notes);
    pl_text_addf(notes, "`%s` is read as `%s`\n", in->written, in->info->key);
}

/* An empty value is common in recipes and means the default; a null that is written out may mean
 * something else elsewhere. */
static void note_null(const struct pl_key_input *in, uint64_t line, struct pl_text *notes) {
    const char *note = pl_trainer_null_note(in->id);
    if (!notes || !note || !pl_key_is_null(in->info, in->node) || !*in->node->text) return;
    add_place(in, line, notes);
    pl_text_addf(notes, "%s\n", note);
}

/* ---- the file ---- */

struct file_pass {
    struct pl_job *job;
    const struct pl_origin *origin;
    const struct pl_document *doc;
    const struct pl_node *seen[PL_KEY_COUNT]; /* the key's node, under whichever name */
    struct pl_text *notes;
    struct pl_diag *d;
};

static pl_err duplicate_key(const struct file_pass *p, const struct pl_node *key,
                            const struct pl_node *first) {
    unsigned long long line = key->line, first_line = first->line;
    if (strcmp(key->text, first->text) == 0)
        return pl_origin_fail(p->origin, key, PL_ERR_CONFIG_DUPLICATE_KEY, p->d,
                              "`%s` on line %llu was given on line %llu already", key->text, line,
                              first_line);
    return pl_origin_fail(p->origin, key, PL_ERR_CONFIG_DUPLICATE_KEY, p->d,
                          "`%s` on line %llu means the same as `%s` on line %llu", key->text, line,
                          first->text, first_line);
}

static pl_err apply_key(struct file_pass *p, const struct pl_node *key,
                        const struct pl_node *value) {
    enum pl_key_id id = pl_key_find(key->text);
    if (id == PL_KEY_COUNT) return unknown_key(p->origin, key, key->text, p->d);
    if (p->seen[id]) return duplicate_key(p, key, p->seen[id]);
    p->seen[id] = key;
    const struct pl_key_input in = {.id = id,
                                    .info = info_of(id),
                                    .written = key->text,
                                    .origin = p->origin,
                                    .doc = p->doc,
                                    .node = value,
                                    .d = p->d};
    PL_TRY(assign(p->job, &in));
    note_synonym(&in, key->line, p->notes);
    note_null(&in, key->line, p->notes);
    return PL_ERR_OK;
}

static bool has_unknown_key(const struct pl_document *doc) {
    const struct pl_node *nodes = doc->nodes;
    for (uint32_t i = nodes[0].first; i; i = nodes[nodes[i].next].next)
        if (pl_key_find(nodes[i].text) == PL_KEY_COUNT) return true;
    return false;
}

/* One failure says more about a recipe of another trainer than one for each of its keys. A file
 * that has no keys but ours and their synonyms is read. */
static pl_err refuse_foreign(const struct file_pass *p) {
    const enum pl_recipe f = pl_recipe_find(p->doc);
    if (f == PL_RECIPE_NONE || !has_unknown_key(p->doc)) return PL_ERR_OK;
    pl_origin_fail(p->origin, NULL, PL_ERR_CONFIG_FOREIGN, p->d, "a configuration of %s",
                   pl_recipe_title(f));
    pl_diag_hint(p->d, "`plimsoll import %s -o job.yaml` writes the job",
                 p->origin->file ? p->origin->file : "FILE");
    return PL_ERR_CONFIG_FOREIGN;
}

static pl_err apply_file(struct file_pass *p) {
    const struct pl_node *nodes = p->doc->nodes, *root = nodes;
    if (!p->doc->n || pl_key_is_null(info_of(0), root)) return PL_ERR_OK; /* nothing but comments */
    if (root->kind != PL_NODE_MAPPING)
        return pl_origin_fail(p->origin, root, PL_ERR_CONFIG_SYNTAX, p->d,
                              "a configuration is lines of `key: value`");
    PL_TRY(refuse_foreign(p));
    for (uint32_t i = root->first; i; i = nodes[nodes[i].next].next)
        PL_TRY(pl_diag_keep(p->d, apply_key(p, &nodes[i], &nodes[nodes[i].next])));
    return PL_ERR_OK;
}

static pl_err read_yaml(struct pl_job *job, const char *name, const char *yaml, uint64_t bytes,
                        struct pl_text *notes, struct pl_diag *d) {
    const struct pl_origin origin = {.file = name};
    struct pl_document doc;
    PL_TRY(pl_document_parse(&doc, &origin, yaml, bytes, d));
    struct file_pass pass = {.job = job, .origin = &origin, .doc = &doc, .notes = notes, .d = d};
    pl_err err = apply_file(&pass);
    pl_document_finish(&doc);
    return err;
}

/* ---- overrides ---- */

static pl_err assign_text(struct pl_job *job, struct pl_key_input *in, const char *value) {
    struct pl_document doc;
    /* Text that opens a quote or a bracket is YAML. All other text is taken as it stands, as a
     * shell user means it: a path may hold `: ` or ` #`. */
    if (*value && strchr("\"'[{", *value)) {
        PL_TRY(pl_document_parse(&doc, in->origin, value, strlen(value), in->d));
        for (uint32_t i = 0; i < doc.n; i++)
            doc.nodes[i].line = doc.nodes[i].column = 0; /* places are those of files */
        in->doc = &doc;
        in->node = doc.nodes;
        pl_err err = assign(job, in);
        pl_document_finish(&doc);
        return err;
    }
    size_t len = strlen(value);
    while (len && value[len - 1] == ' ')
        len--;
    char *text = pl_strndup(value, len);
    if (!text) return out_of_memory(in->d);
    const struct pl_node node = {.kind = PL_NODE_SCALAR, .plain = true, .text = text};
    in->node = &node;
    in->split = true;
    pl_err err = assign(job, in);
    free(text);
    return err;
}

static pl_err set_text(struct pl_job *job, const char *key, size_t key_len, const char *value,
                       struct pl_text *notes, struct pl_diag *d) {
    char name[KEY_BYTES], joined[2 * PL_EXCERPT_BYTES], written[PL_EXCERPT_BYTES];
    char excerpt[PL_EXCERPT_BYTES];
    snprintf(name, sizeof name, "%.*s", (int)(key_len < KEY_BYTES ? key_len : KEY_BYTES), key);
    snprintf(joined, sizeof joined, "%s=%s", pl_scalar_excerpt(name, written),
             pl_scalar_excerpt(value, excerpt));
    for (char *c = name; *c; c++)
        if (*c == '-') *c = '_';
    const struct pl_origin origin = {.override_text = joined};
    if (!pl_utf8_valid(value)) /* config.resolved.yaml could not hold it */
        return pl_origin_fail(&origin, NULL, PL_ERR_CONFIG_SYNTAX, d, "the value is not UTF-8");
    enum pl_key_id id = key_len < KEY_BYTES ? pl_key_find(name) : PL_KEY_COUNT;
    if (id == PL_KEY_COUNT) return unknown_key(&origin, NULL, name, d);
    struct pl_key_input in = {
        .id = id, .info = info_of(id), .written = name, .origin = &origin, .d = d};
    PL_TRY(assign_text(job, &in, value + strspn(value, " ")));
    note_synonym(&in, 0, notes);
    return PL_ERR_OK;
}

pl_err pl_job_assign(struct pl_job *job, const char *assignment, struct pl_text *notes,
                     struct pl_diag *d) {
    char buf[PL_EXCERPT_BYTES];
    const char *equals = strchr(assignment, '=');
    if (!equals)
        return pl_diag_set(d, PL_ERR_USAGE, "`%s` is not of the form key=value",
                           pl_scalar_excerpt(assignment, buf));
    if (!equals[1 + strspn(equals + 1, " ")]) { /* most often a variable that is not set */
        pl_diag_set(d, PL_ERR_USAGE, "`%s` has no value", pl_scalar_excerpt(assignment, buf));
        pl_diag_hint(d,
                     "leave it out to keep the value of the file; `%.*s=null` goes back to the "
                     "default",
                     (int)(equals - assignment < KEY_BYTES ? equals - assignment : KEY_BYTES),
                     assignment);
        return PL_ERR_USAGE;
    }
    return set_text(job, assignment, (size_t)(equals - assignment), equals + 1, notes, d);
}

pl_err pl_job_set(struct pl_job *job, const char *key, const char *value, struct pl_diag *d) {
    return set_text(job, key, strlen(key), value, NULL, d);
}

/* ---- whole jobs ---- */

pl_err pl_job_defaults(struct pl_job *job, struct pl_diag *d) {
    memset(job, 0, sizeof *job);
    for (uint32_t i = 0; i < PL_KEY_COUNT; i++)
        type_of(i)->clear(field_of(job, i));
    for (uint32_t i = 0; i < PL_KEY_COUNT; i++) {
        pl_err err = store_default(job, i, d);
        if (err == PL_ERR_OK) continue;
        pl_job_finish(job);
        return err;
    }
    return PL_ERR_OK;
}

pl_err pl_job_drop_useless(struct pl_job *job, struct pl_text *notes, struct pl_diag *d) {
    struct pl_text why = {0};
    pl_err err = PL_ERR_OK;
    for (uint32_t i = 0; i < PL_KEY_COUNT && err == PL_ERR_OK; i++) {
        why.len = 0;
        if (!pl_job_key_is_useless(job, (enum pl_key_id)i, &why)) continue;
        if (notes) pl_text_add(notes, "warning: ");
        if (notes && job->path && job->place[i].line)
            pl_text_addf(notes, "%s:%llu: ", job->path, (unsigned long long)job->place[i].line);
        if (notes) pl_text_addf(notes, "%s: it is ignored\n", pl_text_str(&why));
        err = store_default(job, i, d);
        job->given[i] = false;
        job->place[i] = (struct pl_place){0, 0};
    }
    if (err == PL_ERR_OK && why.failed) err = out_of_memory(d);
    pl_text_finish(&why);
    return err;
}

enum purpose { TO_ESTIMATE, TO_TRAIN, TO_GENERATE };

struct source { /* the source of a configuration */
    const char *name, *yaml;
    uint64_t bytes;
    const char *const *overrides;
    uint32_t n_overrides;
    enum purpose purpose;
};

static pl_err parse(struct pl_job *job, const struct source *from, struct pl_text *notes,
                    struct pl_diag *d) {
    pl_err err = pl_job_defaults(job, d);
    if (err != PL_ERR_OK) return err;
    pl_diag_begin(d);
    if (from->name && !(job->path = pl_strdup(from->name))) {
        err = out_of_memory(d);
        goto out;
    }
    PL_TRY_GOTO(read_yaml(job, from->name, from->yaml, from->bytes, notes, d), out);
    for (uint32_t i = 0; i < from->n_overrides; i++)
        PL_TRY_GOTO(pl_diag_keep(d, pl_job_assign(job, from->overrides[i], notes, d)), out);
    /* The rules between keys come last: keys that are wrong by themselves are known by now. */
    PL_TRY_GOTO(pl_job_require_keys(job, from->purpose != TO_GENERATE, d), out);
    PL_TRY_GOTO(pl_job_drop_useless(job, notes, d), out);
    PL_TRY_GOTO(pl_job_validate(job, d), out);
    if (from->purpose == TO_TRAIN) err = pl_job_require_training(job, d);
out:
    err = pl_diag_first(d, err);
    if (err != PL_ERR_OK) pl_job_finish(job);
    return err;
}

pl_err pl_job_parse(struct pl_job *job, const char *name, const char *yaml, uint64_t yaml_bytes,
                    const char *const *overrides, uint32_t n_overrides, struct pl_text *notes,
                    struct pl_diag *d) {
    const struct source from = {name, yaml, yaml_bytes, overrides, n_overrides, TO_ESTIMATE};
    return parse(job, &from, notes, d);
}

/* `-` and the names that a shell gives to what it opened for the process; -1 for other paths. */
static int inherited(const char *path) {
    int fd = -1, end = 0;
    if (strcmp(path, "-") == 0 || strcmp(path, "/dev/stdin") == 0) return STDIN_FILENO;
    return sscanf(path, "/dev/fd/%9d%n", &fd, &end) == 1 && !path[end] ? fd : -1;
}

/* A stream that is open already is read whatever it is: its writer is there, or it ends. */
static FILE *open_config(const char *path, const char **why) {
    const int given = inherited(path);
    if (given < 0) return pl_fopen_file(path, why);
    const int fd = fcntl(given, F_DUPFD_CLOEXEC, 0);
    FILE *f = fd >= 0 ? fdopen(fd, "rb") : NULL;
    if (!f) *why = strerror(errno);
    if (!f && fd >= 0) close(fd);
    return f;
}

/* One byte more than allowed is read, so that a longer file is seen to be one. */
pl_err pl_config_read_file(const char *path, struct pl_text *out, struct pl_diag *d) {
    char buf[8192];
    pl_err err = PL_ERR_OK;
    const char *why;
    FILE *f = open_config(path, &why);
    if (!f)
        return pl_diag_at(d, pl_err_of_errno(PL_ERR_CONFIG_FILE), path, 0, 0, "cannot open: %s",
                          why);
    while (out->len <= PL_DOCUMENT_BYTES) {
        size_t n = fread(buf, 1, sizeof buf, f);
        if (!n) break;
        pl_text_addn(out, buf, n);
        if (out->failed) break;
    }
    if (out->failed)
        err = out_of_memory(d);
    else if (ferror(f))
        err = pl_diag_at(d, pl_err_of_errno(PL_ERR_CONFIG_FILE), path, 0, 0, "cannot read: %s",
                         strerror(errno));
    fclose(f);
    return err;
}

/* The kind of the file says more than its first line that is no `key: value`, or than a directory
 * that cannot be read as a file. */
static pl_err refuse_other(const char *path, const struct pl_text *yaml, pl_err read,
                           struct pl_diag *d) {
    struct pl_diag other = {0};
    if (read != PL_ERR_OK && read != PL_ERR_CONFIG_FILE) return read;
    const pl_err err = pl_given_as_job(path, pl_text_str(yaml), yaml->len, &other);
    if (err != PL_ERR_OK && d) *d = other;
    return err != PL_ERR_OK ? err : read;
}

static pl_err read_job(struct pl_job *job, const char *path, struct source *from,
                       struct pl_text *notes, struct pl_diag *d) {
    struct pl_text yaml = {0};
    *job = (struct pl_job){0};
    pl_err err = path ? pl_config_read_file(path, &yaml, d) : PL_ERR_OK;
    if (path) PL_TRY_GOTO(refuse_other(path, &yaml, err, d), out);
    from->name = path;
    from->yaml = pl_text_str(&yaml);
    from->bytes = yaml.len;
    err = parse(job, from, notes, d);
out:
    pl_text_finish(&yaml);
    return err;
}

pl_err pl_job_read(struct pl_job *job, const char *path, const char *const *overrides,
                   uint32_t n_overrides, struct pl_text *notes, struct pl_diag *d) {
    struct source from = {.overrides = overrides, .n_overrides = n_overrides};
    return read_job(job, path, &from, notes, d);
}

pl_err pl_job_read_to_train(struct pl_job *job, const char *path, const char *const *overrides,
                            uint32_t n_overrides, struct pl_text *notes, struct pl_diag *d) {
    struct source from = {.overrides = overrides, .n_overrides = n_overrides, .purpose = TO_TRAIN};
    return read_job(job, path, &from, notes, d);
}

pl_err pl_job_read_to_generate(struct pl_job *job, const char *path, const char *const *overrides,
                               uint32_t n_overrides, struct pl_text *notes, struct pl_diag *d) {
    struct source from = {
        .overrides = overrides, .n_overrides = n_overrides, .purpose = TO_GENERATE};
    return read_job(job, path, &from, notes, d);
}

void pl_job_finish(struct pl_job *job) {
    if (!job) return;
    for (uint32_t i = 0; i < PL_KEY_COUNT; i++)
        type_of(i)->clear(field_of(job, i));
    free(job->path);
    memset(job, 0, sizeof *job);
}

/* ---- writing ---- */

void pl_job_write_key(const struct pl_job *job, enum pl_key_id key, struct pl_text *out) {
    const void *field = const_field_of(job, key);
    if (type_of(key)->is_set(field)) type_of(key)->print(info_of(key), field, out);
}

void pl_job_write(const struct pl_job *job, struct pl_text *out) {
    for (uint32_t i = 0; i < PL_KEY_COUNT; i++) {
        enum pl_key_id key = (enum pl_key_id)i;
        if (!type_of(i)->is_set(const_field_of(job, i))) continue;
        if (!job->given[i] && !pl_job_key_applies(job, key)) continue;
        pl_text_addf(out, "%s: ", info_of(i)->key);
        pl_job_write_key(job, key, out);
        pl_text_add(out, "\n");
    }
}
