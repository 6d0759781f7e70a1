/* chunk.h - rows of any float dtype as short runs of fp32 on the stack.
 *
 * Kernels that pass over a row element by element work on chunks of PL_CHUNK: an fp32 chunk is used
 * where it lies, a narrow one is widened into a buffer, so one loop serves every mix of dtypes.
 * Use: for (c = 0; c < cols; c += n) { n = pl_chunk_size(cols, c);
 *          x = pl_chunk(&xv, i, c, n, bx); y = pl_chunk_out(&yv, i, c, by); loop;
 *          pl_chunk_store(&yv, i, c, n, y); } */
#ifndef PL_RUNTIME_KERNELS_CPU_CHUNK_H
#define PL_RUNTIME_KERNELS_CPU_CHUNK_H

#include "runtime/kernels/cpu/simd.h"

#define PL_CHUNK PL_SUM_BLOCK

static inline uint64_t pl_chunk_size(uint64_t cols, uint64_t col) {
    return cols - col < PL_CHUNK ? cols - col : PL_CHUNK;
}

/* Elements [col, col+n) of a row to read; buf[PL_CHUNK] is used unless they are fp32. */
static inline const float *pl_chunk(const struct pl_view *v, uint64_t row, uint64_t col, uint64_t n,
                                    float *buf) {
    if (v->dtype == PL_DTYPE_F32) return pl_at(v, row, col);
    pl_widen(buf, pl_at(v, row, col), v->dtype, n);
    return buf;
}

/* Elements [col, col+n) of a vector: one element per row of the view. */
static inline const float *pl_chunk_of_vector(const struct pl_view *v, uint64_t col, uint64_t n,
                                              float *buf) {
    return pl_chunk(v, col, 0, n, buf);
}

/* The place to write a chunk that pl_chunk_store() will finish. */
static inline float *pl_chunk_out(const struct pl_view *v, uint64_t row, uint64_t col, float *buf) {
    return v->dtype == PL_DTYPE_F32 ? pl_at(v, row, col) : buf;
}

static inline void pl_chunk_store(const struct pl_view *v, uint64_t row, uint64_t col, uint64_t n,
                                  const float *chunk) {
    if (v->dtype != PL_DTYPE_F32) pl_narrow(pl_at(v, row, col), v->dtype, chunk, n);
}

#endif
