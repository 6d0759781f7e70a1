/* advice_yaml.c - the advice as a configuration to paste and as a command line to run. */
#include "estimator/advice/advice.h"

#include "estimator/advice/parts.h"
#include "estimator/config/job_text.h"
#include "estimator/config/key_table.h"
#include "estimator/gate/price.h"

#include <string.h>

/* Uses the words of the job where they can say it: another key on the command line would contradict
 * `gradient_accumulation_steps` in a file. */
void pl_advice_set_step(uint32_t samples, struct pl_job *job) {
    if (job->given[PL_KEY_gradient_accumulation_steps] && samples % job->batch_size == 0) {
        job->gradient_accumulation_steps = samples / job->batch_size;
        if (job->global_batch_size != PL_UNSET_U32) job->global_batch_size = samples;
        return;
    }
    job->global_batch_size = samples;
    job->given[PL_KEY_global_batch_size] = true;
    job->gradient_accumulation_steps = PL_UNSET_U32; /* it follows */
}

/* The user's job with the advised values; shallow, never finished. */
static struct pl_job advised_job(const struct pl_advice *a) {
    struct pl_job job = *a->q.job;
    pl_question_settle(&a->q, &job);
    job.batch_size = a->recommended_batch ? a->recommended_batch : a->q.batch_size;
    job.max_seq_length = a->length;
    job.given[PL_KEY_mode] = job.given[PL_KEY_batch_size] = true;
    job.given[PL_KEY_max_seq_length] = true;
    if (a->effective_batch) pl_advice_set_step(a->effective_batch, &job);
    if (!a->q.budget.known) pl_price_raise_ceiling(a->estimate.planned.program, &job);
    return job;
}

void pl_advice_job_yaml(const struct pl_job *job, struct pl_text *out) {
    uint32_t n;
    const struct pl_key_info *keys = pl_key_table(&n);
    for (uint32_t i = 0; i < n; i++) {
        struct pl_text value = {0};
        if (job->given[i]) pl_job_write_key(job, (enum pl_key_id)i, &value);
        if (value.len) pl_text_addf(out, "%s: %s\n", keys[i].key, pl_text_str(&value));
        out->failed |= value.failed;
        pl_text_finish(&value);
    }
}

void pl_advice_yaml(const struct pl_advice *a, struct pl_text *out) {
    const struct pl_job job = advised_job(a);
    pl_advice_job_yaml(&job, out);
}

/* One word for a POSIX shell; quoted unless it holds only what never needs it. */
static void add_word(struct pl_text *out, const char *s) {
    static const char safe[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                               "_-./=:,+@%";
    pl_text_add(out, " ");
    if (*s && s[strspn(s, safe)] == 0) {
        pl_text_add(out, s);
        return;
    }
    pl_text_add(out, "'");
    for (; *s; s++)
        pl_text_addn(out, *s == '\'' ? "'\\''" : s, *s == '\'' ? 4 : 1);
    pl_text_add(out, "'");
}

static void add_assignment(struct pl_text *out, const struct pl_job *job, enum pl_key_id key) {
    uint32_t n;
    struct pl_text word = {0};
    pl_text_addf(&word, "%s=", pl_key_table(&n)[key].key);
    pl_job_write_key(job, key, &word);
    add_word(out, pl_text_str(&word));
    out->failed |= word.failed;
    pl_text_finish(&word);
}

/* Without data there is nothing to train on yet: the command asks the question again. */
const char *pl_advice_verb(const struct pl_job *job) {
    return job->dataset || job->datasets.n ? "train" : "estimate-vram";
}

static bool is_advised(enum pl_key_id key) {
    return key == PL_KEY_batch_size || key == PL_KEY_max_seq_length ||
           key == PL_KEY_global_batch_size || key == PL_KEY_gradient_accumulation_steps;
}

bool pl_advice_same_value(const struct pl_job *a, const struct pl_job *b, enum pl_key_id key,
                          bool *failed) {
    struct pl_text in_a = {0}, in_b = {0};
    pl_job_write_key(a, key, &in_a);
    pl_job_write_key(b, key, &in_b);
    const bool same = strcmp(pl_text_str(&in_a), pl_text_str(&in_b)) == 0;
    *failed |= in_a.failed || in_b.failed;
    pl_text_finish(&in_a);
    pl_text_finish(&in_b);
    return same;
}

void pl_advice_job_command(const char *verb, const struct pl_job *job, const struct pl_job *file,
                           const char *card, struct pl_text *out) {
    const char *first = job->path ? job->path : job->model ? job->model : job->model_config;
    pl_text_addf(out, "plimsoll %s", verb);
    if (first) add_word(out, first);
    for (int i = 0; i < PL_KEY_COUNT; i++) {
        const enum pl_key_id key = (enum pl_key_id)i;
        bool named = key == PL_KEY_model || (key == PL_KEY_model_config && !job->model);
        /* the file has its own keys; a value given outside it carries no line of it */
        bool in_file = job->path && job->place[key].line &&
                       (file ? job->given[key] == file->given[key] &&
                                   pl_advice_same_value(job, file, key, &out->failed)
                             : !is_advised(key));
        if (job->given[key] && !named && !in_file) add_assignment(out, job, key);
    }
    if (!card || strcmp(verb, "train") == 0) return;
    pl_text_add(out, " --gpu");
    add_word(out, card);
}

void pl_advice_command(const struct pl_advice *a, struct pl_text *out) {
    const struct pl_job job = advised_job(a);
    pl_advice_job_command(pl_advice_verb(&job), &job, NULL, a->q.card, out);
}
