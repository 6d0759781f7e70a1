/* spec.c - from the job that was written to the job that runs: the only place where a fact becomes
 * the value of a key. */
#include "estimator/config/spec.h"

#include "estimator/base/checked.h"
#include "estimator/config/job_text.h"
#include "estimator/config/job_values.h"
#include "estimator/config/key_table.h"

#include <math.h>
#include <string.h>

_Static_assert(sizeof(struct pl_choices) == 4 * sizeof(uint32_t) + 2 * sizeof(uint64_t),
               "choices have no padding");

/* --- the machine ----------------------------------------------------------------------------- */

static void take_machine(const struct pl_job_facts *f, struct pl_job *job) {
    if (f->devices) job->devices = f->devices;
    if (f->are_ranks && job->device == PL_DEVICE_CUDA) /* one that the job names is for one rank */
        job->device = PL_DEVICE_CUDA_AT + f->local_rank;
    if (f->device != PL_DEVICE_AUTO) job->device = f->device;
    if (f->threads) job->threads = f->threads;
    if (f->vram_budget != PL_AUTO_BYTES) job->vram_budget = f->vram_budget;
    if (f->vram_margin != PL_AUTO_BYTES) job->vram_margin = f->vram_margin;
}

/* A level that no one wrote is chosen by a budget that is named, and so is whether copies of 4-bit
 * matrices are kept. Memory that is merely free chooses nothing: the same job would be planned
 * another way from one minute to the next. */
static void take_level(const struct pl_job_facts *f, struct pl_job *job) {
    if (f->names_budget && !job->inference && !job->given[PL_KEY_gradient_checkpointing])
        job->gradient_checkpointing = PL_RECOMPUTE_AUTO;
    if (!f->names_budget && !job->given[PL_KEY_keep_unpacked]) job->keep_unpacked = PL_TRI_FALSE;
}

/* --- generating ------------------------------------------------------------------------------ */

static void take_list(const struct pl_job *names, enum pl_key_id id, const struct pl_str_list *from,
                      struct pl_job *job, struct pl_str_list *to) {
    if (!names->given[id]) return;
    *to = *from;
    job->given[id] = true;
}

static void take_adapter(const struct pl_adapter_facts *a, struct pl_job *job) {
    const struct pl_job *n = a->names;
    if (!pl_mode_adapts(job->mode)) job->mode = PL_MODE_LORA;
    job->lora_r = a->r;
    job->lora_alpha = a->alpha;
    job->use_rslora = a->use_rslora;
    job->lora_dropout = 0;
    job->freeze_layers = 0;
#define TAKE(key) take_list(n, PL_KEY_##key, &n->key, job, &job->key)
    TAKE(lora_target_modules);
    TAKE(lora_target_parameters);
    TAKE(lora_exclude_modules);
    TAKE(layers_pattern);
    TAKE(lora_modules_to_save);
    TAKE(layers_to_transform);
#undef TAKE
}

/* There is no smaller batch of the same prompts to recover with. */
static void take_generating(const struct pl_job_facts *f, struct pl_job *job) {
    if (!f->generates) return;
    job->inference = true;
    job->oom_recovery = false;
    if (!job->given[PL_KEY_dtype]) job->dtype = f->is_stored_wide ? PL_DTYPE_F32 : PL_DTYPE_AUTO;
    if (f->adapter.are) take_adapter(&f->adapter, job);
}

/* --- a run that goes on ---------------------------------------------------------------------- */

/* Recovery has made the micro-batch smaller, not the step: what it holds, and the type of its
 * gradients, stay what the configuration asks for. */
static void keep_step_size(const struct pl_kept *k, struct pl_job *job) {
    bool open = job->batch_size == PL_AUTO, together = job->global_batch_size != PL_UNSET_U32;
    uint64_t accumulation = pl_job_accumulation(job, job->batch_size);
    uint64_t product = open ? k->samples : job->batch_size * accumulation * pl_job_ranks(job);
    if (job->gradient_dtype == PL_DTYPE_AUTO && job->dtype != PL_DTYPE_F32 &&
        job->mode == PL_MODE_FULL && !(open && together)) /* of a version that did not record it */
        job->gradient_dtype = accumulation > 1 ? PL_DTYPE_F32 : job->dtype;
    pl_job_cut_step(job, k->batch_size, together ? job->global_batch_size : product);
}

/* Sets a key to its recorded decision; a record of a version that had none leaves it open. */
static void keep_open(const char *decided, enum pl_key_id id, struct pl_job *job) {
    uint32_t n;
    const bool given = job->given[id];
    if (!decided) return;
    (void)pl_job_set(job, pl_key_table(&n)[id].key, decided, NULL); /* open, where it is not one */
    job->given[id] = given;
}

static void fix_step(uint64_t samples, struct pl_job *job) {
    job->global_batch_size = (uint32_t)pl_u64_min(samples, PL_UNSET_U32 - 1);
    job->gradient_accumulation_steps = PL_UNSET_U32; /* it follows */
}

/* A run that is resumed keeps the micro-batch, the chunks and the panels that it had, and whether
 * it computes pairs at one time: the last bits of a step's sums depend on them, on panels where a
 * library chooses products by their shape. */
static void take_kept(const struct pl_kept *k, struct pl_job *job) {
    if (!k->is) return;
    /* `auto` became a type by the first micro-batch, which recovery and other settings may have
     * made smaller since. */
    const enum pl_dtype gradients =
        k->gradient_dtype ? pl_dtype_by_name(k->gradient_dtype) : PL_DTYPE_AUTO;
    if (job->gradient_dtype == PL_DTYPE_AUTO && pl_dtype_is_float(gradients))
        job->gradient_dtype = gradients;
    if (job->mlp_chunk_tokens == PL_AUTO)
        keep_open(k->mlp_chunk_tokens, PL_KEY_mlp_chunk_tokens, job);
    if (job->unpack_buffer == PL_AUTO_BYTES) keep_open(k->unpack_buffer, PL_KEY_unpack_buffer, job);
    if (job->keep_first_pass == PL_TRI_AUTO)
        keep_open(k->keep_first_pass, PL_KEY_keep_first_pass, job);
    if (job->precompute_reference == PL_TRI_AUTO)
        keep_open(k->precompute_reference, PL_KEY_precompute_reference, job);
    if (k->has_recovered) keep_step_size(k, job);
    if (pl_job_has_open_step(job)) fix_step(k->samples, job); /* decided when the run began */
    if (job->batch_size == PL_AUTO) job->batch_size = k->batch_size;
    if (job->loss_chunk_tokens == PL_AUTO && k->loss_chunk_tokens)
        job->loss_chunk_tokens = k->loss_chunk_tokens;
}

static void take_data(struct pl_job_facts *f, struct pl_job *job) {
    if (f->chat_date[0]) job->chat_date = f->chat_date;
    if (f->weighs_rows && job->row_weights == PL_TRI_AUTO) job->row_weights = PL_TRI_TRUE;
    if (job->precompute_reference == PL_TRI_AUTO)
        job->precompute_reference = f->precompute_reference;
    if (f->samples) job->auto_samples = f->samples;
}

/* --- the plan -------------------------------------------------------------------------------- */

void pl_job_fix_batch(struct pl_job *job, uint32_t batch_size, bool keeps_step) {
    if (pl_job_has_open_step(job) && keeps_step && pl_job_step_samples(job))
        fix_step(pl_job_step_samples(job), job);
    job->batch_size = batch_size;
}

static void take_choices(const struct pl_choices *x, struct pl_job *job) {
    job->gradient_checkpointing = x->gradient_checkpointing;
    job->optimizer_in_backward = x->optimizer_in_backward;
    job->mlp_chunk_tokens = x->mlp_chunk_tokens;
    job->unpack_buffer = x->unpack_buffer;
    job->keep_first_pass = x->keep_first_pass;
    job->keep_unpacked = (uint32_t)x->keep_unpacked;
}

void pl_job_settle(struct pl_job *job, const struct pl_decided *x) {
    if (!x->are) return;
    take_choices(&x->choices, job);
    if (job->dtype == PL_DTYPE_AUTO && x->dtype != PL_DTYPE_BF16) {
        job->dtype = x->dtype;
        job->given[PL_KEY_dtype] = true;
    }
    if (job->batch_size == PL_AUTO) pl_job_fix_batch(job, x->batch_size, !x->one_micro_batch);
}

void pl_job_settle_choices(struct pl_job *job, const struct pl_decided *x) {
    take_choices(&x->choices, job);
    if (x->one_micro_batch) pl_job_fix_batch(job, x->batch_size, false);
}

/* Keys that are still open become what the program was built with, so that config.resolved.yaml
 * repeats the run. */
static void take_built(const struct pl_built *b, struct pl_job *job) {
    const bool full = job->mode == PL_MODE_FULL, narrow = pl_dtype_is_narrow(b->dtype);
    if (!b->is) return;
    job->dtype = b->dtype;
    job->learning_rate = pl_job_learning_rate(job);
    if (job->global_batch_size == PL_UNSET_U32)
        job->gradient_accumulation_steps = pl_job_accumulation(job, job->batch_size);
    if (job->loss_chunk_tokens == PL_AUTO) job->loss_chunk_tokens = b->loss_chunk_tokens;
    if (job->mlp_chunk_tokens == PL_AUTO) job->mlp_chunk_tokens = b->mlp_chunk_tokens;
    if (job->unpack_buffer == PL_AUTO_BYTES && job->mode == PL_MODE_QLORA)
        job->unpack_buffer = b->unpack_bytes;
    if (narrow && full) job->master_weights = b->has_masters ? PL_TRI_TRUE : PL_TRI_FALSE;
    if (narrow && (full || b->adapts_whole)) job->gradient_dtype = b->gradient_dtype;
    if (!pl_mode_adapts(job->mode)) return;
    job->base_dtype = b->base_dtype;
    if (isnan(job->lora_alpha)) job->lora_alpha = 2.0 * job->lora_r;
}

static void take_plan(const struct pl_job_facts *f, struct pl_job *job) {
    if (f->cut_batch_size) pl_job_cut_step(job, f->cut_batch_size, f->cut_samples);
    if (f->sharding != PL_SHARDING_AUTO) job->sharding = f->sharding;
    pl_job_settle(job, &f->decided);
    if (f->has_warmup) {
        job->warmup_steps = f->warmup_steps;
        job->warmup_ratio = NAN;
    }
    take_built(&f->built, job);
}

/* --- all of it ------------------------------------------------------------------------------- */

void pl_resolve(struct pl_spec *s) {
    s->job = *s->asked;
    take_machine(&s->facts, &s->job);
    take_generating(&s->facts, &s->job);
    take_level(&s->facts, &s->job);
    take_kept(&s->facts.kept, &s->job);
    take_data(&s->facts, &s->job);
    take_plan(&s->facts, &s->job);
}

void pl_spec_init(struct pl_spec *s, const struct pl_job *asked) {
    *s = (struct pl_spec){.asked = asked,
                          .facts = {.device = PL_DEVICE_AUTO,
                                    .vram_budget = PL_AUTO_BYTES,
                                    .vram_margin = PL_AUTO_BYTES,
                                    .sharding = PL_SHARDING_AUTO}};
    pl_resolve(s);
}

void pl_spec_cut(struct pl_spec *s, uint32_t batch_size, uint64_t samples) {
    s->facts.cut_batch_size = batch_size;
    s->facts.cut_samples = samples;
    s->facts.sharding = PL_SHARDING_AUTO;
    s->facts.decided = (struct pl_decided){0};
    s->facts.built = (struct pl_built){0};
    pl_resolve(s);
}
