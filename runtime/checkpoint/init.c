/* init.c - starting values. A value is a function of (seed, kind, row, layer, element) alone:
 * neither the size of staging nor the fusing of matrices nor the LoRA targets move it. */
#include "runtime/checkpoint/init.h"
#include "runtime/checkpoint/quantise.h"

#include "runtime/checkpoint/tensor_io.h"
#include "runtime/checkpoint/window_load.h"
#include "runtime/checkpoint/windows.h"

#include <math.h>

struct start {
    enum pl_start kind;
    double spread; /* of a constant: its value */
};

/* The values that slots start as. A norm starts as one that multiplies by 1. */
static const enum {
    RANDOM,
    ZERO,
    ONE,
    NORM
} slot_start[PL_SLOT_COUNT] = {
    [PL_SLOT_NORM1] = NORM,       [PL_SLOT_NORM2] = NORM,         [PL_SLOT_NORMF] = NORM,
    [PL_SLOT_POST1] = NORM,       [PL_SLOT_POST2] = NORM,         [PL_SLOT_QNORM] = NORM,
    [PL_SLOT_KNORM] = NORM,       [PL_SLOT_QKV_B] = ZERO,         [PL_SLOT_O_B] = ZERO,
    [PL_SLOT_GU_B] = ZERO,        [PL_SLOT_DOWN_B] = ZERO,        [PL_SLOT_ROUTER_B] = ZERO,
    [PL_SLOT_EXPERT_GU_B] = ZERO, [PL_SLOT_EXPERT_DOWN_B] = ZERO, [PL_SLOT_DELTA_DT_BIAS] = ONE,
    [PL_SLOT_DELTA_A_LOG] = ZERO, [PL_SLOT_DELTA_NORM] = ONE,     [PL_SLOT_SCALAR] = NORM,
    [PL_SLOT_INPUT_NORM] = NORM,  [PL_SLOT_POST3] = NORM,
};

/* Streams of the room; the value of `site` in the derivation of a stream. */
enum stream { STREAM_WEIGHT = 1, STREAM_LORA_A };

static pl_err start_window(const struct pl_window *w, const struct pl_tensor_io *io, uint64_t seed,
                           enum stream site, struct start start, struct pl_diag *d) {
    const uint32_t layer = io->program->tensors[w->tensor].layer;
    const struct pl_window_values values = {
        .attr = {.start = start.kind,
                 .spread = start.spread,
                 .site = site,
                 .stream = (uint64_t)w->row << 32 | w->which << 16 | layer},
        .seed = seed};
    return pl_window_start(w, io, &values, d);
}

static pl_err init_weight(const struct pl_window *w, const struct pl_tensor_io *io, uint64_t seed,
                          struct pl_diag *d) {
    const struct pl_model *m = io->program->model;
    const enum pl_slot slot = io->program->tensors[w->tensor].slot;
    struct start start = {PL_START_NORMAL, m->initializer_range};
    const bool one = slot_start[slot] == ONE || (slot_start[slot] == NORM && !m->unit_offset);
    if (slot_start[slot] != RANDOM) start = (struct start){PL_START_CONSTANT, one ? 1 : 0};
    return start_window(w, io, seed, STREAM_WEIGHT, start, d);
}

/* A module that is trained whole starts as the base has it, which was loaded before.
 * torch.nn.init.kaiming_uniform_(A, a=sqrt(5)), which is U(-1/sqrt(in), 1/sqrt(in)); B = 0, so that
 * training starts from the base model. */
static pl_err init_adapter(const struct pl_window *w, const struct pl_tensor_io *io, uint64_t seed,
                           struct pl_diag *d) {
    const enum pl_role role = io->program->tensors[w->tensor].role;
    struct start start = {PL_START_UNIFORM, 1.0 / sqrt((double)w->dims[1])};
    if (role == PL_ROLE_WEIGHT) return PL_ERR_OK;
    if (role == PL_ROLE_LORA_B) start = (struct start){PL_START_CONSTANT, 0};
    if (io->program->tensors[w->tensor].slot == PL_SLOT_EMBED) /* reset_lora_parameters() */
        start = role == PL_ROLE_LORA_A ? (struct start){PL_START_CONSTANT, 0}
                                       : (struct start){PL_START_NORMAL, 1};
    return start_window(w, io, seed, STREAM_LORA_A, start, d);
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
