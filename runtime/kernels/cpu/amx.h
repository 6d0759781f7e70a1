/* amx.h - the instructions of AMX-BF16 that products are written against (level x86-64-v4+amx).
 *
 * A thread has eight tiles of 16 rows of 64 bytes. PL_AMX_BEGIN() sets them up and PL_AMX_END()
 * gives them back; between them
 *   PL_AMX_ZERO(tile)               sets a tile to zeros
 *   PL_AMX_LOAD(tile, from, bytes)  loads 16 rows of 64 bytes that are so many bytes apart
 *   PL_AMX_ADD(sum, x, y)           adds to 16 x 16 sums in fp32: x has 16 pairs of bf16 in each
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

/* All tiles are whole. */
static const struct pl_amx_config pl_amx_whole = {.palette = 1,
                                                  .row_bytes = {64, 64, 64, 64, 64, 64, 64, 64},
                                                  .rows = {16, 16, 16, 16, 16, 16, 16, 16}};

#if !defined(PL_AMX_EMULATED)
#include <immintrin.h>

/* GCC 12 does not know that these instructions read and write memory. */
#define PL_AMX_MEMORY() __asm__ volatile("" ::: "memory")

#define PL_AMX_BEGIN()                                                                             \
    do {                                                                                           \
        PL_AMX_MEMORY();                                                                           \
        _tile_loadconfig(&pl_amx_whole);                                                           \
    } while (0)
#define PL_AMX_END()          _tile_release()
#define PL_AMX_ZERO(tile)     _tile_zero(tile)
#define PL_AMX_ADD(sum, x, y) _tile_dpbf16ps(sum, x, y)
#define PL_AMX_LOAD(tile, from, bytes)                                                             \
    do {                                                                                           \
        PL_AMX_MEMORY();                                                                           \
        _tile_loadd(tile, from, bytes);                                                            \
    } while (0)
#define PL_AMX_STORE(tile, to, bytes)                                                              \
    do {                                                                                           \
        _tile_stored(tile, to, bytes);                                                             \
        PL_AMX_MEMORY();                                                                           \
    } while (0)
#endif

#endif
