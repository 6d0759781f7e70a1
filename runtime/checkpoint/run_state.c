/* run_state.c - counters under Hugging Face's names for its tools, and all of them, exact, under
 * "plimsoll" for resuming, with what tells damage and another job. */
#include "estimator/base/digest.h"
#include "estimator/base/json_tree.h"
#include "runtime/checkpoint/durable.h"
#include "runtime/checkpoint/foreign.h"
#include "runtime/checkpoint/json_io.h"
#include "runtime/checkpoint/manifest.h"
#include "runtime/checkpoint/read_file.h"
#include "runtime/checkpoint/run_state.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* A field that is not known here has TrainerState's default. epoch: the data room counts
 * samples. */
static const char fixed_state[] =
    "{\"best_global_step\": null, \"best_metric\": null, \"best_model_checkpoint\": null,"
    " \"epoch\": null, \"is_hyper_param_search\": false, \"is_local_process_zero\": true,"
    " \"is_world_process_zero\": true, \"log_history\": [], \"stateful_callbacks\": {},"
    " \"trial_name\": null, \"trial_params\": null}";

/* Every field of struct pl_run_state, its largest value, and whether it was always there. */
#define RUN_STATE_MAP(X)                                                                           \
    X(step, UINT64_MAX, true)                                                                      \
    X(position, UINT64_MAX, true)                                                                  \
    X(batch_size, UINT32_MAX, true)                                                                \
    X(global_batch, UINT64_MAX, true)                                                              \
    X(tokens, UINT64_MAX, true)                                                                    \
    X(oom_recoveries, UINT64_MAX, true)                                                            \
    X(seed, UINT64_MAX, true)                                                                      \
    X(unit, UINT32_MAX, false)                                                                     \
    X(loss_chunk_tokens, UINT32_MAX, false)                                                        \
    X(epoch_rows, UINT64_MAX, false)                                                               \
    X(data_tokens, UINT64_MAX, false)                                                              \
    X(chat_day, UINT32_MAX, false)                                                                 \
    X(run_number, UINT64_MAX, false)                                                               \
    X(loss_scale, UINT64_MAX, false)                                                               \
    X(good_updates, UINT64_MAX, false)                                                             \
    X(skipped_steps, UINT64_MAX, false)                                                            \
    X(best_of, UINT32_MAX, false)                                                                  \
    X(best_seen, UINT64_MAX, false)                                                                \
    X(best_saved, UINT64_MAX, false)                                                               \
    X(best_step, UINT64_MAX, false)                                                                \
    X(evaluations_in_vain, UINT64_MAX, false)

/* JSON readers promise whole numbers up to 2^53 only (RFC 8259, section 6); what is larger, such as
 * a seed of 64 bits, is a decimal string. */
#define LARGEST_NUMBER (UINT64_C(1) << 53)

static bool set_counter(json_t *o, const char *key, uint64_t v) {
    char text[24];
    snprintf(text, sizeof text, "%llu", (unsigned long long)v);
    return json_object_set_new(
               o, key, v <= LARGEST_NUMBER ? json_integer((json_int_t)v) : json_string(text)) == 0;
}

static json_t *make_counters(const struct pl_run_state *s) {
    json_t *o = json_object();
    bool whole = o != NULL;
#define X(field, largest, always) whole = set_counter(o, #field, s->field) && whole;
    RUN_STATE_MAP(X)
#undef X
    if (whole) return o;
    json_decref(o);
    return NULL;
}

/* The digest of the file stands in the file: it is taken with zeros in its place. A quote within a
 * JSON string is escaped, so the mark stands nowhere else. */
#define DIGEST_KEY  "state_xxh64"
#define DIGEST_MARK "\"" DIGEST_KEY "\": \""
static const char no_digest[] = "0000000000000000";

/* The place of the sixteen digits of the digest; NULL: there is none. */
static char *find_digest(char *text) {
    char *mark = strstr(text, DIGEST_MARK), *digits = mark ? mark + strlen(DIGEST_MARK) : NULL;
    return digits && strnlen(digits, sizeof no_digest) == sizeof no_digest ? digits : NULL;
}

/* The digest of the whole text, with zeros for the digits; those that stand there are left as they
 * are. */
static char *digest_text(char *text, uint64_t bytes, char *digits, char out[PL_DIGEST_TEXT]) {
    struct pl_digest h;
    const size_t before = (size_t)(digits - text), after = before + strlen(no_digest);
    pl_digest_init(&h, 0);
    pl_digest_add(&h, text, before);
    pl_digest_add(&h, no_digest, strlen(no_digest));
    pl_digest_add(&h, text + after, (size_t)bytes - after);
    return pl_digest_text(pl_digest_value(&h), out);
}

static json_t *make_record(const struct pl_run_state *s, json_t *job, json_t *files) {
    json_t *root = pl_json_load(fixed_state, sizeof fixed_state - 1, 0, NULL),
           *ours = make_counters(s);
    const int format = pl_manifest_has_pieces(files) ? PL_STATE_PIECES : PL_STATE_FORMAT;
    /* set_new takes its value on failure too, and a NULL value or object is a failure. */
    bool whole =
        json_object_set_new(ours, "format", json_integer(format)) == 0 &&
        json_object_set_new(ours, "run_id", json_string(s->run_id)) == 0 &&
        json_object_set_new(ours, DIGEST_KEY, json_string(no_digest)) == 0 &&
        json_object_set_new(ours, "job", job ? json_incref(job) : json_object()) == 0 &&
        json_object_set_new(ours, "files", files ? json_incref(files) : json_object()) == 0;
    whole = json_object_set_new(root, "plimsoll", ours) == 0 && whole;
    whole = json_object_set_new(root, "global_step", json_integer((json_int_t)s->step)) == 0 &&
            json_object_set_new(root, "train_batch_size", json_integer(s->batch_size)) == 0 &&
            whole;
    if (s->best_step) { /* under the names of transformers, for those who look for them there */
        double value;
        memcpy(&value, &s->best_saved, sizeof value);
        pl_json_set(&root, "best_metric", json_real(value));
        pl_json_set(&root, "best_global_step", json_integer((json_int_t)s->best_step));
    }
    if (whole) return root;
    json_decref(root);
    return NULL;
}

pl_err pl_run_record_put(struct pl_outbox *o, const struct pl_run_state *s, json_t *job,
                         struct pl_diag *d) {
    char digest[PL_DIGEST_TEXT];
    json_t *root = make_record(s, job, o->manifest);
    char *text = root ? pl_json_text(root) : NULL, *digits = text ? find_digest(text) : NULL;
    json_decref(root);
    pl_err err = PL_ERR_OK;
    if (!digits) {
        err = pl_host_oom(d, PL_STATE_FILE);
    } else {
        digest_text(text, strlen(text), digits, digest);
        memcpy(digits, digest, strlen(no_digest));
        o->manifest = NULL;
        err = pl_outbox_put(o, PL_STATE_FILE, text, strlen(text), d);
    }
    free(text);
    return err;
}

static bool parse_counter(const json_t *v, uint64_t *out) {
    if (json_is_integer(v) && json_integer_value(v) >= 0) {
        *out = (uint64_t)json_integer_value(v);
        return true;
    }
    const char *text = json_string_value(v);
    char *end;
    if (!text || *text < '0' || *text > '9') return false;
    errno = 0;
    *out = strtoull(text, &end, 10);
    return *end == 0 && errno == 0;
}

/* `always`: no checkpoint is older than this counter; others stay 0 where they are missing. */
static pl_err get_counter(const json_t *counters, const char *path, const char *key,
                          uint64_t largest, bool always, uint64_t *out, struct pl_diag *d) {
    const json_t *v = json_object_get(counters, key);
    *out = 0;
    if (!v && !always) return PL_ERR_OK;
    if (parse_counter(v, out) && *out <= largest) return PL_ERR_OK;
    return pl_diag_at(d, PL_ERR_CHECKPOINT_FORMAT, path, 0, 0, "%s: plimsoll.%s is not a counter",
                      path, key);
}

static pl_err get_counters(const json_t *counters, const char *path, struct pl_run_state *out,
                           struct pl_diag *d) {
    struct pl_run_state s = {0};
    uint64_t v = 0;
#define X(field, largest, always)                                                                  \
    PL_TRY(get_counter(counters, path, #field, largest, always, &v, d));                           \
    s.field = v;
    RUN_STATE_MAP(X)
#undef X
    *out = s;
    return PL_ERR_OK;
}

static pl_err damaged(const char *path, struct pl_diag *d, const char *what) {
    return pl_diag_at(d, PL_ERR_CHECKPOINT_FORMAT, path, 0, 0, "%s is damaged: %s", path, what);
}

/* The members that formats 2 and 3 have besides the counters. */
static const char *const new_keys[] = {"format", "run_id", "job", "files", DIGEST_KEY};

/* R3. One key of the new ones that is missing is damage, all of them are an earlier version. */
static pl_err find_format(const json_t *ours, const char *path, json_int_t *out,
                          struct pl_diag *d) {
    size_t found = 0;
    const size_t n = sizeof new_keys / sizeof *new_keys;
    for (size_t i = 0; i < n; i++)
        found += json_object_get(ours, new_keys[i]) != NULL;
    *out = found ? json_integer_value(json_object_get(ours, "format")) : 1;
    if (*out > PL_STATE_PIECES) {
        pl_diag_at(d, PL_ERR_CHECKPOINT_FORMAT, path, 0, 0,
                   "%s is of format %lld; this version reads up to %d", path, (long long)*out,
                   PL_STATE_PIECES);
        pl_diag_hint(d, "resume with the version of Plimsoll that wrote it, or a later one");
        return PL_ERR_CHECKPOINT_FORMAT;
    }
    if (!found || (found == n && *out >= PL_STATE_FORMAT)) return PL_ERR_OK;
    return damaged(path, d, "some of what belongs to format 2 is missing");
}

static pl_err check_digest(char *text, uint64_t bytes, const char *path, struct pl_diag *d) {
    char now[PL_DIGEST_TEXT];
    char *digits = find_digest(text);
    if (!digits) return damaged(path, d, "its digest is missing");
    digest_text(text, bytes, digits, now);
    return strncmp(digits, now, strlen(now)) == 0
               ? PL_ERR_OK
               : damaged(path, d, "its text is not the one that its digest was made of");
}

static bool is_run_id(const char *text) {
    return text && (!*text || (strlen(text) == PL_RUN_ID_TEXT - 1 &&
                               strspn(text, "0123456789abcdef") == PL_RUN_ID_TEXT - 1));
}

static pl_err take_record(struct pl_run_record *r, const json_t *ours, const char *path,
                          struct pl_diag *d) {
    json_t *job = json_object_get(ours, "job"), *files = json_object_get(ours, "files");
    const char *id = json_string_value(json_object_get(ours, "run_id"));
    if (!json_is_object(job) || !json_is_object(files) || !is_run_id(id))
        return damaged(path, d, "job, files or run_id is of another type");
    snprintf(r->state.run_id, sizeof r->state.run_id, "%s", id);
    r->job = json_incref(job);
    r->files = json_incref(files);
    return PL_ERR_OK;
}

static pl_err parse_record(struct pl_run_record *r, char *text, uint64_t bytes, const char *path,
                           struct pl_diag *d) {
    json_t *root = NULL;
    json_int_t format;
    pl_err err = pl_json_parse(path, text, bytes, &root, d);
    /* Nobody can download a state again: the caller knows what to do without it. */
    if (err == PL_ERR_CHECKPOINT_FORMAT && d) d->hint[0] = 0;
    if (err != PL_ERR_OK) return err;
    const json_t *ours = json_object_get(root, "plimsoll");
    err = find_format(ours, path, &format, d);
    if (err == PL_ERR_OK && format > 1) err = check_digest(text, bytes, path, d);
    if (err == PL_ERR_OK) err = get_counters(ours, path, &r->state, d);
    if (err == PL_ERR_OK && format > 1) err = take_record(r, ours, path, d);
    json_decref(root);
    return err;
}

pl_err pl_run_record_read(struct pl_run_record *out, const char *dir, struct pl_diag *d) {
    char *text = NULL, *path = pl_path_join(dir, PL_STATE_FILE);
    uint64_t bytes;
    *out = (struct pl_run_record){0};
    pl_err err =
        path ? pl_file_read(path, PL_JSON_LIMIT, &text, &bytes, d) : pl_host_oom(d, "a path");
    if (err == PL_ERR_OK)
        err = pl_foreign_is_state(text, bytes) ? pl_foreign_refuse(dir, d)
                                               : parse_record(out, text, bytes, path, d);
    if (err != PL_ERR_OK) pl_run_record_finish(out);
    free(text);
    free(path);
    return err;
}

void pl_run_record_finish(struct pl_run_record *r) {
    json_decref(r->job);
    json_decref(r->files);
    *r = (struct pl_run_record){0};
}

pl_err pl_run_record_exists(const char *dir, bool *out, struct pl_diag *d) {
    return pl_dir_holds(dir, PL_STATE_FILE, out, d);
}

pl_err pl_checkpoint_read_state(const char *path, struct pl_run_state *out, struct pl_diag *d) {
    struct pl_run_record r;
    pl_err err = pl_run_record_read(&r, path, d);
    if (err == PL_ERR_OK) *out = r.state;
    pl_run_record_finish(&r);
    return err;
}
