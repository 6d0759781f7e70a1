/* rule_args.c - flags and keys -> inputs of the rule of thumb. */
#include "tools/plimsoll/rule_args.h"

#include "estimator/card/cards.h"
#include "estimator/config/job_text.h"
#include "estimator/config/key_table.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LESSON_BILLIONS 8.0  /* the model of tables unless asked otherwise */
#define LESSON_CARD_GB  15.0 /* a T4, as its users see it */

/* --- what was asked -------------------------------------------------------------------------- */

static const enum pl_cli_flag own_flags[] = {
    PL_FLAG_PARAMS_BILLIONS, PL_FLAG_WEIGHT_PRECISION,
    PL_FLAG_INFERENCE,       PL_FLAG_LORA,
    PL_FLAG_NUM_LAYERS,      PL_FLAG_HIDDEN_DIM,
    PL_FLAG_TRAINED_LAYERS,  PL_FLAG_NO_GRADIENT_CHECKPOINTING,
    PL_FLAG_EFFECTIVE_BATCH,
};

static const char *own_flag(const struct pl_cli *cli) {
    for (size_t i = 0; i < sizeof own_flags / sizeof *own_flags; i++)
        if (pl_cli_has(cli, own_flags[i])) return pl_cli_flags()[own_flags[i]].name;
    return NULL;
}

bool pl_rule_asked(const struct pl_cli *cli) {
    if (pl_cli_has(cli, PL_FLAG_RULE_OF_THUMB) || pl_cli_has(cli, PL_FLAG_TABLE)) return true;
    if (cli->n_args || own_flag(cli) || pl_cli_has(cli, PL_FLAG_CHECKLIST) ||
        pl_cli_has(cli, PL_FLAG_RECEIPT))
        return false;
    for (uint32_t i = 0; i < cli->n_overrides; i++)
        if (strncmp(cli->overrides[i], "vram_budget=", strlen("vram_budget=")) != 0) return false;
    return true;
}

pl_err pl_rule_refuse_misplaced(const struct pl_cli *cli, struct pl_diag *d) {
    char text[PL_FLAG_TEXT];
    const char *own = own_flag(cli);
    if (!own) return PL_ERR_OK;
    pl_diag_set(d, PL_ERR_USAGE, "%s belongs to --rule-of-thumb and --table",
                pl_cli_flag_text(own, text));
    pl_diag_hint(d, "a MODEL has its own value; `plimsoll help keys` lists what can be set");
    return PL_ERR_USAGE;
}

/* --- flags ----------------------------------------------------------------------------------- */

struct number {
    enum pl_cli_flag flag;
    size_t offset; /* offset of a double in struct pl_rule_inputs */
    double low, high;
    bool whole;
};
static const struct number numbers[] = {
    {PL_FLAG_PARAMS_BILLIONS, offsetof(struct pl_rule_inputs, params_billions), 1e-9, 1e6, false},
    {PL_FLAG_NUM_LAYERS, offsetof(struct pl_rule_inputs, num_layers), 1, 1e5, true},
    {PL_FLAG_HIDDEN_DIM, offsetof(struct pl_rule_inputs, hidden_dim), 1, 1e7, true},
    {PL_FLAG_TRAINED_LAYERS, offsetof(struct pl_rule_inputs, trained_layers), 0, 1e5, true},
    {PL_FLAG_EFFECTIVE_BATCH, offsetof(struct pl_rule_inputs, effective_batch), 1, 65536, true},
};

/* --- keys ------------------------------------------------------------------------------------ */

static bool known_key(enum pl_key_id key) {
    static const enum pl_key_id known[] = {
        PL_KEY_batch_size,        PL_KEY_max_seq_length, PL_KEY_lora_r,
        PL_KEY_global_batch_size, PL_KEY_vram_budget,
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i] == key) return true;
    return false;
}

static pl_err refuse_unknown_keys(const struct pl_job *job, struct pl_diag *d) {
    uint32_t n;
    const struct pl_key_info *keys = pl_key_table(&n);
    for (uint32_t i = 0; i < n; i++) {
        if (!job->given[i] || known_key((enum pl_key_id)i)) continue;
        pl_diag_set(d, PL_ERR_USAGE, "no rule of thumb uses `%s`", keys[i].key);
        pl_diag_hint(d, "name a MODEL and leave out --rule-of-thumb: then it is planned");
        return PL_ERR_USAGE;
    }
    return PL_ERR_OK;
}

static pl_err take_keys(const struct pl_job *job, struct pl_rule_question *q, struct pl_diag *d) {
    struct pl_rule_inputs *in = &q->in;
    if (job->given[PL_KEY_batch_size] && job->batch_size == PL_AUTO) {
        pl_diag_set(d, PL_ERR_USAGE, "`batch_size: auto` is planned, and a plan needs a MODEL");
        return PL_ERR_USAGE;
    }
    if (job->given[PL_KEY_batch_size]) in->batch_size = job->batch_size;
    if (job->given[PL_KEY_max_seq_length]) in->seq_length = job->max_seq_length;
    if (job->given[PL_KEY_lora_r]) in->lora_rank = job->lora_r;
    if (job->given[PL_KEY_global_batch_size]) in->effective_batch = job->global_batch_size;
    if (job->given[PL_KEY_vram_budget] && job->vram_budget != PL_AUTO_BYTES) {
        in->vram_gb = (double)job->vram_budget / 1e9;
        q->card_source = "vram_budget";
    }
    return PL_ERR_OK;
}

static pl_err read_keys(const struct pl_cli *cli, struct pl_rule_question *q, struct pl_diag *d) {
    struct pl_job job = {0};
    pl_err err = pl_job_defaults(&job, d);
    for (uint32_t i = 0; err == PL_ERR_OK && i < cli->n_overrides; i++)
        err = pl_job_assign(&job, cli->overrides[i], NULL, d);
    if (err == PL_ERR_OK) err = refuse_unknown_keys(&job, d);
    if (err == PL_ERR_OK) err = take_keys(&job, q, d);
    pl_job_finish(&job);
    return err;
}

/* --- all of it ------------------------------------------------------------------------------- */

/* The tiers are about what is printed on the box. */
static pl_err read_card(const struct pl_cli *cli, struct pl_rule_question *q, struct pl_diag *d) {
    const char *name = cli->flag[PL_FLAG_GPU];
    const struct pl_card *card;
    bool ambiguous;
    if (!name || q->card_source) return PL_ERR_OK;
    PL_TRY(pl_card_require(name, &card, &ambiguous, d));
    q->in.vram_gb = card->nameplate_gb;
    q->card_source = card->name;
    return PL_ERR_OK;
}

static pl_err check_arguments(const struct pl_cli *cli, const struct pl_rule_question *q,
                              struct pl_diag *d) {
    if (cli->n_args) {
        pl_diag_set(d, PL_ERR_USAGE, "--%s takes no MODEL: `%s` can be planned to the byte",
                    q->table ? "table" : "rule-of-thumb", cli->args[0]);
        pl_diag_hint(d, "plimsoll estimate-vram %s --vram-gb 16", cli->args[0]);
        return PL_ERR_USAGE;
    }
    if (pl_cli_has(cli, PL_FLAG_CHECKLIST))
        return pl_diag_set(d, PL_ERR_USAGE, "--checklist is about a job, and needs a MODEL");
    if (pl_cli_has(cli, PL_FLAG_RECEIPT))
        return pl_diag_set(d, PL_ERR_USAGE, "--receipt is about a job, and needs a MODEL");
    if (!q->calculator || pl_cli_has(cli, PL_FLAG_PARAMS_BILLIONS)) return PL_ERR_OK;
    pl_diag_set(d, PL_ERR_USAGE, "--rule-of-thumb needs --params-billions N");
    pl_diag_hint(d, "plimsoll estimate-vram --rule-of-thumb --params-billions 8 "
                    "--weight-precision nf4 --lora");
    return PL_ERR_USAGE;
}

pl_err pl_rule_read_args(const struct pl_cli *cli, struct pl_rule_question *q, struct pl_diag *d) {
    const char *table = cli->flag[PL_FLAG_TABLE], *precision = cli->flag[PL_FLAG_WEIGHT_PRECISION];
    *q = (struct pl_rule_question){.table = table ? pl_rule_table_find(table) : NULL};
    q->calculator = !table && pl_cli_has(cli, PL_FLAG_RULE_OF_THUMB);
    PL_TRY(check_arguments(cli, q, d));
    bool qlora = q->table && q->table->qlora;
    q->in = pl_rule_defaults(LESSON_BILLIONS, precision ? precision : qlora ? "nf4" : "fp16");
    q->in.lora = qlora || pl_cli_has(cli, PL_FLAG_LORA);
    q->in.inference = pl_cli_has(cli, PL_FLAG_INFERENCE);
    q->in.gradient_checkpointing = !pl_cli_has(cli, PL_FLAG_NO_GRADIENT_CHECKPOINTING);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        const struct number *n = &numbers[i];
        double v;
        if (!pl_cli_has(cli, n->flag)) continue;
        PL_TRY(pl_cli_number(cli, n->flag, n->low, n->high, n->whole, &v, d));
        memcpy((char *)&q->in + n->offset, &v, sizeof v);
    }
    PL_TRY(read_keys(cli, q, d));
    PL_TRY(read_card(cli, q, d));
    if (q->table && q->table->card && !q->card_source) q->in.vram_gb = LESSON_CARD_GB;
    return PL_ERR_OK;
}
