/* preferences.c - training on preferences in the configurations of TRL, and what the trainers that
 * stand on TRL share. Names and defaults are those of trl/trainer/dpo_config.py and kto_config.py
 * and of trl/experimental/orpo and cpo of TRL 1.16; keys that older releases had are read, too. */
#include "estimator/import/dialect.h"

#include "estimator/config/job_values.h"

#include <string.h>

/* ---- losses ---- */

static const struct loss {
    const char *word, *stage;
    const char *ours; /* `preference_loss`; "": the stage says it; NULL: not supported */
} losses[] = {
    {"sigmoid", "dpo", "sigmoid"},
    {"hinge", "dpo", "hinge"},
    {"ipo", "dpo", "ipo"},
    {"robust", "dpo", "robust"},
    {"sigmoid_norm", "dpo", "sigmoid_norm"},
    {"exo_pair", "dpo", "exo_pair"},
    {"nca_pair", "dpo", "nca_pair"},
    {"apo_zero", "dpo", "apo_zero"},
    {"apo_down", "dpo", "apo_down"},
    {"sppo_hard", "dpo", "sppo_hard"},
    {"bco_pair", "dpo", "bco_pair"},
    {"aot", "dpo", NULL},
    {"aot_pair", "dpo", NULL},
    {"aot_unpaired", "dpo", NULL},
    {"discopop", "dpo", NULL},
    {"kto_pair", "dpo", NULL},
    {"simpo", "simpo", ""},
    {"alphapo", "simpo", NULL},
    {"kto", "kto", ""},
    {"apo_zero_unpaired", "kto", NULL},
};

static const struct loss *find_loss(const char *word) {
    for (size_t i = 0; i < sizeof losses / sizeof *losses; i++)
        if (strcmp(losses[i].word, word) == 0) return &losses[i];
    return NULL;
}

/* Returns the value of item `i` of a list, or the value itself where it is no list; NULL: there are
 * fewer. */
static const struct pl_node *item_of(const struct pl_import *im, const struct pl_node *value,
                                     uint32_t i) {
    uint32_t at = 0;
    const struct pl_node *item = i ? NULL : value;
    if (value->kind != PL_NODE_SEQUENCE) return item;
    do
        item = pl_import_next(im, value, &at);
    while (item && i--);
    return item;
}

/* Returns the first loss of a list that is one of preferences, NULL: none is. */
static const struct loss *loss_in(const struct pl_import *im, const struct pl_node *value) {
    const struct loss *loss = find_loss(pl_node_text(value));
    uint32_t i = 0;
    if (value->kind != PL_NODE_SEQUENCE) return loss;
    for (const struct pl_node *item; !loss && (item = pl_import_next(im, value, &i));)
        loss = find_loss(pl_node_text(item));
    return loss;
}

static void set_loss(struct pl_import *im, const struct pl_taken *t, const char *word) {
    const struct loss *loss = find_loss(word);
    if (!loss || !loss->ours)
        pl_import_miss(im, t, "the loss `%.40s`: not supported", word);
    else if (*loss->ours)
        pl_import_set(im, PL_KEY_preference_loss, loss->ours, t, NULL);
    else
        pl_import_inert(im, t, "`stage` says it");
}

/* A loss together with the supervised one is `sft_weight`, if the loss itself has the weight 1. */
static void set_two_losses(struct pl_import *im, const struct pl_taken *t,
                           const struct pl_taken *weights, uint32_t sft) {
    const struct pl_node *of_loss = weights ? item_of(im, weights->value, !sft) : NULL;
    const struct pl_node *of_sft = weights ? item_of(im, weights->value, sft) : NULL;
    double v = 1;
    if (weights && !(of_loss && of_sft && pl_node_number(of_loss, &v) && v == 1)) {
        pl_import_miss(im, weights, "a weight of the loss other than 1: not supported");
        return;
    }
    set_loss(im, t, pl_node_text(item_of(im, t->value, !sft)));
    pl_import_set(im, PL_KEY_sft_weight, of_sft ? pl_node_text(of_sft) : "1", weights ? weights : t,
                  "the loss `sft`");
}

void pl_import_losses(struct pl_import *im, const struct pl_taken *t,
                      const struct pl_taken *weights) {
    const struct pl_node *first = item_of(im, t->value, 0), *second = item_of(im, t->value, 1);
    const bool sft_first = strcmp(pl_node_text(first), "sft") == 0;
    const bool sft_second = second && strcmp(pl_node_text(second), "sft") == 0;
    if (first && !second) {
        set_loss(im, t, pl_node_text(first));
        if (weights) pl_import_miss(im, weights, "a weight of a single loss: not supported");
    } else if (second && !item_of(im, t->value, 2) && sft_first != sft_second) {
        set_two_losses(im, t, weights, sft_second);
    } else {
        pl_import_miss(im, t, "several losses together: not supported");
        if (weights) pl_import_inert(im, weights, "weights of these losses");
    }
}

/* ---- what the others share ---- */

const struct pl_word pl_words_precompute[] = {
    {"true", "true", NULL},
    {"false", "", "`auto` computes them before the first step only where no copy is held"},
    PL_WORDS_END,
};

/* Under `sigmoid` label smoothing is cDPO, which newer releases of TRL do not compute. */
void pl_rule_smoothing(struct pl_import *im, const char *paths, bool versions_differ) {
    struct pl_taken t;
    if (im->job.stage != PL_STAGE_DPO || !(im->job.label_smoothing > 0) ||
        !pl_import_peek(im, paths, &t))
        return;
    const uint32_t loss = im->job.preference_loss;
    if (loss == PL_DPO_LOSS_SIGMOID) {
        pl_import_set(im, PL_KEY_preference_loss, "cdpo", &t, "`sigmoid` with label smoothing");
        if (versions_differ)
            pl_import_miss(im, &t,
                           "cDPO in older releases of TRL; 1.16 passes over it: write "
                           "`preference_loss: sigmoid` for that");
    } else if (loss != PL_DPO_LOSS_ROBUST && loss != PL_DPO_LOSS_EXO_PAIR) {
        pl_import_withdraw(im, PL_KEY_label_smoothing, PL_IMPORT_INERT,
                           "this loss does not read it");
    }
}

/* The trainers of preferences switch dropout off in all modules, adapters included, and pack no
 * rows. */
void pl_rule_not_read(struct pl_import *im) {
    struct pl_taken t;
    if (!pl_job_prefers(&im->job)) return;
    pl_import_withdraw(im, PL_KEY_packing, PL_IMPORT_INERT,
                       "rows of preferences are not packed there");
    if (pl_import_peek(im, "disable_dropout", &t) && !pl_node_is_on(t.value)) return;
    pl_import_withdraw(im, PL_KEY_lora_dropout, PL_IMPORT_INERT,
                       "dropout is off in training on preferences there");
}

/* SimPO of TRL adds the supervised loss, unless it is told not to. */
void pl_rule_simpo(struct pl_import *im) {
    if (im->job.stage == PL_STAGE_SIMPO && !pl_import_has(im, PL_KEY_sft_weight))
        pl_import_set(im, PL_KEY_sft_weight, "1", NULL, "cpo_alpha");
}

void pl_import_drop_refused(struct pl_import *im) {
    const struct pl_job *job = &im->job;
    if (!pl_job_prefers(job)) return;
    if (job->optimizer_in_backward == PL_TRI_TRUE)
        pl_import_withdraw(
            im, PL_KEY_optimizer_in_backward, PL_IMPORT_MISSED,
            "updates in the backward pass of training on preferences: not supported");
}

/* ---- TRL ---- */

static PL_MAP(map_prompt_length) {
    (void)row;
    pl_import_miss(im, t,
                   "prompts are cut to that length: not supported; `max_seq_length` bounds prompt "
                   "and answer together");
}

const struct pl_import_row pl_rows_of_preferences[] = {
    {"beta", PL_KEY_beta, pl_map_same, NULL, NULL},
    {"label_smoothing", PL_KEY_label_smoothing, pl_map_same, NULL, NULL},
    {"rpo_alpha", PL_KEY_sft_weight, pl_map_same, NULL, NULL},
    {"cpo_alpha", PL_KEY_sft_weight, pl_map_same, NULL, NULL},
    {"simpo_gamma", PL_KEY_simpo_gamma, pl_map_same, NULL, NULL},
    {"ld_alpha", PL_KEY_ld_alpha, pl_map_same, NULL, NULL},
    {"desirable_weight", PL_KEY_desirable_weight, pl_map_same, NULL, NULL},
    {"undesirable_weight", PL_KEY_undesirable_weight, pl_map_same, NULL, NULL},
    {"precompute_ref_log_probs", PL_KEY_precompute_reference, pl_map_word, pl_words_precompute,
     NULL},
    {"max_prompt_length", PL_KEY_COUNT, map_prompt_length, NULL, NULL},
    {"max_completion_length|max_target_length", PL_KEY_COUNT, pl_map_off,
     "a length of the answer alone", NULL},
    {"reference_free", PL_KEY_COUNT, pl_map_off, "DPO without a reference", NULL},
    {"f_divergence_type", PL_KEY_COUNT, pl_map_only,
     "reverse_kl|another divergence than the reverse KL", NULL},
    {"use_weighting", PL_KEY_COUNT, pl_map_off, "weights of pairs by their probability (WPO)",
     NULL},
    {"sync_ref_model", PL_KEY_COUNT, pl_map_off, "a reference that follows the training (TR-DPO)",
     NULL},
    {"ref_model|ref_adapter_name|model_adapter_name|force_use_ref_model|ref_model_init_kwargs",
     PL_KEY_COUNT, pl_map_off, "a reference other than the base and the start of the run", NULL},
    {"alpha", PL_KEY_COUNT, pl_map_off, "AlphaPO", NULL},
    {"f_alpha_divergence_coef|discopop_tau|ref_model_mixup_alpha|ref_model_sync_steps",
     PL_KEY_COUNT, pl_map_inert, "it belongs to another line", NULL},
    {"disable_dropout", PL_KEY_COUNT, pl_map_inert, "`lora_dropout` says it", NULL},
    {"generate_during_eval|is_encoder_decoder|label_pad_token_id|padding_value|"
     "precompute_ref_batch_size",
     PL_KEY_COUNT, pl_map_inert, "there is nothing to set here", NULL},
    {NULL, PL_KEY_COUNT, NULL, NULL, NULL},
};

/* Keys that one trainer of TRL has, and the stage that it is. */
static const struct {
    const char *paths, *stage;
} signs[] = {
    {"desirable_weight|undesirable_weight", "kto"},
    {"simpo_gamma|cpo_alpha", "simpo"},
    {"ld_alpha|rpo_alpha|f_divergence_type|reference_free|use_weighting|loss_weights", "dpo"},
};

/* Returns the stage that the name of the result says, NULL: none. "orpo" and "simpo" are tried
 * before the words that are shorter. */
static const char *stage_in_names(const struct pl_import *im, struct pl_taken *t) {
    static const char *const words[] = {"orpo", "simpo", "kto", "dpo"};
    static const char *const keys[] = {"output_dir", "run_name", "hub_model_id"};
    for (size_t k = 0; k < sizeof keys / sizeof *keys; k++)
        for (size_t i = 0; i < sizeof words / sizeof *words; i++)
            if (pl_import_peek(im, keys[k], t) && strcasestr(pl_node_text(t->value), words[i]))
                return words[i];
    return NULL;
}

/* The file does not say which trainer of TRL reads it: its keys do, or the name of its result. */
static void find_stage(struct pl_import *im) {
    struct pl_taken t, name;
    const bool has_loss = pl_import_peek(im, "loss_type", &t);
    const struct loss *loss = has_loss ? loss_in(im, t.value) : NULL;
    const char *stage = NULL;
    for (size_t i = 0; !stage && i < sizeof signs / sizeof *signs; i++) {
        struct pl_taken sign;
        if (!pl_import_peek(im, signs[i].paths, &sign)) continue;
        stage = signs[i].stage;
        t = sign;
    }
    if (!stage && loss) stage = loss->stage;
    if (stage) {
        pl_import_set(im, PL_KEY_stage, stage, &t, "a line of this training");
        return;
    }
    const bool any = pl_import_peek(im, "beta|precompute_ref_log_probs|max_prompt_length", &t);
    stage = stage_in_names(im, &name);
    if (stage && any) {
        pl_import_set(im, PL_KEY_stage, stage, &name, "its name says so");
    } else if (stage) {
        pl_import_set(im, PL_KEY_stage, stage, &name, "its name says so");
        pl_import_miss(im, &name, "nothing else says it: remove `stage` if it is another training");
    } else if (any) {
        pl_import_set(im, PL_KEY_stage, "dpo", &t, "a line of this training");
        pl_import_miss(im, &t, "`trl kto` and `trl orpo` have this line, too: see `stage`");
    }
}

static void read_losses(struct pl_import *im) {
    static const struct pl_word supervised[] = {
        {"nll", "", "as here"},
        {"chunked_nll", "", "as here"},
        {"dft", NULL, "the loss of DFT: not supported"},
        PL_WORDS_END,
    };
    static const struct pl_import_row row = {"", PL_KEY_COUNT, pl_map_word, supervised, NULL};
    struct pl_taken t, weights;
    const bool has_weights = pl_import_take(im, "loss_weights", &weights);
    const bool has = pl_import_take(im, "loss_type", &t);
    const struct loss *loss = has ? loss_in(im, t.value) : NULL;
    if (im->job.stage == PL_STAGE_SIMPO && (!loss || strcmp(loss->stage, "simpo") != 0))
        pl_import_miss(im, has ? &t : NULL,
                       "CPO, whose loss is `sigmoid` unless it is `simpo`: not supported");
    else if (has && !pl_job_prefers(&im->job))
        pl_map_word(im, &row, &t);
    else if (has)
        pl_import_losses(im, &t, has_weights ? &weights : NULL);
}

/* Other trainings of TRL have keys of the same names: they are named where their own are read. */
void pl_rule_trl_stage(struct pl_import *im) {
    static const struct pl_import_row cut = {"", PL_KEY_truncation, pl_map_same, NULL, NULL};
    static const struct pl_import_row whole = {"", PL_KEY_COUNT, pl_map_only,
                                               "keep_start|cutting at the start", NULL};
    struct pl_taken t;
    if (!pl_import_peek(im, "num_generations|reward_funcs|reward_weights|reward_model_path", &t))
        find_stage(im);
    read_losses(im);
    if (pl_import_take(im, "truncation_mode", &t)) {
        const bool pairs = im->job.stage == PL_STAGE_DPO;
        pairs ? pl_map_same(im, &cut, &t) : pl_map_only(im, &whole, &t);
    }
    pl_rule_smoothing(im, "label_smoothing", true);
    pl_rule_not_read(im);
    pl_rule_simpo(im);
    if (im->job.stage == PL_STAGE_KTO && !pl_import_has(im, PL_KEY_shuffle))
        pl_import_set(im, PL_KEY_shuffle, "false", NULL, "rows in their order");
}
