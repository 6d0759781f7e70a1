/* check_mxfp4_base.c - qlora over the MXFP4 codes of a file's experts is lora over their values, to
 * the bit, and leaves, resumes and merges as that does. Through the real binary. */
#include "estimator/base/text.h"
#include "runtime/checkpoint/safetensors.h"
#include "tests/support/child.h"
#include "tests/support/joblog.h"
#include "tests/support/saved.h"
#include "tests/support/scratch.h"
#include "tests/support/tensorset.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static char dir[SCRATCH_PATH];

enum { EXPERTS = 8, HIDDEN = 64, FFN = 96, MOST = 128 };

#define CONFIG(more)                                                                               \
    "{\"model_type\":\"gpt_oss\",\"hidden_size\":64,\"intermediate_size\":96,"                     \
    "\"num_local_experts\":8,\"num_experts_per_tok\":2,\"num_hidden_layers\":3,"                   \
    "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"head_dim\":8,\"vocab_size\":96,"        \
    "\"sliding_window\":8,\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":4.0,"                \
    "\"original_max_position_embeddings\":16,\"truncate\":false},\"max_position_embeddings\":64,"  \
    "\"tie_word_embeddings\":false,\"torch_dtype\":\"bfloat16\"" more "}"
#define QUANTISED ",\"quantization_config\":{\"quant_method\":\"mxfp4\"}"

#define TRAIN(status, ...) plimsoll_train_expect(status, dir, (const char *[]){__VA_ARGS__, NULL})

/* --- two files of one model ------------------------------------------------------------------- */

struct file {
    struct pl_st_item items[MOST];
    uint64_t n, dims[MOST][4];
    char *names[MOST];
    struct pl_text data;
};

static void add(struct file *f, const char *name, const char *end, enum pl_dtype dtype,
                uint32_t rank, const uint64_t *dims, const void *data, uint64_t bytes) {
    ck_assert_uint_lt(f->n, MOST);
    f->names[f->n] = strdup(textf("%s%s", name, end));
    memcpy(f->dims[f->n], dims, rank * sizeof *dims);
    f->items[f->n] = (struct pl_st_item){f->names[f->n], dtype, rank, f->dims[f->n]};
    pl_text_addn(&f->data, data, bytes);
    f->n++;
}

static void write_file(struct file *f, const char *path) {
    struct pl_text all = {0};
    struct pl_diag d = {0};
    ck_assert_int_eq(pl_st_header(f->items, f->n, &all, &d), PL_ERR_OK);
    pl_text_addn(&all, f->data.data, f->data.len);
    ck_assert(!all.failed && !f->data.failed);
    FILE *out = fopen(in_dir(dir, path), "wb");
    ck_assert_ptr_nonnull(out);
    ck_assert_uint_eq(fwrite(all.data, 1, all.len, out), all.len);
    ck_assert_int_eq(fclose(out), 0);
    for (uint64_t i = 0; i < f->n; i++)
        free(f->names[i]);
    pl_text_finish(&f->data);
    pl_text_finish(&all);
}

static uint32_t next(uint32_t *seed) {
    *seed = *seed * 1664525u + 1013904223u;
    return *seed >> 24;
}

/* The experts [in, out] of a tensor as codes of [out, in], and as their values in bf16. */
static void add_experts(struct file *codes, struct file *values, const struct pl_st_entry *e,
                        uint32_t seed) {
    static const float table[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
    const uint64_t in = e->dims[1], out = e->dims[2], n = EXPERTS * in * out;
    const uint64_t blocks[] = {EXPERTS, out, in / 32, 16};
    unsigned char *code = malloc(n / 2), *scale = malloc(n / 32);
    uint16_t *value = malloc(n * sizeof *value);
    ck_assert(code && scale && value);
    for (uint64_t i = 0; i < n / 2; i++)
        code[i] = (unsigned char)next(&seed);
    for (uint64_t i = 0; i < n / 32; i++)
        scale[i] = (unsigned char)(119 + next(&seed) % 5);
    for (uint64_t i = 0; i < n; i++) {
        const unsigned c = code[i / 2] >> i % 2 * 4 & 15;
        const float x = ldexpf(c & 8 ? -table[c & 7] : table[c], scale[i / 32] - 127);
        uint32_t bits;
        memcpy(&bits, &x, sizeof bits);
        value[(i / (in * out) * in + i % in) * out + i / in % out] = (uint16_t)(bits >> 16);
    }
    add(codes, e->name, "_blocks", PL_DTYPE_U8, 4, blocks, code, n / 2);
    add(codes, e->name, "_scales", PL_DTYPE_U8, 3, blocks, scale, n / 32);
    add(values, e->name, "", PL_DTYPE_BF16, 3, e->dims, value, 2 * n);
    free(code);
    free(scale);
    free(value);
}

static void add_as_it_is(struct file *f, const struct pl_st_file *from,
                         const struct pl_st_entry *e) {
    struct pl_diag d = {0};
    const uint64_t bytes = e->end - e->begin;
    void *data = malloc(bytes);
    ck_assert_ptr_nonnull(data);
    ck_assert_int_eq(pl_st_read(from, e, 0, data, bytes, &d), PL_ERR_OK);
    add(f, e->name, "", e->dtype, e->rank, e->dims, data, bytes);
    free(data);
}

/* dir/codes and dir/values: a model of random numbers, all but the experts those of dir/base. */
static void write_models(void) {
    static struct file codes, values;
    struct weights w;
    codes = values = (struct file){0};
    weights_open(&w, in_dir(dir, "base"), "model");
    for (uint64_t i = 0; i < w.files[0].n; i++) {
        const struct pl_st_entry *e = &w.files[0].entries[i];
        if (e->rank == 3) {
            add_experts(&codes, &values, e, (uint32_t)i);
            continue;
        }
        add_as_it_is(&codes, &w.files[0], e);
        add_as_it_is(&values, &w.files[0], e);
    }
    weights_close(&w);
    ck_assert_int_eq(mkdir(in_dir(dir, "codes"), 0777), 0);
    ck_assert_int_eq(mkdir(in_dir(dir, "values"), 0777), 0);
    write_file(&codes, "codes/model.safetensors");
    write_file(&values, "values/model.safetensors");
    file_write(in_dir(dir, "codes/config.json"), CONFIG(QUANTISED));
    file_write(in_dir(dir, "values/config.json"), CONFIG(""));
}

static void make(void) {
    static const char rows[] = "{\"input_ids\": [1, 5, 9, 13, 17, 21, 25, 29, 33, 37, 41, 2]}\n"
                               "{\"input_ids\": [1, 40, 39, 38, 37, 36, 2]}\n"
                               "{\"input_ids\": [1, 7, 9, 13, 19, 21, 90, 91, 33, 37, 2]}\n";
    static const char run[] =
        "dataset: rows.jsonl\nmax_seq_length: 16\nbatch_size: 2\ngradient_accumulation_steps: 2\n"
        "learning_rate: 1e-2\nsave_steps: 3\ndevice: cpu\nlogging_steps: 1\n";
    file_write(in_dir(dir, "model.json"), CONFIG(""));
    file_write(in_dir(dir, "rows.jsonl"), rows);
    file_write(in_dir(dir, "run.yaml"),
               textf("%smodel_config: model.json\ndtype: bf16\ninit: random\nmode: full\n", run));
    TRAIN(0, "output_dir=base", "max_steps=1");
    write_models();
    file_write(in_dir(dir, "run.yaml"),
               textf("%slora_r: 4\nmax_steps: 6\nlr_scheduler: constant\n"
                     "lora_target_parameters: [mlp.experts.gate_up_proj, mlp.experts.down_proj]\n",
                     run));
}

static void set_up(void) {
    scratch_make(dir);
    make();
}

static void tear_down(void) {
    scratch_remove(dir);
}

/* --- the same bits ---------------------------------------------------------------------------- */

#define OVER_CODES  "model=codes", "mode=qlora"
#define OVER_VALUES "model=values", "mode=lora"

static const char *const runs[][3] = {
    {"dtype=bf16", "gradient_checkpointing=none"},
    {"dtype=bf16", "gradient_checkpointing=full", "quant_type=mxfp4"},
    {"dtype=bf16", "unpack_buffer=16KiB", "lora_target_modules=[q_proj]"},
    {"dtype=bf16", "packing=true", "offload=weights"},
    {"dtype=fp32", "gradient_checkpointing=light"},
    {"dtype=fp16", "gradient_checkpointing=full"},
};
enum { RUNS = sizeof runs / sizeof *runs };

/* A key that says how a base in 4 bits is held has no effect on one in 16 bits. */
static const char *of_any_base(const char *key) {
    const bool quantised = !key || strstr(key, "quant_type") || strstr(key, "unpack_buffer");
    return quantised ? "seed=42" : key;
}

START_TEST(codes_train_as_their_values) {
    const char *const *k = runs[_i];
    TRAIN(0, "output_dir=a", OVER_CODES, k[0], k[1], k[2] ? k[2] : "seed=42");
    TRAIN(0, "output_dir=b", OVER_VALUES, k[0], of_any_base(k[1]), of_any_base(k[2]));
    joblog_assert_same_steps(in_dir(dir, "a"), in_dir(dir, "b"));
    weights_assert_same(in_dir(dir, "a"), in_dir(dir, "b"), "adapter_model");
    ck_assert(joblog_summary(in_dir(dir, "a"), "planned_peak_bytes") ==
              joblog_summary(in_dir(dir, "a"), "allocated_peak_bytes"));
    ck_assert(joblog_summary(in_dir(dir, "a"), "planned_peak_bytes") <
              joblog_summary(in_dir(dir, "b"), "planned_peak_bytes"));
}
END_TEST

START_TEST(a_run_resumes_to_the_bit) {
    TRAIN(0, "output_dir=cut", OVER_CODES, "max_steps=3");
    TRAIN(0, "output_dir=cut", OVER_CODES, "quant_type=mxfp4");
    TRAIN(0, "output_dir=straight", OVER_CODES);
    weights_assert_same(in_dir(dir, "straight"), in_dir(dir, "cut"), "adapter_model");
    checkpoint_assert_same(in_dir(dir, "straight/checkpoint-6"), in_dir(dir, "cut/checkpoint-6"));
    plimsoll_train_expect(
        5, dir,
        (const char *[]){"output_dir=cut", OVER_CODES, "max_steps=7", "quant_type=nf4", NULL});
}
END_TEST

START_TEST(half_a_micro_batch_has_the_bits_of_values) {
    TRAIN(0, "output_dir=a", OVER_CODES, "debug_inject=device_oom@step=2");
    TRAIN(0, "output_dir=b", OVER_VALUES, "debug_inject=device_oom@step=2");
    weights_assert_same(in_dir(dir, "a"), in_dir(dir, "b"), "adapter_model");
    ck_assert(joblog_summary(in_dir(dir, "a"), "oom_recoveries") == 1);
}
END_TEST

/* --- what is done with an adapter ------------------------------------------------------------- */

static char *output_of(const char *const words[]) {
    struct outcome o = plimsoll_expect(0, dir, words);
    char *out = strdup(o.out);
    ck_assert_ptr_nonnull(out);
    outcome_finish(&o);
    return out;
}

START_TEST(an_adapter_merges_into_codes_as_into_values) {
    TRAIN(0, "output_dir=tuned", OVER_CODES, "save_merged=true", "dtype=bf16");
    const char *const merge[][9] = {
        {"merge", "--model", "codes", "--adapter", "tuned", "-o", "a", NULL},
        {"merge", "--model", "values", "--adapter", "tuned", "-o", "b", NULL}};
    for (int i = 0; i < 2; i++)
        free(output_of(merge[i]));
    weights_assert_same(in_dir(dir, "a"), in_dir(dir, "b"), "model");
    weights_assert_same(in_dir(dir, "a"), in_dir(dir, "tuned/merged"), "model");
    char *config = file_read(in_dir(dir, "a/config.json"), NULL);
    ck_assert_ptr_null(strstr(config, "mxfp4"));
    free(config);
}
END_TEST

START_TEST(codes_generate_as_their_values) {
    TRAIN(0, "output_dir=tuned", OVER_CODES);
    const char *const words[][12] = {
        {"generate", "--model", "codes", "--adapter", "tuned", "--prompt-ids", "1,5,9,13",
         "quant_type=mxfp4", NULL},
        {"generate", "--model", "values", "--adapter", "tuned", "--prompt-ids", "1,5,9,13", NULL}};
    char *a = output_of(words[0]), *b = output_of(words[1]);
    ck_assert_str_eq(a, b);
    free(a);
    free(b);
}
END_TEST

/* --- what is refused -------------------------------------------------------------------------- */

START_TEST(values_where_codes_are_expected_are_refused) {
    file_write(in_dir(dir, "values/config.json"), CONFIG(QUANTISED));
    struct outcome o = plimsoll_run(dir, (const char *[]){"train", "run.yaml", "output_dir=a",
                                                          "model=values", "mode=qlora", NULL});
    ck_assert_msg(o.status != 0 && strstr(o.err, "holds values, and no MXFP4 codes") &&
                      strstr(o.err, "set `quant_type: nf4`"),
                  "%s", o.err);
    outcome_finish(&o);
    TRAIN(0, "output_dir=a", "model=values", "mode=qlora", "quant_type=nf4");
}
END_TEST

int main(void) {
    Suite *s = suite_create("train.mxfp4_base");
    TCase *t = tcase_create("runs");
    tcase_add_checked_fixture(t, set_up, tear_down);
    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, codes_train_as_their_values, 0, RUNS);
    tcase_add_test(t, a_run_resumes_to_the_bit);
    tcase_add_test(t, half_a_micro_batch_has_the_bits_of_values);
    tcase_add_test(t, an_adapter_merges_into_codes_as_into_values);
    tcase_add_test(t, codes_generate_as_their_values);
    tcase_add_test(t, values_where_codes_are_expected_are_refused);
    suite_add_tcase(s, t);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
