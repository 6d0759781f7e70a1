/* carquet_stub.c - a library with the functions of carquet: of another version (STUB_MINOR), or one
 * that crashes when a file is opened. */
#include "runtime/data/parquet/carquet.h"

#include <signal.h>
#include <stddef.h>

static void crash(void) {
    signal(SIGSEGV, SIG_DFL); /* a sanitizer's handler would report what is meant */
    raise(SIGSEGV);
}

void carquet_version_components(int *major, int *minor, int *patch);
void carquet_version_components(int *major, int *minor, int *patch) {
    *major = *patch = 0;
    *minor = STUB_MINOR;
}

#define X(result, name, arguments)                                                                 \
    void carquet_##name(void);                                                                     \
    void carquet_##name(void) {                                                                    \
        crash();                                                                                   \
    }
PL_CARQUET_READERS(X)
#undef X
