/* exchange.c - how micro-batches add up to a step, and several ranks that train together: what is a
 * rank's own, and the ops between ranks.
 *
 * With rank_order a rank computes the gradient of its micro-batch in tensors of their own
 * (MICRO_GRAD). Once one is whole, every rank gets the rows that are its part from the others
 * (SPREAD) and adds all to its part of the step's gradient in the order of ranks (FOLD). The
 * micro-batches of a step go to the ranks in turn, so what is added, in which order, and rounded
 * when is the same for any number of ranks, one included. Norms are summed over the blocks of
 * shard.h, for the same reason.
 *
 * A gradient leaves when the step of the tape that makes it is built, and what comes of it is added
 * only after gradients of as many elements were made. Until then it lives, with what is sent for
 * it: ranks may exchange it while as much is computed as it took to compute. A gradient that is
 * sent in pieces is added piece by piece, but for the last one. Those of the head and the embedding
 * are added at once: they are larger than what a layer makes, and are there when most is.
 *
 * Without rank_order a rank adds up the gradients of its own micro-batches, as one device does, and
 * the phase of the optimizer begins with one exchange of all of them: every rank gets the rows that
 * are its part from the others (SPREAD) and adds them to its own, in place and in the order of the
 * other ranks (FOLD). What is sent does not grow with the micro-batches of a step. The order of the
 * sum depends on the number of ranks and on which of them has a row, and on nothing else. A rank
 * that computed nothing has a gradient of zeros: ops without rows write them. DDP's no_sync(), Li
 * et al., arXiv 2006.15704, section 3.2.4, delays its exchange in the same way.
 *
 * Gradients of weights that are kept in bf16 are tensors of their own (MICRO_GRAD) on one rank, and
 * on ranks that add up their own, too, where a step has several micro-batches. A product that added
 * to such a gradient by itself would round to nearest, and lose all that is smaller than half a
 * unit of the sum. MICRO_GRAD is in fp32 there, and FOLD rounds what it stores stochastically, so
 * the mean of the sum is that of exact additions. Fp32 costs little, since a MICRO_GRAD dies in the
 * fold: at the peak of a step the head's is alive alone, to which every chunk of the loss adds.
 * Kahan's compensation would keep two more bytes for every parameter, which is what bf16 saves.
 *
 * What is left of a step depends on `sharding`. NONE: the gradient is gathered, every rank has all
 * states and updates all weights. OPTIMIZER and GRADIENTS: a rank has the gradient and the states
 * of its part, updates it, and the weights are gathered; a gradient that waits for the update is
 * whole until then, so that only OPTIMIZER is left of the two. WEIGHTS: of matrices a rank has its
 * part alone, and fetches the whole for as long as a layer is at work (offload.c). The exchange is
 * after ZeRO, Rajbhandari et al., arXiv 1910.02054, section 5; the sum is ordered. */
#include "estimator/program/emit/exchange.h"

static struct pl_operand rows(const struct pl_builder *b, uint32_t id, uint64_t row0, uint64_t n) {
    return pl_arg_rows(pl_build_now(b, id), row0, n);
}

uint32_t pl_build_shards(const struct pl_builder *b, uint32_t id,
                         struct pl_owned out[PL_MAX_PARTS]) {
    return pl_tensor_shards(b->p, id, pl_shape_ranks(b->s), b->s->rank, out);
}

uint64_t pl_build_owned_rows(const struct pl_builder *b, uint32_t id) {
    struct pl_owned shards[PL_MAX_PARTS];
    const uint32_t n = pl_build_shards(b, id, shards);
    return n ? shards[n - 1].at + shards[n - 1].own.rows : 0;
}

uint64_t pl_build_blocks(const struct pl_builder *b, uint32_t id) {
    struct pl_owned shards[PL_MAX_PARTS];
    uint64_t blocks = 0;
    const uint32_t n = pl_build_shards(b, id, shards);
    for (uint32_t i = 0; i < n; i++)
        blocks += pl_u64_div_up(shards[i].part.rows, shards[i].block);
    return blocks;
}

static struct pl_attr between(const struct pl_builder *b, uint64_t block_rows) {
    return (struct pl_attr){.ranks = pl_shape_ranks(b->s), .block_rows = (uint32_t)block_rows};
}

void pl_build_share(struct pl_builder *b, struct pl_operand x, uint64_t block) {
    if (b->err != PL_ERR_OK || pl_shape_ranks(b->s) == 1) return;
    struct pl_operand in[] = {x}, out[] = {x};
    PL_EMIT(b, SHARE, between(b, block), in, out);
}

static void zero(struct pl_builder *b, struct pl_operand x) {
    struct pl_operand out[] = {x};
    if (b->err == PL_ERR_OK) pl_build_op(b, PL_OP_ZERO, (struct pl_attr){0}, NULL, 0, out, 1);
}

static void fold(struct pl_builder *b, struct pl_operand parts, struct pl_operand g,
                 struct pl_operand own, struct pl_attr attr) {
    struct pl_operand in[] = {parts, g, own}, out[] = {g};
    if (b->err == PL_ERR_OK) PL_EMIT(b, FOLD, attr, in, out);
}

/* --- gradients ------------------------------------------------------------------------------- */

/* Adapters add up in their own type, unless the order of ranks asks for more. */
bool pl_build_is_folded(const struct pl_builder *b, uint32_t tensor) {
    const bool adapter = b->p->tensors[tensor].category == PL_CATEGORY_ADAPTER;
    return b->micro_grad && (pl_shape_exchanges_each_micro(b->s) || !adapter);
}

static enum pl_dtype micro_grad_dtype(const struct pl_builder *b, uint32_t tensor) {
    const bool adapter = b->p->tensors[tensor].category == PL_CATEGORY_ADAPTER;
    return adapter ? pl_build_gradient_dtype(b, tensor) : PL_DTYPE_F32;
}

/* Made when it is first asked for. */
static uint32_t micro_grad(struct pl_builder *b, uint32_t tensor) {
    uint32_t *id = &b->micro_grad[tensor];
    if (*id != PL_NONE || b->err != PL_ERR_OK) return *id;
    const struct pl_tensor *w = &b->p->tensors[tensor];
    struct pl_tensor t = {.name = "micro_grad",
                          .dims = {w->dims[0], w->dims[1], 1},
                          .layer = w->layer,
                          .of = tensor,
                          .dtype = micro_grad_dtype(b, tensor),
                          .category = PL_CATEGORY_GRADIENTS,
                          .scope = PL_SCOPE_STEP,
                          .phase = b->phase,
                          .role = PL_ROLE_MICRO_GRAD,
                          .slot = w->slot};
    const uint32_t made = pl_build_tensor(b, t);
    if (b->err == PL_ERR_OK && b->n_whole == PL_MAX_OPEN)
        b->err = pl_diag_set(b->d, PL_ERR_PLAN_BROKEN, "too many gradients are made at a time");
    if (b->err != PL_ERR_OK) return PL_NONE;
    if (pl_shape_exchanges_each_micro(b->s)) b->whole[b->n_whole++] = tensor;
    return b->micro_grad[tensor] = made;
}

struct pl_operand pl_build_grad(struct pl_builder *b, uint32_t tensor, struct pl_attr *attr) {
    if (b->err != PL_ERR_OK) return pl_arg_none;
    const bool folded = pl_build_is_folded(b, tensor);
    const enum pl_accumulate first = folded ? PL_ACC_WRITE : PL_ACC_FIRST_WRITES;
    attr->accumulate = b->grad_begun[tensor] ? PL_ACC_ADD : first;
    if (!b->grad_begun[tensor]) pl_build_open_gradient(b, tensor);
    const uint32_t id = folded ? micro_grad(b, tensor) : b->grad[tensor];
    return pl_arg(pl_build_now(b, id));
}

/* Returns the attributes of a FOLD from row `row` of the tensor on. Random numbers are counted by
 * its elements. */
static struct pl_attr fold_attr(const struct pl_builder *b, uint32_t id, uint64_t row) {
    struct pl_attr attr = {.accumulate = PL_ACC_FIRST_WRITES, .rank = b->s->rank};
    if (micro_grad_dtype(b, id) == pl_build_gradient_dtype(b, id)) return attr;
    attr.site = id;
    attr.first_element = row * b->p->tensors[id].dims[1];
    return attr;
}

void pl_build_fold_gradient(struct pl_builder *b, uint32_t tensor) {
    fold(b, pl_arg_now(b, b->micro_grad[tensor]), pl_arg_now(b, b->grad[tensor]), pl_arg_none,
         fold_attr(b, tensor, 0));
    b->micro_grad[tensor] = PL_NONE;
}

/* Elements that a rank takes from the others at a time: a gradient may be large, and what comes of
 * it from all ranks is as large. */
#define PIECE_ELEMENTS (UINT64_C(16) << 20)

/* Rows of every rank's that pass at a time. */
static uint64_t piece_rows(const struct pl_builder *b, uint64_t most, uint64_t cols) {
    const uint64_t all = pl_u64_max(cols, 1) * pl_shape_ranks(b->s);
    return pl_u64_min(pl_u64_max(PIECE_ELEMENTS / all, 1), most);
}

/* Returns the rows of the rank that has the most: the last block may be short. */
static uint64_t most_rows(const struct pl_builder *b, const struct pl_owned *s) {
    const uint32_t ranks = pl_shape_ranks(b->s);
    uint64_t most = 0;
    for (uint32_t r = 0; r < ranks; r++)
        most = pl_u64_max(most, pl_shard_of(s->part.rows, s->block, ranks, r).rows);
    return most;
}

/* Appends a buffer for the rows of a piece that are this rank's, from every other rank. */
static struct pl_operand parts_of(struct pl_builder *b, struct pl_operand g, struct pl_attr attr,
                                  uint64_t mine) {
    struct pl_operand in[] = {g}, out[] = {pl_arg_none};
    if (mine) {
        const struct pl_tensor *t = &b->p->tensors[g.id];
        const uint32_t id = pl_build_step(b, "parts", PL_ROWS_FIXED, mine * (attr.ranks - 1),
                                          t->dims[1], t->dtype, PL_CATEGORY_GRADIENTS);
        out[0] = pl_arg_now(b, id);
    }
    if (b->err == PL_ERR_OK) PL_EMIT(b, SPREAD, attr, in, out);
    return mine && b->err == PL_ERR_OK ? pl_arg_now(b, out[0].id) : pl_arg_none;
}

/* Returns the window of the step's gradient with this rank's rows of the part. */
static struct pl_operand own_gradient(const struct pl_builder *b, uint32_t id,
                                      const struct pl_owned *s, struct pl_shard piece) {
    const uint64_t whole = s->part.row0 + s->own.row0;
    const uint64_t first = pl_shape_cuts_gradients(b->s) ? s->at : whole;
    return rows(b, b->grad[id], first + (piece.row0 - s->own.row0), piece.rows);
}

/* Called after gradients of so many elements were computed: adds what was sent before as many
 * were. */
static void land(struct pl_builder *b, uint64_t elements) {
    uint32_t left = 0;
    for (uint32_t i = 0; i < b->n_landings; i++) {
        struct pl_landing l = b->landings[i];
        if (l.elements > elements) {
            l.elements -= elements;
            b->landings[left++] = l;
            continue;
        }
        struct pl_operand g = pl_arg_now(b, l.g.id); /* written since, in other rows */
        g.row0 = l.g.row0;
        g.nrows = l.g.nrows;
        fold(b, l.parts, g, l.own, l.attr);
    }
    b->n_landings = left;
}

static void land_later(struct pl_builder *b, struct pl_landing l) {
    if (b->n_landings == PL_MAX_LANDINGS) land(b, UINT64_MAX);
    b->landings[b->n_landings++] = l;
}

/* Returns how a rank adds to its rows: the parts of all ranks in order, its own among them; or the
 * sums of the others, after its own, which is there. */
static struct pl_attr sum_attr(const struct pl_builder *b, uint32_t id, uint64_t row) {
    if (pl_shape_exchanges_each_micro(b->s)) return fold_attr(b, id, row);
    return (struct pl_attr){.accumulate = PL_ACC_ADD, .all_ranks = true};
}

/* from: of the micro-batch, or of all that this rank computed. */
static void exchange_part(struct pl_builder *b, uint32_t id, uint32_t from,
                          const struct pl_owned *s) {
    const uint32_t ranks = pl_shape_ranks(b->s);
    const uint64_t most = most_rows(b, s), cols = b->p->tensors[id].dims[1];
    const uint64_t step = ranks == 1 ? most : piece_rows(b, most, cols);
    const bool apart = ranks > 1 && from != b->grad[id]; /* from the sum that it adds to */
    const bool waits = apart && b->p->tensors[id].layer != PL_NONE;
    for (uint64_t row = 0; row < most && b->err == PL_ERR_OK; row += step) {
        const struct pl_shard piece = pl_shard_piece(s->own, row, step);
        struct pl_operand parts = rows(b, from, s->part.row0, s->part.rows);
        struct pl_operand own = pl_arg_none;
        struct pl_attr attr = between(b, s->block);
        attr.piece_row0 = (uint32_t)row;
        attr.piece_rows = step < most ? (uint32_t)step : 0;
        if (apart) own = rows(b, from, s->part.row0 + piece.row0, piece.rows);
        if (ranks > 1) parts = parts_of(b, parts, attr, piece.rows);
        if (!piece.rows || b->err != PL_ERR_OK) continue;
        const struct pl_operand g = own_gradient(b, id, s, piece);
        const struct pl_attr at = sum_attr(b, id, s->part.row0 + piece.row0);
        if (waits && row + step >= most)
            land_later(b, (struct pl_landing){parts, g, own, at, s->part.rows * cols});
        else
            fold(b, parts, g, own, at);
    }
}

static void exchange(struct pl_builder *b, uint32_t id, uint32_t from) {
    struct pl_owned shards[PL_MAX_PARTS];
    const uint32_t n = pl_build_shards(b, id, shards);
    for (uint32_t i = 0; i < n && b->err == PL_ERR_OK; i++)
        exchange_part(b, id, from, &shards[i]);
}

/* True if a gradient is complete; the embedding's is when the pass ends. */
static bool is_ready(const struct pl_builder *b, uint32_t id, bool last) {
    return last || b->p->tensors[id].slot != PL_SLOT_EMBED;
}

/* Vectors leave together with the next matrix. */
static bool enough_to_send(const struct pl_builder *b, bool last, uint64_t *elements) {
    bool enough = last || b->n_whole > PL_MAX_OPEN / 2;
    *elements = 0;
    for (uint32_t i = 0; i < b->n_whole; i++) {
        const struct pl_tensor *t = &b->p->tensors[b->whole[i]];
        if (!is_ready(b, b->whole[i], last)) continue;
        *elements += t->dims[0] * t->dims[1];
        enough |= t->dims[1] > 1;
    }
    return enough;
}

void pl_build_exchange(struct pl_builder *b, bool last) {
    uint32_t left = 0;
    uint64_t elements;
    if (!pl_shape_exchanges_each_micro(b->s) || !enough_to_send(b, last, &elements)) return;
    land(b, elements);
    for (uint32_t i = 0; i < b->n_whole && b->err == PL_ERR_OK; i++) {
        const uint32_t id = b->whole[i];
        if (!is_ready(b, id, last)) {
            b->whole[left++] = id;
            continue;
        }
        exchange(b, id, b->micro_grad[id]);
        b->micro_grad[id] = PL_NONE;
    }
    b->n_whole = left;
    if (last) land(b, UINT64_MAX);
}

/* --- the loss -------------------------------------------------------------------------------- */

/* The loss of an evaluation has no update to wait for. */
static bool shares_each_loss(const struct pl_builder *b) {
    return b->phase == PL_PHASE_MICRO ? pl_shape_exchanges_each_micro(b->s)
                                      : pl_shape_is_of_ranks(b->s);
}

/* Two numbers a rank, those of this one zero. */
static uint32_t losses(struct pl_builder *b) {
    const uint32_t id =
        pl_build_step(b, "losses", PL_ROWS_FIXED, 2 * (uint64_t)pl_shape_ranks(b->s), 1,
                      PL_DTYPE_F64, PL_CATEGORY_BATCH);
    zero(b, rows(b, id, 2 * b->s->rank, 2));
    return id;
}

/* The loss of this rank is summed over its micro-batch alone. */
void pl_build_begin_loss(struct pl_builder *b) {
    b->loss = b->p->loss;
    b->loss_row = 0;
    if (!shares_each_loss(b)) return;
    b->loss = losses(b);
    b->loss_row = 2 * b->s->rank;
}

struct pl_operand pl_build_loss(const struct pl_builder *b) {
    return b->loss == b->p->loss ? pl_arg_now(b, b->loss) : rows(b, b->loss, b->loss_row, 2);
}

void pl_build_end_loss(struct pl_builder *b) {
    if (b->err != PL_ERR_OK || b->loss == b->p->loss) return;
    pl_build_share(b, pl_arg_now(b, b->loss), 2);
    fold(b, pl_arg_now(b, b->loss), pl_arg_now(b, b->p->loss), pl_arg_none,
         (struct pl_attr){.accumulate = PL_ACC_ADD});
}

/* --- the update ------------------------------------------------------------------------------ */

static void exchange_loss(struct pl_builder *b) {
    const struct pl_attr all = {.accumulate = PL_ACC_WRITE, .all_ranks = true};
    if (b->err != PL_ERR_OK) return;
    const uint32_t id = losses(b);
    fold(b, pl_arg_now(b, b->p->loss), rows(b, id, 2 * b->s->rank, 2), pl_arg_none, all);
    pl_build_share(b, pl_arg_now(b, id), 2);
    fold(b, pl_arg_now(b, id), pl_arg_now(b, b->p->loss), pl_arg_none, all);
}

void pl_build_exchange_step(struct pl_builder *b) {
    exchange_loss(b);
    for (uint32_t i = 0; pl_build_trained(b, &i); i++)
        exchange(b, i, b->grad[i]);
}

/* The squares of the blocks of a tensor that are this rank's, from row `at` of `sums` on. */
static uint64_t square_sums(struct pl_builder *b, uint32_t id, uint32_t sums, uint64_t at) {
    struct pl_owned shards[PL_MAX_PARTS];
    const uint32_t n = pl_build_shards(b, id, shards);
    for (uint32_t i = 0; i < n && b->err == PL_ERR_OK; i++) {
        const struct pl_owned *s = &shards[i];
        const uint64_t blocks = pl_u64_div_up(s->own.rows, s->block);
        if (blocks)
            pl_build_square_sum(b, own_gradient(b, id, s, s->own), s->block,
                                rows(b, sums, at + s->own.row0 / s->block, blocks));
        at += pl_u64_div_up(s->part.rows, s->block);
    }
    return at;
}

/* Values that one rank has are zero on the others, which changes no bit of the sum. */
void pl_build_norm_of_ranks(struct pl_builder *b) {
    const uint64_t blocks = b->p->tensors[b->partials].dims[0];
    uint32_t sums = b->partials;
    uint64_t at = 0;
    if (pl_shape_ranks(b->s) > 1) {
        sums = pl_build_step(b, "norm_sums", PL_ROWS_FIXED, blocks * pl_shape_ranks(b->s), 1,
                             PL_DTYPE_F64, PL_CATEGORY_BATCH);
        at = blocks * b->s->rank;
        zero(b, rows(b, sums, at, blocks));
    }
    for (uint32_t i = 0; pl_build_trained(b, &i); i++)
        at = square_sums(b, i, sums, at);
    if (pl_shape_ranks(b->s) == 1 || b->err != PL_ERR_OK) return;
    pl_build_share(b, pl_arg_now(b, sums), blocks);
    fold(b, pl_arg_now(b, sums), pl_arg_now(b, b->partials), pl_arg_none,
         (struct pl_attr){.accumulate = PL_ACC_WRITE, .all_ranks = true});
}

static void share_parts(struct pl_builder *b, uint32_t of, uint32_t id) {
    struct pl_owned shards[PL_MAX_PARTS];
    const uint32_t n = pl_build_shards(b, of, shards);
    for (uint32_t i = 0; i < n && b->err == PL_ERR_OK; i++)
        pl_build_share(b, rows(b, id, shards[i].part.row0, shards[i].part.rows), shards[i].block);
}

void pl_build_share_all(struct pl_builder *b, bool gradients) {
    for (uint32_t i = 0; pl_build_trained(b, &i); i++)
        if (!pl_tensor_is_cut(b->s, &b->p->tensors[i]))
            share_parts(b, i, gradients ? b->grad[i] : i);
}

/* --- weights in parts ------------------------------------------------------------------------ */

void pl_build_fetch(struct pl_builder *b, uint32_t id, uint32_t copy) {
    struct pl_owned shards[PL_MAX_PARTS];
    const uint32_t n = pl_build_shards(b, id, shards);
    for (uint32_t i = 0; i < n && b->err == PL_ERR_OK; i++) {
        const struct pl_owned *s = &shards[i];
        struct pl_operand in[] = {s->own.rows ? rows(b, id, s->at, s->own.rows) : pl_arg_none};
        struct pl_operand out[] = {rows(b, copy, s->part.row0, s->part.rows)};
        PL_EMIT(b, FETCH, between(b, s->block), in, out);
    }
}

/* Ops were built on whole matrices, and now reach this rank's rows or fetched copies alone. */
void pl_build_cut_weights(struct pl_builder *b) {
    for (uint32_t i = 0; i < b->n_job_tensors && b->err == PL_ERR_OK; i++) {
        struct pl_tensor *t = &b->p->tensors[i];
        if (!pl_tensor_is_cut(b->s, t)) continue;
        t->dims[0] = pl_build_owned_rows(b, i);
        if (!pl_build_tensor_bytes(t)) b->err = PL_ERR_OVERFLOW;
    }
}
