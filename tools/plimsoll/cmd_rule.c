/* cmd_rule.c - `plimsoll estimate-vram` without a model. */
#include "tools/plimsoll/cmd_rule.h"

#include "estimator/base/json_tree.h"
#include "runtime/device/cuda/nvml.h"
#include "tools/plimsoll/rule_args.h"

#include <string.h>

#define EDITIONS_NOTE                                                                              \
    "the published listing does not return the output shown with it; the parts follow that output"
#define NOTE_TEXT 192

/* Where LoRA's adapters are counted: the one part of which neither edition shows its layers. */
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

static json_t *real_or_null(double v, bool known) {
    return known ? json_real(v) : json_null();
}

static int status_of(enum pl_rule_fit fit, bool asked) {
    return asked && fit == PL_RULE_NO ? pl_err_exit_status(PL_ERR_DOES_NOT_FIT) : 0;
}

/* --- the calculator -------------------------------------------------------------------------- */

static json_t *inputs_json(const struct pl_rule_inputs *in) {
    return json_pack("{s:f, s:s, s:b, s:b, s:b, s:f, s:f, s:f, s:f, s:f}", "params_billions",
                     in->params_billions, "weight_precision", in->precision->name, "training",
                     (int)!in->inference, "lora", (int)in->lora, "gradient_checkpointing",
                     (int)in->gradient_checkpointing, "lora_rank", in->lora_rank, "batch_size",
                     in->batch_size, "seq_length", in->seq_length, "num_layers", in->num_layers,
                     "hidden_dim", in->hidden_dim);
}

static json_t *calculator_json(const struct pl_rule_question *q, const struct pl_rule_bill *shown,
                               const struct pl_rule_bill *listed, enum pl_rule_fit fit) {
    bool known = q->card_source != NULL;
    json_t *o = pl_rule_bill_json(shown);
    json_t *rest =
        json_pack("{s:o, s:o, s:o, s:s, s:o, s:b, s:o}", "listing", pl_rule_bill_json(listed),
                  "inputs", inputs_json(&q->in), "vram_gb", real_or_null(q->in.vram_gb, known),
                  "verdict", known ? pl_rule_fit_name(fit) : "unknown", "fits",
                  known ? json_boolean(fit != PL_RULE_NO) : json_null(), "approximate", 1, "notes",
                  notes_json(&q->in));
    pl_json_merge(&o, rest);
    json_decref(rest);
    return o;
}

static void print_bill(const struct pl_rule_inputs *in, const struct pl_rule_bill *shown,
                       const struct pl_rule_bill *listed) {
    char adapters[NOTE_TEXT];
    const struct {
        const char *name;
        double shown, listed;
        bool training;
    } rows[] = {{"weights", shown->weights, listed->weights, false},
                {"gradients", shown->gradients, listed->gradients, true},
                {"optimizer", shown->optimizer, listed->optimizer, true},
                {"activations", shown->activations, listed->activations, true},
                {"overhead", shown->overhead, listed->overhead, false},
                {"total", shown->total, listed->total, false}};
    printf("  %-12s %10s %12s\n", "", "GB", "as listed");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (!rows[i].training || !shown->inference)
            printf("  %-12s %10.2f %12.2f\n", rows[i].name, rows[i].shown, rows[i].listed);
    if (!shown->inference) puts("  note: " EDITIONS_NOTE);
    if (adapter_note(in, adapters)) printf("  note: %s\n", adapters);
}

static pl_err answer_calculator(const struct pl_cli *cli, const struct pl_rule_question *q,
                                int *status, struct pl_diag *d) {
    struct pl_rule_bill shown = pl_rule_estimate(&q->in, PL_RULE_SHOWN);
    struct pl_rule_bill listed = pl_rule_estimate(&q->in, PL_RULE_LISTED);
    enum pl_rule_fit fit = pl_rule_fit(shown.total, q->in.vram_gb);
    *status = status_of(fit, q->card_source != NULL);
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
    struct pl_rule_table table;
    struct pl_text text = {0};
    pl_rule_table_fill(q->table, &q->in, &table);
    if (pl_cli_has(cli, PL_FLAG_JSON)) return pl_cli_print_json(pl_rule_table_json(&table), d);
    pl_rule_table_text(&table, &text);
    return pl_cli_print_text(&text, d);
}

/* --- tiers ----------------------------------------------------------------------------------- */

/* Without --gpu or a size the question is about the GPU of this machine. */
static void ask_machine(struct pl_rule_question *q, struct pl_gpu *gpu, struct pl_text *notes) {
    struct pl_diag d = {0};
    if (q->card_source) return;
    if (pl_nvml_query(0, gpu, &d) == PL_ERR_OK) {
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
    bool known = q->card_source != NULL;
    json_t *notes = json_array();
    if (note[0]) pl_json_append(&notes, json_stringn(note, strcspn(note, "\n")));
    return json_pack("{s:o, s:o, s:o, s:o, s:b, s:o}", "recommended_batch_size",
                     known ? json_integer(pl_rule_tier_batch(q->in.vram_gb)) : json_null(),
                     "vram_gb", real_or_null(q->in.vram_gb, known), "detected_via",
                     known ? pl_cli_json_string(q->card_source) : json_null(), "tiers",
                     tiers_json(), "approximate", 1, "notes", notes);
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
