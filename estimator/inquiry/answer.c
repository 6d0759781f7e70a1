/* answer.c - the rows that an answer has in addition to those of the plan. */
#include "estimator/inquiry/answer.h"

#include "estimator/base/json_tree.h"
#include "estimator/rule_of_thumb/rule.h"

/* The formula as listed, fed with what the job and the model say. */
static void report_quick(const struct pl_estimate *e, struct pl_report *r) {
    const struct pl_job *job = e->q->job;
    const char *precision =
        job->mode == PL_MODE_QLORA ? "nf4" : pl_dtype_name(e->planned.program->shape.dtype);
    struct pl_rule_inputs in = pl_rule_defaults((double)e->param_count / 1e9, precision);
    in.inference = job->inference;
    in.lora = pl_mode_adapts(job->mode) && !job->inference;
    in.gradient_checkpointing = pl_question_level(e->q) != PL_RECOMPUTE_NONE;
    in.lora_rank = job->lora_r;
    in.batch_size = e->q->batch_size;
    in.seq_length = job->max_seq_length;
    in.num_layers = e->q->model->layers;
    in.hidden_dim = e->q->model->hidden;
    struct pl_rule_bill bill = pl_rule_estimate(&in, PL_RULE_LISTED);
    pl_report_open(r, "quick");
    pl_rule_bill_report(&bill, r);
    pl_report_truth(r, "approximate", true);
    pl_report_open(r, NULL);
}

static void report_rest(const struct pl_estimate *e, struct pl_report *r) {
    const pl_err refusal = pl_gate_error(&e->verdict, e->q, NULL);
    report_quick(e, r);
    pl_report_word(r, "refusal", refusal == PL_ERR_OK ? NULL : pl_err_code(refusal));
}

void pl_answer_report(const struct pl_estimate *e, const char *notes, struct pl_report *r) {
    pl_estimate_report(e, notes, r);
    report_rest(e, r);
}

json_t *pl_answer_complete(json_t *answer, const struct pl_estimate *e) {
    struct pl_report r = {0};
    report_rest(e, &r);
    json_t *rest = pl_report_end(&r);
    pl_json_merge(&answer, rest);
    json_decref(rest);
    return answer;
}

json_t *pl_answer_json(const struct pl_estimate *e, const char *notes) {
    struct pl_report r = {0};
    pl_answer_report(e, notes, &r);
    return pl_report_end(&r);
}
