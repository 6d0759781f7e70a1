/* check_pages.c - what README.md and the pages of docs/ say about the command is what it does.
 *
 *   1  a fence that begins with "$ plimsoll" shows a command and all that it prints on stdout
 *   2  every command of an `sh` fence ends without an error, in a directory that has the models and
 *      data that it names (pages_sandbox.sh); those of the build and of measurements, and those of
 *      the pages about the source tree and installing, are not run, and name programs that exist
 *   3  a `yaml` fence that begins with "# NAME.yaml" is a job, and commands find it by that name
 *   4  the statuses of the reference are those of the command
 *
 * PLIMSOLL names the binary; runs in the repository root. With PAGES_OUT set the pages of today are
 * written into that directory. */
#include "estimator/base/text.h"
#include "tests/support/child.h"
#include "tests/support/scratch.h"
#include "tools/plimsoll/cli.h"

#include <check.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LIMIT_SECONDS 60

static glob_t pages; /* README.md first */
static char dir[SCRATCH_PATH], root[SCRATCH_PATH];

/* Programs that build, test or measure the project: looked for, not run. */
static const struct {
    const char *first; /* how the first word of the command begins */
    const char *root;  /* its part that is not a directory of the source tree; NULL: a directory of
                          the system */
} elsewhere[] = {
    {"tools/", ""}, {"tests/", ""}, {"build/tests/", "build/"}, {"meson", NULL}, {"ninja", NULL}};

/* The pages about work on the source tree, and about installing. Their commands change the tree or
 * the system, or take hours. */
static const char *const not_run[] = {"docs/testing.md", "docs/gpu-report.md", "docs/install.md"};

/* malloc'd: the content of the fence whose first line is `*at`; *at moves past the fence. */
static char *fence_content(const char **at) {
    const char *content = strchr(*at, '\n') + 1, *close = content;
    while (strncmp(close, "```", 3) != 0) {
        close = strchr(close, '\n');
        ck_assert_msg(close != NULL, "a fence is not closed: %.40s", content);
        close++;
    }
    *at = strchr(close, '\n');
    *at = *at ? *at + 1 : close + strlen(close);
    return strndup(content, (size_t)(close - content));
}

/* The next line that begins with "```", or NULL. */
static const char *next_fence(const char *at) {
    if (strncmp(at, "```", 3) == 0) return at;
    at = strstr(at, "\n```");
    return at ? at + 1 : NULL;
}

/* --- jobs ------------------------------------------------------------------------------------- */

static void put_jobs(const char *path) {
    char *page = file_read(path, NULL), name[64];
    for (const char *at = page; (at = next_fence(at));) {
        bool yaml = strncmp(at, "```yaml\n", 8) == 0;
        char *content = fence_content(&at);
        if (yaml && sscanf(content, "# %63[a-z.-]\n", name) == 1)
            file_write(in_dir(dir, name), content);
        free(content);
    }
    free(page);
}

static void set_up(void) {
    scratch_make(dir);
    ck_assert_ptr_nonnull(getcwd(root, sizeof root));
    setenv("PLIMSOLL_NVML", "/nonexistent/nvml.so", 1); /* answers are those of the CPU */
    setenv("XDG_CACHE_HOME", in_dir(dir, "cache"), 1);
    setenv("HF_HUB_CACHE", in_dir(dir, "hub"), 1);
    setenv("NO_COLOR", "1", 1);
    const char *const argv[] = {in_dir(root, "tests/cli/pages_sandbox.sh"), root, NULL};
    struct outcome o = child_run(argv, dir, LIMIT_SECONDS);
    ck_assert_msg(o.status == 0, "%s", o.err);
    outcome_finish(&o);
    setenv("PATH", textf("%s:%s", in_dir(dir, "bin"), getenv("PATH")), 1);
    put_jobs("README.md");
    put_jobs("docs/getting-started.md");
}

static void tear_down(void) {
    scratch_remove(dir);
}

/* --- commands --------------------------------------------------------------------------------- */

/* The first word that is not an assignment of an environment variable. */
static const char *first_word(const char *command) {
    for (;;) {
        size_t n = strcspn(command, " \n"), name = strcspn(command, "= \n");
        if (name == n) return command;
        command += n + strspn(command + n, " \\\n");
    }
}

static bool is_elsewhere(const char *command) {
    const char *word = first_word(command);
    for (size_t i = 0; i < sizeof elsewhere / sizeof *elsewhere; i++) {
        if (strncmp(word, elsewhere[i].first, strlen(elsewhere[i].first)) != 0) continue;
        if (!elsewhere[i].root) return true;
        word += strlen(elsewhere[i].root);
        int n = (int)strcspn(word, " \n");
        bool there = path_exists(textf("%.*s", n, word)) || path_exists(textf("%.*s.c", n, word));
        ck_assert_msg(there, "there is no %.*s", n, word);
        return true;
    }
    return false;
}

static bool is_not_run(const char *page) {
    for (size_t i = 0; i < sizeof not_run / sizeof *not_run; i++)
        if (strcmp(page, not_run[i]) == 0) return true;
    return false;
}

/* Ranks on the CPU, in a build that has no MPI. */
static bool lacks_ranks(const char *command) {
    const bool several = strstr(command, "--devices") || strstr(command, "devices=");
    return several && strstr(command, " train ") && !getenv("PAGES_HAVE_RANKS");
}

static void run_command(const char *page, const char *command) {
    if (is_elsewhere(command) || is_not_run(page) || lacks_ranks(command)) return;
    struct outcome o = child_run((const char *[]){"sh", "-c", command, NULL}, dir, LIMIT_SECONDS);
    ck_assert_msg(o.status == 0 && !strstr(o.err, "plimsoll: error"), "%s: %s\nexit %d\n%s%s", page,
                  command, o.status, o.out, o.err);
    outcome_finish(&o);
}

/* Every line is a command, with the lines that follow a backslash. */
static int run_commands(const char *page, char *lines) {
    int n = 0;
    for (char *line = lines, *end; *line; line = end + 1) {
        end = strchr(line, '\n');
        while (end[-1] == '\\')
            end = strchr(end + 1, '\n');
        *end = 0;
        if (end == line || *line == '#') continue;
        run_command(page, line);
        n++;
    }
    return n;
}

START_TEST(every_command_of_a_page_runs) {
    const char *path = pages.gl_pathv[_i];
    char *page = file_read(path, NULL);
    put_jobs(path);
    for (const char *at = page; (at = next_fence(at));) {
        bool shell = strncmp(at, "```sh\n", 6) == 0;
        char *content = fence_content(&at);
        if (shell) ck_assert_int_gt(run_commands(path, content), 0);
        free(content);
    }
    free(page);
}
END_TEST

/* --- answers ---------------------------------------------------------------------------------- */

/* Adds the fence with the answer of today; `content` is "$ command" and what it printed. False: the
 * two answers differ. */
static bool add_answer(char *content, struct pl_text *today) {
    char *command = content + strlen("$ "), *end = strchr(content, '\n');
    while (end[-1] == '\\')
        end = strchr(end + 1, '\n');
    *end = 0;
    struct outcome o = child_run((const char *[]){"sh", "-c", command, NULL}, dir, LIMIT_SECONDS);
    ck_assert_msg(!strstr(o.err, "plimsoll: error"), "%s\n%s", command, o.err);
    pl_text_addf(today, "```\n%s\n%s```\n", content, o.out);
    bool same = strcmp(o.out, end + 1) == 0;
    if (!same) fprintf(stderr, "%s\nprints\n%s", content, o.out);
    outcome_finish(&o);
    return same;
}

START_TEST(every_answer_of_a_page_is_that_of_the_command) {
    const char *path = pages.gl_pathv[_i], *written = getenv("PAGES_OUT");
    char *page = file_read(path, NULL);
    struct pl_text today = {0};
    const char *done = page;
    int n = 0;                                      /* answers that differ */
    setenv("HF_HUB_CACHE", in_dir(dir, "none"), 1); /* models of the catalogue */
    put_jobs(path);
    for (const char *at = page; (at = next_fence(at));) {
        const char *open = at;
        bool shown = strncmp(at, "```\n$ plimsoll ", 15) == 0;
        char *content = fence_content(&at);
        if (shown) {
            pl_text_addn(&today, done, (size_t)(open - done));
            n += !add_answer(content, &today);
            done = at;
        }
        free(content);
    }
    pl_text_add(&today, done);
    if (written)
        file_write(textf("%s/%s", written, path), pl_text_str(&today));
    else
        ck_assert_msg(n == 0, "%s: %d answers are others today", path, n);
    pl_text_finish(&today);
    free(page);
}
END_TEST

START_TEST(the_reference_lists_every_exit_status) {
    char *page = file_read("docs/reference.md", NULL);
    size_t n;
    const struct pl_cli_exit *exits = pl_cli_exits(&n);
    for (size_t i = 0; i < n; i++) {
        const char *row = textf("\n| %s | %s |\n", exits[i].status, exits[i].meaning);
        ck_assert_msg(strstr(page, row), "no row%s", row);
    }
    free(page);
}
END_TEST

int main(void) {
    if (glob("README.md", 0, NULL, &pages) != 0 ||
        glob("docs/*.md", GLOB_APPEND, NULL, &pages) != 0) {
        fprintf(stderr, "check_pages: run in the repository root\n");
        return 1;
    }
    Suite *s = suite_create("cli.pages");
    TCase *tc = tcase_create("pages");
    tcase_set_timeout(tc, 600);
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_loop_test(tc, every_command_of_a_page_runs, 0, (int)pages.gl_pathc);
    tcase_add_loop_test(tc, every_answer_of_a_page_is_that_of_the_command, 0, (int)pages.gl_pathc);
    tcase_add_test(tc, the_reference_lists_every_exit_status);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    globfree(&pages);
    return failed != 0;
}
