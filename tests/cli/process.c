/* process.c - posix_spawn with both outputs in temporary files, so that neither can block. */
#include "tests/cli/process.h"

#include <check.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>

extern char **environ;

static char *read_all(FILE *f, size_t *n_bytes) {
    ck_assert_int_eq(fseek(f, 0, SEEK_END), 0);
    long size = ftell(f);
    ck_assert_int_ge(size, 0);
    rewind(f);
    char *text = malloc((size_t)size + 1);
    ck_assert_ptr_nonnull(text);
    ck_assert_uint_eq(fread(text, 1, (size_t)size, f), (size_t)size);
    text[size] = 0;
    if (n_bytes) *n_bytes = (size_t)size;
    return text;
}

struct process process_run(const char *const argv[], const char *out_path) {
    struct process p = {0};
    FILE *out = tmpfile(), *err = tmpfile();
    ck_assert(out && err);
    posix_spawn_file_actions_t actions;
    ck_assert_int_eq(posix_spawn_file_actions_init(&actions), 0);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    if (out_path)
        posix_spawn_file_actions_addopen(&actions, 1, out_path, O_WRONLY, 0);
    else
        posix_spawn_file_actions_adddup2(&actions, fileno(out), 1);
    posix_spawn_file_actions_adddup2(&actions, fileno(err), 2);

    union { /* posix_spawn takes char *const[] and promises not to write through it */
        const char *const *in;
        char *const *spawn;
    } words = {.in = argv};
    pid_t pid;
    int rc = posix_spawnp(&pid, argv[0], &actions, NULL, words.spawn, environ);
    ck_assert_msg(rc == 0, "cannot start %s", argv[0]);
    posix_spawn_file_actions_destroy(&actions);
    int status;
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    p.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    p.out = read_all(out, &p.out_bytes);
    p.err = read_all(err, NULL);
    fclose(out);
    fclose(err);
    return p;
}

void process_finish(struct process *p) {
    free(p->out);
    free(p->err);
    *p = (struct process){0};
}
