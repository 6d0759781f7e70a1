/* shapes.h - the models that are measured, and their files. Benchmarks only; failures exit(1). */
#ifndef PL_TESTS_BENCH_SHAPES_H
#define PL_TESTS_BENCH_SHAPES_H

#include "estimator/model/model.h"

struct shape {
    const char *name; /* "tiny-full" */
    const char *mode; /* "full"; "lora" and "qlora": r 16 on all linears */
    uint64_t hidden, layers, heads, kv_heads, ffn, vocab; /* llama, tied */
    uint64_t batch, length;                               /* samples of a step */
    const char *stored; /* torch_dtype: type in which a checkpoint of this shape is published */
};

extern const struct shape shapes[];
extern const int n_shapes;
const struct shape *shape_find(const char *name); /* NULL = no such shape */

/* Returns config.json as text, malloc'd. */
char *shape_config(const struct shape *s);
void shape_model(const struct shape *s, struct pl_model *out);
/* Writes dir/config.json, dir/train.jsonl (random tokens, every row of full length) and
 * dir/run.yaml: fp32, random weights (frozen ones in the published type), AdamW, clip 1, no
 * recomputation, output in dir/out. */
void shape_write(const struct shape *s, const char *dir, uint64_t steps, uint32_t threads);

/* Returns the floating-point operations of one token of a step: 2 per weight of a product in the
 * forward pass, as many for each of dx and dW, dW only if the weight trains, and causal attention.
 * Recomputation and adapters do not count. */
double shape_flops_per_token(const struct shape *s);

#endif
