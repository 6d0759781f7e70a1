/* watch_calls.c - the CUDA back-end, each of whose kernels is preceded by a word to sim_watch.c
 * about its operands. The real back-end is compiled under another name for it. */
#include "runtime/kernels/cuda/table.h"

#include "runtime/device/cuda/cuda.h"
#include "runtime/kernels/back_ends.h"
#include "tests/cuda_sim/plsim_watch.h"
#include "tests/cuda_sim/sim.h"

#include <stdlib.h>

extern const struct pl_back_end plsim_plain_back_end;

static struct plsim_window window_of(const struct pl_view *v, const struct pl_operand_row *row,
                                     bool is_output) {
    const uint64_t size = pl_dtype_bytes(v->dtype);
    return (struct plsim_window){.name = row->name,
                                 .p = v->p,
                                 .rows = v->rows,
                                 .row_bytes = v->cols * size,
                                 .stride_bytes = v->ld * size,
                                 .is_written = is_output || row->use == PL_USE_SCRATCH};
}

static struct plsim_window facts_window(const struct pl_facts *facts) {
    return (struct plsim_window){.name = "facts",
                                 .p = (const char *)facts,
                                 .rows = 1,
                                 .row_bytes = sizeof *facts,
                                 .stride_bytes = sizeof *facts};
}

/* Windows of the operands that are there; returns how many. */
static int add_windows(const struct pl_view *views, const struct pl_operand_row *rows, int n,
                       bool are_outputs, struct plsim_window *windows) {
    int count = 0;
    for (int i = 0; i < n; i++)
        if (views[i].p) windows[count++] = window_of(&views[i], &rows[i], are_outputs);
    return count;
}

/* Says what n calls of one kind may touch. The windows live until the next calls are told of. */
static void tell(const struct pl_call *calls, uint32_t n, enum pl_op_kind kind) {
    enum { EACH = PL_OP_MAX_IN + PL_OP_MAX_OUT + 1 };
    static struct plsim_window *windows;
    const struct pl_op_row *row = &pl_op_rows[kind];
    int count = 0;
    free(windows);
    windows = calloc(n, EACH * sizeof *windows);
    if (!windows) plsim_die("no memory for the windows of %u calls", n);
    for (uint32_t i = 0; i < n; i++) {
        count += add_windows(calls[i].out, row->out, row->n_out, true, windows + count);
        count += add_windows(calls[i].in, row->in, row->n_in, false, windows + count);
        if (calls[i].batch && calls[i].batch->facts)
            windows[count++] = facts_window(calls[i].batch->facts);
    }
    plsim_watch_call(windows, count);
}

static pl_err call(struct pl_device *dev, const struct pl_call *c, enum pl_op_kind kind) {
    tell(c, 1, kind);
    pl_err err = plsim_plain_back_end.kernels->tables[0][kind](dev, c);
    plsim_watch_call(NULL, 0);
    return err;
}

static pl_err call_group(struct pl_device *dev, const struct pl_call *calls, uint32_t n,
                         enum pl_op_kind kind) {
    tell(calls, n, kind);
    pl_err err = plsim_plain_back_end.kernels->groups[kind](dev, calls, n);
    plsim_watch_call(NULL, 0);
    return err;
}

#define PL_OP(KIND, name, COST, RUNS, what, INPUTS, OUTPUTS)                                       \
    PL_WITH_KERNEL_##RUNS(static pl_err call_##name(                                               \
        struct pl_device *dev, const struct pl_call *c) { return call(dev, c, PL_OP_##KIND); })    \
        PL_WITH_GROUP_##RUNS(static pl_err call_##name##_group(                                    \
            struct pl_device *dev, const struct pl_call *calls, uint32_t n) {                      \
            return call_group(dev, calls, n, PL_OP_##KIND);                                        \
        })
#include "estimator/ops/op_rows.h"

static const pl_kernel_fn kernels[PL_OP_COUNT] = {
#define PL_OP(KIND, name, COST, RUNS, what, INPUTS, OUTPUTS)                                       \
    PL_WITH_KERNEL_##RUNS([PL_OP_##KIND] = call_##name, )
#include "estimator/ops/op_rows.h"
};

static const pl_group_fn groups[PL_OP_COUNT] = {
#define PL_OP(KIND, name, COST, RUNS, what, INPUTS, OUTPUTS)                                       \
    PL_WITH_GROUP_##RUNS([PL_OP_##KIND] = call_##name##_group, )
#include "estimator/ops/op_rows.h"
};

static pl_err open_kernels(struct pl_device *dev, struct pl_diag *d) {
    return plsim_plain_back_end.kernels->open(dev, d);
}

static void close_kernels(struct pl_device *dev) {
    plsim_plain_back_end.kernels->close(dev);
}

static const pl_kernel_fn *const tables[] = {kernels};
static const struct pl_kernel_set set = {
    .tables = tables, .groups = groups, .open = open_kernels, .close = close_kernels};

const struct pl_back_end pl_back_end_cuda = {.ops = &pl_device_cuda, .kernels = &set};
