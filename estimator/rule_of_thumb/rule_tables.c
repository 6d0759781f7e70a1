/* rule_tables.c - the tables that people plan by: arithmetic first, then words; and their list. */
#include "estimator/rule_of_thumb/rule_tables.h"

#include "estimator/base/json_tree.h"

#include <math.h>
#include <string.h>

#define GB           1e9
#define MB           1e6
#define MILLION      1e6
#define Q_AND_V      2
#define MOMENT_BYTES 4
#define LISTED_SHARE 0.4 /* of the activations stays under checkpointing */
#define MOST_LINES   16  /* of the micro-batches of an effective batch */
#define MOST_WORDS   5   /* of a line */

#define N_OF(rows) (sizeof(rows) / sizeof *(rows))

/* --- arithmetic ------------------------------------------------------------------------------ */

/* Sizes that the published tables speak of, with the dimensions of Llama models of that size. */
static const struct size {
    const char *name, *column;
    double params_billions, layers, hidden;
} sizes[] = {{"8B", "qlora_8b", 8, 32, 4096},
             {"13B", "qlora_13b", 13, 40, 5120},
             {"70B", "qlora_70b", 70, 80, 8192}};

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

static void fill_precision(const struct pl_rule_inputs *in, struct pl_report *r) {
    size_t n;
    const struct pl_rule_precision *p = pl_rule_precisions(&n);
    for (size_t i = 0; i < n; i++) {
        pl_report_next(r);
        pl_report_word(r, "precision", p[i].label);
        pl_report_figure(r, "bytes_per_param", p[i].bytes, 1);
        pl_report_figure(r, "weights_gb", in->params_billions * p[i].bytes, 2);
    }
}

static double listed_lora_params(const struct pl_rule_inputs *in, double modules) {
    return pl_rule_lora_params(in->lora_rank, in->hidden_dim, modules, in->num_layers);
}

static void fill_gradients(const struct pl_rule_inputs *in, struct pl_report *r) {
    const double billions[] = {in->params_billions, 7};
    for (size_t i = 0; i < N_OF(billions); i++) {
        pl_report_next(r);
        pl_report_format(r, "trained", "%gB model", billions[i]);
        pl_report_figure(r, "params_millions", billions[i] * 1000, 1);
        pl_report_figure(r, "gradients_gb", billions[i] * 2, 4);
    }
    double params = listed_lora_params(in, Q_AND_V);
    pl_report_next(r);
    pl_report_format(r, "trained", "LoRA rank %g on q and v", in->lora_rank);
    pl_report_figure(r, "params_millions", params / MILLION, 1);
    pl_report_figure(r, "gradients_gb", params * 2 / GB, 4);
}

static void fill_optimizer(const struct pl_rule_inputs *in, struct pl_report *r) {
    static const char *const states[] = {"first moment (m)", "second moment (v)", "both"};
    double lora = listed_lora_params(in, Q_AND_V);
    for (size_t i = 0; i < N_OF(states); i++) {
        double bytes = i < 2 ? MOMENT_BYTES : 2 * MOMENT_BYTES;
        pl_report_next(r);
        pl_report_word(r, "state", states[i]);
        pl_report_figure(r, "bytes_per_param", bytes, 0);
        pl_report_figure(r, "full_gb", in->params_billions * bytes, 2);
        pl_report_figure(r, "lora_mb", lora * bytes / MB, 1);
    }
}

static void fill_lora(const struct pl_rule_inputs *in, struct pl_report *r) {
    static const struct {
        const char *name;
        double modules;
    } targets[] = {{"q, v", Q_AND_V}, {"q, k, v, o", 4}, {"all linear", 7}};
    for (size_t i = 0; i < N_OF(targets); i++) {
        double params = listed_lora_params(in, targets[i].modules);
        pl_report_next(r);
        pl_report_word(r, "targets", targets[i].name);
        pl_report_figure(r, "modules", targets[i].modules, 0);
        pl_report_figure(r, "params", params, 0);
        pl_report_figure(r, "gradients_mb", params * 2 / MB, 1);
        pl_report_figure(r, "optimizer_mb", params * 2 * MOMENT_BYTES / MB, 1);
        pl_report_figure(r, "times_fewer", in->params_billions * GB / params, 0);
    }
}

static void fill_activations(const struct pl_rule_inputs *in, struct pl_report *r) {
    static const double batches[] = {1, 2, 4, 8};
    for (size_t i = 0; i < N_OF(batches); i++) {
        double gb = 2 * in->num_layers * batches[i] * in->seq_length * in->hidden_dim * 2 / GB;
        pl_report_next(r);
        pl_report_figure(r, "batch_size", batches[i], 0);
        pl_report_figure(r, "seq_length", in->seq_length, 0);
        pl_report_figure(r, "activations_gb", gb, 2);
        pl_report_figure(r, "checkpointed_gb", gb * LISTED_SHARE, 2);
    }
}

static void fill_inference(const struct pl_rule_inputs *in, struct pl_report *r) {
    static const struct {
        double params_billions;
        const char *fp16, *int8, *int4;
    } rows[] = {{1, "2", "1", "0.5"},
                {7, "14-16", "7-8", "4-5"},
                {8, "14-16", "7-8", "4-5"},
                {13, "26", "13", "7"},
                {70, "140", "70", "35-40"}};
    (void)in;
    for (size_t i = 0; i < N_OF(rows); i++) {
        pl_report_next(r);
        pl_report_format(r, "model", "%gB", rows[i].params_billions);
        pl_report_figure(r, "fp16_gb", rows[i].params_billions * 2, 1);
        pl_report_figure(r, "int8_gb", rows[i].params_billions, 1);
        pl_report_figure(r, "nf4_gb", rows[i].params_billions / 2, 1);
        pl_report_word(r, "document_fp16", rows[i].fp16);
        pl_report_word(r, "document_int8", rows[i].int8);
        pl_report_word(r, "document_nf4", rows[i].int4);
    }
}

static void fill_qlora(const struct pl_rule_inputs *in, struct pl_report *r) {
    static const struct { double batch, length; } shapes[] = {{1, 2048}, {4, 512}, {4, 1024}};
    static const double published[N_OF(sizes)][N_OF(shapes)] = {
        {6, 7, 9}, {9, 10, 13}, {45, 50, 60}};
    for (size_t s = 0; s < N_OF(sizes); s++)
        for (size_t i = 0; i < N_OF(shapes); i++) {
            struct pl_rule_inputs one = sized(in, &sizes[s]);
            pl_report_next(r);
            one.batch_size = shapes[i].batch;
            one.seq_length = shapes[i].length;
            one.gradient_checkpointing = true;
            pl_report_word(r, "model", sizes[s].name);
            pl_report_figure(r, "batch_size", one.batch_size, 0);
            pl_report_figure(r, "seq_length", one.seq_length, 0);
            pl_report_figure(r, "total_gb", total_gb(&one), 2);
            one.gradient_checkpointing = false;
            pl_report_figure(r, "without_checkpointing_gb", total_gb(&one), 2);
            pl_report_figure(r, "document_gb", published[s][i], 0);
        }
}

static void fill_gpus(const struct pl_rule_inputs *in, struct pl_report *r) {
    static const struct {
        const char *gpu;
        double vram_gb;
        const char *models, *training;
    } rows[] = {{"T4", 15, "Up to 8B (quantized)", "QLoRA"},
                {"RTX 3090", 24, "Up to 13B (quantized)", "QLoRA"},
                {"RTX 4090", 24, "Up to 13B (quantized)", "QLoRA"},
                {"A100 40GB", 40, "Up to 13B (FP16) or 70B (quantized)", "Full FT or QLoRA"},
                {"A100 80GB", 80, "Up to 70B (quantized)", "QLoRA"}};
    for (size_t i = 0; i < N_OF(rows); i++) {
        pl_report_next(r);
        pl_report_word(r, "gpu", rows[i].gpu);
        pl_report_figure(r, "vram_gb", rows[i].vram_gb, 0);
        for (size_t s = 0; s < N_OF(sizes); s++) {
            struct pl_rule_inputs one = sized(in, &sizes[s]);
            pl_report_word(r, sizes[s].column,
                           pl_rule_fit_name(pl_rule_fit(total_gb(&one), rows[i].vram_gb)));
        }
        pl_report_word(r, "document_models", rows[i].models);
        pl_report_word(r, "document_training", rows[i].training);
    }
}

static void fill_grid(const struct pl_rule_inputs *in, struct pl_report *r) {
    static const struct {
        double size;
        const char *column, *document;
    } batches[] = {{1, "batch_1", "document_batch_1"},
                   {4, "batch_4", "document_batch_4"},
                   {8, "batch_8", "document_batch_8"}};
    static const struct {
        double length;
        const char *marks[N_OF(batches)];
    } rows[] = {{512, {"yes", "yes", "yes"}},
                {1024, {"yes", "yes", "maybe"}},
                {2048, {"yes", "maybe", "no"}},
                {4096, {"maybe", "no", "no"}}};
    for (size_t i = 0; i < N_OF(rows); i++) {
        pl_report_next(r);
        pl_report_figure(r, "seq_length", rows[i].length, 0);
        for (size_t b = 0; b < N_OF(batches); b++) {
            struct pl_rule_inputs one = *in;
            one.batch_size = batches[b].size;
            one.seq_length = rows[i].length;
            double gb = total_gb(&one);
            pl_report_format(r, batches[b].column, "%s %.1f",
                             pl_rule_fit_name(pl_rule_fit(gb, in->vram_gb)), gb);
        }
        for (size_t b = 0; b < N_OF(batches); b++)
            pl_report_word(r, batches[b].document, rows[i].marks[b]);
    }
}

/* A last micro-batch that is not full keeps the effective batch what was asked for. */
static void fill_accumulation(const struct pl_rule_inputs *in, struct pl_report *r) {
    double batch = 1;
    for (int line = 0; line < MOST_LINES && batch <= in->effective_batch; line++, batch *= 2) {
        struct pl_rule_inputs one = *in;
        one.batch_size = batch;
        const double gb = total_gb(&one);
        pl_report_next(r);
        pl_report_figure(r, "batch_size", batch, 0);
        pl_report_figure(r, "gradient_accumulation_steps", ceil(in->effective_batch / batch), 0);
        pl_report_figure(r, "effective_batch", in->effective_batch, 0);
        pl_report_figure(r, "total_gb", gb, 2);
        pl_report_word(r, "fits", pl_rule_fit_name(pl_rule_fit(gb, in->vram_gb)));
    }
}

/* Fills a line with weights, gradients and states alone: a sum that is over the card here needs no
 * look at the rest. */
static void freezing_line(const struct pl_rule_inputs *in, double trained_billions,
                          struct pl_report *r) {
    double weights = in->params_billions * in->precision->bytes;
    double gradients = trained_billions * 2, states = trained_billions * 2 * MOMENT_BYTES;
    double sum = weights + gradients + states;
    pl_report_figure(r, "weights_gb", weights, 2);
    pl_report_figure(r, "gradients_gb", gradients, 2);
    pl_report_figure(r, "optimizer_gb", states, 2);
    pl_report_figure(r, "sum_gb", sum, 2);
    pl_report_word(r, "fits", pl_rule_fit_name(pl_rule_fit(sum, in->vram_gb)));
    pl_report_figure(r, "vram_gb", in->vram_gb, 0);
}

static void fill_freezing(const struct pl_rule_inputs *in, struct pl_report *r) {
    const double trained = fmin(in->trained_layers, in->num_layers);
    struct pl_rule_inputs four_bit = *in;
    four_bit.precision = pl_rule_precision_find("nf4");
    pl_report_next(r);
    pl_report_word(r, "trained", "every layer");
    freezing_line(in, in->params_billions, r);
    pl_report_next(r);
    pl_report_format(r, "trained", "last %g of %g layers", trained, in->num_layers);
    freezing_line(in, in->params_billions * trained / in->num_layers, r);
    pl_report_next(r);
    pl_report_word(r, "trained", "nothing: weights loaded");
    freezing_line(in, 0, r);
    pl_report_next(r);
    pl_report_word(r, "trained", "LoRA on nf4 weights");
    freezing_line(&four_bit, listed_lora_params(in, Q_AND_V) / GB, r);
}

static void fill_tiers(const struct pl_rule_inputs *in, struct pl_report *r) {
    size_t n;
    const struct pl_rule_tier *tiers = pl_rule_tiers(&n);
    (void)in;
    for (size_t i = 0; i < n; i++) {
        pl_report_next(r);
        pl_report_figure(r, "vram_min_gb", tiers[i].vram_gb, 0);
        pl_report_figure(r, "batch_size", tiers[i].batch_size, 0);
    }
}

/* --- words ----------------------------------------------------------------------------------- */

/* The lines after the first, which has the names of their words, and NULL where it has fewer. */
static void fill_words(const char *const (*lines)[MOST_WORDS], size_t n, struct pl_report *r) {
    for (size_t i = 1; i < n; i++) {
        pl_report_next(r);
        for (size_t k = 0; k < MOST_WORDS && lines[0][k]; k++)
            pl_report_word(r, lines[0][k], lines[i][k]);
    }
}

/* Lists what people get wrong, and the setting that puts it right. */
static void fill_mistakes(const struct pl_rule_inputs *in, struct pl_report *r) {
    static const char *const lines[][MOST_WORDS] = {
        {"name", "mistake", "symptom", "fix", "setting"},
        {"forgot_optimizer_states", "Forgot optimizer states", "OOM during first training step",
         "Use QLoRA or 8-bit optimizer", "mode: qlora"},
        {"batch_size_too_high", "Batch size too high", "OOM after a few steps",
         "Reduce batch size, use gradient accumulation", "batch_size: auto"},
        {"sequence_too_long", "Sequence too long", "OOM during forward pass",
         "Reduce max_seq_length or use gradient checkpointing", "max_seq_length: 1024"},
        {"no_gradient_checkpointing", "No gradient checkpointing", "OOM with even batch=1",
         "Enable gradient_checkpointing=True", "gradient_checkpointing: full"},
        {"fp16_on_small_gpu", "Loading FP16 on small GPU", "OOM during model.load",
         "Use 4-bit quantization from the start", "mode: qlora"},
    };
    (void)in;
    fill_words(lines, N_OF(lines), r);
}

static void fill_checklist(const struct pl_rule_inputs *in, struct pl_report *r) {
    static const struct {
        const char *question, *settings;
    } rows[] = {
        {"Is model loaded at correct precision?", "dtype"},
        {"Is gradient checkpointing enabled?", "gradient_checkpointing"},
        {"What's the batch size and sequence length?", "batch_size, max_seq_length"},
        {"Is LoRA/QLoRA properly configured?", "mode, lora_r, lora_target_modules"},
        {"Any other models/tensors in GPU memory?", "vram_budget, vram_margin"},
    };
    (void)in;
    for (size_t i = 0; i < N_OF(rows); i++) {
        pl_report_next(r);
        pl_report_figure(r, "step", (double)(i + 1), 0);
        pl_report_word(r, "question", rows[i].question);
        pl_report_word(r, "settings", rows[i].settings);
    }
}

/* Each published estimate stands next to the command that plans the same job. */
static void fill_samples(const struct pl_rule_inputs *in, struct pl_report *r) {
    static const char *const lines[][MOST_WORDS] = {
        {"id", "document_total_gb", "document_says", "estimate_vram"},
        {"qwen7b-lora-r256", "13.4", "fits 16",
         "Qwen2.5-7B --mode lora --lora-r 256 --batch-size 2 --max-seq-length 2048 --vram-gb 16"},
        {"qwen7b-lora-r64", "14.1", "fits 16 (tight)",
         "Qwen2.5-7B --mode lora --lora-r 64 --batch-size 4 --max-seq-length 2048 --vram-gb 16"},
        {"phi4mini-full", "12.8", "fits 16",
         "Phi-4-mini --mode full --batch-size 1 --max-seq-length 2048 --vram-gb 16"},
        {"smollm3-full", "11.2", "fits 16",
         "SmolLM3-3B --mode full --batch-size 2 --max-seq-length 2048 --vram-gb 16"},
        {"qwen7b-full", "n/a", "refused, RUNTIME_FULL_FT_MODEL_TOO_LARGE",
         "Qwen2.5-7B --mode full --vram-gb 16"},
        {"qwen14b-qlora", "8.5", "on 32 GB",
         "Qwen2.5-14B --mode qlora --lora-r 32 --batch-size 2 --max-seq-length 4096 --vram-gb 32"},
        {"qwen32b-qlora", "26", "just fits 32",
         "Qwen2.5-32B --mode qlora --lora-r 32 --batch-size 1 --max-seq-length 2048 --vram-gb 32"},
        {"qwen7b-full-32", "refused", "use --full-ft-offload",
         "Qwen2.5-7B --mode full --vram-gb 32"},
        {"qwen7b-offload", "1 + activations", "39 GB of host memory",
         "Qwen2.5-7B --mode full --full-ft-offload --vram-gb 32"},
    };
    (void)in;
    fill_words(lines, N_OF(lines), r);
}

/* --- the list -------------------------------------------------------------------------------- */

static const struct pl_rule_table_info list[] = {
    {"precision", "Weights by precision", "", false, false, fill_precision},
    {"gradients", "Gradients, 16 bit, of every trained parameter", "", false, false,
     fill_gradients},
    {"optimizer", "States of AdamW, fp32", "", false, false, fill_optimizer},
    {"lora", "LoRA: 2 x rank x hidden_dim x target modules x layers",
     "every module is taken for square; with a MODEL each has its own shape", false, false,
     fill_lora},
    {"activations", "Activations: 2 x layers x batch x length x hidden_dim x 2 bytes", "", false,
     false, fill_activations},
    {"inference", "Weights alone, to load a model", "", false, false, fill_inference},
    {"qlora", "QLoRA, batch x length", "document_gb was published for checkpointing on", true,
     false, fill_qlora},
    {"gpus", "GPUs and what they train", "fits, tight and no: QLoRA at 1 x 2048 by the formula",
     true, false, fill_gpus},
    {"grid", "Batch x length on one card",
     "document_... was published for 8B QLoRA on 15 GB; it matches best without checkpointing",
     true, true, fill_grid},
    {"accumulation", "Micro-batches for an effective batch",
     "memory follows the micro-batch, the update follows the effective batch", true, true,
     fill_accumulation},
    {"freezing", "Training only the last layers",
     "frozen or not, every weight has to be loaded: only fewer bytes a weight help", false, true,
     fill_freezing},
    {"mistakes", "Common mistakes and their remedies", "", false, false, fill_mistakes},
    {"checklist", "After CUDA out of memory", "`estimate-vram MODEL --checklist` answers it", false,
     false, fill_checklist},
    {"tiers", "Batch size by the size of the card", "with a MODEL the batch size is planned", false,
     false, fill_tiers},
    {"samples", "Published sample estimates, and the command that answers each",
     "the published figures are not ours", false, false, fill_samples},
};

const struct pl_rule_table_info *pl_rule_table_list(size_t *n) {
    *n = sizeof list / sizeof *list;
    return list;
}

const struct pl_rule_table_info *pl_rule_table_find(const char *name) {
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        if (strcmp(list[i].name, name) == 0) return &list[i];
    return NULL;
}

void pl_rule_table_text(const struct pl_rule_table_info *info, const struct pl_rule_inputs *in,
                        struct pl_text *out) {
    struct pl_report r = {0};
    info->fill(in, &r);
    pl_text_addf(out, "%s (approximate)\n", info->title);
    pl_report_all_columns(&r, out);
    if (info->note[0]) pl_text_addf(out, "  %s\n", info->note);
    pl_report_finish(&r);
}

json_t *pl_rule_table_json(const struct pl_rule_table_info *info, const struct pl_rule_inputs *in) {
    struct pl_report r = {0}, table = {0};
    json_t *columns = json_array(), *notes = json_array();
    info->fill(in, &table);
    for (uint32_t i = 0; i < table.n_rows && (i == 0 || !table.rows[i].line); i++)
        pl_json_append(&columns, json_string(table.rows[i].name));
    if (info->note[0]) pl_json_append(&notes, json_string(info->note));
    pl_report_word(&r, "table", info->name);
    pl_report_word(&r, "title", info->title);
    pl_report_tree(&r, "columns", columns);
    pl_report_tree(&r, "rows", pl_report_end_list(&table));
    pl_report_truth(&r, "approximate", true);
    pl_report_tree(&r, "notes", notes);
    return pl_report_end(&r);
}
