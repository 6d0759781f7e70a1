/* check_property.c - hundreds of drawn jobs keep what is promised of every job.
 *
 * A job is drawn from a seed: model, mode, device, batch, length, level, chunk, rank, optimizer and
 * what else costs bytes. Each is asked about through the library, and
 *   sums       its ledger is its arenas, arenas and context are its total, the parts in GB too
 *   monotone   more batch, length or rank never takes fewer bytes, where level and chunk are given
 *   walls      the largest batch that fits does fit, and one more does not
 *   remedies   a remedy that is typed needs the bytes, and gets the verdict, it was printed with
 *   surfaces   the command, its flags in a YAML file, and the library give the same bytes
 * A violation is told with the command that shows it. PLIMSOLL names the binary,
 * PLIMSOLL_PROPERTY_RUNS and PLIMSOLL_PROPERTY_SEED change number and choice of the jobs. */
#include "estimator/api/plimsoll.h"
#include "tests/support/child.h"
#include "tests/support/draws.h"
#include "tests/support/scratch.h"

#include <check.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RUNS_OF_CI   DRAWS(300, 90)
#define MAX_SETTINGS 24
#define STEP_SAMPLES UINT64_C(16) /* PL_STEP_SAMPLES */
#define MAX_NAMES    128

/* --- drawing --------------------------------------------------------------------------------- */

static uint64_t state; /* state of splitmix64 (Steele, Lea, Flood, 2014) */

static uint64_t draw(void) {
    uint64_t z = state += UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}

static uint32_t below(uint32_t n) {
    return (uint32_t)(draw() % n);
}

static bool one_in(uint32_t n) {
    return below(n) == 0;
}

/* --- a job ----------------------------------------------------------------------------------- */

struct drawn {
    char model[64], mode[16];
    char setting[MAX_SETTINGS][96]; /* "key=value", and "gpu=NAME" */
    uint32_t n;
};

static const char *setting_of(const struct drawn *j, const char *key) {
    const size_t len = strlen(key);
    for (uint32_t i = 0; i < j->n; i++)
        if (strncmp(j->setting[i], key, len) == 0 && j->setting[i][len] == '=')
            return j->setting[i] + len + 1;
    return NULL;
}

static void set(struct drawn *j, const char *key, const char *value) {
    const size_t len = strlen(key);
    uint32_t at = 0;
    if (strcmp(key, "mode") == 0) {
        snprintf(j->mode, sizeof j->mode, "%s", value);
        return;
    }
    while (at < j->n && (strncmp(j->setting[at], key, len) != 0 || j->setting[at][len] != '='))
        at++;
    ck_assert_uint_lt(at, MAX_SETTINGS);
    snprintf(j->setting[at], sizeof j->setting[at], "%s=%s", key, value);
    if (at == j->n) j->n++;
}

static void set_number(struct drawn *j, const char *key, uint64_t value) {
    char text[24];
    snprintf(text, sizeof text, "%" PRIu64, value);
    set(j, key, text);
}

static uint64_t number_of(const struct drawn *j, const char *key) {
    const char *value = setting_of(j, key);
    return value ? strtoull(value, NULL, 10) : 0;
}

static void unset(struct drawn *j, const char *key) {
    const char *value = setting_of(j, key);
    if (!value) return;
    for (uint32_t i = 0; i < j->n; i++)
        if (value > j->setting[i] && value < j->setting[i] + sizeof j->setting[i])
            memcpy(j->setting[i], j->setting[--j->n], sizeof j->setting[i]);
}

/* Samples of a step that no key sizes; 0: some key does, or the step is one micro-batch. */
static uint64_t open_samples(const struct drawn *j) {
    const char *batch = setting_of(j, "batch_size"),
               *let_go = setting_of(j, "optimizer_in_backward");
    const uint64_t k = number_of(j, "gradient_accumulation_steps");
    const bool one = strcmp(j->mode, "full") == 0 && let_go && strcmp(let_go, "true") == 0;
    if (strcmp(j->mode, "inference") == 0 || strcmp(batch, "auto") != 0 || one) return 0;
    return k > STEP_SAMPLES ? k : STEP_SAMPLES;
}

/* Types a micro-batch in place of `auto`, together with the step that it is a part of. */
static void type_batch(struct drawn *j, uint64_t n, uint64_t accumulation) {
    const uint64_t samples = open_samples(j), k = number_of(j, "gradient_accumulation_steps");
    set_number(j, "batch_size", n);
    if (!samples || n > samples / (k ? k : 1) || (accumulation == 1 && n < samples)) return;
    set_number(j, "global_batch_size", samples);
    unset(j, "gradient_accumulation_steps");
}

/* The gradients of a step of one micro-batch may take less. */
static bool is_between_steps(const struct drawn *j, uint64_t less, uint64_t more) {
    const uint64_t samples = open_samples(j);
    return less < samples && more >= samples;
}

/* The command that asks the same. */
static const char *command_of(const struct drawn *j) {
    static char text[4096];
    int n = snprintf(text, sizeof text, "plimsoll estimate-vram %s --mode %s", j->model, j->mode);
    for (uint32_t i = 0; i < j->n; i++) {
        const char *value = strchr(j->setting[i], '=') + 1;
        n += snprintf(text + n, sizeof text - (size_t)n, " --%.*s '%s'",
                      (int)(value - 1 - j->setting[i]), j->setting[i], value);
    }
    return text;
}

/* --- what can be drawn ----------------------------------------------------------------------- */

static char models[MAX_NAMES][64], cards[MAX_NAMES][64];
static uint32_t n_models, n_cards;

static json_t *listed(const char *command, const char *key) {
    struct outcome p = plimsoll_expect(0, NULL, (const char *[]){command, "--json", NULL});
    json_t *root = json_loads(p.out, 0, NULL), *list = json_object_get(root, key);
    ck_assert_msg(json_is_array(list), "%s: %s", command, p.out);
    json_incref(list);
    json_decref(root);
    outcome_finish(&p);
    return list;
}

/* Models of up to 32 layers: the time of a plan is that of its layers. No copies in 4 bits, which
 * only qlora takes. GPUs with kernels. */
static void list_names(void) {
    json_t *list = listed("models", "models"), *v;
    size_t i;
    json_array_foreach(list, i, v) {
        const char *name = json_string_value(json_object_get(v, "name"));
        if (json_integer_value(json_object_get(v, "layers")) > 32 || strstr(name, "-4bit"))
            continue;
        snprintf(models[n_models++], sizeof *models, "%s", name);
    }
    json_decref(list);
    list = listed("cards", "cards");
    json_array_foreach(list, i, v) {
        if (!json_is_true(json_object_get(v, "trains"))) continue;
        snprintf(cards[n_cards++], sizeof *cards, "%s",
                 json_string_value(json_object_get(v, "name")));
    }
    json_decref(list);
    ck_assert_uint_gt(n_models, 15);
    ck_assert_uint_gt(n_cards, 40);
}

#define ONE_OF(list) list[below(sizeof(list) / sizeof *(list))]

static void draw_device(struct drawn *j) {
    const uint32_t kind = below(10);
    if (kind < 7) {
        set(j, "gpu", cards[below(n_cards)]);
    } else {
        set_number(j, "vram_budget", (UINT64_C(1) << 30) * (4 + below(90)));
        if (kind == 9) set(j, "device", "cpu");
    }
    if (one_in(8)) set(j, "vram_margin", "1GiB");
}

static void draw_training(struct drawn *j) {
    static const char *const levels[] = {"none", "light",   "attention", "mlp",
                                         "full", "every_2", "offload"};
    static const char *const chunks[] = {"0", "128", "256", "1000", "4096"};
    static const char *const optimizers[] = {"adamw", "adamw_8bit", "sgd"};
    const bool full = strcmp(j->mode, "full") == 0;
    set(j, "gradient_checkpointing", one_in(12) ? "auto" : ONE_OF(levels));
    if (!one_in(8)) set(j, "loss_chunk_tokens", ONE_OF(chunks));
    /* under auto more samples than are recommended may fit in chunks, or in panels */
    set(j, "mlp_chunk_tokens", ONE_OF(chunks));
    if (strcmp(j->mode, "qlora") == 0) set(j, "unpack_buffer", one_in(2) ? "24MiB" : "0");
    set(j, "optimizer", ONE_OF(optimizers));
    if (!full) set_number(j, "lora_r", 1 + below(96));
    if (one_in(3)) set_number(j, "gradient_accumulation_steps", 1 + below(8));
    if (full && one_in(3)) set(j, "offload", one_in(2) ? "optimizer" : "weights");
    if (full && one_in(3)) set(j, "master_weights", "false");
    if (full && one_in(3))
        set(j, "gradient_dtype", "bf16");
    else if (full) /* one open job in three is enough */
        set(j, "optimizer_in_backward", "false");
    if (full && one_in(3)) set_number(j, "freeze_layers", 1 + below(8));
    if (full && one_in(2)) set(j, "full_ft_ceiling_billions", "1000");
    if (!full && one_in(6)) set(j, "lora_target_modules", "[q_proj, v_proj]");
    if (!full && one_in(6)) set(j, "offload", "weights");
    if (one_in(8)) set(j, "embedding_device", "host");
    if (one_in(8)) set(j, "packing", "true");
    if (one_in(12)) set(j, "dtype", "fp32");
}

static void draw_job(struct drawn *j) {
    static const char *const modes[] = {"lora", "lora", "qlora", "qlora", "full", "inference"};
    *j = (struct drawn){0};
    snprintf(j->model, sizeof j->model, "%s", models[below(n_models)]);
    snprintf(j->mode, sizeof j->mode, "%s", ONE_OF(modes));
    draw_device(j);
    set_number(j, "max_seq_length", one_in(2) ? UINT64_C(64) << below(7) : 17 + below(3000));
    if (one_in(3))
        set(j, "batch_size", "auto");
    else
        set_number(j, "batch_size", 1 + below(12));
    if (strcmp(j->mode, "inference") != 0)
        draw_training(j);
    else if (one_in(2))
        set(j, "quant_type", "nf4");
}

/* --- asking ---------------------------------------------------------------------------------- */

static struct pl_vram_error refusal; /* error of the last question */

static struct pl_vram_estimate *ask(const struct drawn *j) {
    const char *settings[MAX_SETTINGS + 1];
    for (uint32_t i = 0; i < j->n; i++)
        settings[i] = j->setting[i];
    settings[j->n] = NULL;
    return pl_estimate_vram(j->model, j->mode, 0, 0, 0, settings, &refusal);
}

static bool has_auto(const struct drawn *j) {
    const char *level = setting_of(j, "gradient_checkpointing");
    const char *chunk = setting_of(j, "loss_chunk_tokens");
    if (strcmp(j->mode, "inference") == 0) return false;
    if (strcmp(j->mode, "full") == 0 && !setting_of(j, "optimizer_in_backward")) return true;
    return strcmp(level, "auto") == 0 || !chunk || strcmp(chunk, "auto") == 0;
}

/* --- violations ------------------------------------------------------------------------------ */

#define MOST_TOLD 12
static uint32_t violations;

static void violated(const struct drawn *j, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
static void violated(const struct drawn *j, const char *fmt, ...) {
    va_list ap;
    if (violations++ >= MOST_TOLD) return;
    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    fprintf(stderr, "\n  %s\n", command_of(j));
}

/* --- the properties -------------------------------------------------------------------------- */

static void check_sums(const struct drawn *j, const struct pl_vram_estimate *e) {
    uint64_t sum = 0, peak = 0;
    for (size_t i = 0; i < e->n_ledger; i++)
        sum += e->ledger[i].bytes;
    if (sum != e->arena_bytes)
        violated(j, "sums: ledger %" PRIu64 " of %" PRIu64, sum, e->arena_bytes);
    if (e->arena_bytes + e->context_bytes + e->comm_bytes != e->total_bytes ||
        e->job_arena_bytes + e->batch_arena_bytes != e->arena_bytes)
        violated(j, "sums: arenas, context and comm are not the total");
    for (size_t i = 0; i < e->n_phases; i++)
        peak = e->phases[i].bytes > peak ? e->phases[i].bytes : peak;
    if (peak != e->arena_bytes) violated(j, "sums: no phase needs the arenas");
    const double parts = e->model_weights_gb + e->lora_adapter_gb + e->gradients_gb +
                         e->optimizer_state_gb + e->activations_gb + e->logits_gb +
                         e->workspace_gb + e->kv_cache_gb + e->overhead_gb + e->fragmentation_gb;
    if (fabs(parts - e->total_gb) > 1e-9 * (1 + e->total_gb))
        violated(j, "sums: the parts are %.12g GB of %.12g", parts, e->total_gb);
}

static bool is_offloaded(const struct drawn *j) {
    const char *level = setting_of(j, "gradient_checkpointing");
    return setting_of(j, "offload") || (level && strcmp(level, "offload") == 0);
}

/* Level, chunk and updates in the backward pass stand: no other choice can hide in the answer. */
static bool check_monotone(const struct drawn *job, const struct pl_vram_estimate *e) {
    struct drawn j = *job;
    const bool lora = setting_of(&j, "lora_r") != NULL;
    if (has_auto(&j)) return false;
    const uint32_t axis = below(lora ? 3 : 2);
    const uint64_t batch = e->batch_size + (axis == 0 ? 1 + below(3) : 0);
    if (is_between_steps(&j, e->batch_size, batch)) return false;
    type_batch(&j, batch, e->gradient_accumulation);
    if (axis == 1)
        set_number(&j, "max_seq_length", number_of(&j, "max_seq_length") + 1 + below(500));
    if (axis == 2) set_number(&j, "lora_r", number_of(&j, "lora_r") + 1 + below(32));
    struct pl_vram_estimate *more = ask(&j);
    if (!more) return false;
    /* the order that tensors of an offload plan are placed in leaves gaps of its own */
    const uint64_t gaps = is_offloaded(&j) ? more->fragmentation_bytes : 0;
    const uint64_t gaps_less = is_offloaded(&j) ? e->fragmentation_bytes : 0;
    if (more->total_bytes - gaps < e->total_bytes - gaps_less) {
        violated(&j, "monotone: %" PRIu64 " bytes, %" PRIu64 " with less of it:", more->total_bytes,
                 e->total_bytes);
        violated(job, "  less, batch %" PRIu64, e->batch_size);
    }
    pl_estimate_free(more);
    return true;
}

static const char *verdict_at(const struct drawn *job, uint64_t batch, uint64_t accumulation,
                              char out[16]) {
    struct drawn j = *job;
    type_batch(&j, batch, accumulation);
    struct pl_vram_estimate *e = ask(&j);
    snprintf(out, 16, "%s", e ? e->verdict : "refused");
    pl_estimate_free(e);
    return out;
}

static bool check_wall(const struct drawn *job, const struct pl_vram_estimate *e) {
    char at[16], beyond[16];
    const uint64_t n = e->recommended_batch_size;
    const bool ceiling = e->refusal && strcmp(e->refusal, "RUNTIME_FULL_FT_MODEL_TOO_LARGE") == 0;
    if (ceiling) return false;
    if (n && strcmp(verdict_at(job, n, e->gradient_accumulation, at), "fits") != 0)
        violated(job, "walls: %" PRIu64 " is the largest batch that fits, and it is %s", n, at);
    /* a decision by time may leave room: it is the largest for the fastest choice */
    if (!has_auto(job) && n < 65536 && !is_between_steps(job, n, n + 1) &&
        strcmp(verdict_at(job, n + 1, e->gradient_accumulation, beyond), "fits") == 0)
        violated(job, "walls: %" PRIu64 " is the largest batch that fits, and one more fits", n);
    return true;
}

/* Types "key: value, key: value (words)". False where it is no list of settings. */
static bool type_change(struct drawn *j, const char *change) {
    char text[256] = "";
    size_t n = 0;
    bool words = false;
    for (; *change && n + 1 < sizeof text; change++) {
        words |= *change == '(';
        if (!words) text[n++] = *change;
        words &= *change != ')';
    }
    for (char *part = strtok(text, ","); part; part = strtok(NULL, ",")) {
        char key[64], value[64];
        if (sscanf(part, " %63[a-z_0-9]: %63[][a-z0-9_:+]", key, value) != 2) return false;
        set(j, key, value);
    }
    return true;
}

static bool check_remedy(const struct drawn *job, const struct pl_vram_estimate *e) {
    struct drawn j = *job;
    if (!e->n_remedies || strcmp(e->verdict, "no") != 0) return false;
    const struct pl_vram_remedy *r = &e->remedies[below((uint32_t)e->n_remedies)];
    type_batch(&j, e->batch_size, e->gradient_accumulation);
    if (!type_change(&j, r->change)) {
        violated(job, "remedies: `%s` cannot be typed", r->change);
        return true;
    }
    struct pl_vram_estimate *after = ask(&j);
    const bool open = has_auto(&j); /* takes what a remedy frees: it still fits, with other bytes */
    if (!after)
        violated(&j, "remedies: `%s` is refused: %s", r->change, refusal.message);
    else if ((!open && fabs(after->total_gb - r->total_gb) > 1e-9) ||
             (strcmp(after->verdict, "fits") == 0) != r->fits)
        violated(&j, "remedies: `%s` says %.9f GB (%s), typed it is %.9f GB (%s)", r->change,
                 r->total_gb, r->fits ? "fits" : "no", after->total_gb, after->verdict);
    pl_estimate_free(after);
    return true;
}

/* The answer of the command that `words` are, without what tells where the question stood. */
static json_t *answer_of(const char *const words[]) {
    struct outcome p = plimsoll_run(NULL, words);
    json_t *o = json_loads(p.out, 0, NULL);
    outcome_finish(&p);
    return o;
}

static const char *const compared[] = {"bytes",    "ledger", "host_ledger",
                                       "verdict",  "phases", "recommended_batch_size",
                                       "remedies", "limits"};

static void compare_answers(const struct drawn *j, const char *surface, const json_t *library,
                            const json_t *other) {
    for (size_t i = 0; i < sizeof compared / sizeof *compared; i++)
        if (!json_equal(json_object_get(library, compared[i]), json_object_get(other, compared[i])))
            violated(j, "surfaces: `%s` of %s is not the library's", compared[i], surface);
}

/* Asks with keys in a file; the GPU and a budget are flags, as they would else be the machine's
 * own. */
static json_t *answer_of_file(const struct drawn *j, const char *dir) {
    const char *words[8] = {"estimate-vram", "--json", in_dir(dir, "job.yaml")};
    char text[2048], beside[128];
    uint32_t n_words = 3;
    int n = snprintf(text, sizeof text, "model: %s\nmode: %s\n", j->model, j->mode);
    for (uint32_t i = 0; i < j->n; i++) {
        const char *value = strchr(j->setting[i], '=') + 1;
        const int key = (int)(value - 1 - j->setting[i]);
        if (strncmp(j->setting[i], "gpu=", 4) == 0) {
            words[n_words++] = "--gpu";
            words[n_words++] = value;
        } else if (strncmp(j->setting[i], "vram_budget=", 12) == 0) {
            snprintf(beside, sizeof beside, "%s", j->setting[i]);
            words[n_words++] = beside;
        } else {
            n += snprintf(text + n, sizeof text - (size_t)n, "%.*s: %s\n", key, j->setting[i],
                          value);
        }
    }
    file_write(words[2], text);
    return answer_of(words);
}

static bool check_surfaces(const struct drawn *j, const struct pl_vram_estimate *e) {
    const char *words[MAX_SETTINGS + 8] = {"estimate-vram", j->model, "--json", "--mode", j->mode};
    char dir[SCRATCH_PATH];
    uint32_t n = 5;
    for (uint32_t i = 0; i < j->n; i++) {
        const bool gpu = strncmp(j->setting[i], "gpu=", 4) == 0;
        if (gpu) words[n++] = "--gpu";
        words[n++] = gpu ? j->setting[i] + 4 : j->setting[i];
    }
    json_t *library = json_loads(e->json, 0, NULL), *command = answer_of(words);
    compare_answers(j, "the command", library, command);
    if (strcmp(j->mode, "inference") != 0) { /* which is no mode of a file */
        scratch_make(dir);
        json_t *file = answer_of_file(j, dir);
        compare_answers(j, "the file", library, file);
        scratch_remove(dir);
        json_decref(file);
    }
    json_decref(library);
    json_decref(command);
    return true;
}

/* --- the runs -------------------------------------------------------------------------------- */

static uint64_t number_from(const char *variable, uint64_t otherwise) {
    const char *text = getenv(variable);
    return text && *text ? strtoull(text, NULL, 10) : otherwise;
}

/* Processes cost more than questions: fewer jobs go through the command. */
static bool (*const properties[])(const struct drawn *, const struct pl_vram_estimate *) = {
    check_monotone, check_wall,     check_remedy, check_monotone, check_wall,
    check_remedy,   check_monotone, check_wall,   check_remedy,   check_surfaces};
enum { N_PROPERTIES = sizeof properties / sizeof *properties };

START_TEST(every_drawn_job_keeps_what_is_promised) {
    const uint64_t runs = number_from("PLIMSOLL_PROPERTY_RUNS", RUNS_OF_CI);
    const uint64_t seed = number_from("PLIMSOLL_PROPERTY_SEED", 1);
    uint64_t answered = 0, refused = 0, held[N_PROPERTIES] = {0};
    list_names();
    for (uint64_t run = 0; answered < runs; run++) {
        struct drawn j;
        state = seed * UINT64_C(1000003) + run;
        draw_job(&j);
        struct pl_vram_estimate *e = ask(&j);
        if (!e) { /* two settings that contradict each other */
            if (refusal.exit_status != 2) violated(&j, "refused: %s", refusal.message);
            ck_assert_uint_lt(++refused, runs / 2 + 10);
            continue;
        }
        check_sums(&j, e);
        held[run % N_PROPERTIES] += properties[run % N_PROPERTIES](&j, e);
        answered++;
        pl_estimate_free(e);
    }
    printf("%" PRIu64 " jobs of seed %" PRIu64 ", %" PRIu64 " more refused; checked %" PRIu64
           " monotone, %" PRIu64 " walls, %" PRIu64 " remedies, %" PRIu64 " surfaces\n",
           answered, seed, refused, held[0] + held[3] + held[6], held[1] + held[4] + held[7],
           held[2] + held[5] + held[8], held[9]);
    ck_assert_msg(violations == 0, "%u violations", violations);
    for (int i = 0; i < N_PROPERTIES; i++) { /* a property may stand in the list several times */
        uint64_t of_kind = 0;
        for (int k = 0; k < N_PROPERTIES; k++)
            if (properties[k] == properties[i]) of_kind += held[k];
        ck_assert_msg(of_kind > runs / 30, "property %d was hardly looked at", i);
    }
}
END_TEST

int main(void) {
    Suite *s = suite_create("api.property");
    TCase *tc = tcase_create("property");
    tcase_set_timeout(tc, 0); /* the runner's holds; a flag asks for thousands of jobs */
    tcase_add_test(tc, every_drawn_job_keeps_what_is_promised);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_set_fork_status(sr, CK_NOFORK); /* each question is counted by no assertion */
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
