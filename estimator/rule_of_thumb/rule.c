/* rule.c - the calculator and the tiers. */
#include "estimator/rule_of_thumb/rule.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GB               1e9
#define OVERHEAD_GB      0.5  /* CUDA kernels and workspace */
#define GRADIENT_BYTES   2.0  /* 16 bit */
#define OPTIMIZER_BYTES  8.0  /* AdamW: two moments in fp32 */
#define LORA_MODULES     2.0  /* q and v */
#define CHECKPOINT_SHARE 0.4  /* share of the activations that stays */
#define FIT_SHARE_ON_TOP 0.15 /* fragmentation, framework */

static const struct pl_rule_precision precisions[] = {{"fp32", "FP32", 4},   {"fp16", "FP16", 2},
                                                      {"bf16", "BF16", 2},   {"int8", "INT8", 1},
                                                      {"int4", "INT4", 0.5}, {"nf4", "NF4", 0.5}};

const struct pl_rule_precision *pl_rule_precisions(size_t *n) {
    *n = sizeof precisions / sizeof *precisions;
    return precisions;
}

const struct pl_rule_precision *pl_rule_precision_find(const char *name) {
    for (size_t i = 0; i < sizeof precisions / sizeof *precisions; i++)
        if (strcmp(precisions[i].name, name) == 0) return &precisions[i];
    return NULL;
}

struct pl_rule_inputs pl_rule_defaults(double params_billions, const char *precision) {
    return (struct pl_rule_inputs){.params_billions = params_billions,
                                   .precision = pl_rule_precision_find(precision),
                                   .gradient_checkpointing = true,
                                   .lora_rank = 16,
                                   .batch_size = 1,
                                   .seq_length = 2048,
                                   .num_layers = 32,
                                   .hidden_dim = 4096,
                                   .effective_batch = 16,
                                   .trained_layers = 3};
}

/* --- the calculator -------------------------------------------------------------------------- */

/* The differences between the two editions (see pl_rule_edition). */
static const struct edition {
    double activation_bytes;
    bool checkpointing_in_full, adapters_of_all_layers;
} editions[] = {
    [PL_RULE_SHOWN] = {4, false, false},
    [PL_RULE_LISTED] = {2, true, true},
};

double pl_rule_round(double x) {
    char text[352]; /* the longest finite double takes 309 digits before the point */
    snprintf(text, sizeof text, "%.2f", x);
    return strtod(text, NULL);
}

double pl_rule_lora_params(double rank, double hidden, double modules, double layers) {
    return 2 * rank * hidden * modules * layers;
}

static double activation_bytes(const struct pl_rule_inputs *in, const struct edition *e) {
    double bytes =
        2 * in->num_layers * in->batch_size * in->seq_length * in->hidden_dim * e->activation_bytes;
    bool saves = in->gradient_checkpointing && (in->lora || e->checkpointing_in_full);
    return saves ? bytes * CHECKPOINT_SHARE : bytes;
}

double pl_rule_adapter_layers(const struct pl_rule_inputs *in, enum pl_rule_edition e) {
    return editions[e].adapters_of_all_layers ? in->num_layers : 1;
}

/* The total is rounded once, from parts that are not: as published, it need not be their sum. */
struct pl_rule_bill pl_rule_estimate(const struct pl_rule_inputs *in, enum pl_rule_edition which) {
    const struct edition *e = &editions[which];
    double weights = in->params_billions * GB * in->precision->bytes / GB;
    if (in->inference)
        return (struct pl_rule_bill){.weights = weights,
                                     .overhead = OVERHEAD_GB,
                                     .total = weights + OVERHEAD_GB,
                                     .inference = true};
    double trained = in->params_billions * GB;
    if (in->lora)
        trained = pl_rule_lora_params(in->lora_rank, in->hidden_dim, LORA_MODULES,
                                      pl_rule_adapter_layers(in, which));
    double gradients = trained * GRADIENT_BYTES / GB;
    double optimizer = trained * OPTIMIZER_BYTES / GB;
    double activations = activation_bytes(in, e) / GB;
    return (struct pl_rule_bill){
        .weights = pl_rule_round(weights),
        .gradients = pl_rule_round(gradients),
        .optimizer = pl_rule_round(optimizer),
        .activations = pl_rule_round(activations),
        .overhead = OVERHEAD_GB,
        .total = pl_rule_round(weights + gradients + optimizer + activations + OVERHEAD_GB)};
}

void pl_rule_bill_report(const struct pl_rule_bill *b, struct pl_report *r) {
    pl_report_real(r, "weights", b->weights);
    if (!b->inference) {
        pl_report_real(r, "gradients", b->gradients);
        pl_report_real(r, "optimizer", b->optimizer);
        pl_report_real(r, "activations", b->activations);
    }
    pl_report_real(r, "overhead", b->overhead);
    pl_report_real(r, "total", b->total);
}

/* --- cards ----------------------------------------------------------------------------------- */

const char *pl_rule_fit_name(enum pl_rule_fit f) {
    static const char *const names[] = {"fits", "tight", "no"};
    return names[f];
}

enum pl_rule_fit pl_rule_fit(double total_gb, double vram_gb) {
    if (total_gb > vram_gb) return PL_RULE_NO;
    return total_gb * (1 + FIT_SHARE_ON_TOP) > vram_gb ? PL_RULE_TIGHT : PL_RULE_FITS;
}

static const struct pl_rule_tier tiers[] = {{0, 1}, {16, 2}, {24, 4}, {32, 6}, {48, 8}};

const struct pl_rule_tier *pl_rule_tiers(size_t *n) {
    *n = sizeof tiers / sizeof *tiers;
    return tiers;
}

uint32_t pl_rule_tier_batch(double vram_gb) {
    uint32_t batch = tiers[0].batch_size;
    for (size_t i = 0; i < sizeof tiers / sizeof *tiers; i++)
        if (vram_gb >= tiers[i].vram_gb) batch = tiers[i].batch_size;
    return batch;
}
