/* check_mixture.c - mixtures of experts: runs that resume or compute values again, and what is
 * refused. That they compute what PyTorch computes is golden.runs. Through the real binary. */
#include "tests/support/child.h"
#include "tests/support/saved.h"
#include "tests/support/scratch.h"
#include "tests/support/tensorset.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

static char dir[SCRATCH_PATH];

/* Experts of `ffn` numbers: 32 x 16 are two blocks of states in 8 bits. */
static void make(const char *ffn, const char *more) {
    static const char row[] = "{\"input_ids\": [1, 5, 9, 13, 17, 21, 25, 29, 33, 37, 41, 2]}\n"
                              "{\"input_ids\": [1, 40, 39, 38, 37, 36, 2]}\n";
    file_write(in_dir(dir, "model.json"),
               textf("{\"model_type\":\"qwen3_moe\",\"hidden_size\":32,\"intermediate_size\":24,"
                     "\"moe_intermediate_size\":%s,\"num_experts\":8,\"num_experts_per_tok\":2,"
                     "\"num_hidden_layers\":3,\"mlp_only_layers\":[1],\"num_attention_heads\":4,"
                     "\"num_key_value_heads\":2,\"head_dim\":8,\"vocab_size\":96,"
                     "\"norm_topk_prob\":true,\"max_position_embeddings\":64%s}",
                     ffn, more));
    file_write(in_dir(dir, "rows.jsonl"), textf("%s%s%s", row, row, row));
    file_write(in_dir(dir, "run.yaml"),
               "model_config: model.json\ninit: random\ndataset: rows.jsonl\nmode: full\n"
               "max_seq_length: 16\nbatch_size: 2\ngradient_accumulation_steps: 2\n"
               "learning_rate: 1e-2\ndtype: bf16\nmax_steps: 6\nsave_steps: 3\n"
               "device: cpu\n");
}

static void set_up(void) {
    scratch_make(dir);
}

static void tear_down(void) {
    scratch_remove(dir);
}

#define TRAIN(status, ...) plimsoll_train_expect(status, dir, (const char *[]){__VA_ARGS__, NULL})

/* --- the same bits ---------------------------------------------------------------------------- */

/* Modes, and the stem of the files that a run of each leaves. */
static const struct {
    const char *word, *stem;
} kinds[] = {{"mode=full", "model"}, {"mode=qlora", "adapter_model"}};
enum { KINDS = sizeof kinds / sizeof *kinds };

static const struct {
    const char *word;
    int kind;
} resumed[] = {{"optimizer=adamw", 0},
               {"optimizer=adamw_8bit", 0},
               {"optimizer=sgd", 0},
               {"optimizer=adamw", 1},
               {"double_quant=false", 1}};
enum { RESUMED = sizeof resumed / sizeof *resumed };

START_TEST(a_run_of_experts_resumes_to_the_bit) {
    const char *word = resumed[_i].word, *mode = kinds[resumed[_i].kind].word;
    make("16", ",\"output_router_logits\":true,\"router_aux_loss_coef\":0.05");
    TRAIN(0, "output_dir=cut", "max_steps=3", "lr_scheduler=constant", mode, word);
    TRAIN(0, "output_dir=cut", "lr_scheduler=constant", mode, word);
    TRAIN(0, "output_dir=straight", "lr_scheduler=constant", mode, word);
    weights_assert_same(in_dir(dir, "straight"), in_dir(dir, "cut"), kinds[resumed[_i].kind].stem);
    checkpoint_assert_same(in_dir(dir, "straight/checkpoint-6"), in_dir(dir, "cut/checkpoint-6"));
}
END_TEST

/* The auxiliary loss of a step that is halved is that of its halves. */
START_TEST(a_step_of_experts_is_halved_to_the_bit) {
    make("16", ",\"output_router_logits\":true,\"router_aux_loss_coef\":0.05");
    TRAIN(0, "output_dir=halved", "batch_size=4", "gradient_accumulation_steps=1",
          "debug_inject=device_oom@step=1", "dtype=fp32", kinds[_i].word);
    TRAIN(0, "output_dir=halves", "dtype=fp32", kinds[_i].word);
    char *log = file_read(in_dir(dir, "halved/train_log.jsonl"), NULL);
    ck_assert_ptr_nonnull(strstr(log, "\"oom_recovery\""));
    free(log);
    weights_assert_same(in_dir(dir, "halves"), in_dir(dir, "halved"), kinds[_i].stem);
}
END_TEST

static const char *const levels[] = {"gradient_checkpointing=light", "gradient_checkpointing=mlp",
                                     "gradient_checkpointing=attention",
                                     "gradient_checkpointing=full",
                                     "gradient_checkpointing=offload"};
enum { LEVELS = sizeof levels / sizeof *levels };

/* With the auxiliary loss, whose counts a recomputation must leave alone. Matrices of 32 x 9 end in
 * the middle of a block. */
START_TEST(a_level_of_recomputation_changes_no_bit) {
    const char *mode = kinds[_i % KINDS].word, *stem = kinds[_i % KINDS].stem;
    make("9", ",\"output_router_logits\":true,\"router_aux_loss_coef\":0.05");
    TRAIN(0, "output_dir=none", "gradient_checkpointing=none", mode);
    TRAIN(0, "output_dir=level", levels[_i / KINDS], mode);
    weights_assert_same(in_dir(dir, "none"), in_dir(dir, "level"), stem);
}
END_TEST

static const char *const homes[] = {"offload=weights", "unpack_buffer=1KiB",
                                    "gradient_checkpointing=offload"};
enum { HOMES = sizeof homes / sizeof *homes };

START_TEST(codes_of_experts_compute_the_same_wherever_they_are) {
    make("9", "");
    TRAIN(0, "output_dir=plain", "mode=qlora");
    TRAIN(0, "output_dir=moved", "mode=qlora", homes[_i]);
    weights_assert_same(in_dir(dir, "plain"), in_dir(dir, "moved"), "adapter_model");
}
END_TEST

/* --- refusals --------------------------------------------------------------------------------- */

static const struct {
    const char *ffn, *more, *word[2], *says;
} refused[] = {
    {"12", "", {"optimizer=adamw_8bit", NULL}, "no whole number of blocks of states"},
};
enum { REFUSED = sizeof refused / sizeof *refused };

START_TEST(what_is_not_computed_is_refused_by_name) {
    const char *const words[] = {refused[_i].word[0], refused[_i].word[1], NULL};
    make(refused[_i].ffn, refused[_i].more);
    struct outcome o = plimsoll_train(dir, words);
    ck_assert_msg(o.status != 0, "the run began");
    ck_assert_msg(strstr(o.err, refused[_i].says) != NULL, "no `%s` in: %s", refused[_i].says,
                  o.err);
    outcome_finish(&o);
}
END_TEST

/* Remedies are 4-bit bases and 8-bit states as well, which such a model cannot have. */
START_TEST(a_job_that_does_not_fit_is_told_what_helps) {
    make("12", "");
    struct outcome o = plimsoll_run(
        dir, (const char *[]){"estimate-vram", "run.yaml", "vram_budget=200KiB", NULL});
    ck_assert_msg(strstr(o.out, "what would help") != NULL, "%s%s", o.out, o.err);
    ck_assert_msg(strstr(o.out, "mode: lora") != NULL, "%s", o.out);
    ck_assert_msg(strstr(o.out, "adamw_8bit") == NULL, "%s", o.out);
    outcome_finish(&o);
}
END_TEST

int main(void) {
    Suite *s = suite_create("train.mixture");
    TCase *tc = tcase_create("runs");
    tcase_set_timeout(tc, 60);
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_loop_test(tc, a_run_of_experts_resumes_to_the_bit, 0, RESUMED);
    tcase_add_loop_test(tc, a_step_of_experts_is_halved_to_the_bit, 0, KINDS);
    tcase_add_loop_test(tc, a_level_of_recomputation_changes_no_bit, 0, LEVELS * KINDS);
    tcase_add_loop_test(tc, codes_of_experts_compute_the_same_wherever_they_are, 0, HOMES);
    tcase_add_loop_test(tc, what_is_not_computed_is_refused_by_name, 0, REFUSED);
    tcase_add_test(tc, a_job_that_does_not_fit_is_told_what_helps);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
