/* check_round_trip.c - J3: what pl_job_write() writes reads back equal, on random jobs. */
#include "estimator/config/datasets.h"
#include "estimator/config/job.h"
#include "estimator/config/job_text.h"
#include "estimator/config/job_values.h"
#include "estimator/config/key_table.h"
#include "estimator/config/key_table.h"
#include "estimator/config/meaning.h"
#include "estimator/config/validate.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t random_state;

static uint64_t random_u64(void) { /* splitmix64 */
    uint64_t z = random_state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

static uint64_t random_below(uint64_t n) {
    return random_u64() % n;
}

static char *random_text(void) {
    /* clang-format off */
    static const char *const parts[] = {
        "a", "B", "7", "e", ".", "-", "_", "/", " ", ": ", " #", "\"", "'", "\\", "\n", "\t", "\r",
        "%", "@", ",", "[", "}", "&", "*", "!", "|", ">", "?", "yes", "~", "null", "true", "0x1",
        "1e5", "\x01", "\x7f", "\xc2\x80", "\xc2\x85", "\xc2\xa0", "\xc3\xa9", "\xe2\x80\xa8",
        "\xe2\x80\xa9", "\xef\xbb\xbf", "\xef\xbf\xbe", "\xef\xbf\xbf", "\xf0\x9f\x98\x80",
        "\xf4\x8f\xbf\xbf", "...", "---", "<<", "=",
    };
    /* clang-format on */
    struct pl_text t = {0};
    for (uint64_t n = 1 + random_below(6); n; n--)
        pl_text_add(&t, parts[random_below(sizeof parts / sizeof *parts)]);
    ck_assert(!t.failed);
    return t.data;
}

static double random_f64(double lo, double hi) {
    double share = (double)(random_u64() >> 11) / 9007199254740992.0;
    switch (random_below(4)) {
    case 0:
        return lo;
    case 1:
        return hi;
    case 2:
        return lo + (hi - lo) * share * pow(10, -(double)random_below(300));
    default:
        return lo + (hi - lo) * share;
    }
}

static uint64_t random_whole(double lo, double hi) {
    uint64_t low = (uint64_t)lo, span = (uint64_t)hi - low;
    return low + (random_below(4) ? random_below(span + 1) : span);
}

/* A name of any kind, in a directory, so that nothing of it is expanded. */
static char *random_path(void) {
    char *name = random_text(), *path = malloc(strlen(name) + 3);
    ck_assert_ptr_nonnull(path);
    sprintf(path, "./%s", name);
    for (char *c = path; *c; c++)
        if (*c == '$') *c = '-';
    free(name);
    return path;
}

#define FILL(type)                                                                                 \
    static void fill_##type(pl_type_##type *v, double lo, double hi, const char *choices)
#define UNUSED (void)lo, (void)hi, (void)choices

FILL(STR) {
    UNUSED;
    free(*v);
    *v = random_text();
}
FILL(PATH) {
    UNUSED;
    free(*v);
    *v = random_path();
}
FILL(BOOL) {
    UNUSED;
    *v = random_below(2);
}
FILL(U32) {
    UNUSED;
    *v = (uint32_t)random_whole(lo, hi);
}
FILL(U64) {
    UNUSED;
    *v = random_whole(lo, hi);
}
FILL(F64) {
    UNUSED;
    *v = random_f64(lo, hi);
}
FILL(ENUM) {
    UNUSED;
    uint32_t n = 1;
    for (const char *c = choices; *c; c++)
        n += *c == '|';
    *v = (uint32_t)random_below(n);
}
FILL(DTYPE) {
    static const char *const all[] = {"auto", "fp32", "bf16", "fp16"};
    const char *name;
    UNUSED;
    do
        name = all[random_below(4)];
    while (!strstr(choices, name));
    *v = pl_dtype_by_name(name);
}
FILL(TEMPLATE) {
    fill_ENUM(&v->choice, lo, hi, choices);
    free(v->path);
    v->path = NULL;
    if (random_below(2)) return;
    char *name = random_path();
    size_t room = strlen(name) + sizeof ".jinja";
    v->path = malloc(room);
    ck_assert_ptr_nonnull(v->path);
    snprintf(v->path, room, "%s.jinja", name);
    v->choice = PL_CHAT_TEMPLATE_FILE;
    free(name);
}
FILL(AUTO) {
    UNUSED;
    *v = random_below(4) ? (uint32_t)random_whole(lo, hi) : PL_AUTO;
}
FILL(BYTES) {
    UNUSED;
    *v = random_below(4) ? random_u64() >> (1 + random_below(63)) : PL_AUTO_BYTES;
}
FILL(RECOMPUTE) {
    UNUSED;
    const uint32_t first = (uint32_t)random_below(PL_RECOMPUTE_PLAIN);
    const uint32_t n = 1 + (uint32_t)random_below(PL_RECOMPUTE_LAYERS_MAX);
    const uint32_t rest = (first + 1 + (uint32_t)random_below(4)) % PL_RECOMPUTE_OFFLOAD;
    const uint32_t any[] = {(uint32_t)random_below(PL_RECOMPUTE_PLAIN), PL_RECOMPUTE_AUTO,
                            PL_RECOMPUTE_EVERY_N(n), PL_RECOMPUTE_MIX(first, n, rest)};
    *v = any[random_below(4)];
}
FILL(DEVICE) {
    UNUSED;
    *v = random_below(2) ? (uint32_t)random_below(4)
                         : PL_DEVICE_CUDA_AT + (uint32_t)random_below(PL_DEVICE_CUDA_MAX + 1);
}
FILL(LIST) {
    UNUSED;
    for (uint32_t i = 0; i < v->n; i++)
        free(v->items[i]);
    v->n = 1 + (uint32_t)random_below(4);
    v->items = realloc(v->items, v->n * sizeof *v->items);
    ck_assert_ptr_nonnull(v->items);
    for (uint32_t i = 0; i < v->n; i++)
        v->items[i] = random_text();
}
FILL(DATASETS) {
    UNUSED;
    for (uint32_t i = 0; i < v->n; i++) {
        free(v->items[i].path);
        pl_columns_finish(&v->items[i].columns);
    }
    v->n = 1 + (uint32_t)random_below(4);
    v->items = realloc(v->items, v->n * sizeof *v->items);
    ck_assert_ptr_nonnull(v->items);
    for (uint32_t i = 0; i < v->n; i++) {
        v->items[i] = (struct pl_dataset){.path = random_path(),
                                          .format = (uint32_t)random_below(3),
                                          .split = (uint32_t)random_below(2),
                                          .weight = 0.001 * (double)(1 + random_below(999999))};
        for (int k = 0; k < PL_COLUMN_COUNT; k++)
            if (random_below(3) == 0) v->items[i].columns.name[k] = random_text();
    }
}

#define SAME(type) static bool same_##type(const pl_type_##type *a, const pl_type_##type *b)

SAME(STR) {
    return *a && *b ? strcmp(*a, *b) == 0 : *a == *b;
}
SAME(PATH) {
    return same_STR(a, b);
}
SAME(BOOL) {
    return *a == *b;
}
SAME(U32) {
    return *a == *b;
}
SAME(U64) {
    return *a == *b;
}
SAME(F64) {
    return memcmp(a, b, sizeof *a) == 0 || (isnan(*a) && isnan(*b));
}
SAME(LIST) {
    bool same = a->n == b->n;
    for (uint32_t i = 0; same && i < a->n; i++)
        same = strcmp(a->items[i], b->items[i]) == 0;
    return same;
}
static bool same_columns(const struct pl_columns *a, const struct pl_columns *b) {
    bool same = true;
    for (int k = 0; same && k < PL_COLUMN_COUNT; k++)
        same = same_STR(&a->name[k], &b->name[k]);
    return same;
}
SAME(DATASETS) {
    bool same = a->n == b->n;
    for (uint32_t i = 0; same && i < a->n; i++)
        same = strcmp(a->items[i].path, b->items[i].path) == 0 &&
               a->items[i].format == b->items[i].format && a->items[i].split == b->items[i].split &&
               a->items[i].weight == b->items[i].weight &&
               same_columns(&a->items[i].columns, &b->items[i].columns);
    return same;
}
SAME(TEMPLATE) {
    return a->choice == b->choice && same_STR(&a->path, &b->path);
}
#define same_ENUM      same_U32
#define same_DTYPE     same_U32
#define same_AUTO      same_U32
#define same_RECOMPUTE same_U32
#define same_DEVICE    same_U32
#define same_BYTES     same_U64

/* The first key in which two jobs differ, NULL when they are equal. */
static const char *difference(const struct pl_job *a, const struct pl_job *b) {
#define X(key, type, def, lo, hi, choices, help)                                                   \
    if (!same_##type(&a->key, &b->key)) return #key;
    PL_CONFIG_KEYS(X)
#undef X
    return NULL;
}

static void set(struct pl_job *job, const char *key, const char *value) {
    struct pl_diag d = {0};
    ck_assert_msg(pl_job_set(job, key, value, &d) == PL_ERR_OK, "%s: %s", key, d.message);
}

/* Drops what a stage of preferences refuses, and its keys elsewhere. */
static void make_stage_valid(struct pl_job *job) {
    static const enum pl_key_id keys[] = {
        PL_KEY_preference_loss,  PL_KEY_beta,      PL_KEY_label_smoothing,
        PL_KEY_sft_weight,       PL_KEY_ld_alpha,  PL_KEY_simpo_gamma,
        PL_KEY_desirable_weight, PL_KEY_reference, PL_KEY_undesirable_weight,
        PL_KEY_truncation,       PL_KEY_train_on,  PL_KEY_precompute_reference,
        PL_KEY_row_weights};
    uint32_t n;
    const struct pl_key_info *infos = pl_key_table(&n);
    const bool prefers = job->stage != PL_STAGE_SFT;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (!pl_job_key_applies(job, keys[i])) set(job, infos[keys[i]].key, "");
    for (uint32_t i = 0; prefers && i < job->datasets.n; i++)
        job->datasets.items[i].format = PL_FORMAT_PREFERENCE;
    for (uint32_t i = 0; prefers && i < job->eval_datasets.n; i++)
        job->eval_datasets.items[i].format = PL_FORMAT_AUTO;
    if (!prefers) return;
    set(job, "packing", "");
    set(job, "lora_modules_to_save", "");
    set(job, "precompute_reference", "");
    if (!(job->beta > 0)) set(job, "beta", "");
    if (!pl_mode_adapts(job->mode)) set(job, "reference", "");
    if (job->preference_loss == PL_DPO_LOSS_EXO_PAIR) set(job, "preference_loss", "ipo");
}

/* Drops what would conflict, so that the rest of a random job may stay. */
static void make_valid(struct pl_job *job) {
    static const char *const lora_keys[] = {"adapter_dtype",
                                            "base_dtype",
                                            "lora_r",
                                            "lora_alpha",
                                            "lora_dropout",
                                            "lora_target_modules",
                                            "layers_to_transform",
                                            "lora_exclude_modules",
                                            "layers_pattern",
                                            "use_rslora",
                                            "adapter_path",
                                            "save_merged",
                                            "lora_modules_to_save",
                                            "lora_target_parameters"};
    static const char *const qlora_keys[] = {"quant_type",    "double_quant",
                                             "quantize_head", "quantize_embedding",
                                             "compute_dtype", "unpack_buffer"};
    static const char *const reports[] = {"jsonl", "none", "jsonl,tensorboard"};
    static const char *const faults[] = {"", "device_oom@alloc=5,forever",
                                         "disk_full@write=2,count=3;device_oom@step=1"};
    if (job->mode == PL_UNSET_U32) set(job, "mode", "lora");
    if (!job->model) set(job, "model", "m");
    make_stage_valid(job);
    if (job->resume && (!strcmp(job->resume, "true") || !strcmp(job->resume, "false")))
        set(job, "resume", "never");
    for (size_t i = 0; job->mode == PL_MODE_FULL && i < sizeof lora_keys / sizeof *lora_keys; i++)
        set(job, lora_keys[i], "");
    for (size_t i = 0; job->mode != PL_MODE_QLORA && i < sizeof qlora_keys / sizeof *qlora_keys;
         i++)
        set(job, qlora_keys[i], "");
    if (job->init != PL_INIT_RANDOM) set(job, "model_config", "");
    if (job->optimizer != PL_OPTIMIZER_ADAMW && job->optimizer != PL_OPTIMIZER_LION)
        set(job, "moment_dtype", "");
    if (pl_job_check_comm(job, NULL) != PL_ERR_OK) set(job, "comm", "auto");
    if (!job->layers_to_transform.n) set(job, "layers_pattern", "");
    if (job->mode != PL_MODE_FULL) set(job, "full_ft_offload", "");
    if (pl_job_offload(job) == PL_OFFLOAD_NONE) set(job, "offload_update", "");
    if (pl_job_offloads(job)) {
        set(job, "devices", "1");
        set(job, "rank_order", "auto");
    }
    if (!pl_job_orders_ranks(job)) set(job, "sharding", "auto");
    if (job->init == PL_INIT_RANDOM) set(job, "save_merged", "");
    if (job->lr_scheduler != PL_SCHEDULE_COSINE_WITH_MIN_LR) set(job, "min_lr_ratio", "");
    if (job->dtype == PL_DTYPE_F32) {
        set(job, "master_weights", "auto");
        set(job, "gradient_dtype", "fp32");
    } else if (job->base_dtype == PL_DTYPE_F32) {
        set(job, "base_dtype", "auto");
    }
    if (job->loss_scale != PL_AUTO && (job->loss_scale & (job->loss_scale - 1)))
        set(job, "loss_scale", "dynamic");
    set(job, random_below(2) ? "warmup_ratio" : "warmup_steps", "");
    set(job, random_below(2) ? "global_batch_size" : "gradient_accumulation_steps", "");
    set(job, "optimizer_in_backward", "");
    if (job->mode == PL_MODE_FULL && job->stage == PL_STAGE_SFT &&
        pl_job_offload(job) < PL_OFFLOAD_GRADIENTS && job->offload < PL_OFFLOAD_GRADIENTS &&
        job->offload_update != PL_UPDATE_HOST) {
        set(job, "optimizer_in_backward", "true");
        set(job, "devices", "");
        set(job, "rank_order", "");
        set(job, "global_batch_size", "");
        set(job, "gradient_accumulation_steps", "");
    }
    set(job, random_below(2) ? "eval_datasets" : "val_set_size", "");
    set(job, random_below(2) ? "dataset" : "datasets", "");
    set(job, "report_to", reports[random_below(3)]);
    set(job, "debug_inject", faults[random_below(3)]);
    uint32_t n;
    const struct pl_key_info *infos = pl_key_table(&n);
    for (uint32_t i = 0; i < n; i++) {
        struct pl_text why = {0};
        if (pl_job_key_is_useless(job, (enum pl_key_id)i, &why)) set(job, infos[i].key, "");
        pl_text_finish(&why);
    }
}

/* One place for evaluation data, and no weight on it. */
static void make_splits_valid(struct pl_job *job) {
    bool elsewhere = job->eval_datasets.n || job->val_set_size > 0;
    for (uint32_t i = 0; i < job->eval_datasets.n; i++)
        job->eval_datasets.items[i].weight = 1;
    for (uint32_t i = 0; i < job->datasets.n; i++) {
        struct pl_dataset *ds = &job->datasets.items[i];
        if (elsewhere) ds->split = PL_SPLIT_TRAIN;
        if (ds->split == PL_SPLIT_EVAL) ds->weight = 1;
    }
}

/* Evaluations are compared where there are some. */
static void make_comparisons_valid(struct pl_job *job) {
    static const char *const keys[] = {"load_best_model_at_end", "metric_for_best_model",
                                       "early_stopping_patience", "early_stopping_threshold"};
    for (size_t i = 0; !pl_job_evaluates(job) && i < sizeof keys / sizeof *keys; i++)
        set(job, keys[i], "");
    if (!job->load_best_model_at_end && !job->early_stopping_patience) return;
    set(job, "eval_steps", "2");
    set(job, "save_steps", "6");
}

static void random_job(struct pl_job *job, uint64_t seed) {
    random_state = seed;
    ck_assert_int_eq(pl_job_defaults(job, NULL), PL_ERR_OK);
#define X(key, type, def, lo, hi, choices, help)                                                   \
    if (random_below(2)) {                                                                         \
        fill_##type(&job->key, lo, hi, choices);                                                   \
        job->given[PL_KEY_##key] = true;                                                           \
    }
    PL_CONFIG_KEYS(X)
#undef X
    make_valid(job);
    make_splits_valid(job);
    make_comparisons_valid(job);
    ck_assert_int_eq(pl_job_validate(job, NULL), PL_ERR_OK);
}

/* S2 of scalar.h: some of the texts are names that a reader could take for something else. */
START_TEST(a_written_job_reads_back_equal) {
    for (uint64_t seed = 1; seed <= 500; seed++) {
        struct pl_job job, again;
        struct pl_text yaml = {0}, twice = {0};
        struct pl_diag d = {0};
        random_job(&job, seed);
        pl_job_write(&job, &yaml);
        ck_assert(!yaml.failed);
        ck_assert_msg(
            pl_job_parse(&again, "out", yaml.data, yaml.len, NULL, 0, NULL, &d) == PL_ERR_OK,
            "seed %llu: %llu:%llu: %s\n%s", (unsigned long long)seed, (unsigned long long)d.line,
            (unsigned long long)d.column, d.message, yaml.data);
        const char *key = difference(&job, &again);
        ck_assert_msg(!key, "seed %llu: %s\n%s", (unsigned long long)seed, key, yaml.data);
        pl_job_write(&again, &twice);
        ck_assert_str_eq(twice.data, yaml.data);
        pl_text_finish(&yaml);
        pl_text_finish(&twice);
        pl_job_finish(&again);
        pl_job_finish(&job);
    }
}
END_TEST

/* T2 of key_types.h */
START_TEST(a_written_value_is_an_override_of_the_same_value) {
    uint32_t n;
    const struct pl_key_info *keys = pl_key_table(&n);
    for (uint64_t seed = 1; seed <= 100; seed++) {
        struct pl_job job, again;
        random_job(&job, seed);
        ck_assert_int_eq(pl_job_defaults(&again, NULL), PL_ERR_OK);
        for (uint32_t i = 0; i < n; i++) {
            struct pl_text text = {0};
            pl_job_write_key(&job, (enum pl_key_id)i, &text);
            set(&again, keys[i].key, pl_text_str(&text));
            pl_text_finish(&text);
        }
        const char *key = difference(&job, &again);
        ck_assert_msg(!key, "seed %llu: %s", (unsigned long long)seed, key);
        pl_job_finish(&again);
        pl_job_finish(&job);
    }
}
END_TEST

int main(void) {
    Suite *s = suite_create("config.round_trip");
    TCase *tc = tcase_create("round_trip");
    tcase_add_test(tc, a_written_job_reads_back_equal);
    tcase_add_test(tc, a_written_value_is_an_override_of_the_same_value);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
