/* speed.c - see speed.h. An entry's figures: {"ratio", "step_seconds", "steps", "params"}. */
#include "runtime/train/speed.h"

#include "estimator/base/checked.h"
#include "estimator/program/cost.h"
#include "runtime/device/device.h"
#include "runtime/train/train.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- whom a ratio belongs to ----------------------------------------------------------------- */

struct owner {
    char device[PL_CPU_NAME_TEXT], threads[16];
    struct pl_text dtype, mode;
};

static const char *backend_name(enum pl_backend b) {
    static const char *const names[] = {
        [PL_BACKEND_CPU] = "cpu", [PL_BACKEND_NULL] = "null", [PL_BACKEND_CUDA] = "cuda"};
    return names[b];
}

static void describe_owner(const struct pl_preflight *pf, struct owner *o) {
    *o = (struct owner){0};
    pl_cpu_name(o->device);
    if (pl_device_is_cuda(pf->job->device))
        snprintf(o->device, sizeof o->device, "%s", pf->gpu.name);
    snprintf(o->threads, sizeof o->threads, "%u", pf->job->threads);
    pl_job_write_key(pf->job, PL_KEY_dtype, &o->dtype);
    pl_job_write_key(pf->job, PL_KEY_mode, &o->mode);
}

static struct pl_memory memory_of(const struct pl_preflight *pf, const struct owner *o) {
    return (struct pl_memory){"speed.json",
                              {{"device", o->device},
                               {"backend", backend_name(pf->traits.backend)},
                               {"threads", o->threads},
                               {"dtype", pl_text_str(&o->dtype)},
                               {"mode", pl_text_str(&o->mode)}}};
}

static void finish_owner(struct owner *o) {
    pl_text_finish(&o->dtype);
    pl_text_finish(&o->mode);
}

/* --- forecast -------------------------------------------------------------------------------- */

/* Rows have their mean length; the rooms of packed ones are taken as full. */
static double tokens_of_step(const struct pl_preflight *pf) {
    const struct pl_data_stats *s = pl_data_stats(pf->data);
    double row = s->rows ? (double)s->tokens / (double)s->rows : 0;
    if (pf->job->packing) row = (double)pf->job->max_seq_length;
    return (double)pf->global_batch * row;
}

/* A ratio that a clock can have shown, or none. */
static bool read_figures(const json_t *entry, struct pl_forecast *f) {
    double ratio = json_number_value(json_object_get(entry, "ratio"));
    json_int_t params = json_integer_value(json_object_get(entry, "params"));
    if (!isnormal(ratio) || ratio < 0 || params <= 0) return false;
    f->ratio = ratio;
    f->params = (uint64_t)params;
    return true;
}

void pl_forecast_init(struct pl_forecast *f, const struct pl_preflight *pf, struct pl_text *notes) {
    const struct pl_speed speed = pl_speed_nominal(&pf->traits);
    struct owner o;
    bool broken = false;
    *f = (struct pl_forecast){.step_seconds = NAN};
    f->nominal_step_seconds =
        pl_program_step_seconds(pf->estimate.planned.program, &speed, tokens_of_step(pf));
    describe_owner(pf, &o);
    const struct pl_memory m = memory_of(pf, &o);
    json_t *entry = pl_memory_find(&m, &broken);
    if (entry && read_figures(entry, f)) f->step_seconds = f->nominal_step_seconds * f->ratio;
    if (broken) pl_text_add(notes, "speed.json in the cache directory is damaged and ignored\n");
    json_decref(entry);
    finish_owner(&o);
}

/* --- measuring ------------------------------------------------------------------------------- */

void pl_pace_add(struct pl_pace *p, double seconds, double nominal_seconds) {
    if (p->steps) {
        uint64_t at = (p->steps - 1) % PL_PACE_STEPS;
        p->seconds[at] = seconds;
        p->ratios[at] = seconds / nominal_seconds;
    }
    p->steps++;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median_of(const double *v, uint64_t n) {
    double sorted[PL_PACE_STEPS];
    memcpy(sorted, v, n * sizeof *v);
    qsort(sorted, n, sizeof *sorted, ascending);
    return n % 2 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2;
}

bool pl_pace_median(const struct pl_pace *p, struct pl_pace_medians *out) {
    uint64_t n = p->steps ? pl_u64_min(p->steps - 1, PL_PACE_STEPS) : 0;
    *out = (struct pl_pace_medians){.seconds = NAN, .ratio = NAN};
    if (n < PL_PACE_LEAST) return false;
    *out = (struct pl_pace_medians){median_of(p->seconds, n), median_of(p->ratios, n), n};
    return true;
}

void pl_speed_remember(const struct pl_preflight *pf, const struct pl_pace_medians *m) {
    struct owner o;
    if (!isnormal(m->ratio) || m->ratio < 0) return;
    describe_owner(pf, &o);
    const struct pl_memory memory = memory_of(pf, &o);
    pl_memory_put(&memory, json_pack("{s:f, s:f, s:I, s:I}", "ratio", m->ratio, "step_seconds",
                                     m->seconds, "steps", (json_int_t)m->steps, "params",
                                     (json_int_t)pf->estimate.param_count));
    finish_owner(&o);
}
