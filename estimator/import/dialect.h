/* dialect.h - a trainer's configuration as a table, and what rows and rules are written with.
 * Internal to import/.
 *
 * In: a document and the tables of its trainer.  Out: values of the job, and notes.
 * A row reads keys of theirs one by one; a rule reads several that decide something together. Rows
 * are read in their order, a later one for the same key of ours wins; then the rules; then defaults
 * are filled where nothing was said. No function here fails: a lack of memory is kept in im->err.
 *   L1  a value that our parser refuses is told as not supported, in the parser's words
 * Use: static const struct pl_import_row rows[] = {
 *          {"lora_rank", PL_KEY_lora_r, pl_map_same, NULL, "8"}, ...}; */
#ifndef PL_ESTIMATOR_IMPORT_DIALECT_H
#define PL_ESTIMATOR_IMPORT_DIALECT_H

#include "estimator/base/diag.h"
#include "estimator/import/import.h"

/* A key of theirs that is there and is not null. */
struct pl_taken {
    const char *path; /* "optimizer.lr" */
    const struct pl_node *key, *value;
};

struct pl_import_row {
    const char *paths; /* "lora_r|r": names for one thing; dots lead into sections */
    enum pl_key_id key;
    void (*map)(struct pl_import *im, const struct pl_import_row *row, const struct pl_taken *t);
    const void *arg;    /* struct pl_word[] of pl_map_word; the reason of the others */
    const char *preset; /* the trainer's default where it is not ours, "value" or "value|why" */
};

struct pl_dialect {
    const struct pl_import_row *const *tables;  /* each ends with a row without paths; then NULL */
    void (*const *rules)(struct pl_import *im); /* ends with NULL */
    bool interpolates;                          /* ${name} in values */
};
extern const struct pl_dialect pl_dialect_axolotl, pl_dialect_llama_factory, pl_dialect_torchtune,
    pl_dialect_trl, pl_dialect_unsloth, pl_dialect_peft, pl_dialect_accelerate;
/* The keys of transformers' Trainer, which several dialects share, without their defaults. */
extern const struct pl_import_row pl_rows_of_trainer[];
/* The keys of TRL's trainers of preferences, without those that pl_rule_trl_stage() reads. */
extern const struct pl_import_row pl_rows_of_preferences[];

/* ---- reading ---- */

/* Finds the first of the names of `paths` that no one has read and that is not null; false: there
 * is none. A key that was passed over since it is null counts as read, too. */
bool pl_import_take(struct pl_import *im, const char *paths, struct pl_taken *t);
/* Finds the first that is not null, read or not, and leaves it for others. */
bool pl_import_peek(const struct pl_import *im, const char *paths, struct pl_taken *t);
/* The keys of a section with their values, one after the other: starts with *i = 0; NULL after the
 * last, and for what is no section. */
const struct pl_node *pl_import_pair(const struct pl_import *im, const struct pl_node *section,
                                     uint32_t *i, const struct pl_node **value);
/* The items of a list, one after the other: starts with *i = 0. */
const struct pl_node *pl_import_next(const struct pl_import *im, const struct pl_node *of,
                                     uint32_t *i);
/* The value of a key in a section; NULL: it is not there, or null. */
const struct pl_node *pl_import_in(const struct pl_import *im, const struct pl_node *section,
                                   const char *name);
/* Returns the text of a scalar, "" of anything else. */
const char *pl_node_text(const struct pl_node *node);
bool pl_node_is_null(const struct pl_node *node);
/* The values that YAML 1.1 reads as true and false: yes, on, no, off, too. */
bool pl_node_flag(const struct pl_node *node, bool *out);
/* Copies a number without the underscores that YAML 1.1 passes over, as in 500_000; false: it has
 * none, or is no number. */
#define PL_NUMBER_BYTES 64
bool pl_node_bare_number(const struct pl_node *node, char out[PL_NUMBER_BYTES]);
bool pl_node_number(const struct pl_node *node, double *out);
/* False for null, false, no, 0, none and what is empty. */
bool pl_node_is_on(const struct pl_node *node);

/* ---- what becomes of a key ---- */

/* Sets a key of ours. `t` may be NULL: a default of the trainer. `why` (nullable) is added to the
 * comment. True if our parser takes the value. */
bool pl_import_set(struct pl_import *im, enum pl_key_id key, const char *value,
                   const struct pl_taken *t, const char *why);
bool pl_import_has(const struct pl_import *im, enum pl_key_id key);  /* it was set */
bool pl_import_said(const struct pl_import *im, enum pl_key_id key); /* by a line, not a default */
/* Borrows the text of a template for pl_import_place_template(). `whose` begins the note. */
void pl_import_hold_template(struct pl_import *im, const struct pl_taken *t, const char *text,
                             const char *whose);
/* Keeps a text as long as *im and returns it; NULL: no memory for it, which im->err says. */
const char *pl_import_own(struct pl_import *im, const struct pl_text *text);
/* Takes a key back that was set, if it was: a line of theirs has that fate then, and `why` says
 * why. */
void pl_import_withdraw(struct pl_import *im, enum pl_key_id key, enum pl_import_fate fate,
                        const char *why);
void pl_import_inert(struct pl_import *im, const struct pl_taken *t, const char *fmt, ...)
    PL_PRINTF(3, 4);
/* `t` may be NULL: it concerns the file as a whole. */
void pl_import_miss(struct pl_import *im, const struct pl_taken *t, const char *fmt, ...)
    PL_PRINTF(3, 4);
/* Adds a note to the entry of `datasets` that was begun last. */
void pl_import_note_entry(struct pl_import *im, enum pl_import_fate fate, const struct pl_taken *t,
                          const char *fmt, ...) PL_PRINTF(4, 5);
/* Counts the key as read without a word. */
void pl_import_pass(struct pl_import *im, const char *path);

/* ---- maps of rows ---- */

struct pl_word {
    const char *word, *to; /* to NULL: not supported; "": inert */
    const char *why;       /* nullable */
};
#define PL_WORDS_END                                                                               \
    { NULL, NULL, NULL }

#define PL_MAP(name)                                                                               \
    void name(struct pl_import *im, const struct pl_import_row *row, const struct pl_taken *t)
PL_MAP(pl_map_same);     /* the value as it is */
PL_MAP(pl_map_word);     /* by the table arg; true and false in every spelling of YAML 1.1 */
PL_MAP(pl_map_flag);     /* a truth value */
PL_MAP(pl_map_list);     /* a list, or words with commas */
PL_MAP(pl_map_steps);    /* a number of steps: negative is none, a share is told */
PL_MAP(pl_map_template); /* the name of a .jinja file; arg: what another text is */
PL_MAP(pl_map_inert);    /* arg: why */
PL_MAP(pl_map_off);      /* not supported unless it is off; arg: what it would have done */
PL_MAP(pl_map_only);     /* not supported beyond the first word of arg, "word|what it would be" */

/* ---- data ---- */

/* True if a name is a kind of files of Hugging Face datasets, and `data_files` has their names. */
bool pl_data_is_kind(const char *name);
/* Begins an entry of `datasets` from the name of a file or of a data set of the hub. */
void pl_data_begin(struct pl_import *im, const struct pl_taken *t, const char *name);
/* Adds a word to it, such as `format: alpaca`; if it is given twice the first one counts. */
void pl_data_word(struct pl_import *im, const char *key, const char *value);
void pl_data_words(struct pl_import *im, const char *key,
                   const struct pl_node *value); /* nullable */
/* Adds the words of TRL's own rows of preferences, if the stage reads such; true: it does. */
bool pl_data_prefers(struct pl_import *im);
void pl_data_weight(struct pl_import *im, const struct pl_node *value);
/* Adds `max_samples`; 0: nothing. */
void pl_data_samples(struct pl_import *im, uint64_t most);
void pl_data_end(struct pl_import *im);
/* Adds the word `split` of a part of a data set such as `train[:1000]`, or tells what it would have
 * been. `role` is "eval", or NULL for data that is trained on; `part` may be empty; `t` says the
 * place. */
void pl_data_split(struct pl_import *im, const struct pl_taken *t, const char *role,
                   const char *part);

/* ---- training on preferences ---- */

/* Reads a loss, or one together with the loss `sft`; `weights` may be NULL. */
void pl_import_losses(struct pl_import *im, const struct pl_taken *t,
                      const struct pl_taken *weights);
extern const struct pl_word pl_words_precompute[];
/* `paths` name label smoothing; `versions_differ` on what it is under `sigmoid`. */
void pl_rule_smoothing(struct pl_import *im, const char *paths, bool versions_differ);
void pl_rule_not_read(struct pl_import *im);
void pl_rule_simpo(struct pl_import *im);
/* Takes back what a job of this stage refuses: the lines are not supported then. */
void pl_import_drop_refused(struct pl_import *im);
void pl_rule_trl_stage(struct pl_import *im);

/* Holds the template that LLaMA-Factory has by this name; false: it is not known here. */
bool pl_llama_factory_template(struct pl_import *im, const struct pl_taken *t);

/* Adds the prompt that axolotl's type of an entry makes of its rows: one of its own, or a mapping.
 * False: the type is none of these. */
bool pl_axolotl_prompt(struct pl_import *im, const struct pl_node *type, const struct pl_taken *t);
/* Adds what axolotl's type of an entry says of its rows of preferences. */
void pl_axolotl_preferences(struct pl_import *im, const struct pl_node *entry,
                            const struct pl_taken *t);

/* ---- rules that dialects share ---- */

void pl_rule_warmup(struct pl_import *im);
void pl_rule_schedule(struct pl_import *im);
void pl_rule_checkpoints(struct pl_import *im);
void pl_rule_evaluation(struct pl_import *im);
void pl_rule_reports(struct pl_import *im);
void pl_rule_devices(struct pl_import *im); /* deepspeed, fsdp */
/* Sets the types of a run whose weights, gradients and moments are in bf16 alone. */
void pl_import_pure_bf16(struct pl_import *im, const struct pl_taken *t);
extern const struct pl_word pl_words_optimizer[];

/* Reads a JSON file that the configuration names, from the current directory, then from its own.
 * NULL: it is not there, too long, or no JSON. */
json_t *pl_import_json_beside(struct pl_import *im, const char *path);

#endif
