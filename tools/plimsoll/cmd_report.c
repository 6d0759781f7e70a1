/* cmd_report.c - `plimsoll report`: a page of one or several runs, once or while they live. */
#include "tools/plimsoll/cli.h"

#include "estimator/base/alloc.h"
#include "runtime/checkpoint/read_file.h"
#include "tools/plimsoll/report_runs.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define REFRESH_SECONDS 3 /* of a page that is open */
#define POLL_NS         200000000L
#define REST_FACTOR                                                                                \
    10 /* a page that took 1 s to write is written again after 10 s at the earliest */
#define REST_SECONDS 1.0 /* at least */
#define FIGURES_GAP  2
#define LABEL_MOST   32 /* columns of a run's name */

struct report {
    const struct pl_cli *cli;
    const volatile sig_atomic_t *stop;
    char *file; /* owned */
    struct pl_page page;
    bool told; /* notes were printed */
};

/* --- the page -------------------------------------------------------------------------------- */

/* A slip of the hand must not replace a log or weights. */
static pl_err find_file(struct report *r, struct pl_diag *d) {
    const char *given = r->cli->flag[PL_FLAG_OUTPUT];
    const char *end = given ? strrchr(given, '.') : NULL;
    if (given && (!end || (strcmp(end, ".html") != 0 && strcmp(end, ".htm") != 0))) {
        pl_diag_set(d, PL_ERR_USAGE, "--output is a page of HTML, not `%s`", given);
        pl_diag_hint(d, "such as --output report.html");
        return PL_ERR_USAGE;
    }
    r->file = given ? pl_strdup(given) : pl_path_join(r->cli->args[0], "report.html");
    return r->file ? PL_ERR_OK : pl_host_oom(d, "a path");
}

static pl_err read_page(struct report *r, struct pl_diag *d) {
    struct pl_text notes = {0};
    pl_page_finish(&r->page);
    pl_err err = pl_report_read(r->cli->args, r->cli->n_args, &r->page, &notes, d);
    if (err == PL_ERR_OK && !r->told) pl_cli_print_notes(r->cli, &notes);
    r->told = true;
    pl_text_finish(&notes);
    return err;
}

static pl_err write_page(struct report *r, bool again, struct pl_diag *d) {
    struct pl_text html = {0};
    r->page.refresh_seconds = again ? REFRESH_SECONDS : 0;
    pl_page_write(&r->page, &html);
    pl_err err = pl_cli_write_file(r->file, &html, d);
    pl_text_finish(&html);
    return err;
}

/* --- the answer ------------------------------------------------------------------------------ */

/* Names are as wide as the widest of them, within reason. */
static int label_width(const struct pl_page *p) {
    size_t width = 3;
    for (uint32_t i = 0; i < p->n; i++)
        if (strlen(p->runs[i].label) > width) width = strlen(p->runs[i].label);
    return -(int)(width < LABEL_MOST ? width : LABEL_MOST);
}

static pl_err print_text(const struct report *r, struct pl_report *figures, struct pl_diag *d) {
    const struct pl_report_column columns[] = {
        {"run", "run", FIGURES_GAP, label_width(&r->page)},
        {"state", "state", FIGURES_GAP, -10},
        {"steps", "steps", FIGURES_GAP, 7},
        {"loss", "loss", FIGURES_GAP, 9},
        {"eval_loss", "evaluation", FIGURES_GAP, 10},
        {"tokens_per_second", "tokens/s", FIGURES_GAP, 9},
        {"planned_bytes", "planned", FIGURES_GAP, 11},
        {"oom_recoveries", "recoveries", FIGURES_GAP, 10},
        {"skipped_steps", "skipped", FIGURES_GAP, 7},
    };
    struct pl_text text = {0}, safe = {0};
    pl_report_columns(figures, columns, sizeof columns / sizeof *columns, "", "", &text);
    pl_text_addf(&text, "%s\n", r->file);
    pl_cli_add_safe_lines(&safe, &text);
    safe.failed |= text.failed;
    pl_text_finish(&text);
    pl_report_finish(figures);
    return pl_cli_print_text(&safe, d);
}

static pl_err print(const struct report *r, struct pl_diag *d) {
    struct pl_report figures = {0};
    pl_page_figures(&r->page, &figures);
    if (!pl_cli_has(r->cli, PL_FLAG_JSON)) return print_text(r, &figures, d);
    json_t *runs = pl_report_end_list(&figures);
    return pl_cli_print_json(
        runs ? json_pack("{s:o, s:o}", "page", pl_cli_json_string(r->file), "runs", runs) : NULL,
        d);
}

/* --- watching -------------------------------------------------------------------------------- */

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Returns once the files differ from `mark` and `seconds` have passed, or after a signal. */
static void wait_for_change(const struct report *r, uint64_t mark, double seconds) {
    const struct timespec poll = {0, POLL_NS};
    const double end = now() + seconds;
    while (!*r->stop && (now() < end || pl_report_mark(r->cli->args, r->cli->n_args) == mark))
        nanosleep(&poll, NULL);
}

static pl_err watch(struct report *r, struct pl_diag *d) {
    if (!pl_cli_has(r->cli, PL_FLAG_QUIET))
        fprintf(stderr, "%s is written again while a run lives; Ctrl-C ends this\n", r->file);
    while (!*r->stop && pl_report_any_lives(&r->page)) {
        const double before = now();
        const uint64_t mark = pl_report_mark(r->cli->args, r->cli->n_args);
        PL_TRY(read_page(r, d));
        PL_TRY(write_page(r, pl_report_any_lives(&r->page), d));
        const double rest = REST_FACTOR * (now() - before);
        if (pl_report_any_lives(&r->page))
            wait_for_change(r, mark, rest > REST_SECONDS ? rest : REST_SECONDS);
    }
    /* The last page does not load itself again. */
    return write_page(r, false, d);
}

static pl_err report(struct report *r, struct pl_diag *d) {
    PL_TRY(find_file(r, d));
    PL_TRY(read_page(r, d));
    if (pl_cli_has(r->cli, PL_FLAG_WATCH))
        PL_TRY(watch(r, d));
    else
        PL_TRY(write_page(r, false, d));
    return print(r, d);
}

int pl_cmd_report(const struct pl_cli *cli) {
    struct pl_diag d = {0};
    struct report r = {.cli = cli, .stop = pl_cli_catch_signals()};
    pl_cli_outlive_readers();
    const pl_err err = report(&r, &d);
    int status = err == PL_ERR_OK ? 0 : pl_cli_fail(cli, &d);
    if (err == PL_ERR_OK && *r.stop) status = 128 + (int)*r.stop;
    pl_page_finish(&r.page);
    free(r.file);
    return status;
}
