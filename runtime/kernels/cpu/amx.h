/* amx.h - the instructions of AMX-BF16 that products are written against (level x86-64-v4+amx).
 *
 * A thread has eight tiles of up to 16 rows of 64 bytes. PL_AMX_BEGIN(rows) sets them up, with so
 * many rows of sums and of x (0 to 5) and 16 of y (6 and 7), and PL_AMX_END() gives them back;
 * between them
 *   PL_AMX_ZERO(tile)               sets a tile to zeros
 *   PL_AMX_LOAD(tile, from, bytes)  loads its rows of 64 bytes, which are so many bytes apart
 *   PL_AMX_LOAD_ONCE                does the same for what is not read again soon
 *   PL_AMX_ADD(sum, x, y)           adds to rows of 16 sums in fp32: x has 16 pairs of bf16 in each
 *                                   row, y a row for each of these pairs with those of 16 columns
 *   PL_AMX_STORE(tile, to, bytes)   stores a tile as PL_AMX_LOAD reads it
 * The number of a tile is a literal. Tests compile the same source with
 * tests/kernels/amx_emulated.h, which has these macros for a processor without the instructions. */
#ifndef PL_RUNTIME_KERNELS_CPU_AMX_H
#define PL_RUNTIME_KERNELS_CPU_AMX_H

#include <stdint.h>

enum { PL_AMX_SIDE = 16, PL_AMX_BYTES = 64, PL_AMX_TILES = 8 }; /* rows, bytes of a row; tiles */

/* The operand of LDTILECFG (Intel SDM, volume 1, chapter 18). */
struct pl_amx_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};
_Static_assert(sizeof(struct pl_amx_config) == 64, "as the processor reads it");

static inline struct pl_amx_config pl_amx_shape(uint32_t rows) {
    struct pl_amx_config c = {.palette = 1};
    for (int i = 0; i < PL_AMX_TILES; i++) {
        c.row_bytes[i] = PL_AMX_BYTES;
        c.rows[i] = (uint8_t)(i < 6 ? rows : PL_AMX_SIDE);
    }
    return c;
}

#if !defined(PL_AMX_EMULATED)
#include <immintrin.h>

/* GCC 12 does not know that these instructions read and write memory. */
#define PL_AMX_MEMORY() __asm__ volatile("" ::: "memory")

#define PL_AMX_CONFIGURE(config)                                                                   \
    do {                                                                                           \
        PL_AMX_MEMORY();                                                                           \
        _tile_loadconfig(config);                                                                  \
    } while (0)
#define PL_AMX_END()          _tile_release()
#define PL_AMX_ZERO(tile)     _tile_zero(tile)
#define PL_AMX_ADD(sum, x, y) _tile_dpbf16ps(sum, x, y)
#define PL_AMX_LOAD(tile, from, bytes)                                                             \
    do {                                                                                           \
        PL_AMX_MEMORY();                                                                           \
        _tile_loadd(tile, from, bytes);                                                            \
    } while (0)
#define PL_AMX_LOAD_ONCE(tile, from, bytes)                                                        \
    do {                                                                                           \
        PL_AMX_MEMORY();                                                                           \
        _tile_stream_loadd(tile, from, bytes);                                                     \
    } while (0)
#define PL_AMX_STORE(tile, to, bytes)                                                              \
    do {                                                                                           \
        _tile_stored(tile, to, bytes);                                                             \
        PL_AMX_MEMORY();                                                                           \
    } while (0)
#endif

#define PL_AMX_BEGIN(n)                                                                            \
    do {                                                                                           \
        const struct pl_amx_config amx_shape = pl_amx_shape(n);                                    \
        PL_AMX_CONFIGURE(&amx_shape);                                                              \
    } while (0)

#endif
