/* companions.h - the files of a model directory that training does not change: tokenizer, chat
 * template, generation config, licences.
 *
 * In: the directories they lie in, and texts that stand in place of single ones.  Out: copies in an
 * outbox.  Needs: durable.h.
 *   N1  what a run was trained with goes with what it saves: a template of a file or of the table
 *       is written as chat_template.jinja, in place of the one that the directory has
 *   N2  a file that is not there is not written; any other trouble is an error
 * Use: const struct pl_companions c = {.dirs = {model_dir}};
 *      pl_companions_put(&outbox, &c, buffer, bytes, &d); */
#ifndef PL_RUNTIME_CHECKPOINT_COMPANIONS_H
#define PL_RUNTIME_CHECKPOINT_COMPANIONS_H

#include "runtime/checkpoint/durable.h"

struct pl_companions {
    const char *dirs[2];          /* the first that has a file gives it; NULL: none */
    const char *chat_template;    /* the text of chat_template.jinja; NULL: as it is found */
    const char *tokenizer_config; /* the text of tokenizer_config.json, which then holds all
                                   * templates: chat_template.jinja is left out; NULL */
    bool tokenizer_only;          /* no licences, and nothing about generation */
};

/* Writes them into the outbox; c NULL: none. Files pass through buffer[bytes]. */
pl_err pl_companions_put(struct pl_outbox *o, const struct pl_companions *c, void *buffer,
                         uint64_t bytes, struct pl_diag *d);
/* True, for pl_save_set_commit, if this is the template of an earlier save, which readers would
 * prefer to the one that the save at hand put elsewhere. */
bool pl_companions_is_leftover(const char *name, const void *outbox);
/* True for a file that pl_companions_put() may write. */
bool pl_companions_has(const char *name);

#endif
