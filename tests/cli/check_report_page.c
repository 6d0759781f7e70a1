/* check_report_page.c - the page of `plimsoll report` in a browser: its parts are there, and it
 * does what the keyboard and the mouse ask (drive_report.js). Needs Chromium. */
#include "tests/support/child.h"
#include "tests/support/hang.h"
#include "tests/support/scratch.h"
#include "tests/support/tiny.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SKIPPED 77

static char dir[SCRATCH_PATH];
static const char *browser;

static const char *find_browser(void) {
    static const char *const names[] = {"chromium", "chromium-browser", "google-chrome"};
    char command[80];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(command, sizeof command, "%s --version >/dev/null 2>&1", names[i]);
        if (system(command) == 0) return names[i];
    }
    return NULL;
}

/* Two runs, the second with a name that is markup, and a step that ran out of memory. */
static void set_up(void) {
    scratch_make(dir);
    tiny_make(dir, &(struct tiny){0},
              "batch_size: 4\nmax_steps: 12\nval_set_size: 0.2\neval_steps: 4\n");
    plimsoll_train_expect(0, dir, (const char *[]){"output_dir=a", NULL});
    plimsoll_train_expect(
        0, dir,
        (const char *[]){"output_dir=b", "learning_rate=0.01", "debug_inject=device_oom@step=5",
                         "run_name=<img src=x onerror=\"window.harm = 1\">", NULL});
    struct outcome o =
        plimsoll_expect(0, dir, (const char *[]){"report", "a", "b", "-o", "page.html", NULL});
    outcome_finish(&o);
}

static void tear_down(void) {
    scratch_remove(dir);
}

/* Returns the document as it is once its scripts have run. */
static char *dom_of(const char *url) {
    struct outcome o = child_run(
        (const char *[]){browser, "--headless", "--no-sandbox", "--disable-gpu",
                         "--window-size=1400,1200", "--virtual-time-budget=4000",
                         "--enable-logging=stderr", textf("--user-data-dir=%s/profile", dir),
                         "--dump-dom", url, NULL},
        dir, HANG_SECONDS);
    ck_assert_msg(o.status == 0 && !o.timed_out, "exit %d: %.300s", o.status, o.err);
    ck_assert_msg(!strstr(o.err, "Uncaught"), "%.600s", strstr(o.err, "Uncaught"));
    ck_assert_msg(!strstr(o.err, "Content Security Policy"), "the page fetches something");
    char *dom = o.out;
    o.out = NULL;
    outcome_finish(&o);
    return dom;
}

static int count_of(const char *text, const char *what) {
    int n = 0;
    for (const char *s = text; (s = strstr(s, what)) != NULL; s++)
        n++;
    return n;
}

START_TEST(every_part_is_there) {
    char *dom = dom_of(textf("file://%s/page.html", dir));
    static const char *const parts[] = {
        "data-chart=\"loss\"",      "data-chart=\"learning_rate\"",
        "data-chart=\"grad_norm\"", "data-chart=\"tokens_per_second\"",
        "class=\"recovery\"",       "class=\"band\"",
        "id=\"differences\"",       "id=\"bill\"",
        "tokens/s</span>",          "batch halved"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        ck_assert_msg(strstr(dom, parts[i]) != NULL, "no %s", parts[i]);
    /* The evaluations of two runs in the charts of loss, accuracy and perplexity. */
    ck_assert_int_eq(count_of(dom, "class=\"eval\""), 6);
    ck_assert_int_eq(count_of(dom, "data-chart=\"right_tokens\""), 0);
    ck_assert_int_ge(count_of(dom, "class=\"curve\""), 8);
    ck_assert_int_eq(count_of(dom, "<img"), 0);
    free(dom);
}
END_TEST

START_TEST(it_does_what_it_is_asked) {
    char *html = file_read(in_dir(dir, "page.html"), NULL);
    char *script = file_read(textf("%s/tests/cli/drive_report.js", getenv("SOURCE_ROOT")), NULL);
    FILE *f = fopen(in_dir(dir, "driven.html"), "w");
    ck_assert_ptr_nonnull(f);
    fprintf(f, "%s<script>%s</script>", html, script);
    ck_assert_int_eq(fclose(f), 0);
    char *dom = dom_of(textf("file://%s/driven.html", dir));
    char *title = strstr(dom, "<title>driven: "), *end = title ? strchr(title + 1, '<') : NULL;
    ck_assert_msg(end != NULL, "the script did not run");
    *end = 0;
    ck_assert_msg(!strstr(title, "FAILS"), "%.900s", title);
    ck_assert_ptr_nonnull(strstr(title, "ok nothing of a name ran"));
    free(dom);
    free(script);
    free(html);
}
END_TEST

/* The state of a page stands in its address: it is that of before once it is loaded again. */
START_TEST(zoom_and_colours_outlive_a_reload) {
    char *dom = dom_of(textf("file://%s/page.html#x=3~6&theme=dark&hide=1&smooth=0.5", dir));
    ck_assert_ptr_nonnull(strstr(dom, "data-theme=\"dark\""));
    ck_assert_ptr_nonnull(strstr(dom, "<button type=\"button\">Show all steps"));
    ck_assert_ptr_nonnull(strstr(dom, "<tr class=\"off\">"));
    ck_assert_int_eq(count_of(dom, "class=\"eval\""), 3);
    free(dom);
}
END_TEST

int main(void) {
    browser = find_browser();
    if (!browser) {
        puts("skipped: needs chromium");
        return SKIPPED;
    }
    Suite *s = suite_create("cli.report_page");
    TCase *tc = tcase_create("browser");
    tcase_set_timeout(tc, 4 * HANG_SECONDS);
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_test(tc, every_part_is_there);
    tcase_add_test(tc, it_does_what_it_is_asked);
    tcase_add_test(tc, zoom_and_colours_outlive_a_reload);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
