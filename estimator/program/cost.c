/* cost.c - the roofline of a step. */
#include "estimator/program/cost.h"

#include "estimator/program/shard.h"

/* These ops compute more than they move on a CPU: exponentials, codes of 4 and 8 bits, sums in
 * fp64, rows picked one by one. Source: `train --profile` (GB/s of a kind) in fp32 on 2 cores of a
 * Xeon with AVX-512, models of 1 M to 135 M parameters, compared with the 40 GB/s of ADAMW. */
static const double cpu_traffic[PL_OP_COUNT] = {
#define PL_TRAFFIC(KIND, factor) [PL_OP_##KIND] = factor,
#include "estimator/ops/op_rows.h"
};

/* CPU: eight AVX-512 cores and two channels of memory, where a copy reads and writes the same
 * memory. Attention as tests/bench/bench_attention measures it, lengths 128 to 1024 and heads of 32
 * to 128: its rate follows length / (length + 96) and columns / (columns + 8) within 13 %, 6 % on
 * average. */
static const struct pl_speed cpu = {.flops_per_second = 5e11,
                                    .bytes_per_second = 3e10,
                                    .link_bytes_per_second = 1.5e10,
                                    .start_seconds = 1e-6,
                                    .copies_inputs = true,
                                    .diagonal_keys = (PL_ATTENTION_QUERIES + PL_ATTENTION_KEYS) / 2,
                                    .softmax_columns = 8,
                                    .traffic = cpu_traffic};

/* One card of each architecture: 16-bit products with fp32 sums (dense), memory, and the link to
 * host memory, one way, less what the protocol takes (PCIe 3.0 x16 12, 4.0 25, 5.0 50 GB/s).
 * Sources: the peaks of NVIDIA's datasheets and architecture papers (A100, L4 to RTX 4090 "Ada",
 * H100 SXM, B200, RTX Blackwell), of consumer cards those with fp32 sums, which are half of those
 * with fp16 sums. The T4's peak is 65 TFLOP/s at a clock that its 70 W do not hold: a product of
 * 4096 x 4096 sustains 24 (forums.developer.nvidia.com 264462; Jia et al., arXiv 1903.07486). */
static const struct architecture {
    uint32_t sm; /* the oldest capability that the row stands for */
    double flops_per_second, bytes_per_second, link_bytes_per_second;
} architectures[] = {
    {75, 24e12, 320e9, 12e9},     /* Turing: T4 */
    {80, 312e12, 2039e9, 25e9},   /* Ampere: A100 80GB */
    {86, 71e12, 936e9, 25e9},     /* Ampere: RTX 3090 */
    {89, 165e12, 1008e9, 25e9},   /* Ada: RTX 4090 */
    {90, 989e12, 3350e9, 50e9},   /* Hopper: H100 SXM */
    {100, 2250e12, 8000e9, 50e9}, /* Blackwell: B200 */
    {120, 209e12, 1792e9, 50e9},  /* Blackwell: RTX 5090 */
};

struct pl_speed pl_speed_nominal(const struct pl_traits *t) {
    if (t->backend != PL_BACKEND_CUDA) return cpu;
    size_t row = sizeof architectures / sizeof *architectures - 1;
    while (row > 0 && architectures[row].sm > t->sm)
        row--;
    const struct architecture *a = &architectures[row];
    return (struct pl_speed){.flops_per_second = a->flops_per_second,
                             .bytes_per_second = a->bytes_per_second,
                             .link_bytes_per_second = a->link_bytes_per_second,
                             .start_seconds = 4e-6,
                             .updates_together = true};
}

/* --- classes --------------------------------------------------------------------------------- */

static const char *const names[] = {
#define X(c, name) name,
    PL_COST_MAP(X)
#undef X
};

const char *pl_cost_name(enum pl_cost c) {
    return names[c];
}

enum pl_cost pl_op_cost(const struct pl_op *op) {
    return op->host ? PL_COST_HOST : pl_op_rows[op->kind].cost;
}

/* --- work ------------------------------------------------------------------------------------ */

struct pl_load pl_load_full(const struct pl_program *p) {
    return (struct pl_load){.micro_batches = 1,
                            .tokens = (double)p->tokens,
                            .targets = (double)p->tokens,
                            .length = (double)p->shape.max_seq_length};
}

/* Rows and columns of the window; of rows that follow the batch, as many as there are. */
static double rows_of(const struct pl_program *p, const struct pl_operand *o,
                      const struct pl_load *load) {
    const struct pl_tensor *t = &p->tensors[o->id];
    const double rows = (double)(o->nrows ? o->nrows : t->dims[0]);
    if (t->rows == PL_ROWS_FIXED) return rows;
    const double there = t->rows == PL_ROWS_TARGETS ? load->targets : load->tokens;
    return rows * there / (load->micro_batches * (double)p->tokens);
}

static double cols_of(const struct pl_program *p, const struct pl_operand *o) {
    return (double)(o->cols ? o->cols : p->tensors[o->id].dims[1]);
}

/* True if an operand before it is the same: what is read is read once. */
static bool is_again(const struct pl_operand *list, int i) {
    for (int k = 0; k < i; k++)
        if (list[k].id == list[i].id && list[k].row0 == list[i].row0 && list[k].col == list[i].col)
            return true;
    return false;
}

/* `part` of the rows that are sorted by expert count. */
static double bytes_of(const struct pl_program *p, const struct pl_operand *list, int n,
                       double part, const struct pl_load *load) {
    double sum = 0;
    for (int i = 0; i < n; i++) {
        if (list[i].id == PL_NONE || is_again(list, i)) continue;
        const struct pl_tensor *t = &p->tensors[list[i].id];
        /* Scratch of a kernel is bytes; a matrix that codes are unpacked into has a type. */
        if (t->category == PL_CATEGORY_WORKSPACE && t->dtype == PL_DTYPE_U8) continue;
        const double rows = rows_of(p, &list[i], load) * (t->rows == PL_ROWS_ROUTED ? part : 1);
        sum += rows * cols_of(p, &list[i]) * (double)pl_dtype_bytes(t->dtype);
    }
    return sum;
}

static double operand_bytes(const struct pl_program *p, const struct pl_operand *list, int n,
                            const struct pl_load *load) {
    return bytes_of(p, list, n, 1, load);
}

/* One row of the table per token is read, or read and written. The gradient of a table that no
 * other op writes is cleared first. */
static double embed_bytes(const struct pl_program *p, const struct pl_op *op,
                          const struct pl_load *load) {
    const bool backward = op->kind == PL_OP_EMBED_BWD;
    const double x =
        operand_bytes(p, backward ? &op->in[PL_EMBED_BWD_DX] : &op->out[PL_EMBED_OUT_X], 1, load);
    if (!backward) return 2 * x;
    const bool clears = op->attr.accumulate != PL_ACC_ADD;
    return 3 * x + (clears ? operand_bytes(p, &op->out[PL_EMBED_BWD_OUT_DW], 1, load) : 0);
}

/* Half a byte an element; the scales are few. */
static double embed4_bytes(const struct pl_program *p, const struct pl_op *op,
                           const struct pl_load *load) {
    const struct pl_operand *x = &op->out[PL_EMBED4_OUT_X];
    return rows_of(p, x, load) * cols_of(p, x) / 2 + operand_bytes(p, x, 1, load);
}

/* Keys of which a causal query sees half on average. Of a window it sees all keys, hence twice the
 * window. */
static double span_of(const struct pl_op *op, const struct pl_load *load) {
    const double window = 2.0 * op->attr.window;
    return window > 0 && window < load->length ? window : load->length;
}

/* Rules of op_rows.h: what each element of the first input is multiplied with. */
static double rows_of_second(const struct pl_program *p, const struct pl_op *op,
                             const struct pl_load *load) {
    return rows_of(p, &op->in[1], load);
}

static double cols_of_second(const struct pl_program *p, const struct pl_op *op,
                             const struct pl_load *load) {
    (void)load;
    return cols_of(p, &op->in[1]);
}

/* The part of all experts that a grouped op computes, whose matrices are operand w. Rows are taken
 * to be spread evenly. */
static double part_of_experts(const struct pl_program *p, const struct pl_op *op,
                              const struct pl_operand *w, const struct pl_load *load) {
    const double all = rows_of(p, &op->in[PL_GROUPED_LINEAR_OFFSETS], load) - 1;
    const double here = rows_of(p, w, load) / (double)op->attr.expert_rows;
    return all > 0 ? here / all : 0;
}

/* The part of sorted rows that an op reads and writes: products of codes are of some experts. */
static double part_of_rows(const struct pl_program *p, const struct pl_op *op,
                           const struct pl_load *load) {
    const bool some = op->kind == PL_OP_GROUPED_LINEAR || op->kind == PL_OP_GROUPED_LINEAR_DX;
    return some ? part_of_experts(p, op, &op->in[1], load) : 1;
}

static double rows_of_expert(const struct pl_program *p, const struct pl_op *op,
                             const struct pl_load *load) {
    return (double)op->attr.expert_rows * part_of_experts(p, op, &op->in[1], load);
}

/* The second operand of GROUPED_LINEAR_DX is W, and that of GROUPED_LINEAR_DW has as many columns.
 */
static double cols_of_expert(const struct pl_program *p, const struct pl_op *op,
                             const struct pl_load *load) {
    const struct pl_operand *w =
        op->kind == PL_OP_GROUPED_LINEAR_DW ? &op->out[PL_GROUPED_LINEAR_DW_OUT_DW] : &op->in[1];
    return cols_of(p, &op->in[1]) * part_of_experts(p, op, w, load);
}

static double keys_seen(const struct pl_program *p, const struct pl_op *op,
                        const struct pl_load *load) {
    (void)p;
    return span_of(op, load);
}

/* The elements of all states of a token. */
static double delta_state(const struct pl_program *p, const struct pl_op *op,
                          const struct pl_load *load) {
    const struct pl_attr *a = &op->attr;
    (void)load;
    return (double)a->heads * a->key_dim * a->head_dim / cols_of(p, &op->in[0]);
}

static const struct {
    double factor;
    double (*rule)(const struct pl_program *p, const struct pl_op *op, const struct pl_load *load);
} arithmetic[PL_OP_COUNT] = {
#define PL_FLOPS(KIND, factor, rule) [PL_OP_##KIND] = {factor, rule},
#include "estimator/ops/op_rows.h"
};

double pl_op_flops(const struct pl_program *p, const struct pl_op *op, const struct pl_load *load) {
    if (!arithmetic[op->kind].rule) return 0;
    const double size = rows_of(p, &op->in[0], load) * cols_of(p, &op->in[0]);
    return arithmetic[op->kind].factor * size * arithmetic[op->kind].rule(p, op, load);
}

/* Codes and scales count for the elements that are written. */
static double dequant4_bytes(const struct pl_program *p, const struct pl_op *op,
                             const struct pl_load *load) {
    const struct pl_operand *w = &op->out[PL_DEQUANT4_OUT_W];
    const double type = (double)pl_dtype_bytes(p->tensors[w->id].dtype);
    const bool nested = op->in[PL_DEQUANT4_ABSMAX8].id != PL_NONE;
    const double f32 = (double)pl_dtype_bytes(PL_DTYPE_F32);
    double scales = nested ? 1.0 / PL_QUANT_BLOCK + f32 / PL_QUANT_GROUP : f32 / PL_QUANT_BLOCK;
    if (!pl_quant_has_absmax(op->attr.quant)) scales = 1.0 / PL_QUANT_MX;
    /* The rows of several matrices, between which there may be others. */
    const double more = op->attr.matrices > 1 ? (double)op->attr.matrices - 1 : 0;
    const double last = more * (double)op->attr.matrix_stride; /* where it begins */
    return (more + 1) * (rows_of(p, w, load) - last) * cols_of(p, w) * (0.5 + scales + type);
}

static double moved_bytes(const struct pl_program *p, const struct pl_op *op,
                          const struct pl_load *load) {
    if (op->kind == PL_OP_EMBED || op->kind == PL_OP_EMBED_BWD) return embed_bytes(p, op, load);
    if (op->kind == PL_OP_EMBED4) return embed4_bytes(p, op, load);
    if (op->kind == PL_OP_DEQUANT4) return dequant4_bytes(p, op, load);
    const double part = part_of_rows(p, op, load);
    return bytes_of(p, op->in, op->n_in, part, load) + bytes_of(p, op->out, op->n_out, part, load);
}

struct pl_work pl_op_work(const struct pl_program *p, const struct pl_op *op,
                          const struct pl_load *load) {
    return (struct pl_work){pl_op_flops(p, op, load), moved_bytes(p, op, load)};
}

/* --- seconds --------------------------------------------------------------------------------- */

/* Returns by what factor the arithmetic of attention takes longer than its FLOPs say. */
static double attention_excess(const struct pl_op *op, const struct pl_speed *s,
                               const struct pl_load *load) {
    const double span = span_of(op, load), columns = op->attr.head_dim;
    if (span <= 0 || columns <= 0) return 1;
    return (1 + s->diagonal_keys / span) * (1 + s->softmax_columns / columns);
}

double pl_op_seconds(const struct pl_program *p, const struct pl_op *op, const struct pl_speed *s,
                     const struct pl_load *load) {
    const enum pl_cost class = pl_op_cost(op);
    if (op->host) s = &cpu;
    double compute = pl_op_flops(p, op, load) / s->flops_per_second;
    if (class == PL_COST_PRODUCT && s->copies_inputs)
        return s->start_seconds + compute +
               bytes_of(p, op->in, 2, part_of_rows(p, op, load), load) / s->bytes_per_second;
    const double bytes = moved_bytes(p, op, load);
    if (class == PL_COST_COPY) /* counted at both ends */
        return s->start_seconds + bytes / 2 / s->link_bytes_per_second;
    double traffic = bytes / s->bytes_per_second;
    if (class == PL_COST_ATTENTION) compute *= attention_excess(op, s, load);
    if (s->traffic && s->traffic[op->kind] > 0) traffic *= s->traffic[op->kind];
    const bool starts = !s->updates_together || (class != PL_COST_UPDATE && !op->attr.joins);
    return (starts ? s->start_seconds : 0) + (compute > traffic ? compute : traffic);
}

double pl_op_runs(const struct pl_program *p, const struct pl_op *op, double micro_batches) {
    const bool scores =
        op->phase == PL_PHASE_REFERENCE || op->phase == pl_shape_scoring_phase(&p->shape);
    const bool forward = pl_phase_is_forward(op->phase);
    if (forward && (!p->shape.scored || !scores)) return 0;
    if (forward && p->shape.keeps_first_pass && op->phase != PL_PHASE_REFERENCE)
        return p->shape.has_partners ? micro_batches / 2 : 0;
    if (forward) return micro_batches;
    if (op->phase == PL_PHASE_OPTIMIZER) return 1;
    if (op->phase == PL_PHASE_MICRO && pl_op_rows[op->kind].cost == PL_COST_UPDATE) return 1;
    if (op->phase != PL_PHASE_MICRO) return 0;
    return op->attr.not_first ? micro_batches - 1 : micro_batches;
}

double pl_program_step_seconds(const struct pl_program *p, const struct pl_speed *s,
                               const struct pl_load *load, double of[PL_COST_COUNT]) {
    double sum = 0;
    for (int c = 0; of && c < PL_COST_COUNT; c++)
        of[c] = 0;
    for (uint32_t i = 0; i < p->n_ops; i++) {
        const double runs = pl_op_runs(p, &p->ops[i], load->micro_batches);
        const bool before = load->refers_before && p->ops[i].phase == PL_PHASE_REFERENCE;
        if (runs <= 0 || before) continue;
        const double seconds = runs * pl_op_seconds(p, &p->ops[i], s, load);
        if (of) of[pl_op_cost(&p->ops[i])] += seconds;
        sum += seconds;
    }
    return sum;
}

/* True for ops that a level of recomputation adds: they compute again, or copy to host memory and
 * back. */
static bool is_of_level(const struct pl_program *p, const struct pl_op *op) {
    return op->recompute || (pl_op_cost(op) == PL_COST_COPY &&
                             p->tensors[op->in[0].id].category == PL_CATEGORY_ACTIVATIONS);
}

static double phase_seconds(const struct pl_program *p, enum pl_phase phase,
                            const struct pl_speed *s, const struct pl_load *load, bool all) {
    const struct pl_phase_range *r = &p->phases[phase];
    double sum = 0;
    for (uint32_t i = r->first_op; i < r->first_op + r->n_ops; i++) {
        const struct pl_op *op = &p->ops[i];
        if (all || !is_of_level(p, op)) sum += pl_op_seconds(p, op, s, load) * pl_op_copies(p, op);
    }
    return sum;
}

/* The passes that score a micro-batch before it is learned from. */
static double scoring_seconds(const struct pl_program *p, const struct pl_speed *s,
                              const struct pl_load *load) {
    double sum = 0;
    for (int phase = 0; phase < PL_PHASE_COUNT; phase++) {
        const struct pl_phase_range *r = &p->phases[phase];
        if (!r->n_ops || !pl_phase_is_forward(phase)) continue;
        const double runs = pl_op_runs(p, &p->ops[r->first_op], 1);
        if (runs > 0) sum += runs * phase_seconds(p, phase, s, load, true);
    }
    return sum;
}

double pl_program_micro_seconds(const struct pl_program *p, const struct pl_speed *s) {
    const struct pl_load full = pl_load_full(p);
    return pl_program_load_seconds(p, s, &full);
}

double pl_program_load_seconds(const struct pl_program *p, const struct pl_speed *s,
                               const struct pl_load *load) {
    return phase_seconds(p, PL_PHASE_MICRO, s, load, true) + scoring_seconds(p, s, load);
}

double pl_program_first_seconds(const struct pl_program *p, const struct pl_speed *s) {
    const struct pl_load full = pl_load_full(p);
    return phase_seconds(p, PL_PHASE_MICRO, s, &full, false);
}

double pl_program_update_seconds(const struct pl_program *p, const struct pl_speed *s) {
    const struct pl_load full = pl_load_full(p);
    return phase_seconds(p, PL_PHASE_OPTIMIZER, s, &full, true);
}

double pl_program_seconds_per_token(const struct pl_program *p, const struct pl_speed *s) {
    return pl_program_micro_seconds(p, s) / (double)p->tokens;
}

/* --- between ranks --- */

/* The matrix whose rows are divided: what is spread, and what comes of the other ops. */
static const struct pl_operand *whole_of(const struct pl_op *op) {
    switch (op->kind) {
    case PL_OP_SPREAD:
        return &op->in[PL_SPREAD_G];
    case PL_OP_SHARE:
        return &op->out[PL_SHARE_OUT_X];
    case PL_OP_FETCH:
        return &op->out[PL_FETCH_OUT_X];
    default:
        return NULL;
    }
}

static uint64_t rows_of_rank(const struct pl_op *op, uint64_t rows, uint32_t rank) {
    const struct pl_attr *a = &op->attr;
    const struct pl_shard all = pl_shard_of(rows, a->block_rows, a->ranks, rank);
    return a->piece_rows ? pl_shard_piece(all, a->piece_row0, a->piece_rows).rows : all.rows;
}

/* Counts in rows. A rank's own rows go to, or come from, each of the others; rows of the others
 * pass once. */
struct pl_op_traffic pl_op_traffic(const struct pl_program *p, const struct pl_op *op) {
    const struct pl_operand *whole = whole_of(op);
    const uint32_t ranks = op->attr.ranks;
    uint64_t all = 0, most = 0, least = UINT64_MAX;
    if (!whole || ranks < 2) return (struct pl_op_traffic){0};
    const struct pl_tensor *t = &p->tensors[whole->id];
    const uint64_t rows = whole->nrows ? whole->nrows : t->dims[0];
    for (uint32_t r = 0; r < ranks; r++) {
        const uint64_t own = rows_of_rank(op, rows, r);
        all += own;
        most = pl_u64_max(most, own);
        least = pl_u64_min(least, own);
    }
    const uint64_t mine = rows_of_rank(op, rows, p->shape.rank);
    const uint64_t row_bytes = t->dims[1] * pl_dtype_bytes(t->dtype);
    const uint64_t sent = op->kind == PL_OP_SPREAD ? all - mine : mine * (ranks - 1);
    return (struct pl_op_traffic){.sent_bytes = sent * row_bytes,
                                  .busiest_bytes =
                                      pl_u64_max(most * (ranks - 1), all - least) * row_bytes};
}

double pl_program_sent_bytes(const struct pl_program *p, double micro_batches) {
    double bytes = 0;
    for (uint32_t i = 0; i < p->n_ops; i++) {
        const struct pl_op *op = &p->ops[i];
        if (pl_op_cost(op) != PL_COST_RANKS) continue;
        bytes += (double)pl_op_traffic(p, op).sent_bytes * pl_op_runs(p, op, micro_batches) *
                 pl_op_copies(p, op);
    }
    return bytes;
}
