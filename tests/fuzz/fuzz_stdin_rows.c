/* fuzz_stdin_rows.c - what `plimsoll tokenize` reads from stdin, through the command itself: texts,
 * texts in JSON, and conversations. As many answers as lines, or a failure of the contract. */
#include "estimator/base/errors.h"
#include "tests/fuzz/fuzz.h"
#include "tools/plimsoll/cli.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WORDS 6
static const char *const forms[][WORDS] = {
    {"plimsoll", "tokenize", "--tokenizer", "byte", "--json"},
    {"plimsoll", "tokenize", "--tokenizer", "byte"},
    {"plimsoll", "tokenize", "--chat-template", "chatml", "--json"},
    {"plimsoll", "tokenize", "--chat-template", "llama32", "--json"},
};
enum { N_FORMS = sizeof forms / sizeof *forms, JSON_FORMS = 5 };

static void redirect(int from, int to) {
    FUZZ_CHECK(fflush(stdout) == 0 && fflush(stderr) == 0);
    FUZZ_CHECK(dup2(from, to) >= 0);
}

static int run(const char *const form[WORDS]) {
    char words[WORDS][32], *argv[WORDS + 1] = {0};
    struct pl_cli cli;
    struct pl_diag d = {0};
    int argc = 0;
    for (; argc < WORDS && form[argc]; argc++) {
        snprintf(words[argc], sizeof words[argc], "%s", form[argc]);
        argv[argc] = words[argc];
    }
    FUZZ_CHECK(pl_cli_parse(&cli, argc, argv, &d) == PL_ERR_OK);
    int status = cli.command->run(&cli);
    pl_cli_finish(&cli);
    return status;
}

/* The command's streams are files while it runs; its stdout is read from *said. */
static int run_on(const char *const form[WORDS], const char *path, FILE *said) {
    const int out = dup(STDOUT_FILENO), err = dup(STDERR_FILENO);
    const int nothing = open("/dev/null", O_WRONLY | O_CLOEXEC);
    FUZZ_CHECK(out >= 0 && err >= 0 && nothing >= 0);
    FUZZ_CHECK(freopen(path, "r", stdin) != NULL);
    redirect(fileno(said), STDOUT_FILENO);
    redirect(nothing, STDERR_FILENO);
    int status = run(form);
    redirect(out, STDOUT_FILENO);
    redirect(err, STDERR_FILENO);
    close(out);
    close(err);
    close(nothing);
    return status;
}

/* Under --json every line is an object, and a failure is the last of them. */
static void check_answers(FILE *said, int status, size_t lines) {
    char *line = NULL;
    size_t cap = 0, answers = 0, failures = 0;
    ssize_t n;
    rewind(said);
    while ((n = getline(&line, &cap, said)) >= 0) {
        json_t *o = json_loadb(line, (size_t)n, JSON_ALLOW_NUL, NULL);
        FUZZ_CHECK(json_is_object(o) && line[n - 1] == '\n' && failures == 0);
        failures += status && json_object_get(o, "error") && json_object_get(o, "schema");
        answers++;
        json_decref(o);
    }
    free(line);
    FUZZ_CHECK(status ? failures == 1 && answers <= lines : answers == lines);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    size_t lines = size && data[size - 1] != '\n', sum = 0;
    for (size_t i = 0; i < size; i++) {
        lines += data[i] == '\n';
        sum += data[i];
    }
    const char *const *form = forms[sum % N_FORMS];
    FILE *said = tmpfile();
    FUZZ_CHECK(said != NULL);
    int status = run_on(form, fuzz_file("stdin", data, size), said);
    FUZZ_CHECK(status == 0 || status == 2 || status == 5);
    if (form[JSON_FORMS - 1]) check_answers(said, status, lines);
    fclose(said);
    return 0;
}
