/* check_page.c - the page of runs: its figures are those of the logs, names are no markup, and its
 * size is bounded. */
#include "estimator/base/json_tree.h"
#include "runtime/report/page.h"
#include "runtime/report/page_timeline.h"
#include "tests/support/scratch.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PAGE_BYTES_MOST (2u << 20)

static char dir[SCRATCH_PATH];
static struct pl_page page;
static struct pl_text html;
static json_t *data;

static void set_up(void) {
    scratch_make(dir);
}

static void tear_down(void) {
    json_decref(data);
    data = NULL;
    pl_text_finish(&html);
    pl_page_finish(&page);
    scratch_remove(dir);
}

/* --- building -------------------------------------------------------------------------------- */

/* Adds the run of the log that was written to `log` of the scratch directory. */
static void take(const char *name, json_t *receipt, json_t *timeline) {
    struct pl_run_log log;
    struct pl_diag d = {0};
    ck_assert_msg(pl_run_log_read(in_dir(dir, "log"), &log, &d) == PL_ERR_OK, "%s", d.message);
    ck_assert_msg(pl_page_take(&page, name, &log, receipt, timeline, &d) == PL_ERR_OK, "%s",
                  d.message);
}

static void take_text(const char *name, const char *log) {
    file_write(in_dir(dir, "log"), log);
    take(name, NULL, NULL);
}

static json_t *receipt_of(const char *key, const char *value) {
    return json_pack("{s:{s:{s:s}}, s:{}}", "asked", "settings", key, value, "decided");
}

/* Writes the page, and reads the data that its script draws. */
static void build(void) {
    static const char begin[] = "<script type=\"application/json\" id=\"data\">";
    struct pl_json_error e = {0};
    pl_page_write(&page, &html);
    ck_assert(!html.failed);
    const char *from = strstr(html.data, begin);
    ck_assert_ptr_nonnull(from);
    from += strlen(begin);
    const char *to = strstr(from, "</script>");
    ck_assert_ptr_nonnull(to);
    data = pl_json_load(from, (size_t)(to - from), 0, &e);
    ck_assert_msg(data != NULL, "%s", e.what);
}

static const json_t *run_of(size_t i) {
    return json_array_get(json_object_get(data, "runs"), i);
}

static const json_t *curve(size_t run, const char *table, const char *key) {
    return json_object_get(json_object_get(run_of(run), table), key);
}

static double item(const json_t *list, size_t i) {
    const json_t *v = json_array_get(list, i);
    return json_is_null(v) ? NAN : json_number_value(v);
}

static int count_of(const char *what) {
    int n = 0;
    for (const char *s = html.data; (s = strstr(s, what)) != NULL; s++)
        n++;
    return n;
}

/* --- figures --------------------------------------------------------------------------------- */

#define STEP(n, loss)                                                                              \
    "{\"event\":\"step\",\"step\":" #n ",\"loss\":" #loss ",\"tokens_per_second\":" #n "00}\n"
#define EVAL(n, loss) "{\"event\":\"eval\",\"step\":" #n ",\"loss\":" #loss "}\n"
#define PREFLIGHT                                                                                  \
    "{\"event\":\"preflight\",\"planned_bytes\":3000,\"budget_bytes\":4096,\"context_bytes\":512," \
    "\"ledger\":[{\"category\":\"weights\",\"bytes\":2000},{\"category\":\"logits\",\"bytes\":"    \
    "1000}]}\n"
#define SUMMARY                                                                                    \
    "{\"event\":\"summary\",\"steps\":3,\"wall_seconds\":7.5,\"allocated_peak_bytes\":3000,"       \
    "\"measured_peak_bytes\":3333}\n"
#define OOM                                                                                        \
    "{\"event\":\"oom_recovery\",\"step\":2,\"cause\":\"injected\",\"what\":\"an arena\","         \
    "\"requested_bytes\":2048,\"free_bytes\":1024,\"old_batch_size\":4,\"new_batch_size\":2,"      \
    "\"gradient_accumulation_steps\":2}\n"

/* PG3 of page.h: the points of a short log are all there. */
START_TEST(curves_are_those_of_the_log) {
    take_text("out", PREFLIGHT STEP(1, 5.8287229627388299) STEP(2, null) EVAL(2, 3.1468811083108302)
                         STEP(3, 2.5) SUMMARY);
    build();
    const json_t *loss = curve(0, "steps", "loss"), *eval = curve(0, "evals", "loss");
    const json_t *x = json_object_get(loss, "x"), *y = json_object_get(loss, "y");
    ck_assert_uint_eq(json_array_size(x), 3);
    ck_assert(item(x, 0) == 1 && item(x, 1) == 2 && item(x, 2) == 3);
    ck_assert(item(y, 0) == 5.8287229627388299 && isnan(item(y, 1)) && item(y, 2) == 2.5);
    ck_assert(item(json_object_get(eval, "y"), 0) == 3.1468811083108302);
    ck_assert_ptr_null(json_object_get(loss, "mean_x"));
}
END_TEST

static json_t *figures(void) {
    struct pl_report r = {0};
    pl_page_figures(&page, &r);
    json_t *list = pl_report_end_list(&r);
    ck_assert_ptr_nonnull(list);
    return list;
}

START_TEST(final_figures_are_those_of_the_log) {
    take_text("a/out/",
              PREFLIGHT STEP(1, 5) STEP(2, 4) EVAL(2, 1.5) OOM STEP(3, 3) EVAL(3, 2) SUMMARY);
    json_t *list = figures();
    const json_t *f = json_array_get(list, 0);
    static const struct {
        const char *name;
        double value;
    } want[] = {{"steps", 3},
                {"loss", 3},
                {"eval_loss", 2},
                {"best_eval_loss", 1.5},
                {"best_eval_step", 2},
                {"tokens_per_second", 200},
                {"wall_seconds", 7.5},
                {"planned_bytes", 3000},
                {"allocated_bytes", 3000},
                {"measured_bytes", 3333},
                {"oom_recoveries", 1},
                {"skipped_steps", 0}};
    for (size_t i = 0; i < sizeof want / sizeof *want; i++)
        ck_assert_msg(json_number_value(json_object_get(f, want[i].name)) == want[i].value, "%s",
                      want[i].name);
    ck_assert_str_eq(json_string_value(json_object_get(f, "run")), "out");
    ck_assert_str_eq(json_string_value(json_object_get(f, "state")), "ended");
    json_decref(list);
    build();
    ck_assert_ptr_nonnull(strstr(html.data, "<td data-figure=\"best_eval_loss\">1.5000</td>"));
    ck_assert_ptr_nonnull(strstr(html.data, "micro-batch 4 → 2, 2 micro-batches a step, 2.00 KiB "
                                            "requested, 1.00 KiB free; injected: an arena"));
    ck_assert_ptr_nonnull(strstr(html.data, "<td data-bytes=\"3512\">")); /* with the context */
}
END_TEST

/* A summary before a resume is about another part of the run. */
START_TEST(what_a_log_does_not_say_is_null) {
    take_text("out", PREFLIGHT STEP(1, 5) SUMMARY PREFLIGHT STEP(2, null));
    json_t *list = figures();
    const json_t *f = json_array_get(list, 0);
    static const char *const nulls[] = {"eval_loss", "best_eval_loss", "wall_seconds",
                                        "measured_bytes"};
    for (size_t i = 0; i < sizeof nulls / sizeof *nulls; i++)
        ck_assert_msg(json_is_null(json_object_get(f, nulls[i])), "%s", nulls[i]);
    ck_assert(json_number_value(json_object_get(f, "loss")) == 5); /* the last that there is */
    ck_assert_str_eq(json_string_value(json_object_get(f, "state")), "unfinished");
    json_decref(list);
    build();
    ck_assert_ptr_nonnull(strstr(html.data, "continued after this step"));
}
END_TEST

/* PG4 of page.h: there is neither a receipt nor a timeline. */
START_TEST(a_run_without_a_step_has_a_page) {
    take_text("out", _i ? PREFLIGHT : "");
    build();
    ck_assert_uint_eq(json_array_size(json_object_get(data, "charts")), 0);
    ck_assert_ptr_nonnull(strstr(html.data, "no step was logged yet"));
}
END_TEST

START_TEST(skipped_steps_are_marked_and_listed) {
    take_text("out",
              "{\"event\":\"step\",\"step\":1,\"loss\":5,\"loss_scale\":64,\"skipped\":true}\n"
              "{\"event\":\"step\",\"step\":2,\"loss\":5,\"loss_scale\":32,\"skipped\":false}\n"
              "{\"event\":\"step\",\"step\":3,\"loss\":4,\"loss_scale\":32,\"skipped\":true}\n");
    build();
    const json_t *skips = json_object_get(run_of(0), "skips");
    ck_assert(json_array_size(skips) == 2 && item(skips, 0) == 1 && item(skips, 1) == 3);
    ck_assert_ptr_nonnull(strstr(html.data, "2 steps: gradients overflowed fp16 in 1, 3"));
    ck_assert(item(json_object_get(curve(0, "steps", "loss_scale"), "y"), 1) == 32);
}
END_TEST

/* Whatever a later version logs of a step has a chart of its own. */
START_TEST(figures_that_no_row_names_have_charts) {
    take_text("out", "{\"event\":\"step\",\"step\":1,\"loss\":5,\"later\":0.25}\n");
    build();
    const json_t *charts = json_object_get(data, "charts");
    ck_assert_uint_eq(json_array_size(charts), 2);
    ck_assert_str_eq(json_string_value(json_object_get(json_array_get(charts, 1), "title")),
                     "later");
}
END_TEST

START_TEST(rewards_have_charts_with_a_title) {
    take_text("out", "{\"event\":\"step\",\"step\":1,\"loss\":5,\"logps/chosen\":-3,"
                     "\"rewards/chosen\":-0.25,\"rewards/margins\":0.25}\n");
    build();
    const json_t *charts = json_object_get(data, "charts");
    static const char *const titles[] = {"Loss", "Reward margin", "Reward of chosen answers",
                                         "logps/chosen"};
    ck_assert_uint_eq(json_array_size(charts), 4);
    for (size_t i = 0; i < 4; i++)
        ck_assert_str_eq(json_string_value(json_object_get(json_array_get(charts, i), "title")),
                         titles[i]);
    ck_assert(item(json_object_get(curve(0, "steps", "rewards/chosen"), "y"), 0) == -0.25);
}
END_TEST

START_TEST(settings_that_differ_have_a_table) {
    file_write(in_dir(dir, "log"), STEP(1, 5));
    take("a", receipt_of("learning_rate", "0.001"), NULL);
    take("b", receipt_of("learning_rate", "0.002"), NULL);
    take("c", NULL, NULL);
    build();
    const char *table = strstr(html.data, "<table id=\"differences\">");
    ck_assert_ptr_nonnull(table);
    ck_assert_ptr_nonnull(strstr(table, "<th scope=\"row\">learning_rate</th><td class=\"wrap\">"
                                        "0.001</td><td class=\"wrap\">0.002</td>"
                                        "<td class=\"wrap\">-</td>"));
}
END_TEST

START_TEST(settings_that_are_the_same_or_names_are_no_difference) {
    static const char *const keys[] = {"seed", "output_dir", "run_name"};
    file_write(in_dir(dir, "log"), STEP(1, 5));
    take("a", receipt_of(keys[_i], "x"), NULL);
    take("b", receipt_of(keys[_i], _i ? "y" : "x"), NULL);
    build();
    ck_assert_ptr_null(strstr(html.data, "<table id=\"differences\">"));
    ck_assert_ptr_nonnull(strstr(html.data, "The settings of the runs are the same."));
}
END_TEST

/* --- names ----------------------------------------------------------------------------------- */

#define EVIL "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'&<!--"

START_TEST(samples_are_listed_where_there_are_any) {
    take_text("a", STEP(1, 3));
    build();
    ck_assert_ptr_null(strstr(html.data, "Samples"));
    json_decref(data);
    pl_text_finish(&html);
    take_text("b", STEP(1, 3) "{\"event\":\"sample\",\"step\":1,\"text\":\"Who <b>?\",\"answer\":"
                              "\"I\\nam\"}\n");
    build();
    ck_assert_ptr_nonnull(strstr(html.data, "<td>1</td><td class=\"left said\">Who &lt;b&gt;?</td>"
                                            "<td class=\"left said\">I<br>am</td></tr>"));
}
END_TEST

/* PG2 of page.h: every text that a run brings tries to be markup. */
START_TEST(a_name_is_never_markup) {
    file_write(in_dir(dir, "log"),
               "{\"event\":\"step\",\"step\":1,\"loss\":5,\"</script><img src=x>\":1}\n"
               "{\"event\":\"preflight\",\"ledger\":[{\"category\":\"<img src=x>\",\"bytes\":5}]}\n"
               "{\"event\":\"oom_recovery\",\"step\":1,\"cause\":\"<img src=x>\",\"what\":\"<img "
               "src=x>\"}\n");
    take(EVIL, NULL, NULL);
    take("b", receipt_of("run_name", "'</script><img src=x onerror=alert(3)>'"), NULL);
    take("c", receipt_of("<img src=x>", EVIL), NULL);
    build();
    ck_assert_ptr_null(strstr(html.data, "<img"));
    ck_assert_ptr_null(strstr(html.data, "<script>alert"));
    ck_assert_int_eq(count_of("<script"), 2);
    ck_assert_int_eq(count_of("</script"), 2);
    ck_assert_int_eq(count_of("<!--"), 0);
    ck_assert_str_eq(page.runs[1].label, "</script><img src=x onerror=alert(3)>");
    ck_assert_str_eq(json_string_value(json_object_get(run_of(0), "label")), page.runs[0].label);
}
END_TEST

START_TEST(no_two_runs_have_one_label) {
    file_write(in_dir(dir, "log"), "");
    take("x/out", NULL, NULL);
    take("y/out", NULL, NULL);
    take("y/out", NULL, NULL);
    take("\xff\xfe", NULL, NULL);
    ck_assert_str_eq(page.runs[0].label, "out");
    ck_assert_str_eq(page.runs[1].label, "y/out");
    ck_assert_str_eq(page.runs[2].label, "y/out (2)");
    ck_assert_str_eq(page.runs[3].label, "??");
    build();
}
END_TEST

/* PG1 of page.h: no word that fetches something is in it, and its policy allows none. */
START_TEST(a_page_names_no_other_file) {
    static const char *const fetches[] = {"src=",     "href=",  "url(",          "@import",
                                          "https://", "fetch(", "XMLHttpRequest"};
    take_text("out", PREFLIGHT STEP(1, 5) EVAL(1, 4) OOM SUMMARY);
    build();
    for (size_t i = 0; i < sizeof fetches / sizeof *fetches; i++) {
        const char *at = strstr(html.data, fetches[i]);
        const bool is_own = at && strncmp(at, "url(#", 5) == 0; /* of an element of the page */
        ck_assert_msg(!at || is_own, "%.60s", at ? at : "");
    }
    ck_assert_ptr_nonnull(strstr(html.data, "default-src 'none'"));
    ck_assert_ptr_null(strstr(html.data, "{{")); /* every section was put in */
    ck_assert_ptr_null(strstr(html.data, "Plimsoll . "));
}
END_TEST

START_TEST(a_living_page_loads_itself_again) {
    take_text("out", STEP(1, 5));
    page.refresh_seconds = 7;
    page.runs[0].lives = true;
    build();
    ck_assert(json_number_value(json_object_get(data, "refresh")) == 7);
    ck_assert_ptr_nonnull(
        strstr(html.data, "<noscript><meta http-equiv=\"refresh\" content=\"7\">"));
    ck_assert_ptr_nonnull(strstr(html.data, "1 of 1 run still trains."));
}
END_TEST

/* --- thinning -------------------------------------------------------------------------------- */

enum { MANY = 100000, SPIKE = 54321, GAP = 77777 };

static double loss_at(int step) {
    return step == SPIKE ? 1e6 : 2 + sin(step * 0.37) + 4 * exp(-step / 9000.0);
}

static void write_many(int steps) {
    FILE *f = fopen(in_dir(dir, "log"), "w");
    ck_assert_ptr_nonnull(f);
    for (int i = 1; i <= steps; i++) {
        fprintf(f, "{\"event\":\"step\",\"step\":%d,\"loss\":", i);
        fprintf(f, i == GAP ? "null" : "%.17g", loss_at(i));
        fprintf(f, ",\"grad_norm\":%.17g,\"learning_rate\":%.17g,\"tokens_per_second\":%.17g}\n",
                1 + cos(i * 0.11), 1e-3 / (1 + i * 1e-4), 5000 + sin(i * 1.0) / 3);
    }
    ck_assert_int_eq(fclose(f), 0);
}

/* PG3 of page.h: the spike, the least, the gap and both ends of a long one stay. */
START_TEST(a_long_log_keeps_its_extremes_and_its_figures) {
    write_many(MANY);
    take("out", NULL, NULL);
    build();
    ck_assert_uint_lt(html.len, PAGE_BYTES_MOST);
    const json_t *loss = curve(0, "steps", "loss");
    const json_t *x = json_object_get(loss, "x"), *y = json_object_get(loss, "y");
    const size_t n = json_array_size(x);
    bool spike = false, gap = false;
    double least = 1e9, least_of_log = 1e9;
    ck_assert(n > 2000 && n < 12000 && json_array_size(y) == n);
    for (size_t i = 0; i < n; i++) {
        const int step = (int)item(x, i);
        ck_assert(i == 0 || item(x, i) > item(x, i - 1));
        if (step == GAP)
            gap = isnan(item(y, i));
        else
            ck_assert(item(y, i) == loss_at(step));
        spike |= step == SPIKE;
        least = fmin(least, item(y, i));
    }
    for (int i = 1; i <= MANY; i++)
        if (i != GAP) least_of_log = fmin(least_of_log, loss_at(i));
    ck_assert(spike && gap && least == least_of_log);
    ck_assert(item(x, 0) == 1 && item(x, n - 1) == MANY);
    ck_assert(json_number_value(json_object_get(loss, "of")) == MANY);
}
END_TEST

/* The mean of a stretch lies within its extremes, and that of all stretches is that of the log. */
START_TEST(a_long_log_has_its_means) {
    write_many(50000);
    take("out", NULL, NULL);
    build();
    const json_t *norm = curve(0, "steps", "grad_norm");
    const json_t *means = json_object_get(norm, "mean_y");
    const size_t n = json_array_size(means);
    double sum = 0, sum_of_log = 0;
    ck_assert(n > 500 && json_array_size(json_object_get(norm, "mean_x")) == n);
    for (size_t i = 0; i < n; i++)
        sum += item(means, i) / (double)n;
    for (int i = 1; i <= 50000; i++)
        sum_of_log += (1 + cos(i * 0.11)) / 50000;
    ck_assert_double_eq_tol(sum, sum_of_log, 2e-3); /* stretches differ by a step in length */
}
END_TEST

/* --- timelines ------------------------------------------------------------------------------- */

/* A phase of n operations, one column each; live bytes grow up to its middle. */
static json_t *timeline_of(int n) {
    json_t *op = json_array(), *what = json_array(), *layer = json_array(), *bytes = json_array();
    for (int i = 0; i < n; i++) {
        json_array_append_new(op, json_integer(i));
        json_array_append_new(what, json_string(i % 2 ? "linear" : "rmsnorm"));
        json_array_append_new(layer, json_integer(i % 3 - 1));
        json_array_append_new(bytes, json_integer(1000 + (i < n / 2 ? i : n - i)));
    }
    json_t *phase =
        json_pack("{s:s, s:i, s:i, s:i, s:o, s:o, s:o, s:{s:o}, s:[{s:s, s:i}]}", "name", "step",
                  "ops", n, "backward_op", n / 2, "peak_op", n / 2 + 3, "op", op, "what", what,
                  "layer", layer, "live", "activations", bytes, "largest", "name", "x", "bytes", 7);
    return json_pack("{s:i, s:s, s:i, s:n, s:{s:i}, s:[o]}", "timeline", 1, "peak_phase", "step",
                     "arena_bytes", 9000, "budget_bytes", "job", "weights", 5000, "phases", phase);
}

/* PG5 of page.h: there are as many runs, points and letters as may be. */
START_TEST(a_page_is_bounded_whatever_the_runs_are) {
    write_many(3000);
    for (int i = 0; i < PL_PAGE_RUNS_MOST; i++)
        take(textf("run-%d", i), receipt_of("run_name", textf("%0500d", i)), timeline_of(4000));
    build();
    ck_assert_uint_lt(html.len, PAGE_BYTES_MOST);
    ck_assert_uint_eq(json_array_size(json_object_get(data, "runs")), PL_PAGE_RUNS_MOST);
    const json_t *phases = json_object_get(json_object_get(run_of(3), "timeline"), "phases");
    const json_t *phase = json_array_get(phases, 0), *op = json_object_get(phase, "op");
    bool peak = false;
    ck_assert_uint_eq(json_array_size(op), 200);
    for (size_t i = 0; i < json_array_size(op); i++)
        peak |= item(op, i) == 2003; /* it is not the fullest */
    ck_assert(peak);
    struct pl_run_log log = {0};
    struct pl_diag d = {0};
    ck_assert_int_eq(pl_page_take(&page, "one more", &log, NULL, NULL, &d), PL_ERR_USAGE);
}
END_TEST

START_TEST(a_timeline_is_drawn_as_it_is) {
    take_text("out", "");
    pl_page_finish(&page);
    take("out", NULL, timeline_of(10));
    build();
    const json_t *t = json_object_get(run_of(0), "timeline");
    const json_t *phase = json_array_get(json_object_get(t, "phases"), 0);
    const json_t *names = json_object_get(t, "names"), *what = json_object_get(phase, "what");
    ck_assert_str_eq(json_string_value(json_array_get(names, (size_t)item(what, 3))), "linear");
    ck_assert(item(json_object_get(json_object_get(phase, "live"), "activations"), 4) == 1004);
    ck_assert(json_number_value(json_object_get(json_object_get(t, "job"), "weights")) == 5000);
}
END_TEST

/* Each is one change of a timeline that is taken. */
static const struct {
    const char *member; /* of the phase; NULL: of the file */
    const char *key, *json;
} damages[] = {
    {NULL, "timeline", "2"},
    {NULL, "arena_bytes", "-1"},
    {NULL, "arena_bytes", "9e99"},
    {NULL, "budget_bytes", "\"much\""},
    {NULL, "job", "{\"no category\":1}"},
    {NULL, "job", "{\"weights\":[]}"},
    {NULL, "phases", "[]"},
    {NULL, "phases", "[[]]"},
    {"phase", "ops", "3"},
    {"phase", "op", "[]"},
    {"phase", "op", "[0,0,1,2,3,4,5,6,7,8]"},
    {"phase", "what", "[1,2,3,4,5,6,7,8,9,10]"},
    {"phase", "layer", "[-2,0,0,0,0,0,0,0,0,0]"},
    {"phase", "live", "{\"activations\":[1]}"},
    {"phase", "live", "{\"no category\":[0,0,0,0,0,0,0,0,0,0]}"},
    {"phase", "live", "[]"},
    {"phase", "largest", "[{\"name\":7,\"bytes\":1}]"},
    {"phase", "name", "null"},
};

/* PT1 of page_timeline.h: each member is checked before the script reads it. */
START_TEST(a_timeline_of_another_form_is_left_out) {
    json_t *file = timeline_of(10);
    json_t *phase = json_array_get(json_object_get(file, "phases"), 0);
    bool no_memory = true;
    json_t *drawn = pl_page_timeline(file, &no_memory);
    ck_assert_ptr_nonnull(drawn);
    json_decref(drawn);
    json_t *value = json_loads(damages[_i].json, JSON_DECODE_ANY, NULL);
    ck_assert_ptr_nonnull(value);
    json_object_set_new(damages[_i].member ? phase : file, damages[_i].key, value);
    ck_assert_ptr_null(pl_page_timeline(file, &no_memory));
    ck_assert(!no_memory);
    json_decref(file);
}
END_TEST

int main(void) {
    Suite *s = suite_create("report.page");
    TCase *tc = tcase_create("page");
    tcase_set_timeout(tc, 60);
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_test(tc, curves_are_those_of_the_log);
    tcase_add_test(tc, final_figures_are_those_of_the_log);
    tcase_add_test(tc, what_a_log_does_not_say_is_null);
    tcase_add_loop_test(tc, a_run_without_a_step_has_a_page, 0, 2);
    tcase_add_test(tc, skipped_steps_are_marked_and_listed);
    tcase_add_test(tc, figures_that_no_row_names_have_charts);
    tcase_add_test(tc, rewards_have_charts_with_a_title);
    tcase_add_test(tc, settings_that_differ_have_a_table);
    tcase_add_loop_test(tc, settings_that_are_the_same_or_names_are_no_difference, 0, 3);
    tcase_add_test(tc, samples_are_listed_where_there_are_any);
    tcase_add_test(tc, a_name_is_never_markup);
    tcase_add_test(tc, no_two_runs_have_one_label);
    tcase_add_test(tc, a_page_names_no_other_file);
    tcase_add_test(tc, a_living_page_loads_itself_again);
    tcase_add_test(tc, a_long_log_keeps_its_extremes_and_its_figures);
    tcase_add_test(tc, a_long_log_has_its_means);
    tcase_add_test(tc, a_page_is_bounded_whatever_the_runs_are);
    tcase_add_test(tc, a_timeline_is_drawn_as_it_is);
    tcase_add_loop_test(tc, a_timeline_of_another_form_is_left_out, 0,
                        (int)(sizeof damages / sizeof *damages));
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
