#include "tests/program/listed.h"

#include "tests/plan/planning.h"

#include <string.h>

/* --- shapes --------------------------------------------------------------------------------------
 */

const char *const pl_test_modes[] = {"full", "lora", "qlora", "inference"};
static const uint32_t modes[PL_TEST_MODES] = {PL_MODE_FULL, PL_MODE_LORA, PL_MODE_QLORA,
                                              PL_MODE_LORA};

struct pl_job_shape pl_test_listed_shape(const struct pl_model *m, int mode) {
    struct pl_job_shape s = pl_test_shape(m, modes[mode], PL_RECOMPUTE_NONE, 2, 1024);
    s.inference = strcmp(pl_test_modes[mode], "inference") == 0;
    if (s.inference) s.eval = s.save = s.master_weights = false;
    return s;
}

/* The variants of the shape; a setting that a mode does not have changes nothing there. */
static const struct variant {
    uint32_t recompute, optimizer, offload;
    bool embedding_on_host, update_on_host, exact_gradients, folds, drops, freezes, packs, head4,
        in_fp32, base_bf16;
} variants[] = {
    {.exact_gradients = true},
    {.recompute = PL_RECOMPUTE_FULL, .exact_gradients = true},
    {.recompute = PL_RECOMPUTE_EVERY_N(2)},
    {.recompute = PL_RECOMPUTE_MIX(PL_RECOMPUTE_FULL, 3, PL_RECOMPUTE_LIGHT)},
    {.optimizer = PL_OPTIMIZER_ADAMW_8BIT},
    {.optimizer = PL_OPTIMIZER_SGD},
    {.recompute = PL_RECOMPUTE_FULL, .offload = PL_OFFLOAD_OPTIMIZER},
    {.recompute = PL_RECOMPUTE_FULL, .offload = PL_OFFLOAD_GRADIENTS, .exact_gradients = true},
    {.recompute = PL_RECOMPUTE_FULL, .offload = PL_OFFLOAD_GRADIENTS, .update_on_host = true},
    {.recompute = PL_RECOMPUTE_OFFLOAD, .offload = PL_OFFLOAD_WEIGHTS},
    {.recompute = PL_RECOMPUTE_LIGHT, .offload = PL_OFFLOAD_WEIGHTS, .embedding_on_host = true},
    {.offload = PL_OFFLOAD_WEIGHTS, .update_on_host = true, .optimizer = PL_OPTIMIZER_ADAMW_8BIT},
    {.recompute = PL_RECOMPUTE_FULL, .drops = true},
    {.recompute = PL_RECOMPUTE_ATTENTION, .drops = true, .in_fp32 = true},
    {.freezes = true},
    {.recompute = PL_RECOMPUTE_MLP, .packs = true, .head4 = true},
    {.in_fp32 = true, .base_bf16 = true},
    {.recompute = PL_RECOMPUTE_FULL, .folds = true},
};

_Static_assert(sizeof variants / sizeof *variants == PL_TEST_VARIANTS, "all of them");

void pl_test_vary(struct pl_job_shape *s, int variant) {
    const struct variant *v = &variants[variant];
    if (!s->inference) { /* which nothing of this is asked about */
        s->recompute = v->recompute;
        s->optimizer = v->optimizer ? v->optimizer : s->optimizer;
        s->offload = v->offload;
        s->update_on_host = v->update_on_host;
        s->embedding_on_host = v->embedding_on_host && s->mode != PL_MODE_FULL;
        s->packing = v->packs;
        s->freeze_layers = v->freezes ? 2 : 0;
        s->lora_dropout = v->drops && pl_mode_adapts(s->mode) ? 0.05 : 0;
    }
    s->quantize_head = v->head4 && s->mode == PL_MODE_QLORA;
    if (v->in_fp32) {
        s->dtype = s->gradient_dtype = PL_DTYPE_F32;
        s->master_weights = false;
        s->base_dtype = v->base_bf16 && s->mode == PL_MODE_LORA ? PL_DTYPE_BF16 : PL_DTYPE_F32;
    }
    if (v->exact_gradients) s->gradient_dtype = PL_DTYPE_F32;
    s->folds_gradients = v->folds && !s->inference;
}
