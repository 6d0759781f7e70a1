/* init.c - starting values. A value is a function of (seed, kind, row, layer, element) alone:
 * neither the size of staging nor the fusing of matrices nor the LoRA targets move it. */
#include "runtime/checkpoint/windows.h"
#include "runtime/kernels/rng.h"

#include <math.h>

enum start { START_NORMAL, START_ONE, START_ZERO };

static const enum start slot_start[PL_SLOT_COUNT] = {
    [PL_SLOT_NORM1] = START_ONE, [PL_SLOT_NORM2] = START_ONE, [PL_SLOT_NORMF] = START_ONE,
    [PL_SLOT_QNORM] = START_ONE, [PL_SLOT_KNORM] = START_ONE, [PL_SLOT_QKV_B] = START_ZERO,
    [PL_SLOT_O_B] = START_ZERO,  [PL_SLOT_GU_B] = START_ZERO, [PL_SLOT_DOWN_B] = START_ZERO,
};

/* Streams of the room; the value of `kind` in the derivation of a stream. */
enum stream { STREAM_WEIGHT = 1, STREAM_LORA_A };

struct init {
    double scale; /* standard deviation, or half width */
    struct pl_rng rng;
};

/* The stream of one window; first is a multiple of 4, so random blocks are never split. */
static struct pl_rng window_stream(uint64_t seed, enum stream kind, uint32_t row, uint32_t layer) {
    return pl_rng_init(seed, kind, (uint64_t)row << 32 | layer);
}

static void fill_normal(void *ctx, const struct pl_window *w, uint64_t first, uint64_t n,
                        float *out) {
    const struct init *init = ctx;
    (void)w;
    for (uint64_t i = 0; i < n; i += 4) {
        float x[4];
        pl_rng_normal(&init->rng, (first + i) / 4, x);
        for (uint64_t k = 0; k < 4 && i + k < n; k++)
            out[i + k] = (float)init->scale * x[k];
    }
}

static void fill_uniform(void *ctx, const struct pl_window *w, uint64_t first, uint64_t n,
                         float *out) {
    const struct init *init = ctx;
    const double unit = 1.0 / 4294967296.0;
    (void)w;
    for (uint64_t i = 0; i < n; i += 4) {
        uint32_t x[4];
        pl_rng_block(&init->rng, (first + i) / 4, x);
        for (uint64_t k = 0; k < 4 && i + k < n; k++)
            out[i + k] = (float)(init->scale * (2.0 * ((x[k] + 0.5) * unit) - 1.0));
    }
}

static void fill_constant(void *ctx, const struct pl_window *w, uint64_t first, uint64_t n,
                          float *out) {
    const struct init *init = ctx;
    (void)w, (void)first;
    for (uint64_t i = 0; i < n; i++)
        out[i] = (float)init->scale;
}

static pl_err init_weight(const struct pl_window *w, const struct pl_tensor_io *io, uint64_t seed,
                          struct pl_diag *d) {
    const struct pl_tensor *t = &io->program->tensors[w->tensor];
    enum start start = slot_start[t->slot];
    struct init init = {0};
    if (start == START_NORMAL) {
        init.scale = io->program->model->initializer_range;
        init.rng = window_stream(seed, STREAM_WEIGHT, w->row, t->layer);
        return pl_window_store(w, io, fill_normal, &init, d);
    }
    init.scale = start == START_ONE ? 1 : 0;
    return pl_window_store(w, io, fill_constant, &init, d);
}

/* torch.nn.init.kaiming_uniform_(A, a=sqrt(5)), which is U(-1/sqrt(in), 1/sqrt(in)); B = 0, so that
 * training starts from the base model. */
static pl_err init_adapter(const struct pl_window *w, const struct pl_tensor_io *io, uint64_t seed,
                           struct pl_diag *d) {
    const struct pl_tensor *t = &io->program->tensors[w->tensor];
    struct init init = {0};
    if (t->role == PL_ROLE_LORA_B) return pl_window_store(w, io, fill_constant, &init, d);
    init.scale = 1.0 / sqrt((double)w->dims[1]);
    init.rng = window_stream(seed, STREAM_LORA_A, w->row, t->layer);
    return pl_window_store(w, io, fill_uniform, &init, d);
}

pl_err pl_model_init_random(const struct pl_tensor_io *io, uint64_t seed, struct pl_diag *d) {
    struct pl_windows w = {0};
    pl_err err = pl_windows_add_model(&w, io->program, d);
    for (uint32_t i = 0; i < w.n && err == PL_ERR_OK; i++)
        err = init_weight(&w.items[i], io, seed, d);
    pl_windows_finish(&w);
    return err;
}

pl_err pl_adapter_init(const struct pl_tensor_io *io, uint64_t seed, struct pl_diag *d) {
    struct pl_windows w = {0};
    pl_err err = pl_windows_add_adapter(&w, io->program, d);
    for (uint32_t i = 0; i < w.n && err == PL_ERR_OK; i++)
        err = init_adapter(&w.items[i], io, seed, d);
    pl_windows_finish(&w);
    return err;
}
