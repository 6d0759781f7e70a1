/* fuzz_speed.c - speed.json of the cache directory: the input is the file, once more with its
 * entries made those of this program and job, and then a run remembers its own. */
#include "estimator/config/job_text.h"
#include "runtime/admit/speed.h"
#include "runtime/train/train.h"
#include "tests/fuzz/fuzz.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILE_NAME "plimsoll/speed.json"

static struct pl_job job;
static struct pl_preflight pf;
static json_t *own; /* an entry as this program writes it */

static const char config[] =
    "{\"architectures\":[\"LlamaForCausalLM\"],\"model_type\":\"llama\",\"hidden_size\":8,"
    "\"intermediate_size\":8,\"num_hidden_layers\":1,\"num_attention_heads\":2,"
    "\"num_key_value_heads\":1,\"vocab_size\":16,\"max_position_embeddings\":64,"
    "\"rms_norm_eps\":1e-5,\"rope_theta\":10000.0,\"tie_word_embeddings\":true,"
    "\"hidden_act\":\"silu\",\"torch_dtype\":\"float32\"}";
static const char rows[] = "{\"input_ids\":[1,2,3,4]}\n{\"input_ids\":[5,6]}\n";
static const struct pl_pace_medians measured = {
    .seconds = 0.5, .ratio = 3, .classes = {[PL_COST_PRODUCT] = 2}, .steps = 9};

static const char *text_file(const char *name, const char *text) {
    return fuzz_file(name, (const uint8_t *)text, strlen(text));
}

static json_t *first_entry(const char *path) {
    json_t *root = json_load_file(path, 0, NULL);
    json_t *entry = json_incref(json_array_get(json_object_get(root, "entries"), 0));
    json_decref(root);
    return entry;
}

static void set_up(void) {
    struct pl_diag d = {0};
    char yaml[512];
    if (own) return;
    FUZZ_CHECK(setenv("XDG_CACHE_HOME", fuzz_dir(), 1) == 0);
    text_file("config.json", config);
    text_file("train.jsonl", rows);
    snprintf(yaml, sizeof yaml,
             "mode: full\ninit: random\nmodel_config: %s/config.json\ndtype: fp32\n"
             "datasets:\n  - {path: %s/train.jsonl, format: tokens}\nmax_seq_length: 8\n"
             "batch_size: 1\ndevice: cpu\nthreads: 1\noutput_dir: %s/out\n",
             fuzz_dir(), fuzz_dir(), fuzz_dir());
    FUZZ_CHECK(pl_job_read(&job, text_file("run.yaml", yaml), NULL, 0, NULL, &d) == PL_ERR_OK);
    FUZZ_CHECK(pl_preflight_init(&pf, &job, &(struct pl_admission){0}, &d) == PL_ERR_OK);
    const char *path = text_file(FILE_NAME, "");
    pl_speed_remember(&pf, &measured);
    own = first_entry(path);
    FUZZ_CHECK(json_is_object(own));
}

/* V1, V2: nothing, or times that a clock can have shown. */
static bool check_forecast(void) {
    struct pl_text notes = {0};
    struct pl_forecast f;
    pl_forecast_init(&f, &pf, &notes);
    pf.forecast = f;
    const bool known = f.ratio != 0;
    FUZZ_CHECK(isfinite(f.nominal_step_seconds) && f.nominal_step_seconds > 0);
    FUZZ_CHECK(known ? isfinite(f.ratio) && f.ratio > 0 && f.step_seconds > 0 &&
                           isfinite(f.step_seconds)
                     : isnan(f.step_seconds));
    FUZZ_CHECK(f.judged <= PL_FORECASTS_JUDGED && known >= (f.params > 0));
    FUZZ_CHECK(f.judged ? f.off >= 0 && f.most_off >= f.off : isnan(f.off) && isnan(f.most_off));
    FUZZ_CHECK(!known || notes.len == 0);
    pl_text_finish(&notes);
    return known;
}

/* The entries of the input with the owner of ours; false: it has none. */
static bool adopt(const uint8_t *data, size_t size) {
    static const char *const owner[] = {"build",   "device", "backend",
                                        "threads", "dtype",  "kernels"};
    json_t *root = json_loadb((const char *)data, size, 0, NULL), *entry;
    json_t *entries = json_object_get(root, "entries");
    size_t i;
    json_array_foreach(entries, i, entry) {
        for (size_t k = 0; json_is_object(entry) && k < sizeof owner / sizeof *owner; k++) {
            json_t *value = json_object_get(own, owner[k]);
            if (value) json_object_set(entry, owner[k], value);
        }
    }
    char *text = i ? json_dumps(root, JSON_COMPACT) : NULL;
    if (text) text_file(FILE_NAME, text);
    json_decref(root);
    free(text);
    return text != NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    set_up();
    fuzz_file(FILE_NAME, data, size);
    FUZZ_CHECK(!check_forecast());
    if (adopt(data, size)) check_forecast();
    pl_speed_remember(&pf, &measured);
    FUZZ_CHECK(check_forecast());
    return 0;
}
