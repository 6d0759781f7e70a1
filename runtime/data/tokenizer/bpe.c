/* bpe.c - byte-pair encoding: a scan for short pieces, a heap for long ones, a cache in front. */
#include "runtime/data/tokenizer/bpe.h"
#include "estimator/base/alloc.h"
#include "runtime/data/tokenizer/byte_chars.h"
#include "runtime/data/tokenizer/hash.h"
#include "runtime/data/tokenizer/utf8.h"

#include <stdlib.h>
#include <string.h>

#define NONE            PL_BPE_NO_RANK
#define FREE_PAIR       UINT64_MAX
#define CACHE_ENTRIES   16384u
#define SCANNED_SYMBOLS 48    /* up to here looking at all pairs beats the heap */
#define STRETCH_BYTES   65536 /* a longer piece is cut where no merge can reach */

static uint64_t pair_of(int32_t left, int32_t right) {
    return (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
}

bool pl_bpe_reserve(struct pl_bpe *b, uint32_t n) {
    uint64_t slots = 256;
    while (slots < 2 * (uint64_t)n)
        slots *= 2;
    b->merges = pl_malloc((size_t)slots * sizeof *b->merges);
    b->result = pl_malloc(((size_t)n + 1) * sizeof *b->result);
    if (!b->merges || !b->result) return false;
    for (uint64_t i = 0; i < slots; i++)
        b->merges[i].pair = FREE_PAIR;
    b->n_slots = slots;
    return true;
}

/* The slot of the pair, or the free one where it belongs. */
static struct pl_bpe_merge *slot_of(const struct pl_bpe *b, uint64_t pair) {
    uint64_t at = pl_hash_mix(pair) & (b->n_slots - 1);
    while (b->merges[at].pair != pair && b->merges[at].pair != FREE_PAIR)
        at = (at + 1) & (b->n_slots - 1);
    return &b->merges[at];
}

void pl_bpe_add_merge(struct pl_bpe *b, int32_t left, int32_t right, int32_t result) {
    uint64_t pair = pair_of(left, right);
    *slot_of(b, pair) = (struct pl_bpe_merge){pair, b->n_merges};
    b->result[b->n_merges++] = result;
}

/* A piece that stands for a byte by its number, and so for another text than its own. */
static bool is_fallback(const char *s, size_t n) {
    return n == 6 && memcmp(s, "<0x", 3) == 0;
}

void pl_bpe_find_joins(struct pl_bpe *b) {
    b->cuts = !b->ignore_merges; /* else a piece that is a token as a whole is not made of parts */
    for (uint64_t k = 0; k < b->n_slots; k++) {
        const uint64_t pair = b->merges[k].pair;
        const int32_t left = (int32_t)(pair >> 32), right = (int32_t)(uint32_t)pair;
        size_t n = 0, m = 0;
        if (pair == FREE_PAIR) continue;
        const char *s = pl_vocab_piece(b->vocab, left, &n),
                   *t = pl_vocab_piece(b->vocab, right, &m);
        if (!s || !t || !n || !m) continue; /* no text is made of these */
        const uint32_t bit = 256u * (unsigned char)s[n - 1] + (unsigned char)t[0];
        b->joins[bit / 64] |= UINT64_C(1) << bit % 64;
        if (is_fallback(s, n) || is_fallback(t, m)) b->cuts = false;
    }
}

void pl_bpe_finish(struct pl_bpe *b) {
    free(b->merges);
    free(b->result);
    *b = (struct pl_bpe){0};
}

void pl_bpe_scratch_finish(struct pl_bpe_scratch *s) {
    free(s->cache);
    free(s->symbols);
    free(s->heap);
    *s = (struct pl_bpe_scratch){0};
}

static uint32_t rank_of(const struct pl_bpe *b, int32_t left, int32_t right) {
    const struct pl_bpe_merge *m = slot_of(b, pair_of(left, right));
    return m->pair == FREE_PAIR ? NONE : m->rank;
}

/* --- the symbols a piece begins with ---------------------------------------------------------- */

static void add_symbol(struct pl_bpe_scratch *s, int32_t id, uint32_t n) {
    s->symbols[s->n_symbols++] = (struct pl_bpe_symbol){.id = id, .n = n};
}

struct unknown { /* run of characters without a piece, not yet a symbol */
    bool pending;
    uint32_t n;
};

static void flush_unknown(const struct pl_bpe *b, struct pl_bpe_scratch *s, struct unknown *u) {
    if (u->pending) add_symbol(s, b->unk, u->n);
    u->pending = false;
}

/* A character, `n` bytes of the vocabulary's alphabet from `taken` bytes of text, that has no
 * piece. A pending unknown stays pending after the bytes of a fallback, as in the library whose
 * files these are. */
static void add_unknown(const struct pl_bpe *b, struct pl_bpe_scratch *s, struct unknown *u,
                        const char *c, size_t n, uint32_t taken) {
    bool all = true;
    for (size_t i = 0; i < n; i++)
        all = all && b->fallback[(unsigned char)c[i]] >= 0;
    if (all) {
        for (size_t i = 0; i < n; i++)
            add_symbol(s, b->fallback[(unsigned char)c[i]], i < taken);
        return;
    }
    if (b->unk < 0) return;
    if (u->pending && b->fuse_unk) {
        u->n += taken;
        return;
    }
    flush_unknown(b, s, u);
    *u = (struct unknown){true, taken};
}

static void add_byte_symbols(const struct pl_bpe *b, struct pl_bpe_scratch *s, const char *text,
                             size_t n) {
    struct unknown u = {0};
    char c[4];
    for (size_t i = 0; i < n; i++) {
        int32_t id = b->single[(unsigned char)text[i]];
        if (id >= 0) {
            flush_unknown(b, s, &u);
            add_symbol(s, id, 1);
        } else {
            add_unknown(b, s, &u, c, pl_utf8_put(pl_byte_char((uint8_t)text[i]), c), 1);
        }
    }
    flush_unknown(b, s, &u);
}

static void add_char_symbols(const struct pl_bpe *b, struct pl_bpe_scratch *s, const char *text,
                             size_t n) {
    struct unknown u = {0};
    for (size_t i = 0, length; i < n; i += length) {
        length = pl_utf8_length(text[i]);
        int32_t id = length == 1 ? b->single[(unsigned char)text[i]]
                                 : pl_vocab_find(b->vocab, text + i, length);
        if (id >= 0) {
            flush_unknown(b, s, &u);
            add_symbol(s, id, (uint32_t)length);
        } else {
            add_unknown(b, s, &u, text + i, length, (uint32_t)length);
        }
    }
    flush_unknown(b, s, &u);
}

/* A byte takes at most two symbols: the fallback of a two-byte stand-in. */
static bool make_symbols(const struct pl_bpe *b, struct pl_bpe_scratch *s, const char *text,
                         size_t n) {
    if (2 * n > s->cap_symbols) {
        size_t cap = 2 * n > 4096 ? 3 * n : 4096;
        struct pl_bpe_symbol *symbols = pl_realloc(s->symbols, cap * sizeof *symbols);
        if (!symbols) return false;
        s->symbols = symbols;
        s->cap_symbols = cap;
    }
    s->n_symbols = 0;
    if (b->byte_level)
        add_byte_symbols(b, s, text, n);
    else
        add_char_symbols(b, s, text, n);
    return true;
}

/* --- merging a short piece -------------------------------------------------------------------- */

static void merge_by_scan(const struct pl_bpe *b, struct pl_bpe_scratch *s) {
    struct pl_bpe_symbol *y = s->symbols;
    size_t n = s->n_symbols;
    for (size_t i = 0; i + 1 < n; i++)
        y[i].rank = rank_of(b, y[i].id, y[i + 1].id);
    while (n > 1) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < n; i++)
            if (y[i].rank < y[best].rank) best = i;
        if (y[best].rank == NONE) break;
        y[best].id = b->result[y[best].rank];
        y[best].n += y[best + 1].n;
        memmove(&y[best + 1], &y[best + 2], (n - best - 2) * sizeof *y);
        n--;
        if (best + 1 < n) y[best].rank = rank_of(b, y[best].id, y[best + 1].id);
        if (best) y[best - 1].rank = rank_of(b, y[best - 1].id, y[best].id);
    }
    s->n_symbols = n;
}

/* --- merging a long piece --------------------------------------------------------------------- */

/* Four children a node: half the levels of a binary heap, and the four lie in one cache line. */
#define CHILDREN 4

static void sift_down(uint64_t *heap, size_t n, size_t at) {
    uint64_t v = heap[at];
    for (size_t child; (child = CHILDREN * at + 1) < n;) {
        size_t end = child + CHILDREN < n ? child + CHILDREN : n, least = child;
        while (++child < end)
            if (heap[child] < heap[least]) least = child;
        if (heap[least] >= v) break;
        heap[at] = heap[least];
        at = least;
    }
    heap[at] = v;
}

static void heap_push(struct pl_bpe_scratch *s, uint64_t v) {
    size_t at = s->n_heap++;
    for (; at && s->heap[(at - 1) / CHILDREN] > v; at = (at - 1) / CHILDREN)
        s->heap[at] = s->heap[(at - 1) / CHILDREN];
    s->heap[at] = v;
}

/* Ranks symbol `at` with the one after it. */
static void rank_pair(const struct pl_bpe *b, struct pl_bpe_scratch *s, uint32_t at) {
    struct pl_bpe_symbol *y = &s->symbols[at];
    y->rank = y->next == NONE ? NONE : rank_of(b, y->id, s->symbols[y->next].id);
}

/* A merge takes one entry off the heap and adds at most two, so there are never more than twice as
 * many entries as symbols. */
static bool heap_fill(const struct pl_bpe *b, struct pl_bpe_scratch *s) {
    size_t n = s->n_symbols;
    if (2 * n > s->cap_heap) {
        uint64_t *heap = pl_realloc(s->heap, 3 * n * sizeof *heap);
        if (!heap) return false;
        s->heap = heap;
        s->cap_heap = 3 * n;
    }
    s->n_heap = 0;
    for (uint32_t i = 0; i < n; i++) {
        s->symbols[i].prev = i ? i - 1 : NONE;
        s->symbols[i].next = i + 1 < n ? i + 1 : NONE;
    }
    for (uint32_t i = 0; i < n; i++) {
        rank_pair(b, s, i);
        if (s->symbols[i].rank != NONE)
            s->heap[s->n_heap++] = (uint64_t)s->symbols[i].rank << 32 | i;
    }
    for (size_t i = s->n_heap; i-- > 0;)
        sift_down(s->heap, s->n_heap, i);
    return true;
}

static void merge_at(const struct pl_bpe *b, struct pl_bpe_scratch *s, uint32_t at) {
    struct pl_bpe_symbol *y = &s->symbols[at], *right = &s->symbols[y->next];
    y->id = b->result[y->rank];
    y->n += right->n;
    y->next = right->next;
    right->id = -1;
    right->rank = NONE;
    if (y->next != NONE) s->symbols[y->next].prev = at;
    rank_pair(b, s, at);
    if (y->rank != NONE) heap_push(s, (uint64_t)y->rank << 32 | at);
    if (y->prev == NONE) return;
    rank_pair(b, s, y->prev);
    uint32_t rank = s->symbols[y->prev].rank;
    if (rank != NONE) heap_push(s, (uint64_t)rank << 32 | y->prev);
}

static bool merge_by_heap(const struct pl_bpe *b, struct pl_bpe_scratch *s) {
    if (!heap_fill(b, s)) return false;
    while (s->n_heap) {
        const uint64_t top = s->heap[0];
        s->heap[0] = s->heap[--s->n_heap];
        if (s->n_heap) sift_down(s->heap, s->n_heap, 0);
        /* an entry whose pair has changed since has another rank */
        if (s->symbols[(uint32_t)top].rank == top >> 32) merge_at(b, s, (uint32_t)top);
    }
    size_t kept = 0;
    for (size_t i = 0; i < s->n_symbols; i++)
        if (s->symbols[i].id >= 0) s->symbols[kept++] = s->symbols[i];
    s->n_symbols = kept;
    return true;
}

/* --- a piece ---------------------------------------------------------------------------------- */

static bool find_symbols(const struct pl_bpe *b, struct pl_bpe_scratch *s, const char *text,
                         size_t n) {
    if (!make_symbols(b, s, text, n)) return false;
    if (b->ignore_merges) {
        int32_t id = pl_vocab_find(b->vocab, text, n);
        if (id >= 0) {
            s->n_symbols = 0;
            add_symbol(s, id, (uint32_t)n);
            return true;
        }
    }
    if (s->n_symbols > SCANNED_SYMBOLS) return merge_by_heap(b, s);
    merge_by_scan(b, s);
    return true;
}

static void remember(struct pl_bpe_cached *c, const struct pl_bpe_scratch *s, const char *text,
                     size_t n) {
    if (s->n_symbols > PL_BPE_CACHED_IDS) return;
    c->n_bytes = (uint8_t)n;
    c->n_ids = (uint8_t)s->n_symbols;
    memcpy(c->bytes, text, n);
    for (size_t i = 0; i < s->n_symbols; i++) {
        c->ids[i] = s->symbols[i].id;
        c->lengths[i] = (uint8_t)s->symbols[i].n;
    }
}

static bool add_cached(const struct pl_bpe_cached *c, const struct pl_span *piece,
                       struct pl_token_list *out) {
    if (!pl_token_list_reserve(out, c->n_ids)) return false;
    for (size_t i = 0, at = 0; i < c->n_ids; at += c->lengths[i++])
        pl_token_list_push(out, c->ids[i], pl_span_origin(piece, at));
    return true;
}

/* A token without text of its own, the second half of a stand-in, begins where the last byte is. */
static bool add_found(const struct pl_bpe_scratch *s, const struct pl_span *piece,
                      struct pl_token_list *out) {
    if (!pl_token_list_reserve(out, s->n_symbols)) return false;
    for (size_t i = 0, at = 0; i < s->n_symbols; at += s->symbols[i++].n)
        pl_token_list_push(out, s->symbols[i].id,
                           pl_span_origin(piece, at < piece->n ? at : piece->n - 1));
    return true;
}

/* The character at text[0, n), or the byte, has a piece of its own. */
static bool is_known(const struct pl_bpe *b, const char *text, size_t n) {
    uint32_t c;
    if (b->byte_level || (unsigned char)text[0] < 0x80)
        return b->single[(unsigned char)text[0]] >= 0;
    const size_t length = pl_utf8_next(text, &c);
    return length <= n && pl_vocab_find(b->vocab, text, length) >= 0;
}

/* Symbols before byte `at` and from it on are never part of one token: the first merge across a
 * place joins the bytes on both sides of it. What has no piece may vanish or fuse, and is not where
 * to cut. */
static bool may_cut(const struct pl_bpe *b, const char *text, size_t at, size_t n) {
    const unsigned char left = (unsigned char)text[at - 1], right = (unsigned char)text[at];
    const uint32_t bit = 256u * left + right;
    size_t before = at - 1;
    if (b->joins[bit / 64] >> bit % 64 & 1) return false;
    if (!b->byte_level && (right & 0xC0) == 0x80) return false;
    while (!b->byte_level && before && ((unsigned char)text[before] & 0xC0) == 0x80)
        before--;
    return is_known(b, text + before, n - before) && is_known(b, text + at, n - at);
}

/* The end of the stretch that begins at byte `from`. */
static size_t end_of_stretch(const struct pl_bpe *b, const struct pl_span *piece, size_t from) {
    if (!b->cuts || piece->n - from <= STRETCH_BYTES) return piece->n;
    size_t at = from + STRETCH_BYTES;
    while (at < piece->n && !may_cut(b, piece->s, at, piece->n))
        at++;
    return at;
}

static pl_err encode_stretch(const struct pl_bpe *b, struct pl_bpe_scratch *s,
                             const struct pl_span *piece, struct pl_token_list *out,
                             struct pl_diag *d) {
    bool ok, small = piece->n <= PL_BPE_CACHED_BYTES;
    struct pl_bpe_cached *c = NULL;
    if (small) {
        /* it is a megabyte, which readers that encode nothing do without */
        if (!s->cache) s->cache = pl_calloc(CACHE_ENTRIES, sizeof *s->cache);
        if (!s->cache) return pl_host_oom(d, "a cache of words");
        c = &s->cache[pl_hash_bytes(piece->s, piece->n) & (CACHE_ENTRIES - 1)];
        if (c->n_bytes == piece->n && memcmp(c->bytes, piece->s, piece->n) == 0) {
            if (add_cached(c, piece, out)) return PL_ERR_OK;
            return pl_host_oom(d, "tokens");
        }
    }
    ok = find_symbols(b, s, piece->s, piece->n);
    if (ok && small) remember(c, s, piece->s, piece->n);
    if (ok && add_found(s, piece, out)) return PL_ERR_OK;
    return pl_diag_set(d, PL_ERR_HOST_OOM, "no memory for a word of %zu bytes", piece->n);
}

pl_err pl_bpe_encode(const struct pl_bpe *b, struct pl_bpe_scratch *s, const struct pl_span *piece,
                     struct pl_token_list *out, struct pl_diag *d) {
    pl_err err = PL_ERR_OK;
    size_t from = 0;
    do {
        const size_t to = end_of_stretch(b, piece, from);
        const struct pl_span part = pl_span_slice(piece, from, to);
        err = encode_stretch(b, s, &part, out, d);
        from = to;
    } while (err == PL_ERR_OK && from < piece->n);
    return err;
}
