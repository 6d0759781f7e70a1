/* cmd_rule.c - `plimsoll estimate-vram` without a model. */
#include "tools/plimsoll/rule_args.h"

#include "estimator/base/json_tree.h"
#include "runtime/device/cuda/gpu_query.h"

#include <string.h>

#define EDITIONS_NOTE                                                                              \
    "the published listing does not return the output shown with it; the parts follow that output"
#define NOTE_TEXT 192

/* Says how many layers of LoRA's adapters are counted, which neither edition shows. */
static bool adapter_note(const struct pl_rule_inputs *in, char out[NOTE_TEXT]) {
    snprintf(out, NOTE_TEXT,
             "gradients and optimizer count the adapters of %g layer, as that output does; the "
             "listing counts all %g layers",
             pl_rule_adapter_layers(in, PL_RULE_SHOWN), pl_rule_adapter_layers(in, PL_RULE_LISTED));
    return in->lora && !in->inference;
}

static json_t *notes_json(const struct pl_rule_inputs *in) {
    char adapters[NOTE_TEXT];
    json_t *notes = json_array();
    if (!in->inference) pl_json_append(&notes, json_string(EDITIONS_NOTE));
    if (adapter_note(in, adapters)) pl_json_append(&notes, json_string(adapters));
    return notes;
}

/* --- the calculator -------------------------------------------------------------------------- */

static void report_inputs(const struct pl_rule_inputs *in, struct pl_report *r) {
    pl_report_open(r, "inputs");
    pl_report_real(r, "params_billions", in->params_billions);
    pl_report_word(r, "weight_precision", in->precision->name);
    pl_report_truth(r, "training", !in->inference);
    pl_report_truth(r, "lora", in->lora);
    pl_report_truth(r, "gradient_checkpointing", in->gradient_checkpointing);
    pl_report_real(r, "lora_rank", in->lora_rank);
    pl_report_real(r, "batch_size", in->batch_size);
    pl_report_real(r, "seq_length", in->seq_length);
    pl_report_real(r, "num_layers", in->num_layers);
    pl_report_real(r, "hidden_dim", in->hidden_dim);
    pl_report_open(r, NULL);
}

static json_t *calculator_json(const struct pl_rule_question *q, const struct pl_rule_bill *shown,
                               const struct pl_rule_bill *listed, enum pl_rule_fit fit) {
    const bool known = q->card_source != NULL;
    struct pl_report r = {0};
    pl_rule_bill_report(shown, &r);
    pl_report_open(&r, "listing");
    pl_rule_bill_report(listed, &r);
    report_inputs(&q->in, &r);
    pl_report_real(&r, "vram_gb", q->in.vram_gb);
    pl_report_known(&r, known);
    pl_report_word(&r, "verdict", known ? pl_rule_fit_name(fit) : "unknown");
    pl_report_truth(&r, "fits", fit != PL_RULE_NO);
    pl_report_known(&r, known);
    pl_report_truth(&r, "approximate", true);
    pl_report_tree(&r, "notes", notes_json(&q->in));
    return pl_report_end(&r);
}

static void print_bill(const struct pl_rule_inputs *in, const struct pl_rule_bill *shown,
                       const struct pl_rule_bill *listed) {
    char adapters[NOTE_TEXT];
    struct pl_report left = {0}, right = {0};
    pl_rule_bill_report(shown, &left);
    pl_rule_bill_report(listed, &right);
    printf("  %-12s %10s %12s\n", "", "GB", "as listed");
    for (uint32_t i = 0; i < left.n_rows && i < right.n_rows; i++)
        printf("  %-12s %10.2f %12.2f\n", left.rows[i].name, left.rows[i].is.real,
               right.rows[i].is.real);
    pl_report_finish(&left);
    pl_report_finish(&right);
    if (!shown->inference) puts("  note: " EDITIONS_NOTE);
    if (adapter_note(in, adapters)) printf("  note: %s\n", adapters);
}

static pl_err answer_calculator(const struct pl_cli *cli, const struct pl_rule_question *q,
                                int *status, struct pl_diag *d) {
    struct pl_rule_bill shown = pl_rule_estimate(&q->in, PL_RULE_SHOWN);
    struct pl_rule_bill listed = pl_rule_estimate(&q->in, PL_RULE_LISTED);
    enum pl_rule_fit fit = pl_rule_fit(shown.total, q->in.vram_gb);
    *status = q->card_source && fit == PL_RULE_NO ? pl_err_exit_status(PL_ERR_DOES_NOT_FIT) : 0;
    if (pl_cli_has(cli, PL_FLAG_JSON))
        return pl_cli_print_json(calculator_json(q, &shown, &listed, fit), d);
    printf("VRAM by rule of thumb (%s, %gB params, %s, batch=%g, seq=%g): total=%.2fGB, "
           "approximate\n",
           q->in.inference ? "inference"
           : q->in.lora    ? "lora"
                           : "full",
           q->in.params_billions, q->in.precision->label, q->in.batch_size, q->in.seq_length,
           shown.total);
    print_bill(&q->in, &shown, &listed);
    if (q->card_source) printf("  verdict: %s - %g GB\n", pl_rule_fit_name(fit), q->in.vram_gb);
    return PL_ERR_OK;
}

/* --- tables ---------------------------------------------------------------------------------- */

static pl_err answer_table(const struct pl_cli *cli, const struct pl_rule_question *q,
                           struct pl_diag *d) {
    struct pl_text text = {0};
    if (pl_cli_has(cli, PL_FLAG_JSON))
        return pl_cli_print_json(pl_rule_table_json(q->table, &q->in), d);
    pl_rule_table_text(q->table, &q->in, &text);
    return pl_cli_print_text(&text, d);
}

/* --- tiers ----------------------------------------------------------------------------------- */

/* Reads the GPU of this machine, unless --gpu or a size is given. */
static void ask_machine(struct pl_rule_question *q, struct pl_gpu *gpu, struct pl_text *notes) {
    struct pl_diag d = {0};
    if (q->card_source) return;
    if (pl_gpu_query(&pl_device_cuda, 0, gpu, &d) == PL_ERR_OK) {
        q->in.vram_gb = (double)gpu->total_bytes / 1e9;
        q->card_source = gpu->name;
    } else {
        pl_text_addf(notes, "no local GPU: %s\n", d.message);
    }
}

static json_t *tiers_json(void) {
    size_t n;
    const struct pl_rule_tier *tiers = pl_rule_tiers(&n);
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++)
        pl_json_append(&list, json_pack("{s:f, s:i}", "vram_min_gb", tiers[i].vram_gb, "batch_size",
                                        (int)tiers[i].batch_size));
    return list;
}

static json_t *tier_answer_json(const struct pl_rule_question *q, const char *note) {
    const bool known = q->card_source != NULL;
    struct pl_report r = {0};
    json_t *notes = json_array();
    if (note[0]) pl_json_append(&notes, json_stringn(note, strcspn(note, "\n")));
    pl_report_count(&r, "recommended_batch_size", pl_rule_tier_batch(q->in.vram_gb));
    pl_report_known(&r, known);
    pl_report_real(&r, "vram_gb", q->in.vram_gb);
    pl_report_known(&r, known);
    pl_report_tree(&r, "detected_via", known ? pl_cli_json_string(q->card_source) : json_null());
    pl_report_tree(&r, "tiers", tiers_json());
    pl_report_truth(&r, "approximate", true);
    pl_report_tree(&r, "notes", notes);
    return pl_report_end(&r);
}

static pl_err answer_tier(const struct pl_cli *cli, struct pl_rule_question *q, struct pl_diag *d) {
    struct pl_gpu gpu = {0};
    struct pl_text notes = {0};
    pl_err err = PL_ERR_OK;
    ask_machine(q, &gpu, &notes);
    if (pl_cli_has(cli, PL_FLAG_JSON)) {
        err = pl_cli_print_json(tier_answer_json(q, pl_text_str(&notes)), d);
        goto out;
    }
    pl_cli_print_notes(cli, &notes);
    if (q->card_source)
        printf("recommended batch size: %u - %s, %.1f GB, approximate\n",
               pl_rule_tier_batch(q->in.vram_gb), q->card_source, q->in.vram_gb);
    q->table = pl_rule_table_find("tiers");
    err = answer_table(cli, q, d);
out:
    pl_text_finish(&notes);
    return err;
}

int pl_cmd_rule(const struct pl_cli *cli) {
    struct pl_rule_question q;
    struct pl_diag d = {0};
    int status = 0;
    pl_err err = pl_rule_read_args(cli, &q, &d);
    if (err == PL_ERR_OK)
        err = q.table        ? answer_table(cli, &q, &d)
              : q.calculator ? answer_calculator(cli, &q, &status, &d)
                             : answer_tier(cli, &q, &d);
    return err == PL_ERR_OK ? status : pl_cli_fail(cli, &d);
}
