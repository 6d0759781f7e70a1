/* bench_estimator.c - how long a question about memory takes, process start included. JSON.
 *
 * Usage: PLIMSOLL=path/to/plimsoll bench_estimator
 * The model is Llama-3.1-70B's shape: 80 layers. Wall time is the median of 20 processes. */
#include "tests/bench/machine.h"
#include "tests/support/child.h"
#include "tests/support/scratch.h"

#include <check.h>
#include <stdlib.h>
#include <sys/stat.h>

enum { PROCESSES = 20 };

static const char config[] =
    "{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\", \"hidden_size\": "
    "8192,\n"
    " \"intermediate_size\": 28672, \"num_hidden_layers\": 80, \"num_attention_heads\": 64,\n"
    " \"num_key_value_heads\": 8, \"vocab_size\": 128256, \"max_position_embeddings\": 131072,\n"
    " \"rms_norm_eps\": 1e-5, \"rope_theta\": 500000.0, \"tie_word_embeddings\": false,\n"
    " \"hidden_act\": \"silu\", \"torch_dtype\": \"bfloat16\"}\n";

static const struct {
    const char *name;
    const char *words[10];
} questions[] = {
    {"version", {"version"}},
    {"full_batch_1", {"estimate-vram", "model", "--mode", "full", "--batch_size", "1", "--json"}},
    {"lora_batch_1_no_recompute",
     {"estimate-vram", "model", "--mode", "lora", "--batch_size", "1", "--json",
      "--gradient_checkpointing", "none"}},
    {"lora_auto_batch_in_640GiB",
     {"estimate-vram", "model", "--mode", "lora", "--batch_size", "auto", "--json", "--vram_budget",
      "640GiB"}},
    {"full_refused_with_remedies",
     {"estimate-vram", "model", "--mode", "full", "--batch_size", "1", "--json", "--vram_budget",
      "80GiB"}},
};
enum { N_QUESTIONS = sizeof questions / sizeof *questions };

static char dir[SCRATCH_PATH];

START_TEST(measure) {
    double wall[PROCESSES];
    uint64_t peak = 0;
    int status = 0;
    for (int i = 0; i < PROCESSES; i++) {
        struct outcome o = plimsoll_run(dir, questions[_i].words);
        ck_assert_msg(o.status == 0 || o.status == 3, "exit %d: %s", o.status, o.err);
        status = o.status;
        wall[i] = 1e3 * o.seconds;
        peak = o.peak_bytes > peak ? o.peak_bytes : peak;
        outcome_finish(&o);
    }
    double middle = median(wall, PROCESSES);
    printf("  {\"question\":\"%s\",\"exit\":%d,\"wall_ms\":%.2f,\"least_ms\":%.2f,"
           "\"peak_rss_bytes\":%llu}%s\n",
           questions[_i].name, status, middle, wall[0], (unsigned long long)peak,
           _i + 1 < N_QUESTIONS ? "," : "");
}
END_TEST

static void set_up(void) {
    scratch_make(dir);
    ck_assert_int_eq(mkdir(in_dir(dir, "model"), 0777), 0);
    file_write(in_dir(dir, "model/config.json"), config);
}

static void tear_down(void) {
    scratch_remove(dir);
}

int main(void) {
    printf("{\"processes\":%d,\"questions\":[\n", PROCESSES);
    fflush(stdout);
    Suite *s = suite_create("bench.estimator");
    TCase *tc = tcase_create("questions");
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_loop_test(tc, measure, 0, N_QUESTIONS);
    suite_add_tcase(s, tc);
    int failed = run_measurements(s, "bench_estimator");
    printf("]}\n");
    return failed != 0;
}
