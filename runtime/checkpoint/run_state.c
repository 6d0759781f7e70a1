/* run_state.c - counters under Hugging Face's names for its tools, and all of them, exact, under
 * "plimsoll" for resuming. */
#include "runtime/checkpoint/run_state.h"
#include "runtime/checkpoint/json_io.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What is not known here has TrainerState's default. epoch: the data room counts samples. */
static const char fixed_state[] =
    "{\"best_global_step\": null, \"best_metric\": null, \"best_model_checkpoint\": null,"
    " \"epoch\": null, \"is_hyper_param_search\": false, \"is_local_process_zero\": true,"
    " \"is_world_process_zero\": true, \"log_history\": [], \"stateful_callbacks\": {},"
    " \"trial_name\": null, \"trial_params\": null}";

/* Every field of struct pl_run_state, its largest value, and whether it was always there. */
#define RUN_STATE_MAP(X)                                                                           \
    X(step, UINT64_MAX, true)                                                                      \
    X(position, UINT64_MAX, true)                                                                  \
    X(batch_size, UINT32_MAX, true)                                                                \
    X(global_batch, UINT64_MAX, true)                                                              \
    X(tokens, UINT64_MAX, true)                                                                    \
    X(oom_recoveries, UINT64_MAX, true)                                                            \
    X(seed, UINT64_MAX, true)                                                                      \
    X(loss_chunk_tokens, UINT32_MAX, false)                                                        \
    X(epoch_rows, UINT64_MAX, false)                                                               \
    X(data_tokens, UINT64_MAX, false)                                                              \
    X(chat_day, UINT32_MAX, false)

/* JSON readers promise whole numbers up to 2^53 only (RFC 8259, section 6); what is larger, such as
 * a seed of 64 bits, is a decimal string. */
#define LARGEST_NUMBER (UINT64_C(1) << 53)

static bool set_counter(json_t *o, const char *key, uint64_t v) {
    char text[24];
    snprintf(text, sizeof text, "%llu", (unsigned long long)v);
    return json_object_set_new(
               o, key, v <= LARGEST_NUMBER ? json_integer((json_int_t)v) : json_string(text)) == 0;
}

static json_t *make_counters(const struct pl_run_state *s) {
    json_t *o = json_object();
    bool whole = o != NULL;
#define X(field, largest, always) whole = set_counter(o, #field, s->field) && whole;
    RUN_STATE_MAP(X)
#undef X
    if (whole) return o;
    json_decref(o);
    return NULL;
}

pl_err pl_run_state_put(struct pl_outbox *o, const struct pl_run_state *s, struct pl_diag *d) {
    json_t *root = json_loads(fixed_state, 0, NULL);
    /* set_new takes its value on failure too, and a NULL value or object is a failure. */
    bool whole = json_object_set_new(root, "plimsoll", make_counters(s)) == 0;
    whole = json_object_set_new(root, "global_step", json_integer((json_int_t)s->step)) == 0 &&
            json_object_set_new(root, "train_batch_size", json_integer(s->batch_size)) == 0 &&
            whole;
    pl_err err = pl_json_put(o, PL_STATE_FILE, whole ? root : NULL, d);
    json_decref(root);
    return err;
}

static bool parse_counter(const json_t *v, uint64_t *out) {
    if (json_is_integer(v) && json_integer_value(v) >= 0) {
        *out = (uint64_t)json_integer_value(v);
        return true;
    }
    const char *text = json_string_value(v);
    char *end;
    if (!text || *text < '0' || *text > '9') return false;
    errno = 0;
    *out = strtoull(text, &end, 10);
    return *end == 0 && errno == 0;
}

/* `always`: no checkpoint is older than this counter; others stay 0 where they are missing. */
static pl_err get_counter(const json_t *counters, const char *path, const char *key,
                          uint64_t largest, bool always, uint64_t *out, struct pl_diag *d) {
    const json_t *v = json_object_get(counters, key);
    *out = 0;
    if (!v && !always) return PL_ERR_OK;
    if (parse_counter(v, out) && *out <= largest) return PL_ERR_OK;
    return pl_diag_at(d, PL_ERR_CHECKPOINT_FORMAT, path, 0, 0, "%s: plimsoll.%s is not a counter",
                      path, key);
}

static pl_err get_counters(const json_t *counters, const char *path, struct pl_run_state *out,
                           struct pl_diag *d) {
    struct pl_run_state s = {0};
    uint64_t v = 0;
#define X(field, largest, always)                                                                  \
    PL_TRY(get_counter(counters, path, #field, largest, always, &v, d));                           \
    s.field = v;
    RUN_STATE_MAP(X)
#undef X
    *out = s;
    return PL_ERR_OK;
}

pl_err pl_checkpoint_read_state(const char *path, struct pl_run_state *out, struct pl_diag *d) {
    json_t *root = NULL;
    char *file = pl_path_join(path, PL_STATE_FILE);
    pl_err err = file ? pl_json_read(file, &root, d) : pl_host_oom(d, "a path");
    if (err == PL_ERR_OK) err = get_counters(json_object_get(root, "plimsoll"), file, out, d);
    json_decref(root);
    free(file);
    return err;
}
