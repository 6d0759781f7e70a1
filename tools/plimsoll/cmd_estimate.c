/* cmd_estimate.c - `plimsoll estimate-vram`, `plimsoll inspect`: questions that open no device. */
#include "tools/plimsoll/cli.h"

#include "estimator/inquiry/receipt.h"
#include "estimator/base/json_tree.h"
#include "estimator/inquiry/answer.h"
#include "estimator/inquiry/inquiry.h"
#include "oom_recovery/checklist.h"
#include "runtime/admit/device_choice.h"
#include "runtime/admit/rank_count.h"
#include "tools/plimsoll/estimate_args.h"
#include "tools/plimsoll/rule_args.h"

#include <stdlib.h>
#include <string.h>

/* The device of the training decides the kernels' scratch and the context. A question about a GPU
 * is answered without one; only `auto` looks for one in this machine. */
static void choose_device(struct pl_inquiry *i) {
    struct pl_gpu gpu;
    struct pl_context context = {0};
    if (pl_device_decide(&i->job, NULL, &i->spec.facts.device, &gpu, NULL) != PL_ERR_OK) {
        gpu = (struct pl_gpu){.sm = PL_CARD_DEFAULT_SM};
        pl_text_addf(&i->notes, "no GPU answers: planned for compute capability %d.%d\n",
                     PL_CARD_DEFAULT_SM / 10, PL_CARD_DEFAULT_SM % 10);
    }
    if (!pl_device_is_cuda(i->spec.facts.device)) {
        i->q.traits = pl_traits_cpu(i->job.threads ? i->job.threads : pl_cpu_count());
        return;
    }
    i->q.traits = pl_traits_cuda(gpu.sm);
    pl_context_predict(&gpu, &context);
    i->q.budget.context_bytes = context.bytes;
    i->q.budget.doubt_bytes = context.doubt_bytes;
}

pl_err pl_estimate_read_inquiry(const struct pl_cli *cli, struct pl_inquiry *i, struct pl_diag *d) {
    char *config = NULL;
    PL_TRY(pl_estimate_read_args(cli, &i->job, &config, &i->notes, d));
    pl_err err = pl_model_read(config, &i->model, d);
    free(config);
    if (err != PL_ERR_OK) return err;
    const bool any_gpu = i->job.device == PL_DEVICE_AUTO && pl_inquiry_means_gpu(&i->job);
    if (any_gpu || pl_cli_has(cli, PL_FLAG_GPU))
        return pl_inquiry_aim(i, cli->flag[PL_FLAG_GPU], d);
    pl_spec_init(&i->spec, &i->job);
    if (i->job.devices == PL_AUTO)
        PL_TRY(pl_rank_count_decide(&i->job, &i->model, &i->spec.facts.devices, &i->notes, d));
    choose_device(i);
    pl_resolve(&i->spec);
    pl_inquiry_open(i);
    return PL_ERR_OK;
}

static json_t *lines_json(const char *lines) {
    json_t *list = json_array();
    for (size_t n; *lines; lines += n + (lines[n] == '\n')) {
        n = strcspn(lines, "\n");
        pl_json_append(&list, json_stringn(lines, n));
    }
    return list;
}

static json_t *answer_json(const struct pl_inquiry *i, const struct pl_estimate *e,
                           const struct pl_text *checklist) {
    if (i->notes.failed || checklist->failed) return NULL;
    json_t *o = pl_answer_json(e, pl_text_str(&i->notes));
    if (checklist->len) pl_json_set(&o, "checklist", lines_json(pl_text_str(checklist)));
    return o;
}

static pl_err write_receipt(const char *path, const struct pl_estimate *e,
                            const struct pl_text *notes, struct pl_diag *d) {
    struct pl_text text = {0};
    pl_receipt_write(e, notes, NULL, &text);
    pl_err err = pl_cli_write_file(path, &text, d);
    pl_text_finish(&text);
    return err;
}

static pl_err answer(const struct pl_cli *cli, struct pl_inquiry *i, const struct pl_estimate *e,
                     struct pl_diag *d) {
    struct pl_text checklist = {0};
    pl_err err = PL_ERR_OK;
    if (pl_cli_has(cli, PL_FLAG_RECEIPT))
        PL_TRY(write_receipt(cli->flag[PL_FLAG_RECEIPT], e, &i->notes, d));
    if (pl_cli_has(cli, PL_FLAG_CHECKLIST))
        pl_job_checklist(e->planned.plan, &e->q->budget, &checklist);
    if (pl_cli_has(cli, PL_FLAG_JSON)) {
        err = pl_cli_print_json(answer_json(i, e, &checklist), d);
    } else {
        pl_cli_print_notes(cli, &i->notes);
        err = pl_cli_print_estimate(cli, e, stdout, d);
        if (err == PL_ERR_OK) err = pl_cli_print_text(&checklist, d);
    }
    pl_text_finish(&checklist);
    return err;
}

int pl_estimate_fail(const struct pl_cli *cli, const struct pl_diag *d) {
    const char *verdict = pl_verdict_name(PL_VERDICT_UNKNOWN);
    if (d->err != PL_ERR_MODEL_UNSUPPORTED) return pl_cli_fail(cli, d);
    if (!pl_cli_has(cli, PL_FLAG_JSON)) printf("verdict: %s - %s\n", verdict, d->message);
    (void)pl_cli_fail_with(cli, d, json_pack("{s:s, s:n}", "verdict", verdict, "fits"));
    return pl_inquiry_exit_status(d->err);
}

static int status_of(const struct pl_cli *cli, const struct pl_estimate *e) {
    struct pl_text why = {0};
    if (e->verdict.kind == PL_VERDICT_NO) return pl_err_exit_status(PL_ERR_DOES_NOT_FIT);
    if (e->verdict.kind != PL_VERDICT_TIGHT) return 0;
    pl_gate_add_tight(&e->verdict, e->q, &why);
    pl_cli_warn(cli, "tight: %s", pl_text_str(&why));
    pl_text_finish(&why);
    return 0;
}

int pl_cmd_estimate(const struct pl_cli *cli) {
    struct pl_inquiry i = {0};
    struct pl_estimate e = {0};
    struct pl_diag_list all = {0};
    struct pl_diag d = {.all = &all};
    int status = 0;
    if (pl_rule_asked(cli)) return pl_cmd_rule(cli);
    pl_err err = pl_rule_refuse_misplaced(cli, &d);
    if (err == PL_ERR_OK) err = pl_estimate_read_inquiry(cli, &i, &d);
    if (err == PL_ERR_OK) err = pl_inquiry_decide(&i, &d);
    if (err == PL_ERR_OK) err = pl_inquiry_answer(&i, &e, &d);
    if (err == PL_ERR_OK) err = answer(cli, &i, &e, &d);
    status = err == PL_ERR_OK ? status_of(cli, &e) : pl_estimate_fail(cli, &d);
    pl_estimate_finish(&e);
    pl_inquiry_finish(&i);
    return status;
}

static pl_err print_program(const struct pl_cli *cli, const struct pl_inquiry *i,
                            const struct pl_plan *plan, struct pl_diag *d) {
    struct pl_text text = {0};
    pl_plan_print(plan, &text);
    if (!pl_cli_has(cli, PL_FLAG_JSON)) {
        pl_cli_print_notes(cli, &i->notes);
        return pl_cli_print_text(&text, d);
    }
    json_t *o = text.failed || i->notes.failed
                    ? NULL
                    : json_pack("{s:o, s:o}", "program", lines_json(pl_text_str(&text)), "notes",
                                lines_json(pl_text_str(&i->notes)));
    pl_text_finish(&text);
    return pl_cli_print_json(o, d);
}

int pl_cmd_inspect(const struct pl_cli *cli) {
    struct pl_inquiry i = {0};
    struct pl_planned planned = {0};
    struct pl_diag_list all = {0};
    struct pl_diag d = {.all = &all};
    pl_err err = pl_estimate_read_inquiry(cli, &i, &d);
    if (err == PL_ERR_OK) err = pl_inquiry_decide(&i, &d);
    if (err == PL_ERR_OK) err = pl_question_plan(&i.q, &i.search.planned, &planned, &d);
    if (err == PL_ERR_OK) err = pl_plan_check(planned.plan, &d);
    if (err == PL_ERR_OK) err = print_program(cli, &i, planned.plan, &d);
    int status = err == PL_ERR_OK ? 0 : pl_cli_fail(cli, &d);
    pl_planned_finish(&planned);
    pl_inquiry_finish(&i);
    return status;
}
