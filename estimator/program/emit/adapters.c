/* adapters.c - the copies of a layer's adapters that products of a GPU read.
 *
 * Adapters are kept in fp32, and products there want all of their inputs in one type. So the
 * adapters of a layer are copied in the type of its activations before its forward and its backward
 * pass, all of them by one launch; what comes out of A, and its gradient, have that type as well.
 * Every product would otherwise round the same matrices again, in a launch for each.
 *
 * Where all modules of a fused matrix have adapters, their B are copied side by side into one
 * matrix, each in its own rows and columns and zeros around it: B a of all of them is one product.
 */
#include "estimator/program/emit/emit.h"

#include "estimator/base/checked.h"

static bool are_copied(const struct pl_builder *b) {
    return b->p->traits.backend == PL_BACKEND_CUDA && b->s->adapter_dtype == PL_DTYPE_F32 &&
           pl_dtype_is_narrow(b->s->dtype);
}

bool pl_build_adapts_all(const struct pl_builder *b, enum pl_slot slot) {
    const struct pl_adapter_slot *ad = pl_build_adapter(b, slot);
    struct pl_slot_shape shape;
    pl_model_slot(b->m, b->layer, slot, &shape);
    uint64_t rows = 0;
    for (uint32_t p = 0; ad && p < ad->n_parts; p++)
        rows += ad->rows[p];
    return ad && !shape.experts && rows == shape.rows;
}

/* Rows of copies begin at multiples of as many elements, which are 16 bytes. */
#define ROW_ELEMENTS 8

static uint32_t add_copy(struct pl_builder *b, const char *name, uint64_t rows, uint64_t cols) {
    return pl_build_step(b, name, PL_ROWS_FIXED, rows, pl_u64_round_up(cols, ROW_ELEMENTS),
                         b->s->dtype, PL_CATEGORY_WORKSPACE);
}

/* All columns of rows [row0, row0 + rows) of `to`. */
static void narrow(struct pl_builder *b, uint32_t from, uint32_t to, uint64_t row0, uint64_t col) {
    if (b->err != PL_ERR_OK) return;
    const struct pl_attr attr = {.joins = true, .first_element = col};
    struct pl_operand in[] = {pl_arg_now(b, from)};
    struct pl_operand out[] = {pl_arg_rows(pl_build_now(b, to), row0, b->p->tensors[from].dims[0])};
    PL_EMIT(b, NARROW, attr, in, out);
}

/* rows: of the matrix, where all of them have adapters; else 0. */
static void copy_b(struct pl_builder *b, struct pl_adapter_slot *ad, uint64_t rows) {
    const uint64_t r = b->s->lora_r;
    const bool all = rows > 0;
    if (all) ad->read_all_b = add_copy(b, "lora_b_copy", rows, ad->n_parts * r);
    for (uint32_t p = 0; p < ad->n_parts; p++) {
        if (!all) ad->read_b[p] = add_copy(b, "lora_b_copy", ad->rows[p], r);
        narrow(b, ad->b[p], all ? ad->read_all_b : ad->read_b[p], all ? ad->row0[p] : 0,
               all ? p * r : 0);
    }
}

void pl_build_copy_adapters(struct pl_builder *b) {
    if (!are_copied(b)) return;
    for (uint32_t s = 0; s < PL_SLOT_COUNT && b->err == PL_ERR_OK; s++) {
        struct pl_slot_shape shape;
        pl_model_slot(b->m, b->layer, s, &shape);
        if (!shape.per_layer || shape.experts || !pl_build_adapter(b, s)) continue;
        struct pl_adapter_slot *ad = &b->adapter[pl_build_slot_index(b->layer, s)];
        const struct pl_tensor *a = &b->p->tensors[ad->a];
        ad->read_a = add_copy(b, "lora_a_copy", a->dims[0], a->dims[1]);
        narrow(b, ad->a, ad->read_a, 0, 0);
        copy_b(b, ad, pl_build_adapts_all(b, s) ? shape.rows : 0);
    }
}
