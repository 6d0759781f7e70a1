#include "runtime/train/measures_told.h"

#include <math.h>
#include <stdio.h>

uint32_t pl_run_list_measures(const struct pl_measures *m,
                              struct pl_named_value out[PL_STEP_MORE]) {
    uint32_t n = 0;
    _Static_assert(PL_MEASURE_COUNT <= PL_STEP_MORE, "a step has room for all measures");
    for (int i = PL_MEASURE_LOSS + 1; i < PL_MEASURE_COUNT; i++)
        if (!isnan(m->of[i]))
            out[n++] = (struct pl_named_value){pl_measure_name((enum pl_measure)i), m->of[i]};
    return n;
}

pl_err pl_run_board_more(struct pl_run *r, const char *group, uint64_t step,
                         const struct pl_named_value *values, uint32_t n, struct pl_diag *d) {
    char tag[64];
    for (uint32_t i = 0; r->board && i < n; i++) {
        snprintf(tag, sizeof tag, "%s/%s", group, values[i].name);
        PL_TRY(pl_tensorboard_scalar(r->board, tag, step, values[i].value, d));
    }
    return PL_ERR_OK;
}
