/* batch.c - the samples of a step, and the inputs of the micro-batches cut from them. */
#include "estimator/base/checked.h"
#include "runtime/data/data.h"

#include <stdlib.h>
#include <string.h>

void pl_step_batch_finish(struct pl_step_batch *b) {
    for (uint64_t i = 0; i < b->cap; i++)
        pl_sample_finish(&b->samples[i]);
    free(b->samples);
    *b = (struct pl_step_batch){0};
}

static pl_err reserve_samples(struct pl_step_batch *b, uint64_t n, struct pl_diag *d) {
    struct pl_sample *samples = NULL;
    uint64_t bytes;
    if (n <= b->cap) return PL_ERR_OK;
    if (pl_u64_mul(n, sizeof *samples, &bytes) && bytes <= SIZE_MAX)
        samples = realloc(b->samples, (size_t)bytes);
    if (!samples)
        return pl_diag_set(d, PL_ERR_HOST_OOM, "no memory for a step of %llu samples",
                           (unsigned long long)n);
    memset(samples + b->cap, 0, (size_t)(n - b->cap) * sizeof *samples);
    b->samples = samples;
    b->cap = n;
    return PL_ERR_OK;
}

static uint64_t targets_of(const struct pl_sample *s) {
    uint64_t n = 0;
    for (uint64_t i = 1; i < s->n; i++)
        n += s->labels[i] != PL_LABEL_MASKED;
    return n;
}

static pl_err begin(struct pl_step_batch *b, uint64_t n, struct pl_diag *d) {
    b->n = b->targets = b->tokens = 0;
    return reserve_samples(b, n, d);
}

static pl_err append(struct pl_step_batch *b, struct pl_data *data, uint64_t row,
                     struct pl_diag *d) {
    struct pl_sample *s = &b->samples[b->n];
    PL_TRY(pl_data_sample(data, row, s, d));
    uint64_t targets = targets_of(s);
    if (!targets) s->n = 0;
    b->targets += targets;
    b->tokens += s->n;
    b->n++;
    return PL_ERR_OK;
}

pl_err pl_step_batch_load(struct pl_step_batch *b, struct pl_data *data, uint64_t first_position,
                          uint64_t n, uint64_t first_row, uint64_t n_rows, bool shuffle,
                          uint64_t seed, struct pl_diag *d) {
    PL_TRY(begin(b, n, d));
    for (uint64_t i = 0; i < n; i++)
        PL_TRY(append(b, data, pl_data_order(first_position + i, first_row, n_rows, shuffle, seed),
                      d));
    return PL_ERR_OK;
}

pl_err pl_step_batch_load_rows(struct pl_step_batch *b, struct pl_data *data, uint64_t n,
                               const uint64_t *rows, uint64_t n_rows, struct pl_diag *d) {
    PL_TRY(begin(b, n, d));
    for (uint64_t i = 0; i < n && n_rows; i++)
        PL_TRY(append(b, data, rows[i % n_rows], d));
    return PL_ERR_OK;
}

/* n items of `bytes` each, at least one, so that NULL only ever means no memory. */
static void *array(uint64_t n, size_t bytes) {
    return n < SIZE_MAX / bytes ? calloc((size_t)n + 1, bytes) : NULL;
}

pl_err pl_micro_batch_init(struct pl_micro_batch *mb, uint64_t tokens, uint64_t seqs,
                           struct pl_diag *d) {
    *mb = (struct pl_micro_batch){
        .ids = array(tokens, sizeof *mb->ids),
        .positions = array(tokens, sizeof *mb->positions),
        .offsets = array(seqs, sizeof *mb->offsets), /* seqs + 1 of them */
        .target_rows = array(tokens, sizeof *mb->target_rows),
        .targets = array(tokens, sizeof *mb->targets),
        .samples = array(seqs, sizeof *mb->samples),
    };
    if (mb->ids && mb->positions && mb->offsets && mb->target_rows && mb->targets && mb->samples)
        return PL_ERR_OK;
    pl_micro_batch_finish(mb);
    return pl_diag_set(d, PL_ERR_HOST_OOM, "no memory for a micro-batch of %llu tokens",
                       (unsigned long long)tokens);
}

void pl_micro_batch_finish(struct pl_micro_batch *mb) {
    free(mb->ids);
    free(mb->positions);
    free(mb->offsets);
    free(mb->target_rows);
    free(mb->targets);
    free(mb->samples);
    *mb = (struct pl_micro_batch){0};
}

/* The last token of a sample predicts nothing: a target's row never leaves its own sequence. */
static void add_sample(struct pl_micro_batch *mb, const struct pl_sample *s, uint64_t number) {
    const uint64_t base = mb->n_tokens;
    memcpy(mb->ids + base, s->ids, (size_t)s->n * sizeof *s->ids);
    for (uint64_t t = 0; t < s->n; t++) {
        mb->positions[base + t] = (int32_t)t;
        if (t + 1 == s->n || s->labels[t + 1] == PL_LABEL_MASKED) continue;
        mb->target_rows[mb->n_targets] = (int32_t)(base + t);
        mb->targets[mb->n_targets++] = s->labels[t + 1];
    }
    mb->samples[mb->n_seqs++] = number;
    mb->n_tokens += s->n;
    mb->offsets[mb->n_seqs] = (int32_t)mb->n_tokens;
    mb->max_len = pl_u64_max(mb->max_len, s->n);
}

void pl_micro_batch_fill(struct pl_micro_batch *mb, const struct pl_step_batch *b, uint64_t first,
                         uint64_t n) {
    mb->n_tokens = mb->n_seqs = mb->n_targets = mb->max_len = 0;
    mb->offsets[0] = 0;
    for (uint64_t i = first; i < first + n && i < b->n; i++)
        if (b->samples[i].n) add_sample(mb, &b->samples[i], i);
}
