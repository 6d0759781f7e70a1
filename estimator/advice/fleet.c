/* fleet.c - plans a job for more and more devices. */
#include "estimator/advice/fleet.h"

#include "estimator/advice/parts.h"
#include "estimator/base/checked.h"
#include "estimator/config/job_values.h"
#include "estimator/config/validate.h"

static const uint32_t shardings[] = {PL_SHARDING_NONE, PL_SHARDING_OPTIMIZER, PL_SHARDING_GRADIENTS,
                                     PL_SHARDING_WEIGHTS};
#define N_SHARDINGS (sizeof shardings / sizeof *shardings)

/* --- one row --------------------------------------------------------------------------------- */

/* Ranks hold nothing in host memory, and gradients that they exchange outlive a micro-batch. */
static void open_job(const struct pl_advice *a, const struct pl_fleet *f, struct pl_fleet_row *r) {
    struct pl_job *job = &r->job;
    *job = *a->q.job;
    job->devices = r->devices;
    job->sharding = r->sharding;
    job->given[PL_KEY_devices] = job->given[PL_KEY_sharding] = r->devices > 1;
    job->given[PL_KEY_mode] = job->given[PL_KEY_max_seq_length] = true;
    job->max_seq_length = a->length;
    job->global_batch_size = f->samples;
    job->given[PL_KEY_global_batch_size] = true;
    job->gradient_accumulation_steps = PL_UNSET_U32;
    job->given[PL_KEY_gradient_accumulation_steps] = false;
    if (!job->given[PL_KEY_gradient_checkpointing]) job->gradient_checkpointing = PL_RECOMPUTE_AUTO;
    if (r->devices == 1) return;
    job->offload = PL_OFFLOAD_NONE;
    job->full_ft_offload = false;
    job->optimizer_in_backward = PL_TRI_FALSE;
    job->embedding_device = PL_EMBEDDING_DEVICE;
    job->given[PL_KEY_offload] = job->given[PL_KEY_full_ft_offload] = false;
    job->given[PL_KEY_embedding_device] = job->given[PL_KEY_optimizer_in_backward] = false;
    if (job->gradient_checkpointing == PL_RECOMPUTE_OFFLOAD)
        job->gradient_checkpointing = PL_RECOMPUTE_AUTO;
}

static void question_of(const struct pl_advice *a, const struct pl_job *job, uint32_t batch,
                        struct pl_variant *v) {
    pl_variant_open(v, &a->q, job);
    v->q.rank = pl_job_ranks(job) - 1;
    pl_budget_predict_comm(&v->q.budget, pl_job_ranks(job));
    v->job.batch_size = v->q.batch_size = batch;
    v->job.given[PL_KEY_batch_size] = true;
}

/* With the least of all that is open: what keeps the smallest micro-batch from fitting. */
static pl_err judge_smallest(struct pl_advice *a, struct pl_fleet_row *r, struct pl_diag *d) {
    struct pl_variant v;
    question_of(a, &r->job, 1, &v);
    PL_TRY(pl_autolevel_smallest(&v.q, &a->trials, d));
    PL_TRY(pl_question_measure(&v.q, &a->trials.held, d));
    pl_price_raise_ceiling(a->trials.held.program, &r->job);
    v.job = r->job;
    r->price = pl_price_held(&v.q, &a->trials.held);
    r->batch_size = r->steps = 1;
    return PL_ERR_OK;
}

/* The question with all decided, and its price; its plan is held. */
static pl_err decide_row(struct pl_advice *a, const struct pl_job *job, uint32_t batch,
                         struct pl_variant *v, struct pl_price *price, struct pl_diag *d) {
    question_of(a, job, batch, v);
    return pl_price_decide(&v->q, &a->trials, price, d);
}

static struct pl_speed speed_of(const struct pl_advice *a) {
    return pl_speed_nominal(&a->q.traits);
}

/* As a row with this micro-batch; *fits: of the last rank. */
static pl_err try_batch(struct pl_advice *a, const struct pl_link *link, uint32_t batch,
                        struct pl_fleet_row *r, bool *fits, struct pl_diag *d) {
    struct pl_variant v;
    const struct pl_speed speed = speed_of(a);
    PL_TRY(decide_row(a, &r->job, batch, &v, &r->price, d));
    *fits = pl_price_fits(&r->price);
    if (!*fits) return PL_ERR_OK;
    r->batch_size = batch;
    r->job.batch_size = batch;
    r->job.given[PL_KEY_batch_size] = true;
    r->steps = pl_job_accumulation(&r->job, batch);
    pl_program_step_time(a->trials.held.program, &speed, link, r->steps, &r->time);
    return PL_ERR_OK;
}

/* Micro-batches divide the samples of the step, up to a device's share of them. */
static pl_err find_batch(struct pl_advice *a, const struct pl_fleet *f, uint32_t most,
                         struct pl_fleet_row *r, struct pl_diag *d) {
    const struct pl_fleet_row open = *r;
    bool fits = true, any = false;
    for (uint32_t batch = 1; batch <= most && fits; batch++) {
        struct pl_fleet_row at = open;
        if (f->samples % batch) continue;
        PL_TRY(try_batch(a, f->request.link, batch, &at, &fits, d));
        if (!fits || (any && pl_step_in_order(&at.time) >= pl_step_in_order(&r->time))) continue;
        *r = at;
        any = true;
    }
    if (!any) r->price.verdict = PL_VERDICT_NO;
    return PL_ERR_OK;
}

/* F1. The last rank was planned already; another may have a few bytes more. */
static pl_err measure_ranks(struct pl_advice *a, struct pl_fleet_row *r, struct pl_diag *d) {
    struct pl_variant v;
    struct pl_price price;
    PL_TRY(decide_row(a, &r->job, r->batch_size, &v, &price, d));
    for (uint32_t rank = 0; rank + 1 < r->devices; rank++) {
        v.q.rank = rank;
        PL_TRY(pl_price_measure(&v.q, 0, &a->trials, &price, d));
        if (price.needed_bytes <= r->price.needed_bytes) continue;
        r->price.needed_bytes = price.needed_bytes;
        r->price.verdict = price.verdict;
    }
    return PL_ERR_OK;
}

/* The same micro-batches one after another on one device, whatever memory that takes. */
static pl_err time_of_one(struct pl_advice *a, const struct pl_fleet *f, struct pl_fleet_row *r,
                          struct pl_diag *d) {
    struct pl_variant v;
    struct pl_step_time t;
    struct pl_planned held = {0};
    const struct pl_speed speed = speed_of(a);
    question_of(a, &r->job, r->batch_size, &v);
    v.job.devices = 1;
    v.q.rank = 0;
    pl_err err = pl_question_sketch(&v.q, &held, d);
    if (err == PL_ERR_OK) {
        const double batches = pl_job_accumulation(&v.job, r->batch_size);
        pl_program_step_time(held.program, &speed, f->request.link, batches, &t);
        r->one_seconds = pl_step_in_order(&t);
    }
    pl_planned_finish(&held);
    return err;
}

static pl_err time_row(struct pl_advice *a, const struct pl_fleet *f, struct pl_fleet_row *r,
                       struct pl_diag *d) {
    struct pl_variant v;
    struct pl_price price;
    struct pl_planned whole = {0};
    const struct pl_speed speed = speed_of(a);
    PL_TRY(decide_row(a, &r->job, r->batch_size, &v, &price, d));
    pl_price_settle(&v.q, &r->job); /* so that what is planned next is what was chosen */
    PL_TRY(time_of_one(a, f, r, d));
    question_of(a, &r->job, r->batch_size, &v);
    pl_err err = pl_question_plan(&v.q, NULL, &whole, d);
    if (err == PL_ERR_OK)
        err = pl_plan_step_time(whole.plan, &speed, f->request.link, r->steps, &r->time, d);
    pl_planned_finish(&whole);
    return err;
}

static pl_err fill_row(struct pl_advice *a, const struct pl_fleet *f, struct pl_fleet_row *r,
                       struct pl_diag *d) {
    uint32_t most = (uint32_t)pl_u64_div_up(f->samples, r->devices);
    PL_TRY(judge_smallest(a, r, d));
    if (!pl_price_fits(&r->price)) return PL_ERR_OK;
    do { /* until every rank fits, too */
        PL_TRY(find_batch(a, f, most, r, d));
        if (!pl_price_fits(&r->price)) return PL_ERR_OK;
        PL_TRY(measure_ranks(a, r, d));
        most = r->batch_size - 1;
    } while (!pl_price_fits(&r->price) && most);
    return pl_price_fits(&r->price) ? time_row(a, f, r, d) : PL_ERR_OK;
}

/* --- all of them ----------------------------------------------------------------------------- */

/* `optimizer` takes the bytes and the time of `gradients`, and no row, but where gradients are
 * exchanged once a step. */
static bool is_meant(const struct pl_advice *a, uint32_t devices, uint32_t sharding) {
    const bool once = a->q.job->rank_order == PL_TRI_FALSE;
    uint32_t own = a->q.job->sharding;
    if (devices == 1) return sharding == PL_SHARDING_NONE;
    if (!once && sharding == PL_SHARDING_OPTIMIZER) return false;
    if (!once && own == PL_SHARDING_OPTIMIZER) own = PL_SHARDING_GRADIENTS;
    return own == PL_SHARDING_AUTO || own == sharding;
}

static pl_err add_row(struct pl_advice *a, uint32_t devices, uint32_t sharding, struct pl_fleet *f,
                      struct pl_diag *d) {
    struct pl_fleet_row *r = &f->rows[f->n_rows];
    bool has;
    *r = (struct pl_fleet_row){.devices = devices, .sharding = sharding};
    open_job(a, f, r);
    PL_TRY(pl_change_made(pl_job_validate(&r->job, NULL), "a row of devices", &has, d));
    if (!has) return PL_ERR_OK;
    PL_TRY(fill_row(a, f, r, d));
    f->n_rows++;
    return PL_ERR_OK;
}

static bool is_better(const struct pl_fleet_row *r, const struct pl_fleet_row *best) {
    if (!pl_price_fits(&r->price)) return false;
    if (!best || r->devices != best->devices) return !best || r->devices < best->devices;
    return pl_step_in_order(&r->time) < pl_step_in_order(&best->time);
}

static void compare_rows(struct pl_fleet *f) {
    for (uint32_t i = 0; i < f->n_rows; i++) {
        const struct pl_fleet_row *r = &f->rows[i];
        if (is_better(r, f->best)) f->best = r;
        if (!f->least || r->price.needed_bytes < f->least->price.needed_bytes) f->least = r;
    }
    for (uint32_t i = 0; i < f->n_rows && f->best; i++)
        f->rows[i].relative = pl_step_in_order(&f->rows[i].time) / pl_step_in_order(&f->best->time);
}

static bool any_fits(const struct pl_fleet *f, uint32_t from) {
    for (uint32_t i = from; i < f->n_rows; i++)
        if (pl_price_fits(&f->rows[i].price)) return true;
    return false;
}

pl_err pl_advice_fleet(struct pl_advice *a, const struct pl_fleet_request *request,
                       struct pl_fleet *out, struct pl_diag *d) {
    *out = (struct pl_fleet){.request = *request, .samples = a->effective_batch};
    out->samples_open = out->samples == 0;
    if (out->samples_open) out->samples = PL_FLEET_SAMPLES;
    for (uint32_t n = 1; n <= PL_FLEET_MOST; n *= 2) {
        const uint32_t devices = request->devices ? request->devices : n;
        const uint32_t before = out->n_rows;
        for (size_t s = 0; s < N_SHARDINGS; s++)
            if (is_meant(a, devices, shardings[s]))
                PL_TRY(add_row(a, devices, shardings[s], out, d));
        if (request->devices || (request->fewest_alone && any_fits(out, before))) break;
    }
    compare_rows(out);
    return PL_ERR_OK;
}

double pl_fleet_efficiency(const struct pl_fleet_row *row) {
    const double all = pl_step_in_order(&row->time) * row->devices;
    return all > 0 ? row->one_seconds / all : 0;
}
