/* shapes.c - a table of models, and the files of a run of each. */
#include "tests/bench/shapes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The larger one is SmolLM2-135M (huggingface.co/HuggingFaceTB/SmolLM2-135M, config.json). */
const struct shape shapes[] = {
    {"tiny-full", "full", 256, 6, 8, 4, 768, 4096, 4, 256, "float32"},
    {"tiny-lora", "lora", 256, 6, 8, 4, 768, 4096, 4, 256, "float32"},
    {"tiny-qlora", "qlora", 256, 6, 8, 4, 768, 4096, 4, 256, "float32"},
    {"135m-full", "full", 576, 30, 9, 3, 1536, 49152, 1, 256, "bfloat16"},
    {"135m-lora", "lora", 576, 30, 9, 3, 1536, 49152, 1, 256, "bfloat16"},
    {"135m-qlora", "qlora", 576, 30, 9, 3, 1536, 49152, 1, 256, "bfloat16"},
};
const int n_shapes = sizeof shapes / sizeof *shapes;

const struct shape *shape_find(const char *name) {
    for (int i = 0; i < n_shapes; i++)
        if (strcmp(shapes[i].name, name) == 0) return &shapes[i];
    return NULL;
}

static void die(const char *what) {
    perror(what);
    exit(1);
}

char *shape_config(const struct shape *s) {
    static const char format[] =
        "{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\",\n"
        " \"hidden_size\": %llu, \"intermediate_size\": %llu, \"num_hidden_layers\": %llu,\n"
        " \"num_attention_heads\": %llu, \"num_key_value_heads\": %llu, \"vocab_size\": %llu,\n"
        " \"max_position_embeddings\": 2048, \"rms_norm_eps\": 1e-5, \"rope_theta\": 10000.0,\n"
        " \"tie_word_embeddings\": true, \"hidden_act\": \"silu\", \"initializer_range\": 0.02,\n"
        " \"torch_dtype\": \"%s\"}\n";
    char *text = NULL;
    if (asprintf(&text, format, (unsigned long long)s->hidden, (unsigned long long)s->ffn,
                 (unsigned long long)s->layers, (unsigned long long)s->heads,
                 (unsigned long long)s->kv_heads, (unsigned long long)s->vocab, s->stored) < 0)
        die("config.json");
    return text;
}

void shape_model(const struct shape *s, struct pl_model *out) {
    struct pl_diag d = {0};
    char *config = shape_config(s);
    if (pl_model_parse(s->name, config, strlen(config), out, &d) != PL_ERR_OK) {
        fprintf(stderr, "%s: %s\n", s->name, d.message);
        exit(1);
    }
    free(config);
}

static FILE *create(const char *dir, const char *name) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "w");
    if (!f) die(path);
    return f;
}

static void finish(FILE *f) {
    if (fclose(f)) die("a file of the run");
}

static void write_list(FILE *f, const char *key, const uint64_t *ids, uint64_t n) {
    fprintf(f, "\"%s\":[", key);
    for (uint64_t i = 0; i < n; i++)
        fprintf(f, "%s%llu", i ? "," : "", (unsigned long long)ids[i]);
    fputc(']', f);
}

static void write_rows(FILE *f, const struct shape *s, uint64_t rows) {
    uint64_t state = 1, *ids = malloc(s->length * sizeof *ids);
    if (!ids) die("rows");
    for (uint64_t row = 0; row < rows; row++) {
        for (uint64_t i = 0; i < s->length; i++) {
            state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
            ids[i] = (state >> 33) % s->vocab;
        }
        fputc('{', f);
        write_list(f, "input_ids", ids, s->length);
        fputc(',', f);
        write_list(f, "labels", ids, s->length);
        fputs("}\n", f);
    }
    free(ids);
}

/* Random weights come in no type, so `base_dtype: auto` would leave them as `dtype`. */
static const char *adapter_keys(const struct shape *s) {
    if (strcmp(s->mode, "full") == 0) return "";
    return strcmp(s->stored, "bfloat16") == 0 ? "lora_r: 16\nbase_dtype: bf16\n" : "lora_r: 16\n";
}

void shape_write(const struct shape *s, const char *dir, uint64_t steps, uint32_t threads) {
    char *config = shape_config(s);
    FILE *f = create(dir, "config.json");
    fputs(config, f);
    finish(f);
    free(config);
    write_rows(f = create(dir, "train.jsonl"), s, 8 * s->batch);
    finish(f);
    f = create(dir, "run.yaml");
    fprintf(f,
            "model_config: config.json\ninit: random\nmode: %s\ndtype: fp32\n"
            "datasets:\n  - path: train.jsonl\n    format: tokens\nshuffle: false\n"
            "batch_size: %llu\nmax_seq_length: %llu\nmax_steps: %llu\nthreads: %u\n"
            "%slearning_rate: 1e-4\nlr_scheduler: constant\nmax_grad_norm: 1.0\n"
            "gradient_checkpointing: none\ndevice: cpu\noutput_dir: out\n",
            s->mode, (unsigned long long)s->batch, (unsigned long long)s->length,
            (unsigned long long)steps, threads, adapter_keys(s));
    finish(f);
}

double shape_flops_per_token(const struct shape *s) {
    struct pl_model m;
    shape_model(s, &m);
    double products = (double)pl_model_linear_params(&m) + (double)(s->vocab * s->hidden);
    /* scores and their use: 2 products of length/2 keys on average, twice as much backward */
    double attention = 3.0 * 2.0 * 2.0 * (double)s->length / 2.0 * (double)(s->layers * s->hidden);
    return products * (strcmp(s->mode, "full") == 0 ? 6.0 : 4.0) + attention;
}
