/* process.h - runs a program and keeps what it said. Test helper; failures end the test. */
#ifndef PL_TESTS_CLI_PROCESS_H
#define PL_TESTS_CLI_PROCESS_H

#include <stddef.h>

struct process {
    int status;       /* exit status, 128 + n after signal n */
    char *out, *err;  /* all of stdout and stderr, NUL-terminated */
    size_t out_bytes;
};

/* argv[0] is the program, looked up in PATH when it has no slash; argv ends with NULL. stdin is
 * /dev/null. out_path: stdout goes to this file instead and `out` is empty; NULL captures it. */
struct process process_run(const char *const argv[], const char *out_path);
void process_finish(struct process *p);

#endif
