#include "runtime/train/reference.h"

#include "estimator/base/alloc.h"
#include "estimator/base/checked.h"
#include "estimator/base/digest.h"

#include <stdlib.h>

#define FIRST_CAPACITY 1024

/* Labels may be those of a prompt that is trained; the place of the answer says what is scored. */
uint64_t pl_reference_key(const struct pl_step_batch *b, uint64_t i) {
    const struct pl_sample *s = &b->samples[i];
    const uint64_t numbers[] = {s->n, b->members[i].answer, b->weights[i].tail};
    struct pl_digest h;
    pl_digest_init(&h, 0);
    pl_digest_add(&h, numbers, sizeof numbers);
    pl_digest_add(&h, s->ids, s->n * sizeof *s->ids);
    const uint64_t key = pl_digest_value(&h);
    return key ? key : 1;
}

/* The row of a key, or the empty one where it would stand; there is one. */
static struct pl_reference_row *find(const struct pl_reference *t, uint64_t key) {
    uint64_t i = key % t->cap;
    while (t->rows[i].key && t->rows[i].key != key)
        i = i + 1 == t->cap ? 0 : i + 1;
    return &t->rows[i];
}

bool pl_reference_get(const struct pl_reference *t, uint64_t key, double *value) {
    if (!t->n) return false;
    const struct pl_reference_row *row = find(t, key);
    *value = row->value;
    return row->key == key;
}

static pl_err grow(struct pl_reference *t, struct pl_diag *d) {
    struct pl_reference wider = {0};
    if (!pl_u64_mul(t->cap ? t->cap : FIRST_CAPACITY / 2, 2, &wider.cap) ||
        wider.cap > SIZE_MAX / sizeof *wider.rows)
        return pl_host_oom(d, "the reference");
    wider.rows = pl_calloc((size_t)wider.cap, sizeof *wider.rows);
    if (!wider.rows) return pl_host_oom(d, "the reference");
    for (uint64_t i = 0; i < t->cap; i++)
        if (t->rows[i].key) *find(&wider, t->rows[i].key) = t->rows[i];
    wider.n = t->n;
    wider.whole = t->whole;
    free(t->rows);
    *t = wider;
    return PL_ERR_OK;
}

pl_err pl_reference_put(struct pl_reference *t, uint64_t key, double value, struct pl_diag *d) {
    if (2 * (t->n + 1) > t->cap) PL_TRY(grow(t, d));
    struct pl_reference_row *row = find(t, key);
    if (row->key) return PL_ERR_OK;
    *row = (struct pl_reference_row){key, value};
    t->n++;
    return PL_ERR_OK;
}

void pl_reference_finish(struct pl_reference *t) {
    free(t->rows);
    *t = (struct pl_reference){0};
}
