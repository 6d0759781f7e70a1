/* offload.c - what lives in host memory or with other ranks, and the copies that bring it to ops.
 *
 * A phase is built as if the device held everything. Then a pass over its ops gives every one its
 * operands in the memory that it can reach: what lies on the other side is copied there before the
 * first use and, when it was written, back after the last. Kernels, their order
 * and their operands' values stay what they were, so offloading changes no bit of a result. The
 * copies are STEP tensors like any other: how many of them share a slot follows from their lives.
 *
 * Weights come in one unit - one layer in one direction - before they are used, so that a copy can
 * run during the products of the layer at hand: two layers are on the device at a time. Gradients
 * come and go around the op that adds to them. An update runs in windows of rows, the next window
 * arriving while one is at work: an embedding needs no more device memory for it than a layer. */
#include "estimator/base/alloc.h"
#include "estimator/program/emit/brief.h"
#include "estimator/program/emit/exchange.h"

#include "estimator/base/checked.h"
#include "estimator/ops/quant_layout.h"

#include <stdlib.h>
#include <string.h>

/* Elements of a window of an update; with fewer, latency would dominate; more would only take
 * memory. */
#define WINDOW_ELEMENTS (UINT64_C(8) << 20)
/* Rows of a window are a multiple of this, whatever their length: whole blocks of 8-bit moments and
 * of the random numbers that round weights, and rows that stay aligned for vector loads. */
#define WINDOW_ROWS PL_STATE8_BLOCK

struct twin {         /* the state of a tensor in this pass */
    uint32_t home;    /* the tensor that keeps the content: itself, or the one that it was spilled
                         to */
    uint32_t copy;    /* on the other side; PL_NONE */
    uint32_t writes;  /* version it would have without the pass */
    uint32_t last;    /* op of the unit at hand after which the copy is let go */
    uint32_t unit;    /* in which `last` was found */
    uint32_t written; /* latest unit known to write it */
    uint32_t spill;   /* op after which it goes to host memory; PL_NONE */
    bool dirty;       /* the copy holds what home does not */
};

struct mover {
    struct pl_builder *b;
    struct pl_op *ops; /* ops of the phase before the pass; owned, with their operands */
    struct pl_operand *operands;
    uint32_t n_ops, n_tensors, unit;
    uint32_t loop;      /* over windows of updates */
    struct twin *twins; /* [n_tensors] */
};

/* Rows of a tensor; n 0 = all. */
struct window {
    uint64_t row0, n;
};
static const struct window whole = {0, 0};

/* --- who lives where ------------------------------------------------------------------------- */

static enum pl_tensor_place home_of(const struct pl_job_shape *s, const struct pl_tensor *t) {
    if (t->category == PL_CATEGORY_OPTIMIZER && s->offload >= PL_OFFLOAD_OPTIMIZER)
        return s->update_on_host ? PL_PLACE_HOST : PL_PLACE_PINNED;
    if (t->category == PL_CATEGORY_GRADIENTS && s->offload >= PL_OFFLOAD_GRADIENTS)
        return PL_PLACE_PINNED;
    if (t->role == PL_ROLE_WEIGHT && t->slot == PL_SLOT_EMBED && s->embedding_on_host)
        return PL_PLACE_PINNED;
    if (t->category == PL_CATEGORY_WEIGHTS && t->role != PL_ROLE_ROPE &&
        s->offload >= PL_OFFLOAD_WEIGHTS)
        return PL_PLACE_PINNED;
    return PL_PLACE_DEVICE;
}

static bool norm_is_on_host(const struct pl_job_shape *s) {
    return s->update_on_host && s->offload >= PL_OFFLOAD_GRADIENTS;
}

void pl_build_place_tensors(struct pl_builder *b) {
    if (b->err != PL_ERR_OK) return;
    for (uint32_t i = 0; i < b->p->n_tensors; i++)
        b->p->tensors[i].place = home_of(b->s, &b->p->tensors[i]);
    if (!norm_is_on_host(b->s)) return;
    b->p->tensors[b->partials].place = PL_PLACE_HOST;
    b->p->tensors[b->p->clip].place = PL_PLACE_HOST;
}

/* An adapter on the embedding stays on the device. */
static bool runs_on_host(const struct mover *m, const struct pl_op *op) {
    const struct pl_job_shape *s = m->b->s;
    if (op->kind == PL_OP_EMBED)
        return s->embedding_on_host &&
               m->b->p->tensors[op->in[PL_EMBED_W].id].role == PL_ROLE_WEIGHT;
    if (op->phase != PL_PHASE_OPTIMIZER || !s->update_on_host) return false;
    bool norm = op->kind == PL_OP_SQUARE_SUM || op->kind == PL_OP_CLIP_SCALE;
    return !norm || norm_is_on_host(s);
}

static bool is_hosted(const struct mover *m, uint32_t id) {
    return m->b->p->tensors[m->twins[id].home].place != PL_PLACE_DEVICE;
}

/* True if this rank has a part of the tensor, and the others the rest. */
static bool is_cut(const struct mover *m, uint32_t id) {
    return pl_tensor_is_cut(m->b->s, &m->b->p->tensors[id]);
}

/* True if the operand is in the memory that the op cannot reach, or on other ranks. */
static bool is_away(const struct mover *m, const struct pl_op *op, const struct pl_operand *o) {
    if (o->id == PL_NONE || m->b->p->tensors[o->id].category == PL_CATEGORY_WORKSPACE) return false;
    return is_hosted(m, o->id) != op->host || is_cut(m, o->id);
}

/* --- copies ---------------------------------------------------------------------------------- */

static uint32_t add_copy(struct mover *m, uint32_t id, const char *name, enum pl_tensor_place place,
                         const struct window *w) {
    struct pl_tensor t = m->b->p->tensors[id];
    if (w->n) t.dims[0] = w->n;
    t.name = name;
    t.layer = m->b->layer;
    t.of = id;
    t.scope = PL_SCOPE_STEP;
    t.phase = m->b->phase;
    t.role = PL_ROLE_COPY;
    t.place = place;
    t.trainable = t.decay = false;
    return pl_build_tensor(m->b, t);
}

static struct pl_operand window_of(const struct mover *m, uint32_t id, const struct window *w) {
    struct pl_val now = pl_build_now(m->b, id);
    return w->n ? pl_arg_rows(now, w->row0, w->n) : pl_arg(now);
}

/* A copy between the two sides, in either direction. */
static void add_transfer(struct mover *m, struct pl_operand from, struct pl_operand to,
                         bool not_first) {
    if (m->b->err != PL_ERR_OK) return;
    bool out = m->b->p->tensors[from.id].place == PL_PLACE_DEVICE;
    bool host = m->b->host;
    m->b->host = false;
    struct pl_attr attr = {.not_first = not_first};
    pl_build_op(m->b, out ? PL_OP_COPY_OUT : PL_OP_COPY_IN, attr, &from, 1, &to, 1);
    m->b->host = host;
}

/* A copy of `id` on the other side, with its content. */
static uint32_t fetch(struct mover *m, uint32_t id, const struct window *w, bool not_first) {
    uint32_t home = m->twins[id].home;
    enum pl_tensor_place place = is_hosted(m, id) ? PL_PLACE_DEVICE : PL_PLACE_PINNED;
    uint32_t copy = add_copy(m, id, "copy", is_cut(m, id) ? PL_PLACE_DEVICE : place, w);
    if (m->b->err != PL_ERR_OK) return 0;
    if (is_cut(m, id)) {
        pl_build_fetch(m->b, id, copy);
        return copy;
    }
    add_transfer(m, window_of(m, home, w), window_of(m, copy, &whole), not_first);
    return copy;
}

/* The content that operand `o` meant, where it is now. A version that was stale before is as stale
 * here, so that pl_plan_check still sees it. */
static struct pl_operand moved(const struct mover *m, const struct pl_operand *o) {
    struct pl_operand r = *o;
    if (o->id == PL_NONE || m->b->err != PL_ERR_OK) return r;
    const struct twin *t = &m->twins[o->id];
    r.id = t->copy == PL_NONE ? t->home : t->copy;
    r.version = pl_build_now(m->b, r.id).version - (t->writes - o->version);
    return r;
}

/* Stamps what follows as `op` was stamped. */
static void stand_at(struct mover *m, const struct pl_op *op) {
    m->b->phase = op->phase;
    m->b->layer = op->layer;
    m->b->backward = op->backward;
    m->b->recompute = op->recompute;
    m->b->host = op->host;
    m->b->left_out = op->left_out;
    m->b->panels_left_out = op->panels_left_out;
    m->b->loop = m->b->piece = 0;
}

static void emit(struct mover *m, const struct pl_op *op, struct pl_attr attr,
                 const struct pl_operand *in, const struct pl_operand *out) {
    if (m->b->err == PL_ERR_OK) pl_build_op(m->b, op->kind, attr, in, op->n_in, out, op->n_out);
}

/* --- passes over layers ---------------------------------------------------------------------- */

/* One layer in one direction, or what lies between layers. */
static uint32_t unit_end(const struct mover *m, uint32_t first) {
    const struct pl_op *a = &m->ops[first];
    uint32_t end = first + 1;
    while (end < m->n_ops && m->ops[end].layer == a->layer && m->ops[end].backward == a->backward)
        end++;
    return end;
}

static bool is_update(const struct mover *m, const struct pl_op *op) {
    return pl_optimizer_updates_by(m->b->s->optimizer, op->kind);
}

static void note_uses(struct mover *m, uint32_t first, uint32_t end) {
    for (uint32_t i = first; i < end; i++) {
        const struct pl_op *op = &m->ops[i];
        if (is_update(m, op)) continue; /* it brings what it needs in windows */
        for (int k = 0; k < op->n_in + op->n_out; k++) {
            const struct pl_operand *o = k < op->n_in ? &op->in[k] : &op->out[k - op->n_in];
            if (!is_away(m, op, o)) continue;
            m->twins[o->id].last = i;
            m->twins[o->id].unit = m->unit;
        }
    }
}

/* Tensors that unit [first,end) only reads are copied in while the unit before it runs. */
static void fetch_ahead(struct mover *m, uint32_t first, uint32_t end) {
    for (uint32_t i = first; i < end; i++)
        for (int k = 0; k < m->ops[i].n_out; k++)
            if (m->ops[i].out[k].id != PL_NONE) m->twins[m->ops[i].out[k].id].written = m->unit + 1;
    for (uint32_t i = first; i < end; i++) {
        for (int k = 0; k < m->ops[i].n_in; k++) {
            const struct pl_operand *o = &m->ops[i].in[k];
            if (!is_away(m, &m->ops[i], o)) continue;
            struct twin *t = &m->twins[o->id];
            if (t->copy != PL_NONE || t->unit == m->unit || t->written == m->unit + 1) continue;
            stand_at(m, &m->ops[i]);
            t->copy = fetch(m, o->id, &whole, false);
        }
    }
}

/* A gradient that the op overwrites in the first micro-batch need not come in for it. */
static bool overwrites_first(const struct mover *m, const struct pl_op *op, uint32_t id) {
    return op->attr.accumulate == PL_ACC_FIRST_WRITES &&
           m->b->p->tensors[id].category == PL_CATEGORY_GRADIENTS;
}

static void bring(struct mover *m, const struct pl_op *op) {
    for (int k = 0; k < op->n_in; k++) {
        uint32_t id = op->in[k].id;
        if (!is_away(m, op, &op->in[k]) || m->twins[id].copy != PL_NONE) continue;
        m->twins[id].copy = fetch(m, id, &whole, overwrites_first(m, op, id));
    }
    for (int k = 0; k < op->n_out && m->b->err == PL_ERR_OK; k++) { /* written alone */
        uint32_t id = op->out[k].id;
        if (!is_away(m, op, &op->out[k]) || m->twins[id].copy != PL_NONE) continue;
        enum pl_tensor_place place = op->host ? PL_PLACE_PINNED : PL_PLACE_DEVICE;
        m->twins[id].copy = add_copy(m, id, "copy", place, &whole);
    }
}

static void let_go(struct mover *m, uint32_t i) {
    const struct pl_op *op = &m->ops[i];
    for (int k = 0; k < op->n_in + op->n_out && m->b->err == PL_ERR_OK; k++) {
        const struct pl_operand *o = k < op->n_in ? &op->in[k] : &op->out[k - op->n_in];
        if (o->id == PL_NONE) continue;
        struct twin *t = &m->twins[o->id];
        if (t->copy == PL_NONE || t->unit != m->unit || t->last != i) continue;
        if (t->dirty)
            add_transfer(m, window_of(m, t->copy, &whole), window_of(m, t->home, &whole), false);
        t->copy = PL_NONE;
        t->dirty = false;
    }
}

static void spill(struct mover *m, uint32_t i) {
    const struct pl_op *op = &m->ops[i];
    for (int k = 0; k < op->n_in + op->n_out && m->b->err == PL_ERR_OK; k++) {
        uint32_t id = k < op->n_in ? op->in[k].id : op->out[k - op->n_in].id;
        if (id == PL_NONE || m->twins[id].spill != i || m->twins[id].home != id) continue;
        uint32_t kept = add_copy(m, id, "kept", PL_PLACE_PINNED, &whole);
        if (m->b->err != PL_ERR_OK) return;
        add_transfer(m, window_of(m, id, &whole), window_of(m, kept, &whole), false);
        m->twins[id].home = kept;
    }
}

static void count_writes(struct mover *m, const struct pl_op *op) {
    for (int j = 0; j < op->n_out; j++) {
        if (op->out[j].id == PL_NONE) continue;
        struct twin *t = &m->twins[op->out[j].id];
        t->writes++;
        t->dirty = t->copy != PL_NONE;
    }
}

static void move_op(struct mover *m, uint32_t i) {
    const struct pl_op *op = &m->ops[i];
    struct pl_operand in[PL_OP_MAX_IN], out[PL_OP_MAX_OUT];
    stand_at(m, op);
    bring(m, op);
    for (int k = 0; k < op->n_in; k++)
        in[k] = moved(m, &op->in[k]);
    for (int k = 0; k < op->n_out; k++)
        out[k] = moved(m, &op->out[k]);
    emit(m, op, op->attr, in, out);
    count_writes(m, op);
    let_go(m, i);
    spill(m, i);
}

/* --- updates --------------------------------------------------------------------------------- */

struct update { /* an op on one window of its tensors */
    const struct pl_op *op;
    struct window w;
    uint32_t piece;
    uint32_t copy[PL_OP_MAX_IN];
};

static uint64_t rows_of(const struct mover *m, const struct pl_operand *o) {
    return o->nrows ? o->nrows : m->b->p->tensors[o->id].dims[0];
}

/* The part of operand `o` that belongs to rows `w` of the weight: the same rows, or one number for
 * every block of 8-bit moments. All of it where the op is not cut, and of operands that do not
 * follow the weight's rows. */
static struct window part_of(const struct mover *m, const struct pl_op *op,
                             const struct pl_operand *o, struct window w) {
    uint64_t cols = m->b->p->tensors[op->in[0].id].dims[1];
    if (w.n == 0 || o->id == m->b->p->clip) return (struct window){o->row0, o->nrows};
    if (rows_of(m, o) == rows_of(m, &op->in[0])) return (struct window){o->row0 + w.row0, w.n};
    return (struct window){w.row0 * cols / PL_STATE8_BLOCK,
                           pl_u64_div_up(w.n * cols, PL_STATE8_BLOCK)};
}

/* Rows of a window; 0 = the op is not cut, because it moves nothing, or little. */
static uint64_t window_rows(const struct mover *m, const struct pl_op *op) {
    bool moves = false;
    if (!is_update(m, op)) return 0;
    for (int k = 0; k < op->n_in; k++) {
        if (op->in[k].id == PL_NONE || op->in[k].id == m->b->p->clip) continue;
        moves |= is_away(m, op, &op->in[k]);
    }
    uint64_t cols = m->b->p->tensors[op->in[0].id].dims[1];
    uint64_t rows = pl_u64_max(WINDOW_ELEMENTS / cols / WINDOW_ROWS * WINDOW_ROWS, WINDOW_ROWS);
    return moves && rows < rows_of(m, &op->in[0]) ? rows : 0;
}

static bool writes(const struct pl_op *op, uint32_t id) {
    for (int j = 0; j < op->n_out; j++)
        if (op->out[j].id == id) return true;
    return false;
}

/* before: the update that still runs and whose results must not be fetched too early; NULL = none.
 */
static void fetch_update(struct mover *m, struct update *u, const struct update *before) {
    for (int k = 0; k < u->op->n_in && m->b->err == PL_ERR_OK; k++) {
        uint32_t id = u->op->in[k].id;
        if (!is_away(m, u->op, &u->op->in[k]) || u->copy[k] != PL_NONE) continue;
        if (before && before->op != u->op && writes(before->op, id)) continue;
        const struct window part = part_of(m, u->op, &u->op->in[k], u->w);
        u->copy[k] = fetch(m, id, &part, false);
    }
}

static struct pl_operand update_operand(const struct mover *m, const struct update *u, int k) {
    uint32_t id = u->op->in[k].id;
    if (id == PL_NONE || m->b->err != PL_ERR_OK) return pl_arg_none;
    if (u->copy[k] != PL_NONE) return window_of(m, u->copy[k], &whole);
    struct pl_operand o = moved(m, &u->op->in[k]);
    const struct window part = part_of(m, u->op, &u->op->in[k], u->w);
    o.row0 = (uint32_t)part.row0;
    o.nrows = (uint32_t)part.n;
    return o;
}

static int input_of(const struct pl_op *op, uint32_t id) {
    int k = 0;
    while (k < op->n_in && op->in[k].id != id)
        k++;
    return k;
}

static void run_update(struct mover *m, const struct update *u) {
    struct pl_operand in[PL_OP_MAX_IN], out[PL_OP_MAX_OUT];
    struct pl_attr attr = u->op->attr;
    attr.first_element = u->w.row0 * m->b->p->tensors[u->op->in[0].id].dims[1];
    for (int k = 0; k < u->op->n_in; k++)
        in[k] = update_operand(m, u, k);
    for (int j = 0; j < u->op->n_out; j++) {
        int k = input_of(u->op, u->op->out[j].id);
        out[j] = k < u->op->n_in ? in[k] : u->op->out[j];
    }
    emit(m, u->op, attr, in, out);
    for (int j = 0; j < u->op->n_out && m->b->err == PL_ERR_OK; j++) {
        int k = input_of(u->op, u->op->out[j].id);
        if (k == u->op->n_in || u->op->out[j].id == PL_NONE || u->copy[k] == PL_NONE) continue;
        uint32_t id = u->op->out[j].id;
        const struct window part = part_of(m, u->op, &u->op->in[k], u->w);
        add_transfer(m, window_of(m, u->copy[k], &whole), window_of(m, m->twins[id].home, &part),
                     false);
    }
}

static struct update window_at(const struct mover *m, const struct pl_op *op, uint64_t row0) {
    struct update u = {.op = op, .piece = pl_brief_number(m->b)};
    uint64_t n = window_rows(m, op), rows = rows_of(m, &op->in[0]);
    if (n) u.w = (struct window){row0, pl_u64_min(n, rows - row0)};
    for (int k = 0; k < PL_OP_MAX_IN; k++)
        u.copy[k] = PL_NONE;
    return u;
}

/* The window after `u`, or the first one of the next op; false at the end of the ops. */
static bool next_update(const struct mover *m, const struct update *u, uint32_t end,
                        struct update *out) {
    const uint64_t n = window_rows(m, u->op), rows = rows_of(m, &u->op->in[0]);
    const uint64_t pieces = n ? pl_u64_div_up(rows, n) : 1;
    const uint64_t row0 = n ? pl_brief_next(m->b->p, u->w.row0 / n, pieces, 2) * n : rows;
    const bool last = row0 >= rows;
    if (last && u->op + 1 == m->ops + end) return false;
    *out = last ? window_at(m, u->op + 1, 0) : window_at(m, u->op, row0);
    return true;
}

/* Scratch of an op that the host's kernels run: in host memory, as large as those need it. */
static void move_workspace(struct mover *m, const struct pl_op *op) {
    const struct pl_traits cpu = pl_traits_cpu(m->b->p->traits.threads);
    for (int k = 0; op->host && k < op->n_in; k++) {
        if (op->in[k].id == PL_NONE) continue;
        struct pl_tensor *t = &m->b->p->tensors[op->in[k].id];
        const struct pl_tensor *x = &m->b->p->tensors[op->in[0].id];
        if (t->category != PL_CATEGORY_WORKSPACE) continue;
        t->place = PL_PLACE_HOST;
        t->dims[0] = t->bytes =
            pl_op_workspace_bytes(&cpu, op->kind, &op->attr, x->dims[0], x->dims[1]);
    }
}

/* stand_at() for all the windows that this one stands for. */
static void stand_at_window(struct mover *m, const struct update *u) {
    const uint64_t n = window_rows(m, u->op);
    stand_at(m, u->op);
    if (!n) return;
    m->b->loop = m->loop;
    m->b->piece = u->piece;
    m->b->left_out = (uint32_t)pl_brief_left_out(m->b->p, u->w.row0 / n,
                                                 pl_u64_div_up(rows_of(m, &u->op->in[0]), n), 2);
}

static void move_updates(struct mover *m, uint32_t first, uint32_t end) {
    m->loop = pl_brief_number(m->b);
    struct update u = window_at(m, &m->ops[first], 0), next;
    for (bool more = true; more && m->b->err == PL_ERR_OK; u = next) {
        more = next_update(m, &u, end, &next);
        stand_at_window(m, &u);
        fetch_update(m, &u, NULL);
        if (more) {
            stand_at_window(m, &next);
            fetch_update(m, &next, &u);
            stand_at_window(m, &u);
        }
        move_workspace(m, u.op);
        run_update(m, &u);
        if (!more || next.op != u.op) count_writes(m, u.op);
    }
}

/* Updates that follow each other from op i of a unit on; i where there is none. */
static uint32_t updates_end(const struct mover *m, uint32_t i, uint32_t end) {
    while (i < end && is_update(m, &m->ops[i]))
        i++;
    return i;
}

static void move_units(struct mover *m) {
    for (uint32_t first = 0, next; first < m->n_ops && m->b->err == PL_ERR_OK; first = next) {
        next = unit_end(m, first);
        note_uses(m, first, next);
        if (next < m->n_ops) fetch_ahead(m, next, unit_end(m, next));
        for (uint32_t i = first, end; i < next; i = end) {
            end = updates_end(m, i, next);
            if (end > i)
                move_updates(m, i, end);
            else
                move_op(m, end++);
        }
        m->unit++;
    }
}

/* --- a phase --------------------------------------------------------------------------------- */

/* Finds the values that a layer at the level `offload` keeps for its backward pass: each is copied
 * to host memory after its last use in the forward pass, which may be in the layer above. */
static void find_spills(struct mover *m) {
    for (uint32_t i = 0; i < m->n_ops; i++) {
        const struct pl_op *op = &m->ops[i];
        if (op->layer == PL_NONE) continue;
        const uint32_t level = pl_recompute_of_layer(m->b->s->recompute, op->layer);
        for (int k = 0; k < op->n_in; k++) {
            if (op->in[k].id == PL_NONE) continue;
            const struct pl_tensor *t = &m->b->p->tensors[op->in[k].id];
            struct twin *w = &m->twins[op->in[k].id];
            if (t->scope != PL_SCOPE_STEP || !pl_rows_follow_tokens(t->rows) ||
                t->category != PL_CATEGORY_ACTIVATIONS)
                continue;
            if (!op->backward)
                w->last = i;
            else if (w->last != PL_NONE && level == PL_RECOMPUTE_OFFLOAD)
                w->spill = w->last;
        }
    }
}

/* The ops get copies of their operands, and learn where they run. */
static void take_operands(struct mover *m, const struct pl_operand *from) {
    const struct pl_operand *next = m->operands;
    for (uint32_t i = 0; i < m->n_ops; i++) {
        struct pl_op *op = &m->ops[i];
        op->in = next;
        op->out = next + op->n_in;
        next += op->n_in + op->n_out;
    }
    memcpy(m->operands, from, (size_t)(next - m->operands) * sizeof *from);
    for (uint32_t i = 0; i < m->n_ops; i++)
        m->ops[i].host = runs_on_host(m, &m->ops[i]);
}

/* Takes the ops of the phase out of the program, as if they had not been appended. */
static bool mover_init(struct mover *m, struct pl_builder *b) {
    struct pl_program *p = b->p;
    uint32_t first = p->phases[b->phase].first_op, n_operands = 0;
    *m = (struct mover){.b = b, .n_ops = p->n_ops - first, .n_tensors = p->n_tensors};
    for (uint32_t i = first; i < p->n_ops; i++)
        n_operands += p->ops[i].n_in + p->ops[i].n_out;
    m->ops = pl_malloc(m->n_ops * sizeof *m->ops);
    m->operands = pl_malloc(n_operands * sizeof *m->operands);
    m->twins = pl_malloc(m->n_tensors * sizeof *m->twins);
    if (!m->ops || !m->operands || !m->twins) return false;
    memcpy(m->ops, &p->ops[first], m->n_ops * sizeof *m->ops);
    p->n_ops = first;
    p->n_operands -= n_operands;
    take_operands(m, &p->operands[p->n_operands]);
    for (uint32_t i = 0; i < m->n_ops; i++)
        for (int j = 0; j < m->ops[i].n_out; j++)
            if (m->ops[i].out[j].id != PL_NONE) b->version[m->ops[i].out[j].id]--;
    for (uint32_t i = 0; i < m->n_tensors; i++)
        m->twins[i] = (struct twin){.home = i,
                                    .copy = PL_NONE,
                                    .writes = b->version[i],
                                    .last = PL_NONE,
                                    .unit = PL_NONE,
                                    .written = PL_NONE,
                                    .spill = PL_NONE};
    return true;
}

void pl_build_offload(struct pl_builder *b) {
    struct mover m;
    bool keeps = pl_recompute_offloads(b->s->recompute) && b->phase == PL_PHASE_MICRO;
    bool parts = b->s->sharding == PL_SHARDING_WEIGHTS && b->phase != PL_PHASE_OPTIMIZER;
    bool moves = b->s->offload != PL_OFFLOAD_NONE || b->s->embedding_on_host || keeps || parts;
    if (b->err != PL_ERR_OK || !moves) return;
    if (!mover_init(&m, b)) {
        b->err = pl_host_oom(b->d, "the plan");
    } else {
        if (keeps) find_spills(&m);
        if (b->phase == PL_PHASE_OPTIMIZER)
            move_updates(&m, 0, m.n_ops);
        else
            move_units(&m);
    }
    b->host = false;
    b->panels_left_out = 0;
    pl_brief_end_loop(b);
    free(m.ops);
    free(m.operands);
    free(m.twins);
}
