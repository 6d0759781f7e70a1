/* amx_emulated.h - the instructions of AMX-BF16 in memory, as amx.h spells them, for a processor
 * that has none.
 *
 * They do what the Intel SDM's pseudo-code of LDTILECFG, TILERELEASE, TILEZERO, TILELOADD,
 * TDPBF16PS and TILESTORED says. A thread that uses a tile it has not set up ends the test, as it
 * would end with a fault on a processor. */
#ifndef PL_TESTS_KERNELS_AMX_EMULATED_H
#define PL_TESTS_KERNELS_AMX_EMULATED_H

#include <stddef.h>

void amx_configure(const void *config);
void amx_release(void);
void amx_zero(int tile);
void amx_load(int tile, const void *from, size_t bytes);
void amx_add(int sum, int x, int y);
void amx_store(int tile, void *to, size_t bytes);

#define PL_AMX_EMULATED
#define PL_AMX_CONFIGURE(config)            amx_configure(config)
#define PL_AMX_END()                        amx_release()
#define PL_AMX_ZERO(tile)                   amx_zero(tile)
#define PL_AMX_LOAD(tile, from, bytes)      amx_load(tile, from, bytes)
#define PL_AMX_LOAD_ONCE(tile, from, bytes) amx_load(tile, from, bytes)
#define PL_AMX_ADD(sum, x, y)               amx_add(sum, x, y)
#define PL_AMX_STORE(tile, to, bytes)       amx_store(tile, to, bytes)

#endif
