#include "runtime/device/cuda/gpu_query.h"

#include "runtime/device/child_ask.h"

#include <limits.h>

struct question {
    const struct pl_device_ops *ops;
    uint32_t ordinal;
};

struct answer {
    pl_err err;
    struct pl_gpu gpu;
};
_Static_assert(sizeof(struct answer) <= PIPE_BUF, "an answer is written at once");

static void describe(const void *work, void *answer) {
    const struct question *q = work;
    struct answer *a = answer;
    a->err = q->ops->describe(q->ordinal, &a->gpu, NULL);
}

/* False: there is no GPU of this ordinal, or nothing that could be asked. */
static bool ask_child(const struct pl_device_ops *ops, uint32_t ordinal, struct pl_gpu *out) {
    const struct question q = {ops, ordinal};
    struct answer a = {0};
    if (pl_child_ask(describe, &q, &a, sizeof a, NULL) != PL_CHILD_ANSWERED || a.err != PL_ERR_OK)
        return false;
    *out = a.gpu;
    return true;
}

pl_err pl_gpu_query(const struct pl_device_ops *ops, uint32_t ordinal, struct pl_gpu *out,
                    struct pl_diag *d) {
    struct pl_diag by_nvml = {0};
    pl_err err = pl_nvml_query(ordinal, out, &by_nvml);
    if (err == PL_ERR_OK) return err;
    if (ops->describe && !pl_nvml_is_there() && ask_child(ops, ordinal, out)) return PL_ERR_OK;
    return pl_diag_set(d, err, "%s", by_nvml.message);
}
