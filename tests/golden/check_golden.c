/* check_golden.c - whole training runs against what PyTorch makes of the same files.
 *
 * GOLDEN_CASES names the directory of the cases; PLIMSOLL_GOLDEN_DIR, when set, a directory whose
 * train/ holds more of the same layout; GOLDEN_DEVICE, when set, a device other than the CPU;
 * GOLDEN_HALF, when set to `even` or `odd`, takes every second case alone.
 * README.md describes a case, and where its tolerances come from; none of them is chosen here. */
#include "tests/support/child.h"
#include "tests/support/joblog.h"
#include "tests/support/scratch.h"
#include "tests/support/tensorset.h"

#include <check.h>
#include <glob.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_CASES 128

static char *cases[MAX_CASES];
static int n_cases;

struct worst { /* largest share of its limit that an error took */
    double share;
    char what[160];
};

struct golden {
    const char *dir; /* directory of the case */
    char out[SCRATCH_PATH];
    json_t *expected;
    bool full, is_fp16;
    struct worst worst;
};

static double tolerance(const struct golden *g, const char *key) {
    return joblog_number(json_object_get(g->expected, "tolerances"), key);
}

/* A NaN is never within a limit; a limit of 0 asks for equality. */
static void expect_within(struct golden *g, const char *what, double error, double limit) {
    ck_assert_msg(error <= limit, "%s: %s: error %.3g over %.3g", g->dir, what, error, limit);
    double share = limit > 0 ? error / limit : 0;
    if (share < g->worst.share) return;
    g->worst.share = share;
    strncpy(g->worst.what, what, sizeof g->worst.what - 1);
}

static double top_rate(const json_t *steps) {
    double top = 0;
    size_t i;
    json_t *step;
    json_array_foreach(steps, i, step) top = fmax(top, joblog_number(step, "learning_rate"));
    return top;
}

/* Under a loss scale a step whose gradients overflow is skipped: it has no norm. */
static bool check_scale(const struct golden *g, const json_t *want, const json_t *got) {
    const bool skipped = json_is_true(json_object_get(want, "skipped"));
    if (!json_object_get(want, "loss_scale")) return false;
    ck_assert_msg(joblog_number(got, "loss_scale") == joblog_number(want, "loss_scale") &&
                      json_is_true(json_object_get(got, "skipped")) == skipped,
                  "%s: step %g: another scale, or another outcome", g->dir,
                  joblog_number(want, "step"));
    ck_assert(json_is_null(json_object_get(got, "grad_norm")) == skipped);
    return skipped;
}

static void check_step(struct golden *g, const json_t *want, const json_t *got, double top) {
    const bool skipped = check_scale(g, want, got);
    double norm = skipped ? 0 : joblog_number(want, "grad_norm");
    int number = (int)joblog_number(want, "step");
    const struct {
        const char *key;
        double limit;
    } rows[] = {{"loss", tolerance(g, "loss_abs")},
                {"learning_rate", tolerance(g, "learning_rate_rel") * top},
                {"tokens", 0},
                {"grad_norm", tolerance(g, "grad_norm_rel") * norm}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows - skipped; i++)
        expect_within(g, textf("%s at step %d", rows[i].key, number),
                      fabs(joblog_number(want, rows[i].key) - joblog_number(got, rows[i].key)),
                      rows[i].limit);
}

/* The measures of a loss of preferences, under TRL's names; mean logits are not logged. A pair
 * whose margin is within rounding may count as won or lost. */
static void check_measures(struct golden *g, const json_t *want, const json_t *got) {
    static const struct {
        const char *prefix, *tolerance;
    } groups[] = {{"rewards/", "rewards_abs"},
                  {"logps/", "logps_abs"},
                  {"kl", "others_abs"},
                  {"nll_loss", "others_abs"},
                  {"log_odds", "others_abs"}};
    const char *key;
    const json_t *undecided = json_object_get(want, "undecided");
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)want, key, value) {
        for (size_t i = 0; i < sizeof groups / sizeof *groups; i++) {
            if (strncmp(key, groups[i].prefix, strlen(groups[i].prefix)) != 0) continue;
            const bool counts = strcmp(key, "rewards/accuracies") == 0;
            const double limit =
                counts ? json_number_value(undecided) + 1e-6 : tolerance(g, groups[i].tolerance);
            ck_assert_msg(json_is_number(json_object_get(got, key)), "%s: no %s", g->dir, key);
            expect_within(g, textf("%s at step %d", key, (int)joblog_number(want, "step")),
                          fabs(json_number_value(value) - joblog_number(got, key)), limit);
        }
    }
}

static void check_log(struct golden *g) {
    json_t *log = joblog_read(g->out), *steps = json_object_get(g->expected, "steps"), *want;
    size_t i;
    ck_assert_uint_eq(joblog_count(log, "step"), json_array_size(steps));
    json_array_foreach(steps, i, want) {
        const json_t *got = joblog_step(log, (uint64_t)joblog_number(want, "step"));
        ck_assert_msg(got != NULL, "%s: step %zu was not logged", g->dir, i + 1);
        check_step(g, want, got, top_rate(steps));
        check_measures(g, want, got);
    }
    const json_t *summary = joblog_event(log, "summary", 0);
    ck_assert_ptr_nonnull(summary);
    ck_assert(joblog_number(summary, "planned_peak_bytes") ==
              joblog_number(summary, "allocated_peak_bytes"));
    json_decref(log);
}

static void check_trained(struct golden *g, const struct weights *want, const struct weights *got) {
    const json_t *facts = json_object_get(g->expected, "tensors");
    for (uint64_t i = 0; i < want->files[0].n; i++) {
        struct weight w = {&want->files[0], &want->files[0].entries[i]};
        const char *name = w.entry->name;
        struct weight t = weights_find(got, name);
        ck_assert_msg(t.entry != NULL, "%s: %s was not saved", g->dir, name);
        ck_assert_str_eq(t.entry->dtype_name, g->full && g->is_fp16 ? "F16" : "F32");
        const json_t *fact = json_object_get(facts, name);
        struct weight_gap gap = weight_compare(&w, &t);
        expect_within(g, textf("update of %s", name),
                      gap.l2 / fmax(joblog_number(fact, "update_l2"), 1e-30),
                      joblog_number(fact, "tol_rel_l2"));
        expect_within(g, textf("element of %s", name), gap.largest, tolerance(g, "weights_abs"));
    }
}

/* Tensors that were not trained are unchanged, and no others are written; a tied head may be
 * written, as the embedding once more. */
static void check_frozen(struct golden *g, const struct weights *want, const struct weights *got) {
    struct weights source;
    weights_open(&source, in_dir(g->dir, "model"), "model");
    for (int f = 0; f < source.n; f++)
        for (uint64_t i = 0; i < source.files[f].n; i++) {
            struct weight s = {&source.files[f], &source.files[f].entries[i]};
            const char *name = s.entry->name;
            if (weights_find(want, name).entry) continue;
            struct weight t = weights_find(got, name);
            ck_assert_msg(t.entry != NULL, "%s: frozen %s was not saved", g->dir, name);
            expect_within(g, textf("frozen %s", name), weight_compare(&s, &t).largest, 0);
        }
    for (int f = 0; f < got->n; f++)
        for (uint64_t i = 0; i < got->files[f].n; i++) {
            struct weight t = {&got->files[f], &got->files[f].entries[i]};
            const char *name = t.entry->name;
            if (weights_find(want, name).entry || weights_find(&source, name).entry) continue;
            struct weight embedding = weights_find(got, "model.embed_tokens.weight");
            ck_assert_msg(strcmp(name, "lm_head.weight") == 0 && weight_same_bits(&t, &embedding),
                          "%s: %s was saved but never loaded", g->dir, name);
        }
    weights_close(&source);
}

static void check_weights(struct golden *g) {
    struct weights want, got;
    weights_open(&want, g->dir, "expected");
    weights_open(&got, g->out, g->full ? "model" : "adapter_model");
    ck_assert_uint_gt(want.files[0].n, 0);
    check_trained(g, &want, &got);
    if (g->full)
        check_frozen(g, &want, &got);
    else
        ck_assert_uint_eq(got.files[0].n, want.files[0].n);
    weights_close(&want);
    weights_close(&got);
}

/* words: overrides, NULL-terminated. */
static void check_case(const char *dir, const char *const words[3]) {
    struct golden g = {.dir = dir};
    const char *device = getenv("GOLDEN_DEVICE") ? getenv("GOLDEN_DEVICE") : "cpu";
    json_error_t error;
    g.expected = json_load_file(in_dir(g.dir, "expected.json"), 0, &error);
    ck_assert_msg(g.expected != NULL, "%s: %s", g.dir, error.text);
    g.full = strcmp(json_string_value(json_object_get(g.expected, "mode")), "full") == 0;
    g.is_fp16 = strstr(dir, "-fp16") != NULL;
    scratch_make(g.out);
    struct outcome o =
        plimsoll_expect(0, g.dir,
                        (const char *[]){"train", "run.yaml", "--output_dir", g.out, "--device",
                                         device, words[0], words[1], NULL});
    outcome_finish(&o);
    check_log(&g);
    check_weights(&g);
    if (getenv("GOLDEN_VERBOSE"))
        fprintf(stderr, "%s: %.2g of its limit (%s)\n", g.dir, g.worst.share, g.worst.what);
    json_decref(g.expected);
    scratch_remove(g.out);
}

START_TEST(a_run_ends_where_pytorch_ends) {
    check_case(cases[_i], (const char *[]){NULL, NULL, NULL});
}
END_TEST

/* Full fine-tuning and its sums of several micro-batches, adapters, a base in 4 bits, norms after
 * blocks, biases, frozen layers, linear attention; of 7 tokens, which divide no micro-batch. */
static const char *const cut[] = {"llama-full",  "llama-accumulate", "llama-freeze", "lora-llama",
                                  "lora-rslora", "qlora-llama",      "gemma3-full",  "gemma3-lora",
                                  "qwen2-full",  "qwen35-full"};
enum { N_CUT = sizeof cut / sizeof *cut };

START_TEST(so_does_one_whose_mlps_are_computed_in_chunks) {
    const char *const words[] = {"gradient_checkpointing=full", "mlp_chunk_tokens=7", NULL};
    char dir[SCRATCH_PATH];
    snprintf(dir, sizeof dir, "%s/%s", getenv("GOLDEN_CASES"), cut[_i]);
    check_case(dir, words);
}
END_TEST

/* Pieces of 16 rows; and of 64 columns, in matrices that have more. */
static const char *const unpacked[] = {"qlora-llama", "qlora-qwen2-bf16"};
enum { N_UNPACKED = sizeof unpacked / sizeof *unpacked };

START_TEST(so_does_one_that_unpacks_in_panels) {
    const char *const words[] = {"gradient_checkpointing=full", "unpack_buffer=4KiB", NULL};
    char dir[SCRATCH_PATH];
    snprintf(dir, sizeof dir, "%s/%s", getenv("GOLDEN_CASES"), unpacked[_i]);
    check_case(dir, words);
}
END_TEST

/* Memory that is missing in the pass that scores a step, by the policy and by the reference. */
static const char *const scored[] = {"dpo-lora", "dpo-accumulate", "kto-full", "kto-lora"};
enum { N_SCORED = sizeof scored / sizeof *scored };

START_TEST(so_does_one_that_runs_out_of_memory_while_it_scores) {
    const char *const words[] = {"debug_inject=device_oom@op=7", "gradient_checkpointing=full",
                                 NULL};
    char dir[SCRATCH_PATH];
    snprintf(dir, sizeof dir, "%s/%s", getenv("GOLDEN_CASES"), scored[_i]);
    check_case(dir, words);
}
END_TEST

/* The probe computes the longest rows, of which KTO makes pairs that no step has. */
START_TEST(so_does_one_that_probes_with_a_reference_of_before) {
    const char *const words[] = {"probe_steps=2", "precompute_reference=true", NULL};
    char dir[SCRATCH_PATH];
    snprintf(dir, sizeof dir, "%s/%s", getenv("GOLDEN_CASES"), scored[_i]);
    check_case(dir, words);
}
END_TEST

/* Runs outside any test, where the helpers' assertions have nowhere to report to. */
static void add_cases(const char *root, const char *below) {
    char pattern[SCRATCH_PATH];
    glob_t found;
    snprintf(pattern, sizeof pattern, "%s%s/*/run.yaml", root, below);
    if (glob(pattern, 0, NULL, &found) != 0) return;
    const char *half = getenv("GOLDEN_HALF");
    const size_t first = half && strcmp(half, "odd") == 0;
    for (size_t i = first; i < found.gl_pathc && n_cases < MAX_CASES; i += half ? 2 : 1) {
        size_t n = strlen(found.gl_pathv[i]) - strlen("/run.yaml");
        cases[n_cases] = strndup(found.gl_pathv[i], n);
        if (cases[n_cases]) n_cases++;
    }
    globfree(&found);
}

/* The directory may hold a part of the cases. */
static bool has_case(const char *root, const char *name) {
    char path[SCRATCH_PATH];
    snprintf(path, sizeof path, "%s/%s/run.yaml", root, name);
    return access(path, R_OK) == 0;
}

int main(void) {
    const char *own = getenv("GOLDEN_CASES"), *more = getenv("PLIMSOLL_GOLDEN_DIR");
    if (own) add_cases(own, "");
    if (more && *more) add_cases(more, "/train");
    if (n_cases == 0) {
        fprintf(stderr, "check_golden: set GOLDEN_CASES to the directory of the cases\n");
        return 1;
    }
    Suite *s = suite_create("golden.runs");
    TCase *tc = tcase_create("cases");
    tcase_set_timeout(tc, 90);
    tcase_add_loop_test(tc, a_run_ends_where_pytorch_ends, 0, n_cases);
    for (int i = 0; own && i < N_CUT; i++)
        if (has_case(own, cut[i]))
            tcase_add_loop_test(tc, so_does_one_whose_mlps_are_computed_in_chunks, i, i + 1);
    for (int i = 0; own && i < N_UNPACKED; i++)
        if (has_case(own, unpacked[i]))
            tcase_add_loop_test(tc, so_does_one_that_unpacks_in_panels, i, i + 1);
    for (int i = 0; own && i < N_SCORED; i++)
        if (has_case(own, scored[i]))
            tcase_add_loop_test(tc, so_does_one_that_runs_out_of_memory_while_it_scores, i, i + 1);
    for (int i = 0; own && i < N_SCORED; i++)
        if (has_case(own, scored[i]))
            tcase_add_loop_test(tc, so_does_one_that_probes_with_a_reference_of_before, i, i + 1);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    for (int i = 0; i < n_cases; i++)
        free(cases[i]);
    return failed != 0;
}
