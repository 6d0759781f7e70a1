/* growth.c - what a reader of foreign files costs grows no faster than its input.
 *
 * Use: growth_NAME NAME DATA runs the fuzz target NAME on inputs of n and 4 n pieces, in each shape
 * that the table has for it, and fails where the processor time grows more than MOST_RATIO times: 4
 * for work in proportion to the input, 16 for work that grows with its square. Both are measured in
 * turn, the shortest of REPEATS counts, and a ratio that is too high is measured again, so that a
 * busy machine does not fail the test. */
#include "estimator/base/text.h"
#include "tests/fuzz/fuzz.h"

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MOST_RATIO  8.0
#define REPEATS     5
#define TRIES       6
#define LEAST       0.01       /* seconds that are measured at a time */
#define LONG_ENOUGH 0.05       /* seconds of one call */
#define MOST_BYTES  (1u << 17) /* more would measure the caches of the processor */

#define SHAPE(...)                                                                                 \
    { __VA_ARGS__, NULL, false }
#define SHAPE_OF(tokenizer, ...)                                                                   \
    { __VA_ARGS__, tokenizer, false }
#define COUNTED(...)                                                                               \
    { __VA_ARGS__, NULL, true }
#define TENSOR     "\"t%1$zu\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}"
#define JSON_HEAD  "{\"model_type\":\"llama\",\"hidden_size\":16,\"intermediate_size\":24,"
#define JSON_MODEL JSON_HEAD "\"vocab_size\":32,\"num_hidden_layers\":9,\"num_attention_heads\":2"
#define BPE_HEAD                                                                                   \
    "{\"version\":\"1.0\",\"normalizer\":null,\"pre_tokenizer\":{\"type\":\"ByteLevel\","          \
    "\"add_prefix_space\":false,\"use_regex\":true},\"post_processor\":null,"                      \
    "\"decoder\":{\"type\":\"ByteLevel\"},"
#define JOB         "mode: lora\nmodel: x\n"
#define RECIPE      "base_model: m\nmicro_batch_size: 1\nsequence_len: 8\n"
#define TUNE_RECIPE "model: {_component_: a.b}\ncheckpointer: {checkpoint_dir: m}\na: xyz\n"
#define LORA        "{\"peft_type\":\"LORA\",\"r\":8,\"lora_alpha\":16,\"target_modules\":"
#define TEXT(of, name, first, piece)                                                               \
    SHAPE_OF(of, "tokenizer", of ": " name, 5000, first, piece, "", "")
#define TEXTS(of)                                                                                  \
    TEXT(of, "letters", "", "a"), TEXT(of, "words", "", "word%1$zu "),                             \
        TEXT(of, "blanks", "", " "), TEXT(of, "lines", "", "\n"), TEXT(of, "digits", "", "1"),     \
        TEXT(of, "signs", "", "!"), TEXT(of, "marks", "a", "\xCC\x81"),                            \
        TEXT(of, "wide", "", "\xE4\xB8\xAD"), TEXT(of, "blanks and lines", "", " \n"),             \
        TEXT(of, "apostrophes", "", "'")

/* An input is `first`, `piece` for every i from 0 to n - 1 with `between` in between, and `last`.
 * A piece may show i as often as it likes by %1$zu. */
static const struct shape {
    const char *target, *name;
    size_t n;
    const char *first, *piece, *between, *last;
    const char *tokenizer; /* name of a fixture: its file comes before the input, with a NUL */
    bool counted;          /* the input has its length before it, in eight bytes */
} shapes[] = {
    /* rows of data */
    SHAPE("data_rows", "short rows", 2000, "", "{\"text\":\"row %1$zu\"}", "\n", "\n"),
    SHAPE("data_rows", "rows of lines", 2000, "", "{\n \"text\": \"row %1$zu\"\n}", "\n", "\n"),
    SHAPE("data_rows", "rows in one object", 2000, "{\"data\": [\n", "{\"text\":\"row %1$zu\"}",
          ",\n", "]}\n"),
    SHAPE("data_rows", "blank lines in an object", 20000, "{", "\n", "", "\"text\": \"a\"}\n"),
    SHAPE("data_rows", "many keys", 2000, "{\"text\":\"a\"", ",\"k%1$zu\":%1$zu", "", "}\n"),
    SHAPE("data_rows", "same key", 2000, "{\"text\":\"a\"", ",\"k\":%1$zu", "", "}\n"),
    SHAPE("data_rows", "deep values", 200, "{\"text\":\"a\",\"k\":[", "[[[[[[[[%1$zu]]]]]]]]", ",",
          "]}\n"),
    SHAPE("data_rows", "long text", 20000, "{\"text\":\"", "word%1$zu ", "", "\"}\n"),
    SHAPE("data_rows", "escapes", 20000, "{\"text\":\"", "\\n\\u00e9\\ud83d\\ude00", "", "\"}\n"),
    SHAPE("data_rows", "messages", 500, "{\"messages\":[",
          "{\"role\":\"user\",\"content\":\"q%1$zu\"},{\"role\":\"assistant\",\"content\":\"a%1$"
          "zu\"}",
          ",", "]}\n"),
    SHAPE("data_rows", "conversations of unknown keys", 500, "{\"messages\":[",
          "{\"role\":\"user\",\"content\":\"q\",\"k%1$zu\":1},"
          "{\"role\":\"assistant\",\"content\":\"a\",\"x%1$zu\":1}",
          ",", "]}\n"),
    SHAPE("data_rows", "turns", 500, "{\"conversations\":[",
          "{\"from\":\"human\",\"value\":\"q%1$zu\"},{\"from\":\"gpt\",\"value\":\"a%1$zu\"}", ",",
          "]}\n"),
    SHAPE("data_rows", "tokens", 20000, "{\"input_ids\":[", "7", ",", "]}\n"),
    SHAPE("data_rows", "unknown keys of rows", 2000, "", "{\"text\":\"a\",\"k%1$zu\":1}", "\n",
          "\n"),
    SHAPE("csv", "rows", 1000, "text,more\n", "row %1$zu,x", "\n", "\n"),
    SHAPE("csv", "long cell", 20000, "text,more\n\"", "word %1$zu\n", "", "\",x\n"),
    SHAPE("csv", "quotes", 20000, "text,more\n\"", "\"\"", "", "\",x\n"),
    /* configurations */
    SHAPE("job_yaml", "datasets", 200, JOB "datasets:\n", "  - {path: d%1$zu.jsonl, weight: 2}",
          "\n", "\n"),
    SHAPE("job_yaml", "list of names", 200, JOB "lora_target_modules: [", "m%1$zu", ", ", "]\n"),
    SHAPE("job_yaml", "keys", 500, JOB, "key%1$zu: 1", "\n", "\n"),
    SHAPE("job_yaml", "comments", 2000, JOB, "# %1$zu", "\n", "\n"),
    SHAPE("import", "keys", 500, RECIPE, "key%1$zu: 1", "\n", "\n"),
    SHAPE("import", "one key", 500, RECIPE, "rl: dpo", "\n", "\n"),
    SHAPE("import", "sections", 300, RECIPE, "s%1$zu: {a: 1, b: {c: 2}}", "\n", "\n"),
    SHAPE("import", "data", 200, RECIPE "datasets:\n", "  - {path: d%1$zu, type: alpaca}", "\n",
          "\n"),
    SHAPE("import", "special tokens", 300, RECIPE "special_tokens:\n", "  t%1$zu: x", "\n", "\n"),
    SHAPE("import", "builders of data", 200, TUNE_RECIPE "dataset:\n",
          "  - {_component_: x.chat_dataset, source: d%1$zu}", "\n", "\n"),
    SHAPE("import", "references", 300, TUNE_RECIPE, "k%1$zu: ${a}", "\n", "\n"),
    SHAPE("job_yaml", "long text", 2000, JOB "output_dir: ", "word%1$zu", "", "\n"),
    SHAPE("model_config", "keys", 2000, JSON_MODEL, ",\"k%1$zu\":%1$zu", "", "}"),
    SHAPE("model_config", "long list", 2000, JSON_MODEL ",\"layer_types\":[", "\"t%1$zu\"", ",",
          "]}"),
    SHAPE("adapter_config", "list of modules", 1000, LORA "[", "\"m%1$zu\"", ",", "]}"),
    SHAPE("adapter_config", "known modules", 1000, LORA "[", "\"layers.%1$zu.q_proj\"", ",", "]}"),
    SHAPE("adapter_config", "pattern", 1000, LORA "\"", "m%1$zu", "|", "\"}"),
    SHAPE("adapter_config", "stars", 1000, LORA "\"", ".*", "", "q_proj\"}"),
    SHAPE("adapter_config", "layers", 1000, LORA "[\"q_proj\"],\"layers_to_transform\":[", "%1$zu",
          ",", "]}"),
    SHAPE("adapter_config", "ranks", 1000, LORA "[\"q_proj\"],\"rank_pattern\":{", "\"p%1$zu\":8",
          ",", "}}"),
    /* tensors */
    SHAPE("weight_index", "tensors", 1000, "{\"weight_map\":{", "\"t%1$zu\":\"shard\"", ",", "}}"),
    SHAPE("weight_index", "shards", 1000, "{\"weight_map\":{", "\"t%1$zu\":\"shard%1$zu\"", ",",
          "}}"),
    COUNTED("safetensors", "tensors", 200, "{", TENSOR, ",", "}"),
    COUNTED("safetensors", "metadata", 200, "{\"__metadata__\":{", "\"k%1$zu\":\"v\"", ",", "}}"),
    COUNTED("safetensors", "dimensions", 200,
            "{\"t\":{\"dtype\":\"U8\",\"data_offsets\":[0,0],\"shape\":[0", ",1", "", "]}}"),
    COUNTED("model_weights", "tensors", 200, "{", TENSOR, ",", "}"),
    /* files that a run left */
    SHAPE("train_log", "steps", 1000, "", "{\"step\":%1$zu,\"loss\":1.5}", "\n", "\n"),
    SHAPE("run_state", "keys", 1000, "{", "\"k%1$zu\":1", ",", "}"),
    SHAPE("receipt", "keys", 1000, "{\"receipt\":1,\"asked\":{\"settings\":{", "\"k%1$zu\":\"1\"",
          ",", "}}}"),
    SHAPE("receipt", "ledger", 200,
          "{\"receipt\":1,\"version\":\"0\",\"measured\":null,\"asked\":{\"mode\":\"lora\","
          "\"model\":{\"layers\":1},\"device\":{},\"settings\":{\"lora_r\":\"8\"}},\"decided\":{"
          "\"batch_size\":\"1\"},\"digests\":{\"question\":\"\",\"program\":\"\",\"plan\":\"\"},"
          "\"planned\":{\"verdict\":\"fits\",\"bytes\":{\"total\":3,\"arena\":2,\"context\":1,"
          "\"host\":0},\"host_ledger\":[],\"ledger\":[{\"category\":\"weights\",\"bytes\":2}",
          ",{\"category\":\"c%1$zu\",\"bytes\":0}", "", "]}}"),
    /* tokenizers */
    SHAPE("tokenizer", "vocabulary", 2000,
          BPE_HEAD "\"added_tokens\":[],\"model\":{\"type\":\"BPE\",\"merges\":[],\"vocab\":{",
          "\"v%1$zu\":%1$zu", ",", "}}}"),
    SHAPE("tokenizer", "added tokens", 500,
          BPE_HEAD "\"model\":{\"type\":\"BPE\",\"merges\":[],\"vocab\":{}},\"added_tokens\":[",
          "{\"id\":%1$zu,\"content\":\"<%1$zu>\",\"special\":true}", ",", "]}"),
    SHAPE("tokenizer", "merges", 500,
          BPE_HEAD "\"added_tokens\":[],\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,"
                   "\"ab\":2},\"merges\":[",
          "\"a b\"", ",", "]}}"),
    SHAPE("tokenizer_config", "keys", 1000, "{", "\"k%1$zu\":1", ",", "}"),
    SHAPE("tokenizer_config", "templates", 200, "{\"chat_template\":[",
          "{\"name\":\"t%1$zu\",\"template\":\"x\"}", ",", "]}"),
    SHAPE("tokenizer_config", "names in a template", 500, "{\"chat_template\":\"", "{{ n%1$zu }}",
          "", "\"}"),
    SHAPE("tokenizer_config", "added tokens", 500, "{\"added_tokens_decoder\":{",
          "\"%1$zu\":{\"content\":\"<%1$zu>\",\"special\":true}", ",", "}}"),
    TEXTS("gpt2_style"),
    TEXTS("qwen2_style"),
    TEXTS("mistral_metaspace_first"),
    TEXTS("unigram_metaspace"),
    /* programs of conversations */
    SHAPE("jinja", "names", 200, "", "{{ n%1$zu }}", "", ""),
    SHAPE("jinja", "one expression", 200, "{{ 1", " + %1$zu", "", " }}"),
    SHAPE("jinja", "text", 5000, "", "word %1$zu", "", ""),
    SHAPE("jinja", "comments", 500, "", "{#- %1$zu -#} ", "", ""),
    SHAPE("jinja", "blanks before tags", 200, "", "{%% raw %%}        {%%- endraw %%}", "", ""),
};

static void read_fixture(struct pl_text *to, const char *data, const char *name) {
    char path[4096], buffer[4096];
    snprintf(path, sizeof path, "%s/%s/tokenizer.json", data, name);
    FILE *f = fopen(path, "rb");
    FUZZ_CHECK(f != NULL);
    for (size_t n; (n = fread(buffer, 1, sizeof buffer, f)) > 0;)
        pl_text_addn(to, buffer, n);
    fclose(f);
    pl_text_addn(to, "", 1);
}

/* The pieces are the table's own: the format is checked by eye. */
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
static void write_input(struct pl_text *to, const struct shape *s, size_t n, const char *data) {
    char piece[512];
    to->len = 0;
    if (s->tokenizer) read_fixture(to, data, s->tokenizer);
    if (s->counted) pl_text_add(to, "........");
    pl_text_add(to, s->first);
    for (size_t i = 0; i < n; i++) {
        if (i) pl_text_add(to, s->between);
        FUZZ_CHECK((size_t)snprintf(piece, sizeof piece, s->piece, i) < sizeof piece);
        pl_text_add(to, piece);
    }
    pl_text_add(to, s->last);
    uint64_t length = to->len - sizeof length; /* little-endian, as every machine of the tests */
    if (s->counted) memcpy(to->data, &length, sizeof length);
    FUZZ_CHECK(!to->failed);
}

static double processor_seconds(void) {
    struct timespec t;
    FUZZ_CHECK(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t) == 0);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* The time of one call, of as many as take LEAST. */
static double measure(const struct pl_text *input) {
    double begin = processor_seconds(), seconds = 0;
    int calls = 0;
    for (; seconds < LEAST; calls++) {
        FUZZ_CHECK(LLVMFuzzerTestOneInput((const uint8_t *)input->data, input->len) == 0);
        seconds = processor_seconds() - begin;
    }
    return seconds / calls;
}

/* The ratio of the times of 4 n pieces and n. */
static double ratio_of(const struct shape *s, size_t n, const char *data, double *seconds) {
    struct pl_text small = {0}, large = {0};
    double least = 0, most = 0;
    write_input(&small, s, n, data);
    write_input(&large, s, 4 * n, data);
    for (int i = 0; i < REPEATS; i++) {
        double a = measure(&small), b = measure(&large);
        least = i && least < a ? least : a;
        most = i && most < b ? most : b;
        if (most > 2) break;
    }
    pl_text_finish(&small);
    pl_text_finish(&large);
    *seconds = most;
    return most / least;
}

/* Returns so many pieces that they take LONG_ENOUGH, or that four times as many are MOST_BYTES. */
static size_t large_enough(const struct shape *s, const char *data) {
    struct pl_text input = {0};
    size_t n = s->n;
    for (;; n *= 2) {
        write_input(&input, s, n, data);
        bool slow = measure(&input) >= LONG_ENOUGH;
        bool full = input.len * 4 > MOST_BYTES;
        pl_text_finish(&input);
        if (slow || full) return n;
    }
}

static bool grows_in_proportion(const struct shape *s, const char *data) {
    size_t n = large_enough(s, data);
    double ratio = 0, seconds;
    for (int i = 0; i < TRIES; i++) {
        ratio = ratio_of(s, n, data, &seconds);
        printf("%s: %s: %zu pieces %.5f s, a quarter of them 1/%.1f\n", s->target, s->name, 4 * n,
               seconds, ratio);
        if (ratio <= MOST_RATIO) return true;
    }
    return false;
}

int main(int argc, char *argv[]) {
    size_t measured = 0, wrong = 0;
    FUZZ_CHECK(argc == 3);
    /* pages stay with the process: asking the kernel for them again is no work of the reader */
    FUZZ_CHECK(mallopt(M_MMAP_THRESHOLD, 1 << 28) == 1 && mallopt(M_TRIM_THRESHOLD, 1 << 30) == 1);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        if (strcmp(shapes[i].target, argv[1]) != 0) continue;
        measured++;
        wrong += !grows_in_proportion(&shapes[i], argv[2]);
    }
    FUZZ_CHECK(measured > 0);
    return wrong != 0;
}
