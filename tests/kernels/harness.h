/* harness.h - conformance of kernels: random calls against references in double.
 *
 * A case builds the operands of one call (random shape, storage, windows) and computes their values
 * after it. The harness runs the kernel of every runner of the machine (runners.h) and holds it to:
 *   K1  |got - want| <= tolerance * scale + half a unit of the stored type
 *   K2  no byte outside the output windows changes, inputs and guard bytes included
 *   K3  the same call gives the same bits again
 *   K4  runners of one family give the same bits
 * A call that the builder could emit (emitted.h) must run. Any other may be refused, and then
 *   K5  the refusal is that of a broken plan, and no byte of an operand has changed
 * Workspace and outputs start as NaN, so nothing may rely on zeros.
 * Use: a row in an array of struct kernel_case, the array listed in check_kernels.c. */
#ifndef PL_TESTS_KERNELS_HARNESS_H
#define PL_TESTS_KERNELS_HARNESS_H

#include "estimator/ops/call.h"
#include "runtime/kernels/rng.h"
#include "tests/kernels/runners.h"

struct operand {
    struct pl_view view;
    unsigned char *memory; /* with guard bytes around the window */
    uint64_t bytes, skew;  /* memory + skew is aligned as device memory is */
    double *x;     /* [rows*cols] values before the call, as stored; floats, doubles and integers */
    double *want;  /* outputs: values after the call; starts as x */
    double *scale; /* outputs: sum of the magnitudes that want is added up from; 0 = |want| */
    bool is_output;
};

#define MAX_OPERANDS (PL_OP_MAX_IN + PL_OP_MAX_OUT)

struct trial {
    const struct kernel_case *test;
    const struct machine *machine;
    uint32_t round; /* 0..rounds-1: a case picks its edge shapes by number, then at random */
    struct pl_rng rng;
    uint64_t drawn;
    struct pl_attr attr;
    struct pl_batch batch; /* first = true, seed and step set; the case may change it */
    struct operand operands[MAX_OPERANDS];
    uint32_t n_operands;
    struct operand *in[PL_OP_MAX_IN], *out[PL_OP_MAX_OUT]; /* NULL = absent */
    int ws_in; /* index of the input that is the workspace, -1 = none */
    uint64_t ws_rows, ws_cols;
    /* Products: the back-end rounds fp32 inputs to bf16 if another operand is bf16, and takes a
     * bias in the type of its output only. */
    bool library_products;
};

struct kernel_case {
    const char *name;
    enum pl_op_kind kind;
    uint32_t rounds;
    double tolerance; /* tolerance of K1, per unit of scale */
    void (*build)(struct trial *t);
    void (*reference)(struct trial *t); /* fills want and scale of every output from x */
};

/* Random choices of a trial. */
uint64_t draw(struct trial *t, uint64_t low, uint64_t high); /* inclusive */
double draw_normal(struct trial *t);
/* The type of all narrow operands of a trial: each of PL_NARROW_MAP in turn. */
enum pl_dtype narrow_type(const struct trial *t);
enum pl_dtype draw_float(struct trial *t); /* F32, or the narrow type */

/* Operands. Matrices get a window with ld > cols about half of the time; vectors are [n,1]. In odd
 * rounds the floats of a trial have one storage and its rows start on multiples of 16 bytes.
 * Floats are filled with normal numbers, integers with 0 (set_value), outputs with NaN. */
struct operand *add_in(struct trial *t, uint32_t slot, uint64_t rows, uint64_t cols,
                       enum pl_dtype dtype);
struct operand *add_vector_in(struct trial *t, uint32_t slot, uint64_t n, enum pl_dtype dtype);
struct operand *add_out(struct trial *t, uint32_t slot, uint64_t rows, uint64_t cols,
                        enum pl_dtype dtype);
struct operand *add_vector_out(struct trial *t, uint32_t slot, uint64_t n, enum pl_dtype dtype);
/* A matrix whose rows lie one after another, as windows of whole rows do; in even rounds it starts
 * at any element. */
struct operand *add_run_in(struct trial *t, uint32_t slot, uint64_t rows, uint64_t cols,
                           enum pl_dtype dtype);
struct operand *add_run_out(struct trial *t, uint32_t slot, uint64_t rows, uint64_t cols,
                            enum pl_dtype dtype);
/* Makes an input an output too (updated in place). */
void also_out(struct trial *t, struct operand *o, uint32_t out_slot);
/* Makes an operand stand in one more input slot (dx that is dy itself). */
void also_in(struct trial *t, struct operand *o, uint32_t in_slot);
/* Workspace by pl_op_workspace_bytes(); nothing is added when the rule says 0. */
void add_ws(struct trial *t, uint32_t slot, uint64_t rows, uint64_t cols);
/* Adds the workspace of a product, after its other operands. */
void add_product_ws(struct trial *t, uint32_t slot);
/* Returns the result of storing a value and reading it back. */
double as_stored(enum pl_dtype dtype, double value);
/* Stores a value (rounded to the type) in memory, x and want. */
void set_value(struct operand *o, uint64_t row, uint64_t col, double value);
/* x[row,col], want[row,col], scale[row,col] */
static inline double *value_at(const struct operand *o, double *base, uint64_t row, uint64_t col) {
    return base + row * o->view.cols + col;
}

/* Runs the rounds of a case that are of this list on all runners; fails the running Check test,
 * also where no round is one that the builder could emit. */
enum trial_list { TRIALS_EMITTED, TRIALS_OUTSIDE, TRIAL_LISTS };
void run_case(const struct kernel_case *test, enum trial_list list);

/* Compares central differences of loss(ctx) by each x[i] with gradient[i]: proves a reference
 * backward function by its forward one. loss must be smooth and of order 1 around x. */
void check_gradient(const char *what, double (*loss)(void *ctx), void *ctx, double *x, uint64_t n,
                    const double *gradient);

#endif
