/* check_layer_kinds.c - layers of Qwen3.5, Gemma 4 and EXAONE 4: runs that resume, compute values
 * again or pack their rows, adapters that are merged, and tokens that continue from a state. That
 * they compute what PyTorch computes is golden.runs. Through the real binary. */
#include "tests/support/child.h"
#include "tests/support/saved.h"
#include "tests/support/scratch.h"
#include "tests/support/tensorset.h"

#include <check.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char dir[SCRATCH_PATH];

/* Rows of more than one chunk of 64 tokens, and of fewer tokens than the convolution has taps. */
static void write_rows(void) {
    static const int lengths[] = {70, 3, 30, 2, 64, 65};
    char rows[4096];
    size_t at = 0;
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        at += (size_t)snprintf(rows + at, sizeof rows - at, "{\"input_ids\": [1");
        for (int k = 1; k < lengths[i]; k++)
            at += (size_t)snprintf(rows + at, sizeof rows - at, ", %d", 3 + (k * (k + 7)) % 90);
        at += (size_t)snprintf(rows + at, sizeof rows - at, "]}\n");
        ck_assert_uint_lt(at, sizeof rows);
    }
    file_write(in_dir(dir, "rows.jsonl"), rows);
}

/* Linear attention, and attention with gates; heads of two sizes, values that are keys, keys and
 * values of an earlier layer, and an input for every layer; no norm before a block. */
static const char *const models[] = {
    "{\"model_type\":\"qwen3_5_text\",\"hidden_size\":32,\"intermediate_size\":24,"
    "\"num_hidden_layers\":3,\"full_attention_interval\":2,\"num_attention_heads\":4,"
    "\"num_key_value_heads\":2,\"head_dim\":16,\"vocab_size\":96,"
    "\"linear_num_key_heads\":2,\"linear_num_value_heads\":4,"
    "\"linear_key_head_dim\":8,\"linear_value_head_dim\":12,"
    "\"max_position_embeddings\":256,\"initializer_range\":0.3}",
    "{\"model_type\":\"gemma4_text\",\"hidden_size\":32,\"intermediate_size\":24,"
    "\"num_hidden_layers\":6,\"num_attention_heads\":4,\"num_key_value_heads\":2,"
    "\"head_dim\":8,\"global_head_dim\":16,\"attention_k_eq_v\":true,"
    "\"num_global_key_value_heads\":1,\"num_kv_shared_layers\":2,"
    "\"use_double_wide_mlp\":true,\"hidden_size_per_layer_input\":8,"
    "\"vocab_size_per_layer_input\":96,\"vocab_size\":96,\"sliding_window\":7,"
    "\"layer_types\":[\"sliding_attention\",\"full_attention\",\"sliding_attention\","
    "\"full_attention\",\"sliding_attention\",\"full_attention\"],"
    "\"final_logit_softcapping\":5,\"max_position_embeddings\":256,"
    "\"initializer_range\":0.3,\"rope_parameters\":{\"full_attention\":"
    "{\"rope_type\":\"proportional\",\"partial_rotary_factor\":0.25,\"rope_theta\":300},"
    "\"sliding_attention\":{\"rope_type\":\"default\",\"rope_theta\":100}}}",
    "{\"model_type\":\"exaone4\",\"hidden_size\":32,\"intermediate_size\":24,"
    "\"num_hidden_layers\":3,\"sliding_window\":7,\"sliding_window_pattern\":3,"
    "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"vocab_size\":96,"
    "\"max_position_embeddings\":256,\"initializer_range\":0.3}",
};
enum { QWEN3_5, GEMMA4, EXAONE4, MODELS };

static void set_up(void) {
    scratch_make(dir);
    write_rows();
    file_write(in_dir(dir, "run.yaml"),
               "model_config: model.json\ninit: random\ndataset: rows.jsonl\nmode: full\n"
               "max_seq_length: 70\nbatch_size: 2\ngradient_accumulation_steps: 2\n"
               "learning_rate: 1e-2\ndtype: bf16\nmax_steps: 4\nsave_steps: 2\n"
               "device: cpu\n");
}

static void give(int model) {
    file_write(in_dir(dir, "model.json"), models[model]);
}

static void tear_down(void) {
    scratch_remove(dir);
}

#define TRAIN(status, ...) plimsoll_train_expect(status, dir, (const char *[]){__VA_ARGS__, NULL})

/* --- the same bits ---------------------------------------------------------------------------- */

static const char *const optimizers[] = {"optimizer=adamw", "optimizer=adamw_8bit",
                                         "optimizer=sgd"};
enum { OPTIMIZERS = sizeof optimizers / sizeof *optimizers };

START_TEST(a_run_resumes_to_the_bit) {
    const char *const optimizer = optimizers[_i % OPTIMIZERS];
    give(_i / OPTIMIZERS);
    TRAIN(0, "output_dir=cut", "max_steps=2", "lr_scheduler=constant", optimizer);
    TRAIN(0, "output_dir=cut", "lr_scheduler=constant", optimizer);
    TRAIN(0, "output_dir=straight", "lr_scheduler=constant", optimizer);
    weights_assert_same(in_dir(dir, "straight"), in_dir(dir, "cut"), "model");
    checkpoint_assert_same(in_dir(dir, "straight/checkpoint-4"), in_dir(dir, "cut/checkpoint-4"));
}
END_TEST

static const struct {
    const char *word, *mode, *saved;
} levels[] = {
    {"gradient_checkpointing=light", "mode=full", "model"},
    {"gradient_checkpointing=mlp", "mode=full", "model"},
    {"gradient_checkpointing=attention", "mode=full", "model"},
    {"gradient_checkpointing=full", "mode=full", "model"},
    {"gradient_checkpointing=offload", "mode=full", "model"},
    {"gradient_checkpointing=full", "mode=lora", "adapter_model"},
    {"gradient_checkpointing=light", "mode=lora", "adapter_model"},
};
enum { LEVELS = sizeof levels / sizeof *levels };

/* T2 of tape.h */
START_TEST(a_level_of_recomputation_changes_no_bit) {
    const int k = _i % LEVELS;
    give(_i / LEVELS);
    TRAIN(0, "output_dir=none", "gradient_checkpointing=none", levels[k].mode);
    TRAIN(0, "output_dir=level", levels[k].word, levels[k].mode);
    weights_assert_same(in_dir(dir, "none"), in_dir(dir, "level"), levels[k].saved);
}
END_TEST

START_TEST(an_mlp_in_chunks_adds_to_what_it_reads) {
    struct weights whole, chunks;
    give(_i);
    TRAIN(0, "output_dir=whole", "dtype=fp32", "gradient_checkpointing=full", "optimizer=sgd");
    TRAIN(0, "output_dir=chunks", "dtype=fp32", "gradient_checkpointing=full", "optimizer=sgd",
          "mlp_chunk_tokens=9");
    weights_open(&whole, in_dir(dir, "whole"), "model");
    weights_open(&chunks, in_dir(dir, "chunks"), "model");
    ck_assert_double_lt(weights_compare(&whole, &chunks).largest, 1e-5);
    weights_close(&whole);
    weights_close(&chunks);
}
END_TEST

START_TEST(a_step_that_is_halved_ends_at_the_bits_of_its_halves) {
    give(_i);
    TRAIN(0, "output_dir=halved", "batch_size=4", "gradient_accumulation_steps=1",
          "debug_inject=device_oom@step=1");
    TRAIN(0, "output_dir=halves", "batch_size=2", "gradient_accumulation_steps=2");
    char *log = file_read(in_dir(dir, "halved/train_log.jsonl"), NULL);
    ck_assert_ptr_nonnull(strstr(log, "\"oom_recovery\""));
    free(log);
    weights_assert_same(in_dir(dir, "halves"), in_dir(dir, "halved"), "model");
}
END_TEST

/* Every row begins with a state of zeros, whichever row is before it in a space. */
START_TEST(a_packed_row_trains_as_its_sequences) {
    struct weights packed, single;
    give(_i);
    TRAIN(0, "output_dir=packed", "dtype=fp32", "packing=true", "batch_size=1",
          "gradient_accumulation_steps=1", "max_seq_length=256", "shuffle=false", "optimizer=sgd",
          "max_steps=2");
    TRAIN(0, "output_dir=single", "dtype=fp32", "batch_size=1", "gradient_accumulation_steps=6",
          "shuffle=false", "optimizer=sgd", "max_steps=2");
    weights_open(&packed, in_dir(dir, "packed"), "model");
    weights_open(&single, in_dir(dir, "single"), "model");
    ck_assert_double_lt(weights_compare(&single, &packed).largest, 1e-5);
    weights_close(&packed);
    weights_close(&single);
}
END_TEST

/* --- a base in 4 bits ------------------------------------------------------------------------- */

/* Two layers with eight modules and one with seven; and a projection of the model, two layers with
 * nine modules, two without v_proj, and two without k_proj, too; and three layers with seven. */
static const uint32_t adapted[MODELS] = {2 * 8 + 7, 1 + 2 * 9 + 2 * 8 + 2 * 7, 3 * 7};

START_TEST(projections_are_held_in_four_bits_and_adapted) {
    struct weights adapter;
    give(_i);
    TRAIN(0, "output_dir=base", "max_steps=1");
    TRAIN(0, "output_dir=none", "mode=qlora", "model=base", "init=null", "model_config=null",
          "gradient_checkpointing=none");
    TRAIN(0, "output_dir=level", "mode=qlora", "model=base", "init=null", "model_config=null",
          "gradient_checkpointing=full");
    weights_assert_same(in_dir(dir, "none"), in_dir(dir, "level"), "adapter_model");
    weights_open(&adapter, in_dir(dir, "none"), "adapter_model");
    ck_assert_uint_eq(adapter.files[0].n, 2 * adapted[_i]);
    weights_close(&adapter);
}
END_TEST

/* Layers whose matrices differ in columns are merged, too. */
START_TEST(an_adapter_generates_what_its_merge_does) {
    static const char *const words[][9] = {
        {"merge", "--model", "base", "--adapter", "tuned", "-o", "merged", NULL},
        {"generate", "--model", "base", "--adapter", "tuned", "--prompt-ids", "1,5,9,13", NULL},
        {"generate", "--model", "merged", "--prompt-ids", "1,5,9,13", NULL},
        {"generate", "--model", "base", "--prompt-ids", "1,5,9,13", NULL}};
    struct outcome o[4];
    give(_i);
    TRAIN(0, "output_dir=base", "max_steps=1", "dtype=fp32");
    TRAIN(0, "output_dir=tuned", "mode=lora", "model=base", "init=null", "model_config=null",
          "dtype=fp32", "learning_rate=3e-2");
    for (int i = 0; i < 4; i++)
        o[i] = plimsoll_expect(0, dir, words[i]);
    ck_assert_str_eq(o[1].out, o[2].out);
    ck_assert_str_ne(o[1].out, o[3].out);
    for (int i = 0; i < 4; i++)
        outcome_finish(&o[i]);
}
END_TEST

/* --- tokens ----------------------------------------------------------------------------------- */

enum { NEW = 20 };

/* Continues the first `n` of the ids; `ids` gets what was appended as well. */
static size_t continued(long long *ids, size_t n, size_t room) {
    char prompt[1024];
    size_t at = 0, i;
    json_t *id;
    for (i = 0; i < n; i++)
        at += (size_t)snprintf(prompt + at, sizeof prompt - at, "%s%lld", i ? "," : "", ids[i]);
    ck_assert_uint_lt(at, sizeof prompt);
    struct outcome o = plimsoll_expect(
        0, dir,
        (const char *[]){"generate", "--model", "base", "--json", "--greedy", "--dtype", "fp32",
                         "--prompt-ids", prompt, "--device", "cpu", "--ignore-eos",
                         "--max-new-tokens", textf("%zu", room), NULL});
    json_t *answer = json_loads(o.out, 0, NULL);
    json_array_foreach(json_object_get(answer, "ids"), i, id) ids[n + i] = json_integer_value(id);
    json_decref(answer);
    outcome_finish(&o);
    return i;
}

/* Prompts are shorter than the taps, and longer than a chunk and a window: what is computed of them
 * at once, and token by token, is the same. */
START_TEST(a_token_continues_from_the_state_of_all_before) {
    static const size_t prompts[] = {1, 2, 5, 66};
    const size_t n = prompts[_i % 4];
    long long straight[128] = {1}, again[128];
    give(_i / 4);
    TRAIN(0, "output_dir=base", "dtype=fp32", "max_steps=2");
    for (size_t i = 1; i < n; i++)
        straight[i] = (long long)(3 + i * 11 % 90);
    ck_assert_uint_eq(continued(straight, n, NEW), NEW);
    for (size_t k = 1; k < NEW; k += 6) {
        memcpy(again, straight, (n + k) * sizeof *again);
        ck_assert_uint_eq(continued(again, n + k, NEW - k), NEW - k);
        ck_assert_mem_eq(straight, again, (n + NEW) * sizeof *again);
    }
}
END_TEST

int main(void) {
    Suite *s = suite_create("train.layer_kinds");
    TCase *tc = tcase_create("runs");
    tcase_set_timeout(tc, 60);
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_loop_test(tc, a_run_resumes_to_the_bit, 0, MODELS * OPTIMIZERS);
    tcase_add_loop_test(tc, a_level_of_recomputation_changes_no_bit, 0, MODELS * LEVELS);
    tcase_add_loop_test(tc, an_mlp_in_chunks_adds_to_what_it_reads, 0, MODELS);
    tcase_add_loop_test(tc, a_step_that_is_halved_ends_at_the_bits_of_its_halves, 0, MODELS);
    tcase_add_loop_test(tc, a_packed_row_trains_as_its_sequences, 0, MODELS);
    tcase_add_loop_test(tc, projections_are_held_in_four_bits_and_adapted, 0, MODELS);
    tcase_add_loop_test(tc, an_adapter_generates_what_its_merge_does, 0, MODELS);
    tcase_add_loop_test(tc, a_token_continues_from_the_state_of_all_before, 0, MODELS * 4);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
