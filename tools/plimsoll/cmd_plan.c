/* cmd_plan.c - `plimsoll plan`: what fits, what each setting costs, what to write down. */
#include "tools/plimsoll/cmd_plan.h"

#include "estimator/advice/advice.h"
#include "estimator/advice/recommend.h"
#include "estimator/autobatch/decide.h"
#include "estimator/base/json_tree.h"
#include "estimator/base/units.h"
#include "estimator/config/job_values.h"
#include "estimator/config/key_table.h"
#include "estimator/inquiry/answer.h"
#include "estimator/inquiry/inquiry.h"
#include "estimator/picture/picture.h"
#include "runtime/checkpoint/durable.h"
#include "runtime/data/data.h"
#include "tools/plimsoll/estimate_args.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

/* A positive whole number given to a flag; *out stays when the flag is absent. */
static pl_err read_count(const struct pl_cli *cli, enum pl_cli_flag flag, uint32_t most,
                         uint32_t *out, struct pl_diag *d) {
    double v = *out;
    PL_TRY(pl_cli_number(cli, flag, 1, most, true, &v, d));
    *out = (uint32_t)v;
    return PL_ERR_OK;
}

/* --- the data -------------------------------------------------------------------------------- */

/* Lengths before any cut: the rule for longer samples is what is being decided. */
static pl_err measure(const struct pl_inquiry *i, struct pl_lengths *out, struct pl_diag *d) {
    uint32_t n;
    struct pl_data *data = NULL;
    struct pl_sample s = {0};
    struct pl_job job = i->job; /* shallow */
    job.max_seq_length = (uint32_t)pl_key_table(&n)[PL_KEY_max_seq_length].hi;
    job.overlength = PL_OVERLENGTH_TRUNCATE;
    pl_err err = pl_data_open_split(&job, &i->model, PL_SPLIT_TRAIN, NULL, &data, d);
    for (uint64_t row = 0; err == PL_ERR_OK && row < pl_data_rows(data); row++) {
        PL_TRY_GOTO(pl_data_sample(data, row, &s, d), out);
        PL_TRY_GOTO(pl_lengths_add(out, (uint32_t)s.n, d), out);
    }
    pl_lengths_sort(out);
out:
    pl_sample_finish(&s);
    pl_data_close(&data);
    return err;
}

static pl_err describe(const struct pl_cli *cli, struct pl_lengths *out, struct pl_diag *d) {
    uint32_t rows = 0, mean = 0, longest = 0;
    PL_TRY(read_count(cli, PL_FLAG_SAMPLES, INT32_MAX, &rows, d));
    PL_TRY(read_count(cli, PL_FLAG_MEAN_TOKENS, INT32_MAX, &mean, d));
    PL_TRY(read_count(cli, PL_FLAG_LONGEST_TOKENS, INT32_MAX, &longest, d));
    if (!rows && !mean && !longest) return PL_ERR_OK;
    if (!rows || !mean || !longest)
        return pl_diag_set(d, PL_ERR_USAGE,
                           "--samples, --mean-tokens and --longest-tokens describe data together");
    return pl_lengths_describe(out, rows, mean, longest, d);
}

/* A plan needs no data: files that cannot be read cost the lengths, and a note says why. */
static pl_err read_lengths(const struct pl_cli *cli, struct pl_inquiry *i, struct pl_lengths *out,
                           struct pl_diag *d) {
    struct pl_diag why = {0};
    PL_TRY(describe(cli, out, d));
    bool data = i->job.dataset || pl_job_find_split(&i->job.datasets, PL_SPLIT_TRAIN);
    if (out->described || !data) return PL_ERR_OK;
    pl_err err = measure(i, out, &why);
    if (err == PL_ERR_OK) return PL_ERR_OK;
    pl_lengths_finish(out);
    if (err == PL_ERR_HOST_OOM) return pl_diag_set(d, err, "%s", why.message);
    pl_text_addf(&i->notes, "lengths are unknown, the data could not be read: %s\n", why.message);
    return PL_ERR_OK;
}

/* --- files ----------------------------------------------------------------------------------- */

enum picture { PICTURE_BILL, PICTURE_TIMELINE, PICTURE_GRID, N_PICTURES };

static void draw(enum picture which, const struct pl_advice *a, struct pl_text *out) {
    struct pl_text title = {0};
    const struct pl_budget *b = &a->q.budget;
    uint64_t budget = b->known ? b->total_bytes : 0;
    pl_estimate_add_summary(&a->estimate, &title);
    if (which == PICTURE_BILL)
        pl_svg_bill(a->estimate.planned.plan, b->context_bytes, budget, pl_text_str(&title), out);
    else if (which == PICTURE_TIMELINE)
        pl_svg_timeline(a->estimate.planned.plan, budget, pl_text_str(&title), out);
    else
        pl_advice_grid_svg(&a->grid, b, pl_text_str(&title), out);
    out->failed |= title.failed;
    pl_text_finish(&title);
}

static pl_err write_pictures(const char *dir, const struct pl_advice *a, struct pl_diag *d) {
    static const char *const names[N_PICTURES] = {"bill.svg", "timeline.svg", "grid.svg"};
    pl_err err = PL_ERR_OK;
    if (mkdir(dir, 0777) != 0 && errno != EEXIST)
        return pl_diag_set(d, pl_err_of_errno(PL_ERR_IO), "cannot make %s: %s", dir,
                           strerror(errno));
    for (int i = 0; i < N_PICTURES && err == PL_ERR_OK; i++) {
        struct pl_text svg = {0}, path = {0};
        draw((enum picture)i, a, &svg);
        pl_text_addf(&path, "%s/%s", dir, names[i]);
        err =
            path.failed ? pl_host_oom(d, "a path") : pl_cli_write_file(pl_text_str(&path), &svg, d);
        pl_text_finish(&svg);
        pl_text_finish(&path);
    }
    return err;
}

static pl_err write_snapshot(const char *path, const struct pl_plan *plan, struct pl_diag *d) {
    struct pl_text bytes = {0};
    pl_snapshot_pickle(plan, &bytes);
    pl_err err = pl_cli_write_file(path, &bytes, d);
    pl_text_finish(&bytes);
    return err;
}

/* --- the answer ------------------------------------------------------------------------------ */

struct asked { /* by the flags of this command */
    uint32_t samples;
    uint64_t host_limit;
    unsigned sections; /* by name; 0: none was named */
};

static pl_err read_asked(const struct pl_cli *cli, struct asked *out, struct pl_diag *d) {
    const char *host = cli->flag[PL_FLAG_HOST_RAM], *names = cli->flag[PL_FLAG_TABLES];
    PL_TRY(read_count(cli, PL_FLAG_EFFECTIVE_BATCH, 1048576, &out->samples, d));
    if (host && (!pl_bytes_parse(host, &out->host_limit) || out->host_limit < PL_BARE_BYTES_LEAST))
        return pl_diag_set(d, PL_ERR_USAGE, "--host-ram wants a size such as 128GiB, not `%s`",
                           host);
    return names ? pl_advice_sections(names, &out->sections, d) : PL_ERR_OK;
}

static bool wants_tables(const struct pl_cli *cli) {
    static const enum pl_cli_flag of_tables[] = {PL_FLAG_JSON, PL_FLAG_ALL, PL_FLAG_TABLES,
                                                 PL_FLAG_SVG};
    bool any = false;
    for (size_t i = 0; i < sizeof of_tables / sizeof *of_tables; i++)
        any |= pl_cli_has(cli, of_tables[i]);
    return any;
}

/* The findings to report besides the tables. */
struct found {
    struct pl_recommendation one;
    struct pl_plan_fleet several;
};

/* The answer to the question comes first, and alone if it holds the job; else a last line says how
 * many GPUs would do. */
static void add_found(const struct pl_advice *a, const struct found *f, bool colour,
                      struct pl_text *out) {
    const struct pl_plan_fleet *several = &f->several;
    const bool last = several->made && several->fleet.request.fewest_alone;
    if (several->made && !last) pl_fleet_text(a, &several->fleet, colour, out);
    if (several->is_answer) return;
    if (several->made && !last) pl_text_add(out, "\n");
    pl_recommendation_text(a, &f->one, colour, out);
    if (last) pl_fleet_text(a, &several->fleet, colour, out);
}

/* The recommendation, or the tables that were named, or both. Without a budget there is nothing to
 * recommend by, and the advice on the job as it is says so. */
static pl_err print_text(const struct pl_cli *cli, const struct asked *asked,
                         const struct pl_advice *a, const struct found *f, struct pl_diag *d) {
    struct pl_text text = {0};
    const bool colour = pl_cli_colour(cli, stdout), all = pl_cli_has(cli, PL_FLAG_ALL);
    const unsigned every = PL_ADVICE_ALL & ~PL_ADVICE_BIT(ADVICE);
    unsigned sections = all ? every : asked->sections;
    const bool named = sections && !all;
    if (!named) add_found(a, f, colour, &text);
    if (!named && (!a->q.budget.known || (all && !a->largest_batch)))
        sections |= PL_ADVICE_BIT(ADVICE);
    pl_advice_text(a, sections, colour, pl_cli_columns(stdout), &text);
    return pl_cli_print_text(&text, d);
}

/* A job that several GPUs do not hold is advised on with the sharding that holds most of it:
 * `sharding: auto` is decided by the job's need, and so the same when the command is typed. */
static void adopt_sharding(const struct pl_fleet *f, struct pl_spec *spec) {
    const struct pl_job *job = &spec->job;
    if (pl_job_ranks(job) == 1 || job->sharding != PL_SHARDING_AUTO || !f->least) return;
    spec->facts.sharding = f->least->sharding;
    pl_resolve(spec);
}

static pl_err find_advice(const struct pl_cli *cli, const struct asked *asked, struct pl_inquiry *i,
                          struct pl_advice *a, struct found *f, struct pl_diag *d) {
    PL_TRY(pl_plan_fleet_asked(cli, a, &f->several, d));
    if (f->several.is_answer) return pl_recommend_row(f->several.fleet.best, a->length, &f->one, d);
    if (f->several.made) adopt_sharding(&f->several.fleet, &i->spec);
    PL_TRY(pl_recommend(a, asked->host_limit, &f->one, d));
    return pl_plan_fleet_fewest(cli, a, &f->one, &f->several, d);
}

/* *holds: several GPUs hold what was asked about several of them. */
static pl_err print(const struct pl_cli *cli, const struct asked *asked, struct pl_inquiry *i,
                    struct pl_advice *a, bool *holds, struct pl_diag *d) {
    struct found f = {0};
    pl_err err = find_advice(cli, asked, i, a, &f, d);
    if (err == PL_ERR_OK && pl_cli_has(cli, PL_FLAG_JSON)) {
        json_t *o = pl_advice_json(a, &f.one, pl_text_str(&i->notes));
        if (f.several.made) pl_json_set(&o, "devices", pl_fleet_json(a, &f.several.fleet));
        err = pl_cli_print_json(pl_answer_complete(o, &a->estimate), d);
    } else if (err == PL_ERR_OK) {
        pl_cli_print_notes(cli, &i->notes);
        err = print_text(cli, asked, a, &f, d);
    }
    *holds = f.several.is_answer;
    pl_recommendation_finish(&f.one);
    return err;
}

static pl_err answer(const struct pl_cli *cli, const struct asked *asked, struct pl_inquiry *i,
                     struct pl_advice *a, bool *holds, struct pl_diag *d) {
    if (wants_tables(cli)) PL_TRY(pl_advice_tables(a, d));
    if (pl_cli_has(cli, PL_FLAG_SVG)) PL_TRY(write_pictures(cli->flag[PL_FLAG_SVG], a, d));
    if (pl_cli_has(cli, PL_FLAG_SNAPSHOT))
        PL_TRY(write_snapshot(cli->flag[PL_FLAG_SNAPSHOT], a->estimate.planned.plan, d));
    if (i->notes.failed) return pl_host_oom(d, "the notes");
    return print(cli, asked, i, a, holds, d);
}

/* Only the grid was asked for, so only the grid is planned. */
static pl_err answer_csv(const struct pl_cli *cli, struct pl_inquiry *i, struct pl_diag *d) {
    struct pl_fit_grid grid;
    struct pl_text csv = {0};
    PL_TRY(pl_inquiry_decide(i, d));
    struct pl_trials trials = {0};
    pl_err err = pl_advice_grid(&i->q, &trials, &grid, d);
    pl_trials_finish(&trials);
    PL_TRY(err);
    pl_advice_csv(&grid, &csv);
    pl_cli_print_notes(cli, &i->notes);
    return pl_cli_print_text(&csv, d);
}

static pl_err check_flags(const struct pl_cli *cli, struct pl_diag *d) {
    static const enum pl_cli_flag others[] = {PL_FLAG_JSON, PL_FLAG_SVG, PL_FLAG_SNAPSHOT};
    for (size_t i = 0; pl_cli_has(cli, PL_FLAG_CSV) && i < sizeof others / sizeof *others; i++)
        if (pl_cli_has(cli, others[i]))
            return pl_diag_set(d, PL_ERR_USAGE, "--csv prints only the grid: leave out --%s",
                               pl_cli_flags()[others[i]].name);
    return PL_ERR_OK;
}

/* The knobs of the advice are knobs of training. */
static pl_err refuse_inference(struct pl_diag *d) {
    pl_diag_set(d, PL_ERR_USAGE,
                "`plan` advises on training; for inference there is only an estimate");
    pl_diag_hint(d, "plimsoll estimate-vram MODEL --mode inference");
    return PL_ERR_USAGE;
}

/* The job as it is given; of the grid alone nothing is said. */
static int status_of(const struct pl_advice *a) {
    if (!a->estimate.planned.plan || !a->q.budget.known) return 0;
    const bool runs = a->largest_batch && pl_question_has_kernels(&a->q);
    return runs ? 0 : pl_err_exit_status(PL_ERR_DOES_NOT_FIT);
}

int pl_cmd_plan(const struct pl_cli *cli) {
    struct pl_inquiry i = {0};
    struct pl_advice a = {0};
    struct pl_lengths lengths = {0};
    struct pl_diag_list all = {0};
    struct pl_diag d = {.all = &all};
    struct asked asked = {0};
    bool holds = false;
    if (pl_plan_diff_asked(cli)) return pl_cmd_plan_diff(cli);
    if (pl_cli_has(cli, PL_FLAG_LONGEST)) return pl_cmd_plan_longest(cli);
    pl_err err = check_flags(cli, &d);
    if (err == PL_ERR_OK) err = read_asked(cli, &asked, &d);
    if (err == PL_ERR_OK) err = pl_estimate_read_inquiry(cli, &i, &d);
    if (err == PL_ERR_OK && i.job.inference) err = refuse_inference(&d);
    if (err == PL_ERR_OK) err = pl_plan_fleet_check(cli, &i.q, &d);
    if (err == PL_ERR_OK && pl_cli_has(cli, PL_FLAG_CSV)) {
        err = answer_csv(cli, &i, &d);
    } else if (err == PL_ERR_OK) {
        err = read_lengths(cli, &i, &lengths, &d);
        if (err == PL_ERR_OK)
            err = pl_decide_levels(&i.q, pl_autobatch_limit(i.q.job), NULL, &i.notes, &d);
        if (err == PL_ERR_OK) err = pl_advice_begin(&a, &i.q, &lengths, asked.samples, &d);
        if (err == PL_ERR_OK) err = answer(cli, &asked, &i, &a, &holds, &d);
    }
    const int status = err != PL_ERR_OK ? pl_estimate_fail(cli, &d) : holds ? 0 : status_of(&a);
    pl_advice_finish(&a);
    pl_lengths_finish(&lengths);
    pl_inquiry_finish(&i);
    return status;
}
