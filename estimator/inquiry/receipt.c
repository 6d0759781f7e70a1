/* receipt.c - a receipt is written from an estimate, and read back with every sum checked. */
#include "estimator/inquiry/receipt.h"

#include "estimator/base/json_tree.h"
#include "estimator/config/job_text.h"
#include "estimator/config/key_table.h"
#include "estimator/config/meaning.h"
#include "estimator/inquiry/answer.h"
#include "estimator/plan/plan_digest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RECEIPT    1   /* of the form */
#define LINES_MOST 256 /* of a ledger that is read */

/* --- what was asked -------------------------------------------------------------------------- */

static void put_key(json_t **o, const struct pl_job *job, enum pl_key_id key) {
    uint32_t n;
    struct pl_text value = {0};
    pl_job_write_key(job, key, &value);
    if (value.failed || value.len)
        pl_json_set(o, pl_key_table(&n)[key].key,
                    value.failed ? NULL : json_string(pl_text_str(&value)));
    pl_text_finish(&value);
}

/* Every key that has a meaning, with its default where it was not given. */
static json_t *settings_json(const struct pl_job *job) {
    json_t *o = json_object();
    for (int i = 0; i < PL_KEY_COUNT; i++)
        if (job->given[i] || pl_job_key_applies(job, (enum pl_key_id)i))
            put_key(&o, job, (enum pl_key_id)i);
    return o;
}

/* Lists the decisions that the question leaves open. */
static json_t *decided_json(const struct pl_question *q) {
    static const enum pl_key_id open[] = {PL_KEY_batch_size,        PL_KEY_gradient_checkpointing,
                                          PL_KEY_loss_chunk_tokens, PL_KEY_mlp_chunk_tokens,
                                          PL_KEY_unpack_buffer,     PL_KEY_keep_unpacked};
    struct pl_job job = *q->job; /* shallow */
    json_t *o = json_object();
    pl_question_settle(q, &job);
    for (size_t i = 0; i < sizeof open / sizeof *open; i++)
        put_key(&o, &job, open[i]);
    return o;
}

static json_t *model_json(const struct pl_question *q) {
    const struct pl_model *m = q->model;
    const char *name = q->job->model ? q->job->model : q->job->model_config;
    return json_pack("{s:s?, s:s, s:I, s:I, s:I, s:I}", "name", name, "family",
                     pl_family_name(m->family), "param_count", (json_int_t)pl_model_param_count(m),
                     "layers", (json_int_t)m->layers, "hidden", (json_int_t)m->hidden, "vocab",
                     (json_int_t)m->vocab);
}

static json_t *device_json(const struct pl_question *q) {
    static const char *const back_ends[] = {"cpu", "null", "cuda"};
    const struct pl_budget *b = &q->budget;
    char sm[16];
    snprintf(sm, sizeof sm, "%u.%u", q->traits.sm / 10, q->traits.sm % 10);
    json_t *o = json_pack("{s:s, s:s?, s:s?, s:I, s:I, s:I}", "backend",
                          back_ends[q->traits.backend], "card", q->card, "compute_capability",
                          q->traits.sm ? sm : NULL, "threads", (json_int_t)q->traits.threads,
                          "context_bytes", (json_int_t)pl_budget_own_context(b),
                          "context_doubt_bytes", (json_int_t)pl_budget_own_doubt(b));
    if (b->comm_bytes) pl_json_set(&o, "comm_bytes", json_integer((json_int_t)b->comm_bytes));
    if (!b->known) return o;
    pl_json_set(&o, "budget_bytes", json_integer((json_int_t)b->total_bytes));
    pl_json_set(&o, "margin_bytes", json_integer((json_int_t)b->margin_bytes));
    pl_json_set(&o, "budget_source", json_string(b->source));
    return o;
}

/* --- digests --------------------------------------------------------------------------------- */

static json_t *digest_json(const struct pl_digest *h) {
    char text[32];
    snprintf(text, sizeof text, "xxh64 %016llx", (unsigned long long)pl_digest_value(h));
    return json_string(text);
}

static json_t *digests_json(const struct pl_estimate *e, const json_t *asked) {
    enum { QUESTION, PROGRAM, PLAN, N };
    struct pl_digest h[N];
    char *text = asked ? pl_json_dump(asked, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
    if (!text) return NULL;
    for (int i = 0; i < N; i++)
        pl_digest_init(&h[i], 0);
    pl_digest_add(&h[QUESTION], text, strlen(text));
    free(text);
    pl_digest_add_program(&h[PROGRAM], e->planned.program);
    pl_digest_add_plan(&h[PLAN], e->planned.plan);
    return json_pack("{s:o, s:o, s:o}", "question", digest_json(&h[QUESTION]), "program",
                     digest_json(&h[PROGRAM]), "plan", digest_json(&h[PLAN]));
}

/* --- writing --------------------------------------------------------------------------------- */

void pl_receipt_write(const struct pl_estimate *e, const struct pl_text *notes, json_t *measured,
                      struct pl_text *out) {
    json_t *asked =
        json_pack("{s:s, s:o, s:o, s:o}", "mode", pl_estimate_mode(e), "model", model_json(e->q),
                  "device", device_json(e->q), "settings", settings_json(e->q->job));
    json_t *digests = digests_json(e, asked);
    json_t *planned = notes->failed ? NULL : pl_answer_json(e, pl_text_str(notes));
    json_t *o =
        json_pack("{s:i, s:s, s:o, s:o, s:o, s:o, s:o}", "receipt", RECEIPT, "version", PL_VERSION,
                  "asked", asked, "decided", decided_json(e->q), "planned", planned, "measured",
                  measured ? measured : json_null(), "digests", digests);
    char *dump = o ? pl_json_dump(o, JSON_INDENT(2) | JSON_REAL_PRECISION(17)) : NULL;
    out->failed |= !dump;
    pl_text_add(out, dump ? dump : "");
    pl_text_add(out, "\n");
    free(dump);
    json_decref(o);
}

/* --- reading --------------------------------------------------------------------------------- */

struct reading {
    const char *name;
    struct pl_diag *d;
};

static pl_err refuse_receipt(const struct reading *r, const char *what) {
    pl_diag_at(r->d, PL_ERR_DATA_FIELD, r->name, 0, 0, "%s", what);
    pl_diag_hint(r->d, "`plimsoll estimate-vram ... --receipt FILE` writes a receipt, and `train` "
                       "receipt.json in its output_dir");
    return PL_ERR_DATA_FIELD;
}

/* A whole number of bytes under `key`. */
static bool get_bytes(const json_t *o, const char *key, uint64_t *out) {
    const json_t *v = json_object_get(o, key);
    if (!json_is_integer(v) || json_integer_value(v) < 0) return false;
    *out = (uint64_t)json_integer_value(v);
    return true;
}

/* The rows of a ledger, each with its words, are `want` in all. */
static bool adds_up(const json_t *rows, const char *const words[], uint64_t want) {
    uint64_t sum = 0, bytes;
    const json_t *row;
    size_t i;
    if (!json_is_array(rows) || json_array_size(rows) > LINES_MOST) return false;
    json_array_foreach(rows, i, row) {
        for (size_t w = 0; words[w]; w++)
            if (!json_is_string(json_object_get(row, words[w]))) return false;
        if (!get_bytes(row, "bytes", &bytes)) return false;
        sum += bytes; /* of two that are below 2^63: it cannot wrap */
        if (sum > INT64_MAX) return false;
    }
    return sum == want;
}

static pl_err check_planned(const struct reading *r, const json_t *planned) {
    static const char *const device[] = {"category", NULL}, *const host[] = {"category", "memory",
                                                                             NULL};
    const json_t *bytes = json_object_get(planned, "bytes");
    uint64_t total, arena, context, on_host, comm = 0; /* older receipts do not have the last */
    if (!get_bytes(bytes, "total", &total) || !get_bytes(bytes, "arena", &arena) ||
        !get_bytes(bytes, "context", &context) || !get_bytes(bytes, "host", &on_host) ||
        !json_is_string(json_object_get(planned, "verdict")))
        return refuse_receipt(r, "no receipt: `planned` has no bytes or no verdict");
    if (!adds_up(json_object_get(planned, "ledger"), device, arena))
        return refuse_receipt(r, "the lines of `ledger` are not the bytes of the arenas");
    if (json_object_get(bytes, "comm") && !get_bytes(bytes, "comm", &comm))
        return refuse_receipt(r, "`comm` is no number of bytes");
    if (arena + context + comm != total)
        return refuse_receipt(r, "arenas, context and comm are not the total");
    if (!adds_up(json_object_get(planned, "host_ledger"), host, on_host))
        return refuse_receipt(r, "the lines of `host_ledger` are not the bytes of the host");
    return PL_ERR_OK;
}

static bool are_strings(const json_t *o) {
    void *at;
    if (!json_is_object(o)) return false;
    for (at = json_object_iter((json_t *)(uintptr_t)o); at;
         at = json_object_iter_next((json_t *)(uintptr_t)o, at))
        if (!json_is_string(json_object_iter_value(at))) return false;
    return true;
}

static pl_err check_receipt(const struct reading *r, const json_t *root) {
    static const char *const names[] = {"question", "program", "plan"};
    const json_t *asked = json_object_get(root, "asked"), *digests;
    const json_t *form = json_object_get(root, "receipt");
    if (!json_is_integer(form))
        return refuse_receipt(r, "no receipt: the key `receipt` is missing");
    if (json_integer_value(form) != RECEIPT)
        return refuse_receipt(r, "a receipt of another form: this version reads form 1");
    if (!json_is_string(json_object_get(root, "version")) ||
        !json_is_object(json_object_get(asked, "model")) ||
        !json_is_object(json_object_get(asked, "device")) ||
        !json_is_string(json_object_get(asked, "mode")) ||
        !are_strings(json_object_get(asked, "settings")) ||
        !are_strings(json_object_get(root, "decided")))
        return refuse_receipt(r, "no receipt: `asked` or `decided` is not whole");
    if (!json_is_object(json_object_get(root, "measured")) &&
        !json_is_null(json_object_get(root, "measured")))
        return refuse_receipt(r, "no receipt: the key `measured` is missing");
    digests = json_object_get(root, "digests");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!json_is_string(json_object_get(digests, names[i])))
            return refuse_receipt(r, "no receipt: `digests` are not whole");
    return check_planned(r, json_object_get(root, "planned"));
}

pl_err pl_receipt_parse(const char *text, size_t n, const char *name, json_t **out,
                        struct pl_diag *d) {
    const struct reading r = {name, d};
    struct pl_json_error e;
    *out = NULL;
    json_t *root = pl_json_load(text, n, PL_JSON_ONCE, &e);
    if (!root) {
        pl_err err = pl_json_refuse(&e, PL_ERR_DATA_SYNTAX, name, d);
        if (err == PL_ERR_DATA_SYNTAX) pl_diag_hint(d, "a receipt is one JSON object");
        return err;
    }
    pl_err err = check_receipt(&r, root);
    if (err == PL_ERR_OK)
        *out = root;
    else
        json_decref(root);
    return err;
}
