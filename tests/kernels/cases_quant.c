/* cases_quant.c - DEQUANT4, EMBED4 and ADAMW_8BIT. Bits and tables are held to recorded ones by
 * check_quant_golden.c; here it is shapes, windows, storage and the arithmetic. */
#include "runtime/kernels/quant.h"
#include "tests/kernels/cases.h"

#include <math.h>

struct shape {
    uint64_t rows, cols;
};

/* Half blocks, odd counts, one nest of 256 blocks and one more element, several nests. */
static struct shape draw_shape(struct trial *t) {
    static const struct shape edges[] = {{0, 3},   {1, 1},     {1, 63},  {1, 64},    {5, 13},
                                         {1, 255}, {1, 16385}, {37, 37}, {130, 136}, {72, 60}};
    if (t->round < sizeof edges / sizeof *edges) return edges[t->round];
    struct shape s;
    s.rows = draw(t, 1, 200);
    s.cols = draw(t, 1, 200);
    return s;
}

static struct operand *add_bytes(struct trial *t, uint32_t slot, uint64_t n) {
    struct operand *o = add_run_in(t, slot, n, 1, PL_DTYPE_U8);
    for (uint64_t i = 0; i < n; i++)
        set_value(o, i, 0, (double)draw(t, 0, 255));
    return o;
}

/* ---- DEQUANT4 ---- */

/* Some columns of a matrix of more, in every other round after the edges: blocks of both. */
static struct shape draw_window(struct trial *t) {
    struct shape s = draw_shape(t);
    const uint64_t before = draw(t, 0, 3), after = draw(t, 0, 3);
    if (t->round < 10 || t->round % 2) return s;
    s.cols = 64 * draw(t, 1, 3);
    t->attr.columns = (uint32_t)(64 * (before + after) + s.cols);
    t->attr.first_element = 64 * before + t->attr.columns * draw(t, 0, 100);
    return s;
}

/* Returns the position of element i of w in the codes. */
static uint64_t in_codes(const struct trial *t, uint64_t i, uint64_t cols) {
    const uint64_t columns = t->attr.columns ? t->attr.columns : cols;
    return t->attr.first_element + i / cols * columns + i % cols;
}

/* Several matrices in every third round after the edges; each has some rows after the window, and
 * w has some between those of two. */
static uint64_t draw_matrices(struct trial *t, struct shape s, uint64_t n) {
    const uint64_t after = s.cols * draw(t, 0, 3), between = draw(t, 0, 2);
    const uint64_t matrices = draw(t, 1, 5);
    if (t->round < 10 || t->round % 3) return 1;
    t->attr.matrices = (uint32_t)matrices;
    t->attr.matrix_elements = n + after;
    t->attr.matrix_stride = s.rows + between;
    return matrices;
}

static void build_dequant(struct trial *t, bool nested) {
    const struct shape s = draw_window(t);
    const uint64_t n = s.rows ? in_codes(t, s.rows * s.cols - 1, s.cols) + 1 : 0;
    const uint64_t matrices = draw_matrices(t, s, n), rows = (matrices - 1) * t->attr.matrix_stride;
    const uint64_t each = t->attr.matrices ? t->attr.matrix_elements : n;
    const uint64_t blocks = pl_quant_blocks(each);
    const uint64_t nests = pl_quant_nests(each) + (t->attr.matrices ? 1 : 0);
    t->attr.quant = t->round / 2 % 2 ? PL_QUANT_FP4 : PL_QUANT_NF4;
    add_bytes(t, 0, matrices * pl_quant_codes_bytes(each));
    add_run_in(t, 1, matrices * (nested ? nests : blocks), 1, PL_DTYPE_F32);
    if (nested) {
        add_bytes(t, 2, matrices * blocks);
        if (!t->attr.matrices) add_run_in(t, 3, 1, 1, PL_DTYPE_F32);
    }
    add_run_out(t, 0, rows + s.rows, s.cols, draw_float(t));
}

static void build_dequant_single(struct trial *t) {
    build_dequant(t, false);
}
static void build_dequant_double(struct trial *t) {
    build_dequant(t, true);
}

/* Element i of codes, absmax, absmax8 and offset, the first of which is operand `first`, of the
 * matrix of this number. */
static double element_of(const struct trial *t, uint32_t first, uint64_t number, uint64_t i,
                         double *scale) {
    const uint64_t each = t->attr.matrix_elements, nests = pl_quant_nests(each);
    const struct operand *absmax8 = t->in[first + 2];
    const double *codes = t->in[first]->x + number * pl_quant_codes_bytes(each);
    const double *absmax =
        t->in[first + 1]->x + number * (absmax8 ? nests + 1 : pl_quant_blocks(each));
    const uint64_t b = i / 64;
    const int both = (int)codes[i / 2], code = i % 2 ? both % 16 : both / 16;
    const double value = pl_quant_table(t->attr.quant)[code];
    float map[PL_QUANT_MAP_SIZE];
    if (!absmax8) {
        *scale = fabs(value * absmax[b]);
        return value * absmax[b];
    }
    pl_quant_map_values(true, map);
    const int code8 = (int)absmax8->x[number * pl_quant_blocks(each) + b];
    const double own = (double)map[code8] * absmax[b / 256];
    const double offset = t->attr.matrices ? absmax[nests] : t->in[first + 3]->x[0];
    *scale = fabs(value) * (fabs(own) + fabs(offset));
    return value * (own + offset);
}

/* Matrices of whole blocks of 32 rows, of which some rows are unpacked; scales up to the largest
 * with which no value is infinite, and down to the least, but those of numbers of fp16. */
static void build_dequant_mx(struct trial *t) {
    const uint64_t blocks = draw(t, 1, 4), cols = 2 * draw(t, 1, 300);
    const uint64_t matrices = draw(t, 1, 4), between = draw(t, 0, 3);
    const uint64_t rows = t->round ? draw(t, 1, 32 * blocks) : 0;
    const enum pl_dtype type = draw_float(t);
    const bool small = type == PL_DTYPE_F16;
    t->attr.quant = PL_QUANT_MXFP4;
    if (t->round % 3 && rows) {
        t->attr.matrices = (uint32_t)matrices;
        t->attr.matrix_elements = 32 * blocks * cols;
        t->attr.matrix_stride = rows + between;
    }
    const uint64_t n = t->attr.matrices ? matrices : 1;
    add_bytes(t, 0, n * 32 * blocks * cols / 2);
    struct operand *scales = add_run_in(t, 1, n * blocks * cols, 1, PL_DTYPE_U8);
    for (uint64_t i = 0; i < n * blocks * cols; i++)
        set_value(scales, i, 0, (double)(small ? draw(t, 117, 137) : draw(t, 0, 251)));
    add_run_out(t, 0, (n - 1) * t->attr.matrix_stride + rows, cols, type);
}

static void reference_dequant_mx(struct trial *t) {
    static const double table[8] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
    const struct operand *w = t->out[0];
    const uint64_t cols = w->view.cols, n = t->attr.matrices ? t->attr.matrices : 1;
    const uint64_t apart = t->attr.matrix_stride * cols, each = t->attr.matrix_elements;
    for (uint64_t i = 0; i < w->view.rows * cols; i++) {
        const uint64_t number = n > 1 ? i / apart : 0, at = i - number * apart;
        const uint64_t rows = w->view.rows - (n - 1) * t->attr.matrix_stride;
        const int both = (int)t->in[0]->x[(number * each + at) / 2];
        const int code = at % 2 ? both % 16 : both / 16;
        const double scale = t->in[1]->x[number * each / 32 + at / cols / 32 * cols + at % cols];
        const double value = ldexp(table[code % 8], (int)scale - 127);
        w->want[i] = at >= rows * cols ? NAN : code / 8 ? -value : value;
        w->scale[i] = value;
    }
}

static void reference_dequant(struct trial *t) {
    const struct operand *w = t->out[0];
    const uint64_t cols = w->view.cols, matrices = t->attr.matrices ? t->attr.matrices : 1;
    const uint64_t apart = t->attr.matrix_stride * cols;
    const uint64_t each = w->view.rows * cols - (matrices - 1) * apart;
    for (uint64_t i = 0; i < w->view.rows * cols; i++) {
        const uint64_t number = matrices > 1 ? i / apart : 0, at = i - number * apart;
        w->want[i] =
            at < each ? element_of(t, 0, number, in_codes(t, at, cols), &w->scale[i]) : NAN;
    }
}

/* ---- EMBED4 ---- */

/* Rows that begin inside a block, rows of several blocks; more than a nest of blocks. */
static void build_embed4(struct trial *t, bool nested) {
    const struct {
        uint64_t rows, cols, vocab;
    } edges[] = {{0, 2, 3}, {1, 2, 1}, {5, 64, 3}, {3, 34, 9}, {7, 30, 700}, {4, 1030, 5}};
    const bool edge = t->round < sizeof edges / sizeof *edges;
    const uint64_t rows = edge ? edges[t->round].rows : draw(t, 0, 100);
    const uint64_t cols = edge ? edges[t->round].cols : 2 * draw(t, 1, 100);
    const uint64_t vocab = edge ? edges[t->round].vocab : draw(t, 1, 300);
    const uint64_t n = vocab * cols, blocks = pl_quant_blocks(n);
    t->attr.quant = t->round % 2 ? PL_QUANT_FP4 : PL_QUANT_NF4;
    t->attr.scale = draw(t, 0, 1) ? 8 : 0; /* a power of two, by which nothing is rounded */
    struct operand *ids = add_vector_in(t, 0, rows, PL_DTYPE_I32);
    for (uint64_t i = 0; i < rows; i++)
        set_value(ids, i, 0, (double)draw(t, 0, vocab - 1));
    add_bytes(t, 1, n / 2);
    add_run_in(t, 2, nested ? pl_quant_nests(n) : blocks, 1, PL_DTYPE_F32);
    if (nested) {
        add_bytes(t, 3, blocks);
        add_run_in(t, 4, 1, 1, PL_DTYPE_F32);
    }
    add_out(t, 0, rows, cols, draw_float(t));
}

static void build_embed4_single(struct trial *t) {
    build_embed4(t, false);
}
static void build_embed4_double(struct trial *t) {
    build_embed4(t, true);
}

static void reference_embed4(struct trial *t) {
    const struct operand *x = t->out[0];
    const double factor = t->attr.scale > 0 ? (double)t->attr.scale : 1;
    for (uint64_t i = 0; i < x->view.rows * x->view.cols; i++) {
        const uint64_t id = (uint64_t)t->in[0]->x[i / x->view.cols];
        x->want[i] =
            factor * element_of(t, 1, 0, id * x->view.cols + i % x->view.cols, &x->scale[i]);
        x->scale[i] *= factor;
        if (x->view.dtype == PL_DTYPE_F16) /* a subnormal number is rounded before it is scaled */
            x->scale[i] += factor * 0x1p-25 / t->test->tolerance;
    }
}

/* ---- ADAMW_8BIT ---- */

enum { W, G, M, V, CLIP, M_ABSMAX, V_ABSMAX, MASTER };

static void set_rates(struct trial *t) {
    t->attr.decay = draw(t, 0, 1);
    t->batch.step = draw(t, 1, 5);
    t->batch.learning_rate = 1e-3 * (double)draw(t, 0, 20);
    t->batch.weight_decay = 0.1;
    t->batch.beta1 = 0.9;
    t->batch.beta2 = 0.999;
    t->batch.epsilon = 1e-8;
}

/* Gradients of any size, so that moments meet every decade of the maps; a block of zeros. */
static void spread_gradient(struct trial *t, struct shape s, bool zero_block) {
    struct operand *g = t->in[G];
    for (uint64_t i = 0; i < s.rows * s.cols; i++) {
        const double size = pow(10, -(double)draw(t, 0, 7));
        set_value(g, i / s.cols, i % s.cols, zero_block && i < 256 ? 0 : size * g->x[i]);
    }
}

static void add_moment_codes(struct trial *t, uint32_t slot, struct shape s, bool zero_block) {
    struct operand *o = add_run_in(t, slot, s.rows, s.cols, PL_DTYPE_U8);
    for (uint64_t i = 0; i < s.rows * s.cols; i++)
        set_value(o, i / s.cols, i % s.cols, (double)draw(t, 0, 255));
    also_out(t, o, slot - 1);
    const uint32_t absmax = slot - M + M_ABSMAX;
    struct operand *a = add_run_in(t, absmax, pl_state8_blocks(s.rows * s.cols), 1, PL_DTYPE_F32);
    for (uint64_t b = 0; b < a->view.rows; b++)
        set_value(a, b, 0, zero_block && b == 0 ? 0 : fabs(a->x[b]));
    also_out(t, a, absmax - 2);
}

static void add_moment_floats(struct trial *t, uint32_t slot, struct shape s) {
    struct operand *o = add_run_in(t, slot, s.rows, s.cols, PL_DTYPE_F32);
    for (uint64_t i = 0; slot == V && i < s.rows * s.cols; i++)
        set_value(o, i / s.cols, i % s.cols, o->x[i] * o->x[i]);
    also_out(t, o, slot - 1);
}

static void build_update(struct trial *t, bool coded, enum pl_dtype w, bool master) {
    const struct shape s = draw_shape(t);
    const bool zero_block = t->round % 4 == 1;
    set_rates(t);
    also_out(t, add_run_in(t, W, s.rows, s.cols, w), 0);
    add_run_in(t, G, s.rows, s.cols, draw_float(t));
    spread_gradient(t, s, zero_block);
    for (uint32_t slot = M; slot <= V; slot++)
        if (coded)
            add_moment_codes(t, slot, s, zero_block);
        else
            add_moment_floats(t, slot, s);
    struct operand *clip = add_vector_in(t, CLIP, 2, PL_DTYPE_F64);
    set_value(clip, 1, 0, t->round % 5 == 3 ? NAN : (double)draw(t, 1, 4) / 4);
    if (master) also_out(t, add_run_in(t, MASTER, s.rows, s.cols, PL_DTYPE_F32), 5);
}

static void build_8bit_fp32(struct trial *t) {
    build_update(t, true, PL_DTYPE_F32, false);
}
static void build_8bit_master(struct trial *t) {
    build_update(t, true, PL_DTYPE_BF16, true);
}
static void build_8bit_floats(struct trial *t) {
    build_update(t, false, PL_DTYPE_F32, false);
}

/* A moment before and after the update, with the magnitudes that made it. */
struct moment {
    const struct operand *codes, *absmax; /* absmax NULL = codes are values */
    float map[PL_QUANT_MAP_SIZE];
    bool is_signed;
    double value[256], size[256];
};

static struct moment moment_of(struct trial *t, uint32_t slot) {
    struct moment m = {
        .codes = t->in[slot], .absmax = t->in[slot - M + M_ABSMAX], .is_signed = slot == M};
    pl_quant_map_values(m.is_signed, m.map);
    return m;
}

static double decoded(const struct moment *m, uint64_t i) {
    if (!m->absmax) return m->codes->x[i];
    return (double)m->map[(int)m->codes->x[i]] * m->absmax->x[i / 256];
}

/* The nearest entry; *is_near_tie where an error of `room` could choose another. */
static int nearest(const struct moment *m, double unit, double room, bool *is_near_tie) {
    int code = 0;
    *is_near_tie = false;
    for (int k = 0; k < 255; k++) {
        const double middle = ((double)m->map[k] + (double)m->map[k + 1]) / 2;
        code += unit > middle;
        *is_near_tie |= fabs(unit - middle) <= room;
    }
    if (m->is_signed && unit < 0 && code == 127) code = 126;
    if (m->is_signed && fabs(unit) <= room) *is_near_tie = true;
    return code;
}

static void expect_codes(const struct moment *m, double tolerance, uint64_t first, uint64_t n) {
    double most = 0, size = 0;
    for (uint64_t i = 0; i < n; i++) {
        most = fmax(most, fabs(m->value[i]));
        size = fmax(size, m->size[i]);
    }
    m->absmax->want[first / 256] = most;
    m->absmax->scale[first / 256] = size;
    for (uint64_t i = 0; i < n; i++) {
        bool near_tie = false;
        const double room =
            most > 0 ? 1e-6 * (m->size[i] + size * fabs(m->value[i] / most)) / most : 0;
        m->codes->want[first + i] = most > 0 ? nearest(m, m->value[i] / most, room, &near_tie) : 0;
        m->codes->scale[first + i] = near_tie ? 1 / tolerance : 1e-30;
    }
}

static void expect_moment(const struct moment *m, double tolerance, uint64_t first, uint64_t n) {
    if (m->absmax) {
        expect_codes(m, tolerance, first, n);
        return;
    }
    for (uint64_t i = 0; i < n; i++) {
        m->codes->want[first + i] = m->value[i];
        m->codes->scale[first + i] = m->size[i];
    }
}

/* p -= lr c2/c1 m / (sqrt(v) + c2 eps), then p *= 1 - lr wd. */
static void expect_weight(struct trial *t, uint64_t i, double m, double m_size, double v) {
    const struct pl_batch *b = &t->batch;
    const struct operand *from = t->in[MASTER] ? t->in[MASTER] : t->in[W];
    const double c1 = 1 - pow(b->beta1, (double)b->step);
    const double c2 = sqrt(1 - pow(b->beta2, (double)b->step));
    const double rate = b->learning_rate * c2 / c1 / (sqrt(v) + c2 * b->epsilon);
    const double decay = t->attr.decay ? 1 - b->learning_rate * b->weight_decay : 1;
    for (uint32_t k = 0; k <= 5; k += 5) {
        if (!t->out[k]) continue;
        t->out[k]->want[i] = (from->x[i] - rate * m) * decay;
        t->out[k]->scale[i] = fabs(from->x[i]) + rate * m_size;
    }
}

static void reference_8bit(struct trial *t) {
    const struct pl_batch *b = &t->batch;
    const double clip = t->in[CLIP]->x[1];
    const uint64_t n = t->in[W]->view.rows * t->in[W]->view.cols;
    struct moment m = moment_of(t, M), v = moment_of(t, V);
    if (isnan(clip)) return; /* untouched: what stood there is what is wanted */
    for (uint64_t first = 0; first < n; first += 256) {
        const uint64_t block = n - first < 256 ? n - first : 256;
        for (uint64_t j = 0; j < block; j++) {
            const uint64_t i = first + j;
            const double g = clip * t->in[G]->x[i], old = decoded(&m, i);
            m.value[j] = b->beta1 * old + (1 - b->beta1) * g;
            m.size[j] = fabs(b->beta1 * old) + fabs((1 - b->beta1) * g);
            v.value[j] = v.size[j] = b->beta2 * decoded(&v, i) + (1 - b->beta2) * g * g;
            expect_weight(t, i, m.value[j], m.size[j], v.value[j]);
        }
        expect_moment(&m, t->test->tolerance, first, block);
        expect_moment(&v, t->test->tolerance, first, block);
    }
}

const struct kernel_case cases_quant[] = {
    {"dequant4", PL_OP_DEQUANT4, 40, 1.5e-7, build_dequant_single, reference_dequant},
    {"dequant4, nested", PL_OP_DEQUANT4, 40, 2e-7, build_dequant_double, reference_dequant},
    {"dequant4, mxfp4", PL_OP_DEQUANT4, 40, 0, build_dequant_mx, reference_dequant_mx},
    {"embed4", PL_OP_EMBED4, 24, 1.5e-7, build_embed4_single, reference_embed4},
    {"embed4, nested", PL_OP_EMBED4, 24, 2e-7, build_embed4_double, reference_embed4},
    {"adamw_8bit, fp32", PL_OP_ADAMW_8BIT, 24, 5e-7, build_8bit_fp32, reference_8bit},
    {"adamw_8bit, bf16 and master", PL_OP_ADAMW_8BIT, 24, 5e-7, build_8bit_master, reference_8bit},
    {"adamw_8bit, fp32 moments", PL_OP_ADAMW_8BIT, 16, 5e-7, build_8bit_floats, reference_8bit},
    {0},
};
