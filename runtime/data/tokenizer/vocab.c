/* vocab.c - pieces and ids: one block of text, an array by id, an open-addressing table by text. */
#include "runtime/data/tokenizer/vocab.h"
#include "estimator/base/alloc.h"
#include "runtime/data/tokenizer/hash.h"

#include <stdlib.h>
#include <string.h>

/* Grows *data, of *cap elements, to hold n; false: out of memory. */
static bool grow(void **data, size_t *cap, size_t n, size_t element) {
    size_t want = *cap ? *cap : 256;
    if (n <= *cap) return true;
    while (want < n)
        want *= 2; /* n is bounded by UINT32_MAX, far below overflow */
    void *grown = pl_realloc(*data, want * element);
    if (!grown) return false;
    *data = grown;
    *cap = want;
    return true;
}

static void insert(struct pl_vocab *v, uint32_t hash, int32_t id) {
    uint32_t at = hash & (v->n_slots - 1);
    while (v->slots[at].id >= 0)
        at = (at + 1) & (v->n_slots - 1);
    v->slots[at] = (struct pl_vocab_slot){hash, id};
}

static bool grow_slots(struct pl_vocab *v) {
    if (v->n_pieces < v->n_slots / 2) return true;
    struct pl_vocab old = *v;
    v->n_slots = old.n_slots ? 2 * old.n_slots : 1024;
    v->slots = pl_malloc(v->n_slots * sizeof *v->slots);
    if (!v->slots) {
        v->slots = old.slots;
        v->n_slots = old.n_slots;
        return false;
    }
    for (uint32_t i = 0; i < v->n_slots; i++)
        v->slots[i].id = -1;
    for (uint32_t i = 0; i < old.n_slots; i++)
        if (old.slots[i].id >= 0) insert(v, old.slots[i].hash, old.slots[i].id);
    free(old.slots);
    return true;
}

static bool grow_places(struct pl_vocab *v, uint32_t id) {
    size_t cap = v->cap_places;
    void *places = v->places;
    if (!grow(&places, &cap, (size_t)id + 1, sizeof *v->places)) return false;
    v->places = places;
    v->cap_places = (uint32_t)cap;
    for (; v->size <= id; v->size++)
        v->places[v->size].offset = PL_VOCAB_NO_PIECE;
    return true;
}

bool pl_vocab_put(struct pl_vocab *v, uint32_t id, const char *s, size_t n) {
    void *block = v->block;
    if (v->n_block + n + 1 >= PL_VOCAB_NO_PIECE) return false;
    if (!grow(&block, &v->cap_block, v->n_block + n + 1, 1)) return false;
    v->block = block;
    if (!grow_places(v, id) || !grow_slots(v)) return false;
    memcpy(v->block + v->n_block, s, n);
    v->block[v->n_block + n] = 0;
    v->places[id] = (struct pl_vocab_place){(uint32_t)v->n_block, (uint32_t)n};
    v->n_block += n + 1;
    v->n_pieces++;
    insert(v, (uint32_t)pl_hash_bytes(s, n), (int32_t)id);
    return true;
}

int32_t pl_vocab_find(const struct pl_vocab *v, const char *s, size_t n) {
    uint32_t hash = (uint32_t)pl_hash_bytes(s, n);
    if (!v->n_slots) return -1;
    for (uint32_t at = hash & (v->n_slots - 1); v->slots[at].id >= 0;
         at = (at + 1) & (v->n_slots - 1)) {
        const struct pl_vocab_place *p = &v->places[v->slots[at].id];
        if (v->slots[at].hash == hash && p->n == n && memcmp(v->block + p->offset, s, n) == 0)
            return v->slots[at].id;
    }
    return -1;
}

const char *pl_vocab_piece(const struct pl_vocab *v, int64_t id, size_t *n) {
    if (id < 0 || id >= v->size || v->places[id].offset == PL_VOCAB_NO_PIECE) return NULL;
    if (n) *n = v->places[id].n;
    return v->block + v->places[id].offset;
}

void pl_vocab_finish(struct pl_vocab *v) {
    free(v->block);
    free(v->places);
    free(v->slots);
    *v = (struct pl_vocab){0};
}
