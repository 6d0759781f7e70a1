/* rule_numbers.c - the tables that are arithmetic. */
#include "estimator/rule_of_thumb/rule_build.h"

#include <math.h>
#include <stdio.h>

#define GB           1e9
#define MB           1e6
#define MILLION      1e6
#define Q_AND_V      2
#define MOMENT_BYTES 4
#define LISTED_SHARE 0.4 /* of the activations stays under checkpointing */

#define COLUMNS(t, ...)                                                                            \
    do {                                                                                           \
        static const char *const names_[] = {__VA_ARGS__};                                         \
        pl_rule_columns(t, names_, sizeof names_ / sizeof *names_);                                \
    } while (0)
#define N_OF(rows) (sizeof(rows) / sizeof *(rows))

/* Sizes that the published tables speak of, with the dimensions of Llama models of that size. */
static const struct size {
    const char *name;
    double params_billions, layers, hidden;
} sizes[] = {{"8B", 8, 32, 4096}, {"13B", 13, 40, 5120}, {"70B", 70, 80, 8192}};

static struct pl_rule_inputs sized(const struct pl_rule_inputs *in, const struct size *s) {
    struct pl_rule_inputs out = *in;
    out.params_billions = s->params_billions;
    out.num_layers = s->layers;
    out.hidden_dim = s->hidden;
    return out;
}

static double total_gb(const struct pl_rule_inputs *in) {
    return pl_rule_estimate(in, PL_RULE_SHOWN).total;
}

void pl_rule_fill_precision(const struct pl_rule_inputs *in, struct pl_rule_table *t) {
    size_t n;
    const struct pl_rule_precision *p = pl_rule_precisions(&n);
    COLUMNS(t, "precision", "bytes_per_param", "weights_gb");
    for (size_t i = 0; i < n; i++) {
        struct pl_rule_cell *c = pl_rule_row(t);
        pl_rule_words(c++, "%s", p[i].label);
        pl_rule_number(c++, p[i].bytes, 1);
        pl_rule_number(c, in->params_billions * p[i].bytes, 2);
    }
}

static double listed_lora_params(const struct pl_rule_inputs *in, double modules) {
    return pl_rule_lora_params(in->lora_rank, in->hidden_dim, modules, in->num_layers);
}

void pl_rule_fill_gradients(const struct pl_rule_inputs *in, struct pl_rule_table *t) {
    const double billions[] = {in->params_billions, 7};
    COLUMNS(t, "trained", "params_millions", "gradients_gb");
    for (size_t i = 0; i < N_OF(billions); i++) {
        struct pl_rule_cell *c = pl_rule_row(t);
        pl_rule_words(c++, "%gB model", billions[i]);
        pl_rule_number(c++, billions[i] * 1000, 1);
        pl_rule_number(c, billions[i] * 2, 4);
    }
    double params = listed_lora_params(in, Q_AND_V);
    struct pl_rule_cell *c = pl_rule_row(t);
    pl_rule_words(c++, "LoRA rank %g on q and v", in->lora_rank);
    pl_rule_number(c++, params / MILLION, 1);
    pl_rule_number(c, params * 2 / GB, 4);
}

void pl_rule_fill_optimizer(const struct pl_rule_inputs *in, struct pl_rule_table *t) {
    static const char *const states[] = {"first moment (m)", "second moment (v)", "both"};
    double lora = listed_lora_params(in, Q_AND_V);
    COLUMNS(t, "state", "bytes_per_param", "full_gb", "lora_mb");
    for (size_t i = 0; i < N_OF(states); i++) {
        double bytes = i < 2 ? MOMENT_BYTES : 2 * MOMENT_BYTES;
        struct pl_rule_cell *c = pl_rule_row(t);
        pl_rule_words(c++, "%s", states[i]);
        pl_rule_number(c++, bytes, 0);
        pl_rule_number(c++, in->params_billions * bytes, 2);
        pl_rule_number(c, lora * bytes / MB, 1);
    }
}

void pl_rule_fill_lora(const struct pl_rule_inputs *in, struct pl_rule_table *t) {
    static const struct {
        const char *name;
        double modules;
    } targets[] = {{"q, v", Q_AND_V}, {"q, k, v, o", 4}, {"all linear", 7}};
    COLUMNS(t, "targets", "modules", "params", "gradients_mb", "optimizer_mb", "times_fewer");
    for (size_t i = 0; i < N_OF(targets); i++) {
        double params = listed_lora_params(in, targets[i].modules);
        struct pl_rule_cell *c = pl_rule_row(t);
        pl_rule_words(c++, "%s", targets[i].name);
        pl_rule_number(c++, targets[i].modules, 0);
        pl_rule_number(c++, params, 0);
        pl_rule_number(c++, params * 2 / MB, 1);
        pl_rule_number(c++, params * 2 * MOMENT_BYTES / MB, 1);
        pl_rule_number(c, in->params_billions * GB / params, 0);
    }
}

void pl_rule_fill_activations(const struct pl_rule_inputs *in, struct pl_rule_table *t) {
    static const double batches[] = {1, 2, 4, 8};
    COLUMNS(t, "batch_size", "seq_length", "activations_gb", "checkpointed_gb");
    for (size_t i = 0; i < N_OF(batches); i++) {
        double gb = 2 * in->num_layers * batches[i] * in->seq_length * in->hidden_dim * 2 / GB;
        struct pl_rule_cell *c = pl_rule_row(t);
        pl_rule_number(c++, batches[i], 0);
        pl_rule_number(c++, in->seq_length, 0);
        pl_rule_number(c++, gb, 2);
        pl_rule_number(c, gb * LISTED_SHARE, 2);
    }
}

void pl_rule_fill_inference(const struct pl_rule_inputs *in, struct pl_rule_table *t) {
    static const struct {
        double params_billions;
        const char *fp16, *int8, *int4;
    } rows[] = {{1, "2", "1", "0.5"},
                {7, "14-16", "7-8", "4-5"},
                {8, "14-16", "7-8", "4-5"},
                {13, "26", "13", "7"},
                {70, "140", "70", "35-40"}};
    (void)in;
    COLUMNS(t, "model", "fp16_gb", "int8_gb", "nf4_gb", "document_fp16", "document_int8",
            "document_nf4");
    for (size_t i = 0; i < N_OF(rows); i++) {
        struct pl_rule_cell *c = pl_rule_row(t);
        pl_rule_words(c++, "%gB", rows[i].params_billions);
        pl_rule_number(c++, rows[i].params_billions * 2, 1);
        pl_rule_number(c++, rows[i].params_billions, 1);
        pl_rule_number(c++, rows[i].params_billions / 2, 1);
        pl_rule_words(c++, "%s", rows[i].fp16);
        pl_rule_words(c++, "%s", rows[i].int8);
        pl_rule_words(c, "%s", rows[i].int4);
    }
}

void pl_rule_fill_qlora(const struct pl_rule_inputs *in, struct pl_rule_table *t) {
    static const struct { double batch, length; } shapes[] = {{1, 2048}, {4, 512}, {4, 1024}};
    static const double published[N_OF(sizes)][N_OF(shapes)] = {
        {6, 7, 9}, {9, 10, 13}, {45, 50, 60}};
    COLUMNS(t, "model", "batch_size", "seq_length", "total_gb", "without_checkpointing_gb",
            "document_gb");
    for (size_t s = 0; s < N_OF(sizes); s++)
        for (size_t i = 0; i < N_OF(shapes); i++) {
            struct pl_rule_inputs one = sized(in, &sizes[s]);
            struct pl_rule_cell *c = pl_rule_row(t);
            one.batch_size = shapes[i].batch;
            one.seq_length = shapes[i].length;
            one.gradient_checkpointing = true;
            pl_rule_words(c++, "%s", sizes[s].name);
            pl_rule_number(c++, one.batch_size, 0);
            pl_rule_number(c++, one.seq_length, 0);
            pl_rule_number(c++, total_gb(&one), 2);
            one.gradient_checkpointing = false;
            pl_rule_number(c++, total_gb(&one), 2);
            pl_rule_number(c, published[s][i], 0);
        }
}

void pl_rule_fill_gpus(const struct pl_rule_inputs *in, struct pl_rule_table *t) {
    static const struct {
        const char *gpu;
        double vram_gb;
        const char *models, *training;
    } rows[] = {{"T4", 15, "Up to 8B (quantized)", "QLoRA"},
                {"RTX 3090", 24, "Up to 13B (quantized)", "QLoRA"},
                {"RTX 4090", 24, "Up to 13B (quantized)", "QLoRA"},
                {"A100 40GB", 40, "Up to 13B (FP16) or 70B (quantized)", "Full FT or QLoRA"},
                {"A100 80GB", 80, "Up to 70B (quantized)", "QLoRA"}};
    COLUMNS(t, "gpu", "vram_gb", "qlora_8b", "qlora_13b", "qlora_70b", "document_models",
            "document_training");
    for (size_t i = 0; i < N_OF(rows); i++) {
        struct pl_rule_cell *c = pl_rule_row(t);
        pl_rule_words(c++, "%s", rows[i].gpu);
        pl_rule_number(c++, rows[i].vram_gb, 0);
        for (size_t s = 0; s < N_OF(sizes); s++) {
            struct pl_rule_inputs one = sized(in, &sizes[s]);
            pl_rule_words(c++, "%s",
                          pl_rule_fit_name(pl_rule_fit(total_gb(&one), rows[i].vram_gb)));
        }
        pl_rule_words(c++, "%s", rows[i].models);
        pl_rule_words(c, "%s", rows[i].training);
    }
}

void pl_rule_fill_grid(const struct pl_rule_inputs *in, struct pl_rule_table *t) {
    static const double batches[] = {1, 4, 8};
    static const struct {
        double length;
        const char *marks[N_OF(batches)];
    } rows[] = {{512, {"yes", "yes", "yes"}},
                {1024, {"yes", "yes", "maybe"}},
                {2048, {"yes", "maybe", "no"}},
                {4096, {"maybe", "no", "no"}}};
    COLUMNS(t, "seq_length", "batch_1", "batch_4", "batch_8", "document_batch_1",
            "document_batch_4", "document_batch_8");
    for (size_t i = 0; i < N_OF(rows); i++) {
        struct pl_rule_cell *c = pl_rule_row(t);
        pl_rule_number(c++, rows[i].length, 0);
        for (size_t b = 0; b < N_OF(batches); b++) {
            struct pl_rule_inputs one = *in;
            one.batch_size = batches[b];
            one.seq_length = rows[i].length;
            double gb = total_gb(&one);
            pl_rule_words(c++, "%s %.1f", pl_rule_fit_name(pl_rule_fit(gb, in->vram_gb)), gb);
        }
        for (size_t b = 0; b < N_OF(batches); b++)
            pl_rule_words(c++, "%s", rows[i].marks[b]);
    }
}

/* A last micro-batch that is not full keeps the effective batch what was asked for. */
void pl_rule_fill_accumulation(const struct pl_rule_inputs *in, struct pl_rule_table *t) {
    COLUMNS(t, "batch_size", "gradient_accumulation_steps", "effective_batch", "total_gb", "fits");
    for (double batch = 1; batch <= in->effective_batch && t->n_rows < PL_RULE_MAX_ROWS;
         batch *= 2) {
        struct pl_rule_inputs one = *in;
        struct pl_rule_cell *c = pl_rule_row(t);
        one.batch_size = batch;
        double gb = total_gb(&one);
        pl_rule_number(c++, batch, 0);
        pl_rule_number(c++, ceil(in->effective_batch / batch), 0);
        pl_rule_number(c++, in->effective_batch, 0);
        pl_rule_number(c++, gb, 2);
        pl_rule_words(c, "%s", pl_rule_fit_name(pl_rule_fit(gb, in->vram_gb)));
    }
}

/* Weights, gradients and states alone: what is over the card here needs no look at the rest. */
static void freezing_row(const struct pl_rule_inputs *in, struct pl_rule_table *t, const char *name,
                         double trained_billions) {
    double weights = in->params_billions * in->precision->bytes;
    double gradients = trained_billions * 2, states = trained_billions * 2 * MOMENT_BYTES;
    double sum = weights + gradients + states;
    struct pl_rule_cell *c = pl_rule_row(t);
    pl_rule_words(c++, "%s", name);
    pl_rule_number(c++, weights, 2);
    pl_rule_number(c++, gradients, 2);
    pl_rule_number(c++, states, 2);
    pl_rule_number(c++, sum, 2);
    pl_rule_words(c++, "%s", pl_rule_fit_name(pl_rule_fit(sum, in->vram_gb)));
    pl_rule_number(c, in->vram_gb, 0);
}

void pl_rule_fill_freezing(const struct pl_rule_inputs *in, struct pl_rule_table *t) {
    char name[PL_RULE_CELL];
    double trained = in->trained_layers < in->num_layers ? in->trained_layers : in->num_layers;
    struct pl_rule_inputs four_bit = *in;
    four_bit.precision = pl_rule_precision_find("nf4");
    COLUMNS(t, "trained", "weights_gb", "gradients_gb", "optimizer_gb", "sum_gb", "fits",
            "vram_gb");
    freezing_row(in, t, "every layer", in->params_billions);
    snprintf(name, sizeof name, "last %g of %g layers", trained, in->num_layers);
    freezing_row(in, t, name, in->params_billions * trained / in->num_layers);
    freezing_row(in, t, "nothing: weights loaded", 0);
    freezing_row(&four_bit, t, "LoRA on nf4 weights", listed_lora_params(in, Q_AND_V) / GB);
}

void pl_rule_fill_tiers(const struct pl_rule_inputs *in, struct pl_rule_table *t) {
    size_t n;
    const struct pl_rule_tier *tiers = pl_rule_tiers(&n);
    (void)in;
    COLUMNS(t, "vram_min_gb", "batch_size");
    for (size_t i = 0; i < n; i++) {
        struct pl_rule_cell *c = pl_rule_row(t);
        pl_rule_number(c++, tiers[i].vram_gb, 0);
        pl_rule_number(c, tiers[i].batch_size, 0);
    }
}
