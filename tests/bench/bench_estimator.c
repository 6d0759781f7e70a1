/* bench_estimator.c - how long a question about memory takes, process start included. JSON.
 *
 * Usage: PLIMSOLL=path/to/plimsoll bench_estimator
 * Wall time is the median of 11 processes, or of those that begin within 10 s. target_ms and
 * target_mib are what it should stay within on two idle cores, and 0 where there is no target.
 * cpu_ms, the median of processor time, tells what others who use the machine do not change. */
#include "tests/bench/machine.h"
#include "tests/support/child.h"
#include "tests/support/scratch.h"

#include <check.h>
#include <stdlib.h>
#include <sys/stat.h>

enum { PROCESSES = 11, MOST_SECONDS = 10 };

#define LLAMA                                                                                      \
    "{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\", \"rms_norm_eps\": "    \
    "1e-5, \"rope_theta\": 500000.0, \"tie_word_embeddings\": false, \"hidden_act\": \"silu\", "   \
    "\"torch_dtype\": \"bfloat16\", \"max_position_embeddings\": 131072, "
/* Llama-3.1-405B's shape, and a thousand layers. */
static const char *const configs[][2] = {
    {"405B", LLAMA "\"hidden_size\": 16384, \"intermediate_size\": 53248, "
                   "\"num_hidden_layers\": 126, \"num_attention_heads\": 128, "
                   "\"num_key_value_heads\": 8, \"vocab_size\": 128256}"},
    {"1000", LLAMA "\"hidden_size\": 1024, \"intermediate_size\": 4096, "
                   "\"num_hidden_layers\": 1000, \"num_attention_heads\": 16, "
                   "\"num_key_value_heads\": 4, \"vocab_size\": 32000}"},
};
enum { N_CONFIGS = sizeof configs / sizeof *configs };

static const struct {
    const char *name;
    double target_ms, target_mib;
    const char *words[10];
} questions[] = {
    {"version", 0, 0, {"version"}},
    {"8B_lora", 6, 16, {"estimate-vram", "Llama-3.1-8B", "--mode", "lora", "--gpu", "RTX 4090"}},
    {"70B_lora",
     12,
     16,
     {"estimate-vram", "Llama-3.1-70B", "--mode", "lora", "--vram_budget", "640GiB"}},
    {"70B_qlora", 12, 16, {"estimate-vram", "Llama-3.1-70B", "--mode", "qlora", "--gpu", "H200"}},
    {"70B_full_refused",
     25,
     16,
     {"estimate-vram", "Llama-3.1-70B", "--mode", "full", "--gpu", "H100"}},
    {"70B_lora_refused",
     25,
     16,
     {"estimate-vram", "Llama-3.1-70B", "--mode", "lora", "--gpu", "RTX 4090"}},
    {"405B_full_refused", 60, 16, {"estimate-vram", "405B", "--mode", "full", "--gpu", "H100"}},
    {"405B_lora_refused", 60, 16, {"estimate-vram", "405B", "--mode", "lora", "--gpu", "H100"}},
    {"1000_layers", 150, 0, {"estimate-vram", "1000", "--mode", "lora", "--gpu", "H200"}},
    {"8B_all_open",
     0,
     0,
     {"estimate-vram", "Llama-3.1-8B", "--mode", "lora", "--gpu", "RTX 4090",
      "--gradient_checkpointing", "auto"}},
    {"plan_8B", 80, 0, {"plan", "Llama-3.1-8B", "--mode", "lora", "--gpu", "RTX 4090"}},
    {"plan_8B_tiny_chunks",
     80,
     0,
     {"plan", "Llama-3.1-8B", "--mode", "lora", "--gpu", "RTX 4090", "--loss-chunk-tokens", "16"}},
    {"plan_70B", 150, 0, {"plan", "Llama-3.1-70B", "--mode", "qlora", "--gpu", "H200"}},
    {"plan_70B_refused", 150, 0, {"plan", "Llama-3.1-70B", "--mode", "lora", "--gpu", "H100"}},
    {"plan_1000_layers", 2000, 0, {"plan", "1000", "--mode", "lora", "--gpu", "H200"}},
};
enum { N_QUESTIONS = sizeof questions / sizeof *questions };

static char dir[SCRATCH_PATH];

START_TEST(measure) {
    double wall[PROCESSES], cpu[PROCESSES];
    uint64_t peak = 0;
    int status = 0, n = 0;
    const double end = seconds_now() + MOST_SECONDS;
    for (; n < PROCESSES && (!n || seconds_now() < end); n++) {
        struct outcome o = plimsoll_run(dir, questions[_i].words);
        ck_assert_msg(o.status == 0 || o.status == 3, "exit %d: %s", o.status, o.err);
        status = o.status;
        wall[n] = 1e3 * o.seconds;
        cpu[n] = 1e3 * o.cpu_seconds;
        peak = o.peak_bytes > peak ? o.peak_bytes : peak;
        outcome_finish(&o);
    }
    double middle = median(wall, n);
    printf("  {\"question\":\"%s\",\"exit\":%d,\"wall_ms\":%.2f,\"target_ms\":%.0f,"
           "\"least_ms\":%.2f,\"cpu_ms\":%.2f,\"peak_rss_mib\":%.1f,\"target_mib\":%.0f}%s\n",
           questions[_i].name, status, middle, questions[_i].target_ms, wall[0], median(cpu, n),
           (double)peak / 1048576, questions[_i].target_mib, _i + 1 < N_QUESTIONS ? "," : "");
}
END_TEST

static void set_up(void) {
    scratch_make(dir);
    for (int i = 0; i < N_CONFIGS; i++) {
        char path[SCRATCH_PATH];
        snprintf(path, sizeof path, "%s/config.json", configs[i][0]);
        ck_assert_int_eq(mkdir(in_dir(dir, configs[i][0]), 0777), 0);
        file_write(in_dir(dir, path), configs[i][1]);
    }
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
    tcase_set_timeout(tc, 600);
    suite_add_tcase(s, tc);
    int failed = run_measurements(s, "bench_estimator");
    printf("]}\n");
    return failed != 0;
}
