/* import.h - the configuration of another trainer as a job of ours.
 *
 * In: a file of axolotl, LLaMA-Factory, torchtune, TRL, Unsloth, PEFT or accelerate.
 * Out: a job, and for every line of the file what became of it.
 * Needs: base, config, the names of the models that are known (model/catalogue.h).
 *   I1  every key of the file is told once: it is mapped, it is inert here, or it is not supported
 *   I2  a default of the trainer that differs from ours is written, and told as one
 *   I3  the text of pl_import_write() is read by pl_job_parse(), and gives the same job; it fails
 *       only where the text itself says what is missing, or is longer than a configuration may be
 * Nothing is fetched; of other files only those are read that the configuration names:
 * dataset_info.json of LLaMA-Factory and the configuration of DeepSpeed.
 * Use: struct pl_import im;
 *      if (pl_import_read(&im, "their.yaml", PL_RECIPE_NONE, &d) == PL_ERR_OK)
 *          pl_import_write(&im, &text);
 *      pl_import_finish(&im); */
#ifndef PL_ESTIMATOR_IMPORT_IMPORT_H
#define PL_ESTIMATOR_IMPORT_IMPORT_H

#include "estimator/base/report_rows.h"
#include "estimator/config/document.h"
#include "estimator/config/recipe.h"
#include "estimator/config/job.h"

enum pl_import_fate {
    PL_IMPORT_MAPPED,  /* the line says what a key of ours says */
    PL_IMPORT_DEFAULT, /* the file is silent, and the trainer's default is not ours */
    PL_IMPORT_INERT,   /* it changes nothing that is learned */
    PL_IMPORT_MISSED,  /* it changes what is learned, and is not done here, or not as it is there */
    PL_IMPORT_FATES,
};

#define PL_IMPORT_NO_ENTRY UINT32_MAX
enum { PL_TAKEN_BY_ROW = 1, PL_TAKEN_BY_VALUE = 2 }; /* a row has read it; ${...} has */

struct pl_import_note {
    enum pl_import_fate fate;
    enum pl_key_id key; /* of ours, that was set; PL_KEY_COUNT: none */
    uint32_t entry;     /* the entry of `datasets` that it is about; PL_IMPORT_NO_ENTRY: none */
    uint64_t line;      /* of the file; 0: none */
    size_t where, why;  /* texts in `pool`: the key of theirs with its value, and the reason */
};

struct pl_import {
    enum pl_recipe from;
    char *path;
    struct pl_document doc;
    struct pl_job job;
    struct pl_import_note *notes;
    uint32_t n_notes;
    uint32_t note_of[PL_KEY_COUNT]; /* 1 + the number of the note of a key that was set; 0: none */
    uint8_t *taken;                 /* by number of a node: PL_TAKEN_* of the key */
    struct pl_text pool;            /* the texts of the notes, each with its NUL */
    struct pl_text data;            /* the entries of `datasets`, as YAML */
    uint32_t n_data;
    size_t entry_at;      /* where the entry begins that is written */
    const char *template; /* the text of a template that the file holds, borrowed; NULL: none */
    uint32_t template_note;
    char **owned; /* values of the document after interpolation */
    uint32_t n_owned;
    pl_err err; /* the first failure that is not the file's: memory */
    struct pl_diag *d;
};

/* `from` is PL_RECIPE_NONE where the keys decide. CONFIG_SYNTAX, CONFIG_FILE, or CONFIG_FOREIGN
 * where no trainer is known by the keys. On failure *im is finished. */
pl_err pl_import_read(struct pl_import *im, const char *path, enum pl_recipe from,
                      struct pl_diag *d);
/* pl_import_read from memory; `path` is the name in messages, and says where its files are. */
pl_err pl_import_parse(struct pl_import *im, const char *path, const char *yaml, uint64_t bytes,
                       enum pl_recipe from, struct pl_diag *d);
void pl_import_finish(struct pl_import *im); /* leaves {0} */

/* Says where the text of im->template is kept: chat_template is that file, whose name ends with
 * .jinja. Until then it is not supported. */
void pl_import_place_template(struct pl_import *im, const char *name);
uint32_t pl_import_count(const struct pl_import *im, enum pl_import_fate fate);
/* Appends the YAML, with a comment for every line of the file. */
void pl_import_write(const struct pl_import *im, struct pl_text *out);
/* Appends a line for each thing that is not supported. */
void pl_import_write_missed(const struct pl_import *im, struct pl_text *out);
/* Adds framework, yaml and the lists mapped, defaults, inert and not_supported. */
void pl_import_report(const struct pl_import *im, struct pl_report *r);

#endif
