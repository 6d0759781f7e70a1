/* rule.h - the closed formulas of VRAM planning, for questions that name no model.
 *
 * In: a parameter count, a precision, a few dimensions.  Out: gigabytes (10^9 bytes), approximate.
 * Needs: base. No I/O.
 * Nothing here reaches a plan or a verdict about a model: those come from program/ and plan/.
 *   T2  results are rounded as Python's round(x, 2), the language the formulas were published in
 *   T3  a published figure and the formula printed with it may differ; both are kept, by name
 *       (pl_rule_edition), and neither is bent to meet the other
 * Use: struct pl_rule_inputs in = pl_rule_defaults(8, "nf4"); in.lora = true;
 *      struct pl_rule_bill bill = pl_rule_estimate(&in, PL_RULE_SHOWN);  (bill.total == 5.36) */
#ifndef PL_ESTIMATOR_RULE_OF_THUMB_RULE_H
#define PL_ESTIMATOR_RULE_OF_THUMB_RULE_H

#include "estimator/base/diag.h"
#include "estimator/base/report_rows.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pl_rule_precision {
    const char *name, *label;
    double bytes; /* of a weight, quantisation constants left out */
};
const struct pl_rule_precision *pl_rule_precisions(size_t *n);
/* NULL: no such precision. */
const struct pl_rule_precision *pl_rule_precision_find(const char *name);

struct pl_rule_inputs {
    double params_billions;
    const struct pl_rule_precision *precision;
    bool inference, lora, gradient_checkpointing;
    double lora_rank, batch_size, seq_length, num_layers, hidden_dim;
    double vram_gb;         /* 0 = no card is asked about */
    double effective_batch; /* samples a step */
    double trained_layers;  /* of num_layers, when only the last ones are trained */
};
/* The published defaults: training, checkpointing on, rank 16, 1 x 2048 tokens, 32 x 4096; no card,
 * effective batch 16, the last 3 layers. `precision` must be one of the table. */
struct pl_rule_inputs pl_rule_defaults(double params_billions, const char *precision);

/* The published calculator is a listing and the output shown under it, and the listing does not
 * return that output. SHOWN meets the output: 4 bytes an activation, the saving of checkpointing
 * only under LoRA, the adapters of one layer. LISTED is the code: 2 bytes, always, all layers. */
enum pl_rule_edition { PL_RULE_SHOWN, PL_RULE_LISTED };

struct pl_rule_bill { /* GB; under `inference` only weights, overhead and total count */
    double weights, gradients, optimizer, activations, overhead, total;
    bool inference;
};
struct pl_rule_bill pl_rule_estimate(const struct pl_rule_inputs *in, enum pl_rule_edition e);
/* Layers that an edition counts LoRA's adapters for. */
double pl_rule_adapter_layers(const struct pl_rule_inputs *in, enum pl_rule_edition e);
/* Adds weights, gradients, optimizer, activations, overhead and total; under `inference` the three
 * of them that count. */
void pl_rule_bill_report(const struct pl_rule_bill *bill, struct pl_report *r);

/* 2 x rank x hidden x target modules x layers: every module taken for square. */
double pl_rule_lora_params(double rank, double hidden, double modules, double layers);

/* T2: to two decimals, halves of the binary value to even. */
double pl_rule_round(double x);

/* --- cards ----------------------------------------------------------------------------------- */

/* `tight`: fits, but not with 15 % on top for fragmentation and the framework. */
enum pl_rule_fit { PL_RULE_FITS, PL_RULE_TIGHT, PL_RULE_NO };
const char *pl_rule_fit_name(enum pl_rule_fit f); /* "fits", "tight", "no" */
enum pl_rule_fit pl_rule_fit(double total_gb, double vram_gb);

/* Batch size by the size of the card alone. */
struct pl_rule_tier {
    double vram_gb; /* at least */
    uint32_t batch_size;
};
const struct pl_rule_tier *pl_rule_tiers(size_t *n); /* rising; the first starts at 0 */
uint32_t pl_rule_tier_batch(double vram_gb);

#endif
