/* cmd_estimate.c - `plimsoll estimate-vram`, `plimsoll inspect`: questions that open no device. */
#include "tools/cli.h"

#include "estimator/api/answer.h"
#include "estimator/api/question.h"
#include "estimator/base/json_tree.h"
#include "oom_recovery/checklist.h"
#include "runtime/train/context.h"
#include "tools/cmd_rule.h"
#include "tools/estimate_args.h"
#include "tools/rule_args.h"

#include <stdlib.h>
#include <string.h>

/* What training would run on decides the kernels' scratch and the context. A question about a GPU
 * is answered without one; only `auto` asks what this machine has. */
static void choose_device(struct pl_question *q) {
    struct pl_gpu gpu;
    struct pl_context context = {0};
    if (pl_device_decide(&q->job, &gpu, NULL) != PL_ERR_OK) {
        gpu = (struct pl_gpu){.sm = PL_CARD_DEFAULT_SM};
        pl_text_addf(&q->notes, "no GPU answers: planned for compute capability %d.%d\n",
                     PL_CARD_DEFAULT_SM / 10, PL_CARD_DEFAULT_SM % 10);
    }
    if (!pl_device_is_cuda(q->job.device)) {
        q->traits = pl_traits_cpu(q->job.threads ? q->job.threads : pl_cpu_count());
        return;
    }
    q->traits = pl_traits_cuda(gpu.sm);
    pl_context_predict(&gpu, &context);
    q->budget.context_bytes = context.bytes;
    q->budget.doubt_bytes = context.doubt_bytes;
}

pl_err pl_estimate_read_question(const struct pl_cli *cli, struct pl_question *q,
                                 struct pl_diag *d) {
    char *config = NULL;
    PL_TRY(pl_estimate_read_args(cli, &q->job, &config, &q->notes, d));
    pl_err err = pl_model_read(config, &q->model, d);
    free(config);
    if (err != PL_ERR_OK) return err;
    if (pl_cli_has(cli, PL_FLAG_GPU)) return pl_question_aim(q, cli->flag[PL_FLAG_GPU], d);
    choose_device(q);
    pl_question_limit(q);
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

static json_t *answer_json(const struct pl_question *q, const struct pl_estimate *e,
                           const struct pl_text *checklist) {
    if (q->notes.failed || checklist->failed) return NULL;
    json_t *o = pl_answer_json(e, pl_text_str(&q->notes));
    if (checklist->len) pl_json_set(&o, "checklist", lines_json(pl_text_str(checklist)));
    return o;
}

static pl_err answer(const struct pl_cli *cli, struct pl_question *q, const struct pl_estimate *e,
                     struct pl_diag *d) {
    struct pl_text checklist = {0};
    pl_err err = PL_ERR_OK;
    if (pl_cli_has(cli, PL_FLAG_CHECKLIST))
        pl_job_checklist(e->planned.plan, &e->budget, &checklist);
    if (pl_cli_has(cli, PL_FLAG_JSON)) {
        err = pl_cli_print_json(answer_json(q, e, &checklist), d);
    } else {
        pl_cli_print_notes(cli, &q->notes);
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
    return pl_question_exit_status(d->err);
}

static int status_of(const struct pl_cli *cli, const struct pl_estimate *e) {
    if (e->verdict.kind == PL_VERDICT_NO) return pl_err_exit_status(PL_ERR_DOES_NOT_FIT);
    if (e->verdict.kind == PL_VERDICT_TIGHT)
        pl_cli_warn(cli,
                    "tight: it is inside the margin, or inside what the context may differ by");
    return 0;
}

int pl_cmd_estimate(const struct pl_cli *cli) {
    struct pl_question q = {0};
    struct pl_estimate e = {0};
    struct pl_diag d = {0};
    int status = 0;
    if (pl_rule_asked(cli)) return pl_cmd_rule(cli);
    pl_err err = pl_rule_refuse_misplaced(cli, &d);
    if (err == PL_ERR_OK) err = pl_estimate_read_question(cli, &q, &d);
    if (err == PL_ERR_OK) err = pl_question_choose_batch(&q, &d);
    if (err == PL_ERR_OK) err = pl_question_answer(&q, &e, &d);
    if (err == PL_ERR_OK) err = answer(cli, &q, &e, &d);
    status = err == PL_ERR_OK ? status_of(cli, &e) : pl_estimate_fail(cli, &d);
    pl_estimate_finish(&e);
    pl_question_finish(&q);
    return status;
}

static pl_err print_program(const struct pl_cli *cli, const struct pl_question *q,
                            const struct pl_plan *plan, struct pl_diag *d) {
    struct pl_text text = {0};
    pl_plan_print(plan, &text);
    if (!pl_cli_has(cli, PL_FLAG_JSON)) {
        pl_cli_print_notes(cli, &q->notes);
        return pl_cli_print_text(&text, d);
    }
    json_t *o = text.failed || q->notes.failed
                    ? NULL
                    : json_pack("{s:o, s:o}", "program", lines_json(pl_text_str(&text)), "notes",
                                lines_json(pl_text_str(&q->notes)));
    pl_text_finish(&text);
    return pl_cli_print_json(o, d);
}

int pl_cmd_inspect(const struct pl_cli *cli) {
    struct pl_question q = {0};
    struct pl_planned planned = {0};
    struct pl_diag d = {0};
    pl_err err = pl_estimate_read_question(cli, &q, &d);
    if (err == PL_ERR_OK) err = pl_question_choose_batch(&q, &d);
    if (err == PL_ERR_OK) err = pl_question_plan(&q, &planned, &d);
    if (err == PL_ERR_OK) err = pl_plan_check(planned.plan, &d);
    if (err == PL_ERR_OK) err = print_program(cli, &q, planned.plan, &d);
    int status = err == PL_ERR_OK ? 0 : pl_cli_fail(cli, &d);
    pl_planned_finish(&planned);
    pl_question_finish(&q);
    return status;
}
