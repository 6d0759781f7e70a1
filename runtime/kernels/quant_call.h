/* quant_call.h - which calls of START, QUANT4, NEST4, DEQUANT4, EMBED4 and ADAMW_8BIT are sound:
 * the same for every back-end.
 *
 * In: the operands. Out: whether the kernels may run; a call that is not sound is a broken plan.
 *   C1  matrices are one run of elements: windows of whole rows
 *   C2  codes and absmax are as long as the window needs */
#ifndef PL_RUNTIME_KERNELS_QUANT_CALL_H
#define PL_RUNTIME_KERNELS_QUANT_CALL_H

#include "estimator/ops/call.h"
#include "estimator/ops/quant_layout.h"

static inline uint64_t pl_quant_elements(const struct pl_view *v) {
    return v->rows * v->cols;
}

static inline bool pl_quant_is_run(const struct pl_view *v) {
    return v->rows <= 1 || v->ld == v->cols;
}

static inline bool pl_quant_is_float(const struct pl_view *v) {
    return pl_dtype_is_float(v->dtype);
}

static inline bool pl_start_is_rule(const struct pl_attr *attr) {
    return attr->start <= PL_START_UNIFORM && attr->first_element % 4 == 0;
}

/* out: w[..]. */
static inline bool pl_start_is_sound(const struct pl_call *c) {
    return pl_start_is_rule(c->attr) && pl_quant_is_run(&c->out[PL_START_OUT_W]) &&
           pl_quant_is_float(&c->out[PL_START_OUT_W]);
}

/* in: x?[..]; out: codes[n/2]u8, absmax[n/64]f32. */
static inline bool pl_quant4_is_sound(const struct pl_call *c) {
    const struct pl_view *x = &c->in[PL_QUANT4_X], *absmax = &c->out[PL_QUANT4_OUT_ABSMAX];
    const uint64_t n = pl_quant_elements(x);
    return pl_quant_has_absmax(c->attr->quant) && pl_quant_is_run(x) &&
           (x->p ? pl_quant_is_float(x) : pl_start_is_rule(c->attr)) &&
           pl_quant_elements(&c->out[PL_QUANT4_OUT_CODES]) >= pl_quant_codes_bytes(n) &&
           absmax->dtype == PL_DTYPE_F32 && pl_quant_elements(absmax) >= pl_quant_blocks(n);
}

/* in: absmax[n/64]f32; out: absmax8[n/64]u8, nested[n/16384]f32. */
static inline bool pl_nest4_is_sound(const struct pl_call *c) {
    const uint64_t blocks = pl_quant_elements(&c->in[PL_NEST4_ABSMAX]);
    const uint64_t nests = blocks / PL_QUANT_NEST + (blocks % PL_QUANT_NEST != 0);
    return c->in[PL_NEST4_ABSMAX].dtype == PL_DTYPE_F32 &&
           c->out[PL_NEST4_OUT_NESTED].dtype == PL_DTYPE_F32 &&
           pl_quant_elements(&c->out[PL_NEST4_OUT_ABSMAX8]) >= blocks &&
           pl_quant_elements(&c->out[PL_NEST4_OUT_NESTED]) >= nests;
}

/* The place of w among the elements of the codes; of several matrices, that of each among its own.
 */
struct pl_quant_window {
    uint64_t rows;  /* of w that a matrix has */
    uint64_t first; /* element */
    uint64_t skip;  /* elements after each row of w that it does not have */
    uint64_t end;   /* past the last element */
};

/* From one matrix to the next: bytes of codes, absmax, absmax8, rows of w. */
struct pl_quant_stride {
    uint64_t codes, absmax, absmax8, rows;
};

static inline uint64_t pl_quant_matrices(const struct pl_call *c) {
    return c->attr->matrices ? c->attr->matrices : 1;
}

static inline struct pl_quant_stride pl_quant_stride_of(const struct pl_call *c) {
    const uint64_t n = c->attr->matrix_elements, blocks = pl_quant_blocks(n);
    const bool nested = c->in[PL_DEQUANT4_ABSMAX8].p != 0;
    struct pl_quant_stride s = {pl_quant_codes_bytes(n),
                                pl_quant_count_absmax(c->attr->quant, n, nested),
                                nested ? blocks : 0, c->attr->matrix_stride};
    return s;
}

static inline struct pl_quant_window pl_quant_window_of(const struct pl_call *c) {
    const struct pl_view *w = &c->out[PL_DEQUANT4_OUT_W];
    const uint64_t before = (pl_quant_matrices(c) - 1) * c->attr->matrix_stride;
    const uint64_t rows = w->rows > before ? w->rows - before : 0;
    const uint64_t first = c->attr->first_element;
    const uint64_t skip = c->attr->columns > w->cols ? c->attr->columns - w->cols : 0;
    const uint64_t skipped = rows ? (rows - 1) * skip : 0;
    struct pl_quant_window at = {rows, first, skip, first + rows * w->cols + skipped};
    return at;
}

/* A window begins where a block does, and so does each row of one of some columns. Matrices do not
 * overlap in w, and each has the window. */
static inline bool pl_quant_window_is_sound(const struct pl_call *c) {
    const uint64_t columns = c->attr->columns, cols = c->out[PL_DEQUANT4_OUT_W].cols;
    const struct pl_quant_window at = pl_quant_window_of(c);
    if (c->attr->first_element % PL_QUANT_BLOCK) return false;
    if (c->attr->matrices &&
        ((c->attr->matrices > 1 && (at.rows == 0 || at.rows > c->attr->matrix_stride)) ||
         at.end > c->attr->matrix_elements))
        return false;
    return !columns ||
           (columns >= cols && columns % PL_QUANT_BLOCK == 0 && cols % PL_QUANT_BLOCK == 0);
}

/* The offset of nested absmax: an operand, or after the nests of the first of several matrices. */
static inline const float *pl_quant_offset_of(const struct pl_call *c) {
    if (!c->attr->matrices) return (const float *)c->in[PL_DEQUANT4_OFFSET].p;
    return (const float *)c->in[PL_DEQUANT4_ABSMAX].p + pl_quant_nests(c->attr->matrix_elements);
}

/* Rows of w begin with a byte, and matrices with their first row; a matrix has whole blocks. */
static inline bool pl_dequant4_mx_is_sound(const struct pl_call *c) {
    const struct pl_view *w = &c->out[PL_DEQUANT4_OUT_W], *scales = &c->in[PL_DEQUANT4_ABSMAX];
    const uint64_t n = pl_quant_window_of(c).end, rows = pl_quant_window_of(c).rows;
    const uint64_t blocks = rows / PL_QUANT_MX + (rows % PL_QUANT_MX != 0);
    const uint64_t before = pl_quant_matrices(c) - 1;
    const struct pl_quant_stride s = pl_quant_stride_of(c);
    return c->attr->first_element == 0 && c->attr->columns == 0 && w->cols % 2 == 0 &&
           !c->in[PL_DEQUANT4_ABSMAX8].p && scales->dtype == PL_DTYPE_U8 && pl_quant_is_run(w) &&
           (before == 0 || c->attr->matrix_elements % (PL_QUANT_MX * w->cols) == 0) &&
           pl_quant_elements(&c->in[PL_DEQUANT4_CODES]) >=
               before * s.codes + pl_quant_codes_bytes(n) &&
           pl_quant_elements(scales) >= before * s.absmax + blocks * w->cols;
}

/* in: codes[..]u8, absmax[..]f32|u8, absmax8?[..]u8, offset?[1]f32; out: w[O,K]. */
static inline bool pl_dequant4_is_sound(const struct pl_call *c) {
    const struct pl_view *absmax8 = &c->in[PL_DEQUANT4_ABSMAX8], *w = &c->out[PL_DEQUANT4_OUT_W];
    if (c->attr->quant >= PL_QUANT_COUNT || !pl_quant_window_is_sound(c)) return false;
    if (!pl_quant_has_absmax(c->attr->quant)) return pl_dequant4_mx_is_sound(c);
    const uint64_t n = pl_quant_window_of(c).end, blocks = pl_quant_blocks(n);
    const uint64_t scales = absmax8->p ? pl_quant_nests(n) : blocks;
    const uint64_t before = pl_quant_matrices(c) - 1;
    const struct pl_quant_stride s = pl_quant_stride_of(c);
    /* The offset of the last matrix is past its last nest. */
    const uint64_t last = absmax8->p && c->attr->matrices ? s.absmax : scales;
    return c->in[PL_DEQUANT4_ABSMAX].dtype == PL_DTYPE_F32 && pl_quant_is_run(w) &&
           pl_quant_elements(&c->in[PL_DEQUANT4_CODES]) >=
               before * s.codes + pl_quant_codes_bytes(n) &&
           pl_quant_elements(&c->in[PL_DEQUANT4_ABSMAX]) >= before * s.absmax + last &&
           (!absmax8->p || (pl_quant_elements(absmax8) >= before * s.absmax8 + blocks &&
                            (c->attr->matrices || c->in[PL_DEQUANT4_OFFSET].p)));
}

/* Rows of a matrix that codes are, by id. */
static inline uint64_t pl_embed4_vocab(const struct pl_call *c) {
    return 2 * pl_quant_elements(&c->in[PL_EMBED4_CODES]) / c->out[PL_EMBED4_OUT_X].cols;
}

/* in: ids[N]i32, codes[n/2]u8, absmax[..]f32, absmax8?[n/64]u8, offset?[1]f32; out: x[N,C], C even:
 * a row begins with a byte. */
static inline bool pl_embed4_is_sound(const struct pl_call *c) {
    const struct pl_view *absmax8 = &c->in[PL_EMBED4_ABSMAX8], *x = &c->out[PL_EMBED4_OUT_X];
    const struct pl_view *ids = &c->in[PL_EMBED4_IDS];
    const uint64_t n = 2 * pl_quant_elements(&c->in[PL_EMBED4_CODES]), blocks = pl_quant_blocks(n);
    const uint64_t scales = absmax8->p ? pl_quant_nests(n) : blocks;
    return pl_quant_has_absmax(c->attr->quant) && pl_quant_is_float(x) && x->cols > 0 &&
           x->cols % 2 == 0 && n % x->cols == 0 && ids->dtype == PL_DTYPE_I32 &&
           ids->rows >= x->rows && pl_quant_elements(&c->in[PL_EMBED4_ABSMAX]) >= scales &&
           (!absmax8->p || (pl_quant_elements(absmax8) >= blocks && c->in[PL_EMBED4_OFFSET].p));
}

/* A moment is n codes with an absmax a block, or n fp32 without. */
static inline bool pl_adamw8_is_moment(const struct pl_view *s, const struct pl_view *absmax,
                                       uint64_t n) {
    return pl_quant_is_run(s) && pl_quant_elements(s) == n &&
           s->dtype == (absmax->p ? PL_DTYPE_U8 : PL_DTYPE_F32) &&
           (!absmax->p || pl_quant_elements(absmax) >= pl_state8_blocks(n));
}

/* in: w, g, m, v, clip[2]f64, m_absmax?, v_absmax?, master?. */
static inline bool pl_adamw8_is_sound(const struct pl_call *c) {
    const struct pl_view *w = &c->in[PL_ADAMW_8BIT_W], *g = &c->in[PL_ADAMW_8BIT_G],
                         *master = &c->in[PL_ADAMW_8BIT_MASTER];
    const uint64_t n = pl_quant_elements(w);
    return pl_quant_is_run(w) && pl_quant_is_run(g) && pl_quant_elements(g) == n &&
           (!master->p || (pl_quant_is_run(master) && pl_quant_elements(master) == n)) &&
           pl_adamw8_is_moment(&c->in[PL_ADAMW_8BIT_M], &c->in[PL_ADAMW_8BIT_M_ABSMAX], n) &&
           pl_adamw8_is_moment(&c->in[PL_ADAMW_8BIT_V], &c->in[PL_ADAMW_8BIT_V_ABSMAX], n);
}

#endif
