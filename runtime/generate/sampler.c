/* sampler.c - greedy choice and sampling over a heap of candidates.
 *
 * Candidates leave a heap in the order of their logits until the filters are satisfied, so a
 * nucleus of a few tokens costs a pass over the vocabulary and not a sort of it. */
#include "runtime/generate/sampler.h"

#include "estimator/base/alloc.h"
#include "runtime/kernels/rng.h"

#include <math.h>
#include <stdlib.h>

static bool is_ordered(const struct pl_sampling *how) {
    return how->top_k || how->top_p < 1 || how->min_p > 0;
}

pl_err pl_sampler_init(struct pl_sampler *s, const struct pl_sampling *how, uint64_t vocab,
                       struct pl_diag *d) {
    *s = (struct pl_sampler){.how = *how, .vocab = vocab};
    bool heap = how->temperature > 0 && is_ordered(how), seen = how->repetition_penalty != 1;
    if (heap) s->heap = pl_malloc((size_t)vocab * sizeof *s->heap);
    if (how->temperature > 0) s->weights = pl_malloc((size_t)vocab * sizeof *s->weights);
    if (seen) s->seen = pl_calloc((size_t)vocab, sizeof *s->seen);
    if ((s->heap || !heap) && (s->weights || how->temperature <= 0) && (s->seen || !seen))
        return PL_ERR_OK;
    pl_sampler_finish(s);
    return pl_diag_set(d, PL_ERR_HOST_OOM, "no memory for the probabilities of %llu tokens",
                       (unsigned long long)vocab);
}

void pl_sampler_finish(struct pl_sampler *s) {
    free(s->heap);
    free(s->weights);
    free(s->seen);
    *s = (struct pl_sampler){0};
}

/* An id is punished once, however often it occurs. */
static void punish(struct pl_sampler *s, float *logits, const struct pl_sampler_position *at) {
    const float by = (float)s->how.repetition_penalty;
    for (uint64_t i = 0; i < at->n; i++) {
        float *x = &logits[at->ids[i]];
        if (!s->seen[at->ids[i]]) *x = *x > 0 ? *x / by : *x * by;
        s->seen[at->ids[i]] = true;
    }
    for (uint64_t i = 0; i < at->n; i++)
        s->seen[at->ids[i]] = false;
}

static int32_t greedy(const float *logits, uint64_t vocab) {
    uint64_t best = 0;
    for (uint64_t i = 1; i < vocab; i++)
        if (logits[i] > logits[best]) best = i;
    return (int32_t)best;
}

/* Larger logits first, lower ids among equals. */
static bool is_before(const struct pl_candidate *a, const struct pl_candidate *b) {
    return a->logit > b->logit || (a->logit == b->logit && a->id < b->id);
}

static void sift(struct pl_candidate *heap, uint64_t n, uint64_t at) {
    struct pl_candidate x = heap[at];
    for (uint64_t child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n && is_before(&heap[child + 1], &heap[child])) child++;
        if (!is_before(&heap[child], &x)) break;
        heap[at] = heap[child];
    }
    heap[at] = x;
}

static void fill_heap(struct pl_sampler *s, const float *logits) {
    for (uint64_t i = 0; i < s->vocab; i++)
        s->heap[i] = (struct pl_candidate){logits[i], (int32_t)i};
    for (uint64_t i = s->vocab / 2; i-- > 0;)
        sift(s->heap, s->vocab, i);
    s->taken = 0;
}

static double weight(const struct pl_sampler *s, float logit, float best) {
    return exp(((double)logit - (double)best) / s->how.temperature);
}

/* Weight of the i-th best candidate, which is taken from the heap when it is its turn. */
static double ranked(struct pl_sampler *s, uint64_t i) {
    for (; s->taken <= i; s->taken++) {
        const uint64_t last = s->vocab - 1 - s->taken;
        const struct pl_candidate best = s->heap[0];
        s->heap[0] = s->heap[last];
        s->heap[last] = best;
        if (last) sift(s->heap, last, 0);
        s->weights[s->taken] = weight(s, best.logit, s->heap[s->vocab - 1].logit);
    }
    return s->weights[i];
}

/* Uniform in [0, 1) with 53 bits. */
static double draw(const struct pl_sampler *s, const struct pl_sampler_position *at) {
    uint32_t x[4];
    const struct pl_rng r = pl_rng_init(s->how.seed, at->sequence, at->position);
    pl_rng_block(&r, 0, x);
    return (double)(((uint64_t)x[0] << 32 | x[1]) >> 11) * 0x1p-53;
}

/* The index at which a walk over weights[0, n) has used up `left`. */
static uint64_t walk(const double *weights, uint64_t n, double left) {
    uint64_t i = 0;
    for (; i + 1 < n && left >= weights[i]; i++)
        left -= weights[i];
    return i;
}

static int32_t choose_any(struct pl_sampler *s, const float *logits,
                          const struct pl_sampler_position *at) {
    const float best = logits[greedy(logits, s->vocab)];
    double sum = 0;
    for (uint64_t i = 0; i < s->vocab; i++)
        sum += s->weights[i] = weight(s, logits[i], best);
    return (int32_t)walk(s->weights, s->vocab, draw(s, at) * sum);
}

/* Returns the sum that top_p is a share of: over all that top_k left. */
static double whole(struct pl_sampler *s, const float *logits, uint64_t most) {
    const float best = s->heap[0].logit;
    double sum = 0;
    if (s->how.top_p >= 1) return 0;
    for (uint64_t i = 0; i < most; i++)
        sum += most < s->vocab ? ranked(s, i) : weight(s, logits[i], best);
    return sum;
}

static int32_t choose_ranked(struct pl_sampler *s, const float *logits,
                             const struct pl_sampler_position *at) {
    const struct pl_sampling *how = &s->how;
    const uint64_t most = how->top_k && how->top_k < s->vocab ? how->top_k : s->vocab;
    fill_heap(s, logits);
    const double enough = how->top_p * whole(s, logits, most);
    double sum = 0;
    uint64_t n = 0;
    for (; n < most; n++) {
        const double w = ranked(s, n);
        if (n && (w < how->min_p || (how->top_p < 1 && sum >= enough))) break;
        sum += w;
    }
    return s->heap[s->vocab - 1 - walk(s->weights, n, draw(s, at) * sum)].id;
}

int32_t pl_sampler_choose(struct pl_sampler *s, float *logits,
                          const struct pl_sampler_position *at) {
    if (s->seen) punish(s, logits, at);
    if (s->how.temperature <= 0) return greedy(logits, s->vocab);
    return is_ordered(&s->how) ? choose_ranked(s, logits, at) : choose_any(s, logits, at);
}
