/* joblog.c - reading the log of a run. */
#include "tests/support/joblog.h"

#include "tests/support/scratch.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

json_t *joblog_read(const char *dir) {
    json_t *log = json_array();
    char *text = file_read(in_dir(dir, "train_log.jsonl"), NULL), *rest = text;
    for (char *line; (line = strsep(&rest, "\n")) != NULL;) {
        if (!*line) continue;
        json_error_t error;
        json_t *object = json_loads(line, 0, &error);
        ck_assert_msg(object != NULL, "%s/train_log.jsonl: %s in %s", dir, error.text, line);
        json_array_append_new(log, object);
    }
    free(text);
    return log;
}

static bool is_event(const json_t *line, const char *event) {
    const char *name = json_string_value(json_object_get(line, "event"));
    return name && strcmp(name, event) == 0;
}

json_t *joblog_event(const json_t *log, const char *event, size_t number) {
    size_t i;
    json_t *line;
    json_array_foreach(log, i, line) if (is_event(line, event) && number-- == 0) return line;
    return NULL;
}

size_t joblog_count(const json_t *log, const char *event) {
    size_t n = 0;
    while (joblog_event(log, event, n))
        n++;
    return n;
}

json_t *joblog_step(const json_t *log, uint64_t step) {
    size_t i;
    json_t *line, *found = NULL;
    json_array_foreach(log, i, line) {
        if (!is_event(line, "step") || joblog_number(line, "step") != (double)step) continue;
        ck_assert_msg(!found, "step %llu was logged twice", (unsigned long long)step);
        found = line;
    }
    return found;
}

double joblog_number(const json_t *line, const char *key) {
    const json_t *value = json_object_get(line, key);
    ck_assert_msg(json_is_number(value), "no number for %s", key);
    return json_number_value(value);
}

void joblog_assert_same_steps(const char *dir_a, const char *dir_b) {
    static const char *const keys[] = {"loss", "grad_norm", "learning_rate", "tokens", "epoch",
                                       /* under fp16 */
                                       "loss_scale", "skipped",
                                       /* under preference stages */
                                       "rewards/margins", "logps/chosen", "nll_loss", "kl"};
    enum { ALWAYS = 5 };
    json_t *a = joblog_read(dir_a), *b = joblog_read(dir_b);
    size_t n = joblog_count(a, "step");
    ck_assert_uint_gt(n, 0);
    ck_assert_uint_eq(n, joblog_count(b, "step"));
    for (size_t i = 0; i < n; i++) {
        const json_t *x = joblog_event(a, "step", i);
        uint64_t step = (uint64_t)joblog_number(x, "step");
        const json_t *y = joblog_step(b, step);
        ck_assert_msg(y != NULL, "step %llu is in %s only", (unsigned long long)step, dir_a);
        for (size_t k = 0; k < sizeof keys / sizeof *keys; k++) {
            /* a norm that is not finite is null, and only fp16 has a scale */
            const json_t *p = json_object_get(x, keys[k]), *q = json_object_get(y, keys[k]);
            ck_assert_msg(p || k >= ALWAYS, "no %s in step %llu", keys[k],
                          (unsigned long long)step);
            char *text[2] = {json_dumps(p, JSON_ENCODE_ANY), json_dumps(q, JSON_ENCODE_ANY)};
            ck_assert_msg(p == q || json_equal(p, q), "%s of step %llu: %s and %s", keys[k],
                          (unsigned long long)step, text[0], text[1]);
            free(text[0]);
            free(text[1]);
        }
    }
    json_decref(a);
    json_decref(b);
}

double joblog_summary(const char *dir, const char *key) {
    json_t *log = joblog_read(dir);
    const json_t *summary = joblog_event(log, "summary", 0);
    ck_assert_ptr_nonnull(summary);
    double value = joblog_number(summary, key);
    json_decref(log);
    return value;
}
