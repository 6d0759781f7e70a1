/* check_expert_adapters.c - adapters on the experts of mixtures: runs that resume or compute values
 * again, what the files hold, and what is refused. That they compute what PyTorch computes is
 * golden.runs. Through the real binary. */
#include "tests/support/child.h"
#include "tests/support/saved.h"
#include "tests/support/scratch.h"
#include "tests/support/tensorset.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static char dir[SCRATCH_PATH];

/* 8 experts of 16 numbers after 32 numbers: with ranks of 16 every matrix is whole blocks of states
 * in 8 bits. */
enum { EXPERTS = 8, HIDDEN = 32, FFN = 16, RANK = 16, LAYERS = 3 };

static const char qwen3_moe[] =
    "{\"model_type\":\"qwen3_moe\",\"hidden_size\":32,\"intermediate_size\":24,"
    "\"moe_intermediate_size\":16,\"num_experts\":8,\"num_experts_per_tok\":2,"
    "\"num_hidden_layers\":3,\"mlp_only_layers\":[1],\"num_attention_heads\":4,"
    "\"num_key_value_heads\":2,\"head_dim\":8,\"vocab_size\":96,\"norm_topk_prob\":true,"
    "\"max_position_embeddings\":64}";
static const char gpt_oss[] =
    "{\"model_type\":\"gpt_oss\",\"hidden_size\":32,\"intermediate_size\":16,"
    "\"num_local_experts\":8,\"num_experts_per_tok\":2,\"num_hidden_layers\":3,"
    "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"head_dim\":8,\"vocab_size\":96,"
    "\"sliding_window\":8,\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":4.0,"
    "\"original_max_position_embeddings\":16,\"truncate\":false},\"max_position_embeddings\":64,"
    "\"tie_word_embeddings\":false}";

static const struct kind {
    const char *model, *targets;
    bool one_by_one, turned; /* how files hold adapters and matrices */
    const char *gate_up;     /* the name of a parameter's adapter; NULL: it has none */
    bool down;
} kinds[] = {
    {qwen3_moe, "lora_target_modules=[q_proj, gate_proj, up_proj, down_proj]", true, false, NULL,
     true},
    {qwen3_moe, "lora_target_modules=[q_proj, gate_up_proj, down_proj]", false, false,
     "base_layer.lora", true},
    {qwen3_moe, "lora_target_parameters=[mlp.experts.gate_up_proj]", false, false, "lora", false},
    {gpt_oss, "lora_target_parameters=[gate_up_proj, mlp.experts.down_proj]", false, true,
     "base_layer.lora", true},
    {gpt_oss, "lora_target_modules=[mlp.experts.down_proj]", false, true, NULL, true},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

#define TRAIN(status, ...) plimsoll_train_expect(status, dir, (const char *[]){__VA_ARGS__, NULL})

/* A base of random numbers, which has seen one step. */
static void make(const char *model) {
    static const char row[] = "{\"input_ids\": [1, 5, 9, 13, 17, 21, 25, 29, 33, 37, 41, 2]}\n"
                              "{\"input_ids\": [1, 40, 39, 38, 37, 36, 2]}\n";
    static const char run[] =
        "dataset: rows.jsonl\nmax_seq_length: 16\nbatch_size: 2\ngradient_accumulation_steps: 2\n"
        "learning_rate: 1e-2\nsave_steps: 3\ndevice: cpu\n";
    file_write(in_dir(dir, "model.json"), model);
    file_write(in_dir(dir, "rows.jsonl"), textf("%s%s%s", row, row, row));
    file_write(in_dir(dir, "run.yaml"),
               textf("%smodel_config: model.json\ndtype: fp32\ninit: random\nmode: full\n", run));
    TRAIN(0, "output_dir=base", "max_steps=1");
    file_write(in_dir(dir, "run.yaml"),
               textf("%smodel: base\nmode: lora\nlora_r: 16\nlora_alpha: 24\nmax_steps: 6\n"
                     "dtype: fp32\nlr_scheduler: constant\n",
                     run));
}

static void set_up(void) {
    scratch_make(dir);
}

static void tear_down(void) {
    scratch_remove(dir);
}

/* --- the same bits ---------------------------------------------------------------------------- */

static const char *const optimizers[] = {"optimizer=adamw", "optimizer=adamw_8bit",
                                         "optimizer=sgd"};
enum { OPTIMIZERS = sizeof optimizers / sizeof *optimizers };

START_TEST(a_run_resumes_to_the_bit) {
    const struct kind *k = &kinds[_i / OPTIMIZERS];
    const char *optimizer = optimizers[_i % OPTIMIZERS];
    make(k->model);
    TRAIN(0, "output_dir=cut", "max_steps=3", k->targets, optimizer);
    TRAIN(0, "output_dir=cut", k->targets, optimizer);
    TRAIN(0, "output_dir=straight", k->targets, optimizer);
    weights_assert_same(in_dir(dir, "straight"), in_dir(dir, "cut"), "adapter_model");
    checkpoint_assert_same(in_dir(dir, "straight/checkpoint-6"), in_dir(dir, "cut/checkpoint-6"));
}
END_TEST

/* Adapters in bf16 with masters have them in files of the same turned shape. */
START_TEST(masters_resume_to_the_bit) {
    static const char narrow[] = "adapter_dtype=bf16", master[] = "master_weights=true",
                      dtype[] = "dtype=bf16";
    const struct kind *k = &kinds[_i];
    make(k->model);
    TRAIN(0, "output_dir=cut", "max_steps=3", k->targets, dtype, narrow, master);
    TRAIN(0, "output_dir=cut", k->targets, dtype, narrow, master);
    TRAIN(0, "output_dir=straight", k->targets, dtype, narrow, master);
    checkpoint_assert_same(in_dir(dir, "straight/checkpoint-6"), in_dir(dir, "cut/checkpoint-6"));
}
END_TEST

/* A run without a step after its start saves what it began with. */
START_TEST(an_adapter_begins_as_it_was_saved) {
    const struct kind *k = &kinds[_i];
    make(k->model);
    TRAIN(0, "output_dir=first", "max_steps=2", k->targets);
    TRAIN(0, "output_dir=second", "max_steps=1", "learning_rate=0", "adapter_path=first",
          k->targets);
    weights_assert_same(in_dir(dir, "first"), in_dir(dir, "second"), "adapter_model");
}
END_TEST

/* Random numbers are drawn for each expert. */
START_TEST(experts_begin_apart) {
    struct weights w;
    make(qwen3_moe);
    TRAIN(0, "output_dir=first", "max_steps=1", "learning_rate=0", kinds[0].targets);
    weights_open(&w, in_dir(dir, "first"), "adapter_model");
    const struct weight a =
        weights_find(&w, "base_model.model.model.layers.0.mlp.experts.0.up_proj.lora_A.weight");
    const struct weight b =
        weights_find(&w, "base_model.model.model.layers.0.mlp.experts.1.up_proj.lora_A.weight");
    ck_assert(!weight_same_bits(&a, &b));
    weights_close(&w);
}
END_TEST

static const char *const levels[] = {"gradient_checkpointing=light", "gradient_checkpointing=mlp",
                                     "gradient_checkpointing=attention",
                                     "gradient_checkpointing=full",
                                     "gradient_checkpointing=offload"};
enum { LEVELS = sizeof levels / sizeof *levels };

START_TEST(a_level_of_recomputation_changes_no_bit) {
    const struct kind *k = &kinds[_i / LEVELS];
    make(k->model);
    TRAIN(0, "output_dir=none", "max_steps=3", "gradient_checkpointing=none", k->targets);
    TRAIN(0, "output_dir=level", "max_steps=3", levels[_i % LEVELS], k->targets);
    weights_assert_same(in_dir(dir, "none"), in_dir(dir, "level"), "adapter_model");
}
END_TEST

/* --- merged ----------------------------------------------------------------------------------- */

struct files {
    struct weights base, adapter, merged;
};

static float *values_of(const struct weights *w, const char *name) {
    const struct weight t = weights_find(w, name);
    uint64_t n;
    ck_assert_msg(t.entry != NULL, "no tensor %s", name);
    return weight_values(&t, &n);
}

/* A matrix, before and after, and its A and B, `adapter`_A.weight. */
struct found {
    float *base, *merged, *a, *b;
};

static struct found find(const struct files *f, const char *matrix, const char *adapter) {
    return (struct found){values_of(&f->base, matrix), values_of(&f->merged, matrix),
                          values_of(&f->adapter, textf("%s_A.weight", adapter)),
                          values_of(&f->adapter, textf("%s_B.weight", adapter))};
}

static void found_finish(struct found *x) {
    free(x->base);
    free(x->merged);
    free(x->a);
    free(x->b);
}

/* The place of number (o, i) of W[out, in] in a matrix, of A[j, i] and of B[o, j]. */
struct places {
    uint64_t outs, ins, w, of_out, of_in, a, b, b_of_out, b_of_rank;
};

/* Compares W with the base's and the sums of B A, whose scale is lora_alpha / lora_r. Returns the
 * largest number that was added. */
static double compare(const struct found *x, const struct places *p) {
    static const double scale = 24.0 / RANK;
    double largest = 0;
    for (uint64_t o = 0; o < p->outs; o++)
        for (uint64_t i = 0; i < p->ins; i++) {
            const uint64_t at = p->w + o * p->of_out + i * p->of_in;
            double sum = 0;
            for (uint64_t j = 0; j < RANK; j++)
                sum += (double)x->b[p->b + o * p->b_of_out + j * p->b_of_rank] *
                       x->a[p->a + j * p->ins + i];
            ck_assert_double_eq_tol(x->merged[at], x->base[at] + scale * sum, 1e-6);
            largest = fmax(largest, fabs(scale * sum));
        }
    return largest;
}

/* A matrix of an expert with its own adapter. */
static double check_one(const struct files *f, uint32_t layer, uint32_t e, const char *module,
                        uint64_t outs, uint64_t ins) {
    char matrix[128], adapter[128];
    snprintf(matrix, sizeof matrix, "model.layers.%u.mlp.experts.%u.%s.weight", layer, e, module);
    snprintf(adapter, sizeof adapter, "base_model.model.model.layers.%u.mlp.experts.%u.%s.lora",
             layer, e, module);
    struct found x = find(f, matrix, adapter);
    const double largest = compare(
        &x,
        &(struct places){
            .outs = outs, .ins = ins, .of_out = ins, .of_in = 1, .b_of_out = RANK, .b_of_rank = 1});
    found_finish(&x);
    return largest;
}

/* A matrix of an expert whose outputs are those of a parameter from `row0` on. */
static double check_part(const struct kind *k, const struct files *f, uint32_t layer, uint32_t e,
                         const char *module, const char *lora, uint64_t row0, uint64_t outs,
                         uint64_t ins) {
    const uint64_t columns = RANK * EXPERTS;
    struct places p = {.outs = outs,
                       .ins = ins,
                       .of_out = ins,
                       .of_in = 1,
                       .a = e * RANK * ins,
                       .b = row0 * columns + e,
                       .b_of_out = columns,
                       .b_of_rank = EXPERTS};
    char matrix[128], adapter[128];
    snprintf(matrix, sizeof matrix, "model.layers.%u.mlp.experts.%u.%s.weight", layer, e, module);
    snprintf(adapter, sizeof adapter, "base_model.model.model.layers.%u.mlp.experts.%s", layer,
             lora);
    if (k->turned) { /* [experts, in, out] */
        snprintf(matrix, sizeof matrix, "model.layers.%u.mlp.experts.%s", layer, module);
        p.w = e * ins * outs;
        p.of_out = 1;
        p.of_in = outs;
    }
    struct found x = find(f, matrix, adapter);
    const double largest = compare(&x, &p);
    found_finish(&x);
    return largest;
}

static double check_gate_up(const struct kind *k, const struct files *f, uint32_t layer,
                            uint32_t e) {
    if (k->turned)
        return check_part(k, f, layer, e, "gate_up_proj", k->gate_up, 0, 2 * FFN, HIDDEN);
    return fmax(check_part(k, f, layer, e, "gate_proj", k->gate_up, 0, FFN, HIDDEN),
                check_part(k, f, layer, e, "up_proj", k->gate_up, FFN, FFN, HIDDEN));
}

static double check_expert(const struct kind *k, const struct files *f, uint32_t layer,
                           uint32_t e) {
    double largest = 0;
    if (k->one_by_one)
        return fmin(fmin(check_one(f, layer, e, "gate_proj", FFN, HIDDEN),
                         check_one(f, layer, e, "up_proj", FFN, HIDDEN)),
                    check_one(f, layer, e, "down_proj", HIDDEN, FFN));
    if (k->gate_up) largest = check_gate_up(k, f, layer, e);
    if (k->down)
        largest = fmax(largest, check_part(k, f, layer, e, "down_proj", "lora", 0, HIDDEN, FFN));
    return largest;
}

START_TEST(merged_experts_are_the_sums) {
    const struct kind *k = &kinds[_i];
    struct files f;
    double largest = 0;
    make(k->model);
    TRAIN(0, "output_dir=tuned", k->targets);
    struct outcome o = plimsoll_expect(
        0, dir,
        (const char *[]){"merge", "--model", "base", "--adapter", "tuned", "-o", "merged", NULL});
    outcome_finish(&o);
    weights_open(&f.base, in_dir(dir, "base"), "model");
    weights_open(&f.adapter, in_dir(dir, "tuned"), "adapter_model");
    weights_open(&f.merged, in_dir(dir, "merged"), "model");
    for (uint32_t l = 0; l < LAYERS; l++)
        for (uint32_t e = 0; e < EXPERTS && (l != 1 || k->turned); e++)
            largest = fmax(largest, check_expert(k, &f, l, e));
    ck_assert_double_gt(largest, 1e-3);
    weights_close(&f.base);
    weights_close(&f.adapter);
    weights_close(&f.merged);
}
END_TEST

/* The adapter as it is, and its sums with the base, say the same. */
START_TEST(an_adapter_generates_what_its_merge_does) {
    const struct kind *k = &kinds[_i];
    make(k->model);
    TRAIN(0, "output_dir=tuned", k->targets);
    const char *const words[][9] = {
        {"merge", "--model", "base", "--adapter", "tuned", "-o", "merged", NULL},
        {"generate", "--model", "base", "--adapter", "tuned", "--prompt-ids", "1,5,9,13", NULL},
        {"generate", "--model", "merged", "--prompt-ids", "1,5,9,13", NULL}};
    struct outcome o[3];
    for (int i = 0; i < 3; i++)
        o[i] = plimsoll_expect(0, dir, words[i]);
    ck_assert_str_eq(o[1].out, o[2].out);
    for (int i = 0; i < 3; i++)
        outcome_finish(&o[i]);
}
END_TEST

START_TEST(what_a_run_leaves_is_verified) {
    const struct kind *k = &kinds[_i];
    make(k->model);
    TRAIN(0, "output_dir=tuned", "max_steps=1", "save_steps=0", k->targets);
    struct outcome o = plimsoll_expect(0, dir, (const char *[]){"verify", "tuned", NULL});
    outcome_finish(&o);
    char *config = file_read(in_dir(dir, "tuned/adapter_config.json"), NULL);
    char *rank = strstr(config, "\"r\": 16");
    ck_assert_ptr_nonnull(rank);
    memcpy(rank, "\"r\": 12", strlen("\"r\": 12"));
    file_write(in_dir(dir, "tuned/adapter_config.json"), config);
    free(config);
    o = plimsoll_run(dir, (const char *[]){"verify", "tuned", NULL});
    ck_assert_msg(o.status != 0 && strstr(o.out, "says rank 12"), "%s%s", o.out, o.err);
    outcome_finish(&o);
}
END_TEST

/* --- names ------------------------------------------------------------------------------------ */

/* Names that others have, too, and layers that differ are written as paths, which say the same
 * again: to a run, and to a merge, which takes them from the file. */
static const char *const choices[][2] = {
    {"lora_target_modules=[layers.0.self_attn.q_proj, layers.2.self_attn.v_proj]",
     "lora_target_parameters=[layers.2.mlp.experts.gate_up_proj]"},
    {"lora_target_modules=[up_proj, down_proj]", "layers_to_transform=[0, 1]"},
    {"lora_target_modules=.*\\.0\\.mlp\\.experts\\..*proj|.*[12]\\.self_attn\\.q_proj", "seed=1"},
    {"lora_target_modules=.*\\.mlp\\.experts\\..*up_proj", "seed=1"},
    {"lora_target_modules=all-linear", "lora_target_parameters=[mlp.experts.down_proj]"},
};
enum { CHOICES = sizeof choices / sizeof *choices };

START_TEST(what_is_saved_names_what_was_chosen) {
    make(qwen3_moe);
    TRAIN(0, "output_dir=first", "max_steps=2", choices[_i][0], choices[_i][1]);
    TRAIN(0, "output_dir=second", "max_steps=1", "learning_rate=0", "adapter_path=first",
          choices[_i][0], choices[_i][1]);
    weights_assert_same(in_dir(dir, "first"), in_dir(dir, "second"), "adapter_model");
    struct outcome o = plimsoll_expect(
        0, dir,
        (const char *[]){"merge", "--model", "base", "--adapter", "first", "-o", "merged", NULL});
    outcome_finish(&o);
}
END_TEST

static const struct {
    const char *word[2], *says;
} refused[] = {
    {{"lora_target_modules=[layers.0.mlp.experts.3.gate_proj]", "seed=1"},
     "names some experts of a layer only"},
    {{"lora_target_modules=[down_proj]", "lora_target_parameters=[mlp.experts.gate_up_proj]"},
     "experts one by one, and others as a parameter"},
    {{"lora_target_parameters=[mlp.gate_up_proj]", "seed=1"}, "no parameter `mlp.gate_up_proj`"},
    {{"lora_target_modules=[gate_proj]", "lora_dropout=0.1"}, "`lora_dropout` with adapters on"},
    {{"lora_target_modules=[gate_up_proj]", "lora_dropout=0.1"}, "`lora_dropout` with adapters on"},
    {{"lora_target_modules=[gate_proj]", "lora_r=4"}, NULL},
};
enum { REFUSED = sizeof refused / sizeof *refused };

START_TEST(what_is_not_computed_is_refused_by_name) {
    make(qwen3_moe);
    struct outcome o =
        plimsoll_train(dir, (const char *[]){refused[_i].word[0], refused[_i].word[1], NULL});
    if (refused[_i].says) {
        ck_assert_msg(o.status != 0, "the run began");
        ck_assert_msg(strstr(o.err, refused[_i].says) != NULL, "no `%s` in: %s", refused[_i].says,
                      o.err);
    } else
        ck_assert_msg(o.status == 0, "%s", o.err);
    outcome_finish(&o);
}
END_TEST

START_TEST(blocks_of_two_experts_are_refused) {
    make(qwen3_moe);
    struct outcome o =
        plimsoll_train(dir, (const char *[]){"lora_target_modules=[gate_proj]", "lora_r=4",
                                             "optimizer=adamw_8bit", NULL});
    ck_assert_msg(o.status != 0 && strstr(o.err, "no whole number of blocks"), "%s", o.err);
    outcome_finish(&o);
}
END_TEST

static TCase *add_case(Suite *s, const char *name) {
    TCase *tc = tcase_create(name);
    tcase_set_timeout(tc, 60);
    tcase_add_checked_fixture(tc, set_up, tear_down);
    suite_add_tcase(s, tc);
    return tc;
}

int main(void) {
    Suite *s = suite_create("train.expert_adapters");
    TCase *tc = add_case(s, "bits");
    tcase_add_loop_test(tc, a_run_resumes_to_the_bit, 0, KINDS * OPTIMIZERS);
    tcase_add_loop_test(tc, masters_resume_to_the_bit, 0, KINDS);
    tcase_add_loop_test(tc, an_adapter_begins_as_it_was_saved, 0, KINDS);
    tcase_add_test(tc, experts_begin_apart);
    tc = add_case(s, "levels");
    tcase_add_loop_test(tc, a_level_of_recomputation_changes_no_bit, 0, KINDS * LEVELS);
    tc = add_case(s, "merged");
    tcase_add_loop_test(tc, merged_experts_are_the_sums, 0, KINDS);
    tcase_add_loop_test(tc, an_adapter_generates_what_its_merge_does, 0, KINDS);
    tcase_add_loop_test(tc, what_a_run_leaves_is_verified, 0, KINDS);
    tc = add_case(s, "names");
    tcase_add_loop_test(tc, what_is_saved_names_what_was_chosen, 0, CHOICES);
    tcase_add_loop_test(tc, what_is_not_computed_is_refused_by_name, 0, REFUSED);
    tcase_add_test(tc, blocks_of_two_experts_are_refused);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
