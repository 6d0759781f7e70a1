/* check_poison.c - a step of a model under AddressSanitizer: within the plan's lifetimes it runs,
 * and with the life of any one tensor cut short in the plan it ends in a report. */
#include "runtime/exec/poison.h"
#include "runtime/kernels/back_ends.h"

#include <stdio.h>

#ifndef PL_POISONS
int main(void) {
    printf("skipped: needs a build with -Db_sanitize=address\n");
    return 77;
}
#else
#include "tests/bench/step_rig.h"

#include <check.h>
#include <sanitizer/asan_interface.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define SIZES                                                                                      \
    "\"hidden_size\": 12, \"intermediate_size\": 20, \"num_attention_heads\": 2,"                  \
    "\"num_key_value_heads\": 1, \"vocab_size\": 37, \"max_position_embeddings\": 64,"             \
    "\"rms_norm_eps\": 1e-5, \"tie_word_embeddings\": false"

/* Dense layers; rows that are sorted by expert; linear attention, and attention with gates; keys
 * and values of an earlier layer, and an input for every layer; no norm before a block. */
static const char *const configs[] = {
    "{\"model_type\": \"llama\", \"num_hidden_layers\": 2, " SIZES "}",
    "{\"model_type\": \"qwen3_moe\", \"num_hidden_layers\": 2, \"mlp_only_layers\": [0],"
    "\"num_experts\": 5, \"num_experts_per_tok\": 2, \"moe_intermediate_size\": 6,"
    "\"head_dim\": 6, \"output_router_logits\": true, " SIZES "}",
    "{\"model_type\": \"qwen3_5_text\", \"num_hidden_layers\": 2,"
    "\"full_attention_interval\": 2, \"head_dim\": 8, \"linear_num_key_heads\": 1,"
    "\"linear_num_value_heads\": 2, \"linear_key_head_dim\": 3,"
    "\"linear_value_head_dim\": 5, " SIZES "}",
    "{\"model_type\": \"gemma4_text\", \"num_hidden_layers\": 4, \"head_dim\": 4,"
    "\"global_head_dim\": 8, \"num_kv_shared_layers\": 2, \"sliding_window\": 3,"
    "\"hidden_size_per_layer_input\": 3, \"vocab_size_per_layer_input\": 37,"
    "\"layer_types\": [\"sliding_attention\", \"full_attention\", \"sliding_attention\","
    "\"full_attention\"], \"rope_parameters\": {\"full_attention\": {\"rope_type\":"
    "\"proportional\", \"partial_rotary_factor\": 0.5, \"rope_theta\": 300}}, " SIZES "}",
    "{\"model_type\": \"exaone4\", \"num_hidden_layers\": 2, \"sliding_window\": 3, " SIZES "}",
};
enum { CONFIGS = sizeof configs / sizeof *configs };

/* Only this test reads the reports, and looking up their lines would take most of its time. */
const char *__asan_default_options(void);
const char *__asan_default_options(void) {
    return "symbolize=0";
}

static struct rig rig;

/* Opens sizes that leave padding after every tensor, and three samples of five tokens. */
static void open_rig(int model) {
    const char *const config = configs[model];
    struct pl_diag d = {0};
    rig_init(&rig);
    rig_set(&rig, "mode", "lora");
    rig_set(&rig, "lora_r", "3");
    rig_set(&rig, "dtype", "fp32");
    rig_set(&rig, "batch_size", "3");
    rig_set(&rig, "max_seq_length", "5");
    must(pl_model_parse("config.json", config, strlen(config), &rig.model, &d), &d);
    rig_open(&rig, &pl_back_end_cpu, 1);
}

/* A micro-batch and the update. */
static void run_step(void) {
    struct pl_diag d = {0};
    rig_fill_batch(&rig);
    must(pl_exec_run_phase(&rig.exec, PL_PHASE_MICRO, &d), &d);
    must(pl_exec_run_phase(&rig.exec, PL_PHASE_OPTIMIZER, &d), &d);
}

/* The first of the ops that run as one and end at op `last`. */
static uint32_t group_of(const struct pl_program *p, uint32_t last) {
    uint32_t op = 0;
    for (uint32_t n; (n = pl_program_together(p, op, p->n_ops)) + op <= last;)
        op += n;
    return op;
}

/* The plan says that a tensor is dead before the ops begin that use it last. */
static void plant(uint32_t tensor) {
    struct pl_diag d = {0};
    struct pl_place_row *place = &rig.planned.plan->places[tensor];
    place->last_op = group_of(rig.planned.program, place->last_op) - 1;
    pl_exec_finish(&rig.exec);
    must(pl_exec_init(&rig.exec, rig.planned.plan, rig.device, &d), &d);
    must(pl_exec_bind(&rig.exec, &rig.job_arena, &rig.batch_arena, &d), &d);
}

/* Returns the last message of a step in a child process; "" if it does not die. */
static void step_of_child(uint32_t tensor, char *said, size_t size) {
    int ends[2], status;
    ck_assert_int_eq(pipe(ends), 0);
    pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        dup2(ends[1], STDERR_FILENO);
        if (tensor != PL_NONE) plant(tensor);
        run_step();
        _exit(0);
    }
    close(ends[1]);
    size_t n = 0;
    char rest[4096];
    for (ssize_t got;
         (got = read(ends[0], n < size ? said + n : rest, n < size ? size - n : sizeof rest)) > 0;)
        n += n < size ? (size_t)got : 0;
    said[n < size ? n : size - 1] = '\0';
    close(ends[0]);
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_int_eq(WIFEXITED(status) && WEXITSTATUS(status) == 0, n == 0);
}

START_TEST(a_step_keeps_to_the_lives_of_its_plan) {
    char said[512];
    open_rig(_i);
    step_of_child(PL_NONE, said, sizeof said);
    ck_assert_str_eq(said, "");
    run_step();
    run_step();
    rig_close(&rig);
}
END_TEST

/* E4 of exec.h. Every tensor that more than one group of ops uses, one after another. */
START_TEST(a_life_cut_short_ends_the_run) {
    char said[4096], name[96];
    uint32_t planted = 0;
    open_rig(_i);
    const struct pl_program *p = rig.planned.program;
    for (uint32_t i = 0; i < p->n_tensors; i++) {
        const struct pl_place_row *place = &rig.planned.plan->places[i];
        if (p->tensors[i].scope != PL_SCOPE_STEP || place->last_op >= p->n_ops) continue;
        if (p->tensors[i].phase != PL_PHASE_MICRO && p->tensors[i].phase != PL_PHASE_OPTIMIZER)
            continue;
        if (group_of(p, place->last_op) <= place->first_op) continue;
        pl_tensor_name(p, i, name);
        step_of_child(i, said, sizeof said);
        ck_assert_msg(strstr(said, "use-after-poison"), "%s is used after its life, and '%s'", name,
                      said);
        planted++;
    }
    ck_assert_uint_gt(planted, 50);
    rig_close(&rig);
}
END_TEST

static bool is_open(void *p, uint64_t bytes) {
    return __asan_region_is_poisoned(p, bytes) == NULL;
}

/* Z1, Z2: results of the last ops can be read; tensors that died before them and the padding
 * cannot. */
START_TEST(only_the_living_are_open) {
    struct pl_diag d = {0};
    open_rig(_i);
    const struct pl_program *p = rig.planned.program;
    const struct pl_phase_range *micro = &p->phases[PL_PHASE_MICRO];
    const uint32_t n = micro->n_ops / 2, op = micro->first_op + n - 1;
    rig_fill_batch(&rig);
    must(pl_exec_run(&rig.exec, micro->first_op, n, &d), &d);
    uint64_t open = 0, found = 0;
    for (uint32_t i = 0; i < p->n_tensors; i++) {
        const struct pl_place_row *place = &rig.planned.plan->places[i];
        if (p->tensors[i].scope != PL_SCOPE_STEP || place->last_op >= p->n_ops) continue;
        if (place->first_op > op || place->last_op < op) continue;
        ck_assert(is_open(pl_exec_address(&rig.exec, i), p->tensors[i].bytes));
        open += p->tensors[i].bytes;
    }
    for (uint64_t at = 0; at < rig.batch_arena.bytes; at++)
        found += !__asan_address_is_poisoned((char *)rig.batch_arena.base + at);
    ck_assert_uint_gt(open, 0);
    ck_assert_uint_eq(found, open);
    rig_close(&rig);
}
END_TEST

/* Z3. */
START_TEST(an_arena_is_open_before_anyone_else_has_it) {
    open_rig(_i);
    ck_assert(is_open(rig.batch_arena.base, rig.batch_arena.bytes));
    run_step();
    ck_assert(!is_open(rig.batch_arena.base, rig.batch_arena.bytes));
    pl_exec_forget(&rig.exec);
    ck_assert(is_open(rig.batch_arena.base, rig.batch_arena.bytes));
    run_step();
    pl_exec_finish(&rig.exec);
    ck_assert(is_open(rig.batch_arena.base, rig.batch_arena.bytes));
    rig_close(&rig);
}
END_TEST

int main(void) {
    Suite *s = suite_create("exec.poison");
    TCase *tc = tcase_create("lives");
    tcase_set_timeout(tc, 300);
    tcase_add_loop_test(tc, a_step_keeps_to_the_lives_of_its_plan, 0, CONFIGS);
    tcase_add_loop_test(tc, a_life_cut_short_ends_the_run, 0, CONFIGS);
    tcase_add_loop_test(tc, only_the_living_are_open, 0, CONFIGS);
    tcase_add_loop_test(tc, an_arena_is_open_before_anyone_else_has_it, 0, CONFIGS);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
#endif
