#include "tools/plimsoll/cmd_plan.h"

#include "estimator/advice/longest.h"
#include "estimator/base/json_tree.h"
#include "estimator/config/job_values.h"
#include "estimator/inquiry/inquiry.h"
#include "tools/plimsoll/estimate_args.h"

/* Everything that `plan` takes besides the GPU is about another answer. */
static pl_err check_flags(const struct pl_cli *cli, struct pl_diag *d) {
    const struct pl_flag_set own = {true, PL_FLAG_BIT(LONGEST) | PL_FLAG_BIT(GPU)};
    char text[PL_FLAG_TEXT];
    for (int i = 0; i < PL_FLAG_COUNT; i++) {
        if (!pl_cli_has(cli, (enum pl_cli_flag)i) || pl_flag_in(own, i)) continue;
        if (pl_cli_flags()[i].key[0]) continue;
        return pl_diag_set(d, PL_ERR_USAGE, "--longest is an answer of its own: leave out %s",
                           pl_cli_flag_text(pl_cli_flags()[i].name, text));
    }
    return PL_ERR_OK;
}

static pl_err check_question(const struct pl_inquiry *i, struct pl_diag *d) {
    if (i->job.inference) {
        pl_diag_set(d, PL_ERR_USAGE, "`plan` advises on training");
        pl_diag_hint(d, "plimsoll estimate-vram MODEL --mode inference");
        return PL_ERR_USAGE;
    }
    if (i->q.job->devices == PL_AUTO || pl_job_ranks(i->q.job) > 1) {
        pl_diag_set(d, PL_ERR_USAGE, "--longest is about one device");
        pl_diag_hint(d, "leave out `devices`, or ask `plimsoll plan` without --longest");
        return PL_ERR_USAGE;
    }
    if (i->q.budget.known) return PL_ERR_OK;
    pl_diag_set(d, PL_ERR_USAGE, "--longest needs the memory that samples have to fit into");
    pl_diag_hint(d, "name it: --gpu NAME, or --vram SIZE");
    return PL_ERR_USAGE;
}

static pl_err print(const struct pl_cli *cli, struct pl_inquiry *i, const struct pl_longest *l,
                    struct pl_diag *d) {
    struct pl_text text = {0};
    if (pl_longest_is_beyond(l, l->best))
        pl_text_addf(&i->notes,
                     "%u tokens go beyond the %llu positions of the model's config.json\n",
                     l->best->wall.wall, (unsigned long long)l->max_positions);
    if (i->notes.failed) return pl_host_oom(d, "the notes");
    pl_cli_print_notes(cli, &i->notes);
    if (pl_cli_has(cli, PL_FLAG_JSON)) {
        json_t *answer = json_object();
        pl_json_set(&answer, "longest", pl_longest_json(&i->q, l));
        return pl_cli_print_json(answer, d);
    }
    pl_longest_text(&i->q, l, pl_cli_colour(cli, stdout), &text);
    return pl_cli_print_text(&text, d);
}

int pl_cmd_plan_longest(const struct pl_cli *cli) {
    struct pl_inquiry i = {0};
    struct pl_longest longest;
    struct pl_diag_list all = {0};
    struct pl_diag d = {.all = &all};
    pl_err err = check_flags(cli, &d);
    if (err == PL_ERR_OK) err = pl_estimate_read_inquiry(cli, &i, &d);
    if (err == PL_ERR_OK) err = check_question(&i, &d);
    if (err == PL_ERR_OK) err = pl_advice_longest(&i.q, &longest, &d);
    if (err == PL_ERR_OK) err = print(cli, &i, &longest, &d);
    const int status = err != PL_ERR_OK ? pl_estimate_fail(cli, &d) : 0;
    pl_inquiry_finish(&i);
    return status;
}
