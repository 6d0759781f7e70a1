/* cli_main.c - parse, run one sub-command, account for stdout. */
#include "tools/plimsoll/cli.h"

#include "estimator/base/alloc.h"

#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <string.h>
#include <unistd.h>

/* Re-planning frees and takes the same megabytes many times over; giving them back to the kernel in
 * between costs more than the planning. */
#define KEEP_BYTES (64 << 20)

/* A stream that the caller closed would be the next file that is opened: progress would be written
 * into train_log.jsonl. Read-only, so that an answer which cannot be shown still is a failure. */
static bool hold_streams(void) {
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDONLY) != fd) return false;
    return true;
}

static int run(const struct pl_cli *cli) {
    if (pl_cli_has(cli, PL_FLAG_HELP)) return pl_cmd_help(cli);
    if (pl_cli_has(cli, PL_FLAG_VERSION)) return pl_cmd_version(cli);
    return cli->command->run(cli);
}

/* An answer that did not reach the disk or the pipe is a failure, however well it was computed. */
static int check_stdout(const struct pl_cli *cli, int status) {
    if (fflush(stdout) == 0 && !ferror(stdout)) return status;
    struct pl_diag d = {0};
    pl_diag_set(&d, pl_err_of_errno(PL_ERR_IO), "cannot write to stdout: %s", strerror(errno));
    int failed = pl_cli_fail(cli, &d);
    return status ? status : failed;
}

int pl_cli_main(int argc, char *argv[]) {
    struct pl_cli cli;
    struct pl_diag d = {0};
    json_set_alloc_funcs(pl_malloc, free); /* so that a test can fail its requests too */
    if (!hold_streams()) return pl_err_exit_status(PL_ERR_IO); /* and nowhere to say so */
    mallopt(M_MMAP_THRESHOLD, KEEP_BYTES);
    mallopt(M_TRIM_THRESHOLD, KEEP_BYTES);
    pl_err err = pl_cli_parse(&cli, argc, argv, &d);
    int status = err == PL_ERR_OK ? run(&cli) : pl_cli_fail(&cli, &d);
    status = check_stdout(&cli, status);
    pl_cli_finish(&cli);
    return status;
}
