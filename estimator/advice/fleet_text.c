/* fleet_text.c - rows of devices as a table and as JSON. */
#include "estimator/advice/fleet.h"

#include "estimator/advice/parts.h"
#include "estimator/base/json_tree.h"
#include "estimator/base/units.h"
#include "estimator/config/job_text.h"

#include <stdio.h>

struct word {
    char text[16];
};
static struct word sharding_of(const struct pl_fleet_row *r) {
    struct word w = {""};
    struct pl_text text = PL_TEXT_FIXED(w.text);
    pl_job_write_key(&r->job, PL_KEY_sharding, &text);
    return w;
}

/* "H100", or "GPU of 24.00 GiB" where none is named. */
struct gpu {
    char text[64];
};
static struct gpu gpu_of(const struct pl_advice *a) {
    struct gpu g;
    char size[PL_BYTES_TEXT];
    if (a->q.card)
        snprintf(g.text, sizeof g.text, "%.60s", a->q.card);
    else
        snprintf(g.text, sizeof g.text, "GPU of %s", pl_bytes_text(a->q.budget.total_bytes, size));
    return g;
}

static const char *fits_word(const struct pl_fleet_row *r) {
    return r->verdict == PL_VERDICT_FITS ? "fits" : pl_verdict_name(r->verdict);
}

/* NCCL takes more of more devices, and may be off by more. */
static uint64_t usable_of(const struct pl_advice *a, const struct pl_fleet_row *r) {
    struct pl_budget b = a->q.budget;
    pl_budget_predict_comm(&b, r->devices);
    return pl_budget_usable(&b) + b.context_bytes;
}

/* --- text ------------------------------------------------------------------------------------ */

static void add_best(const struct pl_advice *a, const struct pl_fleet *f, struct pl_text *out) {
    const struct pl_fleet_row *r = f->best;
    const struct word sharding = sharding_of(r);
    char needed[PL_BYTES_TEXT], usable[PL_BYTES_TEXT];
    pl_text_addf(out, "%u x %s", r->devices, gpu_of(a).text);
    if (r->devices > 1) pl_text_addf(out, " with sharding: %s", sharding.text);
    pl_text_addf(out, ": the %s %s of %s, and %u samples a step take %.3g s over %s\n",
                 r->devices > 1 ? "largest rank takes" : "job takes",
                 pl_bytes_text(r->needed_bytes, needed), pl_bytes_text(usable_of(a, r), usable),
                 f->samples, pl_step_in_order(&r->time), f->request.link->name);
}

static void add_none(const struct pl_advice *a, const struct pl_fleet *f, struct pl_text *out) {
    const struct pl_fleet_row *r = f->least;
    char needed[PL_BYTES_TEXT], usable[PL_BYTES_TEXT];
    if (!r) {
        pl_text_add(out, "no number of GPUs runs this job\n");
        return;
    }
    const struct word sharding = sharding_of(r);
    if (f->request.devices)
        pl_text_addf(out, "%u x %s do not hold it", f->request.devices, gpu_of(a).text);
    else
        pl_text_addf(out, "up to %u x %s do not hold it", PL_FLEET_MOST, gpu_of(a).text);
    pl_text_addf(
        out,
        ": with %u devices and sharding: %s the largest rank takes %s for one sample of %u "
        "tokens, and %s can be had\n",
        r->devices, sharding.text, pl_bytes_text(r->needed_bytes, needed), a->length,
        pl_bytes_text(usable_of(a, r), usable));
}

static void add_row(const struct pl_fleet *f, const struct pl_fleet_row *r, struct pl_text *out) {
    const struct word sharding = sharding_of(r);
    char needed[PL_BYTES_TEXT], sent[PL_BYTES_TEXT], split[24];
    pl_text_addf(out, "  %7u  %-9s  %12s  %s", r->devices, r->devices > 1 ? sharding.text : "-",
                 pl_bytes_text(r->needed_bytes, needed), fits_word(r));
    if (r->verdict == PL_VERDICT_FITS) {
        snprintf(split, sizeof split, "%u x %u", r->batch_size, r->steps);
        pl_text_addf(out, "  %11s  %9.3g  %10.3g  %8.2f  %9.0f %%  %11s%s", split,
                     pl_step_in_order(&r->time), r->time.overlapped_seconds, r->relative,
                     100 * pl_fleet_efficiency(r),
                     pl_bytes_text((uint64_t)r->time.sent_bytes, sent), r == f->best ? "  <-" : "");
    }
    pl_text_add(out, "\n");
}

static void add_assumptions(const struct pl_fleet *f, struct pl_text *out) {
    const struct pl_link *link = f->request.link;
    pl_text_addf(out,
                 "  over %s: %g GB/s one way and %g us an exchange; seconds are nominal, of the "
                 "same GPU in every row\n",
                 link->name, link->bytes_per_second / 1e9, link->start_seconds * 1e6);
    pl_text_add(out, "  in order: operations and exchanges take turns, as on CPUs; overlapped: as "
                     "on GPUs\n"
                     "  efficiency: one device with room for the job, over all devices together\n");
    if (f->samples_open)
        pl_text_addf(out, "  %u samples a step: nothing says how many (--effective-batch N)\n",
                     f->samples);
}

void pl_fleet_text(const struct pl_advice *a, const struct pl_fleet *f, bool colour,
                   struct pl_text *out) {
    const char *dim = colour ? "\033[2m" : "", *off = colour ? "\033[0m" : "";
    if (f->request.fewest_alone) pl_text_add(out, "# several GPUs (--devices auto): ");
    if (f->best)
        add_best(a, f, out);
    else
        add_none(a, f, out);
    if (f->request.fewest_alone) return;
    pl_text_addf(out, "  %s%7s  %-9s  %12s  %-7s  %8s  %9s  %10s  %8s  %11s  %11s%s\n", dim,
                 "devices", "sharding", "largest rank", "", "batch", "in order", "overlapped",
                 "relative", "efficiency", "sent a step", off);
    for (uint32_t i = 0; i < f->n_rows; i++)
        add_row(f, &f->rows[i], out);
    add_assumptions(f, out);
    if (f->best && f->best->devices > 1) pl_advice_job_text(a, &f->best->job, out);
}

/* --- JSON ------------------------------------------------------------------------------------ */

static void put_seconds(json_t **o, const struct pl_fleet_row *r) {
    const struct {
        const char *key;
        double value;
    } rows[] = {{"step_seconds", pl_step_in_order(&r->time)},
                {"compute_seconds", r->time.compute_seconds},
                {"link_seconds", r->time.link_seconds},
                {"overlapped_step_seconds", r->time.overlapped_seconds},
                {"relative_time", r->relative},
                {"efficiency", pl_fleet_efficiency(r)}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        pl_json_set(o, rows[i].key, json_real(rows[i].value));
    pl_json_set(o, "sent_bytes_per_step", json_integer((json_int_t)r->time.sent_bytes));
}

static json_t *row_json(const struct pl_advice *a, const struct pl_fleet_row *r) {
    struct pl_text command = {0};
    const struct word sharding = sharding_of(r);
    json_t *o = json_pack("{s:i, s:s, s:I, s:s, s:i, s:i}", "devices", (int)r->devices, "sharding",
                          sharding.text, "needed_bytes", (json_int_t)r->needed_bytes, "verdict",
                          pl_verdict_name(r->verdict), "batch_size", (int)r->batch_size,
                          "gradient_accumulation_steps", (int)r->steps);
    if (r->verdict != PL_VERDICT_FITS) return o;
    put_seconds(&o, r);
    pl_advice_job_command(pl_advice_verb(&r->job), &r->job, a->q.job, a->q.card, &command);
    pl_json_set(&o, "command", command.failed ? NULL : json_string(pl_text_str(&command)));
    pl_text_finish(&command);
    return o;
}

json_t *pl_fleet_json(const struct pl_advice *a, const struct pl_fleet *f) {
    const struct pl_link *link = f->request.link;
    json_t *rows = json_array();
    for (uint32_t i = 0; i < f->n_rows; i++)
        pl_json_append(&rows, row_json(a, &f->rows[i]));
    return json_pack("{s:{s:s, s:f, s:f}, s:i, s:o, s:o}", "link", "name", link->name,
                     "bytes_per_second", link->bytes_per_second, "start_seconds",
                     link->start_seconds, "samples", (int)f->samples, "recommended",
                     f->best ? json_integer((json_int_t)(f->best - f->rows)) : json_null(), "rows",
                     rows);
}
