#include "runtime/exec/watch.h"

#include "estimator/base/checked.h"
#include "estimator/ops/finite.h"

#include <stdio.h>

/* The first of n elements from `at` on, of a view whose rows lie ld apart, that is in a column and
 * not finite; n: there is none. */
static uint64_t find_in_view(const struct pl_view *v, const unsigned char *p, uint64_t at,
                             uint64_t n) {
    const char *type = pl_dtype_file_name(v->dtype);
    const uint64_t size = pl_dtype_bytes(v->dtype);
    uint64_t i = pl_finite_scan(type, p, n);
    while (i < n && (at + i) % v->ld >= v->cols)
        i += 1 + pl_finite_scan(type, p + (i + 1) * size, n - i - 1);
    return i;
}

/* Looks for the first value of an operand that is not finite. Rows of a view lie ld elements apart;
 * what is between them is passed over. */
static pl_err look_at(struct pl_exec *e, const struct pl_operand *o, const struct pl_view *v,
                      bool *found) {
    struct pl_watch *w = e->watch;
    *found = false;
    if (o->id == PL_NONE || !v->rows) return PL_ERR_OK;
    if (!pl_dtype_is_float(v->dtype) && v->dtype != PL_DTYPE_F64) return PL_ERR_OK;
    const uint64_t size = pl_dtype_bytes(v->dtype), most = sizeof w->buffer / size;
    const uint64_t start = (uint64_t)((char *)v->p - (char *)pl_exec_address(e, o->id));
    const uint64_t end = (v->rows - 1) * v->ld + v->cols;
    for (uint64_t at = 0, n; at < end; at += n) {
        n = pl_u64_min(end - at, most);
        PL_TRY(pl_exec_read(e, o->id, start + at * size, w->buffer, n * size));
        const uint64_t i = find_in_view(v, w->buffer, at, n), place = start / size + at + i;
        if (i == n) continue;
        *found = true;
        w->value = pl_finite_name(pl_dtype_file_name(v->dtype), w->buffer + i * size);
        w->tensor = o->id;
        w->row = place / v->ld;
        w->column = place % v->ld;
        return PL_ERR_OK;
    }
    return PL_ERR_OK;
}

static bool writes(const struct pl_op *op, uint32_t tensor) {
    for (int k = 0; k < op->n_out; k++) {
        if (op->out[k].id == tensor) return true;
    }
    return false;
}

static pl_err look_at_op(struct pl_exec *e, uint32_t i) {
    const struct pl_op *op = &e->plan->program->ops[i];
    const struct pl_call *c = &e->calls[i];
    struct pl_watch *w = e->watch;
    bool read = false;
    for (int k = 0; k < op->n_out && !w->found; k++)
        PL_TRY(look_at(e, &op->out[k], &c->out[k], &w->found));
    if (!w->found) return PL_ERR_OK;
    w->op = i;
    for (int k = 0; k < op->n_in && !read; k++) {
        if (!writes(op, op->in[k].id)) PL_TRY(look_at(e, &op->in[k], &c->in[k], &read));
    }
    w->written = !read;
    return PL_ERR_OK;
}

pl_err pl_watch_ops(struct pl_exec *e, uint32_t first, uint32_t n) {
    for (uint32_t i = first; i < first + n && !e->watch->found; i++)
        PL_TRY(look_at_op(e, i));
    return PL_ERR_OK;
}

void pl_watch_text(const struct pl_program *p, const struct pl_watch *w, char buf[256]) {
    const struct pl_op *op = &p->ops[w->op];
    char name[96], layer[32] = "";
    pl_tensor_name(p, w->tensor, name);
    if (op->layer != PL_NONE) snprintf(layer, sizeof layer, "layer %u, ", op->layer);
    snprintf(buf, 256, "%s[%llu, %llu] is %s, %s by op %u (%s, %s%s)", name,
             (unsigned long long)w->row, (unsigned long long)w->column, w->value,
             w->written ? "written" : "read", w->op - p->phases[op->phase].first_op,
             pl_op_name(op->kind), layer, op->backward ? "backward" : "forward");
}
