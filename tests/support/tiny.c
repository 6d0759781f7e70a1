/* tiny.c - a configuration and rows of numbers from a counter. */
#include "tests/support/tiny.h"

#include "estimator/base/text.h"
#include "tests/support/scratch.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t or_else(uint64_t value, uint64_t other) {
    return value ? value : other;
}

/* splitmix64, Steele et al. 2014: the same rows on every machine. */
static uint64_t draw(uint64_t *state) {
    uint64_t z = *state += UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}

static void write_config(const char *dir, const struct tiny *t) {
    uint64_t hidden = or_else(t->hidden, 32);
    char pad[64] = "";
    if (t->pad) snprintf(pad, sizeof pad, " \"pad_token_id\": %llu,\n", (unsigned long long)t->pad);
    file_write(in_dir(dir, "config.json"),
               textf("{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\",\n"
                     " \"hidden_size\": %llu, \"intermediate_size\": %llu,\n"
                     " \"num_hidden_layers\": %llu, \"num_attention_heads\": 4,\n"
                     " \"num_key_value_heads\": 2, \"vocab_size\": %llu,\n"
                     "%s \"max_position_embeddings\": 4096, \"rms_norm_eps\": 1e-5,\n"
                     " \"rope_theta\": 10000.0, \"tie_word_embeddings\": %s,\n"
                     " \"hidden_act\": \"silu\", \"initializer_range\": 0.1,\n"
                     " \"torch_dtype\": \"float32\"}\n",
                     (unsigned long long)hidden, (unsigned long long)or_else(t->ffn, 48),
                     (unsigned long long)or_else(t->layers, 2),
                     (unsigned long long)or_else(t->vocab, 61), pad, t->untied ? "false" : "true"));
}

static void print_list(FILE *f, const int64_t *list, uint64_t n) {
    for (uint64_t i = 0; i < n; i++)
        fprintf(f, "%s%lld", i ? "," : "", (long long)list[i]);
}

/* Every third row masks its start; row 4 has no target at all. */
static void write_row(FILE *f, uint64_t row, uint64_t n, uint64_t vocab, uint64_t *state) {
    int64_t ids[512], labels[512];
    for (uint64_t i = 0; i < n; i++) {
        ids[i] = (int64_t)(draw(state) % vocab);
        labels[i] = row == 4 || (row % 3 == 0 && i < n / 3) ? -100 : ids[i];
    }
    fputs("{\"input_ids\":[", f);
    print_list(f, ids, n);
    fputs("],\"labels\":[", f);
    print_list(f, labels, n);
    fputs("]}\n", f);
}

static void write_data(const char *dir, const struct tiny *t) {
    uint64_t longest = or_else(t->longest, 16), state = or_else(t->seed, 1);
    ck_assert(longest >= 6 && longest <= 512);
    FILE *f = fopen(in_dir(dir, "train.jsonl"), "w");
    ck_assert_ptr_nonnull(f);
    for (uint64_t row = 0; row < or_else(t->rows, 24); row++) {
        uint64_t n = row == 0 ? longest : 5 + draw(&state) % (longest - 4);
        write_row(f, row, n, or_else(t->vocab, 61), &state);
    }
    ck_assert_int_eq(fclose(f), 0);
}

/* A line of run.yaml, unless `more` has one of this key. */
static void add_default(FILE *f, const char *more, const char *key, const char *value) {
    size_t n = strlen(key);
    for (const char *line = more; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, key, n) == 0 && line[n] == ':') return;
    }
    fprintf(f, "%s: %s\n", key, value);
}

/* malloc'd: the keys of a job on an emulated GPU without bf16: fp16, less what it refuses. */
static char *without_bf16(const char *more) {
    static const char *const refused[] = {"master_weights: false", "gradient_dtype: bf16",
                                          "adapter_dtype: bf16", "compute_dtype: bf16"};
    struct pl_text out = {0};
    for (const char *line = more, *end; *line; line = end) {
        end = strchr(line, '\n');
        end = end ? end + 1 : line + strlen(line);
        bool keeps = true;
        for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
            keeps = keeps && strncmp(line, refused[i], strlen(refused[i])) != 0;
        if (strncmp(line, "dtype: bf16", 11) == 0)
            pl_text_add(&out, "dtype: fp16\n");
        else if (keeps)
            pl_text_addf(&out, "%.*s", (int)(end - line), line);
    }
    char *text = strdup(pl_text_str(&out));
    ck_assert_ptr_nonnull(text);
    pl_text_finish(&out);
    return text;
}

void tiny_make(const char *dir, const struct tiny *t, const char *keys) {
    const char *device = getenv("TINY_DEVICE"), *sm = getenv("PLSIM_SM");
    char *more = sm && atoi(sm) < 80 ? without_bf16(keys) : strdup(keys);
    ck_assert_ptr_nonnull(more);
    write_config(dir, t);
    write_data(dir, t);
    FILE *f = fopen(in_dir(dir, "run.yaml"), "w");
    ck_assert_ptr_nonnull(f);
    fprintf(f,
            "mode: %s\nmax_seq_length: %llu\n"
            "datasets:\n  - path: train.jsonl\n    format: tokens\n%s",
            t->mode ? t->mode : "full", (unsigned long long)or_else(t->longest, 16), more);
    const char *const defaults[][2] = {{"init", "random"}, {"model_config", "config.json"},
                                       {"dtype", "fp32"},  {"device", device ? device : "cpu"},
                                       {"threads", "2"},   {"output_dir", "out"}};
    for (size_t i = 0; i < sizeof defaults / sizeof *defaults; i++)
        add_default(f, more, defaults[i][0], defaults[i][1]);
    ck_assert_int_eq(fclose(f), 0);
    free(more);
}

void tiny_make_tokenizer(const char *dir) {
    file_write(
        in_dir(dir, "tokenizer.json"),
        "{\"version\":\"1.0\",\"added_tokens\":[{\"id\":8,\"content\":\"<s>\",\"special\":true,"
        "\"single_word\":false,\"lstrip\":false,\"rstrip\":false,\"normalized\":false}],"
        "\"normalizer\":{\"type\":\"NFC\"},"
        "\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false,"
        "\"trim_offsets\":true,\"use_regex\":true},\"post_processor\":null,"
        "\"decoder\":{\"type\":\"ByteLevel\",\"add_prefix_space\":true,"
        "\"trim_offsets\":true,\"use_regex\":true},"
        "\"model\":{\"type\":\"BPE\",\"dropout\":null,\"unk_token\":null,"
        "\"vocab\":{\"a\":0,\"b\":1,\"c\":2,\"\xC4\xA0\":3,\"ab\":4,\"abc\":5,"
        "\"\xC4\xA0"
        "a\":6,\"\xC4\x8A\":7},\"merges\":[\"a b\",\"ab c\",\"\xC4\xA0 a\"]}}");
}
