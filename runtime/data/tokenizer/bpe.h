/* bpe.h - byte-pair encoding: a piece of text to ids by a ranked list of merges.
 *
 * In: vocabulary, merges, one piece at a time.  Out: tokens.  Needs: vocab.h, span.h.
 *   E1  the merge of the lowest rank is done first, of equal ones the leftmost, until none is left
 *       (Sennrich et al., Neural Machine Translation of Rare Words with Subword Units, 2016)
 *   E2  n log n in the length of the piece; short pieces that were seen before cost a look-up
 *   E3  in byte-level mode the keys of `vocab` are bytes and a symbol is a byte; else both are
 *       UTF-8 and a symbol is a character
 * Use: pl_bpe_encode(&bpe, &scratch, &piece, &list, d) */
#ifndef PL_RUNTIME_DATA_TOKENIZER_BPE_H
#define PL_RUNTIME_DATA_TOKENIZER_BPE_H

#include "estimator/base/diag.h"
#include "runtime/data/tokenizer/span.h"
#include "runtime/data/tokenizer/token_list.h"
#include "runtime/data/tokenizer/vocab.h"

#define PL_BPE_NO_RANK     UINT32_MAX
#define PL_BPE_MOST_MERGES (1u << 21) /* three times the longest known list */

struct pl_bpe_merge {
    uint64_t pair; /* left id << 32 | right id; UINT64_MAX: free */
    uint32_t rank;
};

struct pl_bpe {
    const struct pl_vocab *vocab;
    bool byte_level, ignore_merges, fuse_unk;
    int32_t unk;                 /* -1: characters without a piece leave nothing */
    int32_t single[256];         /* piece of a byte (byte level) or of an ASCII character; -1 */
    int32_t fallback[256];       /* "<0x00>"...; all -1 without byte_fallback */
    struct pl_bpe_merge *merges; /* [n_slots], a power of two, at most half full */
    int32_t *result;             /* [n_merges], by rank */
    uint64_t n_slots;
    uint32_t n_merges;
    bool cuts; /* joins was made: long pieces are encoded a stretch at a time */
    uint64_t
        joins[1024]; /* bit 256 * a + b: a merge joins what ends with a to what begins with b */
};

/* Room for n merges. False: out of memory. */
bool pl_bpe_reserve(struct pl_bpe *b, uint32_t n);
/* left + right -> result, ranked after those added before. A pair that was there takes the new
 * rank. */
void pl_bpe_add_merge(struct pl_bpe *b, int32_t left, int32_t right, int32_t result);
/* To be called after the last merge, with the vocabulary that pieces are made of. */
void pl_bpe_find_joins(struct pl_bpe *b);
void pl_bpe_finish(struct pl_bpe *b); /* the vocabulary is not its own */

#define PL_BPE_CACHED_BYTES 22
#define PL_BPE_CACHED_IDS   8

struct pl_bpe_cached { /* one cache line */
    uint8_t n_bytes, n_ids;
    char bytes[PL_BPE_CACHED_BYTES];
    uint8_t lengths[PL_BPE_CACHED_IDS]; /* bytes of each token */
    int32_t ids[PL_BPE_CACHED_IDS];
};

struct pl_bpe_symbol {
    int32_t id;
    uint32_t n;          /* bytes of text */
    uint32_t rank;       /* of the merge with `next` */
    uint32_t prev, next; /* PL_BPE_NO_RANK: none */
};

struct pl_bpe_scratch {
    struct pl_bpe_cached *cache;
    struct pl_bpe_symbol *symbols;
    size_t n_symbols, cap_symbols;
    uint64_t *heap; /* rank << 32 | symbol */
    size_t n_heap, cap_heap;
};
void pl_bpe_scratch_finish(struct pl_bpe_scratch *s);

/* Adds the tokens of `piece` (n > 0, below 2^31) to *out. PL_ERR_HOST_OOM. */
pl_err pl_bpe_encode(const struct pl_bpe *b, struct pl_bpe_scratch *s, const struct pl_span *piece,
                     struct pl_token_list *out, struct pl_diag *d);

#endif
