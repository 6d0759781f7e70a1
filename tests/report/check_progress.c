/* check_progress.c - the progress line on a real pseudo-terminal, and off it. */
#include "runtime/report/report.h"

#include <check.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

static const struct pl_step_report report = {.step = 12,
                                             .total_steps = 100,
                                             .loss = 2.34567,
                                             .learning_rate = 2e-5,
                                             .tokens_per_second = 12345.6,
                                             .device_bytes = 3ull << 30,
                                             .budget_bytes = 16ull << 30};

static int master = -1;
static FILE *screen;

static void setup(void) {
    unsetenv("NO_COLOR");
    unsetenv("FORCE_COLOR");
    setenv("TERM", "xterm", 1);
    master = posix_openpt(O_RDWR | O_NOCTTY);
    ck_assert_int_ge(master, 0);
    ck_assert(grantpt(master) == 0 && unlockpt(master) == 0);
    int slave = open(ptsname(master), O_RDWR | O_NOCTTY);
    ck_assert_int_ge(slave, 0);
    ck_assert_ptr_nonnull(screen = fdopen(slave, "w"));
}

static void teardown(void) {
    fclose(screen);
    close(master);
}

static void set_width(unsigned short columns) {
    struct winsize size = {.ws_row = 24, .ws_col = columns};
    ck_assert_int_eq(ioctl(master, TIOCSWINSZ, &size), 0);
}

/* Returns the output since the last call. The kernel hands what is written to a terminal on in
 * its own time and in pieces; a byte that the progress line never contains marks the end. */
static const char *drawn(void) {
    static char text[4096];
    size_t length = 0;
    ck_assert(putc('\x1f', screen) != EOF && fflush(screen) == 0);
    while (!length || text[length - 1] != '\x1f') {
        ck_assert_uint_lt(length, sizeof text);
        ssize_t n = read(master, text + length, sizeof text - length);
        ck_assert_int_gt(n, 0);
        length += (size_t)n;
    }
    text[length - 1] = '\0';
    return text;
}

/* Columns a line takes: escape sequences and carriage returns take none. */
static size_t columns_of(const char *s) {
    size_t n = 0;
    for (; *s; s++) {
        if (*s == '\033')
            s += strcspn(s, "mK");
        else if (*s != '\r' && *s != '\n')
            n++;
    }
    return n;
}

static struct pl_progress start(void) {
    struct pl_progress p;
    pl_progress_init(&p, screen, false, 0);
    return p;
}

START_TEST(a_terminal_gets_one_line_rewritten) {
    set_width(120);
    struct pl_progress p = start();
    pl_progress_step(&p, &report);
    const char *line = drawn();
    ck_assert_int_eq(line[0], '\r');
    ck_assert_ptr_null(strchr(line, '\n'));
    ck_assert_str_eq(line + strlen(line) - 3, "\033[K");
    static const char *const parts[] = {
        "step 12/100",           "loss 2.3457", "lr 2.00e-05", "12,346 tok/s",
        "3.00 GiB of 16.00 GiB", "ETA ",        "[#",
    };
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        ck_assert_msg(strstr(line, parts[i]), "'%s' lacks '%s'", line, parts[i]);
    pl_progress_end(&p);
    ck_assert_str_eq(drawn(), "\r\n"); /* the terminal adds the return */
}
END_TEST

START_TEST(the_line_never_reaches_the_last_column) {
    for (unsigned short width = 5; width <= 260; width++) {
        set_width(width);
        struct pl_progress p = start();
        pl_progress_step(&p, &report);
        const char *line = drawn();
        ck_assert_msg(columns_of(line) < width, "%u: '%s'", width, line);
        if (width > 12) ck_assert_ptr_nonnull(strstr(line, "step 12/100"));
        if (width > 24) ck_assert_ptr_nonnull(strstr(line, "loss 2.3457"));
    }
}
END_TEST

START_TEST(an_unknown_width_is_taken_for_eighty) {
    set_width(0);
    struct pl_progress p = start();
    pl_progress_step(&p, &report);
    size_t columns = columns_of(drawn());
    ck_assert_uint_lt(columns, 80);
    ck_assert_uint_gt(columns, 40);
}
END_TEST

START_TEST(the_bar_is_full_at_the_last_step_and_empty_before_the_first) {
    static const struct {
        uint64_t step, total;
        const char *bar;
    } bars[] = {
        {0, 10, "[............................]"},
        {5, 10, "[##############..............]"},
        {10, 10, "[############################]"},
        {0, 0, "[............................]"},
    };
    set_width(200);
    for (size_t i = 0; i < sizeof bars / sizeof *bars; i++) {
        struct pl_step_report r = report;
        r.step = bars[i].step;
        r.total_steps = bars[i].total;
        struct pl_progress p = start();
        pl_progress_step(&p, &r);
        const char *line = drawn();
        ck_assert_msg(strstr(line, bars[i].bar), "%s", line);
    }
}
END_TEST

START_TEST(steps_within_a_tenth_of_a_second_are_not_drawn_but_the_last_is) {
    set_width(100);
    struct pl_progress p = start();
    struct pl_step_report r = report;
    pl_progress_step(&p, &r);
    ck_assert_str_ne(drawn(), "");
    p.last_drawn += 1000; /* as if drawn at this moment, however slow the machine */
    r.step = 13;
    pl_progress_step(&p, &r);
    ck_assert_str_eq(drawn(), "");
    r.step = r.total_steps;
    pl_progress_step(&p, &r);
    ck_assert_ptr_nonnull(strstr(drawn(), "step 100/100"));
    p.last_drawn -= 1000;
    r.step = 14;
    pl_progress_step(&p, &r);
    ck_assert_ptr_nonnull(strstr(drawn(), "step 14/100"));
}
END_TEST

START_TEST(a_note_stands_above_the_line_which_then_comes_back) {
    set_width(100);
    struct pl_progress p = start();
    pl_progress_step(&p, &report);
    (void)drawn();
    pl_progress_note(&p, "out of memory: 8 -> 4");
    ck_assert_str_eq(drawn(), "\r\033[Kout of memory: 8 -> 4\r\n");
    pl_progress_step(&p, &report);
    ck_assert_ptr_nonnull(strstr(drawn(), "step 12/100"));
}
END_TEST

static const struct {
    double seconds_a_step;
    uint64_t first, step, total;
    const char *eta;
} paces[] = {
    {1, 0, 10, 10, "ETA 0s"},        {1, 0, 10, 69, "ETA 59s"},
    {1, 0, 10, 75, "ETA 1m05s"},     {37.2, 0, 10, 110, "ETA 1h02m"},
    {3600, 0, 10, 86, "ETA 3d04h"},  {1, 100, 110, 140, "ETA 30s"}, /* after a resume */
    {1e9, 0, 10, 1000000, "ETA --"}, {1, 10, 10, 100, "ETA --"}, /* no step of this process yet */
    {1, 20, 10, 100, "ETA --"},
};

START_TEST(the_eta_is_the_pace_of_this_process_in_two_units) {
    set_width(200);
    struct pl_progress p;
    pl_progress_init(&p, screen, false, paces[_i].first);
    struct pl_step_report r = report;
    r.step = paces[_i].step;
    r.total_steps = paces[_i].total;
    p.started -= paces[_i].seconds_a_step * 10; /* ten steps were done in that time */
    pl_progress_step(&p, &r);
    const char *line = drawn();
    ck_assert_msg(strstr(line, paces[_i].eta), "'%s' lacks '%s'", line, paces[_i].eta);
}
END_TEST

START_TEST(off_a_terminal_every_step_is_a_plain_line) {
    char *text = NULL;
    size_t n = 0;
    FILE *file = tmpfile();
    ck_assert_ptr_nonnull(file);
    setenv("FORCE_COLOR", "1", 1);
    struct pl_progress p;
    pl_progress_init(&p, file, false, 0);
    pl_progress_step(&p, &report);
    pl_progress_step(&p, &report);
    pl_progress_note(&p, "note");
    pl_progress_end(&p);
    rewind(file);
    ck_assert_int_gt(getdelim(&text, &n, '\0', file), 0);
    ck_assert_ptr_null(strchr(text, '\033'));
    ck_assert_ptr_null(strchr(text, '\r'));
    ck_assert_ptr_null(strchr(text, '#'));
    int lines = 0;
    for (const char *s = text; *s; s++)
        lines += *s == '\n';
    ck_assert_int_eq(lines, 3);
    ck_assert_ptr_nonnull(strstr(text, "step 12/100  loss 2.3457  lr 2.00e-05"));
    free(text);
    fclose(file);
}
END_TEST

START_TEST(quiet_says_nothing) {
    struct pl_progress p;
    pl_progress_init(&p, screen, true, 0);
    pl_progress_step(&p, &report);
    pl_progress_note(&p, "note");
    pl_progress_end(&p);
    ck_assert_str_eq(drawn(), "");
}
END_TEST

START_TEST(notes_alone_leave_out_the_line) {
    struct pl_progress p = start();
    p.notes_alone = true;
    pl_progress_step(&p, &report);
    pl_progress_note(&p, "note");
    pl_progress_end(&p);
    ck_assert_str_eq(drawn(), "\r\033[Knote\r\n");
}
END_TEST

START_TEST(a_progress_that_was_never_begun_is_silent) {
    struct pl_progress p = {0};
    pl_progress_step(&p, &report);
    pl_progress_note(&p, "note");
    pl_progress_end(&p);
}
END_TEST

START_TEST(an_unlimited_budget_is_not_shown) {
    set_width(200);
    static const uint64_t budgets[] = {0, PL_AUTO_BYTES};
    for (int i = 0; i < 2; i++) {
        struct pl_step_report r = report;
        r.budget_bytes = budgets[i];
        struct pl_progress p = start();
        pl_progress_step(&p, &r);
        ck_assert_ptr_nonnull(strstr(drawn(), "  3.00 GiB  "));
    }
}
END_TEST

/* Whatever the file is called, and however wide the terminal is. */
START_TEST(reading_is_one_line_that_is_wiped) {
    set_width((unsigned short)(20 + 20 * _i));
    struct pl_progress p = start();
    pl_progress_reading(&p, "data/a\033]0;name\x7f of some length.jsonl", 250, 1000, 12345);
    const char *line = drawn();
    ck_assert_msg(strncmp(line, "\rtokenising ", 12) == 0, "%s", line);
    ck_assert_ptr_nonnull(strstr(line, ":  25 %, 12,345 rows\033[K"));
    ck_assert_ptr_null(strstr(line, "\033]"));
    ck_assert_ptr_null(strstr(line, "data/"));
    if (_i) ck_assert_uint_lt(columns_of(line), 20 + 20 * (unsigned)_i);
    pl_progress_reading(&p, "x", 500, 1000, 2); /* at once: not drawn */
    ck_assert_str_eq(drawn(), "");
    pl_progress_clear(&p);
    ck_assert_str_eq(drawn(), "\r\033[K");
    pl_progress_clear(&p);
    ck_assert_str_eq(drawn(), "");
}
END_TEST

START_TEST(reading_is_shown_on_a_terminal_alone) {
    struct pl_progress quiet = start(), steps = start(), file;
    FILE *plain = tmpfile();
    quiet.quiet = true;
    steps.notes_alone = true;
    pl_progress_init(&file, plain, false, 0);
    struct pl_progress *const silent[] = {&quiet, &steps, &file, &(struct pl_progress){0}};
    for (int i = 0; i < 4; i++) {
        pl_progress_reading(silent[i], "x", 1, 2, 3);
        pl_progress_clear(silent[i]);
    }
    ck_assert_str_eq(drawn(), "");
    ck_assert_int_eq(ftell(plain), 0);
    fclose(plain);
}
END_TEST

static const struct {
    const char *term, *no_color, *force_color;
    bool on_terminal, off_terminal;
} colours[] = {
    {"xterm", NULL, NULL, true, false}, {"dumb", NULL, NULL, false, false},
    {"xterm", "1", NULL, false, false}, {"xterm", "", NULL, true, false},
    {"xterm", NULL, "1", true, true},   {"xterm", NULL, "0", false, false},
    {"dumb", NULL, "1", true, true},    {"xterm", "1", "1", false, false},
};

START_TEST(colour_follows_the_environment) {
    setenv("TERM", colours[_i].term, 1);
    if (colours[_i].no_color) setenv("NO_COLOR", colours[_i].no_color, 1);
    if (colours[_i].force_color) setenv("FORCE_COLOR", colours[_i].force_color, 1);
    FILE *file = tmpfile();
    ck_assert_ptr_nonnull(file);
    ck_assert_int_eq(pl_colour_wanted(screen), colours[_i].on_terminal);
    ck_assert_int_eq(pl_colour_wanted(file), colours[_i].off_terminal);
    fclose(file);
}
END_TEST

START_TEST(a_dumb_terminal_gets_plain_lines) {
    setenv("TERM", "dumb", 1);
    struct pl_progress p = start();
    pl_progress_step(&p, &report);
    const char *line = drawn();
    ck_assert_ptr_null(strchr(line, '\033'));
    ck_assert_str_eq(line + strlen(line) - 2, "\r\n");
}
END_TEST

int main(void) {
    Suite *s = suite_create("report.progress");
    TCase *tc = tcase_create("progress");
    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_test(tc, a_terminal_gets_one_line_rewritten);
    tcase_add_test(tc, the_line_never_reaches_the_last_column);
    tcase_add_test(tc, an_unknown_width_is_taken_for_eighty);
    tcase_add_test(tc, the_bar_is_full_at_the_last_step_and_empty_before_the_first);
    tcase_add_test(tc, steps_within_a_tenth_of_a_second_are_not_drawn_but_the_last_is);
    tcase_add_test(tc, a_note_stands_above_the_line_which_then_comes_back);
    tcase_add_loop_test(tc, the_eta_is_the_pace_of_this_process_in_two_units, 0,
                        (int)(sizeof paces / sizeof *paces));
    tcase_add_test(tc, off_a_terminal_every_step_is_a_plain_line);
    tcase_add_test(tc, quiet_says_nothing);
    tcase_add_test(tc, notes_alone_leave_out_the_line);
    tcase_add_test(tc, a_progress_that_was_never_begun_is_silent);
    tcase_add_test(tc, an_unlimited_budget_is_not_shown);
    tcase_add_loop_test(tc, reading_is_one_line_that_is_wiped, 0, 5);
    tcase_add_test(tc, reading_is_shown_on_a_terminal_alone);
    tcase_add_loop_test(tc, colour_follows_the_environment, 0,
                        (int)(sizeof colours / sizeof *colours));
    tcase_add_test(tc, a_dumb_terminal_gets_plain_lines);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
