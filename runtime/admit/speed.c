/* An entry's figures: {"ratio", "classes": {name: ratio, ...}, "step_seconds", "steps", "params",
 * "errors": [of the latest forecast, of the one before, ...]}. */
#include "runtime/admit/speed.h"

#include "estimator/base/checked.h"
#include "estimator/base/json_tree.h"
#include "estimator/config/job_text.h"
#include "estimator/config/job_values.h"
#include "oom_recovery/recovery.h"
#include "runtime/admit/admission.h"
#include "runtime/admit/history.h"
#include "runtime/device/cpu/cpu.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- whom a ratio belongs to ----------------------------------------------------------------- */

struct owner {
    char device[PL_CPU_NAME_TEXT], threads[16];
    const char *kernels; /* of a CPU: their instruction set */
    struct pl_text dtype;
};

static void describe_owner(const struct pl_preflight *pf, struct owner *o) {
    struct pl_cpu_level level;
    *o = (struct owner){0};
    pl_cpu_name(o->device);
    if (pl_device_is_cuda(pf->job->device))
        snprintf(o->device, sizeof o->device, "%s", pf->gpu.name);
    else if (pl_cpu_level(pl_question_multiplies_in_bf16(&pf->q), &level, NULL) == PL_ERR_OK)
        o->kernels = level.name;
    snprintf(o->threads, sizeof o->threads, "%u", pf->job->threads);
    pl_job_write_key(pf->job, PL_KEY_dtype, &o->dtype);
}

static struct pl_memory memory_of(const struct pl_preflight *pf, const struct owner *o) {
    static const char *const backends[] = {
        [PL_BACKEND_CPU] = "cpu", [PL_BACKEND_NULL] = "null", [PL_BACKEND_CUDA] = "cuda"};
    return (struct pl_memory){"speed.json",
                              {{"device", o->device},
                               {"backend", backends[pf->q.traits.backend]},
                               {"threads", o->threads},
                               {"dtype", pl_text_str(&o->dtype)},
                               {o->kernels ? "kernels" : NULL, o->kernels}}};
}

static void finish_owner(struct owner *o) {
    pl_text_finish(&o->dtype);
}

/* --- forecast -------------------------------------------------------------------------------- */

/* A step of rows as they are on average; the rooms of packed ones are taken as full. */
static struct pl_load load_of(const struct pl_preflight *pf) {
    const struct pl_data_stats *s = pl_data_stats(pf->data.rows);
    const double rows = (double)s->rows, tokens = (double)s->tokens;
    const double group = pl_job_group(pf->job); /* samples of a row, taken as equally long */
    double squares = 0, row = rows > 0 ? tokens / rows : 0;
    for (uint64_t i = 0; i < s->rows; i++) {
        const double n = (double)pl_data_tokens(pf->data.rows, i);
        squares += n * n / group;
    }
    if (pf->job->packing) row = (double)pf->job->max_seq_length;
    const double all = (double)pf->global_batch * row;
    return (struct pl_load){
        .micro_batches = group * (double)pl_oom_accumulation(pf->global_batch, pf->job->batch_size),
        .tokens = all,
        .targets = tokens > 0 ? all * (double)s->supervised_tokens / tokens : 0,
        .length = tokens > 0 ? squares / tokens : 0,
        .refers_before = pl_job_precomputes(pf->job)};
}

static bool is_ratio(double x) {
    return isnormal(x) && x > 0;
}

static double class_ratio(const json_t *entry, enum pl_cost c) {
    const json_t *classes = json_object_get(entry, "classes");
    const double ratio = json_number_value(json_object_get(classes, pl_cost_name(c)));
    return is_ratio(ratio) ? ratio : 0;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median_of(const double *v, uint64_t n) { /* n <= PL_PACE_STEPS */
    double sorted[PL_PACE_STEPS];
    memcpy(sorted, v, n * sizeof *v);
    qsort(sorted, n, sizeof *sorted, ascending);
    return n % 2 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2;
}

/* V5. */
static void read_errors(const json_t *entry, struct pl_forecast *f) {
    const json_t *errors = json_object_get(entry, "errors");
    double off[PL_FORECASTS_JUDGED];
    for (size_t i = 0; i < json_array_size(errors) && f->judged < PL_FORECASTS_JUDGED; i++) {
        const json_t *error = json_array_get(errors, i);
        const double x = json_number_value(error);
        if (!json_is_number(error) || x < 0) continue;
        f->most_off = f->judged ? fmax(f->most_off, x) : x;
        off[f->judged++] = x;
    }
    if (f->judged) f->off = median_of(off, f->judged);
}

/* False: figures that no clock can have shown. */
static bool read_figures(const json_t *entry, const double nominal[PL_COST_COUNT],
                         struct pl_forecast *f) {
    const double overall = json_number_value(json_object_get(entry, "ratio"));
    const json_int_t params = json_integer_value(json_object_get(entry, "params"));
    double seconds = 0;
    if (!is_ratio(overall) || params <= 0) return false;
    for (int c = 0; c < PL_COST_COUNT; c++) {
        const double ratio = class_ratio(entry, (enum pl_cost)c);
        seconds += nominal[c] * (ratio > 0 ? ratio : overall);
    }
    f->step_seconds = seconds;
    f->ratio = seconds / f->nominal_step_seconds;
    f->params = (uint64_t)params;
    read_errors(entry, f);
    return true;
}

void pl_forecast_init(struct pl_forecast *f, const struct pl_preflight *pf, struct pl_text *notes) {
    const struct pl_speed speed = pl_speed_nominal(&pf->q.traits);
    const struct pl_load load = load_of(pf);
    double nominal[PL_COST_COUNT];
    struct owner o;
    bool broken = false;
    *f = (struct pl_forecast){.step_seconds = NAN, .off = NAN, .most_off = NAN};
    f->nominal_step_seconds =
        pl_program_step_seconds(pf->estimate.planned.program, &speed, &load, nominal);
    describe_owner(pf, &o);
    const struct pl_memory m = memory_of(pf, &o);
    json_t *entry = pl_memory_find(&m, &broken);
    if (entry) (void)read_figures(entry, nominal, f);
    if (broken) pl_text_add(notes, "speed.json in the cache directory is damaged and ignored\n");
    json_decref(entry);
    finish_owner(&o);
}

/* --- measuring ------------------------------------------------------------------------------- */

static double sum_of(const double v[PL_COST_COUNT]) {
    double sum = 0;
    for (int c = 0; c < PL_COST_COUNT; c++)
        sum += v[c];
    return sum;
}

void pl_pace_add(struct pl_pace *p, const struct pl_pace_step *step) {
    if (p->steps++ == 0) return;
    const uint64_t at = (p->steps - 2) % PL_PACE_STEPS, timed_at = p->timed % PL_PACE_STEPS;
    p->seconds[at] = step->seconds;
    p->ratios[at] = step->seconds / sum_of(step->nominal);
    for (int c = 0; c < PL_COST_COUNT; c++) {
        p->nominal[c] += step->nominal[c];
        if (step->timed && step->nominal[c] > 0)
            p->classes[c][timed_at] = step->measured[c] / step->nominal[c];
    }
    p->timed += step->timed;
}

/* V3, V4. */
static void median_of_classes(const struct pl_pace *p, struct pl_pace_medians *out) {
    const uint64_t n = pl_u64_min(p->timed, PL_PACE_STEPS);
    double total = 0;
    for (int c = 0; n && c < PL_COST_COUNT; c++) {
        out->classes[c] = p->nominal[c] > 0 ? median_of(p->classes[c], n) : 0;
        total += out->classes[c] * p->nominal[c];
    }
    const double between = out->ratio * sum_of(p->nominal) / total;
    for (int c = 0; n && c < PL_COST_COUNT; c++) {
        const bool matters = out->classes[c] * p->nominal[c] >= PL_PACE_SHARE * total;
        out->classes[c] = matters ? out->classes[c] * between : 0;
    }
}

bool pl_pace_median(const struct pl_pace *p, struct pl_pace_medians *out) {
    uint64_t n = p->steps ? pl_u64_min(p->steps - 1, PL_PACE_STEPS) : 0;
    *out = (struct pl_pace_medians){.seconds = NAN, .ratio = NAN};
    if (n < PL_PACE_LEAST) return false;
    out->seconds = median_of(p->seconds, n);
    out->ratio = median_of(p->ratios, n);
    out->steps = n;
    median_of_classes(p, out);
    return true;
}

/* The classes that this run has measured, and of the others what was known. */
static json_t *classes_json(const struct pl_pace_medians *m, const json_t *earlier) {
    json_t *o = json_object();
    for (int c = 0; o && c < PL_COST_COUNT; c++) {
        const double ratio =
            is_ratio(m->classes[c]) ? m->classes[c] : class_ratio(earlier, (enum pl_cost)c);
        if (ratio != 0) pl_json_set(&o, pl_cost_name((enum pl_cost)c), json_real(ratio));
    }
    return o;
}

/* The errors of this run's forecast, where it had one, and of those before. */
static json_t *errors_json(const struct pl_forecast *f, double measured, const json_t *earlier) {
    json_t *o = json_array(), *errors = json_object_get(earlier, "errors");
    const double off = fabs(f->step_seconds / measured - 1);
    if (o && isfinite(off)) pl_json_append(&o, json_real(off));
    for (size_t i = 0; o && i < json_array_size(errors); i++)
        if (json_array_size(o) < PL_FORECASTS_JUDGED)
            pl_json_append(&o, json_incref(json_array_get(errors, i)));
    return o;
}

void pl_speed_remember(const struct pl_preflight *pf, const struct pl_pace_medians *m) {
    struct owner o;
    if (!is_ratio(m->ratio)) return;
    describe_owner(pf, &o);
    const struct pl_memory memory = memory_of(pf, &o);
    json_t *earlier = pl_memory_find(&memory, NULL);
    pl_memory_put(&memory,
                  json_pack("{s:f, s:o, s:f, s:I, s:I, s:o}", "ratio", m->ratio, "classes",
                            classes_json(m, earlier), "step_seconds", m->seconds, "steps",
                            (json_int_t)m->steps, "params", (json_int_t)pf->estimate.param_count,
                            "errors", errors_json(&pf->forecast, m->seconds, earlier)));
    json_decref(earlier);
    finish_owner(&o);
}
