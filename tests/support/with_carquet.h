/* with_carquet.h - tests that decode Parquet files are skipped where the library for it is not
 * there. */
#ifndef PL_TESTS_SUPPORT_WITH_CARQUET_H
#define PL_TESTS_SUPPORT_WITH_CARQUET_H

#include "runtime/data/parquet/carquet.h"

#include <stdio.h>

/* Prints what is missing unless the library is there, as the program looks for it. */
static inline bool carquet_is_there(void) {
    struct pl_carquet c;
    struct pl_diag d = {0};
    const bool there = pl_carquet_load(&c, "", &d) == PL_ERR_OK;
    if (!there) printf("skipped: needs carquet (pip install 'carquet==0.7.*'): %s\n", d.message);
    pl_carquet_unload(&c);
    return there;
}

#endif
