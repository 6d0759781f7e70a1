/* counters.h - counts of the emulated GPU, from the file that PLSIM_REPORT names. */
#ifndef PL_TESTS_CUDA_SIM_COUNTERS_H
#define PL_TESTS_CUDA_SIM_COUNTERS_H

#include <check.h>
#include <stdio.h>
#include <string.h>

/* Returns the counter of a report, which must have it. */
static inline long plsim_counter(const char *report, const char *name) {
    char line[128], found[64];
    long value = -1, v;
    FILE *f = fopen(report, "r");
    ck_assert_ptr_nonnull(f);
    while (fgets(line, sizeof line, f))
        if (sscanf(line, "%63s %ld", found, &v) == 2 && strcmp(found, name) == 0) value = v;
    fclose(f);
    ck_assert_int_ge(value, 0);
    return value;
}

#endif
