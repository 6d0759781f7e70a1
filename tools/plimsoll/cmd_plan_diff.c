/* cmd_plan_diff.c - two receipts, read and compared. */
#include "tools/plimsoll/cmd_plan.h"

#include "estimator/inquiry/receipt.h"
#include "estimator/inquiry/receipt_diff.h"
#include "runtime/checkpoint/read_file.h"

#include <stdlib.h>

bool pl_plan_diff_asked(const struct pl_cli *cli) {
    return pl_cli_has(cli, PL_FLAG_DIFF) || pl_cli_has(cli, PL_FLAG_ALLOW);
}

/* The receipts say it all: nothing is planned, so nothing can be set. */
static pl_err check_flags(const struct pl_cli *cli, struct pl_diag *d) {
    char text[PL_FLAG_TEXT];
    if (!pl_cli_has(cli, PL_FLAG_DIFF) || !cli->n_args) {
        pl_diag_set(d, PL_ERR_USAGE, "--diff and --allow compare two receipts");
        pl_diag_hint(d, "plimsoll plan --diff OLD.json NEW.json --allow 64MiB");
        return PL_ERR_USAGE;
    }
    if (cli->n_overrides)
        return pl_diag_set(d, PL_ERR_USAGE, "--diff compares what was planned: leave out `%s`",
                           cli->overrides[0]);
    for (int i = 0; i < PL_FLAG_COUNT; i++) {
        const bool own = i == PL_FLAG_DIFF || i == PL_FLAG_ALLOW;
        if (own || !pl_cli_has(cli, (enum pl_cli_flag)i) || i < PL_FLAG_SHARED) continue;
        return pl_diag_set(d, PL_ERR_USAGE, "--diff compares what was planned: leave out %s",
                           pl_cli_flag_text(pl_cli_flags()[i].name, text));
    }
    return PL_ERR_OK;
}

static pl_err read_allowance(const struct pl_cli *cli, struct pl_growth_allowance *out,
                             struct pl_diag *d) {
    const char *text = cli->flag[PL_FLAG_ALLOW];
    *out = (struct pl_growth_allowance){0};
    if (!text || pl_growth_allowance_parse(text, out)) return PL_ERR_OK;
    return pl_diag_set(d, PL_ERR_USAGE,
                       "--allow wants bytes or percent, such as 64MiB or 2%%, not `%.80s`", text);
}

static pl_err read_receipt(const char *path, json_t **out, struct pl_diag *d) {
    struct pl_diag why = {0};
    char *text = NULL;
    uint64_t n = 0;
    pl_err err = pl_file_read(path, PL_RECEIPT_BYTES_MOST, &text, &n, &why);
    if (err == PL_ERR_HOST_OOM) return pl_diag_set(d, err, "%s", why.message);
    if (err != PL_ERR_OK) return pl_diag_at(d, PL_ERR_DATA_FILE, path, 0, 0, "%s", why.message);
    err = pl_receipt_parse(text, (size_t)n, path, out, d);
    free(text);
    return err;
}

static pl_err print(const struct pl_cli *cli, const struct pl_receipt_diff *x, struct pl_diag *d) {
    struct pl_text text = {0}, safe = {0};
    if (pl_cli_has(cli, PL_FLAG_JSON)) return pl_cli_print_json(pl_receipt_diff_json(x), d);
    pl_receipt_diff_text(x, &text);
    pl_cli_add_safe_lines(&safe, &text); /* the words are those of files */
    safe.failed |= text.failed;
    pl_text_finish(&text);
    return pl_cli_print_text(&safe, d);
}

int pl_cmd_plan_diff(const struct pl_cli *cli) {
    struct pl_diag d = {0};
    struct pl_growth_allowance allow;
    struct pl_receipt_diff diff = {0};
    json_t *before = NULL, *after = NULL;
    pl_err err = check_flags(cli, &d);
    if (err == PL_ERR_OK) err = read_allowance(cli, &allow, &d);
    if (err == PL_ERR_OK) err = read_receipt(cli->flag[PL_FLAG_DIFF], &before, &d);
    if (err == PL_ERR_OK) err = read_receipt(cli->args[0], &after, &d);
    if (err == PL_ERR_OK) err = pl_receipt_compare(before, after, &allow, &diff, &d);
    if (err == PL_ERR_OK) err = print(cli, &diff, &d);
    int status = err != PL_ERR_OK ? pl_cli_fail(cli, &d)
                 : diff.within    ? 0
                                  : pl_err_exit_status(PL_ERR_DOES_NOT_FIT);
    pl_receipt_diff_finish(&diff);
    json_decref(before);
    json_decref(after);
    return status;
}
