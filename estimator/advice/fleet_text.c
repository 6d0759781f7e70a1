/* fleet_text.c - rows of devices as a table and as JSON. */
#include "estimator/advice/fleet.h"

#include "estimator/advice/parts.h"
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
                 pl_bytes_text(r->price.needed_bytes, needed),
                 pl_bytes_text(usable_of(a, r), usable), f->samples, pl_step_in_order(&r->time),
                 f->request.link->name);
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
        r->devices, sharding.text, pl_bytes_text(r->price.needed_bytes, needed), a->length,
        pl_bytes_text(usable_of(a, r), usable));
}

static void report_row(const struct pl_advice *a, const struct pl_fleet *f,
                       const struct pl_fleet_row *row, struct pl_report *r) {
    struct pl_text command = {0};
    pl_report_next(r);
    pl_report_count(r, "devices", row->devices);
    pl_report_format(r, "sharding", "%s", sharding_of(row).text);
    pl_report_format(r, "cut", "%s", row->devices > 1 ? sharding_of(row).text : "-");
    pl_report_for_people(r);
    pl_report_bytes(r, "needed_bytes", row->price.needed_bytes);
    pl_report_word(r, "verdict", pl_verdict_name(row->price.verdict));
    pl_report_count(r, "batch_size", row->batch_size);
    pl_report_count(r, "gradient_accumulation_steps", row->steps);
    if (!pl_price_fits(&row->price)) return;
    pl_report_format(r, "batch", "%u x %u", row->batch_size, row->steps);
    pl_report_for_people(r);
    pl_report_figure(r, "step_seconds", pl_step_in_order(&row->time), -3);
    pl_report_real(r, "compute_seconds", row->time.compute_seconds);
    pl_report_real(r, "link_seconds", row->time.link_seconds);
    pl_report_figure(r, "overlapped_step_seconds", row->time.overlapped_seconds, -3);
    pl_report_real(r, "relative_time", row->relative);
    pl_report_share(r, "efficiency", pl_fleet_efficiency(row));
    pl_report_bytes(r, "sent_bytes_per_step", (uint64_t)row->time.sent_bytes);
    pl_advice_job_command(pl_advice_verb(&row->job), &row->job, a->q.job, a->q.card, &command);
    pl_report_text(r, "command", &command);
    pl_report_word(r, "mark", row == f->best ? "  <-" : "");
    pl_report_for_people(r);
}

static struct pl_report rows_of(const struct pl_advice *a, const struct pl_fleet *f) {
    struct pl_report r = {0};
    for (uint32_t i = 0; i < f->n_rows; i++)
        report_row(a, f, &f->rows[i], &r);
    return r;
}

static void add_rows(const struct pl_advice *a, const struct pl_fleet *f, bool colour,
                     struct pl_text *out) {
    static const struct pl_report_column columns[] = {
        {"devices", "devices", 2, 7},
        {"cut", "sharding", 2, -9},
        {"needed_bytes", "largest rank", 2, 12},
        {"verdict", "    ", 2, 0}, /* as wide as "fits", after which alone a column stands */
        {"batch", "batch", 2, 11},
        {"step_seconds", "in order", 2, 9},
        {"overlapped_step_seconds", "overlapped", 2, 10},
        {"relative_time", "relative", 2, 8},
        {"efficiency", "efficiency", 2, 11},
        {"sent_bytes_per_step", "sent a step", 2, 11},
        {"mark", "", 0, 0}};
    struct pl_report rows = rows_of(a, f);
    pl_report_columns(&rows, columns, sizeof columns / sizeof *columns, colour ? "\033[2m" : "",
                      colour ? "\033[0m" : "", out);
    pl_report_finish(&rows);
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
    if (f->request.fewest_alone) pl_text_add(out, "# several GPUs (--devices auto): ");
    if (f->best)
        add_best(a, f, out);
    else
        add_none(a, f, out);
    if (f->request.fewest_alone) return;
    add_rows(a, f, colour, out);
    add_assumptions(f, out);
    if (f->best && f->best->devices > 1) pl_advice_job_text(a, &f->best->job, out);
}

/* --- JSON ------------------------------------------------------------------------------------ */

json_t *pl_fleet_json(const struct pl_advice *a, const struct pl_fleet *f) {
    const struct pl_link *link = f->request.link;
    struct pl_report r = {0}, rows = rows_of(a, f);
    pl_report_open(&r, "link");
    pl_report_word(&r, "name", link->name);
    pl_report_real(&r, "bytes_per_second", link->bytes_per_second);
    pl_report_real(&r, "start_seconds", link->start_seconds);
    pl_report_open(&r, NULL);
    pl_report_count(&r, "samples", f->samples);
    pl_report_count(&r, "recommended", f->best ? (uint64_t)(f->best - f->rows) : 0);
    pl_report_known(&r, f->best);
    pl_report_tree(&r, "rows", pl_report_end_list(&rows));
    return pl_report_end(&r);
}
