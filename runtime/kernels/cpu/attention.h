/* attention.h - the tiles that both directions of attention are made of.
 *
 * A tile is PL_ATTENTION_QUERIES queries by PL_ATTENTION_KEYS keys of one head, in fp32 scratch.
 * Scores are held transposed, [key][query]: then the maximum and the sum over keys run down
 * columns, a whole vector of queries at a time, and no horizontal reduction is needed. Columns of a
 * packed head are padded with zeros to a multiple of PL_ATTENTION_PAD, queries to whole vectors, so
 * that products have no column tail.
 * Scores, and do v^T, are products of numbers as they are stored: where these are bf16 and the
 * level multiplies pairs of them, k goes by in pairs (tile.h). The other products have an fp32
 * operand.
 *   T1  an element of a product is one chain of additions in the order of k; its bits do not depend
 *       on which tile, task or instruction-level grouping of rows computes it
 *   T2  only valid elements of a result are meaningful: padded columns and queries hold finite
 *       values that nothing reads
 * Needs: gemm_pack.h (rows as fp32, turned or not), tile.h. */
#ifndef PL_RUNTIME_KERNELS_CPU_ATTENTION_H
#define PL_RUNTIME_KERNELS_CPU_ATTENTION_H

#include "estimator/base/checked.h"
#include "estimator/ops/scratch/workspace_attention.h"
#include "runtime/kernels/cpu/gemm_pack.h"
#include "runtime/kernels/cpu/simd.h"
#include "runtime/kernels/cpu/vec.h"

#include <stddef.h>

/* The part of a product that a causal tile leaves out. `diag` is the query that sits on the
 * diagonal of key 0 of the tile: key j is seen by queries i >= j + diag. */
enum pl_triangle {
    PL_TRIANGLE_NONE,
    PL_TRIANGLE_KEYS_BY_QUERIES, /* rows are keys, columns queries: columns before the diagonal */
    PL_TRIANGLE_SUM_QUERIES,     /* rows are keys, the sum runs over queries: starts late */
    PL_TRIANGLE_SUM_KEYS         /* rows are queries, the sum runs over keys: ends early */
};

/* C[m,n] (=|+=) alpha A B. Element (r,k) of A is a[r*rs + k*ks]; B[K,n] and C[m,n] are row-major
 * with ldb and ldc; n is whole vectors. Elements that the triangle leaves out of C keep what they
 * held (KEYS_BY_QUERIES). */
struct pl_tile_product {
    uint32_t m, n, k;
    const float *a, *b;
    float *c;
    size_t rs, ks, ldb, ldc;
    float alpha;
    bool add;
    bool pairs; /* elements of A and B are pairs, and k counts them; no triangle of sums */
    enum pl_triangle triangle;
    int64_t diag;
};
void PL_LEVEL_NAME(pl_tile_multiply)(const struct pl_tile_product *p);

/* A head of consecutive rows: rows [row, row+n) of columns [col, col+D) of a view. */
struct pl_head_rows {
    const struct pl_view *view;
    uint64_t row, col;
    uint32_t n, dim;
};
/* dst[n][ld]: the rows as fp32, columns past dim zero. ld = D padded. */
void PL_LEVEL_NAME(pl_tile_pack)(const struct pl_head_rows *h, uint32_t ld, float *dst);
/* dst[dim][ld]: the rows as columns in fp32, columns past n zero. ld = pl_tile_columns(n).
 * pairs: dst[dim/2][ld]. */
void PL_LEVEL_NAME(pl_tile_turn)(const struct pl_head_rows *h, uint32_t ld, bool pairs, float *dst);
/* True if heads of the view can be read as pairs where they lie. */
static inline bool pl_heads_are_paired(const struct pl_view *v, uint32_t dim) {
    return PL_HAS_PAIRS && v->dtype == PL_DTYPE_BF16 && dim % 2 == 0 && pl_view_is_paired(v);
}
/* Columns of a tile that hold n queries: whole vectors. */
static inline uint32_t pl_tile_columns(uint32_t n) {
    return (uint32_t)pl_u64_round_up(n, PL_LANES);
}

/* The queries [first, end) of a tile starting at q0 that see a key: itself and later ones, up to
 * the window (0 = no limit). */
struct pl_seen {
    uint32_t first, end;
};
static inline struct pl_seen pl_tile_seen(uint64_t q0, uint64_t key, uint64_t window) {
    struct pl_seen s = {0, PL_ATTENTION_QUERIES};
    if (key > q0) s.first = (uint32_t)pl_u64_min(key - q0, PL_ATTENTION_QUERIES);
    if (window) s.end = (uint32_t)pl_u64_min(key + window - pl_u64_min(q0, key + window), s.end);
    return s;
}

/* The first query, in a tile that starts at q0, of the first vector that holds a query which sees
 * the key. */
static inline uint32_t pl_tile_seen_vector(uint64_t q0, uint64_t key) {
    return key > q0 ? (uint32_t)pl_u64_min(key - q0, PL_ATTENTION_QUERIES) / PL_LANES * PL_LANES
                    : 0;
}

/* First and last+1 key block that the queries [q0, q0+n) look at. */
static inline uint64_t pl_first_key_block(uint64_t q0, uint64_t window) {
    return window && q0 + 1 > window ? (q0 + 1 - window) / PL_ATTENTION_KEYS : 0;
}
static inline uint64_t pl_end_key_block(uint64_t q0, uint64_t n) {
    return (q0 + n + PL_ATTENTION_KEYS - 1) / PL_ATTENTION_KEYS;
}

/* A tile of at most PL_ATTENTION_QUERIES queries of one head of keys, and the keys it sees: what
 * ATTENTION and ATTENTION_CACHED are made of. The queries are rows q_row, q_row + 1, ... at the
 * positions q0, q0 + 1, ..., or, when `level`, heads head, head + 1, ..., all at position q0. */
struct pl_attention_walk {
    struct pl_view q, k, v, o, lse; /* lse absent: not wanted */
    struct pl_view sinks;           /* [H]; absent: none */
    const struct pl_attr *attr;
    float *scratch;               /* of the worker: PL_ATTENTION_FWD_PARTS */
    uint64_t q_row, q_col;        /* of the first query, in q and o */
    uint64_t kv_row, kv_col;      /* of the key at position 0, in k and v */
    uint64_t q0, end;             /* keys [0, end) are there */
    uint32_t n_queries, head, ld; /* head of the first query; ld: head size, padded */
    bool level;
};
void PL_LEVEL_NAME(pl_attention_walk)(const struct pl_attention_walk *w);

/* 2^x for x <= 0, exactly 0 below -126.5 and for -infinity, NaN for NaN. The polynomial of degree 6
 * interpolates 2^r at the Chebyshev nodes of [-1/2, 1/2]: relative error 3e-9 before rounding. */
static inline float pl_exp2_nonpositive(float x) {
    float clamped = x < -127.0f ? -127.0f : x;
    float n = __builtin_rintf(clamped), r = clamped - n;
    float p = 1.54614447e-4f;
    p = p * r + 1.34004282e-3f;
    p = p * r + 9.61805668e-3f;
    p = p * r + 5.55032723e-2f;
    p = p * r + 2.40226509e-1f;
    p = p * r + 6.93147207e-1f;
    p = p * r + 1.0f;
    return p * pl_f32_from_bits((uint32_t)((int32_t)n + 127) << 23);
}

/* Start and length of a sequence of the batch. */
static inline uint64_t pl_sequence(const struct pl_view *offsets, uint64_t s, uint64_t *length) {
    const int32_t *o = offsets->p;
    *length = (uint64_t)(o[s + 1] - o[s]);
    return (uint64_t)o[s];
}
static inline uint64_t pl_longest_sequence(const struct pl_view *offsets, uint64_t n_seqs) {
    uint64_t longest = 0, length;
    for (uint64_t s = 0; s < n_seqs; s++) {
        pl_sequence(offsets, s, &length);
        longest = longest > length ? longest : length;
    }
    return longest;
}

#endif
