/* api.c - the public library: one question, its answer as a struct.
 *
 * The struct is filled from the JSON answer, so that library and command cannot disagree. */
#include "estimator/api/plimsoll.h"

#include "estimator/base/alloc.h"
#include "estimator/base/json_tree.h"
#include "estimator/config/job_text.h"
#include "estimator/config/job_values.h"
#include "estimator/config/validate.h"
#include "estimator/inquiry/answer.h"
#include "estimator/inquiry/inquiry.h"
#include "estimator/inquiry/receipt.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct answer {
    struct pl_vram_estimate e; /* first: the caller's pointer */
    json_t *json;              /* owns the strings of e */
    char *json_text;
    struct pl_text summary;
    uint64_t card_bytes; /* what pl_estimate_fits_on_card() compares with */
};

/* --- JSON -> struct --------------------------------------------------------------------------- */

enum field_kind { FIELD_REAL, FIELD_COUNT, FIELD_TEXT, FIELD_BOOL };

/* member, kind, the object it stands in ("" = the answer itself), key. null leaves a zero. */
#define FIELDS(X)                                                                                  \
    X(total_gb, REAL, "", "total_gb")                                                              \
    X(model_weights_gb, REAL, "", "model_weights_gb")                                              \
    X(lora_adapter_gb, REAL, "", "lora_adapter_gb")                                                \
    X(optimizer_state_gb, REAL, "", "optimizer_state_gb")                                          \
    X(activations_gb, REAL, "", "activations_gb")                                                  \
    X(kv_cache_gb, REAL, "", "kv_cache_gb")                                                        \
    X(overhead_gb, REAL, "", "overhead_gb")                                                        \
    X(param_count_billions, REAL, "", "param_count_billions")                                      \
    X(mode, TEXT, "", "mode")                                                                      \
    X(batch_size, COUNT, "", "batch_size")                                                         \
    X(gradient_accumulation, COUNT, "", "gradient_accumulation")                                   \
    X(max_seq_length, COUNT, "", "max_seq_length")                                                 \
    X(lora_r, COUNT, "", "lora_r")                                                                 \
    X(gradients_gb, REAL, "", "gradients_gb")                                                      \
    X(logits_gb, REAL, "", "logits_gb")                                                            \
    X(workspace_gb, REAL, "", "workspace_gb")                                                      \
    X(context_gb, REAL, "", "context_gb")                                                          \
    X(fragmentation_gb, REAL, "", "fragmentation_gb")                                              \
    X(host_ram_gb, REAL, "", "host_ram_gb")                                                        \
    X(recommended_batch_size, COUNT, "", "recommended_batch_size")                                 \
    X(param_count, COUNT, "", "param_count")                                                       \
    X(trainable_param_count, COUNT, "", "trainable_param_count")                                   \
    X(total_bytes, COUNT, "bytes", "total")                                                        \
    X(arena_bytes, COUNT, "bytes", "arena")                                                        \
    X(job_arena_bytes, COUNT, "bytes", "job_arena")                                                \
    X(batch_arena_bytes, COUNT, "bytes", "batch_arena")                                            \
    X(context_bytes, COUNT, "bytes", "context")                                                    \
    X(host_bytes, COUNT, "bytes", "host")                                                          \
    X(weights_bytes, COUNT, "bytes", "weights")                                                    \
    X(adapters_bytes, COUNT, "bytes", "adapters")                                                  \
    X(gradients_bytes, COUNT, "bytes", "gradients")                                                \
    X(optimizer_bytes, COUNT, "bytes", "optimizer")                                                \
    X(activations_bytes, COUNT, "bytes", "activations")                                            \
    X(logits_bytes, COUNT, "bytes", "logits")                                                      \
    X(workspace_bytes, COUNT, "bytes", "workspace")                                                \
    X(batch_bytes, COUNT, "bytes", "batch")                                                        \
    X(alignment_bytes, COUNT, "bytes", "alignment")                                                \
    X(fragmentation_bytes, COUNT, "bytes", "fragmentation")                                        \
    X(verdict, TEXT, "", "verdict")                                                                \
    X(fits, BOOL, "", "fits")                                                                      \
    X(approximate, BOOL, "", "approximate")                                                        \
    X(vram_gb, REAL, "", "vram_gb")                                                                \
    X(budget_bytes, COUNT, "limits", "budget_bytes")                                               \
    X(margin_bytes, COUNT, "limits", "margin_bytes")                                               \
    X(usable_bytes, COUNT, "limits", "usable_bytes")                                               \
    X(budget_source, TEXT, "limits", "source")                                                     \
    X(peak_phase, TEXT, "", "peak_phase")                                                          \
    X(refusal, TEXT, "", "refusal")                                                                \
    X(comm_gb, REAL, "", "comm_gb")                                                                \
    X(comm_bytes, COUNT, "bytes", "comm")                                                          \
    X(quick.weights_gb, REAL, "quick", "weights")                                                  \
    X(quick.gradients_gb, REAL, "quick", "gradients")                                              \
    X(quick.optimizer_gb, REAL, "quick", "optimizer")                                              \
    X(quick.activations_gb, REAL, "quick", "activations")                                          \
    X(quick.overhead_gb, REAL, "quick", "overhead")                                                \
    X(quick.total_gb, REAL, "quick", "total")

static const struct {
    const char *object, *key;
    size_t offset;
    enum field_kind kind;
} fields[] = {
#define X(member, kind, object, key)                                                               \
    {object, key, offsetof(struct pl_vram_estimate, member), FIELD_##kind},
    FIELDS(X)
#undef X
};

static void set_real(void *at, const json_t *v) {
    const double x = json_number_value(v);
    memcpy(at, &x, sizeof x);
}

static void set_count(void *at, const json_t *v) {
    const uint64_t n = (uint64_t)json_integer_value(v);
    memcpy(at, &n, sizeof n);
}

static void set_text(void *at, const json_t *v) {
    const char *s = json_string_value(v);
    memcpy(at, &s, sizeof s);
}

static void set_bool(void *at, const json_t *v) {
    const bool b = json_is_true(v);
    memcpy(at, &b, sizeof b);
}

static void (*const setters[])(void *at, const json_t *v) = {set_real, set_count, set_text,
                                                             set_bool};

static void fill_fields(struct pl_vram_estimate *e, const json_t *root) {
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        const json_t *o = fields[i].object[0] ? json_object_get(root, fields[i].object) : root;
        setters[fields[i].kind]((char *)e + fields[i].offset, json_object_get(o, fields[i].key));
    }
}

/* An array for the elements of `list`; NULL when it is empty or memory ran out, which *ok tells. */
static void *array_for(const json_t *list, size_t size, size_t *n, bool *ok) {
    *n = json_array_size(list);
    if (*n == 0) return NULL;
    void *p = pl_calloc(*n, size);
    if (!p) *ok = false;
    return p;
}

static bool fill_items(const json_t *list, const char *name_key, const struct pl_vram_item **out,
                       size_t *n) {
    bool ok = true;
    struct pl_vram_item *items = array_for(list, sizeof *items, n, &ok);
    for (size_t i = 0; items && i < *n; i++) {
        const json_t *v = json_array_get(list, i);
        items[i].name = json_string_value(json_object_get(v, name_key));
        items[i].bytes = (uint64_t)json_integer_value(json_object_get(v, "bytes"));
    }
    *out = items;
    return ok;
}

static bool fill_remedies(const json_t *list, struct pl_vram_estimate *e) {
    bool ok = true;
    struct pl_vram_remedy *r = array_for(list, sizeof *r, &e->n_remedies, &ok);
    for (size_t i = 0; r && i < e->n_remedies; i++) {
        const json_t *v = json_array_get(list, i);
        r[i].change = json_string_value(json_object_get(v, "change"));
        r[i].saves_bytes = json_integer_value(json_object_get(v, "saves_bytes"));
        r[i].total_gb = json_number_value(json_object_get(v, "total_gb"));
        r[i].fits = json_is_true(json_object_get(v, "fits"));
    }
    e->remedies = r;
    return ok;
}

static bool fill_notes(const json_t *list, struct pl_vram_estimate *e) {
    bool ok = true;
    const char **notes = array_for(list, sizeof *notes, &e->n_notes, &ok);
    for (size_t i = 0; notes && i < e->n_notes; i++)
        notes[i] = json_string_value(json_array_get(list, i));
    e->notes = notes;
    return ok;
}

/* Takes `json`; NULL when memory ran out, here or before. */
static struct answer *make_answer(json_t *json, const struct pl_estimate *planned) {
    struct answer *a = json ? pl_calloc(1, sizeof *a) : NULL;
    if (!a) {
        json_decref(json);
        return NULL;
    }
    a->json = json;
    a->json_text = pl_json_dump(json, JSON_COMPACT | JSON_REAL_PRECISION(17));
    a->e.json = a->json_text;
    pl_estimate_add_summary(planned, &a->summary);
    fill_fields(&a->e, json);
    bool ok = a->json_text && !a->summary.failed;
    ok = fill_items(json_object_get(json, "phases"), "name", &a->e.phases, &a->e.n_phases) && ok;
    ok =
        fill_items(json_object_get(json, "ledger"), "category", &a->e.ledger, &a->e.n_ledger) && ok;
    ok = fill_remedies(json_object_get(json, "remedies"), &a->e) && ok;
    ok = fill_notes(json_object_get(json, "notes"), &a->e) && ok;
    if (ok) return a;
    pl_estimate_free(&a->e);
    return NULL;
}

/* --- the question ----------------------------------------------------------------------------- */

static pl_err set_count_key(struct pl_job *job, const char *key, uint32_t value,
                            struct pl_diag *d) {
    char text[16];
    if (value == 0) return PL_ERR_OK;
    snprintf(text, sizeof text, "%u", value);
    return pl_job_set(job, key, text, d);
}

/* "key=value" into the job, but for "gpu=NAME", which is no key of a job. */
static pl_err apply_setting(struct pl_job *job, const char *setting, const char **gpu,
                            struct pl_diag *d) {
    char key[64];
    const char *equals = strchr(setting, '=');
    if (!equals || (size_t)(equals - setting) >= sizeof key)
        return pl_diag_set(d, PL_ERR_USAGE, "a setting reads key=value, not `%s`", setting);
    memcpy(key, setting, (size_t)(equals - setting));
    key[equals - setting] = 0;
    if (strcmp(key, "gpu") != 0) return pl_job_set(job, key, equals + 1, d);
    *gpu = equals + 1;
    return PL_ERR_OK;
}

struct request {
    const char *model, *mode;
    uint32_t lora_r, batch_size, max_seq_length;
    const char *const *settings;
};

static pl_err ask(const struct request *r, struct pl_inquiry *i, struct pl_diag *d) {
    const char *gpu = NULL;
    PL_TRY(pl_job_defaults(&i->job, d));
    if (!r->model || !r->model[0])
        return pl_diag_set(d, PL_ERR_USAGE, "no model: a directory, or a name of the catalogue");
    PL_TRY(pl_job_set(&i->job, "model", r->model, d));
    bool inference = r->mode && strcmp(r->mode, "inference") == 0;
    if (r->mode && !r->mode[0])
        return pl_diag_set(d, PL_ERR_USAGE, "no mode: full, lora, qlora or inference");
    if (!inference) {
        PL_TRY(pl_job_set(&i->job, "mode", r->mode ? r->mode : "lora", d));
        PL_TRY(set_count_key(&i->job, "lora_r", r->lora_r, d));
    }
    PL_TRY(set_count_key(&i->job, "batch_size", r->batch_size, d));
    PL_TRY(set_count_key(&i->job, "max_seq_length", r->max_seq_length, d));
    for (size_t k = 0; r->settings && r->settings[k]; k++)
        PL_TRY(apply_setting(&i->job, r->settings[k], &gpu, d));
    PL_TRY(pl_job_require_keys(&i->job, !inference, d)); /* a setting may have taken one away */
    PL_TRY(pl_job_drop_useless(&i->job, &i->notes, d));
    PL_TRY(pl_job_validate(&i->job, d));
    if (inference) pl_job_set_inference(&i->job);
    PL_TRY(pl_inquiry_read_model(i, d));
    PL_TRY(pl_inquiry_aim(i, gpu, d));
    return pl_inquiry_decide(i, d);
}

/* A card is a GPU: where the question names no device its program is planned, at the same batch. */
static pl_err plan_for_card(const struct pl_inquiry *i, uint64_t *out, struct pl_diag *d) {
    struct pl_variant v;
    struct pl_planned planned;
    pl_variant_of(&v, &i->q);
    v.job.base_dtype = PL_BASE_AUTO;
    v.q.traits = pl_traits_cuda(PL_CARD_DEFAULT_SM);
    PL_TRY(pl_question_plan(&v.q, NULL, &planned, d));
    *out = planned.plan->arena_bytes + PL_CARD_CONTEXT_DEFAULT;
    pl_planned_finish(&planned);
    return PL_ERR_OK;
}

static void report(const struct pl_diag *d, struct pl_vram_error *error) {
    if (!error) return;
    *error = (struct pl_vram_error){.exit_status = pl_inquiry_exit_status(d->err)};
    snprintf(error->code, sizeof error->code, "%s", pl_err_code(d->err));
    if (d->file[0])
        snprintf(error->message, sizeof error->message, "%s: %s", d->file, d->message);
    else
        snprintf(error->message, sizeof error->message, "%s", d->message);
    snprintf(error->hint, sizeof error->hint, "%s", pl_diag_hint_text(d));
}

/* A question with its plan; finish it whatever came of it. */
struct asked {
    struct pl_inquiry *i; /* the model's facts alone are 12 KiB, too much for the stack of somebody
                           * else's thread */
    struct pl_estimate planned;
};

static pl_err ask_and_plan(const struct request *r, struct asked *a, struct pl_diag *d) {
    *a = (struct asked){.i = pl_calloc(1, sizeof *a->i)};
    if (!a->i) return pl_host_oom(d, "the question");
    PL_TRY(ask(r, a->i, d));
    return pl_inquiry_answer(a->i, &a->planned, d);
}

static void finish_asked(struct asked *a) {
    pl_estimate_finish(&a->planned);
    if (a->i) pl_inquiry_finish(a->i);
    free(a->i);
}

struct pl_vram_estimate *pl_estimate_vram(const char *model, const char *mode, uint32_t lora_r,
                                          uint32_t batch_size, uint32_t max_seq_length,
                                          const char *const *settings,
                                          struct pl_vram_error *error) {
    const struct request r = {model, mode, lora_r, batch_size, max_seq_length, settings};
    struct asked q;
    struct pl_diag d = {0};
    struct answer *a = NULL;
    uint64_t card_bytes = 0;
    pl_err err;
    PL_TRY_GOTO(ask_and_plan(&r, &q, &d), out);
    card_bytes = q.planned.verdict.needed_bytes;
    if (q.i->q.traits.backend == PL_BACKEND_CPU && q.i->job.device == PL_DEVICE_AUTO)
        PL_TRY_GOTO(plan_for_card(q.i, &card_bytes, &d), out);
    if (!q.i->notes.failed)
        a = make_answer(pl_answer_json(&q.planned, pl_text_str(&q.i->notes)), &q.planned);
    if (a) a->card_bytes = card_bytes;
    if (!a) err = pl_host_oom(&d, "the answer");
out:
    if (err != PL_ERR_OK) report(&d, error);
    finish_asked(&q);
    return a ? &a->e : NULL;
}

char *pl_receipt_vram(const char *model, const char *mode, uint32_t lora_r, uint32_t batch_size,
                      uint32_t max_seq_length, const char *const *settings,
                      struct pl_vram_error *error) {
    const struct request r = {model, mode, lora_r, batch_size, max_seq_length, settings};
    struct asked q;
    struct pl_diag d = {0};
    struct pl_text text = {0};
    pl_err err = ask_and_plan(&r, &q, &d);
    if (err == PL_ERR_OK) pl_receipt_write(&q.planned, &q.i->notes, NULL, &text);
    if (text.failed) err = pl_host_oom(&d, "the receipt");
    if (err != PL_ERR_OK) {
        report(&d, error);
        pl_text_finish(&text);
    }
    finish_asked(&q);
    return text.data;
}

void pl_receipt_free(char *receipt) {
    free(receipt);
}

/* --- the answer ------------------------------------------------------------------------------- */

bool pl_estimate_fits_on_card(const struct pl_vram_estimate *e, double vram_gb) {
    const struct answer *a = (const struct answer *)(const void *)e;
    return a && vram_gb * 1e9 >= (double)a->card_bytes; /* false for NaN */
}

size_t pl_estimate_summary(const struct pl_vram_estimate *e, char *buf, size_t size) {
    const struct answer *a = (const struct answer *)(const void *)e;
    const char *text = a ? pl_text_str(&a->summary) : "";
    if (buf && size) snprintf(buf, size, "%s", text);
    return strlen(text);
}

void pl_estimate_free(struct pl_vram_estimate *e) {
    struct answer *a = (struct answer *)(void *)e;
    if (!a) return;
    free((void *)(uintptr_t)a->e.phases);
    free((void *)(uintptr_t)a->e.ledger);
    free((void *)(uintptr_t)a->e.remedies);
    free((void *)(uintptr_t)a->e.notes);
    free(a->json_text);
    json_decref(a->json);
    pl_text_finish(&a->summary);
    free(a);
}

const char *pl_version(void) {
    return PLIMSOLL_VERSION;
}
