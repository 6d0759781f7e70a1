/* check_api.c - the library as another program sees it: its figures are those of the JSON answer,
 * its failures are data, and four threads may ask at once. */
#include "estimator/api/plimsoll.h"

#include <check.h>
#include <jansson.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MODEL "Qwen/Qwen2.5-7B-Instruct"

static struct pl_vram_estimate *must(const char *model, const char *mode, uint32_t r,
                                     uint32_t batch, uint32_t length, const char *const *settings) {
    struct pl_vram_error error = {0};
    struct pl_vram_estimate *e = pl_estimate_vram(model, mode, r, batch, length, settings, &error);
    ck_assert_msg(e != NULL, "%s: %s", error.code, error.message);
    return e;
}

START_TEST(the_arguments_of_the_page_come_back_with_a_bill_that_adds_up) {
    struct pl_vram_estimate *e = must(MODEL, "lora", 256, 2, 2048, NULL);
    uint64_t sum = 0;
    for (size_t i = 0; i < e->n_ledger; i++)
        sum += e->ledger[i].bytes;
    ck_assert_uint_eq(sum, e->arena_bytes);
    ck_assert_uint_gt(sum, e->weights_bytes);
    ck_assert_uint_eq(e->total_bytes, e->arena_bytes + e->context_bytes + e->comm_bytes);
    ck_assert_uint_eq(e->arena_bytes, e->job_arena_bytes + e->batch_arena_bytes);
    ck_assert_uint_eq(e->param_count, 7615616512u);
    ck_assert_double_eq(e->param_count_billions, 7.615616512);
    ck_assert_double_eq(e->total_gb, (double)e->total_bytes / 1e9);
    ck_assert_double_eq(e->lora_adapter_gb, (double)e->adapters_bytes / 1e9);
    ck_assert_str_eq(e->mode, "lora");
    ck_assert_uint_eq(e->lora_r, 256);
    ck_assert_uint_eq(e->batch_size, 2);
    ck_assert_uint_eq(e->max_seq_length, 2048);
    ck_assert_uint_eq(e->gradient_accumulation, 1);
    ck_assert_uint_ge(e->n_phases, 4);
    ck_assert_ptr_nonnull(e->peak_phase);
    ck_assert(!e->approximate);
    pl_estimate_free(e);
}
END_TEST

/* 2 x 24 layers x 3 sequences x 1000 positions x 2 heads of 64 x 2 bytes. */
START_TEST(inference_has_a_cache_and_nothing_to_train) {
    const char *const four_bits[] = {"quant_type=nf4", NULL};
    struct pl_vram_estimate *e = must("Qwen2.5-0.5B", "inference", 16, 3, 1000, NULL);
    ck_assert_str_eq(e->mode, "inference");
    ck_assert_double_eq(e->kv_cache_gb * 1e9, 2.0 * 24 * 3 * 1000 * 2 * 64 * 2);
    ck_assert_uint_eq(e->adapters_bytes + e->gradients_bytes + e->optimizer_bytes, 0);
    struct pl_vram_estimate *q = must("Qwen2.5-0.5B", "inference", 0, 3, 1000, four_bits);
    ck_assert_double_eq(q->kv_cache_gb, e->kv_cache_gb);
    ck_assert_uint_eq(q->adapters_bytes, 0);
    ck_assert_uint_lt(q->weights_bytes, e->weights_bytes / 10 * 6);
    pl_estimate_free(q);
    pl_estimate_free(e);
}
END_TEST

/* Every number of the struct is found under its own name in the JSON text. */
START_TEST(the_struct_says_what_the_json_says) {
    const char *const settings[] = {"gpu=RTX 4060 Ti", NULL};
    struct pl_vram_estimate *e = must(MODEL, _i ? "lora" : "full", _i ? 16 : 0, 1, 1024, settings);
    json_t *root = json_loads(e->json, 0, NULL);
    const struct {
        const char *key;
        double value;
    } reals[] = {{"total_gb", e->total_gb},
                 {"model_weights_gb", e->model_weights_gb},
                 {"lora_adapter_gb", e->lora_adapter_gb},
                 {"gradients_gb", e->gradients_gb},
                 {"optimizer_state_gb", e->optimizer_state_gb},
                 {"activations_gb", e->activations_gb},
                 {"logits_gb", e->logits_gb},
                 {"workspace_gb", e->workspace_gb},
                 {"kv_cache_gb", e->kv_cache_gb},
                 {"overhead_gb", e->overhead_gb},
                 {"context_gb", e->context_gb},
                 {"fragmentation_gb", e->fragmentation_gb},
                 {"host_ram_gb", e->host_ram_gb},
                 {"vram_gb", e->vram_gb}};
    for (size_t i = 0; i < sizeof reals / sizeof *reals; i++) {
        json_t *v = json_object_get(root, reals[i].key);
        ck_assert_msg(json_is_number(v), "%s", reals[i].key);
        ck_assert_msg(json_number_value(v) == reals[i].value, "%s", reals[i].key);
    }
    const struct {
        const char *key;
        uint64_t value;
    } counts[] = {{"total", e->total_bytes},         {"arena", e->arena_bytes},
                  {"context", e->context_bytes},     {"host", e->host_bytes},
                  {"weights", e->weights_bytes},     {"adapters", e->adapters_bytes},
                  {"gradients", e->gradients_bytes}, {"optimizer", e->optimizer_bytes},
                  {"logits", e->logits_bytes},       {"activations", e->activations_bytes},
                  {"batch", e->batch_bytes},         {"alignment", e->alignment_bytes},
                  {"workspace", e->workspace_bytes}, {"fragmentation", e->fragmentation_bytes}};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        json_t *v = json_object_get(json_object_get(root, "bytes"), counts[i].key);
        ck_assert_msg(json_is_integer(v), "%s", counts[i].key);
        ck_assert_msg((uint64_t)json_integer_value(v) == counts[i].value, "%s", counts[i].key);
    }
    const struct {
        const char *key;
        double value;
    } quick[] = {{"weights", e->quick.weights_gb},         {"gradients", e->quick.gradients_gb},
                 {"optimizer", e->quick.optimizer_gb},     {"overhead", e->quick.overhead_gb},
                 {"activations", e->quick.activations_gb}, {"total", e->quick.total_gb}};
    for (size_t i = 0; i < sizeof quick / sizeof *quick; i++) {
        json_t *v = json_object_get(json_object_get(root, "quick"), quick[i].key);
        ck_assert_msg(json_is_number(v), "%s", quick[i].key);
        ck_assert_msg(json_number_value(v) == quick[i].value, "%s", quick[i].key);
    }
    ck_assert_double_gt(e->quick.total_gb, e->quick.weights_gb);
    ck_assert_str_eq(e->refusal, _i ? "RUNTIME_DOES_NOT_FIT" : "RUNTIME_FULL_FT_MODEL_TOO_LARGE");
    ck_assert_str_eq(json_string_value(json_object_get(root, "verdict")), e->verdict);
    ck_assert_uint_eq(json_array_size(json_object_get(root, "remedies")), e->n_remedies);
    ck_assert_uint_eq(json_array_size(json_object_get(root, "notes")), e->n_notes);
    json_decref(root);
    pl_estimate_free(e);
}
END_TEST

/* PLIMSOLL names the binary. */
START_TEST(the_json_is_what_the_command_prints) {
    static const char *const cards[] = {"T4", "RTX 4090"};
    char gpu[32], command[512];
    snprintf(gpu, sizeof gpu, "gpu=%s", cards[_i]);
    snprintf(command, sizeof command,
             "'%s' estimate-vram " MODEL " --mode lora --batch-size 2 --gpu '%s' --json",
             getenv("PLIMSOLL"), cards[_i]);
    FILE *p = popen(command, "r");
    ck_assert_ptr_nonnull(p);
    json_t *printed = json_loadf(p, 0, NULL);
    ck_assert_int_eq(WEXITSTATUS(pclose(p)), _i ? 0 : 3);
    const char *const settings[] = {gpu, NULL};
    struct pl_vram_estimate *e = must(MODEL, "lora", 0, 2, 0, settings);
    json_t *ours = json_loads(e->json, 0, NULL);
    ck_assert(json_equal(ours, printed));
    json_decref(ours);
    json_decref(printed);
    pl_estimate_free(e);
}
END_TEST

START_TEST(a_card_too_small_is_an_answer_with_remedies) {
    const char *const settings[] = {"gpu=RTX A4000", "gradient_checkpointing=none", NULL};
    struct pl_vram_estimate *e = must(MODEL, NULL, 0, 4, 0, settings);
    ck_assert_str_eq(e->verdict, "no");
    ck_assert(!e->fits);
    ck_assert_str_eq(e->refusal, "RUNTIME_DOES_NOT_FIT");
    ck_assert_str_eq(e->budget_source, "RTX A4000");
    ck_assert_uint_lt(e->usable_bytes, e->budget_bytes);
    ck_assert_uint_eq(e->recommended_batch_size, 0);
    ck_assert_uint_gt(e->n_remedies, 0);
    ck_assert_ptr_nonnull(e->remedies[0].change);
    pl_estimate_free(e);
}
END_TEST

/* Q1 of inquiry.h: Whatever its memory: bytes, and no, and why; nothing that would help. */
START_TEST(a_card_without_kernels_is_no_and_says_why) {
    static const char *const modes[] = {"lora", "inference"};
    const char *const settings[] = {"gpu=V100 16GB", NULL};
    struct pl_vram_estimate *e = must("SmolLM2-135M", modes[_i], 0, 0, 256, settings);
    ck_assert_str_eq(e->verdict, "no");
    ck_assert(!e->fits);
    ck_assert_str_eq(e->refusal, "RUNTIME_NO_DEVICE");
    ck_assert_uint_lt(e->arena_bytes, e->usable_bytes);
    ck_assert_uint_eq(e->recommended_batch_size, 0);
    ck_assert_uint_eq(e->n_remedies, 0);
    ck_assert_uint_gt(e->n_notes, 0);
    ck_assert_ptr_nonnull(strstr(e->notes[0], "7.5")); /* the kernels do not run on a V100 */
    pl_estimate_free(e);
}
END_TEST

START_TEST(fits_on_card_compares_exact_bytes) {
    static const char *const devices[][2] = {{NULL}, {"device=cpu"}, {"device=cuda"}};
    struct pl_vram_estimate *e = must("SmolLM2-135M", "full", 0, 1, 256, devices[_i]);
    struct pl_vram_estimate *gpu = must("SmolLM2-135M", "full", 0, 1, 256, devices[2]);
    const double total = _i ? e->total_gb : gpu->total_gb; /* a card is a GPU unless it is said */
    ck_assert_str_eq(e->verdict, "unknown");
    ck_assert_uint_gt(gpu->context_bytes, 0);
    ck_assert_uint_eq(e->context_bytes, _i == 2 ? gpu->context_bytes : 0);
    pl_estimate_free(gpu);
    ck_assert(pl_estimate_fits_on_card(e, total * 1.000001));
    ck_assert(!pl_estimate_fits_on_card(e, total * 0.999999));
    ck_assert(!pl_estimate_fits_on_card(e, 0));
    ck_assert(!pl_estimate_fits_on_card(e, -16));
    ck_assert(!pl_estimate_fits_on_card(e, (double)NAN));
    ck_assert(pl_estimate_fits_on_card(e, (double)INFINITY));
    pl_estimate_free(e);
}
END_TEST

START_TEST(the_summary_is_cut_as_snprintf_cuts) {
    char line[200], cut[8] = "???????";
    static const char want[] = "VRAM estimate (lora, 7.6B params, batch=2, seq=2048): total=";
    struct pl_vram_estimate *e = must(MODEL, "lora", 16, 2, 2048, NULL);
    size_t n = pl_estimate_summary(e, line, sizeof line);
    ck_assert_uint_eq(n, strlen(line));
    ck_assert_mem_eq(line, want, sizeof want - 1);
    ck_assert_uint_eq(pl_estimate_summary(e, cut, sizeof cut), n);
    ck_assert_str_eq(cut, "VRAM es");
    ck_assert_uint_eq(pl_estimate_summary(e, NULL, 0), n);
    pl_estimate_free(e);
}
END_TEST

static const struct {
    const char *model, *mode;
    uint32_t lora_r, batch, length;
    const char *setting;
    int status;
    const char *code, *text; /* text: in the message or the hint */
} refused[] = {
    {NULL, "lora", 0, 0, 0, NULL, 2, "CONFIG_USAGE", "no model"},
    {"", "lora", 0, 0, 0, NULL, 2, "CONFIG_USAGE", "no model"},
    {"Qwen/Qwen2.5-7B-Instuct", "lora", 0, 0, 0, NULL, 5, "MODEL_FILE", "Qwen2.5-7B-Instruct"},
    {"tests/model/configs/unsupported/gpt2", "lora", 0, 0, 0, NULL, 3, "MODEL_UNSUPPORTED", "gpt2"},
    {"tests/model/configs/bad/eps_zero.json", "lora", 0, 0, 0, NULL, 5, "MODEL_FIELD", "eps"},
    {"/no/such/model", "lora", 0, 0, 0, NULL, 5, "MODEL_FILE", "/no/such/model"},
    {MODEL, "lorra", 0, 0, 0, NULL, 2, "CONFIG_RANGE", "lora"},
    {MODEL, "lora", UINT32_MAX, 0, 0, NULL, 2, "CONFIG_RANGE", "lora_r"},
    {MODEL, "lora", 0, UINT32_MAX, 0, NULL, 2, "CONFIG_RANGE", "batch_size"},
    {MODEL, "lora", 0, 0, 1, NULL, 2, "CONFIG_RANGE", "max_seq_length"},
    {MODEL, "lora", 0, 0, UINT32_MAX, NULL, 2, "CONFIG_RANGE", "max_seq_length"},
    {MODEL, "lora", 0, 0, 0, "lora_rr=8", 2, "CONFIG_UNKNOWN_KEY", "lora_r"},
    {MODEL, "lora", 0, 0, 0, "lora_r=-8", 2, "CONFIG_RANGE", "lora_r"},
    {MODEL, "lora", 0, 0, 0, "lora_alpha=nan", 2, "CONFIG_TYPE", "lora_alpha"},
    {MODEL, "lora", 0, 0, 0, "vram_budget=-16GiB", 2, "CONFIG_TYPE", "vram_budget"},
    {MODEL, "lora", 0, 0, 0, "vram_budget=1e999GB", 2, "CONFIG_TYPE", "vram_budget"},
    {MODEL, "lora", 0, 0, 0, "gpu=RTX 4091", 2, "CONFIG_USAGE", "RTX 4090"},
    {MODEL, "lora", 0, 0, 0, "gpu", 2, "CONFIG_USAGE", "key=value"},
    {MODEL, "lora", 0, 0, 0, "debug_inject=nonsense", 2, "CONFIG_RANGE", "nonsense"},
    {MODEL, "lora", 0, 0, 0, "=8", 2, "CONFIG_UNKNOWN_KEY", ""},
};

/* 2 of plimsoll.h */
START_TEST(a_refusal_is_null_and_a_filled_error) {
    struct pl_vram_error error = {0};
    const char *const settings[] = {refused[_i].setting, NULL};
    struct pl_vram_estimate *e =
        pl_estimate_vram(refused[_i].model, refused[_i].mode, refused[_i].lora_r, refused[_i].batch,
                         refused[_i].length, settings, &error);
    ck_assert_ptr_null(e);
    ck_assert_str_eq(error.code, refused[_i].code);
    ck_assert_int_eq(error.exit_status, refused[_i].status);
    ck_assert_msg(strstr(error.message, refused[_i].text) || strstr(error.hint, refused[_i].text),
                  "%s (%s)", error.message, error.hint);
    ck_assert_ptr_null(pl_estimate_vram(refused[_i].model, refused[_i].mode, refused[_i].lora_r,
                                        refused[_i].batch, refused[_i].length, settings, NULL));
}
END_TEST

/* --- threads ---------------------------------------------------------------------------------- */

#define THREADS 4
#define ROUNDS  12

static const char *const asked[] = {"SmolLM2-135M", "Qwen2.5-7B", "Llama-3.1-8B", "Phi-4-mini"};

static void *ask_often(void *seen) {
    uint64_t *totals = seen;
    for (int i = 0; i < ROUNDS; i++) {
        const char *const settings[] = {"gpu=A100 80GB", "threads=2", NULL};
        struct pl_vram_estimate *e =
            pl_estimate_vram(asked[i % 4], "lora", 16, 1 + (uint32_t)i, 512, settings, NULL);
        totals[i] = e ? e->total_bytes : 0;
        pl_estimate_free(e);
        pl_estimate_free(pl_estimate_vram("no-such-model", "lora", 0, 0, 0, NULL, NULL));
    }
    return NULL;
}

/* 1 of plimsoll.h */
START_TEST(four_threads_get_what_one_gets) {
    static uint64_t alone[ROUNDS], together[THREADS][ROUNDS];
    pthread_t threads[THREADS];
    ask_often(alone);
    for (int i = 0; i < ROUNDS; i++)
        ck_assert_uint_gt(alone[i], 0);
    for (int t = 0; t < THREADS; t++)
        ck_assert_int_eq(pthread_create(&threads[t], NULL, ask_often, together[t]), 0);
    for (int t = 0; t < THREADS; t++)
        ck_assert_int_eq(pthread_join(threads[t], NULL), 0);
    for (int t = 0; t < THREADS; t++)
        ck_assert_mem_eq(together[t], alone, sizeof alone);
}
END_TEST

START_TEST(a_receipt_is_the_same_answer_with_digests) {
    const char *const settings[] = {"gpu=RTX 4090", NULL}, *const wrong[] = {"lora_r=x", NULL};
    struct pl_vram_error error = {0};
    struct pl_vram_estimate *e = must("SmolLM2-135M", "lora", 8, 2, 256, settings);
    char *receipt = pl_receipt_vram("SmolLM2-135M", "lora", 8, 2, 256, settings, NULL);
    char *again = pl_receipt_vram("SmolLM2-135M", "lora", 8, 2, 256, settings, NULL);
    ck_assert_str_eq(receipt, again);
    json_t *r = json_loads(receipt, 0, NULL), *answer = json_loads(e->json, 0, NULL);
    ck_assert(json_equal(answer, json_object_get(r, "planned")));
    ck_assert_uint_eq(json_object_size(json_object_get(r, "digests")), 3);
    ck_assert_ptr_null(pl_receipt_vram("SmolLM2-135M", "lora", 8, 2, 256, wrong, &error));
    ck_assert_int_eq(error.exit_status, 2);
    json_decref(r);
    json_decref(answer);
    pl_receipt_free(receipt);
    pl_receipt_free(again);
    pl_receipt_free(NULL);
    pl_estimate_free(e);
}
END_TEST

/* 2 of plimsoll.h */
START_TEST(nothing_is_printed) {
    char text[2][64] = {"", ""};
    const char *const settings[] = {"gpu=T4", NULL};
    FILE *caught[2] = {tmpfile(), tmpfile()};
    int kept[2] = {dup(1), dup(2)};
    for (int i = 0; i < 2; i++)
        ck_assert_int_ge(dup2(fileno(caught[i]), i + 1), 0);
    pl_estimate_free(pl_estimate_vram(MODEL, "full", 0, 0, 0, settings, NULL));
    pl_estimate_free(pl_estimate_vram("no-such-model", "full", 0, 0, 0, settings, NULL));
    fflush(NULL);
    for (int i = 0; i < 2; i++) {
        ck_assert_int_ge(dup2(kept[i], i + 1), 0);
        rewind(caught[i]);
        (void)!fread(text[i], 1, sizeof text[i] - 1, caught[i]);
        fclose(caught[i]);
        close(kept[i]);
        ck_assert_str_eq(text[i], "");
    }
}
END_TEST

START_TEST(header_and_library_agree_on_the_version) {
    char numbers[32];
    snprintf(numbers, sizeof numbers, "%d.%d.%d", PLIMSOLL_VERSION_MAJOR, PLIMSOLL_VERSION_MINOR,
             PLIMSOLL_VERSION_PATCH);
    ck_assert_str_eq(PLIMSOLL_VERSION, PROJECT_VERSION);
    ck_assert_str_eq(pl_version(), PROJECT_VERSION);
    ck_assert_str_eq(numbers, PROJECT_VERSION);
}
END_TEST

int main(void) {
    Suite *s = suite_create("api.api");
    TCase *tc = tcase_create("api");
    tcase_set_timeout(tc, 60);
    tcase_add_test(tc, the_arguments_of_the_page_come_back_with_a_bill_that_adds_up);
    tcase_add_test(tc, inference_has_a_cache_and_nothing_to_train);
    tcase_add_loop_test(tc, the_struct_says_what_the_json_says, 0, 2);
    tcase_add_loop_test(tc, the_json_is_what_the_command_prints, 0, 2);
    tcase_add_test(tc, a_card_too_small_is_an_answer_with_remedies);
    tcase_add_loop_test(tc, a_card_without_kernels_is_no_and_says_why, 0, 2);
    tcase_add_loop_test(tc, fits_on_card_compares_exact_bytes, 0, 3);
    tcase_add_test(tc, the_summary_is_cut_as_snprintf_cuts);
    tcase_add_loop_test(tc, a_refusal_is_null_and_a_filled_error, 0,
                        (int)(sizeof refused / sizeof *refused));
    tcase_add_test(tc, four_threads_get_what_one_gets);
    tcase_add_test(tc, a_receipt_is_the_same_answer_with_digests);
    tcase_add_test(tc, nothing_is_printed);
    tcase_add_test(tc, header_and_library_agree_on_the_version);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
