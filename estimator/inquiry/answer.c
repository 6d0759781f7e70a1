/* answer.c - what stands beside a plan in the JSON answer. */
#include "estimator/inquiry/answer.h"

#include "estimator/base/json_tree.h"
#include "estimator/rule_of_thumb/rule.h"

/* The formula as listed, fed with what the job and the model say. */
static json_t *quick_json(const struct pl_estimate *e) {
    const struct pl_job *job = e->q->job;
    const char *precision = job->mode == PL_MODE_QLORA        ? "nf4"
                            : job->dtype == PL_JOB_DTYPE_FP32 ? "fp32"
                                                              : "bf16";
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
    json_t *o = pl_rule_bill_json(&bill);
    pl_json_set(&o, "approximate", json_true());
    return o;
}

json_t *pl_answer_complete(json_t *answer, const struct pl_estimate *e) {
    pl_err refusal = pl_gate_error(&e->verdict, e->q, NULL);
    json_t *code = refusal == PL_ERR_OK ? json_null() : json_string(pl_err_code(refusal));
    pl_json_set(&answer, "quick", quick_json(e));
    pl_json_set(&answer, "refusal", code);
    return answer;
}

json_t *pl_answer_json(const struct pl_estimate *e, const char *notes) {
    return pl_answer_complete(pl_estimate_json(e, notes), e);
}
