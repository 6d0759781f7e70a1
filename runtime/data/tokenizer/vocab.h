/* vocab.h - pieces of text and their ids, both ways.
 *
 * In: pieces, each with its id.  Out: id of a piece, piece of an id.  Needs: base.
 *   V1  all pieces lie in one block, each followed by a NUL that is not part of it
 *   V2  an id has one piece and a piece one id; the caller asks before it adds
 *   V3  ids may have gaps; `size` is one more than the largest
 * Use: struct pl_vocab v = {0}; pl_vocab_put(&v, 7, "the", 3); pl_vocab_find(&v, "the", 3) == 7 */
#ifndef PL_RUNTIME_DATA_TOKENIZER_VOCAB_H
#define PL_RUNTIME_DATA_TOKENIZER_VOCAB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PL_VOCAB_MOST_IDS   (1u << 21) /* eight times the largest known vocabulary */
#define PL_VOCAB_MOST_BYTES 65535u /* of one piece */
#define PL_VOCAB_NO_PIECE   UINT32_MAX

struct pl_vocab_place {
    uint32_t offset, n; /* offset: PL_VOCAB_NO_PIECE for a gap */
};

struct pl_vocab_slot {
    uint32_t hash;
    int32_t id; /* -1: free */
};

struct pl_vocab {
    char *block;
    size_t n_block, cap_block;
    struct pl_vocab_place *places; /* [size], by id */
    uint32_t size, cap_places;
    struct pl_vocab_slot *slots; /* [n_slots], a power of two, at most half full */
    uint32_t n_slots, n_pieces;
};

/* id < PL_VOCAB_MOST_IDS without a piece, n <= PL_VOCAB_MOST_BYTES, a piece that has no id yet.
 * False: out of memory. */
bool pl_vocab_put(struct pl_vocab *v, uint32_t id, const char *s, size_t n);
/* -1: no such piece. */
int32_t pl_vocab_find(const struct pl_vocab *v, const char *s, size_t n);
/* NULL: no such id. `n` may be NULL. */
const char *pl_vocab_piece(const struct pl_vocab *v, int64_t id, size_t *n);
void pl_vocab_finish(struct pl_vocab *v);

#endif
