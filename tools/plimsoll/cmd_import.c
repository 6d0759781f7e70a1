/* cmd_import.c - `plimsoll import`: a configuration of another trainer as a job. */
#include "tools/plimsoll/cli.h"

#include "estimator/base/open_file.h"
#include "estimator/base/report_rows.h"
#include "estimator/import/import.h"

#include <stddef.h>
#include <string.h>

/* A name that is taken is refused before the file is read, and again by nothing: the file is put
 * there whole. */
static pl_err check_output(const char *path, struct pl_diag *d) {
    if (!path || pl_look_for(path) == PL_NOT_THERE) return PL_ERR_OK;
    pl_diag_set(d, PL_ERR_USAGE, "%.400s is there already", path);
    pl_diag_hint(d, "name a new file, or remove that one");
    return PL_ERR_USAGE;
}

/* Puts a template that the configuration holds next to the job, and names it there. */
static pl_err write_template(struct pl_import *im, const char *job, struct pl_diag *d) {
    const char *slash = strrchr(job, '/'), *name = slash ? slash + 1 : job;
    const char *dot = strrchr(name, '.');
    struct pl_text path = {0}, text = {0};
    pl_err err;
    pl_text_addf(&path, "%.*s.jinja", (int)(dot && dot > name ? dot - job : (ptrdiff_t)strlen(job)),
                 job);
    pl_text_add(&text, im->template);
    if (path.failed) PL_TRY_GOTO(pl_host_oom(d, "a path"), out);
    PL_TRY_GOTO(check_output(pl_text_str(&path), d), out);
    err = pl_cli_write_file(pl_text_str(&path), &text, d);
    if (err == PL_ERR_OK) pl_import_place_template(im, pl_text_str(&path) + (name - job));
    if (err == PL_ERR_OK) err = im->err;
out:
    pl_text_finish(&path);
    pl_text_finish(&text);
    return err;
}

static pl_err write_yaml(const struct pl_import *im, const char *path, struct pl_diag *d) {
    struct pl_text yaml = {0};
    pl_import_write(im, &yaml);
    if (!path) return pl_cli_print_text(&yaml, d);
    pl_err err = pl_cli_write_file(path, &yaml, d);
    pl_text_finish(&yaml);
    return err;
}

/* The list goes to stderr: stdout may be the job itself. */
static pl_err print_missed(const struct pl_cli *cli, const struct pl_import *im,
                           struct pl_diag *d) {
    struct pl_text lines = {0}, safe = {0};
    const uint32_t n = pl_import_count(im, PL_IMPORT_MISSED);
    if (!n || pl_cli_has(cli, PL_FLAG_QUIET)) return PL_ERR_OK;
    pl_text_addf(&lines, "%s: %u thing%s not supported, or not as %s there:\n",
                 pl_recipe_title(im->from), n, n == 1 ? " is" : "s are",
                 n == 1 ? "it is" : "they are");
    pl_import_write_missed(im, &lines);
    pl_cli_add_safe_lines(&safe, &lines);
    pl_text_finish(&lines);
    return pl_cli_put_text(&safe, stderr, d);
}

static pl_err answer(const struct pl_cli *cli, struct pl_import *im, struct pl_diag *d) {
    const char *path = cli->flag[PL_FLAG_OUTPUT];
    const bool json = pl_cli_has(cli, PL_FLAG_JSON);
    if (path && im->template) PL_TRY(write_template(im, path, d));
    if (path || !json) PL_TRY(write_yaml(im, path, d));
    if (json) {
        struct pl_report r = {0};
        pl_import_report(im, &r);
        pl_report_tree(&r, "output", path ? pl_cli_json_string(path) : json_null());
        PL_TRY(pl_cli_print_json(pl_report_end(&r), d));
    }
    return print_missed(cli, im, d);
}

int pl_cmd_import(const struct pl_cli *cli) {
    struct pl_diag d = {0};
    struct pl_import im = {0};
    const char *from = cli->flag[PL_FLAG_FROM];
    pl_err err = check_output(cli->flag[PL_FLAG_OUTPUT], &d);
    if (err == PL_ERR_OK)
        err =
            pl_import_read(&im, cli->args[0], from ? pl_recipe_by_name(from) : PL_RECIPE_NONE, &d);
    if (err == PL_ERR_OK) err = answer(cli, &im, &d);
    const bool whole = !pl_import_count(&im, PL_IMPORT_MISSED);
    pl_import_finish(&im);
    if (err != PL_ERR_OK) return pl_cli_fail(cli, &d);
    return whole ? 0 : pl_err_exit_status(PL_ERR_DOES_NOT_FIT);
}
