/* watch.c - a float is not finite if all bits of its exponent are set. */
#include "runtime/exec/watch.h"

#include "estimator/base/checked.h"

#include <stdio.h>
#include <string.h>

static const struct {
    uint64_t exponent, fraction;
} formats[PL_DTYPE_COUNT] = {
    [PL_DTYPE_F32] = {0x7f800000, 0x7fffff},
    [PL_DTYPE_BF16] = {0x7f80, 0x7f},
    [PL_DTYPE_F16] = {0x7c00, 0x3ff},
    [PL_DTYPE_F64] = {UINT64_C(0x7ff0000000000000), UINT64_C(0xfffffffffffff)},
};

/* Returns NULL for a finite number. */
static const char *name_value(enum pl_dtype t, const unsigned char *at) {
    const uint64_t size = pl_dtype_bytes(t);
    uint64_t bits = 0;
    memcpy(&bits, at, size);
    if ((bits & formats[t].exponent) != formats[t].exponent) return NULL;
    if (bits & formats[t].fraction) return "nan";
    return bits >> (8 * size - 1) ? "-inf" : "inf";
}

/* Looks for the first value of an operand that is not finite. Rows of a view lie ld elements apart;
 * what is between them is passed over. */
static pl_err look_at(struct pl_exec *e, const struct pl_operand *o, const struct pl_view *v,
                      bool *found) {
    struct pl_watch *w = e->watch;
    *found = false;
    if (o->id == PL_NONE || !v->rows || !formats[v->dtype].exponent) return PL_ERR_OK;
    const uint64_t size = pl_dtype_bytes(v->dtype), most = sizeof w->buffer / size;
    const uint64_t start = (uint64_t)((char *)v->p - (char *)pl_exec_address(e, o->id));
    const uint64_t end = (v->rows - 1) * v->ld + v->cols;
    for (uint64_t at = 0, n; at < end; at += n) {
        n = pl_u64_min(end - at, most);
        PL_TRY(pl_exec_read(e, o->id, start + at * size, w->buffer, n * size));
        for (uint64_t i = 0; i < n; i++) {
            if ((at + i) % v->ld >= v->cols) continue;
            const char *value = name_value(v->dtype, w->buffer + i * size);
            if (!value) continue;
            const uint64_t place = start / size + at + i;
            *found = true;
            w->value = value;
            w->tensor = o->id;
            w->row = place / v->ld;
            w->column = place % v->ld;
            return PL_ERR_OK;
        }
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
