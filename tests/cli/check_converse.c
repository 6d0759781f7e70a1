/* check_converse.c - `plimsoll generate` with prompts from standard input, and on a terminal.
 * PLIMSOLL names the binary; runs in the repository root. */
#include "tests/support/child.h"
#include "tests/support/hang.h"
#include "tests/support/scratch.h"

#include <check.h>
#include <errno.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define RANDOM                                                                                     \
    "generate", "--init", "random", "--model-config", "configs/quickstart-model", "--threads",     \
        "2", "--device", "cpu", "--tokenizer", "byte"

/* --- standard input --------------------------------------------------------------------------- */

/* Returns what `words` print when `input` is piped to them. */
static struct outcome piped(const char *input, const char *words) {
    const char *command = textf("printf '%s' | \"$PLIMSOLL\" generate --init random --model-config "
                                "configs/quickstart-model --threads 2 --device cpu --tokenizer "
                                "byte --quiet --max-new-tokens 6 %s",
                                input, words);
    return child_run((const char *[]){"sh", "-c", command, NULL}, NULL, HANG_SECONDS);
}

static struct outcome given(const char *prompt, const char *more) {
    return plimsoll_expect(0, NULL,
                           (const char *[]){RANDOM, "--quiet", "--max-new-tokens", "6", "--json",
                                            "--prompt", prompt, more, NULL});
}

/* The ids of an answer and the number of those before it, as JSON. */
static char *ids_of(const char *json) {
    const char *from = strstr(json, "\"ids\":["), *to = from ? strstr(from, ",\"planned") : NULL;
    ck_assert_msg(to != NULL, "%s", json);
    return strndup(from, (size_t)(to - from));
}

static void expect_same_ids(const char *json, const char *prompt, const char *more) {
    struct outcome o = given(prompt, more);
    char *a = ids_of(json), *b = ids_of(o.out);
    ck_assert_msg(strcmp(a, b) == 0, "`%s`: %s instead of %s", prompt, a, b);
    free(a);
    free(b);
    outcome_finish(&o);
}

START_TEST(a_pipe_is_one_prompt_without_its_last_line_feed) {
    struct outcome o = piped("two\\nlines\\n", "--json");
    ck_assert_int_eq(o.status, 0);
    expect_same_ids(o.out, "two\nlines", NULL);
    outcome_finish(&o);
}
END_TEST

/* Prompts that begin alike share what is in the cache; their answers are those of each alone. */
START_TEST(each_line_is_a_prompt_of_its_own) {
    static const char *const prompts[] = {"alpha beta", "alpha beta gamma", "alpha", "delta"};
    struct outcome o = piped("alpha beta\\nalpha beta gamma\\n\\nalpha\\ndelta", "--lines --json");
    ck_assert_msg(o.status == 0, "%s", o.err);
    char *line = o.out;
    for (size_t i = 0; i < sizeof prompts / sizeof *prompts; i++) {
        ck_assert_msg(line && *line, "%zu answers: %s", i, o.out);
        expect_same_ids(line, prompts[i], NULL);
        line = strchr(line, '\n');
        line += line != NULL;
    }
    ck_assert_msg(line && !*line, "too many answers: %s", o.out);
    outcome_finish(&o);
}
END_TEST

static const struct {
    const char *input, *words, *says;
} refusals[] = {{"", "", "nothing to continue"},
                {"\\n\\n", "--lines", "nothing to continue"},
                {"a", "--lines --prompt b", "a prompt is given, too"}};

START_TEST(what_is_no_prompt_is_refused) {
    struct outcome o = piped(refusals[_i].input, refusals[_i].words);
    ck_assert_int_eq(o.status, 2);
    ck_assert_msg(strstr(o.err, refusals[_i].says) != NULL, "%s", o.err);
    outcome_finish(&o);
}
END_TEST

/* --- a terminal ------------------------------------------------------------------------------- */

struct terminal {
    pid_t pid;
    int fd;
    char text[1 << 16]; /* all that was printed */
    size_t n;
};

static void terminal_open(struct terminal *t, const char *const more[]) {
    const char *words[32] = {getenv("PLIMSOLL"), RANDOM,   "--chat",
                             "--chat-template",  "chatml", "--ignore-eos"};
    size_t n = 0;
    while (words[n])
        n++;
    for (size_t i = 0; more[i]; i++)
        words[n++] = more[i];
    *t = (struct terminal){.fd = -1};
    t->pid = forkpty(&t->fd, NULL, NULL, NULL);
    ck_assert_int_ge(t->pid, 0);
    if (t->pid == 0) {
        execv(words[0], (char **)(uintptr_t)words);
        _exit(127);
    }
}

/* Waits until `what` was printed after the last text that was waited for. */
static void wait_for(struct terminal *t, const char *what, size_t *from) {
    const double end = seconds_now() + HANG_SECONDS;
    char *found;
    while (!(found = strstr(t->text + *from, what)) && seconds_now() < end) {
        struct pollfd p = {.fd = t->fd, .events = POLLIN};
        if (poll(&p, 1, 1000) <= 0) continue;
        const ssize_t n = read(t->fd, t->text + t->n, sizeof t->text - 1 - t->n);
        if (n <= 0) break;
        t->n += (size_t)n;
        t->text[t->n] = 0;
    }
    ck_assert_msg(found != NULL, "no `%s` in: %s", what, t->text + *from);
    *from = (size_t)(found - t->text) + strlen(what);
}

static void type(struct terminal *t, const char *keys) {
    ck_assert_int_eq(write(t->fd, keys, strlen(keys)), (ssize_t)strlen(keys));
}

static int terminal_close(struct terminal *t) {
    int status;
    char rest[256];
    while (read(t->fd, rest, sizeof rest) > 0)
        continue;
    ck_assert_int_eq(waitpid(t->pid, &status, 0), t->pid);
    close(t->fd);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static struct terminal terminal;

#define OPEN(...) terminal_open(&terminal, (const char *[]){__VA_ARGS__, NULL})

START_TEST(a_conversation_is_kept_and_begins_anew) {
    size_t at = 0;
    OPEN("--max-new-tokens", "4");
    wait_for(&terminal, "> ", &at);
    type(&terminal, "hello\n");
    wait_for(&terminal, "--max-new-tokens allows)\r\n> ", &at);
    type(&terminal, "two \\\n");
    wait_for(&terminal, "| ", &at);
    type(&terminal, "lines\n");
    wait_for(&terminal, "--max-new-tokens allows)\r\n> ", &at);
    type(&terminal, "/reset\n");
    wait_for(&terminal, "(the conversation begins anew)\r\n> ", &at);
    type(&terminal, "/exit\n");
    wait_for(&terminal, "2 answers; planned and allocated", &at);
    ck_assert_int_eq(terminal_close(&terminal), 0);
}
END_TEST

START_TEST(the_end_of_the_input_ends_it) {
    size_t at = 0;
    OPEN("--max-new-tokens", "4");
    wait_for(&terminal, "> ", &at);
    type(&terminal, "\4");
    wait_for(&terminal, "0 answers", &at);
    ck_assert_int_eq(terminal_close(&terminal), 0);
}
END_TEST

/* V1 of generate_chat.h, I1 of generate_input.h. */
START_TEST(ctrl_c_stops_the_answer_and_not_the_program) {
    size_t at = 0;
    OPEN("--max-seq-length", "60000");
    wait_for(&terminal, "> ", &at);
    for (int i = 0; i < 2; i++) {
        type(&terminal, "hello\n");
        wait_for(&terminal, "hello\r\n", &at);
        usleep(300000);
        type(&terminal, "\3");
        wait_for(&terminal, "(stopped)\r\n> ", &at);
    }
    type(&terminal, "\3");
    wait_for(&terminal, "(/exit or Ctrl-D ends the conversation)\r\n> ", &at);
    type(&terminal, "/exit\n");
    wait_for(&terminal, "2 answers", &at);
    ck_assert_int_eq(terminal_close(&terminal), 0);
}
END_TEST

/* I1 of generate_input.h. */
START_TEST(another_signal_ends_the_program) {
    size_t at = 0;
    OPEN("--max-new-tokens", "4");
    wait_for(&terminal, "> ", &at);
    ck_assert_int_eq(kill(terminal.pid, SIGTERM), 0);
    wait_for(&terminal, "stopped by a signal", &at);
    ck_assert_int_eq(terminal_close(&terminal), 143);
}
END_TEST

/* V2 of generate_chat.h. The turn that does not fit is forgotten: a shorter one is answered. */
START_TEST(a_turn_that_does_not_fit_is_told_and_left_out) {
    size_t at = 0;
    OPEN("--max-seq-length", "100", "--max-new-tokens", "2");
    wait_for(&terminal, "> ", &at);
    type(&terminal, "a line of words that is longer than the context of this conversation is\n");
    wait_for(&terminal, "and the context holds 100: the turn is left out\r\nhint: /reset", &at);
    wait_for(&terminal, "> ", &at);
    type(&terminal, "short\n");
    wait_for(&terminal, "--max-new-tokens allows)\r\n> ", &at);
    type(&terminal, "/exit\n");
    wait_for(&terminal, "1 answer;", &at);
    ck_assert_int_eq(terminal_close(&terminal), 0);
}
END_TEST

START_TEST(an_answer_ends_where_the_context_does) {
    size_t at = 0;
    OPEN("--max-seq-length", "100");
    wait_for(&terminal, "> ", &at);
    type(&terminal, "short\n");
    wait_for(&terminal, "(the context is full: /reset begins anew", &at);
    wait_for(&terminal, "> ", &at);
    type(&terminal, "\4");
    wait_for(&terminal, "1 answer;", &at);
    ck_assert_int_eq(terminal_close(&terminal), 0);
}
END_TEST

int main(void) {
    Suite *s = suite_create("cli.converse");
    TCase *t = tcase_create("stdin");
    tcase_set_timeout(t, 0);
    tcase_add_test(t, a_pipe_is_one_prompt_without_its_last_line_feed);
    tcase_add_test(t, each_line_is_a_prompt_of_its_own);
    tcase_add_loop_test(t, what_is_no_prompt_is_refused, 0, sizeof refusals / sizeof *refusals);
    suite_add_tcase(s, t);
    t = tcase_create("terminal");
    tcase_set_timeout(t, 0);
    tcase_add_test(t, a_conversation_is_kept_and_begins_anew);
    tcase_add_test(t, the_end_of_the_input_ends_it);
    tcase_add_test(t, ctrl_c_stops_the_answer_and_not_the_program);
    tcase_add_test(t, another_signal_ends_the_program);
    tcase_add_test(t, a_turn_that_does_not_fit_is_told_and_left_out);
    tcase_add_test(t, an_answer_ends_where_the_context_does);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_ENV);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? 1 : 0;
}
