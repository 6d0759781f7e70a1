#include "estimator/inquiry/receipt_diff.h"

#include "estimator/base/alloc.h"
#include "estimator/base/json_tree.h"
#include "estimator/base/units.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- what may grow --------------------------------------------------------------------------- */

#define PERCENT_MOST 1e6

bool pl_growth_allowance_parse(const char *text, struct pl_growth_allowance *out) {
    char *end;
    *out = (struct pl_growth_allowance){0};
    if (!strchr(text, '%')) return pl_bytes_parse(text, &out->bytes);
    if (strspn(text, "0123456789.") == 0) return false;
    out->percent = strtod(text, &end);
    return strcmp(end, "%") == 0 && out->percent >= 0 && out->percent <= PERCENT_MOST;
}

static uint64_t allowed_of(const struct pl_growth_allowance *allow, uint64_t before) {
    const double share = floor((double)before * (allow->percent / 100));
    const uint64_t of_share = share < (double)INT64_MAX ? (uint64_t)share : INT64_MAX;
    return of_share > allow->bytes ? of_share : allow->bytes;
}

/* --- rows ------------------------------------------------------------------------------------ */

static const json_t *planned(const json_t *receipt, const char *key) {
    return json_object_get(json_object_get(receipt, "planned"), key);
}

static const char *word(const json_t *o, const char *key) {
    return json_string_value(json_object_get(o, key));
}

static uint64_t bytes_of(const json_t *o, const char *key) {
    return (uint64_t)json_integer_value(json_object_get(o, key));
}

static struct pl_receipt_row *row_of(struct pl_receipt_diff *x, const char *memory,
                                     const char *category) {
    for (size_t i = 0; i < x->n_rows; i++)
        if (strcmp(x->rows[i].memory, memory) == 0 && strcmp(x->rows[i].category, category) == 0)
            return &x->rows[i];
    x->rows[x->n_rows] = (struct pl_receipt_row){memory, category, 0, 0};
    return &x->rows[x->n_rows++];
}

/* Adds the lines of a ledger; those of the device do not say their memory. */
static void add_lines(struct pl_receipt_diff *x, const json_t *ledger, bool after) {
    const json_t *line;
    size_t i;
    json_array_foreach(ledger, i, line) {
        const char *memory = word(line, "memory");
        struct pl_receipt_row *r = row_of(x, memory ? memory : "device", word(line, "category"));
        *(after ? &r->after : &r->before) += bytes_of(line, "bytes");
    }
}

/* The lines of a total that are not arenas. */
static const char *const outside[] = {"context", "comm"};
#define N_OUTSIDE (sizeof outside / sizeof *outside)

static pl_err make_rows(struct pl_receipt_diff *x, struct pl_diag *d) {
    static const char *const ledgers[] = {"ledger", "host_ledger"};
    const json_t *both[2] = {x->before, x->after};
    size_t most = N_OUTSIDE;
    for (int l = 0; l < 2; l++)
        for (int i = 0; i < 2; i++)
            most += json_array_size(planned(both[i], ledgers[l]));
    x->rows = pl_calloc(most, sizeof *x->rows);
    if (!x->rows) return pl_host_oom(d, "the lines of two ledgers");
    for (int l = 0; l < 2; l++) {
        for (int i = 0; i < 2; i++)
            add_lines(x, planned(both[i], ledgers[l]), i == 1);
        for (size_t i = 0; i < N_OUTSIDE && l == 0; i++) {
            struct pl_receipt_row *r = row_of(x, "device", outside[i]);
            r->before += bytes_of(planned(x->before, "bytes"), outside[i]);
            r->after += bytes_of(planned(x->after, "bytes"), outside[i]);
        }
    }
    size_t kept = 0; /* those that differ */
    for (size_t i = 0; i < x->n_rows; i++)
        if (x->rows[i].before != x->rows[i].after) x->rows[kept++] = x->rows[i];
    x->n_rows = kept;
    return PL_ERR_OK;
}

/* --- why ------------------------------------------------------------------------------------- */

static void add_value(struct pl_text *out, const json_t *v) {
    if (json_is_string(v))
        pl_text_add(out, json_string_value(v));
    else if (json_is_integer(v))
        pl_text_addf(out, "%" JSON_INTEGER_FORMAT, json_integer_value(v));
    else
        pl_text_add(out, "none");
}

static void add_change(struct pl_text *out, const char *key, const json_t *before,
                       const json_t *after) {
    const bool same = before && after ? json_equal(before, after) : before == after;
    if (same) return;
    pl_text_addf(out, "%s: ", key);
    add_value(out, before);
    pl_text_add(out, " -> ");
    add_value(out, after);
    pl_text_add(out, "\n");
}

/* Members of two objects: those of the first in its order, then what only the second has. */
static void add_changes(struct pl_text *out, const json_t *before, const json_t *after) {
    json_t *a = (json_t *)(uintptr_t)before, *b = (json_t *)(uintptr_t)after, *v;
    const char *key;
    json_object_foreach(a, key, v) add_change(out, key, v, json_object_get(b, key));
    json_object_foreach(b, key, v) {
        if (!json_object_get(a, key)) add_change(out, key, NULL, v);
    }
}

/* Explains settings that were left open in the same way and decided in another one. */
static void explain_decisions(struct pl_receipt_diff *x, const json_t *was, const json_t *is) {
    const json_t *now = json_object_get(x->after, "decided");
    json_t *then = json_object_get(x->before, "decided"), *v;
    const char *key;
    json_object_foreach(then, key, v) {
        const json_t *a = json_object_get(was, key), *b = json_object_get(is, key);
        char name[96];
        snprintf(name, sizeof name, "%s, left open", key);
        if (a && b && json_equal(a, b)) add_change(&x->why, name, v, json_object_get(now, key));
    }
}

static bool same_digest(const struct pl_receipt_diff *x, const char *name) {
    return strcmp(word(json_object_get(x->before, "digests"), name),
                  word(json_object_get(x->after, "digests"), name)) == 0;
}

static void explain(struct pl_receipt_diff *x) {
    static const char *const parts[] = {"model", "device", "settings"};
    const json_t *was = json_object_get(x->before, "asked"),
                 *is = json_object_get(x->after, "asked");
    add_change(&x->why, "asked about", json_object_get(was, "mode"), json_object_get(is, "mode"));
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        add_changes(&x->why, json_object_get(was, parts[i]), json_object_get(is, parts[i]));
    explain_decisions(x, json_object_get(was, "settings"), json_object_get(is, "settings"));
    if (x->why.len) return;
    if (!same_digest(x, "program"))
        pl_text_addf(&x->why,
                     "the same question, answered with another program: version %s -> %s\n",
                     word(x->before, "version"), word(x->after, "version"));
    else if (!same_digest(x, "plan"))
        pl_text_add(&x->why, "the same program, placed in another way\n");
}

/* --- the comparison -------------------------------------------------------------------------- */

static struct pl_receipt_total total_of(const struct pl_receipt_diff *x, const char *key,
                                        const struct pl_growth_allowance *allow) {
    const uint64_t before = bytes_of(planned(x->before, "bytes"), key);
    return (struct pl_receipt_total){before, bytes_of(planned(x->after, "bytes"), key),
                                     allowed_of(allow, before)};
}

static bool is_within(const struct pl_receipt_total *t) {
    return t->after <= t->before || t->after - t->before <= t->allowed;
}

pl_err pl_receipt_compare(const json_t *before, const json_t *after,
                          const struct pl_growth_allowance *allow, struct pl_receipt_diff *out,
                          struct pl_diag *d) {
    *out = (struct pl_receipt_diff){.before = before, .after = after};
    PL_TRY(make_rows(out, d));
    out->device = total_of(out, "total", allow);
    out->host = total_of(out, "host", allow);
    out->within = is_within(&out->device) && is_within(&out->host);
    explain(out);
    return out->why.failed ? pl_host_oom(d, "what differs") : PL_ERR_OK;
}

void pl_receipt_diff_finish(struct pl_receipt_diff *x) {
    free(x->rows);
    pl_text_finish(&x->why);
    *x = (struct pl_receipt_diff){0};
}

/* --- for people ------------------------------------------------------------------------------ */

static void add_row(struct pl_text *out, const char *name, uint64_t before, uint64_t after) {
    char was[PL_COUNT_TEXT], is[PL_COUNT_TEXT], size[PL_BYTES_TEXT], growth[PL_BYTES_TEXT + 1];
    snprintf(growth, sizeof growth, "%c%s", after < before ? '-' : '+',
             pl_bytes_text(after < before ? before - after : after - before, size));
    pl_text_addf(out, "  %-22s %17s %17s %12s\n", name, pl_count_text(before, was),
                 pl_count_text(after, is), after == before ? "same" : growth);
}

static void add_rows(const struct pl_receipt_diff *x, bool device, struct pl_text *out) {
    for (size_t i = 0; i < x->n_rows; i++) {
        const struct pl_receipt_row *r = &x->rows[i];
        char name[64];
        if ((strcmp(r->memory, "device") == 0) != device) continue;
        snprintf(name, sizeof name, "%s%s%s", device ? "" : r->memory, device ? "" : " ",
                 r->category);
        add_row(out, name, r->before, r->after);
    }
}

static void add_verdict(const struct pl_receipt_total *t, const char *memory, struct pl_text *out) {
    char grew[PL_BYTES_TEXT], allowed[PL_BYTES_TEXT];
    if (is_within(t)) return;
    pl_text_addf(out, "the %s grew by %s (%" PRIu64 " bytes), %s (%" PRIu64 " bytes) are allowed\n",
                 memory, pl_bytes_text(t->after - t->before, grew), t->after - t->before,
                 pl_bytes_text(t->allowed, allowed), t->allowed);
}

void pl_receipt_diff_text(const struct pl_receipt_diff *x, struct pl_text *out) {
    const char *was = word(json_object_get(x->before, "planned"), "verdict");
    const char *is = word(json_object_get(x->after, "planned"), "verdict");
    pl_text_addf(out, "  %-22s %17s %17s %12s\n", "planned bytes", "old", "new", "grew");
    add_rows(x, true, out);
    add_row(out, "total of the device", x->device.before, x->device.after);
    add_rows(x, false, out);
    add_row(out, "total of the host", x->host.before, x->host.after);
    if (strcmp(was, is) != 0) pl_text_addf(out, "verdict: %s -> %s\n", was, is);
    pl_text_add(out, x->why.len ? "why:\n" : "");
    for (const char *s = pl_text_str(&x->why), *end; *s; s = end + 1) {
        end = s + strcspn(s, "\n"); /* every line ends in one */
        pl_text_addf(out, "  %.*s\n", (int)(end - s), s);
    }
    add_verdict(&x->device, "total of the device", out);
    add_verdict(&x->host, "total of the host", out);
}

/* --- for programs ---------------------------------------------------------------------------- */

static json_t *growth_json(uint64_t before, uint64_t after) {
    return json_pack("{s:I, s:I, s:I}", "old_bytes", (json_int_t)before, "new_bytes",
                     (json_int_t)after, "grew_bytes", (json_int_t)(after - before));
}

static json_t *rows_json(const struct pl_receipt_diff *x) {
    json_t *list = json_array();
    for (size_t i = 0; i < x->n_rows; i++) {
        const struct pl_receipt_row *r = &x->rows[i];
        json_t *o = growth_json(r->before, r->after);
        pl_json_set(&o, "memory", json_string(r->memory));
        pl_json_set(&o, "category", json_string(r->category));
        pl_json_append(&list, o);
    }
    return list;
}

static json_t *total_json(const struct pl_receipt_total *t) {
    json_t *o = growth_json(t->before, t->after);
    pl_json_set(&o, "allowed_bytes", json_integer((json_int_t)t->allowed));
    pl_json_set(&o, "within", json_boolean(is_within(t)));
    return o;
}

static json_t *why_json(const struct pl_text *why) {
    json_t *list = json_array();
    for (const char *s = pl_text_str(why), *end; *s; s = end + 1) {
        end = s + strcspn(s, "\n");
        pl_json_append(&list, json_stringn(s, (size_t)(end - s)));
    }
    return list;
}

static json_t *side_json(const json_t *receipt) {
    return json_pack("{s:O, s:O, s:s, s:O}", "version", json_object_get(receipt, "version"),
                     "digests", json_object_get(receipt, "digests"), "verdict",
                     word(json_object_get(receipt, "planned"), "verdict"), "measured",
                     json_object_get(receipt, "measured"));
}

json_t *pl_receipt_diff_json(const struct pl_receipt_diff *x) {
    return json_pack("{s:o, s:o, s:o, s:o, s:b, s:o, s:o}", "entries", rows_json(x), "device",
                     total_json(&x->device), "host", total_json(&x->host), "why", why_json(&x->why),
                     "within", (int)x->within, "old", side_json(x->before), "new",
                     side_json(x->after));
}
