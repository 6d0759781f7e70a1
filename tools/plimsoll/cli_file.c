/* cli_file.c - files that a command was asked to write. */
#include "runtime/checkpoint/durable.h"
#include "tools/plimsoll/cli.h"

pl_err pl_cli_write_file(const char *path, const struct pl_text *text, struct pl_diag *d) {
    struct pl_diag why = {0}; /* told as of a checkpoint, which this is not */
    if (text->failed) return pl_host_oom(d, path);
    pl_err err = pl_file_write(path, pl_text_str(text), text->len, &why);
    if (err == PL_ERR_OK) return PL_ERR_OK;
    return pl_diag_set(d, err == PL_ERR_HOST_OOM ? err : PL_ERR_IO, "%s", why.message);
}
