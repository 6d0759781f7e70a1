/* recompute.h - the values of the key gradient_checkpointing, and the level of every layer.
 *
 * In: a word of the YAML.  Out: one number for it, and from that the level of every layer.
 *   C1  a value reads back from the word that it is written as
 *   C2  every value means one plain level per layer, and nothing else
 *   C3  OFFLOAD is the level of all layers or of the first ones: their inputs wait longest, and the
 *       others' would hardly have left when they are wanted back
 * Use: if (pl_recompute_parse("full:20+light", &v) == PL_RECOMPUTE_READ)
 *          l = pl_recompute_of_layer(v, 3); */
#ifndef PL_ESTIMATOR_CONFIG_RECOMPUTE_H
#define PL_ESTIMATOR_CONFIG_RECOMPUTE_H

#include "estimator/base/text.h"

#include <stdbool.h>
#include <stdint.h>

/* The plain levels, each rebuilding what LIGHT does and more (Korthikanti et al., Reducing
 * Activation Recomputation in Large Transformer Models, 2022, call MLP and ATTENTION selective). */
enum {
    PL_RECOMPUTE_NONE,
    PL_RECOMPUTE_LIGHT,     /* the outputs of norms and SwiGLU: no product */
    PL_RECOMPUTE_MLP,       /* also what goes into SwiGLU: the product of gate and up */
    PL_RECOMPUTE_ATTENTION, /* also q, k, v and what attention makes of them */
    PL_RECOMPUTE_FULL,      /* everything but a layer's input */
    PL_RECOMPUTE_OFFLOAD,   /* full, and the inputs wait in host memory */
    PL_RECOMPUTE_PLAIN,     /* how many there are */
    PL_RECOMPUTE_AUTO = 15, /* decided by pl_autolevel_decide() before anything is planned */
    PL_RECOMPUTE_EVERY,     /* above: PL_RECOMPUTE_EVERY_N(n) */
    PL_RECOMPUTE_MIXED = 1 << 24 /* above: PL_RECOMPUTE_MIX(first, k, rest) */
};
#define PL_RECOMPUTE_LAYERS_MAX 4096 /* limit of N and K below */
/* Full recomputation of the layers l with l % n == 0, none of the others. */
#define PL_RECOMPUTE_EVERY_N(n) (PL_RECOMPUTE_EVERY + (n))
/* The first k layers at one level, the others at another, which is not OFFLOAD. */
#define PL_RECOMPUTE_MIX(first, k, rest)                                                           \
    ((uint32_t)PL_RECOMPUTE_MIXED | (uint32_t)(first) << 20 | (uint32_t)(rest) << 16 |             \
     (uint32_t)(k))

/* Returns the plain level of a layer. `value` is not AUTO. */
uint32_t pl_recompute_of_layer(uint32_t value, uint64_t layer);
/* True if any layer is at OFFLOAD. */
bool pl_recompute_offloads(uint32_t value);

enum pl_recompute_word {
    PL_RECOMPUTE_READ,
    PL_RECOMPUTE_UNKNOWN,     /* no word of the key */
    PL_RECOMPUTE_OUTSIDE,     /* N or K is not within 1 to PL_RECOMPUTE_LAYERS_MAX */
    PL_RECOMPUTE_OFFLOAD_LAST /* violates C3: the other layers would be at OFFLOAD */
};
/* Reads none, light, mlp, attention, full, offload, auto, every_N, LEVEL:K, or LEVEL:K+LEVEL such
 * as full:20+light. Sets *value if the result is PL_RECOMPUTE_READ, and only then. */
enum pl_recompute_word pl_recompute_parse(const char *word, uint32_t *value);
void pl_recompute_print(uint32_t value, struct pl_text *out);

#endif
