/* ops.h - the op kinds of a step program, their operands by name, and their rows at run time.
 *
 * In: op_rows.h, where every op has its row.  Out: enum pl_op_kind; the index of each operand,
 * PL_LINEAR_W in the inputs of a LINEAR, PL_LINEAR_OUT_Y in its outputs; the rows at run time.
 * Needs: dtype.h. */
#ifndef PL_ESTIMATOR_OPS_OPS_H
#define PL_ESTIMATOR_OPS_OPS_H

#include "estimator/ops/dtype.h"

#include <stdbool.h>
#include <stdint.h>

#define PL_OP_MAX_IN  10
#define PL_OP_MAX_OUT 6
/* The most states of an update: four of its inputs are other operands. */
#define PL_STATES_MAX 4

enum pl_op_kind {
#define PL_OP(KIND, name, COST, RUNS, what, INPUTS, OUTPUTS) PL_OP_##KIND,
#include "estimator/ops/op_rows.h"
    PL_OP_COUNT
};

/* Indices of operands: PL_LINEAR_X = 0 and so on, PL_LINEAR_N_IN of them; PL_LINEAR_OUT_Y = 0,
 * PL_LINEAR_N_OUT. */
enum pl_op_place {
#define PL_IN(KIND, ID, name, TYPE, USE, ROWS, COLS)  PL_##KIND##_##ID,
#define PL_OUT(KIND, ID, name, TYPE, USE, ROWS, COLS) PL_##KIND##_OUT_##ID,
#define PL_OP(KIND, name, COST, RUNS, what, INPUTS, OUTPUTS)                                       \
    PL_##KIND##_BEFORE_IN_ = -1, INPUTS PL_##KIND##_N_IN, PL_##KIND##_BEFORE_OUT_ = -1,            \
    OUTPUTS PL_##KIND##_N_OUT,
#include "estimator/ops/op_rows.h"
};

/* Classes of ops by what limits their speed. X(CLASS, "name") */
#define PL_COST_MAP(X)                                                                             \
    X(ROWS, "row-wise") /* norms, activations, the loss: bound by memory */                        \
    X(PRODUCT, "products")                                                                         \
    X(ATTENTION, "attention")                                                                      \
    X(DEQUANT, "dequantisation")                                                                   \
    X(UPDATE, "update") /* norm of the gradients, optimizer */                                     \
    X(RANKS, "ranks")   /* between the devices of a job */                                         \
    X(COPY, "copies")   /* between host memory and the device's */                                 \
    X(HOST, "host")     /* work of the host's processor for a GPU; no row has this class */

enum pl_cost {
#define X(c, name) PL_COST_##c,
    PL_COST_MAP(X)
#undef X
        PL_COST_COUNT
};

/* How an op runs on a back-end: one call each; neighbours of one kind as one call, if the back-end
 * can; not at all. */
enum pl_op_runs { PL_RUNS_ALONE, PL_RUNS_TOGETHER, PL_RUNS_NO_KERNEL };
/* Expands to the text or to nothing, by the token RUNS of a row. */
#define PL_WITH_KERNEL_ALONE(...)    __VA_ARGS__
#define PL_WITH_KERNEL_TOGETHER(...) __VA_ARGS__
#define PL_WITH_KERNEL_NO_KERNEL(...)
#define PL_WITH_GROUP_ALONE(...)
#define PL_WITH_GROUP_TOGETHER(...) __VA_ARGS__
#define PL_WITH_GROUP_NO_KERNEL(...)

/* Element types that an operand may be stored in. X(TYPE, types as bits, "in a shape") */
#define PL_OPERAND_TYPE_MAP(X)                                                                     \
    X(FLOAT, 0u PL_FLOAT_MAP(PL_DTYPE_BIT), "")                                                    \
    X(F32, 1u << PL_DTYPE_F32, "f32")                                                              \
    X(F64, 1u << PL_DTYPE_F64, "f64")                                                              \
    X(I32, 1u << PL_DTYPE_I32, "i32")                                                              \
    X(U64, 1u << PL_DTYPE_U64, "u64")                                                              \
    X(U8, 1u << PL_DTYPE_U8, "u8")                                                                 \
    X(REAL, 1u << PL_DTYPE_F64 PL_FLOAT_MAP(PL_DTYPE_BIT), "")                                     \
    X(CODED, 1u << PL_DTYPE_F32 | 1u << PL_DTYPE_U8, "") /* codes, or fp32 */                      \
    X(ANY, ~0u, "")

enum pl_operand_type {
#define X(type, types, text) PL_TYPE_##type,
    PL_OPERAND_TYPE_MAP(X)
#undef X
        PL_TYPE_COUNT
};

/* OPTIONAL: may be absent, and so may every MAYBE. IN_PLACE: an input that is also the output of
 * the same name. MAYBE_IN_PLACE: an input with the name of a NEEDED output; it is present if the op
 * adds to the output. SCRATCH: has pl_op_workspace_bytes() bytes, and is absent if that is 0. */
enum pl_operand_use {
    PL_USE_NEEDED,
    PL_USE_OPTIONAL,
    PL_USE_IN_PLACE,
    PL_USE_MAYBE_IN_PLACE,
    PL_USE_SCRATCH
};

/* Dimensions. A letter is one number within an op, wherever it stands, and may be another one in
 * another op; the others follow from a letter: base * times / per, rounded up, + plus. ELEMENTS is
 * O*K. X(DIM, "in a shape", base, times, per, plus) */
#define PL_DIM_MAP(X)                                                                              \
    X(ANY, "..", ANY, 1, 1, 0)                                                                     \
    X(ONE, "1", ANY, 0, 1, 1)                                                                      \
    X(TWO, "2", ANY, 0, 1, 2)                                                                      \
    X(N, "N", N, 1, 1, 0) /* tokens of the micro-batch */                                          \
    X(T, "T", T, 1, 1, 0) /* supervised tokens */                                                  \
    X(B, "B", B, 1, 1, 0) /* sequences */                                                          \
    X(C, "C", C, 1, 1, 0) /* hidden */                                                             \
    X(V, "V", V, 1, 1, 0) /* vocabulary */                                                         \
    X(O, "O", O, 1, 1, 0) /* rows of a matrix: size of its output */                               \
    X(K, "K", K, 1, 1, 0) /* columns of a matrix: size of its input */                             \
    X(F, "F", F, 1, 1, 0) /* inner size of the MLP */                                              \
    X(H, "H", H, 1, 1, 0) /* query heads */                                                        \
    X(D, "D", D, 1, 1, 0) /* size of a head */                                                     \
    X(HD, "H*D", HD, 1, 1, 0)                                                                      \
    X(GD, "G*D", GD, 1, 1, 0) /* G heads of keys and values */                                     \
    X(R, "R", R, 1, 1, 0)     /* rows of the KV cache */                                           \
    X(S, "S", S, 1, 1, 0)     /* positions of a rope table */                                      \
    X(M, "M", M, 1, 1, 0)     /* trainable tensors */                                              \
    X(E, "E", E, 1, 1, 0)     /* experts */                                                        \
    X(KE, "k", KE, 1, 1, 0)   /* experts of a token */                                             \
    X(P, "P", P, 1, 1, 0)     /* routed rows: N*k */                                               \
    X(EO, "E*O", EO, 1, 1, 0) /* rows of the matrices of experts: some of them, or all */          \
    X(EK, "E*K", EK, 1, 1, 0)                                                                      \
    X(CH, "CH", CH, 1, 1, 0)  /* channels of a convolution */                                      \
    X(TAPS, "taps", TAPS, 1, 1, 0)                                                                 \
    X(PAIRS, "rot/2,2", PAIRS, 1, 1, 0)                                                            \
    X(ELEMENTS, "n", ELEMENTS, 1, 1, 0)                                                            \
    X(ENDS, "B+1", B, 1, 1, 1)                                                                     \
    X(EXPERT_ENDS, "E+1", E, 1, 1, 1)                                                              \
    X(E2, "2E", E, 2, 1, 0)                                                                        \
    X(H2, "2H", H, 2, 1, 0)                                                                        \
    X(HD2, "2H*D", HD, 2, 1, 0)                                                                    \
    X(F2, "2F", F, 2, 1, 0)                                                                        \
    X(CODES, "n/2", ELEMENTS, 1, 2, 0)                                                             \
    X(BLOCKS, "n/64", ELEMENTS, 1, 64, 0)                                                          \
    X(NESTS, "n/16384", ELEMENTS, 1, 16384, 0)                                                     \
    X(STATES, "n/256", ELEMENTS, 1, 256, 0)

enum pl_dim {
#define X(dim, text, base, times, per, plus) PL_DIM_##dim,
    PL_DIM_MAP(X)
#undef X
        PL_DIM_COUNT
};

struct pl_operand_row {
    const char *name;
    enum pl_operand_type type : 8;
    enum pl_operand_use use : 8;
    enum pl_dim rows : 8, cols : 8;
};

struct pl_op_row {
    const char *name, *what;
    enum pl_cost cost;
    enum pl_op_runs runs;
    uint8_t n_in, n_out;
    struct pl_operand_row in[PL_OP_MAX_IN + 1], out[PL_OP_MAX_OUT + 1]; /* a name NULL ends the
                                                                           list */
};
extern const struct pl_op_row pl_op_rows[]; /* [PL_OP_COUNT] */
static inline const char *pl_op_name(enum pl_op_kind k) {
    return pl_op_rows[k].name;
}

/* Returns the first op of the gradient of an op; PL_OP_COUNT if it has none. */
enum pl_op_kind pl_op_gradient(enum pl_op_kind of);
/* True if `kind` is one of the ops of the gradient of `of`. */
bool pl_op_is_gradient(enum pl_op_kind kind, enum pl_op_kind of);

static inline bool pl_operand_may_be_absent(const struct pl_operand_row *o) {
    return o->use != PL_USE_NEEDED && o->use != PL_USE_IN_PLACE;
}
static inline bool pl_operand_in_place(const struct pl_operand_row *o) {
    return o->use == PL_USE_IN_PLACE || o->use == PL_USE_MAYBE_IN_PLACE;
}
/* True if a tensor of type t may be such an operand. */
bool pl_operand_takes(const struct pl_operand_row *o, enum pl_dtype t);

struct pl_text;
/* Appends "W[O,K]", "rstd[N]f32", "bias?[O]" or "x[N,C]!", as the reference of operations writes
 * operands. */
void pl_operand_describe(const struct pl_operand_row *o, struct pl_text *out);

/* The sizes of a row's letters in one op. */
struct pl_dims {
    uint64_t of[PL_DIM_COUNT]; /* 0 = not known yet */
};
/* True if rows x cols may be the shape of this operand; records the sizes of its letters. Operands
 * whose dimensions are letters are checked before those that follow from them. */
bool pl_dims_fit(struct pl_dims *dims, const struct pl_operand_row *o, uint64_t rows,
                 uint64_t cols);

#endif
