/* check_layouts.c - ways to lay out one computation: what is kept and what is rebuilt, logits in
 * chunks, the rows of a step in micro-batches. All must end in the same weights.
 *
 * GOLDEN_CASES as in check_golden.c; the cases only lend their models and data here.
 *
 * Bounds. Recomputing repeats the same operations on the same values: the bits must be equal.
 * Chunks and micro-batches change the order in which a gradient's terms are summed and nothing
 * else. A sum of n fp32 terms in another order differs by at most 2 (n-1) u sum|term|, u = 2^-24
 * (Higham, Accuracy and Stability of Numerical Algorithms, 4.2); n is below 128 targets here, but
 * terms cancel, and later steps and Adam's division carry a difference on. expected.json states
 * what such differences come to in the end: it bounds another implementation, whose every sum has
 * another order. Half of that bound is asked for here. */
#include "tests/support/child.h"
#include "tests/support/joblog.h"
#include "tests/support/scratch.h"
#include "tests/support/tensorset.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>

#define SHARE_OF_TOLERANCE 0.5

struct variant {
    const char *test_case;
    const char *words[4]; /* overrides, NULL-terminated */
    bool same_bits;
};

/* The first row of a case is what the others of the case are compared with. */
static const struct variant variants[] = {
    {"llama-full", {"gradient_checkpointing=none", "loss_chunk_tokens=0"}, true},
    {"llama-full", {"gradient_checkpointing=light", "loss_chunk_tokens=0"}, true},
    {"llama-full", {"gradient_checkpointing=full", "loss_chunk_tokens=0"}, true},
    {"llama-full", {"gradient_checkpointing=every_2", "loss_chunk_tokens=0"}, true},
    {"llama-full", {"gradient_checkpointing=mlp", "loss_chunk_tokens=0"}, true},
    {"llama-full", {"gradient_checkpointing=attention", "loss_chunk_tokens=0"}, true},
    {"llama-full", {"gradient_checkpointing=full:1+light", "loss_chunk_tokens=0"}, true},
    {"llama-full", {"gradient_checkpointing=attention:1+mlp", "loss_chunk_tokens=0"}, true},
    {"llama-full", {"gradient_checkpointing=none", "loss_chunk_tokens=7"}, false},
    {"llama-full", {"gradient_checkpointing=full", "loss_chunk_tokens=7"}, false},
    {"llama-full", {"gradient_checkpointing=none", "loss_chunk_tokens=auto"}, false},
    {"lora-llama", {"gradient_checkpointing=none", "loss_chunk_tokens=0"}, true},
    {"lora-llama", {"gradient_checkpointing=light", "loss_chunk_tokens=0"}, true},
    {"lora-llama", {"gradient_checkpointing=full", "loss_chunk_tokens=0"}, true},
    {"lora-llama", {"gradient_checkpointing=every_2", "loss_chunk_tokens=0"}, true},
    {"lora-llama", {"gradient_checkpointing=mlp", "loss_chunk_tokens=0"}, true},
    {"lora-llama", {"gradient_checkpointing=attention", "loss_chunk_tokens=0"}, true},
    {"lora-llama", {"gradient_checkpointing=mlp:1", "loss_chunk_tokens=0"}, true},
    {"qwen3-full", {"gradient_checkpointing=none"}, true},
    {"qwen3-full", {"gradient_checkpointing=attention"}, true},
    {"qwen3-full", {"gradient_checkpointing=mlp"}, true},
    {"gemma3-full", {"gradient_checkpointing=none", "loss_chunk_tokens=0"}, true},
    {"gemma3-full", {"gradient_checkpointing=light", "loss_chunk_tokens=0"}, true},
    {"gemma3-full", {"gradient_checkpointing=mlp", "loss_chunk_tokens=0"}, true},
    {"gemma3-full", {"gradient_checkpointing=attention", "loss_chunk_tokens=0"}, true},
    {"gemma3-full", {"gradient_checkpointing=full", "loss_chunk_tokens=0"}, true},
    {"gemma3-full", {"gradient_checkpointing=full:1+mlp", "loss_chunk_tokens=0"}, true},
    {"gemma3-lora", {"gradient_checkpointing=none"}, true},
    {"gemma3-lora", {"gradient_checkpointing=full"}, true},
    {"gemma4-full", {"gradient_checkpointing=none", "loss_chunk_tokens=0"}, true},
    {"gemma4-full", {"gradient_checkpointing=light", "loss_chunk_tokens=0"}, true},
    {"gemma4-full", {"gradient_checkpointing=mlp", "loss_chunk_tokens=0"}, true},
    {"gemma4-full", {"gradient_checkpointing=attention", "loss_chunk_tokens=0"}, true},
    {"gemma4-full", {"gradient_checkpointing=full", "loss_chunk_tokens=0"}, true},
    {"gemma4-shared-kv-ple", {"gradient_checkpointing=none", "loss_chunk_tokens=0"}, true},
    {"gemma4-shared-kv-ple", {"gradient_checkpointing=light", "loss_chunk_tokens=0"}, true},
    {"gemma4-shared-kv-ple", {"gradient_checkpointing=mlp", "loss_chunk_tokens=0"}, true},
    {"gemma4-shared-kv-ple", {"gradient_checkpointing=attention", "loss_chunk_tokens=0"}, true},
    {"gemma4-shared-kv-ple", {"gradient_checkpointing=full", "loss_chunk_tokens=0"}, true},
    {"qlora-llama", {"gradient_checkpointing=none"}, true},
    {"qlora-llama", {"gradient_checkpointing=attention"}, true},
    {"qlora-llama", {"gradient_checkpointing=mlp"}, true},
    {"qlora-llama", {"gradient_checkpointing=full", "unpack_buffer=4KiB"}, true},
    /* Frozen head: no sum over chunks, but a product of 7 rows may round unlike one of 40. */
    {"lora-llama", {"gradient_checkpointing=none", "loss_chunk_tokens=7"}, false},
    {"lora-llama", {"gradient_checkpointing=none", "loss_chunk_tokens=auto"}, false},
    {"llama-full", {"gradient_checkpointing=full", "mlp_chunk_tokens=7"}, false},
    {"lora-llama", {"gradient_checkpointing=mlp", "mlp_chunk_tokens=7"}, false},
    {"gemma3-full", {"gradient_checkpointing=mlp", "mlp_chunk_tokens=7"}, false},
    {"gemma3-full", {"gradient_checkpointing=full", "mlp_chunk_tokens=9"}, false},
    {"qwen2-full", {"batch_size=4", "gradient_accumulation_steps=1"}, true},
    {"qwen2-full", {"batch_size=2", "gradient_accumulation_steps=2"}, false},
    {"qwen2-full", {"batch_size=1", "gradient_accumulation_steps=4"}, false},
    {"qwen2-full", {"batch_size=3", "global_batch_size=4"}, false},
    {"lora-rslora", {"batch_size=4", "gradient_accumulation_steps=1"}, true},
    {"lora-rslora", {"batch_size=2", "gradient_accumulation_steps=2"}, false},
    {"lora-rslora", {"batch_size=1", "gradient_accumulation_steps=4"}, false},
};
enum { N_VARIANTS = sizeof variants / sizeof *variants };

static const char *first_of(const struct variant *v, const char *const **words) {
    const struct variant *first = variants;
    while (strcmp(first->test_case, v->test_case) != 0)
        first++;
    *words = first->words;
    return first->test_case;
}

static void train(const char *case_dir, const char *const words[], const char *out) {
    const char *argv[12] = {"train", "run.yaml"};
    int n = 2;
    for (int i = 0; i < 4 && words[i]; i++) {
        argv[n++] = words[i];
        /* the file's own accumulation and global_batch_size exclude each other */
        if (strncmp(words[i], "global_batch_size", 17) == 0)
            argv[n++] = "gradient_accumulation_steps=null";
    }
    argv[n++] = "--output_dir";
    argv[n] = out;
    struct outcome o = plimsoll_expect(0, case_dir, argv);
    outcome_finish(&o);
}

static void compare_logs(const char *a, const char *b, const json_t *tolerances) {
    json_t *x = joblog_read(a), *y = joblog_read(b);
    size_t n = joblog_count(x, "step");
    ck_assert_uint_gt(n, 0);
    ck_assert_uint_eq(n, joblog_count(y, "step"));
    for (size_t i = 1; i <= n; i++) {
        const json_t *p = joblog_step(x, i), *q = joblog_step(y, i);
        ck_assert(p && q);
        double loss = fabs(joblog_number(p, "loss") - joblog_number(q, "loss"));
        double norm = joblog_number(p, "grad_norm");
        ck_assert_double_le(loss, SHARE_OF_TOLERANCE * joblog_number(tolerances, "loss_abs"));
        ck_assert_double_le(fabs(norm - joblog_number(q, "grad_norm")),
                            SHARE_OF_TOLERANCE * norm * joblog_number(tolerances, "grad_norm_rel"));
        ck_assert(joblog_number(p, "tokens") == joblog_number(q, "tokens"));
    }
    json_decref(x);
    json_decref(y);
}

static void compare_weights(const char *a, const char *b, const char *stem, json_t *facts) {
    struct weights x, y;
    const char *name;
    json_t *fact;
    weights_open(&x, a, stem);
    weights_open(&y, b, stem);
    json_object_foreach(facts, name, fact) {
        struct weight p = weights_find(&x, name), q = weights_find(&y, name);
        ck_assert_msg(p.entry && q.entry, "%s was not saved", name);
        double rel = weight_compare(&p, &q).l2 / joblog_number(fact, "update_l2");
        double limit = SHARE_OF_TOLERANCE * joblog_number(fact, "tol_rel_l2");
        ck_assert_msg(rel <= limit, "%s: %.3g over %.3g", name, rel, limit);
    }
    weights_close(&x);
    weights_close(&y);
}

START_TEST(a_layout_does_not_change_what_is_learnt) {
    const struct variant *v = &variants[_i];
    const char *const *words, *root = getenv("GOLDEN_CASES");
    char dir[SCRATCH_PATH], a[SCRATCH_PATH + 2], b[SCRATCH_PATH + 2], from[SCRATCH_PATH];
    ck_assert_msg(root != NULL, "set GOLDEN_CASES to the directory of the cases");
    snprintf(from, sizeof from, "%s/%s", root, first_of(v, &words));
    scratch_make(dir);
    snprintf(a, sizeof a, "%s/a", dir);
    snprintf(b, sizeof b, "%s/b", dir);
    train(from, words, a);
    train(from, v->words, b);
    json_t *expected = json_load_file(in_dir(from, "expected.json"), 0, NULL);
    ck_assert_ptr_nonnull(expected);
    bool full = strcmp(json_string_value(json_object_get(expected, "mode")), "full") == 0;
    const char *stem = full ? "model" : "adapter_model";
    if (v->same_bits) {
        weights_assert_same(a, b, stem);
        joblog_assert_same_steps(a, b);
    } else {
        compare_logs(a, b, json_object_get(expected, "tolerances"));
        compare_weights(a, b, stem, json_object_get(expected, "tensors"));
    }
    json_decref(expected);
    scratch_remove(dir);
}
END_TEST

/* ---- files of a multimodal model ---- */

static void write_config(const char *from, const char *to) {
    json_t *text = json_load_file(in_dir(from, "model/config.json"), 0, NULL);
    json_t *root = json_pack("{s:s, s:O, s:O, s:{s:i}}", "model_type", "gemma3", "eos_token_id",
                             json_object_get(text, "eos_token_id"), "text_config", text,
                             "vision_config", "hidden_size", 8);
    ck_assert_ptr_nonnull(root);
    json_object_del(text, "eos_token_id");
    ck_assert_int_eq(json_dump_file(root, to, 0), 0);
    json_decref(root);
    json_decref(text);
}

/* The file with every name after this prefix, and a tensor of no element that is not the language
 * model's. */
static void write_renamed(const char *from, const char *prefix, const char *to) {
    char name[256], *header, *renamed;
    uint64_t length, data;
    const char *key;
    json_t *value, *out = json_object();
    FILE *f = fopen(in_dir(from, "model/model.safetensors"), "rb"), *g = fopen(to, "wb");
    ck_assert(f && g && fread(&length, sizeof length, 1, f) == 1);
    header = malloc(length);
    ck_assert(header && fread(header, 1, length, f) == length);
    json_t *in = json_loadb(header, length, 0, NULL);
    json_object_foreach(in, key, value) {
        const bool is_tensor = key[0] != '_';
        snprintf(name, sizeof name, "%s%s", is_tensor ? prefix : "",
                 is_tensor && prefix[0] == 'm' ? key + strlen("model.") : key);
        json_object_set(out, name, value);
    }
    json_object_set_new(
        out, "vision_tower.nothing",
        json_pack("{s:s, s:[i], s:[i, i]}", "dtype", "F32", "shape", 0, "data_offsets", 0, 0));
    renamed = json_dumps(out, JSON_COMPACT);
    data = (strlen(renamed) + 7) / 8 * 8;
    ck_assert_uint_eq(fwrite(&data, sizeof data, 1, g), 1);
    ck_assert_int_eq(fprintf(g, "%-*s", (int)data, renamed), (int)data);
    for (int c; (c = getc(f)) != EOF;)
        putc(c, g);
    fclose(f);
    ck_assert_int_eq(fclose(g), 0);
    json_decref(in);
    json_decref(out);
    free(header);
    free(renamed);
}

/* Prefixes as published, and as transformers 5 saves them. */
static const char *const prefixes[] = {"language_model.", "model.language_model."};

START_TEST(a_multimodal_model_trains_as_its_language_model) {
    const char *from = in_dir(getenv("GOLDEN_CASES"), "gemma3-full");
    char dir[SCRATCH_PATH], a[SCRATCH_PATH + 8], b[SCRATCH_PATH + 8], model[SCRATCH_PATH + 16];
    char case_dir[SCRATCH_PATH];
    snprintf(case_dir, sizeof case_dir, "%s", from);
    scratch_make(dir);
    snprintf(a, sizeof a, "%s/a", dir);
    snprintf(b, sizeof b, "%s/b", dir);
    snprintf(model, sizeof model, "model=%s", dir);
    write_config(case_dir, in_dir(dir, "config.json"));
    write_renamed(case_dir, prefixes[_i], in_dir(dir, "model.safetensors"));
    train(case_dir, (const char *[]){NULL, NULL, NULL, NULL}, a);
    train(case_dir, (const char *[]){model, NULL, NULL, NULL}, b);
    weights_assert_same(a, b, "model"); /* under the language model's own names */
    json_t *saved = json_load_file(in_dir(b, "config.json"), 0, NULL);
    ck_assert_str_eq(json_string_value(json_object_get(saved, "model_type")), "gemma3_text");
    ck_assert_int_eq(json_integer_value(json_object_get(saved, "eos_token_id")), 2);
    json_decref(saved);
    scratch_remove(dir);
}
END_TEST

int main(void) {
    Suite *s = suite_create("golden.layouts");
    TCase *tc = tcase_create("variants");
    tcase_set_timeout(tc, 90);
    tcase_add_loop_test(tc, a_layout_does_not_change_what_is_learnt, 0, N_VARIANTS);
    tcase_add_loop_test(tc, a_multimodal_model_trains_as_its_language_model, 0, 2);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
