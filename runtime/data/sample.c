#include "runtime/data/sample.h"

#include "estimator/base/alloc.h"
#include "estimator/base/checked.h"
#include "estimator/base/digest.h"

#include <float.h>
#include <stdlib.h>

void pl_sample_finish(struct pl_sample *s) {
    free(s->ids);
    free(s->labels);
    *s = (struct pl_sample){0};
}

bool pl_sample_reserve(struct pl_sample *s, uint64_t n) {
    uint64_t cap = s->cap ? s->cap : 256, bytes;
    if (n <= s->cap) return true;
    while (cap < n)
        if (!pl_u64_mul(cap, 2, &cap)) return false;
    if (!pl_u64_mul(cap, sizeof(int32_t), &bytes) || bytes > SIZE_MAX) return false;
    int32_t *ids = pl_realloc(s->ids, (size_t)bytes);
    if (ids) s->ids = ids;
    int32_t *labels = ids ? pl_realloc(s->labels, (size_t)bytes) : NULL;
    if (!labels) return false;
    s->labels = labels;
    s->cap = cap;
    return true;
}

int32_t pl_sample_label(const struct pl_sample *s, uint64_t i) {
    const int32_t label = s->labels[i];
    if (!pl_label_begins_part(label)) return label;
    return pl_label_part_flags(label) & PL_PART_ANSWERS ? s->ids[i] : PL_LABEL_MASKED;
}

uint64_t pl_sample_targets(const struct pl_sample *s) {
    uint64_t n = 0;
    for (uint64_t i = 1; i < s->n; i++)
        n += pl_label_is_target(s->labels[i]);
    return n;
}

bool pl_sample_weight_is_valid(double weight) {
    return weight >= 0 && weight <= (double)FLT_MAX;
}

uint64_t pl_sample_digest(const struct pl_sample *s) {
    struct pl_digest h;
    pl_digest_init(&h, s->n);
    pl_digest_add(&h, s->ids, s->n * sizeof *s->ids);
    pl_digest_add(&h, s->labels, s->n * sizeof *s->labels);
    if (s->weighted) pl_digest_add(&h, &s->weight, sizeof s->weight);
    return pl_digest_value(&h);
}
