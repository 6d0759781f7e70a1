/* api.c - the public library: one question, its answer as a struct.
 *
 * Struct and JSON are filled from the same rows, so that library and command cannot disagree. */
#include "estimator/api/plimsoll.h"

#include "estimator/base/alloc.h"
#include "estimator/base/json_tree.h"
#include "estimator/base/report_rows.h"
#include "estimator/base/units.h"
#include "estimator/config/job_text.h"
#include "estimator/config/job_values.h"
#include "estimator/config/validate.h"
#include "estimator/inquiry/answer.h"
#include "estimator/inquiry/inquiry.h"
#include "estimator/inquiry/receipt.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct answer {
    struct pl_vram_estimate e; /* first: the caller's pointer */
    struct pl_vram_item phases[PL_PHASE_LINES], ledger[PL_LEDGER_LINES];
    struct pl_remedy planned[PL_MAX_REMEDIES]; /* own the words of the next */
    struct pl_vram_remedy remedies[PL_MAX_REMEDIES];
    const char **notes; /* lines of the next */
    char *notes_text, *json;
    struct pl_text summary;
    uint64_t card_bytes; /* what pl_estimate_fits_on_card() compares with */
};

/* --- rows -> struct --------------------------------------------------------------------------- */

#define TYPE_OF(member)                                                                            \
    _Generic(((struct pl_vram_estimate *)0)->member,                                               \
        double: PL_ROW_REAL,                                                                       \
        uint64_t: PL_ROW_COUNT,                                                                    \
        const char *: PL_ROW_WORD,                                                                 \
        bool: PL_ROW_TRUTH)
#define MEMBER(member, object, name)                                                               \
    { object, name, offsetof(struct pl_vram_estimate, member), TYPE_OF(member) }
#define ANSWER(name) MEMBER(name, NULL, #name)
#define LIMIT(name)  MEMBER(name, "limits", #name)
#define BYTES(name)  MEMBER(name##_bytes, "bytes", #name)
#define QUICK(name)  MEMBER(quick.name##_gb, "quick", #name)

/* Each member, and the row that it is filled from. A row that is null, or that an answer does not
 * have, leaves a zero. */
static const struct member {
    const char *object, *name;
    size_t offset;
    enum pl_row_type type;
} members[] = {
    /* clang-format off */
    ANSWER(total_gb), ANSWER(model_weights_gb), ANSWER(lora_adapter_gb), ANSWER(optimizer_state_gb),
    ANSWER(activations_gb), ANSWER(kv_cache_gb), ANSWER(overhead_gb), ANSWER(param_count_billions),
    ANSWER(mode), ANSWER(batch_size), ANSWER(gradient_accumulation), ANSWER(max_seq_length),
    ANSWER(lora_r), ANSWER(gradients_gb), ANSWER(logits_gb), ANSWER(workspace_gb),
    ANSWER(context_gb), ANSWER(fragmentation_gb), ANSWER(host_ram_gb), ANSWER(comm_gb),
    ANSWER(recommended_batch_size), ANSWER(param_count), ANSWER(trainable_param_count),
    ANSWER(verdict), ANSWER(fits), ANSWER(approximate), ANSWER(vram_gb), ANSWER(peak_phase),
    ANSWER(refusal),
    BYTES(total), BYTES(arena), BYTES(job_arena), BYTES(batch_arena), BYTES(context), BYTES(comm),
    BYTES(host), BYTES(weights), BYTES(adapters), BYTES(gradients), BYTES(optimizer),
    BYTES(activations), BYTES(logits), BYTES(workspace), BYTES(batch), BYTES(alignment),
    BYTES(fragmentation),
    LIMIT(budget_bytes), LIMIT(margin_bytes), LIMIT(usable_bytes),
    MEMBER(budget_source, "limits", "source"),
    QUICK(weights), QUICK(gradients), QUICK(optimizer), QUICK(activations), QUICK(overhead),
    QUICK(total),
    /* clang-format on */
};

static void fill_members(const struct pl_report *r, struct pl_vram_estimate *e) {
    static const size_t sizes[] = {[PL_ROW_REAL] = sizeof(double),
                                   [PL_ROW_COUNT] = sizeof(uint64_t),
                                   [PL_ROW_WORD] = sizeof(const char *),
                                   [PL_ROW_TRUTH] = sizeof(bool)};
    for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
        const struct member *m = &members[i];
        const struct pl_row *row = pl_report_find(r, m->object, m->name);
        void *at = (char *)e + m->offset;
        assert(!row || row->type == m->type || row->type == PL_ROW_NULL);
        if (!row || row->type == PL_ROW_NULL) continue;
        memcpy(at, &row->is, sizes[m->type]);
    }
}

/* Copies lines that the plan names; their names are constants. */
static size_t fill_items(const struct pl_line *lines, size_t n, struct pl_vram_item *room,
                         const struct pl_vram_item **out) {
    for (size_t i = 0; i < n; i++)
        room[i] = (struct pl_vram_item){lines[i].name, lines[i].bytes};
    *out = n ? room : NULL;
    return n;
}

static void fill_remedies(const struct pl_estimate *planned, struct answer *a) {
    memcpy(a->planned, planned->remedies, sizeof a->planned);
    for (uint32_t i = 0; i < planned->n_remedies; i++) {
        const struct pl_remedy *r = &a->planned[i];
        a->remedies[i] = (struct pl_vram_remedy){.change = r->change,
                                                 .saves_bytes = r->saves_bytes,
                                                 .total_gb = pl_gb(r->price.needed_bytes),
                                                 .fits = pl_price_fits(&r->price)};
    }
    a->e.n_remedies = planned->n_remedies;
    a->e.remedies = a->e.n_remedies ? a->remedies : NULL;
}

/* Cuts a copy of the notes into its lines. False: out of memory. */
static bool fill_notes(const struct pl_text *notes, struct answer *a) {
    size_t most = 1;
    if (notes->len == 0) return true;
    for (size_t i = 0; i < notes->len; i++)
        most += notes->data[i] == '\n';
    a->notes = pl_calloc(most, sizeof *a->notes);
    a->notes_text = pl_calloc(notes->len + 1, 1);
    if (!a->notes || !a->notes_text) return false;
    memcpy(a->notes_text, notes->data, notes->len);
    for (char *s = a->notes_text, *rest; s && *s; s = rest) {
        rest = strchr(s, '\n');
        if (rest) *rest++ = 0;
        if (*s) a->notes[a->e.n_notes++] = s;
    }
    a->e.notes = a->e.n_notes ? a->notes : NULL;
    return true;
}

/* NULL when memory ran out, here or before. */
static struct answer *make_answer(const struct pl_estimate *planned, const struct pl_text *notes) {
    struct answer *a = notes->failed ? NULL : pl_calloc(1, sizeof *a);
    struct pl_line ledger[PL_LEDGER_LINES], phases[PL_PHASE_LINES];
    struct pl_report r = {0};
    if (!a) return NULL;
    pl_answer_report(planned, pl_text_str(notes), &r);
    fill_members(&r, &a->e);
    json_t *json = pl_report_end(&r);
    a->e.json = a->json = pl_json_dump(json, JSON_COMPACT | JSON_REAL_PRECISION(17));
    json_decref(json);
    pl_estimate_ledger(planned->planned.plan, ledger);
    const size_t n_phases = pl_estimate_phases(planned, phases);
    a->e.n_ledger = fill_items(ledger, PL_LEDGER_LINES, a->ledger, &a->e.ledger);
    a->e.n_phases = fill_items(phases, n_phases, a->phases, &a->e.phases);
    fill_remedies(planned, a);
    pl_estimate_add_summary(planned, &a->summary);
    if (fill_notes(notes, a) && a->json && !a->summary.failed) return a;
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
    pl_variant_on_gpu(&v, &i->q, PL_CARD_DEFAULT_SM);
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
    a = make_answer(&q.planned, &q.i->notes);
    if (a)
        a->card_bytes = card_bytes;
    else
        err = pl_host_oom(&d, "the answer");
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

const char *pl_vram_json(const struct pl_vram_estimate *e) {
    return e ? e->json : NULL;
}

uint64_t pl_vram_card_bytes(const struct pl_vram_estimate *e) {
    const struct answer *a = (const struct answer *)(const void *)e;
    return a ? a->card_bytes : 0;
}

bool pl_estimate_fits_on_card(const struct pl_vram_estimate *e, double vram_gb) {
    return e && vram_gb * 1e9 >= (double)pl_vram_card_bytes(e); /* false for NaN */
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
    free(a->notes);
    free(a->notes_text);
    free(a->json);
    pl_text_finish(&a->summary);
    free(a);
}

const char *pl_version(void) {
    return PLIMSOLL_VERSION;
}
